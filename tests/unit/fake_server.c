/*
 * The daemon's side of the protocol, as a script says.
 *
 * Exit codes: 0, or the line number where the client broke a rule (modulo 200, never 0).
 */
#include "tests/unit/fake_server.h"

#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/reader.h"
#include "proto/util.h"
#include "tests/unit/fake_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define JOB 41

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# fake server, line %d: not true: %s\n", __LINE__, #condition);       \
            _exit(1 + __LINE__ % 200);                                                             \
        }                                                                                          \
    } while (0)

struct held {
    uint64_t seq;
    uint32_t msgid;
    uint64_t n;
    uint8_t *bytes;
    uint64_t size;
};

struct server {
    const struct fake_script *script;
    int fd;
    msgpack_sbuffer out;
    msgpack_packer packer;
    uint8_t *payloads[LIMIT_IN];
    uint64_t sizes[LIMIT_IN];
    struct held held[LIMIT_WINDOW];
    uint32_t n_held;
    uint32_t n_busy;
    uint64_t n_pushed, n_done, n_records;
    uint8_t fold;
    uint64_t const_id;
    bool is_closed, is_over, owes_done, has_refused;
    struct fake_rings *rings;
    uint32_t n_busy_rings;
    bool is_in_rings; /* the job's data lie there */
};

/* ---- sending ------------------------------------------------------------------------------- */

static void send_bytes(struct server *server, const void *bytes, size_t size)
{
    size_t sent = 0;

    while (sent < size) {
        ssize_t n = send(server->fd, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = server->fd, .events = POLLOUT};

            poll(&poll_fd, 1, -1);
        } else if (n < 0) {
            /* The client has gone, as some tests want it to. */
            _exit(0);
        } else {
            sent += (size_t)n;
        }
    }
}

static void flush(struct server *server)
{
    send_bytes(server, server->out.data, server->out.size);
    msgpack_sbuffer_clear(&server->out);
}

static void send_bin(struct server *server, const void *bytes, uint64_t size)
{
    uint8_t header[RPC_BIN_HEADER_MAX];

    send_bytes(server, header, rpc_bin_header(size, header));
    send_bytes(server, bytes, size);
}

static void send_error(struct server *server, uint32_t msgid, enum status status)
{
    struct failure failure;

    fail(&failure, status, "field", "the script says so");
    failure.retry_ms = status == STATUS_BUSY ? 1 : 0;
    rpc_pack_error(&server->packer, msgid, &failure, true);
    flush(server);
}

static void send_done(struct server *server, enum job_state state, enum status status)
{
    struct msg_job_done done = {
        .job = JOB,
        .state = state,
        .pushes = server->n_done,
        .n = server->n_records,
        .has_failure = status != STATUS_OK,
        .n_out = server->script->is_reduce && status == STATUS_OK ? 1 : 0,
    };
    uint8_t result[64] = {server->fold};

    if (status != STATUS_OK) {
        fail(&done.failure, status, NULL, "the script says so");
    }
    codec_pack_job_done(&server->packer, &done, true);
    flush(server);
    if (done.n_out > 0) {
        send_bin(server, result, server->script->record_size);
    }
    server->is_over = true;
}

/* ---- pushes -------------------------------------------------------------------------------- */

static void send_result(struct server *server, const struct held *held)
{
    const struct fake_script *script = server->script;
    bool has_failed = (int64_t)held->seq == script->fail_seq;
    struct msg_answer answer = {
        .job = JOB,
        .seq = held->seq,
        .n = held->n,
        .credit = 1,
        .by = {.backend = "cpu", .device = "cpu0", .priority = PRIORITY_NORMAL, .path = "inline"},
        .has_failure = has_failed,
        .n_out = script->is_reduce || has_failed ? 0 : 1,
    };
    uint64_t size = held->size;

    if (has_failed) {
        fail(&answer.failure, STATUS_KERNEL_FAULT, NULL, "the script says so");
    }
    answer.by.has_timing = true;
    answer.by.timing = (struct msg_timing){1, 2, 3, 4};
    codec_pack_job_result(&server->packer, &answer, true);
    flush(server);
    for (uint64_t i = 0; i < held->size; i++) {
        server->fold ^= held->bytes[i];
        held->bytes[i] ^= FAKE_XOR;
    }
    if ((int64_t)held->seq == script->oversize_seq) {
        size += script->record_size;
    }
    if ((int64_t)held->seq == script->die_within_seq) {
        uint8_t header[RPC_BIN_HEADER_MAX];

        send_bytes(server, header, rpc_bin_header(size, header));
        send_bytes(server, held->bytes, size / 2);
        _exit(0);
    }
    if (answer.n_out > 0) {
        send_bin(server, held->bytes, size);
    }
    server->n_done++;
    server->n_records += held->n;
    if (has_failed) {
        send_done(server, JOB_FAILED, STATUS_KERNEL_FAULT);
    }
}

static void send_accepted(struct server *server, const struct held *held)
{
    codec_pack_empty_result(&server->packer, held->msgid);
    flush(server);
}

static void answer_held(struct server *server)
{
    while (server->n_held > 0) {
        struct held *held = &server->held[--server->n_held];

        if (server->script->is_result_first) {
            send_result(server, held);
            send_accepted(server, held);
        } else {
            send_result(server, held);
        }
        free(held->bytes);
    }
}

static void on_push(struct server *server, uint32_t msgid, const struct msg_job_push *push)
{
    const struct fake_script *script = server->script;
    uint32_t batch = MAX(script->batch, 1u);
    struct held *held = &server->held[server->n_held];

    if (server->is_over) {
        send_error(server, msgid, STATUS_NOT_FOUND);
        return;
    }
    MUST(push->job == JOB);
    if (server->has_refused && push->seq != server->n_pushed) {
        send_error(server, msgid, STATUS_SEQ);
        return;
    }
    MUST(push->seq == server->n_pushed);
    MUST(push->n_data == MAX(script->n_in, 1u));
    MUST(server->n_held < script->credit);
    MUST(push->has_n && push->n == div_round_up(server->sizes[0], script->record_size));
    if ((int64_t)push->seq == script->die_seq) {
        _exit(0);
    }
    if ((int64_t)push->seq == script->refuse_seq && !server->has_refused) {
        server->has_refused = true;
        send_error(server, msgid, STATUS_RANGE);
        return;
    }
    server->n_pushed++;
    server->n_held++;
    /* One record of room, for a result that is too large. */
    held->bytes = calloc(1, server->sizes[0] + script->record_size);
    memcpy(held->bytes, server->payloads[0], server->sizes[0]);
    held->size = server->sizes[0];
    held->seq = push->seq;
    held->msgid = msgid;
    held->n = push->n;
    if (!script->is_result_first) {
        send_accepted(server, held);
    }
    if (server->n_held == batch) {
        answer_held(server);
    }
}

/* ---- other requests ------------------------------------------------------------------------ */

static void on_hello(struct server *server, uint32_t msgid)
{
    struct msg_hello_result hello = {
        .version = "9.9.9",
        .api_level = server->script->is_too_new ? API_LEVEL + 7 : API_LEVEL,
        .api_compatible = server->script->is_too_new ? API_LEVEL + 5 : API_COMPATIBLE,
        .epoch = 1234567,
        .rights = "user",
        .backend = "cpu",
    };

    if (server->script->is_nonsense) {
        send_bytes(server, "\xdd\xff\xff\xff\xff", 5);
        return;
    }
    codec_pack_hello_result(&server->packer, msgid, &hello);
    flush(server);
}

static void on_open(struct server *server, uint32_t msgid, const struct msg_job_open *open)
{
    const struct fake_script *script = server->script;
    struct msg_job_opened opened = {
        .job = JOB,
        .credit = script->credit,
        .max_push = script->max_push,
        .push_multiple = 1,
        .n_in = MAX(script->n_in, 1u),
        .n_out = 1,
        .out_size = {script->record_size},
    };

    if (server->n_busy < script->n_busy) {
        server->n_busy++;
        send_error(server, msgid, STATUS_BUSY);
        return;
    }
    for (uint32_t i = 0; i < opened.n_in; i++) {
        opened.in_size[i] = script->record_size;
    }
    if (server->is_over) {
        server->is_over = false;
        server->n_pushed = server->n_done = server->n_records = 0;
        server->fold = 0;
    }
    server->is_in_rings = open->options.is_in_rings;
    MUST(!server->is_in_rings || open->options.tail != TAIL_ZERO);
    codec_pack_job_opened(&server->packer, msgid, &opened);
    flush(server);
}

static void on_ring_open(struct server *server, uint32_t msgid, const struct msg_ring_open *open);

/* The client has not asked yet, and finds the answer and the connection's end together. */
static void answer_ahead_and_die(struct server *server, uint32_t msgid)
{
    const struct msg_ring_open ring_open = {.size = 1 << 20};
    const struct msg_job_open job_open = {0};

    if (server->script->opens_job_and_dies) {
        on_open(server, msgid, &job_open);
    } else if (server->script->opens_ring_and_dies) {
        on_ring_open(server, msgid, &ring_open);
    } else {
        return;
    }
    _exit(0);
}

static void on_close(struct server *server, uint32_t msgid)
{
    struct msg_job_closed closed = {.pushed = server->n_pushed};

    MUST(!server->is_in_rings || fake_rings_are_idle(server->rings));
    if (server->is_over) {
        send_error(server, msgid, STATUS_NOT_FOUND);
        if (server->owes_done) {
            server->owes_done = false;
            send_done(server, JOB_FAILED, STATUS_RING);
        }
        return;
    }
    codec_pack_job_closed(&server->packer, msgid, &closed);
    flush(server);
    answer_held(server);
    if (!server->is_over) {
        send_done(server, JOB_DONE, STATUS_OK);
    }
    answer_ahead_and_die(server, msgid + 1);
}

static void on_cancel(struct server *server, uint32_t msgid)
{
    struct msg_job_state state = {.state = JOB_CANCELLED};

    codec_pack_job_state(&server->packer, msgid, &state);
    flush(server);
    answer_held(server);
    send_done(server, JOB_CANCELLED, STATUS_CANCELLED);
}

static void on_list(struct server *server, uint32_t msgid)
{
    static const struct msg_job_entry entry = {
        .job = JOB, .op = "fake", .state = JOB_CLOSED, .pushed = 5, .done = 3};

    codec_pack_job_list_result(&server->packer, msgid, &entry, 1);
    flush(server);
}

/* ---- rings ------------------------------------------------------------------------------------
 */

static void on_ring_open(struct server *server, uint32_t msgid, const struct msg_ring_open *open)
{
    struct msg_ring_opened opened;
    int fds[3];

    if (server->script->has_no_rings || server->n_busy_rings < server->script->n_busy_rings) {
        server->n_busy_rings++;
        send_error(server, msgid,
                   server->script->has_no_rings ? STATUS_UNKNOWN_METHOD : STATUS_BUSY);
        return;
    }
    fake_rings_open(server->rings, open->size, &opened, fds);
    codec_pack_ring_opened(&server->packer, msgid, &opened);
    const struct iovec iov = {server->out.data, server->out.size};
    MUST(channel_send_fds(server->fd, &iov, 1, fds, ARRAY_SIZE(fds)) == (ssize_t)iov.iov_len);
    msgpack_sbuffer_clear(&server->out);
    close(fds[1]);
    close(fds[2]);
}

static void on_ring_close(struct server *server, uint32_t msgid, const struct msg_ring *msg)
{
    if (fake_rings_close(server->rings, msg->ring, false)) {
        codec_pack_empty_result(&server->packer, msgid);
        flush(server);
    } else {
        send_error(server, msgid, STATUS_NOT_FOUND);
    }
}

static enum fake_fate on_taken(void *owner, const struct ring_desc *desc)
{
    struct server *server = owner;
    int64_t seq = (int64_t)server->n_pushed;

    MUST(desc->job == JOB && desc->deadline_ns == 0);
    MUST(desc->flags ==
         (seq == server->script->break_seq && server->script->is_done_late ? RING_LAST : 0));
    MUST(server->is_in_rings);
    if (server->is_over) {
        return FAKE_REFUSED;
    }
    if (seq == server->script->die_seq) {
        if (server->script->empties_ring) {
            fake_rings_clear(server->rings);
        }
        _exit(0);
    }
    if (seq == server->script->refuse_seq && !server->has_refused) {
        server->has_refused = true;
        return FAKE_REFUSED;
    }
    server->n_pushed++;
    return seq == server->script->break_seq  ? FAKE_BREAKS
           : seq == server->script->fail_seq ? FAKE_FAILED
                                             : FAKE_DONE;
}

static void on_ring_done(void *owner, const struct ring_desc *desc, const uint8_t *in,
                         uint64_t size)
{
    struct server *server = owner;

    for (uint64_t i = 0; i < size; i++) {
        server->fold ^= in[i];
    }
    server->n_done++;
    server->n_records += desc->n_records;
}

static void on_ring_failed(void *owner)
{
    send_done(owner, JOB_FAILED, STATUS_KERNEL_FAULT);
}

static void on_ring_broken(void *owner, uint64_t ring)
{
    struct server *server = owner;
    struct msg_ring_closed closed = {.ring = ring};

    fail(&closed.failure, STATUS_RING, NULL, "the script breaks it");
    codec_pack_ring_closed(&server->packer, &closed, true);
    flush(server);
    if (server->script->is_done_late) {
        server->owes_done = server->is_over = true;
        return;
    }
    send_done(server, JOB_FAILED, STATUS_RING);
}

static void on_op_list(struct server *server, uint32_t msgid, const struct msg_op_list *list)
{
    struct manifest_op op = {
        .kind = server->script->is_reduce ? OP_REDUCE : OP_MAP,
        .leaf = server->script->is_reduce ? 1 : 0,
        .partial_size = server->script->is_reduce ? 8 : 0,
        .name = "fake",
        .doc = "says \"\\\"",
        .n_in = 1,
        .n_out = 1,
        .in = {{.name = "x", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.fixed = 4}}}},
        .out = {{.name = "y", .dtype = DTYPE_F32}},
        .min_parallel = 1,
        .tails = TAIL_BIT(TAIL_ZERO),
        .tolerance = 0.1,
    };
    const struct manifest_op *const ops[] = {&op, &op};

    if (strcmp(list->name, "none") == 0) {
        send_error(server, msgid, STATUS_UNKNOWN_OP);
        return;
    }
    codec_pack_op_list_result(&server->packer, msgid, ops, list->name[0] == '\0' ? 2 : 1, "cpu");
    flush(server);
}

static void on_run(struct server *server, uint32_t msgid, const struct msg_run *run)
{
    const struct fake_script *script = server->script;
    uint64_t size = server->sizes[0] + (script->oversize_seq == 0 ? script->record_size : 0);
    struct msg_answer answer = {
        .n = server->sizes[0] / script->record_size,
        .by = {.backend = "cpu", .device = "cpu0", .priority = PRIORITY_URGENT, .path = "inline"},
        .n_out = 1,
    };

    MUST(run->n_data == MAX(script->n_in, 1u));
    if (script->refuse_seq == 0) {
        send_error(server, msgid, STATUS_RANGE);
        return;
    }
    if (script->die_seq == 0) {
        _exit(0);
    }
    MUST(run->options.n_consts <= 1);
    MUST(run->options.n_consts == 0 || run->options.consts[0] == server->const_id);
    MUST(strcmp(run->op.name, "fake") == 0 && run->options.priority == PRIORITY_URGENT);
    server->payloads[0] = realloc(server->payloads[0], size);
    for (uint64_t i = 0; i < server->sizes[0]; i++) {
        server->payloads[0][i] ^= FAKE_XOR;
    }
    codec_pack_run_result(&server->packer, msgid, &answer);
    flush(server);
    send_bin(server, server->payloads[0], size);
}

static void on_const_put(struct server *server, uint32_t msgid)
{
    struct msg_const_put_result put = {.id = 0};

    for (uint64_t i = 0; i < server->sizes[0]; i++) {
        put.id = (put.id * FAKE_CONST + server->payloads[0][i]) % FAKE_CONST_IDS;
    }
    server->const_id = put.id;
    snprintf(put.sha256, sizeof(put.sha256), "%064llx", (unsigned long long)put.id);
    codec_pack_const_put_result(&server->packer, msgid, &put);
    flush(server);
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct server *server = owner;
    struct rpc_message message;
    struct msg_job_push push;
    struct msg_ring_open ring_open;
    struct msg_job_open open;
    struct msg_op_list list;
    struct msg_ring ring;
    struct msg_const dropped;
    struct msg_run run;
    struct failure failure;

    (void)guard;
    MUST(rpc_parse(head, size, &message, &failure) == 0);
    MUST(message.type == RPC_REQUEST);
    switch (message.method) {
    case METHOD_HELLO:
        on_hello(server, message.msgid);
        break;
    case METHOD_PING:
        codec_pack_nil_result(&server->packer, message.msgid);
        flush(server);
        break;
    case METHOD_OP_LIST:
        MUST(codec_unpack_op_list(&message.params, &list, &failure) == 0);
        on_op_list(server, message.msgid, &list);
        break;
    case METHOD_CONST_PUT:
        on_const_put(server, message.msgid);
        break;
    case METHOD_CONST_DROP:
        MUST(codec_unpack_const_drop(&message.params, &dropped, &failure) == 0);
        MUST(dropped.id == server->const_id);
        codec_pack_empty_result(&server->packer, message.msgid);
        flush(server);
        break;
    case METHOD_RUN:
        MUST(codec_unpack_run(&message.params, &run, &failure) == 0);
        on_run(server, message.msgid, &run);
        break;
    case METHOD_JOB_LIST:
        on_list(server, message.msgid);
        break;
    case METHOD_JOB_OPEN:
        MUST(codec_unpack_job_open(&message.params, &open, &failure) == 0);
        on_open(server, message.msgid, &open);
        break;
    case METHOD_JOB_PUSH:
        MUST(codec_unpack_job_push(&message.params, &push, &failure) == 0);
        on_push(server, message.msgid, &push);
        break;
    case METHOD_RING_OPEN:
        MUST(codec_unpack_ring_open(&message.params, &ring_open, &failure) == 0);
        on_ring_open(server, message.msgid, &ring_open);
        break;
    case METHOD_RING_CLOSE:
        MUST(codec_unpack_ring_close(&message.params, &ring, &failure) == 0);
        on_ring_close(server, message.msgid, &ring);
        break;
    case METHOD_JOB_CLOSE:
        on_close(server, message.msgid);
        break;
    case METHOD_JOB_CANCEL:
        on_cancel(server, message.msgid);
        break;
    default:
        send_error(server, message.msgid, STATUS_UNKNOWN_METHOD);
    }
    rpc_finish(&message);
    return 0;
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    struct server *server = owner;
    uint32_t i = guard->payload_index;

    (void)prefix;
    (void)size;
    MUST(i < LIMIT_IN && guard->payload_size <= server->script->max_push);
    server->payloads[i] = realloc(server->payloads[i], guard->payload_size + 1);
    server->sizes[i] = guard->payload_size;
    ret_sink->n_pieces = 1;
    ret_sink->pieces[0] =
        (struct iovec){.iov_base = server->payloads[i], .iov_len = guard->payload_size};
    return 0;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    (void)owner;
    (void)guard;
    fprintf(stderr, "# fake server: %s\n", failure->message);
    MUST(!"the client broke the protocol");
}

static void serve(const struct fake_script *script, int fd)
{
    static const struct reader_callbacks callbacks = {
        .on_payload = on_payload,
        .on_message = on_message,
        .on_broken = on_broken,
    };
    struct server server = {.script = script, .fd = fd};
    const struct fake_rings_owner owner = {
        .owner = &server,
        .on_taken = on_taken,
        .on_done = on_ring_done,
        .on_failed = on_ring_failed,
        .on_broken = on_ring_broken,
    };
    struct reader *reader;
    int outcome;

    msgpack_sbuffer_init(&server.out);
    msgpack_packer_init(&server.packer, &server.out, msgpack_sbuffer_write);
    MUST(reader_create(&reader, GUARD_SERVER, &callbacks, &server) == 0);
    fake_rings_create(script, &owner, &server.rings);
    do {
        struct pollfd poll_fds[1 + FAKE_RINGS] = {{.fd = fd, .events = POLLIN}};
        uint32_t n_rings = fake_rings_poll(server.rings, poll_fds + 1);

        poll(poll_fds, 1 + n_rings, -1);
        outcome = reader_read(reader, fd, 1 << 18);
        /* Last, so that all rings sleep when it waits; also one that was just opened. */
        fake_rings_serve(server.rings);
    } while (outcome == READER_IDLE || outcome == READER_BUDGET);
    MUST(outcome == READER_EOF || outcome == -ECONNRESET);
}

/* ---- for tests ----------------------------------------------------------------------------- */

pid_t fake_server_start(const struct fake_script *script, int *ret_fd)
{
    int fds[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
        abort();
    }
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        abort();
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        serve(script, fds[1]);
        _exit(0);
    }
    close(fds[1]);
    *ret_fd = fds[0];
    return pid;
}

int fake_server_end(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
