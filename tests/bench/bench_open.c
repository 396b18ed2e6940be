/*
 * bench_open: how long a ring takes to open.
 *
 *     rpc       ring.open by hand, from writing the request until the reply and its descriptors are
 *               read: the first of a connection; one opened again on the same connection, which has
 *               the same memory; and one that is asked for right behind another's, when no memory
 *               is ready
 *     library   gpupipe_ring_open(), and every page of it written; against as much memory of this
 *               process's own
 *
 * Before each there is a pause, in which the daemon makes memory ready again, and one more before a
 * ring is closed to be opened again.  Rounds in random order; half of each ring is copied to its
 * other half by a job, fresh random data, and every byte checked.
 */
#include "client/gpupipe.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/ring_stream.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define RECORD    4096u
#define PAGE_SIZE 4096u
#define PUSH_SIZE (4u << 20)
#define RPC_BOUND 0.3 /* ms */
#define MS_PER_S  1e3
#define US_PER_MS 1000u
#define SIZE_UNIT (1u << 20)
#define SIZE_MOST (256u << 20) /* two of them fit into a user's share of the daemon's pool */

enum variant {
    RPC_FIRST,
    RPC_AGAIN,
    RPC_NEXT,
    LIBRARY_FIRST,
    LIBRARY_AGAIN,
    OWN_MEMORY,
    N_VARIANTS,
};

static const char *const names[] = {
    [RPC_FIRST] = "rpc, first",
    [RPC_AGAIN] = "rpc, opened again",
    [RPC_NEXT] = "rpc, right behind another's",
    [LIBRARY_FIRST] = "library, first",
    [LIBRARY_AGAIN] = "library, opened again",
    [OWN_MEMORY] = "own memory",
};

struct options {
    const char *backend;
    const char *json;
    size_t size;
    uint32_t pause_ms;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct bench_daemon daemon;
    uint8_t *in; /* of this round; half a ring */
    struct contest contest;
};

static double seconds_since(uint64_t start_ns)
{
    return (double)(now_ns() - start_ns) * 1e-9;
}

/* The daemon makes memory ready meanwhile, which takes a core. */
static void wait_for_quiet(const struct bench *bench)
{
    usleep(bench->options->pause_ms * US_PER_MS);
}

static void write_pages(uint8_t *memory, size_t size)
{
    for (size_t at = 0; at < size; at += PAGE_SIZE) {
        ((volatile uint8_t *)memory)[at] = 1;
    }
}

/* ---- by hand -------------------------------------------------------------------------------- */

static void check_stream(const struct bench *bench, struct ring_stream *stream)
{
    const struct msg_op copy = {.name = "copy",
                                .n_values = 1,
                                .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD}}};
    size_t half = bench->options->size / 2;
    struct ring_stream_job job;

    memcpy(stream->in, bench->in, half);
    bench_poison(stream->out, half);
    ring_stream_prepare(stream, &copy, PRIORITY_BULK, 0, &job);
    ring_stream_run(stream, &job, half, PUSH_SIZE);
    bench_check_same("ring", stream->out, bench->in, half);
}

static double open_rpc(const struct bench *bench, enum variant variant)
{
    const char *path = bench->daemon.socket_path;
    size_t size = bench->options->size;
    struct ring_stream stream, other;
    double seconds;

    ring_stream_connect(&stream, path);
    if (variant == RPC_NEXT) {
        ring_stream_open(&other, path, size);
    }
    seconds = ring_stream_request(&stream, size);
    ring_stream_map(&stream);
    if (variant == RPC_AGAIN) {
        wait_for_quiet(bench);
        ring_stream_drop(&stream);
        seconds = ring_stream_request(&stream, size);
        ring_stream_map(&stream);
    }
    check_stream(bench, &stream);
    ring_stream_close(&stream);
    if (variant == RPC_NEXT) {
        ring_stream_close(&other);
    }
    return seconds;
}

/* ---- through the library -------------------------------------------------------------------- */

static void must(struct gpupipe *gpupipe, int status)
{
    if (status < 0) {
        bench_fail("libgpupipe: %s", gpupipe_last_error(gpupipe)->message);
    }
}

static void push(struct gpupipe *gpupipe, struct gpupipe_job *job, uint8_t *in, uint8_t *out,
                 size_t size)
{
    struct gpupipe_completion completion;
    struct gpupipe_desc desc;
    int n;

    GPUPIPE_INIT(&completion);
    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.n_records = size / RECORD;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){in, size};
    desc.out[0] = (struct gpupipe_room){out, size};
    must(gpupipe, gpupipe_submit(gpupipe, &desc, 1));
    while ((n = gpupipe_reap(gpupipe, &completion, 1)) == 0) {
        must(gpupipe, gpupipe_wait(gpupipe, -1));
    }
    must(gpupipe, n);
    must(gpupipe, completion.status);
}

static void check_library(const struct bench *bench, struct gpupipe *gpupipe,
                          struct gpupipe_ring *ring, uint8_t *memory)
{
    const struct gpupipe_value record = {"size", GPUPIPE_INT, RECORD, 0, NULL};
    size_t half = bench->options->size / 2, most;
    struct gpupipe_job_opts opts;
    struct gpupipe_job *job;

    GPUPIPE_INIT(&opts);
    opts.ring = ring;
    must(gpupipe, gpupipe_job_open(&job, gpupipe, "copy", &record, 1, &opts));
    most = (size_t)gpupipe_push_records(job) * RECORD;
    memcpy(memory, bench->in, half);
    bench_poison(memory + half, half);
    for (size_t at = 0; at < half; at += most) {
        push(gpupipe, job, memory + at, memory + half + at, MIN(most, half - at));
    }
    bench_check_same("libgpupipe's ring", memory + half, bench->in, half);
    gpupipe_job_free(job);
}

/* The seconds from the call until every page is written. */
static double open_written(struct gpupipe *gpupipe, size_t size, struct gpupipe_ring **ret_ring,
                           uint8_t **ret_memory)
{
    uint64_t start_ns = now_ns();

    must(gpupipe, gpupipe_ring_open(ret_ring, gpupipe, size, NULL));
    *ret_memory = gpupipe_ring_alloc(*ret_ring, size);
    if (*ret_memory == NULL) {
        must(gpupipe, GPUPIPE_ERROR_BUSY);
    }
    write_pages(*ret_memory, size);
    return seconds_since(start_ns);
}

static double open_library(const struct bench *bench, enum variant variant)
{
    size_t size = bench->options->size;
    struct gpupipe_ring *ring;
    struct gpupipe *gpupipe;
    uint8_t *memory;
    double seconds;
    int rc = gpupipe_open(&gpupipe, bench->daemon.socket_path, "bench_open");

    must(gpupipe, rc);
    seconds = open_written(gpupipe, size, &ring, &memory);
    if (variant == LIBRARY_AGAIN) {
        wait_for_quiet(bench);
        gpupipe_ring_close(ring);
        seconds = open_written(gpupipe, size, &ring, &memory);
    }
    check_library(bench, gpupipe, ring, memory);
    gpupipe_ring_close(ring);
    gpupipe_close(gpupipe);
    return seconds;
}

static double take_own_memory(size_t size)
{
    uint64_t start_ns = now_ns();
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double seconds;

    if (memory == MAP_FAILED) {
        bench_fail("no memory for %zu bytes", size);
    }
    write_pages(memory, size);
    seconds = seconds_since(start_ns);
    munmap(memory, size);
    return seconds;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void begin_round(void *owner)
{
    const struct bench *bench = owner;

    bench_fill(bench->in, bench->options->size / 2);
}

static double run_variant(void *owner, uint32_t variant)
{
    const struct bench *bench = owner;

    wait_for_quiet(bench);
    if (variant == OWN_MEMORY) {
        return take_own_memory(bench->options->size);
    }
    return variant < LIBRARY_FIRST ? open_rpc(bench, variant) : open_library(bench, variant);
}

static void report(struct bench *bench)
{
    struct bench_report *report = bench_report_create("open", bench->options->json);
    uint32_t n = bench->options->n_rounds;

    bench_report_table(report, "open", "milliseconds: median, least and most");
    for (uint32_t i = 0; i < N_VARIANTS; i++) {
        double *seconds = bench->contest.seconds[i];
        const struct bench_cell row[] = {
            {"what                        ", names[i], 0, 0},
            {"median", NULL, contest_seconds(&bench->contest, i) * MS_PER_S, 3},
            {"least", NULL, bench_quantile(seconds, n, 0) * MS_PER_S, 3},
            {"most", NULL, bench_quantile(seconds, n, 1) * MS_PER_S, 3},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    bench_report_table(report, "limits", "milliseconds, medians");
    for (uint32_t i = 0; i < N_VARIANTS; i++) {
        bench_report_limit(report, names[i], contest_seconds(&bench->contest, i) * MS_PER_S,
                           i <= RPC_AGAIN ? RPC_BOUND : NAN);
    }
    bench_report_destroy(report);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"size", "SIZE", "bytes of a ring", "64M", SIZE_UNIT, SIZE_MOST, .size = &options.size},
        {"pause", "MS", "before each", "300", 0, 60000, .count = &options.pause_ms},
        {"rounds", "N", "rounds", "9", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "How long a ring of a private gpupiped takes to open.");
    bench_need_backend(options.backend);
    bench.options = &options;
    bench_daemon_start(&bench.daemon, NULL, options.backend);
    bench.in = bench_allocate(options.size / 2);
    bench.contest = (struct contest){
        .n_variants = N_VARIANTS,
        .n_rounds = options.n_rounds,
        .begin = begin_round,
        .run = run_variant,
        .owner = &bench,
    };
    contest_run(&bench.contest);
    report(&bench);
    free(bench.in);
    bench_daemon_stop(&bench.daemon);
    return EXIT_SUCCESS;
}
