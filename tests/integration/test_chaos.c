/*
 * Chaos: clients that do right, wrong and abrupt things, all at once, while they and the worker are
 * killed.  Each client is a process and checks every answer it gets; what must hold at the end is
 * that nothing is left in the daemon and that it works.
 *
 * GPUPIPE_CHAOS_SECONDS=N runs longer than the usual 5; GPUPIPE_TEST_SEED=N repeats the choices,
 * though not their timing.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_CLIENTS = 6, PUSHES_MAX = 24, SIZE_MAX_PUSH = 64 << 10 };

static const char *socket_path;
static time_t end_time;

static bool one_in(unsigned n)
{
    return random_below(n) == 0;
}

static bool is_one_of(const char *name, const char *names)
{
    return strstr(names, name) != NULL;
}

static const char *random_priority(void)
{
    static const char *const names[] = {"urgent", "normal", "bulk"};

    return names[random_below(3)];
}

/* "" or a deadline that may pass. */
static const char *random_deadline(void)
{
    static char text[64];

    text[0] = '\0';
    if (one_in(4)) {
        snprintf(text, sizeof(text), ", deadline_ns: %u", (unsigned)random_below(200000000) + 1);
    }
    return text;
}

/* "" or a job of anybody's, which may end in any way before or after. */
static const char *random_after(struct wire *wire)
{
    static char text[64];
    char path[32];

    text[0] = '\0';
    if (one_in(3)) {
        const msgpack_object *list = wire_call(wire, "job.list", "[{all: true}]");
        unsigned n = wire_count(list, "");

        if (n > 0) {
            snprintf(path, sizeof(path), "%u.token", (unsigned)random_below(n));
            snprintf(text, sizeof(text), ", after: ['%s']", wire_text(list, path));
        }
    }
    return text;
}

/* Small whole numbers: their sum is exact in any order. */
static float *random_whole_floats(size_t n, double *ret_sum)
{
    float *floats = random_new(n * sizeof(float));

    *ret_sum = 0;
    for (size_t i = 0; i < n; i++) {
        floats[i] = (float)(int)(random_below(2001)) - 1000;
        *ret_sum += floats[i];
    }
    return floats;
}

static void check_sum(const msgpack_object *result, double sum)
{
    double got;

    memcpy(&got, wire_output(result, sizeof(got)), sizeof(got));
    CHECK(got == sum);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static const char *random_run_options(struct wire *wire)
{
    static char text[192];

    snprintf(text, sizeof(text), "{priority: '%s'%s%s}", random_priority(), random_deadline(),
             random_after(wire));
    return text;
}

/* The result of a run, or NULL where it met an error that it may meet. */
static const msgpack_object *run_result(struct wire *wire, uint32_t msgid)
{
    const msgpack_object *response = wire_response(wire, msgid);
    struct wire_error error = wire_error(wire_find(response, "2"));

    if (error.name[0] == '\0') {
        return wire_find(response, "3");
    }
    printf("# run: %s: %s\n", error.name, error.message);
    CHECK(is_one_of(error.name, "DEVICE_LOST DEADLINE BUSY CANCELLED NOT_FOUND"));
    return NULL;
}

static void run_copy(struct wire *wire)
{
    size_t size = random_below(one_in(8) ? 8 << 20 : 200000);
    void *bytes = random_new(size);
    char params[256];
    const msgpack_object *result;

    snprintf(params, sizeof(params), "['copy', {}, %s, [%%b]]", random_run_options(wire));
    result = run_result(wire, wire_send(wire, "run", params, bytes, size));
    if (result != NULL) {
        CHECK_EQ(wire_number(result, "n"), size);
        CHECK_MEM(wire_output(result, size), bytes, size);
    }
}

static void run_sum(struct wire *wire)
{
    size_t n = random_below(one_in(4) ? 2 << 20 : 50000);
    char params[256];
    double sum;
    float *floats = random_whole_floats(n, &sum);
    const msgpack_object *result;

    snprintf(params, sizeof(params), "['sum', {}, %s, [%%b]]", random_run_options(wire));
    result = run_result(wire, wire_send(wire, "run", params, floats, n * sizeof(float)));
    if (result != NULL) {
        check_sum(result, sum);
    }
}

/* ---- jobs ----------------------------------------------------------------------------------- */

struct push {
    uint32_t msgid;
    bool is_refused, has_result;
    size_t size;
    const void *bytes;
};

struct job {
    struct wire *wire;
    uint64_t id;
    bool is_sum, is_ordered, is_closed, is_done, has_failed;
    unsigned credit;
    unsigned n_sent, n_results;
    double sum;
    struct push pushes[PUSHES_MAX];
};

static bool open_random(struct job *job)
{
    char params[256];
    struct wire_error error;
    const msgpack_object *response;

    snprintf(params, sizeof(params),
             "['%s', {}, {priority: '%s', window: %u, max_push: %u, ordered: %s%s%s}]",
             job->is_sum ? "sum" : "copy", random_priority(), (unsigned)random_below(6) + 1,
             (unsigned)SIZE_MAX_PUSH, job->is_ordered ? "true" : "false", random_deadline(),
             random_after(job->wire));
    response = wire_response(job->wire, wire_send(job->wire, "job.open", params));
    error = wire_error(wire_find(response, "2"));
    if (error.name[0] != '\0') {
        CHECK(is_one_of(error.name, "BUSY CANCELLED NOT_FOUND")); /* with whom it was to be after */
        return false;
    }
    job->id = (uint64_t)wire_number(response, "3.job");
    job->credit = (unsigned)wire_number(response, "3.credit");
    return true;
}

static void push_random(struct job *job)
{
    struct push *push = &job->pushes[job->n_sent];
    double sum = 0;

    if (job->is_sum) { /* whole leaves, or nothing */
        push->size = one_in(5) ? 0 : SIZE_MAX_PUSH;
        push->bytes = random_whole_floats(push->size / sizeof(float), &sum);
        job->sum += sum;
    } else {
        push->size = random_below(SIZE_MAX_PUSH + 1);
        push->bytes = random_new(push->size);
    }
    push->msgid = wire_send(job->wire, "job.push", "[%lu, %lu, {}, [%b]]", job->id,
                            (uint64_t)job->n_sent, push->bytes, push->size);
    job->n_sent++;
    job->credit--;
}

static void take_response(struct job *job, const msgpack_object *message)
{
    struct wire_error error = wire_error(wire_find(message, "2"));

    for (unsigned i = 0; i < job->n_sent && error.name[0] != '\0'; i++) {
        if (job->pushes[i].msgid == (uint32_t)wire_number(message, "1")) {
            CHECK(!job->pushes[i].has_result);
            job->pushes[i].is_refused = true;
        }
    }
    CHECK(error.name[0] == '\0' || is_one_of(error.name, "NOT_FOUND"));
}

static void take_result(struct job *job, const msgpack_object *params)
{
    unsigned seq = (unsigned)wire_number(params, "1");
    struct push *push = &job->pushes[seq];

    CHECK(!job->is_done);
    CHECK_LT(seq, job->n_sent);
    CHECK(!push->has_result && !push->is_refused);
    CHECK(!job->is_ordered || seq == job->n_results);
    push->has_result = true;
    job->n_results++;
    job->credit += (unsigned)wire_number(params, "2.credit");
    if (wire_find(params, "2.error") != NULL) {
        CHECK(is_one_of(wire_error(wire_find(params, "2.error")).name,
                        "DEVICE_LOST DEADLINE CANCELLED"));
        job->has_failed = true;
        return;
    }
    CHECK(!job->is_ordered || !job->has_failed);
    if (!job->is_sum) {
        CHECK_MEM(wire_output(wire_find(params, "2"), push->size), push->bytes, push->size);
    }
}

static void take_done(struct job *job, const msgpack_object *params)
{
    const char *state = wire_text(params, "1.state");

    CHECK(!job->is_done);
    job->is_done = true;
    CHECK_EQ(wire_number(params, "1.pushes"), job->n_results);
    if (strcmp(state, "done") == 0) {
        CHECK(job->is_closed && !job->has_failed);
        CHECK_EQ(job->n_results, job->n_sent);
        if (job->is_sum) {
            check_sum(wire_find(params, "1"), job->sum);
        }
    } else {
        CHECK(is_one_of(state, "failed cancelled expired"));
        CHECK(wire_find(params, "1.out") == NULL);
    }
}

/* Take the next message.  Returns the msgid of a response, else 0. */
static uint32_t take_message(struct job *job)
{
    const msgpack_object *message = wire_receive(job->wire);
    const msgpack_object *params;

    CHECK(message != NULL);
    if (wire_number(message, "0") == 1) {
        take_response(job, message);
        return (uint32_t)wire_number(message, "1");
    }
    params = wire_find(message, "2");
    CHECK_EQ(wire_number(params, "0"), job->id);
    if (strcmp(wire_text(message, "1"), "job.result") == 0) {
        take_result(job, params);
    } else {
        CHECK_STR(wire_text(message, "1"), "job.done");
        take_done(job, params);
    }
    return 0;
}

static void stream(struct wire *wire)
{
    struct job job = {.wire = wire, .is_sum = one_in(2), .is_ordered = !one_in(3)};
    unsigned n_pushes = (unsigned)random_below(PUSHES_MAX);
    uint32_t last;

    job.is_ordered |= job.is_sum;
    if (!open_random(&job)) {
        return;
    }
    while (!job.is_done && job.n_sent < n_pushes) {
        if (job.credit > 0 && !one_in(4)) {
            push_random(&job);
        } else if (job.n_results < job.n_sent) {
            take_message(&job);
        }
        if (one_in(40)) {
            wire_send(wire, "job.cancel", "[%lu]", job.id);
        }
    }
    job.is_closed = true;
    last = wire_send(wire, "job.close", "[%lu]", job.id);
    while (!job.is_done) {
        take_message(&job);
    }
    last = wire_send(wire, "ping", "[]");
    while (take_message(&job) != last) {
    }
    for (unsigned i = 0; i < job.n_sent; i++) {
        CHECK(job.pushes[i].has_result != job.pushes[i].is_refused);
    }
}

/* ---- wrong and abrupt things ---------------------------------------------------------------- */

static void ask_nonsense(struct wire *wire)
{
    static const struct {
        const char *error, *method, *params;
    } cases[] = {
        {"UNKNOWN_METHOD", "frobnicate", "[]"},
        {"UNKNOWN_OP", "run", "['no-such-op', {}, {}, [<100>]]"},
        {"INVALID_PARAM", "run", "['copy', {a: 1}, {}, [<100>]]"},
        {"INVALID_PARAM", "run", "['saxpy', {a: 1}, {}, [<100>]]"},
        {"INVALID_PARAM", "run", "['saxpy', {a: 1}, {}, [<100>, nil]]"},
        {"RANGE", "run", "['saxpy', {a: 1}, {}, [<100>, <104>]]"},
        {"RANGE", "run", "['sum', {}, {}, [<70001>]]"},
        {"INVALID_PARAM", "ping", "[<5000>]"},
        {"NOT_FOUND", "job.push", "[1234567, 0, {}, [<90000>]]"},
        {"NOT_FOUND", "job.close", "[1234567]"},
        {"RANGE", "job.open", "['copy', {}, {window: 0}]"},
        {"NO_DEVICE", "job.open", "['copy', {}, {require: %s}]"},
    };
    unsigned i = (unsigned)random_below(sizeof(cases) / sizeof(cases[0]));

    wire_error_is(wire, wire_send(wire, cases[i].method, cases[i].params, harness_other_kind()),
                  cases[i].error, "");
}

static void ask_much(struct wire *wire)
{
    uint32_t last = 0;

    for (unsigned i = 0; i < 400; i++) {
        last = wire_send(wire, "stats", "[]");
    }
    wire_result(wire, last);
}

/* Cancel a job of anybody's. */
static void meddle(struct wire *wire)
{
    const msgpack_object *list = wire_call(wire, "job.list", "[{all: true}]");
    unsigned n = wire_count(list, "");
    char path[32];

    if (n == 0) {
        return;
    }
    snprintf(path, sizeof(path), "%u.job", (unsigned)random_below(n));
    wire_response(wire, wire_send(wire, "job.cancel", "[%lu]", (uint64_t)wire_number(list, path)));
}

/* A part of something, perhaps with a bit changed, and gone. */
static void leave_abruptly(struct wire *wire)
{
    size_t size = random_below(300000);
    uint8_t *bytes = random_new(size);
    struct job job = {.is_ordered = true};
    msgpack_sbuffer buffer;
    size_t n;

    msgpack_sbuffer_init(&buffer);
    switch (random_below(4)) {
    case 0:
        wire_pack(wire, &buffer, "run", "['copy', {}, {}, [%b]]", bytes, size);
        break;
    case 1:
        wire_pack(wire, &buffer, "run", "['saxpy', {a: 2}, {}, [%b, %b]]", bytes, size / 8 * 4,
                  bytes, size / 8 * 4);
        break;
    case 2:
        job.wire = wire;
        if (open_random(&job)) {
            wire_pack(wire, &buffer, "job.push", "[%lu, 0, {}, [<60000>]]", job.id);
            wire_pack(wire, &buffer, "job.push", "[%lu, 1, {}, [<60000>]]", job.id);
        }
        break;
    default:
        msgpack_sbuffer_write(&buffer, (const char *)bytes, size);
        break;
    }
    if (one_in(2) && buffer.size > 0) {
        buffer.data[random_below(buffer.size < 64 ? buffer.size : 64)] ^=
            (char)(1 << random_below(8));
    }
    n = one_in(3) ? buffer.size : random_below(buffer.size + 1);
    wire_send_bytes(wire, buffer.data, n);
    msgpack_sbuffer_destroy(&buffer);
    if (one_in(3)) {
        shutdown(wire_fd(wire), SHUT_WR);
    }
    wire_close(wire);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void undo_all(void)
{
    while (check_n_undo > 0) {
        check_n_undo--;
        check_undo[check_n_undo].undo(check_undo[check_n_undo].arg);
    }
}

_Noreturn static void client_main(uint64_t seed)
{
    static void (*const things[])(struct wire * wire) = {
        run_copy, run_sum, stream, stream, stream, ask_nonsense, ask_much, meddle,
    };
    random_state = seed;
    check_n_undo = 0; /* they are the parent's */
    if (setjmp(check_jump) != 0) {
        fflush(stdout);
        _exit(1);
    }
    /* A second longer than the parent expects every client to run. */
    while (time(NULL) <= end_time) {
        struct wire *wire = wire_connect(socket_path);

        for (uint64_t i = random_below(8); i > 0; i--) {
            things[random_below(sizeof(things) / sizeof(things[0]))](wire);
        }
        if (one_in(2)) {
            leave_abruptly(wire);
        }
        undo_all();
    }
    fflush(stdout);
    _exit(0);
}

static pid_t start_client(void)
{
    uint64_t seed = random_u64() | 1;
    pid_t pid = fork();

    if (pid == 0) {
        client_main(seed);
    }
    CHECK_GT(pid, 0);
    return pid;
}

static void end_client(void *arg)
{
    pid_t *pid = arg;

    if (*pid > 0) {
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
    }
}

static void upset_worker(struct harness *daemon)
{
    pid_t worker = harness_worker(daemon);

    if (worker > 0 && one_in(2)) {
        kill(worker, SIGKILL);
    } else if (worker > 0) {
        kill(worker, SIGSTOP);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        kill(worker, SIGCONT);
    }
}

/* ---- the story ------------------------------------------------------------------------------ */

static void test_chaos(void)
{
    static pid_t clients[N_CLIENTS];
    const char *seconds = getenv("GPUPIPE_CHAOS_SECONDS");
    unsigned duration = seconds != NULL ? (unsigned)atoi(seconds) : 5;
    struct harness *daemon = harness_start();
    struct wire *wire;
    int status;

    harness_deadline(duration + 60);
    socket_path = harness_socket(daemon);
    end_time = time(NULL) + duration;
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        clients[i] = start_client();
        check_at_end(end_client, &clients[i]);
    }
    while (time(NULL) < end_time) {
        pid_t *client = &clients[random_below(N_CLIENTS)];

        nanosleep(&(struct timespec){.tv_nsec = (long)random_below(150000000)}, NULL);
        CHECK_EQ(waitpid(*client, &status, WNOHANG), 0);
        if (one_in(3)) {
            end_client(client);
            *client = start_client();
        }
        if (one_in(6)) {
            upset_worker(daemon);
        }
        harness_notified(daemon); /* sd_notify() blocks while nobody takes its messages */
    }
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        CHECK_EQ(waitpid(clients[i], &status, 0), clients[i]);
        clients[i] = 0;
        CHECK_EQ(status, 0);
    }
    wire = wire_connect(socket_path);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "sessions") == 1);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "pool_used") == 0);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "jobs"), 0);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "jobs_held"), 0);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "chunks_in_flight"), 0);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "pool_waiting"), 0);
    wire_check_works(wire);
}

CHECK_MAIN(CHECK_TEST(test_chaos))
