/*
 * Fuzz target: the streaming state machine.  The whole front end runs in a thread of its own, with
 * a worker that is played (fake_link.h); the input is what one client does, and when the worker
 * does how much of it.  Whatever that is: each request gets one response, each push of a job at
 * most one result, in order where the job is, with its own bytes; each job one end, and nothing
 * after it; and in the end the daemon holds nothing.
 *
 * tests/integration/test_state_machine.c has a model that knows each answer beforehand.
 *
 * Input: one operation after the other, a byte that says which and then what it needs.
 */
#include "daemon/awake.h"
#include "daemon/config.h"
#include "daemon/server.h"
#include "proto/util.h"
#include "tests/fuzz/fake_link.h"

#include <msgpack.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { N_JOBS = 6, SEQS_MAX = 256, REQUESTS_MAX = 1024, PATIENCE_MS = 60000 };
enum { INPUT_MAX = 900 }; /* bytes, so that no input makes more requests than that */

struct play_job {
    uint64_t id;
    bool is_ordered, is_sum, is_done, is_ended;
    uint32_t next_seq, n_results;
    bool has_result[SEQS_MAX];
};

enum request_state { REQUEST_NONE, REQUEST_SENT, REQUEST_ANSWERED };

struct client {
    int fd;
    msgpack_unpacker answers;
    msgpack_sbuffer unsent;
    msgpack_packer packer;
    uint32_t n_requests, n_answered;
    enum request_state requests[REQUESTS_MAX];
    bool has_error; /* the response that came last */
    msgpack_unpacked last;
    struct play_job jobs[N_JOBS];
    uint32_t n_jobs;
    uint64_t const_id; /* of the last */
};

struct input {
    const uint8_t *bytes;
    size_t n_left;
};

static struct client player, watcher;
static char socket_path[64];

static uint8_t next_byte(struct input *input)
{
    if (input->n_left == 0) {
        return 0;
    }
    input->n_left--;
    return *input->bytes++;
}

/* ---- what comes ----------------------------------------------------------------------------- */

static bool is_text(const msgpack_object *object, const char *text)
{
    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
           memcmp(object->via.str.ptr, text, strlen(text)) == 0;
}

/* NULL: there is no such key. */
static const msgpack_object *find(const msgpack_object *map, const char *key)
{
    MUST(map->type == MSGPACK_OBJECT_MAP);
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        if (is_text(&map->via.map.ptr[i].key, key)) {
            return &map->via.map.ptr[i].val;
        }
    }
    return NULL;
}

static uint64_t number(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = find(map, key);

    MUST(value != NULL && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER);
    return value->via.u64;
}

static void take_response(struct client *client, const msgpack_object_array *message)
{
    uint64_t msgid = message->ptr[1].via.u64;

    MUST(message->size == 4 && msgid < client->n_requests);
    MUST(client->requests[msgid] == REQUEST_SENT);
    client->requests[msgid] = REQUEST_ANSWERED;
    client->n_answered++;
    client->has_error = message->ptr[2].type != MSGPACK_OBJECT_NIL;
}

static struct play_job *job_of(struct client *client, const msgpack_object_array *params)
{
    for (uint32_t i = 0; i < client->n_jobs; i++) {
        if (client->jobs[i].id == params->ptr[0].via.u64) {
            return &client->jobs[i];
        }
    }
    abort(); /* about a job that is not ours */
}

/* The bytes of each push are its own. */
static uint8_t fill_of(const struct client *client, const struct play_job *job, uint64_t seq)
{
    return (uint8_t)(1 + (uint64_t)(job - client->jobs) * 41 + seq * 7);
}

static void check_output(const msgpack_object *result, uint8_t fill)
{
    const msgpack_object *out = find(result, "out");

    MUST(out != NULL && out->via.array.size == 1);
    MUST(out->via.array.ptr[0].via.bin.size == number(result, "n") * FAKE_RECORD);
    for (uint32_t i = 0; i < out->via.array.ptr[0].via.bin.size; i++) {
        MUST((uint8_t)out->via.array.ptr[0].via.bin.ptr[i] == fill);
    }
}

static void take_result(struct client *client, const msgpack_object_array *params)
{
    struct play_job *job = job_of(client, params);
    uint64_t seq = params->ptr[1].via.u64;

    MUST(!job->is_done && seq < SEQS_MAX && !job->has_result[seq]);
    MUST(!job->is_ordered || seq == job->n_results);
    job->has_result[seq] = true;
    job->n_results++;
    if (find(&params->ptr[2], "error") == NULL && !job->is_sum) {
        check_output(&params->ptr[2], fill_of(client, job, seq));
    }
}

static void take_done(struct client *client, const msgpack_object_array *params)
{
    struct play_job *job = job_of(client, params);

    MUST(!job->is_done);
    job->is_done = true;
    MUST(number(&params->ptr[1], "pushes") == job->n_results);
}

static void take_message(struct client *client, const msgpack_object *message)
{
    const msgpack_object_array *array = &message->via.array;

    MUST(message->type == MSGPACK_OBJECT_ARRAY && array->size >= 3);
    if (array->ptr[0].via.u64 == 1) {
        take_response(client, array);
    } else if (is_text(&array->ptr[1], "job.result")) {
        take_result(client, &array->ptr[2].via.array);
    } else {
        MUST(is_text(&array->ptr[1], "job.done"));
        take_done(client, &array->ptr[2].via.array);
    }
}

/* The next message; false if there is none now. */
static bool take_next(struct client *client)
{
    if (msgpack_unpacker_next(&client->answers, &client->last) != MSGPACK_UNPACK_SUCCESS) {
        return false;
    }
    take_message(client, &client->last.data);
    return true;
}

/* Bytes, as far as there are some; false at the end of the connection. */
static bool receive(struct client *client)
{
    ssize_t n;

    MUST(msgpack_unpacker_reserve_buffer(&client->answers, 65536));
    n = recv(client->fd, msgpack_unpacker_buffer(&client->answers), 65536, MSG_DONTWAIT);
    if (n > 0) {
        msgpack_unpacker_buffer_consumed(&client->answers, (size_t)n);
    }
    return n > 0 || (n < 0 && errno == EAGAIN);
}

static void await(struct client *client, short events)
{
    struct pollfd poll_fd = {.fd = client->fd, .events = events};

    MUST(poll(&poll_fd, 1, PATIENCE_MS) > 0); /* or nothing comes any more */
    if (poll_fd.revents & POLLIN) {
        MUST(receive(client)); /* no operation is so bad that it ends the connection */
    }
}

/* ---- what is sent --------------------------------------------------------------------------- */

/* All but the last n_kept bytes. */
static void flush(struct client *client, size_t n_kept)
{
    size_t size = client->unsent.size - MIN(n_kept, client->unsent.size), at = 0;

    while (at < size) {
        ssize_t n =
            send(client->fd, client->unsent.data + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n > 0) {
            at += (size_t)n;
        } else {
            MUST(errno == EAGAIN);
            await(client, POLLIN | POLLOUT);
        }
    }
    if (size > 0) {
        memmove(client->unsent.data, client->unsent.data + size, client->unsent.size - size);
        client->unsent.size -= size;
    }
}

static void pack_text(struct client *client, const char *text)
{
    msgpack_pack_str(&client->packer, strlen(text));
    msgpack_pack_str_body(&client->packer, text, strlen(text));
}

/* Its parameters follow.  Returns its msgid. */
static uint32_t begin(struct client *client, const char *method, uint32_t n_params)
{
    MUST(client->n_requests < REQUESTS_MAX);
    client->requests[client->n_requests] = REQUEST_SENT;
    msgpack_pack_array(&client->packer, 4);
    msgpack_pack_int(&client->packer, 0);
    msgpack_pack_uint32(&client->packer, client->n_requests);
    pack_text(client, method);
    msgpack_pack_array(&client->packer, n_params);
    return client->n_requests++;
}

static void pack_payload(struct client *client, uint8_t fill, uint32_t size)
{
    static uint8_t bytes[1 << 17];

    memset(bytes, fill, size);
    msgpack_pack_array(&client->packer, 1);
    msgpack_pack_bin(&client->packer, size);
    msgpack_pack_bin_body(&client->packer, bytes, size);
}

/* The response to this, which comes whatever the worker does: its result, or NULL for an error. */
static const msgpack_object *await_result(struct client *client, uint32_t msgid)
{
    flush(client, 0);
    while (client->requests[msgid] != REQUEST_ANSWERED) {
        if (!take_next(client)) {
            await(client, POLLIN);
        }
    }
    return client->has_error ? NULL : &client->last.data.via.array.ptr[3];
}

static void connect_client(struct client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memset(client, 0, sizeof(*client));
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, socket_path);
    MUST(connect(client->fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    MUST(msgpack_unpacker_init(&client->answers, 65536));
    msgpack_unpacked_init(&client->last);
    msgpack_sbuffer_init(&client->unsent);
    msgpack_packer_init(&client->packer, &client->unsent, msgpack_sbuffer_write);
}

static void close_client(struct client *client)
{
    close(client->fd);
    msgpack_unpacked_destroy(&client->last);
    msgpack_unpacker_destroy(&client->answers);
    msgpack_sbuffer_destroy(&client->unsent);
}

/* ---- operations ----------------------------------------------------------------------------- */

static const uint32_t sizes[] = {4, 4000, 65536, 40000, 0, 6, 65540, 131072};

/* A job's place; n_jobs: none of ours. */
static uint32_t choose_job(struct client *client, uint8_t byte)
{
    return byte > 240 || client->n_jobs == 0 ? client->n_jobs : byte % client->n_jobs;
}

static uint64_t job_id(const struct client *client, uint32_t i)
{
    return i < client->n_jobs ? client->jobs[i].id : UINT64_C(1) << 50;
}

static void push(struct client *client, struct input *input)
{
    uint8_t which = next_byte(input), how = next_byte(input);
    uint32_t i = choose_job(client, which);
    struct play_job *job = &client->jobs[MIN(i, N_JOBS - 1u)];
    bool is_request = how & 1, is_wrong = (how & 14) == 14;
    uint32_t size = sizes[how >> 4 < 8 ? 0 : (how >> 4) & 7];
    uint64_t seq = is_wrong ? next_byte(input) : job->next_seq;

    if (client->n_jobs == 0 || (!is_wrong && seq == SEQS_MAX - 1)) {
        return;
    }
    job->next_seq += !is_wrong && size % FAKE_RECORD == 0;
    if (is_request) {
        begin(client, "job.push", 4);
    } else {
        msgpack_pack_array(&client->packer, 3);
        msgpack_pack_int(&client->packer, 2);
        pack_text(client, "job.push");
        msgpack_pack_array(&client->packer, 4);
    }
    msgpack_pack_uint64(&client->packer, job_id(client, i));
    msgpack_pack_uint64(&client->packer, seq);
    msgpack_pack_map(&client->packer, 0);
    pack_payload(client, fill_of(client, job, seq), size);
}

static void close_or_cancel(struct client *client, struct input *input, const char *method)
{
    uint32_t i = choose_job(client, next_byte(input));

    if (client->n_jobs > 0) {
        begin(client, method, 1);
        msgpack_pack_uint64(&client->packer, job_id(client, i));
    }
}

static void open_job(struct client *client, struct input *input)
{
    static const char *const priorities[] = {"normal", "bulk", "urgent", "normal"};
    uint8_t how = next_byte(input);
    struct play_job *job = &client->jobs[client->n_jobs];
    const msgpack_object *opened;
    uint32_t msgid;

    if (client->n_jobs == N_JOBS) {
        return;
    }
    *job = (struct play_job){.is_ordered = how & 1, .is_sum = (how & 6) == 6};
    msgid = begin(client, "job.open", 3);
    pack_text(client, job->is_sum ? "sum" : "copy");
    msgpack_pack_map(&client->packer, 0);
    msgpack_pack_map(&client->packer, 4);
    pack_text(client, "window");
    msgpack_pack_int(&client->packer, 1 + (how >> 3 & 7));
    pack_text(client, "max_push");
    msgpack_pack_int(&client->packer, 65536);
    pack_text(client, "ordered");
    (job->is_ordered ? msgpack_pack_true : msgpack_pack_false)(&client->packer);
    pack_text(client, "priority");
    pack_text(client, priorities[how >> 6]);
    opened = await_result(client, msgid);
    if (opened != NULL) {
        job->id = number(opened, "job");
        client->n_jobs++;
    }
}

static void run(struct client *client, struct input *input)
{
    uint8_t how = next_byte(input);

    begin(client, "run", 4);
    pack_text(client, how & 8 ? "sum" : "copy");
    msgpack_pack_map(&client->packer, 0);
    msgpack_pack_map(&client->packer, 0);
    pack_payload(client, how, sizes[how & 7]);
}

static void put_const(struct client *client, struct input *input)
{
    uint8_t how = next_byte(input);
    uint32_t msgid;
    const msgpack_object *put;

    if (how & 1) {
        begin(client, "const.drop", 1);
        msgpack_pack_uint64(&client->packer, client->const_id);
        return;
    }
    msgid = begin(client, "const.put", 2);
    msgpack_pack_map(&client->packer, 0);
    pack_payload(client, how, sizes[how >> 1 & 7]);
    if (how & 16) {
        put = await_result(client, msgid);
        client->const_id = put != NULL ? number(put, "const") : 0;
    }
}

static void let(struct input *input)
{
    uint8_t how = next_byte(input);

    fake_link_let(1 + (how & 7), how & 8);
}

/* False: the client has hung up. */
static bool operate(struct client *client, struct input *input)
{
    switch (next_byte(input) % 16) {
    case 0 ... 4:
        push(client, input);
        return true;
    case 5:
        close_or_cancel(client, input, "job.close");
        return true;
    case 6:
        close_or_cancel(client, input, "job.cancel");
        return true;
    case 7 ... 8:
        open_job(client, input);
        return true;
    case 9 ... 10:
        let(input);
        return true;
    case 11:
        run(client, input);
        return true;
    case 12:
        put_const(client, input);
        return true;
    case 13:
        flush(client, next_byte(input) * 16);
        return true;
    case 14:
        (next_byte(input) & 1 ? fake_link_fail_next : fake_link_die)();
        return true;
    default:
        flush(client, next_byte(input) * 16);
        return next_byte(input) % 8 != 0;
    }
}

/* ---- an end to everything ------------------------------------------------------------------- */

static bool is_over(const struct client *client)
{
    bool is_over = client->n_answered == client->n_requests;

    for (uint32_t i = 0; i < client->n_jobs; i++) {
        is_over &= client->jobs[i].is_done;
    }
    return is_over;
}

static void finish(struct client *client)
{
    for (uint32_t i = 0; i < client->n_jobs; i++) {
        begin(client, "job.close", 1);
        msgpack_pack_uint64(&client->packer, client->jobs[i].id);
    }
    flush(client, 0);
    fake_link_hold(false);
    while (!is_over(client)) {
        if (!take_next(client)) {
            await(client, POLLIN);
        }
    }
    await_result(client, begin(client, "ping", 0));
    MUST(!take_next(client));
}

static bool holds_nothing(void)
{
    const msgpack_object *stats;

    watcher.n_requests = watcher.n_answered = 0;
    stats = await_result(&watcher, begin(&watcher, "stats", 0));
    return number(stats, "sessions") == 1 && number(stats, "jobs") == 0 &&
           number(stats, "consts") == 0 && number(stats, "pool_used") == 0 &&
           number(stats, "chunks_in_flight") == 0;
}

/* ---- the daemon ----------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    static struct server server;
    const struct config config = {.socket_path = arg,
                                  .backend = "cpu",
                                  .pool_size = 32 << 20,
                                  .awake_group = AWAKE_ANYBODY,
                                  .log_level = LOG_LEVEL_ERROR};

    server_run(&server, &config, NULL);
    abort();
}

static char folder[] = "/tmp/fuzz-XXXXXX";

static void remove_folder(void)
{
    char lock[80];

    snprintf(lock, sizeof(lock), "%s.lock", socket_path);
    unlink(lock);
    unlink(socket_path);
    rmdir(folder);
}

static void start_daemon(void)
{
    pthread_t thread;

    log_init(LOG_LEVEL_ERROR);
    MUST(mkdtemp(folder) != NULL);
    snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
    atexit(remove_folder);
    MUST(pthread_create(&thread, NULL, serve, socket_path) == 0);
    pthread_detach(thread);
    for (int i = 0; i < 1000 && access(socket_path, F_OK) < 0; i++) {
        usleep(10000);
    }
    connect_client(&watcher);
    await_result(&watcher, begin(&watcher, "ping", 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct input input = {bytes, MIN(size, (size_t)INPUT_MAX)};
    bool stays = true;

    if (socket_path[0] == '\0') {
        start_daemon();
    }
    fake_link_hold(true);
    connect_client(&player);
    while (input.n_left > 0 && stays) {
        stays = operate(&player, &input);
    }
    if (stays) {
        finish(&player);
    }
    fake_link_hold(false);
    close_client(&player);
    for (int i = 0; !holds_nothing(); i++) {
        MUST(i < PATIENCE_MS);
        usleep(i < 10 ? 0 : 1000);
    }
    return 0;
}
