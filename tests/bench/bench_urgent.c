/*
 * bench_urgent: small urgent jobs of `copy` through a ring of a private gpupiped, in an open loop
 * (pace.h), beside bulk; and what bulk loses by them.  Beside it the same jobs as others do them,
 * each in turn in every round.
 *
 *     ring             beside client processes that keep the daemon busy with pushes of 4 MiB
 *                      (bulk.h)
 *     in one process   a mapped kernel on a stream of the highest priority, beside the best direct
 *                      pipeline in a thread of the same process: what a program can do at best that
 *                      has the GPU to itself
 *     own process      the same job by a process of its own, beside as many processes that have the
 *                      best direct pipeline each
 *     MPS              likewise under a private MPS daemon, where there is one
 *     queued           one process, priorities alone: chunks of 64 MiB all queued at once
 *
 * Every urgent result is compared, and a sample of bulk's.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/bulk.h"
#include "tests/bench/mps.h"
#include "tests/bench/own_party.h"
#include "tests/bench/pace.h"
#include "tests/bench/ring_way.h"

#include <math.h>
#include <string.h>

#define POOL              "2G"
#define CLIENTS_MAX       8u
#define ROUNDS_MAX        99u
#define BULK_WINDOW       4u
#define INLINE_WINDOW     2u
#define INLINE_N          8u
#define URGENT_MAX        (64u << 10)
#define SPIN_CPUS         4     /* client, front end and worker, and one for all others */
#define OWN_MIB           "512" /* 8 chunks of 64 MiB */
#define BULK_MIB          "64"
#define RIVAL_PATIENCE_MS 30000
/* A job takes up to 25 ms there, and 16 are under way at most. */
#define QUEUED_RATE 200

/*
 * Bounds of the CPU backend.  Beside them what runs on two quiet CPUs came to, a second to 8
 * seconds of each variant; the margin is about twice, for they differ as much.  p99 is in pushes of
 * bulk.
 */
#define CPU_OF_PUSH         0.5 /* 0.18 to 0.29; beside inline bulk 0.07 to 0.28 */
#define CPU_OF_PUSH_64K     1.0 /* it waits for a computing thread as well: 0.30 to 0.46 */
#define CPU_OF_PUSH_ITERATE 0.1 /* a chunk takes 2 ms and a push 115: 0.01 to 0.036 */
#define CPU_KEPT            0.8 /* 0.98 to 1.34; of iterate 0.91 to 0.98 */
#define CPU_KEPT_OFTEN      0.5 /* each job is a turn of three processes: 0.67 to 1.31 */

enum load { LOAD_NONE, LOAD_COPY, LOAD_ITERATE, LOAD_INLINE, LOAD_OWN, LOAD_MPS };
enum who { WHO_NOBODY, WHO_RING, WHO_OWN, WHO_MPS };

struct variant {
    const char *name;
    enum who who;
    uint32_t size;
    double rate;
    enum load load;
    uint32_t what; /* of WHO_OWN and WHO_MPS */
};

enum {
    V_ALONE,
    V_BULK,
    V_RING,
    V_RING_64K,
    V_RING_OFTEN,
    V_INLINE,
    V_ITERATE,
    V_RING_ITERATE,
    V_FIXED, /* from here on rivals, on a GPU */
    V_MAPPED = V_FIXED,
    V_MAPPED_64K,
    V_OWN_MAPPED,
    V_OWN_COPIES,
    V_QUEUED_8,
    V_QUEUED_16,
    V_WITHOUT_MPS, /* and from here on those that need MPS */
    V_MPS_MAPPED = V_WITHOUT_MPS,
    V_MPS_COPIES,
    V_COUNT,
};

static const struct variant variants[V_COUNT] = {
    [V_ALONE] = {"ring, alone", WHO_RING, 4096, 1000, LOAD_NONE, 0},
    [V_BULK] = {"bulk alone", WHO_NOBODY, 0, 0, LOAD_COPY, 0},
    [V_RING] = {"ring beside bulk", WHO_RING, 4096, 1000, LOAD_COPY, 0},
    [V_RING_64K] = {"ring beside bulk", WHO_RING, 65536, 1000, LOAD_COPY, 0},
    [V_RING_OFTEN] = {"ring beside bulk", WHO_RING, 4096, 20000, LOAD_COPY, 0},
    [V_INLINE] = {"ring beside inline bulk", WHO_RING, 4096, 1000, LOAD_INLINE, 0},
    [V_ITERATE] = {"iterate alone", WHO_NOBODY, 0, 0, LOAD_ITERATE, 0},
    [V_RING_ITERATE] = {"ring beside iterate", WHO_RING, 4096, 1000, LOAD_ITERATE, 0},
    [V_MAPPED] = {"mapped, in one process", WHO_OWN, 4096, 1000, LOAD_NONE,
                  OWN_WHAT(OWN_MAPPED, OWN_PIPELINE)},
    [V_MAPPED_64K] = {"mapped, in one process", WHO_OWN, 65536, 1000, LOAD_NONE,
                      OWN_WHAT(OWN_MAPPED, OWN_PIPELINE)},
    [V_OWN_MAPPED] = {"mapped, own process", WHO_OWN, 4096, 1000, LOAD_OWN,
                      OWN_WHAT(OWN_MAPPED, OWN_NO_BULK)},
    [V_OWN_COPIES] = {"copies, own process", WHO_OWN, 4096, 1000, LOAD_OWN,
                      OWN_WHAT(OWN_COPIES, OWN_NO_BULK)},
    [V_QUEUED_8] = {"copies, 8 x 64 MiB queued", WHO_OWN, 4096, QUEUED_RATE, LOAD_NONE,
                    OWN_WHAT(OWN_COPIES, OWN_QUEUED_8)},
    [V_QUEUED_16] = {"copies, 16 x 64 MiB queued", WHO_OWN, 4096, QUEUED_RATE, LOAD_NONE,
                     OWN_WHAT(OWN_COPIES, OWN_QUEUED_16)},
    [V_MPS_MAPPED] = {"mapped, MPS", WHO_MPS, 4096, 1000, LOAD_MPS,
                      OWN_WHAT(OWN_MAPPED, OWN_NO_BULK)},
    [V_MPS_COPIES] = {"copies, MPS", WHO_MPS, 4096, 1000, LOAD_MPS,
                      OWN_WHAT(OWN_COPIES, OWN_NO_BULK)},
};

struct options {
    const char *backend;
    const char *json;
    uint32_t run_ms;
    uint32_t n_rounds;
    uint32_t n_clients;
    uint32_t iterate_n;
    uint32_t n_cpus; /* 0: this machine's */
    uint32_t has_rivals;
    size_t push_size;
};

/* What a variant came to. */
struct figures {
    double p99[ROUNDS_MAX];  /* seconds */
    double bulk[ROUNDS_MAX]; /* GB/s */
    uint64_t n_as_normal;
    struct histogram total;
};

/* Processes with contexts of their own: one for small jobs, the others for bulk. */
struct rivals {
    struct party small;
    struct party bulk[CLIENTS_MAX];
};

struct bench {
    const struct options *options;
    bool is_cuda;
    uint32_t n_variants;
    struct bench_daemon daemon;
    struct ring_stream stream;
    struct ring_way way;
    struct bulk_shape shapes[2];
    struct party clients[CLIENTS_MAX];
    struct party inline_clients[INLINE_N];
    struct rivals own;
    struct rivals under_mps;
    struct mps mps;
    uint32_t round;
    struct figures figures[V_COUNT];
};

/* ---- one run -------------------------------------------------------------------------------- */

/* Those that make the load, and how many. */
static struct party *find_load(struct bench *bench, enum load load, uint32_t *ret_n)
{
    *ret_n = load == LOAD_NONE ? 0 : load == LOAD_INLINE ? INLINE_N : bench->options->n_clients;
    return load == LOAD_INLINE ? bench->inline_clients
           : load == LOAD_OWN  ? bench->own.bulk
           : load == LOAD_MPS  ? bench->under_mps.bulk
                               : bench->clients;
}

static struct party_order order_of_load(enum load load)
{
    static const uint32_t whats[] = {
        [LOAD_COPY] = BULK_COPY,
        [LOAD_ITERATE] = BULK_ITERATE,
        [LOAD_INLINE] = BULK_COPY,
        [LOAD_OWN] = OWN_WHAT(OWN_NO_SMALL, OWN_PIPELINE),
        [LOAD_MPS] = OWN_WHAT(OWN_NO_SMALL, OWN_PIPELINE),
    };

    return (struct party_order){.what = load == LOAD_NONE ? 0 : whats[load]};
}

static const struct party *rival_of(const struct bench *bench, const struct variant *variant)
{
    return variant->who == WHO_OWN   ? &bench->own.small
           : variant->who == WHO_MPS ? &bench->under_mps.small
                                     : NULL;
}

/* The rival's own bulk's bytes. */
static uint64_t run_rival(const struct party *rival, const struct party_order *order,
                          struct histogram *histogram)
{
    uint64_t n_bytes;

    party_tell(rival, order);
    n_bytes = party_wait_all(rival, 1);
    pace_add(histogram, &rival->answer->histogram);
    return n_bytes;
}

static void make_ready(struct bench *bench, const struct variant *variant,
                       const struct party_order *bulk, const struct party_order *urgent)
{
    uint32_t n;
    struct party *load = find_load(bench, variant->load, &n);
    const struct party *rival = rival_of(bench, variant);

    party_tell_all(load, n, bulk);
    if (rival != NULL) {
        party_tell(rival, urgent);
        party_wait(rival);
    } else if (variant->who == WHO_RING) {
        ring_way_prepare(&bench->way, variant->size, variant->rate);
    }
    party_wait_all(load, n);
}

static void run_variant(struct bench *bench, uint32_t index, uint64_t run_ns, bool is_counted)
{
    static struct histogram histogram;
    const struct variant *variant = &variants[index];
    struct party_order bulk = order_of_load(variant->load);
    struct party_order urgent = {
        .what = variant->what, .size = variant->size, .rate = variant->rate};
    struct figures *figures = &bench->figures[index];
    uint64_t n_bytes = 0;
    uint32_t n;
    struct party *load = find_load(bench, variant->load, &n);
    const struct party *rival = rival_of(bench, variant);

    histogram_clear(&histogram);
    bench->way.n_as_normal = 0;
    make_ready(bench, variant, &bulk, &urgent);
    bulk.is_run = urgent.is_run = true;
    bulk.from_ns = urgent.from_ns = now_ns() + PARTY_WARM_NS;
    bulk.to_ns = urgent.to_ns = bulk.from_ns + run_ns;
    party_tell_all(load, n, &bulk);
    if (rival != NULL) {
        n_bytes = run_rival(rival, &urgent, &histogram);
    } else if (variant->who == WHO_RING) {
        ring_way_run(&bench->way, urgent.from_ns, urgent.to_ns, &histogram);
    }
    n_bytes += party_wait_all(load, n);
    if (is_counted) {
        figures->p99[bench->round] = (double)histogram_value_at(&histogram, 0.99) * 1e-9;
        figures->bulk[bench->round] = (double)n_bytes / (double)run_ns;
        figures->n_as_normal += bench->way.n_as_normal;
        pace_add(&figures->total, &histogram);
    }
}

/* All of them once, in random order. */
static void run_round(struct bench *bench, uint64_t run_ns, bool is_counted)
{
    uint32_t order[V_COUNT];

    bench_shuffle(order, bench->n_variants);
    for (uint32_t i = 0; i < bench->n_variants; i++) {
        run_variant(bench, order[i], run_ns, is_counted);
    }
}

/* ---- results -------------------------------------------------------------------------------- */

static double us_at(const struct bench *bench, uint32_t index, double part)
{
    const struct histogram *total = &bench->figures[index].total;

    return total->n == 0 ? NAN : (double)histogram_value_at(total, part) * 1e-3;
}

static double bulk_of(const struct bench *bench, uint32_t index)
{
    double bulk[ROUNDS_MAX];

    memcpy(bulk, bench->figures[index].bulk, sizeof(bulk));
    return bench_median(bulk, bench->options->n_rounds);
}

static void add_row(const struct bench *bench, struct bench_report *report, uint32_t index)
{
    const struct variant *variant = &variants[index];
    const struct figures *figures = &bench->figures[index];
    bool has_urgent = variant->who != WHO_NOBODY;
    double bulk = bulk_of(bench, index);
    const struct bench_cell row[] = {
        {"variant                   ", variant->name, 0, 0},
        {"kib", NULL, has_urgent ? variant->size / 1024.0 : NAN, 0},
        {"rate", NULL, has_urgent ? variant->rate : NAN, 0},
        {"n", NULL, has_urgent ? (double)figures->total.n : NAN, 0},
        {"p50_us", NULL, us_at(bench, index, 0.5), 1},
        {"p99_us", NULL, us_at(bench, index, 0.99), 1},
        {"max_us", NULL, has_urgent ? (double)figures->total.greatest * 1e-3 : NAN, 1},
        {"as_normal", NULL, (double)figures->n_as_normal, 0},
        {"bulk_gb_s", NULL, bulk > 0 ? bulk : NAN, 2},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

/* How many times the other's p99 this one's is: the median of the rounds. */
static double against(const struct bench *bench, uint32_t index, uint32_t other)
{
    double ratios[ROUNDS_MAX];

    for (uint32_t i = 0; i < bench->options->n_rounds; i++) {
        ratios[i] = bench->figures[index].p99[i] / bench->figures[other].p99[i];
    }
    return bench_median(ratios, bench->options->n_rounds);
}

static double bulk_kept(const struct bench *bench, uint32_t index, uint32_t other)
{
    double ratios[ROUNDS_MAX];

    for (uint32_t i = 0; i < bench->options->n_rounds; i++) {
        ratios[i] = bench->figures[index].bulk[i] / bench->figures[other].bulk[i];
    }
    return bench_median(ratios, bench->options->n_rounds);
}

/* Of all rounds; of the CPU backend the median of the rounds: one in which others had the CPUs says
 * nothing of us. */
static double p99_us(const struct bench *bench, uint32_t index)
{
    double p99[ROUNDS_MAX];

    if (bench->is_cuda) {
        return us_at(bench, index, 0.99);
    }
    memcpy(p99, bench->figures[index].p99, sizeof(p99));
    return bench_median(p99, bench->options->n_rounds) * 1e6;
}

/* What a bulk push takes, in us: as many as are under way come back in that time. */
static double push_us(const struct bench *bench, uint32_t index)
{
    uint32_t n = variants[index].load == LOAD_INLINE ? INLINE_N * INLINE_WINDOW
                                                     : bench->options->n_clients * BULK_WINDOW;
    double bulk = bulk_of(bench, index);

    return bulk > 0 ? n * (double)bench->options->push_size / bulk * 1e-3 : NAN;
}

/*
 * Bulk of the CPU backend takes the CPUs that urgent work needs, and with two of them nothing
 * spins: each job waits for the kernel to give front end, worker and client a CPU.  So its bounds
 * are parts of what a bulk push takes, which is what it would wait without a priority, and which
 * grows as it does where CPUs are busy with something else.
 */
static double bound(const struct bench *bench, double of_gpu, uint32_t index, double of_push)
{
    return bench->is_cuda ? of_gpu : of_push * push_us(bench, index);
}

static void add_limits(const struct bench *bench, struct bench_report *report)
{
    double alone = p99_us(bench, V_ALONE), above = p99_us(bench, V_RING) - alone;

    bench_report_table(report, "limits",
                       bench->is_cuda ? "p99 in us, or medians of the rounds' ratios of it"
                                      : "medians of the rounds' p99 in us, and of ratios of it");
    bench_report_limit(report, "4 KiB beside bulk: p99", p99_us(bench, V_RING),
                       bound(bench, 60, V_RING, CPU_OF_PUSH));
    bench_report_limit(report, "likewise, above that of urgent alone", above,
                       bound(bench, 25, V_RING, CPU_OF_PUSH));
    bench_report_limit(report, "4 KiB beside iterate: p99", p99_us(bench, V_RING_ITERATE),
                       bound(bench, 60, V_RING_ITERATE, CPU_OF_PUSH_ITERATE));
    bench_report_limit(report, "beside inline bulk against without",
                       against(bench, V_INLINE, V_ALONE),
                       bound(bench, 1.5, V_INLINE, CPU_OF_PUSH / alone));
    if (!bench->is_cuda) {
        bench_report_limit(report, "64 KiB beside bulk: p99", p99_us(bench, V_RING_64K),
                           CPU_OF_PUSH_64K * push_us(bench, V_RING_64K));
    }
    if (bench->n_variants > V_FIXED) {
        bench_report_limit(report, "4 KiB against mapped in one process",
                           against(bench, V_RING, V_MAPPED), 1.2);
        bench_report_limit(report, "64 KiB against mapped in one process",
                           against(bench, V_RING_64K, V_MAPPED_64K), 1.2);
    }
    if (bench->n_variants > V_MPS_MAPPED) {
        bench_report_limit(report, "4 KiB against mapped under MPS",
                           against(bench, V_RING, V_MPS_MAPPED), 1.2);
    }
}

static void add_kept(const struct bench *bench, struct bench_report *report, const char *claim,
                     uint32_t index, uint32_t other, double of_gpu, double of_cpu)
{
    bench_report_claim(report, claim, bulk_kept(bench, index, other),
                       bench->is_cuda ? of_gpu : of_cpu);
}

static void add_claims(const struct bench *bench, struct bench_report *report)
{
    static const struct {
        const char *claim;
        uint32_t rival;
        double least;
    } rivals[] = {
        {"own process, mapped, against 4 KiB", V_OWN_MAPPED, 10},
        {"own process, copies, against 4 KiB", V_OWN_COPIES, 10},
        {"8 x 64 MiB queued against 4 KiB", V_QUEUED_8, 200},
        {"16 x 64 MiB queued against 4 KiB", V_QUEUED_16, 400},
        {"MPS, copies, against 4 KiB", V_MPS_COPIES, 20},
    };

    bench_report_table(report, "reach", "medians of the rounds' ratios: of bulk, and of p99");
    add_kept(bench, report, "bulk kept at 1000 a second", V_RING, V_BULK, 0.99, CPU_KEPT);
    add_kept(bench, report, "bulk kept at 20000 a second", V_RING_OFTEN, V_BULK, 0.97,
             CPU_KEPT_OFTEN);
    add_kept(bench, report, "iterate kept at 1000 a second", V_RING_ITERATE, V_ITERATE, 0.92,
             CPU_KEPT);
    for (uint32_t i = 0; i < ARRAY_SIZE(rivals); i++) {
        if (rivals[i].rival < bench->n_variants) {
            bench_report_claim(report, rivals[i].claim, against(bench, rivals[i].rival, V_RING),
                               rivals[i].least);
        }
    }
}

static void measure(struct bench *bench)
{
    uint64_t run_ns = bench->options->run_ms * UINT64_C(1000000);
    struct bench_report *report = bench_report_create("urgent", bench->options->json);

    run_round(bench, MIN(run_ns, UINT64_C(200000000)), false);
    for (bench->round = 0; bench->round < bench->options->n_rounds; bench->round++) {
        run_round(bench, run_ns, true);
    }
    bench_report_table(report, "urgent",
                       "open loop, latency from when a job is due, all rounds; bulk: median, GB/s "
                       "each way of all that make it");
    for (uint32_t i = 0; i < bench->n_variants; i++) {
        add_row(bench, report, i);
    }
    add_limits(bench, report);
    add_claims(bench, report);
    bench_report_destroy(report);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start_clients(struct bench *bench)
{
    const struct options *options = bench->options;

    bench->shapes[0] = (struct bulk_shape){.socket_path = bench->daemon.socket_path,
                                           .push_size = options->push_size,
                                           .window = BULK_WINDOW,
                                           .iterate_n = options->iterate_n};
    bench->shapes[1] = bench->shapes[0];
    bench->shapes[1].window = INLINE_WINDOW;
    bench->shapes[1].is_inline = true;
    for (uint32_t i = 0; i < options->n_clients; i++) {
        bulk_start(&bench->clients[i], &bench->shapes[0]);
    }
    for (uint32_t i = 0; i < INLINE_N; i++) {
        bulk_start(&bench->inline_clients[i], &bench->shapes[1]);
    }
}

/* All are started at once.  False: one of them cannot be. */
static bool start_rivals(const struct bench *bench, struct rivals *rivals, const char *small_mib)
{
    uint32_t n = bench->options->n_clients;
    bool is_there;

    party_exec(&rivals->small, "tests/bench/own-context", "party", small_mib);
    for (uint32_t i = 0; i < n; i++) {
        party_exec(&rivals->bulk[i], "tests/bench/own-context", "party", BULK_MIB);
    }
    is_there = party_try_wait(&rivals->small, RIVAL_PATIENCE_MS);
    for (uint32_t i = 0; i < n && is_there; i++) {
        is_there = party_try_wait(&rivals->bulk[i], RIVAL_PATIENCE_MS);
    }
    return is_there;
}

static void stop_rivals(struct rivals *rivals)
{
    party_stop(&rivals->small);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        party_stop(&rivals->bulk[i]);
    }
}

static bool start_under_mps(struct bench *bench)
{
    bool is_there = mps_start(&bench->mps);

    if (is_there) {
        mps_enter(&bench->mps);
        is_there = start_rivals(bench, &bench->under_mps, BULK_MIB);
        mps_leave();
    }
    if (!is_there) {
        printf("MPS: not here, or it does not take us\n");
        stop_rivals(&bench->under_mps);
    }
    return is_there;
}

static void start(struct bench *bench)
{
    bench->daemon.ring_pool = POOL;
    bench_daemon_start(&bench->daemon, NULL, bench->options->backend);
    start_clients(bench);
    ring_stream_open(&bench->stream, bench->daemon.socket_path,
                     2 * PACE_SLOTS_MAX * (uint64_t)URGENT_MAX);
    ring_way_open(&bench->way, &bench->stream, bench->options->n_cpus >= SPIN_CPUS);
    bench->n_variants = V_FIXED;
    if (bench->is_cuda && bench->options->has_rivals) {
        if (!start_rivals(bench, &bench->own, OWN_MIB)) {
            bench_fail("a rival did not start");
        }
        bench->n_variants = start_under_mps(bench) ? V_COUNT : V_WITHOUT_MPS;
    }
}

static void stop(struct bench *bench)
{
    stop_rivals(&bench->under_mps);
    mps_stop(&bench->mps);
    stop_rivals(&bench->own);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        party_stop(&bench->clients[i]);
    }
    for (uint32_t i = 0; i < INLINE_N; i++) {
        party_stop(&bench->inline_clients[i]);
    }
    ring_way_close(&bench->way);
    ring_stream_close(&bench->stream);
    bench_daemon_stop(&bench->daemon);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"run", "MS", "of each run", "1500", 50, 60000, .count = &options.run_ms},
        {"rounds", "N", "rounds", "5", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"clients", "N", "bulk clients", "3", 1, CLIENTS_MAX, .count = &options.n_clients},
        {"push", "SIZE", "bytes of a bulk push", "4M", 65536, 16u << 20,
         .size = &options.push_size},
        {"iterate", "N", "what iterate has as n: 40000, or 152 on the CPU", NULL, 152, 1000000,
         .count = &options.iterate_n},
        {"cpus", "N", "from 4 on the urgent client spins", NULL, 1, 4096, .count = &options.n_cpus},
        {"rivals", "0|1", "those of a GPU as well", "1", 0, 1, .count = &options.has_rivals},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    options.n_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Urgent jobs in an open loop beside bulk, through a private gpupiped.");
    bench_need_backend(options.backend);
    bench.options = &options;
    bench.is_cuda = strcmp(options.backend, "cuda") == 0;
    if (options.iterate_n == 0) {
        options.iterate_n = bench.is_cuda ? 40000 : 152;
    }
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
