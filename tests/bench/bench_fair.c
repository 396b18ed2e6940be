/*
 * bench_fair: how a private gpupiped shares a device between two users, A and B, who both always
 * have more work than it can do.
 *
 *     many   one process of A against many of B, all of which do the same
 *     hog    a process each; a byte of A's takes five times as long
 *
 * All of them keep pushes of `iterate` under way (bulk.h), which at its n is nearly all kernel.
 * Figures are the device time that the daemon says either user had, in a window that begins when
 * the load has been on for a second and ends before it does.  Beside them is what the clients
 * counted: the ratio of the turns of `iterate`'s loop that they got, about the same if the daemon's
 * clock is right.
 *
 * Each run has fresh random data; at its end the outputs are compared, and a sample meanwhile.
 *
 * Needs root: processes of two users.
 */
#include "proto/codec.h"
#include "proto/cpus.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/bulk.h"
#include "tests/bench/connection.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define EXIT_SKIPPED  77
#define POOL          "8G" /* three quarters of it hold the largest rings of all of B's processes */
#define PROCESSES_MAX 64u
#define ROUNDS_MAX    99u
#define WINDOW        8u /* more than a device has of bulk: some of A's always wait */
#define HOG_FACTOR    5u
#define USER_A        65533u
#define USER_B        65534u
#define WARM_NS       UINT64_C(1000000000)
/* How long the load goes on while the daemon is asked for the last figures. */
#define MARGIN_NS UINT64_C(200000000)

/* Of the CPU backend's threads, who share their CPUs with all clients; two quiet CPUs came to 0.78
 * to 0.94 of them.  From half of them on, both users have asked for more than there was. */
#define CPU_BUSY 0.5

enum scenario { SCENARIO_MANY, SCENARIO_HOG, SCENARIO_COUNT };

static const struct {
    const char *name;
    const char *off; /* as the tables name what is measured */
    const char *busy;
} scenarios[] = {
    [SCENARIO_MANY] = {"many", "one process against many: off by",
                       "busy: one process against many"},
    [SCENARIO_HOG] = {"hog", "a hog against short kernels: off by",
                      "busy: a hog against short kernels"},
};

struct options {
    const char *backend;
    const char *json;
    uint32_t seconds;
    uint32_t n_rounds;
    uint32_t n_processes;
    uint32_t iterate_n; /* 0: the backend's */
    size_t push_size;   /* likewise */
};

/* What a user came to in each round. */
struct figures {
    double device[ROUNDS_MAX]; /* seconds of device time in one */
    double bulk[ROUNDS_MAX];   /* GB/s */
};

/* Asks the daemon for its stats. */
struct asking {
    struct connection connection;
    msgpack_sbuffer head;
    struct msg_stats stats;
    bool is_answered;
};

struct bench {
    const struct options *options;
    bool is_cuda;
    struct bench_daemon daemon;
    struct asking asking;
    struct bulk_shape shapes[3]; /* of one, hog and many */
    struct party one, hog;       /* A's */
    struct party many[PROCESSES_MAX];
    struct figures figures[SCENARIO_COUNT][2]; /* A's and B's */
    double ratios[SCENARIO_COUNT][ROUNDS_MAX];
};

/* ---- what users had ------------------------------------------------------------------------- */

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    (void)owner, (void)guard, (void)prefix, (void)size, (void)ret_sink;
    bench_fail("stats: the daemon sent data");
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct asking *asking = owner;
    struct rpc_message message;
    struct failure failure;

    (void)guard;
    if (rpc_parse(head, size, &message, &failure) < 0 ||
        codec_unpack_stats(&message.result, &asking->stats, &failure) < 0) {
        bench_fail("stats: %s", failure.message);
    }
    asking->is_answered = true;
    rpc_finish(&message);
    return 0;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    (void)owner, (void)guard;
    bench_fail("the daemon's bytes are out of step: %s", failure->message);
}

static void asking_open(struct asking *asking, const char *socket_path)
{
    static const struct reader_callbacks callbacks = {
        .on_payload = on_payload,
        .on_message = on_message,
        .on_broken = on_broken,
    };
    msgpack_packer packer;

    connection_open(&asking->connection, socket_path, &callbacks, asking);
    msgpack_sbuffer_init(&asking->head);
    msgpack_packer_init(&packer, &asking->head, msgpack_sbuffer_write);
    codec_pack_stats_request(&packer, 1);
}

static void asking_close(struct asking *asking)
{
    connection_close(&asking->connection);
    msgpack_sbuffer_destroy(&asking->head);
}

static double device_s(const struct msg_stats *stats, uid_t uid)
{
    for (uint32_t i = 0; i < stats->n_users; i++) {
        if (stats->users[i].uid == uid) {
            return (double)stats->users[i].load.device_ns * 1e-9;
        }
    }
    bench_fail("stats: nothing of user %u", (unsigned)uid);
}

/* Device time that both have had so far, and when that was. */
struct look {
    double device[2];
    uint64_t at_ns;
};

static struct look look(struct asking *asking)
{
    asking->is_answered = false;
    connection_queue(&asking->connection, &asking->head, NULL, 0);
    while (!asking->is_answered) {
        connection_pump(&asking->connection);
    }
    return (struct look){
        .device = {device_s(&asking->stats, USER_A), device_s(&asking->stats, USER_B)},
        .at_ns = now_ns(),
    };
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void sleep_until(uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000),
                                .tv_nsec = (long)(at_ns % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
        continue;
    }
}

static void note(struct figures figures[2], double *ret_ratio, uint32_t round,
                 const struct look *first, const struct look *last)
{
    double had[2], seconds = (double)(last->at_ns - first->at_ns) * 1e-9;

    for (uint32_t i = 0; i < 2; i++) {
        had[i] = last->device[i] - first->device[i];
        figures[i].device[round] = had[i] / seconds;
    }
    *ret_ratio = had[0] / had[1];
}

static void run_scenario(struct bench *bench, enum scenario scenario, uint32_t round)
{
    const struct party *a = scenario == SCENARIO_HOG ? &bench->hog : &bench->one;
    uint32_t n_b = scenario == SCENARIO_HOG ? 1 : bench->options->n_processes;
    uint64_t run_ns = bench->options->seconds * UINT64_C(1000000000);
    struct party_order order = {.what = BULK_ITERATE};
    struct figures *figures = bench->figures[scenario];
    struct look first, last;

    party_tell(a, &order);
    party_tell_all(bench->many, n_b, &order);
    party_wait(a);
    party_wait_all(bench->many, n_b);
    order.is_run = true;
    order.from_ns = now_ns() + WARM_NS;
    order.to_ns = order.from_ns + run_ns + MARGIN_NS;
    party_tell(a, &order);
    party_tell_all(bench->many, n_b, &order);
    sleep_until(order.from_ns);
    first = look(&bench->asking);
    sleep_until(order.from_ns + run_ns);
    last = look(&bench->asking);
    note(figures, &bench->ratios[scenario][round], round, &first, &last);
    figures[0].bulk[round] = (double)party_wait_all(a, 1) / (double)(run_ns + MARGIN_NS);
    figures[1].bulk[round] =
        (double)party_wait_all(bench->many, n_b) / (double)(run_ns + MARGIN_NS);
}

/* ---- results -------------------------------------------------------------------------------- */

static double median_of(const struct bench *bench, const double *values)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, values, sizeof(sorted));
    return bench_median(sorted, bench->options->n_rounds);
}

static void add_row(const struct bench *bench, struct bench_report *report, enum scenario scenario)
{
    const struct figures *figures = bench->figures[scenario];
    bool is_hog = scenario == SCENARIO_HOG;
    uint32_t a_n = bench->shapes[is_hog].iterate_n, b_n = bench->shapes[2].iterate_n;
    double a_gb_s = median_of(bench, figures[0].bulk), b_gb_s = median_of(bench, figures[1].bulk);
    const struct bench_cell row[] = {
        {"scenario", scenarios[scenario].name, 0, 0},
        {"a_processes", NULL, 1, 0},
        {"b_processes", NULL, is_hog ? 1 : bench->options->n_processes, 0},
        {"a_n", NULL, a_n, 0},
        {"b_n", NULL, b_n, 0},
        {"a_device_s", NULL, median_of(bench, figures[0].device), 3},
        {"b_device_s", NULL, median_of(bench, figures[1].device), 3},
        {"a_to_b", NULL, median_of(bench, bench->ratios[scenario]), 3},
        {"a_gb_s", NULL, a_gb_s, 3},
        {"b_gb_s", NULL, b_gb_s, 3},
        {"turns_a_to_b", NULL, a_gb_s * a_n / (b_gb_s * b_n), 3},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

/* What two users get who do not ask for more than there is says nothing. */
static void add_busy(const struct bench *bench, struct bench_report *report, enum scenario scenario)
{
    const struct figures *figures = bench->figures[scenario];
    double busy = median_of(bench, figures[0].device) + median_of(bench, figures[1].device);

    bench_report_claim(report, scenarios[scenario].busy, busy,
                       bench->is_cuda ? 0.9 : CPU_BUSY * cpus_usable());
}

static void measure(struct bench *bench)
{
    struct bench_report *report = bench_report_create("fair", bench->options->json);

    for (uint32_t round = 0; round < bench->options->n_rounds; round++) {
        for (enum scenario scenario = 0; scenario < SCENARIO_COUNT; scenario++) {
            run_scenario(bench, scenario, round);
        }
    }
    bench_report_table(
        report, "fair",
        "two users; device time of each in a second, and what it did, GB/s each way; "
        "medians of the rounds");
    for (enum scenario scenario = 0; scenario < SCENARIO_COUNT; scenario++) {
        add_row(bench, report, scenario);
    }
    bench_report_table(report, "limits", "how far the ratio of both users' device time is from 1");
    for (enum scenario scenario = 0; scenario < SCENARIO_COUNT; scenario++) {
        double ratio = median_of(bench, bench->ratios[scenario]);

        bench_report_limit(report, scenarios[scenario].off, fabs(ratio - 1), 0.05);
    }
    bench_report_table(report, "reach", "device time of both in a second");
    for (enum scenario scenario = 0; scenario < SCENARIO_COUNT; scenario++) {
        add_busy(bench, report, scenario);
    }
    bench_report_destroy(report);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start(struct bench *bench)
{
    const struct options *options = bench->options;
    const struct bulk_shape shape = {
        .socket_path = bench->daemon.socket_path,
        .push_size = options->push_size,
        .window = WINDOW,
        .iterate_n = options->iterate_n,
        .uid = USER_A,
    };

    bench->daemon.ring_pool = POOL;
    bench_daemon_start(&bench->daemon, NULL, options->backend);
    bench_daemon_admit_all(&bench->daemon);
    bench->shapes[0] = bench->shapes[1] = bench->shapes[2] = shape;
    bench->shapes[1].iterate_n *= HOG_FACTOR;
    bench->shapes[2].uid = USER_B;
    bulk_start(&bench->one, &bench->shapes[0]);
    bulk_start(&bench->hog, &bench->shapes[1]);
    for (uint32_t i = 0; i < options->n_processes; i++) {
        bulk_start(&bench->many[i], &bench->shapes[2]);
    }
    asking_open(&bench->asking, bench->daemon.socket_path);
}

static void stop(struct bench *bench)
{
    asking_close(&bench->asking);
    party_stop(&bench->one);
    party_stop(&bench->hog);
    for (uint32_t i = 0; i < bench->options->n_processes; i++) {
        party_stop(&bench->many[i]);
    }
    bench_daemon_stop(&bench->daemon);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"duration", "S", "of each run", "2", 1, 3600, .count = &options.seconds},
        {"rounds", "N", "rounds", "3", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"processes", "N", "of user B", "50", 1, PROCESSES_MAX, .count = &options.n_processes},
        {"push", "SIZE", "bytes of a push: 2M, or 256K on the CPU", NULL, 65536, 4u << 20,
         .size = &options.push_size},
        {"iterate", "N", "what iterate has as n, and a hog five times: 20000, or 200 on the CPU",
         NULL, 152, 100000 / HOG_FACTOR, .count = &options.iterate_n},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Two users' shares of a device that both want more of; needs root.");
    if (geteuid() != 0) {
        printf("skipped: two users take root\n");
        return EXIT_SKIPPED;
    }
    bench_need_backend(options.backend);
    bench.options = &options;
    bench.is_cuda = strcmp(options.backend, "cuda") == 0;
    if (options.iterate_n == 0) {
        options.iterate_n = bench.is_cuda ? 20000 : 200;
    }
    if (options.push_size == 0) {
        options.push_size = bench.is_cuda ? 2u << 20 : 256u << 10;
    }
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
