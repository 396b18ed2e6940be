/*
 * bench_latency: a small job of `copy` through a ring, one at a time, against the best that one
 * process can do by hand.
 *
 *     ring       descriptors by hand; the client spins for its completion as the rivals do, where
 *                there are CPUs for that
 *     library    the same through libgpupipe, which waits as it waits
 *     socket     a `run` of the same bytes
 *     direct     on a GPU: copy-in, kernel, copy-out and an event on one stream of the highest
 *                priority, with calls or as a graph; and a kernel that works in the host's memory
 *     in this process   on the CPU: the op's code called
 *
 * Stages: of the jobs in the ring, where their time goes (stages.h).
 *
 * Back to back: many jobs, each as soon as the one before is done.  After silence: nobody does
 * anything for a while, then one job; before it `stats` is asked whether the daemon is awake, and
 * half a second passes again.
 *
 * Rounds in random order with fresh random data; every byte is checked.
 */
#include "client/call_any.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/calls.h"
#include "tests/bench/contest.h"
#include "tests/bench/ring_stream.h"
#include "tests/bench/shot.h"
#include "tests/bench/stages.h"

#include <math.h>
#include <string.h>

#define SIZE_MOST (16u << 20)
#define RING_MOST (256u << 20)
#define PAUSE_NS  UINT64_C(500000000)
#define POOL      "2G"
#define SPIN_CPUS 4 /* client, front end and worker, and one for all others */

enum way { WAY_RING, WAY_LIBRARY, WAY_SOCKET, WAY_RIVALS };

#define WAYS_MAX (WAY_RIVALS + SHOT_RIVALS_MAX)

struct options {
    const char *backend;
    const char *priority;
    const char *json;
    size_t size;
    uint32_t n_jobs;
    uint32_t n_rounds;
    uint32_t spin_us;
    uint32_t silence_ms;
    uint32_t n_shots;
};

struct figures {
    uint32_t n; /* runs, of which the first is not counted */
    double p99[CONTEST_ROUNDS_MAX + 1];
    double idle_cpu_s[CONTEST_ROUNDS_MAX + 1];
};

struct bench {
    const struct options *options;
    enum priority priority;
    struct bench_daemon daemon;
    struct shot_memory memory; /* of the rivals, and what outputs are compared with */
    struct shot_rival rivals[SHOT_RIVALS_MAX];
    uint32_t n_rivals;
    struct ring_stream ring;
    struct ring_stream_job job;
    struct ring_stream_job timed_job;
    struct calls calls;
    struct gpupipe *gpupipe;
    struct gpupipe_ring *library_ring;
    struct gpupipe_job *library_job;
    uint8_t *library_in;
    uint8_t *library_out;
    double *seconds; /* of each job of a run */
    struct contest back_to_back;
    struct contest after_silence;
    struct figures busy[WAYS_MAX];
    struct figures silent[WAYS_MAX];
    uint32_t n_asleep, n_awake; /* as stats said */
    uint32_t awake_cpus;        /* that urgent work may keep busy */
};

static uint32_t n_ways(const struct bench *bench)
{
    return WAY_RIVALS + bench->n_rivals;
}

static const char *way_name(const struct bench *bench, uint32_t way)
{
    static const char *const names[] = {"ring", "library", "socket"};

    return way < WAY_RIVALS ? names[way] : bench->rivals[way - WAY_RIVALS].name;
}

/* ---- one job -------------------------------------------------------------------------------- */

static void must(const struct bench *bench, int status)
{
    if (status < 0) {
        bench_fail("libgpupipe: %s", gpupipe_last_error(bench->gpupipe)->message);
    }
}

static void run_library(const struct bench *bench, uint32_t i)
{
    size_t size = bench->options->size;
    struct gpupipe_completion completion;
    struct gpupipe_desc desc;
    int n;

    GPUPIPE_INIT(&completion);
    GPUPIPE_INIT(&desc);
    desc.job = bench->library_job;
    desc.n_records = size / SHOT_UNIT;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){bench->library_in + i * size, size};
    desc.out[0] = (struct gpupipe_room){bench->library_out + i * size, size};
    must(bench, gpupipe_submit(bench->gpupipe, &desc, 1));
    while ((n = gpupipe_reap(bench->gpupipe, &completion, 1)) == 0) {
        must(bench, gpupipe_wait(bench->gpupipe, -1));
    }
    must(bench, n);
    if (completion.status != GPUPIPE_OK) {
        bench_fail("libgpupipe: %s", completion.error->message);
    }
}

static void run_job(struct bench *bench, uint32_t way, uint32_t i)
{
    const struct shot_memory *memory = &bench->memory;
    size_t size = memory->size;

    switch (way) {
    case WAY_RING:
        ring_stream_shot(&bench->ring, &bench->job, i * size, size,
                         bench->options->spin_us * UINT64_C(1000));
        break;
    case WAY_LIBRARY:
        run_library(bench, i);
        break;
    case WAY_SOCKET:
        calls_run(&bench->calls, memory->in + i * size, memory->out + i * size, size, 1, 1);
        break;
    default:
        bench->rivals[way - WAY_RIVALS].run(bench->rivals[way - WAY_RIVALS].state, i);
    }
}

static uint8_t *output_of(const struct bench *bench, uint32_t way)
{
    return way == WAY_RING      ? bench->ring.out
           : way == WAY_LIBRARY ? bench->library_out
                                : bench->memory.out;
}

/* Jobs 0 to n-1, each by itself. */
static void run_jobs(struct bench *bench, uint32_t way, uint32_t n)
{
    size_t size = n * bench->options->size;
    uint8_t *out = output_of(bench, way);

    for (uint32_t i = 0; i < n; i++) {
        uint64_t start_ns = now_ns();

        run_job(bench, way, i);
        bench->seconds[i] = (double)(now_ns() - start_ns) * 1e-9;
    }
    bench_check_same(way_name(bench, way), out, bench->memory.in, size);
}

static void begin_round(void *owner)
{
    const struct bench *bench = owner;
    size_t size = bench->memory.n * bench->memory.size;

    bench_fill(bench->memory.in, size);
    memcpy(bench->ring.in, bench->memory.in, size);
    memcpy(bench->library_in, bench->memory.in, size);
}

/* ---- back to back --------------------------------------------------------------------------- */

static double run_busy(void *owner, uint32_t way)
{
    struct bench *bench = owner;
    struct figures *figures = &bench->busy[way];
    uint32_t n = bench->memory.n;

    bench_poison(output_of(bench, way), n * bench->memory.size);
    run_jobs(bench, way, n);
    figures->p99[figures->n++] = bench_quantile(bench->seconds, n, 0.99);
    return bench_median(bench->seconds, n);
}

static void report_busy(struct bench *bench, struct bench_report *report)
{
    bench_report_table(report, "back_to_back",
                       "one job at a time: medians of the rounds' p50 and p99");
    for (uint32_t way = 0; way < n_ways(bench); way++) {
        struct figures *figures = &bench->busy[way];
        const struct bench_cell row[] = {
            {"way             ", way_name(bench, way), 0, 0},
            {"p50_us", NULL, contest_seconds(&bench->back_to_back, way) * 1e6, 1},
            {"p99_us", NULL, bench_median(&figures->p99[1], figures->n - 1) * 1e6, 1},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
}

static void report_stages(struct bench *bench, struct bench_report *report)
{
    const struct stages_options options = {
        .daemon = bench->daemon.pid,
        .stream = &bench->ring,
        .plain = &bench->job,
        .timed = &bench->timed_job,
        .priority = bench->priority,
        .size = bench->options->size,
        .n_jobs = MIN(bench->memory.n, STAGES_JOBS),
        .spin_ns = bench->options->spin_us * UINT64_C(1000),
    };

    stages_report(&options, report);
}

/* ---- after silence -------------------------------------------------------------------------- */

static double daemon_cpu_s(const struct bench *bench)
{
    return bench_usage(bench->daemon.pid).cpu_s + bench_usage(bench->daemon.worker).cpu_s;
}

static const msgpack_object *find(const msgpack_object *map, const char *name)
{
    for (uint32_t i = 0; map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
        const msgpack_object_kv *pair = &map->via.map.ptr[i];

        if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size == strlen(name) &&
            memcmp(pair->key.via.str.ptr, name, strlen(name)) == 0 &&
            pair->val.type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
            return &pair->val;
        }
    }
    return NULL;
}

/* A daemon that does not say counts for nothing. */
static void take_awake(msgpack_object *result, void *arg)
{
    const msgpack_object *awake = find(result, "awake"), *cpus = find(result, "awake_cpus");
    struct bench *bench = arg;

    if (awake != NULL) {
        *(awake->via.u64 > 0 ? &bench->n_awake : &bench->n_asleep) += 1;
    }
    if (cpus != NULL) {
        bench->awake_cpus = (uint32_t)cpus->via.u64;
    }
}

static void ask_awake(struct bench *bench)
{
    static const char no_parameters[] = {(char)0x90};
    msgpack_sbuffer params;

    msgpack_sbuffer_init(&params);
    msgpack_sbuffer_write(&params, no_parameters, sizeof(no_parameters));
    must(bench, call_any(bench->gpupipe, "stats", &params, take_awake, bench));
    msgpack_sbuffer_destroy(&params);
}

static double run_silent(void *owner, uint32_t i)
{
    struct bench *bench = owner;
    uint32_t way = i < WAY_SOCKET ? i : i + 1; /* without the socket */
    struct figures *figures = &bench->silent[way];
    double cpu_s = daemon_cpu_s(bench);

    bench_poison(output_of(bench, way), bench->memory.size);
    usleep(bench->options->silence_ms * 1000);
    figures->idle_cpu_s[figures->n++] = daemon_cpu_s(bench) - cpu_s;
    if (way < WAY_RIVALS) {
        ask_awake(bench);
    }
    usleep(PAUSE_NS / 1000);
    run_jobs(bench, way, 1);
    return bench->seconds[0];
}

static void report_silent(struct bench *bench, struct bench_report *report)
{
    bench_report_table(report, "after_silence",
                       "one job: median and maximum of the shots; and the CPU time that front end "
                       "and worker took in the silence before");
    for (uint32_t i = 0; i < bench->after_silence.n_variants; i++) {
        uint32_t way = i < WAY_SOCKET ? i : i + 1, n = bench->options->n_shots;
        double *seconds = bench->after_silence.seconds[i];
        struct figures *figures = &bench->silent[way];
        double most = 0;

        for (uint32_t shot = 0; shot < n; shot++) {
            most = MAX(most, seconds[shot]);
        }
        const struct bench_cell row[] = {
            {"way             ", way_name(bench, way), 0, 0},
            {"median_us", NULL, contest_seconds(&bench->after_silence, i) * 1e6, 1},
            {"max_us", NULL, most * 1e6, 1},
            {"idle_cpu_ms", NULL, bench_median(&figures->idle_cpu_s[1], n) * 1e3, 3},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    bench_report_table(report, "stats", "what the daemon said before the shots in a ring");
    const struct bench_cell row[] = {
        {"asleep", NULL, bench->n_asleep, 0},
        {"awake", NULL, bench->n_awake, 0},
        {"of_shots", NULL, 2 * (bench->options->n_shots + 1), 0},
        {"awake_cpus", NULL, bench->awake_cpus, 0},
    };
    bench_report_row(report, row, ARRAY_SIZE(row));
}

/* ---- limits --------------------------------------------------------------------------------- */

/* The bound is for copies on a stream; that a kernel in the host's memory does it as well is
 * stated, and so is the CPU's, which calls a function. */
static void add_limits(const struct bench *bench, struct bench_report *report,
                       const struct contest *contest, uint32_t first_rival, const char *when,
                       double bound)
{
    bool is_cuda = strcmp(bench->options->backend, "cuda") == 0;

    for (uint32_t way = WAY_RING; way <= WAY_LIBRARY; way++) {
        for (uint32_t r = 0; r < bench->n_rivals; r++) {
            char limit[96];

            snprintf(limit, sizeof(limit), "%s: %s against %s", when, way_name(bench, way),
                     bench->rivals[r].name);
            bench_report_limit(report, limit, contest_ratio(contest, first_rival + r, way),
                               is_cuda && r == 0 ? bound : NAN);
        }
    }
}

static void measure(struct bench *bench)
{
    struct bench_report *report = bench_report_create("latency", bench->options->json);

    bench->back_to_back = (struct contest){.n_variants = n_ways(bench),
                                           .n_rounds = bench->options->n_rounds,
                                           .begin = begin_round,
                                           .run = run_busy,
                                           .owner = bench};
    contest_run(&bench->back_to_back);
    report_busy(bench, report);
    report_stages(bench, report);
    if (bench->options->n_shots > 0) {
        bench->after_silence = (struct contest){.n_variants = n_ways(bench) - 1,
                                                .n_rounds = bench->options->n_shots,
                                                .begin = begin_round,
                                                .run = run_silent,
                                                .owner = bench};
        contest_run(&bench->after_silence);
        report_silent(bench, report);
    }
    bench_report_table(report, "limits", "how many times as long as the rival's");
    add_limits(bench, report, &bench->back_to_back, WAY_RIVALS, "back to back", 1.6);
    if (bench->options->n_shots > 0) {
        add_limits(bench, report, &bench->after_silence, WAY_RIVALS - 1, "after silence", 3.5);
    }
    bench_report_destroy(report);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void open_library(struct bench *bench)
{
    const struct gpupipe_value size = {"size", GPUPIPE_INT, SHOT_UNIT, 0, NULL};
    size_t half = bench->memory.n * bench->memory.size;
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.priority = bench->priority == PRIORITY_URGENT ? GPUPIPE_URGENT
                    : bench->priority == PRIORITY_BULK ? GPUPIPE_BULK
                                                       : GPUPIPE_NORMAL;
    must(bench, gpupipe_open(&bench->gpupipe, bench->daemon.socket_path, "bench_latency"));
    must(bench, gpupipe_ring_open(&bench->library_ring, bench->gpupipe, 2 * half, NULL));
    opts.ring = bench->library_ring;
    must(bench, gpupipe_job_open(&bench->library_job, bench->gpupipe, "copy", &size, 1, &opts));
    bench->library_in = gpupipe_ring_alloc(bench->library_ring, half);
    bench->library_out = gpupipe_ring_alloc(bench->library_ring, half);
    if (bench->library_in == NULL || bench->library_out == NULL) {
        must(bench, -1);
    }
}

static void open_rivals(struct bench *bench)
{
    size_t size = bench->memory.n * bench->memory.size;

    bench->memory.in = bench_allocate(size);
    bench->memory.out = bench_allocate(size);
    bench_poison(bench->memory.in, size);
    bench_poison(bench->memory.out, size);
    bench->seconds = bench_allocate(bench->memory.n * sizeof(double));
    if (strcmp(bench->options->backend, "cpu") == 0) {
        bench->n_rivals = shot_open_cpu(&bench->memory, bench->rivals);
    }
#ifdef HAVE_CUDA
    if (strcmp(bench->options->backend, "cuda") == 0) {
        bench->n_rivals = shot_open_cuda(&bench->memory, bench->rivals);
    }
#endif
}

/* The daemon first: what is forked after it CUDA cannot be used in. */
static void start(struct bench *bench)
{
    const struct msg_op op = {.name = "copy",
                              .n_values = 1,
                              .values = {{.name = "size", .kind = VALUE_INT, .i = SHOT_UNIT}}};
    const struct msg_run run = {.op = op, .options = {.priority = bench->priority}, .n_data = 1};

    bench->memory.size = bench->options->size;
    bench->memory.n = MIN(bench->options->n_jobs, (uint32_t)(RING_MOST / bench->options->size));
    bench->daemon.ring_pool = POOL;
    bench_daemon_start(&bench->daemon, NULL, bench->options->backend);
    ring_stream_open(&bench->ring, bench->daemon.socket_path,
                     2 * bench->memory.n * bench->memory.size);
    ring_stream_prepare(&bench->ring, &op, bench->priority, 0, &bench->job);
    bench->ring.wants_timing = true;
    ring_stream_prepare(&bench->ring, &op, bench->priority, 0, &bench->timed_job);
    calls_open(&bench->calls, bench->daemon.socket_path);
    calls_prepare_run(&bench->calls, &run);
    open_library(bench);
    open_rivals(bench);
}

static void stop(struct bench *bench)
{
#ifdef HAVE_CUDA
    if (strcmp(bench->options->backend, "cuda") == 0) {
        shot_close_cuda();
    }
#endif
    gpupipe_close(bench->gpupipe);
    calls_close(&bench->calls);
    ring_stream_close(&bench->ring);
    bench_daemon_stop(&bench->daemon);
    free(bench->memory.in);
    free(bench->memory.out);
    free(bench->seconds);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"priority", "P", "urgent, normal or bulk", "urgent", .text = &options.priority},
        {"size", "SIZE", "bytes of one job", "4K", SHOT_UNIT, SIZE_MOST, .size = &options.size},
        {"jobs", "N", "jobs of one round", "1000", 1, 1000000, .count = &options.n_jobs},
        {"rounds", "N", "rounds", "7", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"spin", "US", "that ring's client spins: 1000, or 0 where CPUs are few", NULL, 0, 1000000,
         .count = &options.spin_us},
        {"silence", "MS", "before each shot", "2000", 0, 60000, .count = &options.silence_ms},
        {"shots", "N", "after silence, of each way; 0: no such table", "7", 0, CONTEST_ROUNDS_MAX,
         .count = &options.n_shots},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    options.spin_us = sysconf(_SC_NPROCESSORS_ONLN) >= SPIN_CPUS ? 1000 : 0;
    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "A small job in a ring, one at a time, against the same done by hand.");
    bench.options = &options;
    bench.priority = bench_options_priority(options.priority);
    bench_need_backend(options.backend);
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
