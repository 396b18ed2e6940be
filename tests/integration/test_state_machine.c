/*
 * The streaming state machine, fuzzed against the real daemon: random requests of three jobs, right
 * and wrong, as requests and as notifications, in one stream cut anywhere, while the worker stands
 * still.  So nothing is answered in between, and a model of PROTOCOL.md predicts every answer. Then
 * the worker goes on, and each accepted push must get its one answer, each job its end.
 *
 * The model knows the set of errors that a request deserves; which of them comes is the daemon's
 * choice.  GPUPIPE_STATE_ROUNDS=N plays more rounds; GPUPIPE_TEST_SEED=N repeats them.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>
#include <sys/socket.h>

enum { N_JOBS = 3, OPS_MAX = 60, PUSHES_MAX = OPS_MAX, MAX_PUSH = 65536, RECORD = 4 };

enum op_kind { OP_PUSH, OP_NOTIFY, OP_CLOSE, OP_CANCEL, OP_PING, OP_KINDS };

struct op {
    enum op_kind kind;
    unsigned job; /* N_JOBS: none of ours */
    uint32_t msgid;
    uint64_t seq;
    unsigned n_data;
    size_t size; /* of each payload */
    bool says_n, is_n_right, has_unknown_option;
    const uint8_t *bytes;
};

enum model_state { OPEN, CLOSED, DONE, FAILED, CANCELLED };

static const char *const state_names[] = {"open", "closed", "done", "failed", "cancelled"};

struct model {
    uint64_t id;
    unsigned window;
    bool is_ordered;
    enum model_state state;
    unsigned n_pushed;
    const struct op *pushes[PUSHES_MAX];
    char refusals[128]; /* FAILED: the errors that the refused notification deserved */
    bool is_refusal_seen, is_done_seen;
    unsigned n_results;
    bool has_result[PUSHES_MAX + 1];
    char error[32]; /* of the refusal, as job.result had it */
};

static struct wire *wire, *other;
static struct model jobs[N_JOBS];
static uint64_t foreign_job, unknown_job;
static struct op ops[OPS_MAX];
static unsigned n_ops;
static uint8_t bytes[2 * MAX_PUSH];

static bool one_in(unsigned n)
{
    return random_below(n) == 0;
}

/* ---- the model ------------------------------------------------------------------------------ */

/* The errors that a push deserves, as words; "" if it is right. */
static void judge_push(const struct op *op, const struct model *job, char *ret_errors, size_t size)
{
    bool is_dead = job != NULL && job->state >= DONE;

    snprintf(ret_errors, size, "%s%s%s%s%s%s%s", job == NULL ? " NOT_FOUND NOT_YOURS" : "",
             is_dead ? " NOT_FOUND" : "",
             job != NULL && (op->seq != job->n_pushed || job->state == CLOSED) ? " SEQ" : "",
             op->n_data != 1 || op->has_unknown_option ? " INVALID_PARAM" : "",
             op->n_data > 0 && (op->size % RECORD != 0 || (op->says_n && !op->is_n_right))
                 ? " RANGE"
                 : "",
             op->n_data > 0 && op->size > MAX_PUSH ? " TOO_BIG" : "",
             job != NULL && job->n_pushed >= job->window ? " NO_CREDIT" : "");
    if (is_dead && !op->has_unknown_option) { /* nothing else about it is looked at */
        snprintf(ret_errors, size, " NOT_FOUND");
    }
}

static bool is_one_of(const char *name, const char *names)
{
    char word[40];

    snprintf(word, sizeof(word), " %s", name);
    return strstr(names, word) != NULL;
}

static void check_error(const msgpack_object *response, const char *errors)
{
    struct wire_error error = wire_error(wire_find(response, "2"));

    if ((error.name[0] == '\0') != (errors[0] == '\0') ||
        (error.name[0] != '\0' && !is_one_of(error.name, errors))) {
        CHECK_FAIL("\"%s: %s\" instead of one of \"%s\"", error.name, error.message, errors);
    }
}

static void play_push(const struct op *op, struct model *job, const msgpack_object *response)
{
    char errors[128];

    judge_push(op, job, errors, sizeof(errors));
    if (response != NULL) {
        check_error(response, errors);
    }
    if (errors[0] == '\0') {
        job->pushes[job->n_pushed++] = op;
    } else if (op->kind == OP_NOTIFY && job != NULL && job->state < DONE) {
        job->state = FAILED;
        snprintf(job->refusals, sizeof(job->refusals), "%s", errors);
    }
}

static void play_close(struct model *job, const msgpack_object *response)
{
    if (job == NULL) {
        check_error(response, " NOT_FOUND NOT_YOURS");
    } else if (job->state >= DONE) {
        check_error(response, " NOT_FOUND");
    } else {
        check_error(response, "");
        CHECK_EQ(wire_number(response, "3.pushed"), job->n_pushed);
        job->state = job->n_pushed == 0 ? DONE : CLOSED;
    }
}

static void play_cancel(struct model *job, const msgpack_object *response)
{
    if (job == NULL) {
        check_error(response, " NOT_FOUND");
        return;
    }
    if (job->state >= DONE && wire_error(wire_find(response, "2")).name[0] != '\0') {
        check_error(response, " NOT_FOUND"); /* it has ended, and may be gone */
        return;
    }
    check_error(response, "");
    job->state = job->state < DONE ? CANCELLED : job->state;
    CHECK_STR(wire_text(response, "3.state"), state_names[job->state]);
}

/* The next answer is due to this, if it gets one. */
static void play(const struct op *op)
{
    struct model *job = op->job < N_JOBS ? &jobs[op->job] : NULL;
    const msgpack_object *response = op->kind == OP_NOTIFY ? NULL : wire_response(wire, op->msgid);

    switch (op->kind) {
    case OP_PUSH:
    case OP_NOTIFY:
        play_push(op, job, response);
        break;
    case OP_CLOSE:
        play_close(job, response);
        break;
    case OP_CANCEL:
        play_cancel(job, response);
        break;
    default:
        check_error(response, "");
    }
}

/* ---- random requests ------------------------------------------------------------------------ */

/* Mostly the next, by a guess at what will be accepted. */
static void make_push(struct op *op, unsigned *guesses)
{
    unsigned *guess = op->job < N_JOBS ? &guesses[op->job] : guesses;
    bool is_right = !one_in(4);

    op->n_data = 1;
    op->seq = *guess;
    op->size = RECORD * (size_t)(one_in(4) ? MAX_PUSH / RECORD : 1 + random_below(500));
    op->says_n = one_in(3);
    op->is_n_right = true;
    if (is_right) {
        *guess += op->job < N_JOBS;
    } else {
        switch (random_below(6)) {
        case 0:
            op->seq = one_in(3)   ? UINT64_C(1) << random_below(53)
                      : one_in(2) ? random_below(*guess + 1)
                                  : *guess + 1 + random_below(3);
            break;
        case 1:
            op->size += 1 + random_below(RECORD - 1);
            break;
        case 2:
            op->size = MAX_PUSH + RECORD * (1 + random_below(100));
            break;
        case 3:
            op->says_n = true;
            op->is_n_right = false;
            break;
        case 4:
            op->n_data = one_in(2) ? 0 : 2;
            break;
        default:
            op->has_unknown_option = true;
        }
    }
    op->bytes = bytes + random_below(sizeof(bytes) - op->size);
}

static void make_ops(void)
{
    unsigned guesses[N_JOBS] = {0};

    n_ops = 1 + (unsigned)random_below(OPS_MAX);
    for (unsigned i = 0; i < n_ops; i++) {
        unsigned die = (unsigned)random_below(20);
        struct op *op = &ops[i];

        *op = (struct op){.kind = die < 10   ? OP_PUSH
                                  : die < 14 ? OP_NOTIFY
                                  : die < 16 ? OP_CLOSE
                                  : die < 18 ? OP_CANCEL
                                             : OP_PING,
                          .job = one_in(8) ? N_JOBS : (unsigned)random_below(N_JOBS)};
        if (op->kind == OP_CLOSE || op->kind == OP_CANCEL) {
            op->job = one_in(3) ? op->job : N_JOBS; /* else few jobs would get far */
        }
        if (op->kind <= OP_NOTIFY) {
            make_push(op, guesses);
        }
    }
}

static void pack_push(struct op *op, uint64_t id, msgpack_sbuffer *buffer)
{
    const char *options = op->has_unknown_option ? "m" : "n";
    uint64_t n = op->size / RECORD + !op->is_n_right;
    bool has_options = op->says_n || op->has_unknown_option;
    char params[128];

    snprintf(params, sizeof(params), "[%%lu, %%lu, {%s%s%s}, [%s]]", has_options ? options : "",
             has_options ? ": " : "", has_options ? "%lu" : "",
             op->n_data == 0   ? ""
             : op->n_data == 1 ? "%b"
                               : "%b, <4>");
    if (op->kind == OP_NOTIFY && has_options) {
        wire_pack_notification(buffer, "job.push", params, id, op->seq, n, op->bytes, op->size);
    } else if (op->kind == OP_NOTIFY) {
        wire_pack_notification(buffer, "job.push", params, id, op->seq, op->bytes, op->size);
    } else if (has_options) {
        op->msgid =
            wire_pack(wire, buffer, "job.push", params, id, op->seq, n, op->bytes, op->size);
    } else {
        op->msgid = wire_pack(wire, buffer, "job.push", params, id, op->seq, op->bytes, op->size);
    }
}

static void pack_ops(msgpack_sbuffer *buffer)
{
    for (unsigned i = 0; i < n_ops; i++) {
        struct op *op = &ops[i];
        uint64_t stranger = op->kind != OP_CANCEL && one_in(2) ? foreign_job : unknown_job;
        uint64_t id = op->job < N_JOBS ? jobs[op->job].id : stranger;

        if (op->kind <= OP_NOTIFY) {
            pack_push(op, id, buffer);
        } else if (op->kind == OP_PING) {
            op->msgid = wire_pack(wire, buffer, "ping", "[]");
        } else {
            op->msgid = wire_pack(wire, buffer, op->kind == OP_CLOSE ? "job.close" : "job.cancel",
                                  "[%lu]", id);
        }
    }
}

/* ---- the answers of pushes ------------------------------------------------------------------ */

static struct model *find_job(const msgpack_object *params)
{
    for (unsigned i = 0; i < N_JOBS; i++) {
        if (jobs[i].id == (uint64_t)wire_number(params, "0")) {
            return &jobs[i];
        }
    }
    CHECK_FAIL("a notification about a job that is not ours");
}

static void take_result(const msgpack_object *params)
{
    struct model *job = find_job(params);
    uint64_t seq = (uint64_t)wire_number(params, "1");
    const msgpack_object *error = wire_find(params, "2.error");
    const struct op *push;

    CHECK(!job->is_done_seen && !job->is_refusal_seen);
    CHECK_LE(seq, job->n_pushed);
    CHECK(!job->has_result[seq]);
    CHECK(!job->is_ordered || seq == job->n_results);
    job->has_result[seq] = true;
    job->n_results++;
    if (seq == job->n_pushed) {
        CHECK(job->refusals[0] != '\0' && error != NULL);
        CHECK(is_one_of(wire_error(error).name, job->refusals));
        snprintf(job->error, sizeof(job->error), "%s", wire_error(error).name);
        job->is_refusal_seen = true;
        return;
    }
    push = job->pushes[seq];
    CHECK((error == NULL) != (wire_find(params, "2.out") == NULL));
    CHECK_EQ(error != NULL, job->state == CANCELLED);
    if (error != NULL) {
        CHECK_STR(wire_error(error).name, "CANCELLED");
    } else {
        CHECK_EQ(wire_number(params, "2.n"), push->size / RECORD);
        CHECK_MEM(wire_output(wire_find(params, "2"), push->size), push->bytes, push->size);
    }
}

static void take_done(const msgpack_object *params)
{
    struct model *job = find_job(params);
    const msgpack_object *error = wire_find(params, "1.error");

    CHECK(!job->is_done_seen);
    job->is_done_seen = true;
    job->state = job->state == CLOSED ? DONE : job->state;
    CHECK_STR(wire_text(params, "1.state"), state_names[job->state]);
    CHECK_EQ(job->n_results, job->n_pushed + (job->state == FAILED));
    CHECK_EQ(wire_number(params, "1.pushes"), job->n_results);
    CHECK_EQ(job->is_refusal_seen, job->state == FAILED);
    CHECK_EQ(error != NULL, job->state == FAILED);
    if (error != NULL) {
        CHECK_STR(wire_error(error).name, job->error);
    }
}

/* Everything that is still to come, up to each job's end. */
static void take_all(void)
{
    uint32_t last;
    const msgpack_object *message;

    for (unsigned i = 0; i < N_JOBS; i++) {
        if (jobs[i].state == OPEN) {
            play_close(&jobs[i],
                       wire_response(wire, wire_send(wire, "job.close", "[%lu]", jobs[i].id)));
        }
    }
    while (!jobs[0].is_done_seen || !jobs[1].is_done_seen || !jobs[2].is_done_seen) {
        message = wire_receive(wire);
        CHECK(message != NULL && wire_number(message, "0") == 2);
        if (strcmp(wire_text(message, "1"), "job.result") == 0) {
            take_result(wire_find(message, "2"));
        } else {
            CHECK_STR(wire_text(message, "1"), "job.done");
            take_done(wire_find(message, "2"));
        }
    }
    last = wire_send(wire, "ping", "[]");
    wire_result(wire, last);
    CHECK_EQ(wire_held(wire), 0);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void open_jobs(void)
{
    for (unsigned i = 0; i < N_JOBS; i++) {
        unsigned window = 1 + (unsigned)random_below(6);
        bool is_ordered = one_in(2);
        const msgpack_object *opened =
            wire_call(wire, "job.open",
                      is_ordered ? "['copy', {size: 4}, {window: %d, max_push: 65536}]"
                                 : "['copy', {size: 4}, {window: %d, max_push: 65536, "
                                   "ordered: false}]",
                      (int)window);

        jobs[i] = (struct model){
            .id = (uint64_t)wire_number(opened, "job"), .window = window, .is_ordered = is_ordered};
        CHECK_EQ(wire_number(opened, "credit"), window);
        CHECK_EQ(wire_number(opened, "max_push"), MAX_PUSH);
        for (unsigned k = 0; k < i; k++) {
            CHECK_NE(jobs[k].id, jobs[i].id);
        }
    }
}

static void send_in_pieces(const msgpack_sbuffer *buffer, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t n = one_in(3) ? size - at : 1 + random_below(100000);

        n = n < size - at ? n : size - at;
        CHECK(wire_send_bytes(wire, buffer->data + at, n));
        at += n;
    }
}

static void play_round(struct harness *daemon, pid_t worker)
{
    bool leaves_early = one_in(5);
    msgpack_sbuffer buffer;

    wire = wire_connect(harness_socket(daemon));
    open_jobs();
    make_ops();
    msgpack_sbuffer_init(&buffer);
    pack_ops(&buffer);
    harness_pause(worker);
    send_in_pieces(&buffer, leaves_early ? random_below(buffer.size) : buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    if (leaves_early) {
        shutdown(wire_fd(wire), SHUT_WR);
        wire_eof(wire);
        kill(worker, SIGCONT);
    } else {
        for (unsigned i = 0; i < n_ops; i++) {
            play(&ops[i]);
        }
        kill(worker, SIGCONT);
        take_all();
    }
    wire_close(wire);
}

static void test_any_sequence_of_requests(void)
{
    const char *wanted = getenv("GPUPIPE_STATE_ROUNDS");
    unsigned n_rounds = wanted != NULL ? (unsigned)atoi(wanted) : 100;
    struct harness *daemon = harness_start();
    pid_t worker = harness_await_worker(daemon, 0);

    other = wire_connect(harness_socket(daemon));
    foreign_job = (uint64_t)wire_number(wire_call(other, "job.open", "['copy']"), "job");
    unknown_job = foreign_job + (UINT64_C(1) << 40);
    random_bytes(bytes, sizeof(bytes));
    harness_deadline(HARNESS_DEADLINE_S + n_rounds);
    for (unsigned i = 0; i < n_rounds; i++) {
        unsigned n_undo = check_n_undo;

        play_round(daemon, worker);
        while (check_n_undo > n_undo) {
            check_n_undo--;
            check_undo[check_n_undo].undo(check_undo[check_n_undo].arg);
        }
    }
    wire_call(other, "job.cancel", "[%lu]", foreign_job);
    HARNESS_WAIT(wire_number(wire_call(other, "stats", "[]"), "jobs") == 0);
    HARNESS_WAIT(wire_number(wire_call(other, "stats", "[]"), "pool_used") == 0);
    CHECK_EQ(wire_held(other), 1); /* its job.done: nobody's pushes reached it */
    wire_check_works(other);
}

CHECK_MAIN(CHECK_TEST(test_any_sequence_of_requests))
