/*
 * Jobs after jobs: nothing of one begins before all of the others have ended, whatever the order in
 * which it was sent; and whoever names a job that is not its own gets nothing by it.
 *
 * Judged by data and by the order of answers on one connection, never by time.
 */
#include "proto/util.h"
#include "tests/integration/after.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- order ---------------------------------------------------------------------------------- */

/*
 * Three jobs, each on the output of the one before, in one ring, whose descriptors are there in the
 * wrong order.  A fourth, which waits for nobody, is not held up by those in front of it.
 */
static void test_each_reads_what_the_one_before_wrote(void)
{
    struct harness *daemon = harness_start("--ring-pool", "256M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 8 * MIB);
    const char *options = ", inline: false";
    uint64_t first = open_job(wire, options), last, other = open_job(wire, options);
    struct ring_desc descs[4];
    char text[64];

    snprintf(text, sizeof(text), ", inline: false, after: [%" PRIu64 "]", first);
    uint64_t middle = open_job(wire, text);
    snprintf(text, sizeof(text), ", inline: false, after: [%" PRIu64 "]", middle);
    last = open_job(wire, text);
    random_bytes(ring->data, MIB);
    memset(ring->data + MIB, 0xa5, 7 * MIB);
    descs[0] = ring_client_copy(last, 2 * MIB, 3 * MIB, MIB / BLOCK);
    descs[1] = ring_client_copy(middle, MIB, 2 * MIB, MIB / BLOCK);
    descs[2] = ring_client_copy(other, 0, 4 * MIB, MIB / BLOCK);
    ring_client_submit(ring, descs, 3);
    CHECK_EQ(ring_client_reap(ring).job, other);
    CHECK_MEM(ring->data + 4 * MIB, ring->data, MIB);
    CHECK_EQ(held(wire, middle), 1);
    CHECK_EQ(held(wire, last), 1);
    CHECK_EQ(stat_of(wire, "jobs_held"), 2);
    wire_call(wire, "job.close", "[%lu]", middle);
    wire_call(wire, "job.close", "[%lu]", last);

    /* It is slow, as it has two pushes with something in between; nothing moves meanwhile. */
    descs[0] = ring_client_copy(first, 0, MIB, MIB / 2 / BLOCK);
    descs[1] = ring_client_copy(first, MIB / 2, MIB + MIB / 2, MIB / 2 / BLOCK);
    ring_client_submit(ring, &descs[0], 1);
    CHECK_EQ(ring_client_reap(ring).job, first);
    CHECK_EQ(stat_of(wire, "chunks_waiting_normal"), 0);
    CHECK_EQ(ring->data[2 * MIB], 0xa5);
    ring_client_submit(ring, &descs[1], 1);
    CHECK_EQ(ring_client_reap(ring).job, first);
    ring_client_is_empty(ring);
    wire_call(wire, "job.close", "[%lu]", first);
    CHECK_EQ(ring_client_reap(ring).job, middle);
    CHECK_EQ(ring_client_reap(ring).job, last);
    CHECK_MEM(ring->data + 2 * MIB, ring->data, MIB);
    CHECK_MEM(ring->data + 3 * MIB, ring->data, MIB);
    check_done(wire, first, "done");
    check_done(wire, middle, "done");
    check_done(wire, last, "done");
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
}

static void test_a_run_waits(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t job = open_job(wire, "");
    uint32_t run = wire_send(wire, "run", "['copy', {size: 4096}, {after: [%lu]}, [%b]]", job, data,
                             (size_t)SIZE);

    HARNESS_WAIT(stat_of(wire, "jobs_held") == 1);
    push(wire, job, 0, data);
    check_result(wire, job, 0, data);
    CHECK_EQ(wire_held(wire), 0);
    wire_call(wire, "job.close", "[%lu]", job);
    CHECK_MEM(wire_output(wire_result(wire, run), SIZE), data, SIZE);
    check_done(wire, job, "done");
}

/* What was said of one run must not hold for the next, word for word the same. */
static void test_the_same_words_again_wait_again(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const char *words = "['copy', {size: 4096}, {after: [%lu]}, [<4096>]]";
    uint64_t job = open_job(wire, "");
    uint32_t first = wire_send(wire, "run", words, job),
             second = wire_send(wire, "run", words, job);

    HARNESS_WAIT(stat_of(wire, "jobs_held") == 2);
    wire_call(wire, "job.cancel", "[%lu]", job);
    wire_error_is(wire, first, "CANCELLED", "which this one is after, was cancelled");
    wire_error_is(wire, second, "CANCELLED", "which this one is after, was cancelled");
    wire_refused(wire, "CANCELLED", "was cancelled", "run", words, job);
}

/* No push, or pushes of no record, are no reason to end before the others. */
static void test_what_has_nothing_to_do_waits_as_well(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t jobs[4] = {open_job(wire, "")};

    for (unsigned i = 1; i < ARRAY_SIZE(jobs); i++) {
        jobs[i] = open_after(wire, jobs[i - 1]);
        if (i % 2 == 0) {
            wire_call(wire, "job.push", "[%lu, 0, {}, [<0>]]", jobs[i]);
        }
        wire_call(wire, "job.close", "[%lu]", jobs[i]);
        CHECK_EQ(held(wire, jobs[i]), 1);
    }
    CHECK_EQ(wire_held(wire), 0);
    wire_call(wire, "job.close", "[%lu]", jobs[0]);
    for (unsigned i = 0; i < ARRAY_SIZE(jobs); i++) {
        check_done(wire, jobs[i], "done");
    }
}

/* Jobs that name earlier ones at random, ended in any order, some of them cancelled. */
static void test_any_graph_ends_in_order(void)
{
    enum { N = 48, OTHERS_MAX = 4 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t jobs[N];
    unsigned others[N][OTHERS_MAX], n_others[N], order[N];
    bool is_cancelled[N] = {false}, has_ended[N] = {false};

    for (unsigned i = 0; i < N; i++) {
        char options[256] = ", after: [";

        n_others[i] = i == 0 ? 0 : (unsigned)random_below(OTHERS_MAX + 1);
        for (unsigned other = 0; other < n_others[i]; other++) {
            size_t length = strlen(options);

            others[i][other] = (unsigned)random_below(i);
            snprintf(options + length, sizeof(options) - length, "%s%" PRIu64,
                     other > 0 ? ", " : "", jobs[others[i][other]]);
        }
        jobs[i] = open_job(wire, strcat(options, "]"));
        wire_call(wire, "job.push", "[%lu, 0, {}, [%b]]", jobs[i], data, (size_t)BLOCK);
    }
    for (unsigned i = 0; i < N; i++) {
        unsigned at = (unsigned)random_below(i + 1);

        order[i] = order[at];
        order[at] = i;
    }
    for (unsigned i = 0; i < N; i++) { /* those that have ended badly already are not to be found */
        bool cancels = random_below(12) == 0;
        uint32_t msgid =
            wire_send(wire, cancels ? "job.cancel" : "job.close", "[%lu]", jobs[order[i]]);

        is_cancelled[order[i]] =
            cancels && wire_find(wire_response(wire, msgid), "2")->type == MSGPACK_OBJECT_NIL;
    }
    for (unsigned n = 0; n < N; n++) {
        const msgpack_object *done = wire_notification(wire, "job.done");
        const char *state = wire_text(done, "1.state");
        unsigned i = 0;

        while (jobs[i] != (uint64_t)wire_number(done, "0")) {
            i++;
            CHECK_LT(i, N);
        }
        CHECK(!has_ended[i]);
        has_ended[i] = true;
        for (unsigned other = 0; other < n_others[i] && strcmp(state, "done") == 0; other++) {
            CHECK(has_ended[others[i][other]] && !is_cancelled[others[i][other]]);
        }
        CHECK(strcmp(state, "cancelled") != 0 || is_cancelled[i]);
    }
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
    wire_check_works(wire);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void test_a_token_is_for_another_connection(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first, job;
    const char *token = open_with_token(wire, &first);

    CHECK_EQ(strlen(token), 32);
    job = (uint64_t)wire_number(
        wire_call(other, "job.open", "['copy', {size: 4096}, {" SMALL ", after: [%s]}]", token),
        "job");
    push(other, job, 0, data);
    wire_call(other, "job.close", "[%lu]", job);
    CHECK_EQ(held(other, job), 1);
    wire_refused(other, "NOT_YOURS", "another connection's", "job.close", "[%lu]", first);
    push(wire, first, 0, data);
    check_result(wire, first, 0, data);
    CHECK_EQ(wire_held(other), 0);
    wire_call(wire, "job.close", "[%lu]", first);
    check_result(other, job, 0, data);
    check_done(other, job, "done");
}

/* A token and no number: of the number that somebody else has there is no more to learn than of
 * one that nobody has. */
static void test_numbers_of_others_cannot_be_probed(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const char *words = "['copy', {}, {after: [%lu]}]";
    uint64_t foreign = open_job(other, ""), ended = open_job(other, "");
    uint64_t unknown = ended + 1 + random_below(1000);

    wire_call(other, "job.close", "[%lu]", ended);
    check_done(other, ended, "done");
    for (unsigned i = 0; i < 3; i++) {
        uint64_t id = (uint64_t[]){foreign, ended, unknown}[i];
        char text[64];

        snprintf(text, sizeof(text), "this connection has no job %" PRIu64 ", or it ended", id);
        wire_refused(wire, "NOT_FOUND", text, "job.open", words, id);
        wire_refused(wire, "NOT_FOUND", text, "run", "['copy', {}, {after: [%lu]}, [<1>]]", id);
    }
    wire_check_works(wire);
}

static void test_itself_and_other_nonsense(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const char *words = "['copy', {}, {" SMALL ", after: [%s]}]";
    uint64_t job;
    char token[33], forged[64];

    snprintf(token, sizeof(token), "%s", open_with_token(wire, &job));
    wire_refused(wire, "NOT_FOUND", "no job", "job.open", "['copy', {}, {after: [%lu]}]", job + 1);
    memcpy(forged, token, sizeof(token));
    forged[random_below(32)] ^= 1;
    wire_refused(wire, "NOT_FOUND", "no job has this token", "job.open", words, forged);
    forged[31] = '\0';
    wire_refused(wire, "NOT_FOUND", "no job has this token", "job.open", words, forged);
    snprintf(forged, sizeof(forged), "%s0", token);
    wire_refused(wire, "RANGE", "33 bytes are more than 32", "job.open", words, forged);
    wire_refused(wire, "INVALID_PARAM", "must be a job's number or its token", "job.open", words,
                 "");
    wire_refused(wire, "INVALID_PARAM", "must be an array", "job.open", "['copy', {}, {after: 1}]");
    wire_refused(wire, "RANGE", "-1 is less than 0", "job.open", "['copy', {}, {after: [-1]}]");
    wire_refused(wire, "INVALID_PARAM", "must be an integer", "job.open",
                 "['copy', {}, {after: [1.5]}]");
    wire_refused(wire, "INVALID_PARAM", "17 elements are more than 16", "job.open",
                 "['copy', {}, {after: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}]");
    wire_call(wire, "job.open", "['copy', {}, {" SMALL ", after: [%lu, %s, %lu]}]", job, token,
              job);
    wire_check_works(wire);
}

/* ---- ends that are not good ------------------------------------------------------------------ */

enum bad_end { CANCELLED, REFUSED, EXPIRED, DISCONNECTED, WORKER_KILLED };

static void end_badly(struct harness *daemon, struct wire *wire, uint64_t job, enum bad_end end)
{
    switch (end) {
    case CANCELLED:
        wire_call(wire, "job.cancel", "[%lu]", job);
        break;
    case REFUSED: /* a record and a half */
        wire_notify(wire, "job.push", "[%lu, 0, {}, [<6000>]]", job);
        break;
    case EXPIRED:
        break;
    case DISCONNECTED:
        wire_close(wire);
        break;
    case WORKER_KILLED: {
        pid_t worker = harness_await_worker(daemon, 0);

        harness_pause(worker);
        wire_call(wire, "job.push", "[%lu, 0, {}, [<4096>]]", job);
        HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 1);
        CHECK_EQ(kill(worker, SIGKILL), 0);
    }
    }
}

static void check_bad_end(enum bad_end end, const char *why)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const char *options = end == EXPIRED ? ", deadline_ns: 3000000000" : "";
    char words[128], token[33];
    const void *data = random_new(SIZE);

    snprintf(words, sizeof(words), "['copy', {size: 4096}, {" SMALL "%s}]", options);
    const msgpack_object *opened = wire_call(wire, "job.open", words);
    uint64_t first = (uint64_t)wire_number(opened, "job");
    snprintf(token, sizeof(token), "%s", wire_text(opened, "token"));
    uint64_t job = (uint64_t)wire_number(
        wire_call(other, "job.open", "['copy', {size: 4096}, {" SMALL ", after: [%s]}]", token),
        "job");
    uint64_t last = open_after(other, job);

    push(other, job, 0, data);
    push(other, job, 1, data);
    push(other, last, 0, data);
    uint32_t run = wire_send(other, "run", "['copy', {}, {after: [%s]}, [<9>]]", token);
    HARNESS_WAIT(stat_of(other, "jobs_held") == 3);
    end_badly(daemon, wire, first, end);
    check_not_begun(wire_find(wire_response(other, run), "2"), first, why);
    check_failed(other, job, 2, first, why);
    check_failed(other, last, 1, job, "failed: CANCELLED");
    wire_refused(other, "CANCELLED", "which this one is after, ", "job.open",
                 "['copy', {}, {after: [%s]}]", token);
    CHECK_EQ(stat_of(other, "jobs_held"), 0);
    wire_check_works(other);
}

static void test_after_one_that_is_cancelled(void)
{
    check_bad_end(CANCELLED, "was cancelled, or its connection ended");
}

static void test_after_one_that_fails(void)
{
    check_bad_end(REFUSED, "failed: RANGE: ");
}

static void test_after_one_that_is_late(void)
{
    check_bad_end(EXPIRED, "did not meet its deadline");
}

static void test_after_one_whose_connection_ends(void)
{
    check_bad_end(DISCONNECTED, "was cancelled, or its connection ended");
}

static void test_after_one_whose_worker_is_killed(void)
{
    check_bad_end(WORKER_KILLED, "failed: DEVICE_LOST: ");
}

/* Who is far behind the one that failed learns which it was, and why. */
static void test_the_end_of_a_long_chain_names_its_beginning(void)
{
    enum { N = 40 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t jobs[N] = {open_job(wire, ", inline: false")};
    char options[64], why[128];

    for (unsigned i = 1; i < N; i++) {
        snprintf(options, sizeof(options), ", after: [%" PRIu64 "]%s", jobs[i - 1],
                 i + 1 < N ? ", inline: false" : "");
        jobs[i] = open_job(wire, options);
    }
    push(wire, jobs[N - 1], 0, data);
    wire_notify(wire, "job.push", "[%lu, 0, {}, [<6000>]]", jobs[0]);
    CHECK_STR(wire_error(wire_find(wire_notification(wire, "job.result"), "2.error")).name,
              "INVALID_PARAM");
    check_done(wire, jobs[0], "failed");
    check_failed(wire, jobs[1], 0, jobs[0], "failed: INVALID_PARAM: ");
    snprintf(why, sizeof(why),
             "failed: CANCELLED: job %" PRIu64
             ", which this one is after, failed: INVALID_PARAM: the job was opened with inline",
             jobs[0]);
    for (unsigned i = 2; i < N; i++) {
        check_failed(wire, jobs[i], i + 1 == N, jobs[i - 1], why);
    }
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
}

/* ---- two users ------------------------------------------------------------------------------- */

enum { ONE = 61001, OTHER = 61002 }; /* uids that nobody has */

static struct wire *connect_as(struct harness *daemon, uid_t uid)
{
    struct wire *wire;

    CHECK_EQ(seteuid(uid), 0);
    wire = wire_connect(harness_socket(daemon));
    CHECK_EQ(seteuid(0), 0);
    return wire;
}

static void be_root_again(void *arg)
{
    (void)arg;
    if (seteuid(0) < 0) {
        abort();
    }
}

/* It lets one user wait for another's job, and learn that it failed, but neither end it nor read
 * what is said of it. */
static void test_a_token_is_for_another_user(void)
{
    struct harness *daemon = harness_start();
    const void *data = random_new(SIZE);
    char token[33];
    uint64_t first, job;

    if (geteuid() != 0) {
        CHECK_SKIP("needs root, to be two users");
    }
    check_at_end(be_root_again, NULL);
    CHECK_EQ(chmod(harness_folder(daemon), 0711), 0);
    CHECK_EQ(chmod(harness_socket(daemon), 0666), 0);
    struct wire *wire = connect_as(daemon, ONE), *other = connect_as(daemon, OTHER);

    snprintf(token, sizeof(token), "%s", open_with_token(wire, &first));
    job = (uint64_t)wire_number(
        wire_call(other, "job.open", "['copy', {size: 4096}, {" SMALL ", after: [%s]}]", token),
        "job");
    wire_refused(other, "NOT_YOURS", "another connection's", "job.cancel", "[%lu]", first);
    CHECK_EQ(wire_count(wire_call(other, "job.list", "[{all: true}]"), ""), 1);
    push(other, job, 0, data);
    wire_notify(wire, "job.push", "[%lu, 0, {}, [<6000>]]", first);
    const msgpack_object *error = wire_find(wire_notification(other, "job.result"), "2.error");
    check_not_begun(error, first, "failed: RANGE");
    CHECK(strstr(wire_error(error).message, "RANGE:") == NULL);
    check_done(other, job, "failed");
}

CHECK_MAIN(CHECK_TEST(test_each_reads_what_the_one_before_wrote), CHECK_TEST(test_a_run_waits),
           CHECK_TEST(test_the_same_words_again_wait_again),
           CHECK_TEST(test_what_has_nothing_to_do_waits_as_well),
           CHECK_TEST(test_any_graph_ends_in_order),
           CHECK_TEST(test_a_token_is_for_another_connection),
           CHECK_TEST(test_numbers_of_others_cannot_be_probed),
           CHECK_TEST(test_itself_and_other_nonsense), CHECK_TEST(test_after_one_that_is_cancelled),
           CHECK_TEST(test_after_one_that_fails), CHECK_TEST(test_after_one_that_is_late),
           CHECK_TEST(test_after_one_whose_connection_ends),
           CHECK_TEST(test_after_one_whose_worker_is_killed),
           CHECK_TEST(test_the_end_of_a_long_chain_names_its_beginning),
           CHECK_TEST(test_a_token_is_for_another_user))
