/*
 * bench_rival: the GPU pipeline against the best that one process can do by hand, against the link
 * itself, and, through the socket, against an echo of the same bytes.
 *
 * All work on the same memory, in rounds of random order with fresh random data; every byte of
 * every output is checked.  Ratios are medians of the ratios of the rounds.
 *
 *     link      copies alone: in, out, and both at once
 *     direct    chunks released by events, and the same as graphs (direct.h), each in the shape
 *               that the search found best; and in the worker's own shape
 *     worker    work queue to done queue, chunk and depth as the worker asks of the daemon
 *     ring      the same bytes in a ring of a private gpupiped, through a job of descriptors
 *     daemon    a streaming job through its socket
 *     echo      the same bytes through a socket to a process that sends them back
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/direct.h"
#include "tests/bench/echo.h"
#include "tests/bench/link.h"
#include "tests/bench/rig.h"
#include "tests/bench/ring_stream.h"
#include "tests/bench/search.h"
#include "tests/bench/stream.h"

#define PUSH_SIZE      (4u << 20)
#define RING_PUSH_SIZE (32u << 20) /* the daemon cuts it into chunks */
#define RING_WINDOW    4
#define RING_HALF      (512u << 20) /* inputs, and outputs, that the largest ring holds */
#define WORKER_DEPTH   4            /* chunks that the worker has on the device; more wait at it */

struct options {
    const char *json;
    size_t size;
    uint32_t n_rounds;
    uint32_t n_search_rounds;
};

enum variant {
    VARIANT_IN,
    VARIANT_OUT,
    VARIANT_BOTH,
    VARIANT_DAEMON,
    VARIANT_ECHO,
    VARIANT_FIXED, /* from here on five for each subject */
};

enum way { WAY_EVENTS, WAY_GRAPHS, WAY_AS_WORKER, WAY_WORKER, WAY_RING, WAY_COUNT };

static const char *const way_names[] = {
    [WAY_EVENTS] = "direct, events",
    [WAY_GRAPHS] = "direct, graphs",
    [WAY_AS_WORKER] = "direct, the worker's shape",
    [WAY_WORKER] = "worker",
    [WAY_RING] = "daemon, ring",
};

static const struct subject *const subjects[] = {&subject_copy, &subject_iterate_once};

#define N_VARIANTS               (VARIANT_FIXED + ARRAY_SIZE(subjects) * WAY_COUNT)
#define VARIANT_OF(subject, way) (VARIANT_FIXED + (subject)*WAY_COUNT + (way))

struct bench {
    const struct options *options;
    struct bench_report *report;
    struct bench_daemon daemon;
    struct echo echo;
    struct rig_memory memory;
    struct rig rig;
    uint32_t jobs[ARRAY_SIZE(subjects)];
    struct ring_stream ring;
    struct ring_stream_job ring_jobs[ARRAY_SIZE(subjects)];
    double ring_cpu_s; /* of front end, worker and this client, all rounds together */
    double ring_gb;
    struct direct *direct;
    struct link *link;
    struct direct_plan *plans[ARRAY_SIZE(subjects)][WAY_WORKER];
    struct contest contest;
};

/* ---- the rounds ----------------------------------------------------------------------------- */

static void prepare_plans(struct bench *bench)
{
    bench_report_table(bench->report, "search", "direct pipelines, GB/s each way");
    for (uint32_t s = 0; s < ARRAY_SIZE(subjects); s++) {
        const struct direct_shape shape = {
            .subject = subjects[s],
            .chunk_size = bench->rig.front.caps.chunk_size,
            .depth = WORKER_DEPTH,
            .wait = DIRECT_EVENTS,
        };

        search_best(bench->direct, &bench->memory, subjects[s], bench->options->n_search_rounds,
                    bench->report, &bench->plans[s][WAY_EVENTS], &bench->plans[s][WAY_GRAPHS]);
        direct_plan_create(bench->direct, &shape, &bench->plans[s][WAY_AS_WORKER]);
    }
}

static void begin_round(void *owner)
{
    struct bench *bench = owner;

    subject_fill(bench->memory.in, bench->memory.size);
    link_load(bench->link);
}

static double run_link(struct bench *bench, enum link_way way)
{
    double seconds;

    bench_poison(bench->memory.out, bench->memory.size);
    seconds = link_run(bench->link, way);
    link_check(bench->link, way);
    return seconds;
}

static double run_worker(struct bench *bench, uint32_t s)
{
    const struct worker_caps *caps = &bench->rig.front.caps;
    struct rig_memory *memory = &bench->memory;
    double seconds;

    bench_poison(memory->out, memory->size);
    seconds =
        rig_run(&bench->rig, bench->jobs[s], memory->size, caps->chunk_size, caps->bulk_chunks);
    subjects[s]->check("worker", memory->out, memory->in, memory->size);
    return seconds;
}

static double ring_cpu(const struct bench *bench)
{
    return bench_usage(0).cpu_s + bench_usage(bench->daemon.pid).cpu_s +
           bench_usage(bench->daemon.worker).cpu_s;
}

static double run_ring(struct bench *bench, uint32_t s)
{
    const struct rig_memory *memory = &bench->memory;
    double cpu_s, seconds;
    uint64_t start_ns;

    size_t half = MIN(memory->size, (size_t)RING_HALF);

    memcpy(bench->ring.in, memory->in, half);
    bench_poison(bench->ring.out, half);
    cpu_s = ring_cpu(bench);
    start_ns = now_ns();
    ring_stream_run(&bench->ring, &bench->ring_jobs[s], memory->size, RING_PUSH_SIZE);
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    bench->ring_cpu_s += ring_cpu(bench) - cpu_s;
    bench->ring_gb += (double)memory->size * 1e-9;
    subjects[s]->check("ring", bench->ring.out, bench->ring.in, half);
    return seconds;
}

static void stream(const struct bench *bench)
{
    const struct stream stream = {
        .op = {.name = "copy",
               .n_values = 1,
               .values = {{.name = "size",
                           .kind = VALUE_INT,
                           .i = (int64_t)subject_copy.record_size}}},
        .priority = PRIORITY_BULK,
        .in = bench->memory.in,
        .out = bench->memory.out,
        .in_size = bench->memory.size,
        .push_size = PUSH_SIZE,
        .in_record = subject_copy.record_size,
        .out_record = subject_copy.record_size,
    };

    stream_run(bench->daemon.socket_path, &stream);
}

static double run_socket(struct bench *bench, enum variant variant)
{
    const struct echo_shape shape = {
        .in_size = bench->memory.size, .push_size = PUSH_SIZE, .in_record = 1, .out_record = 1};
    struct rig_memory *memory = &bench->memory;
    uint64_t start_ns;
    double seconds;

    bench_poison(memory->out, memory->size);
    start_ns = now_ns();
    if (variant == VARIANT_DAEMON) {
        stream(bench);
    } else {
        echo_run(&bench->echo, &shape, memory->in, memory->out);
    }
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    bench_check_same("socket", memory->out, memory->in, memory->size);
    return seconds;
}

static double run_variant(void *owner, uint32_t variant)
{
    struct bench *bench = owner;
    uint32_t s = (variant - VARIANT_FIXED) / WAY_COUNT;
    enum way way = (variant - VARIANT_FIXED) % WAY_COUNT;

    if (variant <= VARIANT_BOTH) {
        return run_link(bench, LINK_IN + (variant - VARIANT_IN));
    }
    if (variant < VARIANT_FIXED) {
        return run_socket(bench, variant);
    }
    if (way == WAY_RING) {
        return run_ring(bench, s);
    }
    return way == WAY_WORKER ? run_worker(bench, s)
                             : search_run_plan(&bench->memory, subjects[s], bench->plans[s][way]);
}

/* ---- results -------------------------------------------------------------------------------- */

static void add_row(const struct bench *bench, uint32_t i, const char *name, const char *op)
{
    const struct bench_cell row[] = {
        {"op     ", op, 0, 0},
        {"variant                   ", name, 0, 0},
        {"gb_per_s", NULL, (double)bench->memory.size * 1e-9 / contest_seconds(&bench->contest, i),
         2},
        {"of_link_both", NULL, contest_ratio(&bench->contest, i, VARIANT_BOTH), 3},
    };

    bench_report_row(bench->report, row, ARRAY_SIZE(row));
}

static void add_rows(const struct bench *bench)
{
    bench_report_table(bench->report, "throughput",
                       "GB/s (of pipelines: each way), and as a share of the link with both "
                       "directions busy");
    add_row(bench, VARIANT_IN, "link, in", "-");
    add_row(bench, VARIANT_OUT, "link, out", "-");
    add_row(bench, VARIANT_BOTH, "link, both at once", "-");
    for (uint32_t s = 0; s < ARRAY_SIZE(subjects); s++) {
        for (enum way way = 0; way < WAY_COUNT; way++) {
            add_row(bench, VARIANT_OF(s, way), way_names[way], subjects[s]->op);
        }
    }
    add_row(bench, VARIANT_DAEMON, "daemon, socket", "copy");
    add_row(bench, VARIANT_ECHO, "echo, socket", "-");
}

/* Against whichever of the direct ways is the faster. */
static double against_best(const struct bench *bench, uint32_t s, enum way way)
{
    uint32_t variant = VARIANT_OF(s, way);

    return MIN(contest_ratio(&bench->contest, variant, VARIANT_OF(s, WAY_EVENTS)),
               contest_ratio(&bench->contest, variant, VARIANT_OF(s, WAY_GRAPHS)));
}

static void add_costs(const struct bench *bench)
{
    bench_report_table(bench->report, "costs",
                       "CPU seconds of front end, worker and client for each GB of input");
    bench_report_limit(bench->report, "ring", bench->ring_cpu_s / bench->ring_gb, 0.02);
}

static void add_claims(const struct bench *bench)
{
    bench_report_table(bench->report, "reach", "median of the rounds' ratios");
    for (uint32_t s = 0; s < ARRAY_SIZE(subjects); s++) {
        char claim[64];

        snprintf(claim, sizeof(claim), "%s: worker against best direct", subjects[s]->op);
        bench_report_claim(bench->report, claim, against_best(bench, s, WAY_WORKER), 0.98);
        snprintf(claim, sizeof(claim), "%s: ring against best direct", subjects[s]->op);
        bench_report_claim(bench->report, claim, against_best(bench, s, WAY_RING), 0.99);
    }
    bench_report_claim(bench->report, "copy: ring against the link, both ways",
                       contest_ratio(&bench->contest, VARIANT_OF(0, WAY_RING), VARIANT_BOTH), 0.96);
    bench_report_claim(bench->report, "copy: ring against the socket",
                       contest_ratio(&bench->contest, VARIANT_OF(0, WAY_RING), VARIANT_DAEMON), 5);
    bench_report_claim(bench->report, "inline against echo",
                       contest_ratio(&bench->contest, VARIANT_DAEMON, VARIANT_ECHO), 0.7);
}

static void measure(struct bench *bench)
{
    bench->report = bench_report_create("rival", bench->options->json);
    prepare_plans(bench);
    bench->contest.n_variants = N_VARIANTS;
    bench->contest.n_rounds = bench->options->n_rounds;
    bench->contest.begin = begin_round;
    bench->contest.run = run_variant;
    bench->contest.owner = bench;
    contest_run(&bench->contest);
    add_rows(bench);
    add_claims(bench);
    add_costs(bench);
    bench_report_destroy(bench->report);
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct msg_op subject_op(const struct subject *subject)
{
    struct msg_op op = {.n_values = 1, .values = {{.kind = VALUE_INT, .i = subject->value}}};

    snprintf(op.name, sizeof(op.name), "%s", subject->op);
    snprintf(op.values[0].name, sizeof(op.values[0].name), "%s", subject->param);
    return op;
}

/* Processes first: what is forked after it CUDA cannot be used in, and large memory is copied. */
static void start(struct bench *bench)
{
    echo_start(&bench->echo);
    rig_memory_create(bench->options->size, &bench->memory);
    rig_start(&bench->memory, 0, &bench->rig);
    bench->daemon.ring_pool = "8G";
    bench_daemon_start(&bench->daemon, NULL, "cuda");
    ring_stream_open(&bench->ring, bench->daemon.socket_path,
                     2 * MIN(bench->options->size, (size_t)RING_HALF));
    for (uint32_t s = 0; s < ARRAY_SIZE(subjects); s++) {
        const struct msg_op op = subject_op(subjects[s]);

        bench->jobs[s] = rig_open(&bench->rig, subjects[s]);
        ring_stream_prepare(&bench->ring, &op, PRIORITY_BULK, RING_WINDOW, &bench->ring_jobs[s]);
    }
    direct_open(bench->memory.in, bench->memory.out, bench->memory.size, &bench->direct);
    link_open(bench->memory.in, bench->memory.out, bench->memory.size, &bench->link);
}

static void stop(struct bench *bench)
{
    for (uint32_t i = 0; i < ARRAY_SIZE(subjects) * WAY_WORKER; i++) {
        direct_plan_destroy(bench->plans[i / WAY_WORKER][i % WAY_WORKER]);
    }
    link_close(bench->link);
    direct_close(bench->direct);
    ring_stream_close(&bench->ring);
    bench_daemon_stop(&bench->daemon);
    rig_stop(&bench->rig);
    rig_memory_destroy(&bench->memory);
    echo_stop(&bench->echo);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"size", "SIZE", "bytes of one run", "512M", SEARCH_CHUNK_MAX, UINT64_C(1) << 33,
         .size = &options.size},
        {"rounds", "N", "rounds", "9", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"search-rounds", "N", "of the search for the best direct pipeline", "3", 1,
         CONTEST_ROUNDS_MAX, .count = &options.n_search_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(
        argc, argv, table, ARRAY_SIZE(table), NULL,
        "The GPU worker and the daemon against direct pipelines, the link and an echo.");
    bench.options = &options;
    RIG_GUARD();
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
