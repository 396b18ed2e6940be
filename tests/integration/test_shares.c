/*
 * Shares: one user's programs may take three quarters of what all share, and no more; another user
 * always gets in.  Needs root, to be two users.
 */
#include "proto/limits.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"
#include "tests/wire.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum { ONE = 61001, OTHER = 61002, THIRD = 61003 }; /* uids that nobody has */

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

/* A connection made by this user: the kernel notes who called connect(). */
static struct wire *connect_as(struct harness *daemon, uid_t uid)
{
    struct wire *wire;

    CHECK_EQ(seteuid(uid), 0);
    wire = wire_connect(harness_socket(daemon));
    CHECK_EQ(seteuid(0), 0);
    return wire;
}

/* Undone before the daemon's folder is removed, whatever happened. */
static void be_root_again(void *arg)
{
    (void)arg;
    if (seteuid(0) < 0) {
        abort();
    }
}

#define START_FOR_ALL(...)                                                                         \
    ({                                                                                             \
        struct harness *daemon_ = harness_start(__VA_ARGS__);                                      \
        open_to_all(daemon_);                                                                      \
        daemon_;                                                                                   \
    })

static void open_to_all(struct harness *daemon)
{
    if (geteuid() != 0) {
        CHECK_SKIP("needs root, to be two users");
    }
    check_at_end(be_root_again, NULL);
    CHECK_EQ(chmod(harness_folder(daemon), 0711), 0);
    CHECK_EQ(chmod(harness_socket(daemon), 0666), 0);
}

/* The details of an error, which must be this one. */
static const msgpack_object *refused(struct wire *wire, uint32_t msgid, const char *name)
{
    const msgpack_object *error = wire_find(wire_response(wire, msgid), "2");

    CHECK_STR(wire_error(error).name, name);
    return wire_find(error, "2");
}

/* What was refused says which limit is the reason, and when to try again. */
static void check_full(const msgpack_object *details, const char *limit, uint64_t used,
                       uint64_t max)
{
    CHECK_STR(wire_text(details, "limit"), limit);
    CHECK_EQ(wire_number(details, "used"), used);
    CHECK_EQ(wire_number(details, "max"), max);
    CHECK_GT(wire_number(details, "retry_ms"), 0);
}

static void check_works_as(struct harness *daemon, uid_t uid)
{
    struct wire *wire = connect_as(daemon, uid);

    wire_check_works(wire);
    wire_close(wire);
}

/* ---- places in the queues ------------------------------------------------------------------- */

#define BULK_JOB "['copy', {}, {inline: false, priority: 'bulk', window: 64}]"

/* Open wide windows of bulk on connections of this user's until none is left; returns how many
 * pushes they are good for, and the last connection, with a job that has several. */
static uint64_t fill_queue(struct harness *daemon, uid_t uid, const char *limit, uint64_t max,
                           struct wire **ret_wire, uint64_t *ret_job)
{
    uint64_t total = 0;

    for (;;) {
        struct wire *wire = connect_as(daemon, uid);

        wire_call(wire, "hello", "[{errors: 'structured'}]");
        for (unsigned i = 0; i < LIMIT_JOBS; i++) {
            uint32_t msgid = wire_send(wire, "job.open", BULK_JOB);
            const msgpack_object *response = wire_response(wire, msgid);

            if (wire_find(response, "2")->type != MSGPACK_OBJECT_NIL) {
                const msgpack_object *details = wire_find(wire_find(response, "2"), "2");

                CHECK_STR(wire_error(wire_find(response, "2")).name, "BUSY");
                check_full(details, limit, max, max);
                return total;
            }
            total += (uint64_t)wire_number(wire_find(response, "3"), "credit");
            if (i == 0) {
                *ret_wire = wire;
                *ret_job = (uint64_t)wire_number(wire_find(response, "3"), "job");
            }
        }
    }
}

/* One user's bulk jobs leave a quarter of the queue; the other priorities have queues of their own;
 * and what ends makes room. */
static void test_the_queue(void)
{
    struct harness *daemon = START_FOR_ALL();
    const uint64_t share = LIMIT_QUEUE * LIMIT_USER_QUEUE / 100;
    struct wire *one, *other;
    uint64_t one_job, other_job;
    unsigned long kib = harness_rss_kib(daemon);

    CHECK_EQ(fill_queue(daemon, ONE, "user_queue", share, &one, &one_job), share);
    refused(one, wire_send(one, "run", "['copy', {}, {priority: 'bulk'}, [%b]]", "x", (size_t)1),
            "BUSY");
    wire_check_works(one); /* as normal */
    CHECK_EQ(fill_queue(daemon, OTHER, "queue", LIMIT_QUEUE, &other, &other_job),
             LIMIT_QUEUE - share);
    kib += (unsigned long)stat_of(one, "sessions") * 400 + LIMIT_QUEUE * 8 / 10; /* see README */
    CHECK_LE(harness_rss_kib(daemon), kib + HARNESS_SANITIZER_KIB);
    refused(one, wire_send(one, "job.open", BULK_JOB), "BUSY");
    wire_call(one, "job.cancel", "[%lu]", one_job);
    wire_notification(one, "job.done");
    CHECK_GE(wire_number(wire_call(other, "job.open", BULK_JOB), "credit"), 1);
    wire_call(one, "run", "['copy', {}, {priority: 'bulk'}, [%b]]", "x", (size_t)1);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* One user's jobs take the 48 of 64 MiB that it may have; returns the first of them. */
static uint64_t take_share(struct wire *wire)
{
    uint64_t first =
        (uint64_t)wire_number(wire_call(wire, "job.open", "['copy', {}, {window: 4}]"), "job");

    wire_call(wire, "job.open", "['copy', {}, {window: 4}]");
    CHECK_EQ(stat_of(wire, "pool_used"), 48 * MIB);
    return first;
}

static void test_the_pool(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *one = connect_as(daemon, ONE);
    struct wire *again = connect_as(daemon, ONE);
    struct wire *other = connect_as(daemon, OTHER);
    uint64_t first = take_share(one);
    const msgpack_object *details;

    wire_call(again, "hello", "[{errors: 'structured'}]");
    details = refused(again, wire_send(again, "job.open", "['copy']"), "QUOTA");
    check_full(details, "user_pool", 48 * MIB, 48 * MIB);
    wire_call(other, "job.open", "['copy', {}, {window: 1, max_push: 1048576}]");
    wire_check_works(other);

    wire_call(one, "job.cancel", "[%lu]", first);
    wire_notification(one, "job.done");
    wire_call(again, "job.open", "['copy']");
}

/* Open jobs until there is no room: a job takes half of what is left, down to the least there is.
 */
static const msgpack_object *take_all(struct wire *wire)
{
    for (;;) {
        uint32_t msgid = wire_send(wire, "job.open", "['copy']");
        const msgpack_object *error = wire_find(wire_response(wire, msgid), "2");

        if (error->type != MSGPACK_OBJECT_NIL) {
            CHECK_STR(wire_error(error).name, "BUSY");
            return wire_find(error, "2");
        }
    }
}

/* Two have it all, neither more than its share: nobody else finds any, until one gives some back.
 */
static void test_all_of_the_pool(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *one = connect_as(daemon, ONE);
    struct wire *other = connect_as(daemon, OTHER);
    struct wire *third = connect_as(daemon, THIRD);
    uint64_t first = take_share(one);

    wire_call(other, "hello", "[{errors: 'structured'}]");
    check_full(take_all(other), "pool", 64 * MIB, 64 * MIB);
    wire_call(third, "hello", "[{errors: 'structured'}]");
    check_full(refused(third, wire_send(third, "const.put", "[{}, [<8192>]]"), "BUSY"), "pool",
               64 * MIB, 64 * MIB);
    wire_call(one, "job.cancel", "[%lu]", first);
    wire_notification(one, "job.done");
    wire_call(third, "const.put", "[{}, [<8192>]]");
    wire_call(third, "job.open", "['copy']");
}

/* Rings have a pool of their own, and shares of it. */
static void test_the_ring_pool(void)
{
    struct harness *daemon = START_FOR_ALL("--ring-pool", "64M");
    struct wire *one = connect_as(daemon, ONE);
    struct wire *again = connect_as(daemon, ONE);
    struct wire *other = connect_as(daemon, OTHER);
    struct wire *third = connect_as(daemon, THIRD);
    struct ring_client *large = ring_client_open(one, 32 * MIB);

    ring_client_open(one, 16 * MIB);
    wire_call(again, "hello", "[{errors: 'structured'}]");
    check_full(refused(again, wire_send(again, "ring.open", "[1]"), "QUOTA"), "user_rings",
               48 * MIB, 48 * MIB);
    struct ring_client *ring = ring_client_open(other, 16 * MIB); /* it has its own all the same */
    ring_client_check_works(ring, ring_client_open_copy(other, ""));
    wire_call(third, "hello", "[{errors: 'structured'}]");
    check_full(refused(third, wire_send(third, "ring.open", "[1]"), "BUSY"), "ring_pool", 64 * MIB,
               64 * MIB);
    ring_client_close(large);
    ring_client_check_works(ring_client_open(third, 16 * MIB), ring_client_open_copy(third, ""));
    ring_client_check_works(ring_client_open(again, 16 * MIB), ring_client_open_copy(again, ""));
}

/* A connection's own limits say the same. */
static void test_what_one_connection_may_have(void)
{
    static const char job[] = "['copy', {}, {inline: false, window: 1}]";
    struct harness *daemon = START_FOR_ALL();
    struct wire *wire = connect_as(daemon, ONE);

    wire_call(wire, "hello", "[{errors: 'structured'}]");
    for (unsigned i = 0; i < LIMIT_RINGS; i++) {
        ring_client_open(wire, MIB);
    }
    check_full(refused(wire, wire_send(wire, "ring.open", "[1]"), "QUOTA"), "rings", LIMIT_RINGS,
               LIMIT_RINGS);
    for (unsigned i = 0; i < LIMIT_JOBS; i++) {
        wire_call(wire, "job.open", job);
    }
    check_full(refused(wire, wire_send(wire, "job.open", job), "QUOTA"), "jobs", LIMIT_JOBS,
               LIMIT_JOBS);
    for (unsigned i = 0; i < LIMIT_CONSTS_HELD; i++) {
        wire_call(wire, "const.put", "[{}, [<64>]]");
    }
    check_full(refused(wire, wire_send(wire, "const.put", "[{}, [<64>]]"), "QUOTA"), "consts_held",
               LIMIT_CONSTS_HELD, LIMIT_CONSTS_HELD);
}

/* A run over the share waits for its user's memory, and delays nobody else's. */
static void test_a_run_over_the_share(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *one = connect_as(daemon, ONE);
    struct wire *again = connect_as(daemon, ONE);
    uint64_t first = take_share(one);
    const size_t size = 100000; /* what a socket holds while the daemon does not read */
    uint8_t *bytes = random_new(size);
    uint32_t run = wire_send(again, "run", "['copy', {}, {}, [%b]]", bytes, size);

    HARNESS_WAIT(stat_of(one, "pool_waiting") == 1);
    check_works_as(daemon, OTHER);
    CHECK_EQ(stat_of(one, "pool_waiting"), 1);
    wire_call(one, "job.cancel", "[%lu]", first);
    CHECK_MEM(wire_output(wire_result(again, run), size), bytes, size);
}

/* What only this connection's next requests can give back is not waited for: they would not be
 * read. */
static void test_a_run_over_what_its_connection_holds(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *one = connect_as(daemon, ONE);
    uint64_t first = take_share(one), constant;

    wire_refused(one, "QUOTA", "end some", "run", "['copy', {}, {}, [<4000>]]");
    wire_call(one, "job.cancel", "[%lu]", first);
    wire_notification(one, "job.done");
    wire_output(wire_call(one, "run", "['copy', {}, {}, [<4000>]]"), 4000);
    for (unsigned i = 0; i < 2; i++) {
        constant =
            (uint64_t)wire_number(wire_call(one, "const.put", "[{}, [<16777216>]]"), "const");
    }
    wire_refused(one, "QUOTA", "end some", "run", "['copy', {}, {}, [<4000000>]]");
    wire_call(one, "const.drop", "[%lu]", constant);
    wire_output(wire_call(one, "run", "['copy', {}, {}, [<4000000>]]"), 4000000);
}

/* A connection's constants take all of its user's share but this; the first holds a block. */
static uint64_t leave_room(struct wire *holder, size_t room)
{
    uint64_t first =
        (uint64_t)wire_number(wire_call(holder, "const.put", "[{}, [<8192>]]"), "const");
    size_t left = 48 * MIB - room - (size_t)stat_of(holder, "pool_used");

    for (size_t size = 16 * MIB; left > 0; size /= 2) {
        for (; left >= size; left -= size) {
            char params[40];

            snprintf(params, sizeof(params), "[{}, [<%zu>]]", size);
            wire_call(holder, "const.put", params);
        }
    }
    CHECK_EQ(stat_of(holder, "pool_used"), 48 * MIB - room);
    return first;
}

/* A fold takes a block, and so does its result: a sum's input and partials alone would fit. */
static void test_the_fold_of_a_run_is_charged(void)
{
    struct harness *daemon = harness_start();
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t constant = leave_room(holder, 8192);
    uint32_t run = wire_send(wire, "run", "['sum', {}, {}, [<400>]]");

    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 1);
    CHECK_EQ(stat_of(holder, "pool_used"), 48 * MIB - 8192);
    wire_call(holder, "const.drop", "[%lu]", constant);
    CHECK_EQ(wire_number(wire_result(wire, run), "n"), 100);
}

static void test_the_fold_of_a_job_is_charged(void)
{
    struct harness *daemon = harness_start();
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct wire *wire = wire_connect(harness_socket(daemon));
    const char *least = "['sum', {}, {window: 1, max_push: 65536}]";
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", least), "job"), constant;
    size_t needed = (size_t)stat_of(wire, "pool_used");
    const msgpack_object *details;

    wire_call(wire, "job.cancel", "[%lu]", job);
    wire_notification(wire, "job.done");
    wire_call(wire, "hello", "[{errors: 'structured'}]");
    constant = leave_room(holder, needed - 8192);
    details = refused(wire, wire_send(wire, "job.open", least), "QUOTA");
    CHECK_STR(wire_text(details, "limit"), "user_pool");
    CHECK_EQ(wire_number(details, "used"), 48 * MIB - needed + 8192);
    wire_call(holder, "const.drop", "[%lu]", constant);
    wire_call(wire, "job.open", least);
    CHECK_EQ(stat_of(wire, "pool_used"), 48 * MIB);
}

/* Half of a payload is charged like a whole one: its place is kept. */
static void test_half_received_runs_are_charged(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *half[4];
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < 4; i++) {
        half[i] = connect_as(daemon, ONE);
        msgpack_sbuffer_clear(&buffer);
        wire_pack(half[i], &buffer, "run",
                  "['copy', {}, {}, [<8388608>]]"); /* 16 MiB of the pool */
        wire_send_bytes(half[i], buffer.data, 1000);
    }
    msgpack_sbuffer_destroy(&buffer);
    struct wire *other = connect_as(daemon, OTHER);
    HARNESS_WAIT(stat_of(other, "pool_waiting") == 1);
    CHECK_EQ(stat_of(other, "pool_used"), 48 * MIB);
    wire_check_works(other);
    wire_close(half[0]);
    HARNESS_WAIT(stat_of(other, "pool_waiting") == 0);
    CHECK_EQ(stat_of(other, "pool_used"), 48 * MIB);
}

/* Results that nobody reads keep their memory, at their user's cost. */
static void test_unread_results_are_charged(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *deaf = connect_as(daemon, ONE);
    struct wire *other = connect_as(daemon, OTHER);
    msgpack_sbuffer buffer;
    bool is_stuck = false;

    msgpack_sbuffer_init(&buffer);
    wire_pack(deaf, &buffer, "run", "['copy', {}, {}, [<3000000>]]"); /* 8 MiB of the pool */
    for (unsigned i = 0; i < 20 && !is_stuck; i++) {
        size_t sent = 0;

        while (sent < buffer.size && !is_stuck) {
            ssize_t n;

            is_stuck = poll(&(struct pollfd){.fd = wire_fd(deaf), .events = POLLOUT}, 1, 500) == 0;
            n = send(wire_fd(deaf), buffer.data + sent, buffer.size - sent,
                     MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
    }
    msgpack_sbuffer_destroy(&buffer);
    CHECK(is_stuck);
    CHECK_EQ(stat_of(other, "pool_used"), 48 * MIB);
    wire_check_works(other);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* All that one user may have; returns the last, and its connection. */
static uint64_t open_all_jobs(struct harness *daemon, struct wire **ret_wire)
{
    struct wire *wire = NULL;
    uint64_t job = 0;

    for (unsigned i = 0; i < LIMIT_USER_JOBS; i++) {
        if (i % LIMIT_JOBS == 0) {
            wire = connect_as(daemon, ONE);
        }
        job = (uint64_t)wire_number(
            wire_call(wire, "job.open", "['sha256', {}, {window: 1, max_push: 65536}]"), "job");
    }
    *ret_wire = wire;
    return job;
}

static void test_job_slots(void)
{
    struct harness *daemon = START_FOR_ALL("--pinned-pool", "96M");
    struct wire *wire, *last = connect_as(daemon, ONE);
    const msgpack_object *details;
    uint64_t job = open_all_jobs(daemon, &wire);

    wire_call(last, "hello", "[{errors: 'structured'}]");
    details = refused(last, wire_send(last, "job.open", "['copy']"), "QUOTA");
    CHECK_STR(wire_text(details, "limit"), "user_jobs");
    CHECK_EQ(wire_number(details, "used"), LIMIT_USER_JOBS);
    CHECK_EQ(wire_number(details, "max"), LIMIT_USER_JOBS);
    details = refused(last, wire_send(last, "run", "['copy', {}, {}, [<1000>]]"), "QUOTA");
    CHECK_STR(wire_text(details, "limit"), "user_jobs");
    CHECK_GT(wire_number(details, "retry_ms"), 0);
    check_works_as(daemon, OTHER);
    wire_call(wire, "job.cancel", "[%lu]", job);
    wire_output(wire_call(last, "run", "['copy', {}, {}, [<1000>]]"), 1000);
}

/* ---- connections ---------------------------------------------------------------------------- */

/* As many as the loop accepts: the daemon closes what is too much. */
static void connect_many(struct harness *daemon, unsigned n, int *ret_fds)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    strncpy(address.sun_path, harness_socket(daemon), sizeof(address.sun_path) - 1);
    CHECK_EQ(seteuid(ONE), 0);
    for (unsigned i = 0; i < n; i++) {
        ret_fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connect(ret_fds[i], (const struct sockaddr *)&address, sizeof(address));
    }
    CHECK_EQ(seteuid(0), 0);
}

/* A user that connects again and again, and holds on to what it got. */
/* What the daemon remembers of connections that ran something takes no slot from anybody's job. */
static void test_job_slots_after_runs(void)
{
    enum { N = LIMIT_JOB_SLOTS - LIMIT_USER_JOBS + 1 };
    static const char run[] = "\x94\x00\x01\xa3"
                              "run\x94\xa4"
                              "copy\x80\x80\x91\xc4\x04"
                              "text";
    struct harness *daemon = START_FOR_ALL("--pinned-pool", "96M");
    struct wire *wire;
    char answer;
    int fds[N];

    connect_many(daemon, N, fds);
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(send(fds[i], run, sizeof(run) - 1, 0), sizeof(run) - 1);
        CHECK_EQ(recv(fds[i], &answer, 1, 0), 1);
    }
    open_all_jobs(daemon, &wire);
    check_works_as(daemon, OTHER);
    for (unsigned i = 0; i < N; i++) {
        close(fds[i]);
    }
}

/* A connection too many: nothing was asked yet, and it is told why all the same. */
static void check_one_too_many(struct harness *daemon, uid_t uid, const char *name,
                               const char *text)
{
    struct wire *wire = connect_as(daemon, uid);
    const msgpack_object *message = wire_receive(wire);

    CHECK(message != NULL);
    CHECK_EQ(wire_number(message, "0"), 1);
    CHECK_EQ(wire_number(message, "1"), 0);
    CHECK_STR(wire_error(wire_find(message, "2")).name, name);
    CHECK_HAS(wire_error(wire_find(message, "2")).message, text);
    wire_eof(wire);
    wire_close(wire);
}

/* And so is who uses the library. */
static void check_ping_is_refused(struct harness *daemon)
{
    char command[256], line[256] = "";

    snprintf(command, sizeof(command), "%s --socket %s ping 2>&1", getenv("GPUPIPE_CLI"),
             harness_socket(daemon));
    FILE *ping = popen(command, "re");
    CHECK(ping != NULL);
    CHECK(fgets(line, sizeof(line), ping) != NULL);
    CHECK(pclose(ping) != 0);
    CHECK_HAS(line, "512 connections are open, at most 512");
}

static void test_connections(void)
{
    enum { N = LIMIT_SESSIONS };
    struct harness *daemon = START_FOR_ALL();
    struct wire *other = connect_as(daemon, OTHER);
    struct wire *more[LIMIT_SESSIONS - LIMIT_USER_SESSIONS - 1];
    int fds[N];

    wire_check_works(other);
    connect_many(daemon, N, fds);
    HARNESS_WAIT(stat_of(other, "sessions_refused") == N - LIMIT_USER_SESSIONS);
    CHECK_EQ(stat_of(other, "sessions"), LIMIT_USER_SESSIONS + 1);
    check_works_as(daemon, OTHER);
    check_works_as(daemon, 0);
    check_one_too_many(daemon, ONE, "QUOTA", "384 connections of this user are open, at most 384");
    for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
        more[i] = connect_as(daemon, OTHER);
    }
    wire_check_works(more[ARRAY_SIZE(more) - 1]);
    check_one_too_many(daemon, 0, "BUSY", "512 connections are open, at most 512");
    check_ping_is_refused(daemon);
    for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
        wire_close(more[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        close(fds[i]);
    }
    HARNESS_WAIT(stat_of(other, "sessions") == 1);
    check_works_as(daemon, ONE);
}

/* ---- who a connection belongs to ------------------------------------------------------------ */

/*
 * The rights are those of whoever connected: not of the process that holds the connection now, be
 * it one that changed its user, a child, or another one with the same pid.
 */
static void test_rights_stay_those_of_connect(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *root = wire_connect(harness_socket(daemon));
    struct wire *one = connect_as(daemon, ONE);
    struct wire *other = connect_as(daemon, OTHER);
    uint64_t jobs[2];

    jobs[0] = (uint64_t)wire_number(wire_call(other, "job.open", "['copy']"), "job");
    jobs[1] = (uint64_t)wire_number(wire_call(root, "job.open", "['copy']"), "job");
    /* We are root now, and so is the process that sends this; the connection is not. */
    wire_refused(one, "NOT_YOURS", "job", "job.cancel", "[%lu]", jobs[0]);
    CHECK_EQ(wire_count(wire_call(one, "job.list", "[{all: true}]"), ""), 0);
    CHECK_EQ(seteuid(ONE), 0);
    CHECK_EQ(wire_count(wire_call(root, "job.list", "[{all: true}]"), ""), 2);
    wire_call(root, "job.cancel", "[%lu]", jobs[0]); /* root's connection, in other hands */
    CHECK_EQ(seteuid(0), 0);
    CHECK_STR(wire_text(wire_notification(other, "job.done"), "1.state"), "cancelled");
    wire_refused(other, "NOT_YOURS", "job", "job.cancel", "[%lu]", jobs[1]);
}

/* A setuid program: connected as one user, gone on as another; its child inherits the connection.
 */
static void test_a_childs_connection_is_its_parents(void)
{
    struct harness *daemon = START_FOR_ALL();
    struct wire *one = connect_as(daemon, ONE);
    struct wire *same = connect_as(daemon, ONE);
    uint64_t job;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        /* [0, 1, "job.open", ["copy"]], as another user */
        static const char open[] = "\x94\x00\x01\xa8job.open\x91\xa4"
                                   "copy";

        if (setresuid(OTHER, OTHER, OTHER) < 0 ||
            send(wire_fd(one), open, sizeof(open) - 1, 0) != sizeof(open) - 1) {
            _exit(1);
        }
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    job = (uint64_t)wire_number(wire_result(one, 1), "job");
    wire_call(same, "job.cancel", "[%lu]", job); /* the first user's, not the child's */
    CHECK_STR(wire_text(wire_notification(one, "job.done"), "1.state"), "cancelled");
}

/* ---- device time ---------------------------------------------------------------------------- */

/*
 * While somebody else has work, what one user calls urgent is so up to its share: here 20 runs of
 * much device time, all at once, while the worker is stopped.
 */
static void test_too_much_urgent_work_runs_as_normal(void)
{
    enum { N_RUNS = 20 };
    static const char run[] = "['iterate', {n: 30000}, {priority: 'urgent'}, [<16384>]]";
    struct harness *daemon = START_FOR_ALL(HARNESS_ON_CPU);
    struct wire *one = connect_as(daemon, ONE);
    struct wire *other = connect_as(daemon, OTHER);
    msgpack_sbuffer buffer;
    pid_t worker = harness_await_worker(daemon, 0);
    uint32_t ids[N_RUNS], others;
    unsigned n_normal = 0;

    msgpack_sbuffer_init(&buffer);
    CHECK_STR(wire_text(wire_call(one, "run", run), "priority"), "urgent"); /* measures it */
    harness_pause(worker);
    others = wire_send(other, "run", "['copy', {}, {}, [<100>]]");
    HARNESS_WAIT(stat_of(one, "chunks_in_flight") == 1);
    for (unsigned i = 0; i < N_RUNS; i++) {
        ids[i] = wire_pack(one, &buffer, "run", run);
    }
    wire_send_bytes(one, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    HARNESS_WAIT(stat_of(other, "runs_total") == N_RUNS + 2);
    kill(worker, SIGCONT);
    for (unsigned i = 0; i < N_RUNS; i++) {
        const msgpack_object *result = wire_find(wire_response(one, ids[i]), "3");

        wire_output(result, 16384);
        n_normal += strcmp(wire_text(result, "priority"), "normal") == 0;
    }
    wire_output(wire_find(wire_response(other, others), "3"), 100);
    CHECK_GE(n_normal, 1);
}

CHECK_MAIN(CHECK_TEST(test_the_queue), CHECK_TEST(test_the_pool), CHECK_TEST(test_all_of_the_pool),
           CHECK_TEST(test_the_ring_pool), CHECK_TEST(test_what_one_connection_may_have),
           CHECK_TEST(test_a_run_over_the_share),
           CHECK_TEST(test_a_run_over_what_its_connection_holds),
           CHECK_TEST(test_the_fold_of_a_run_is_charged),
           CHECK_TEST(test_the_fold_of_a_job_is_charged),
           CHECK_TEST(test_half_received_runs_are_charged),
           CHECK_TEST(test_unread_results_are_charged), CHECK_TEST(test_job_slots),
           CHECK_TEST(test_job_slots_after_runs), CHECK_TEST(test_connections),
           CHECK_TEST(test_rights_stay_those_of_connect),
           CHECK_TEST(test_a_childs_connection_is_its_parents),
           CHECK_TEST(test_too_much_urgent_work_runs_as_normal))
