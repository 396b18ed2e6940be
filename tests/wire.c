/*
 * Wire: bytes gather in `buffer`.  When a whole message is there, the message takes the buffer over
 * (its strings and bins point into it) and what lies behind moves to a new one.
 */
#include "tests/wire.h"

#include "tests/check.h"
#include "tests/pack.h"
#include "tests/random.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { DEADLINE_MS = 50000, READ_SIZE = 1 << 18, FDS_MAX = 64 };

struct message {
    struct message *next;
    msgpack_unpacked unpacked;
    char *bytes;
    bool is_taken;
};

struct wire {
    int fd;
    uint32_t last_msgid;
    bool is_eof;
    int fds[FDS_MAX]; /* that came and were not taken yet */
    unsigned n_fds;
    char *buffer;
    size_t size, capacity;
    struct message *messages; /* oldest first */
    struct message **end;
};

static void close_at_end(void *arg)
{
    struct wire *wire = arg;
    struct message *message;

    if (wire->fd >= 0) {
        close(wire->fd);
    }
    while (wire->n_fds > 0) {
        close(wire->fds[--wire->n_fds]);
    }
    while ((message = wire->messages) != NULL) {
        wire->messages = message->next;
        msgpack_unpacked_destroy(&message->unpacked);
        free(message->bytes);
        free(message);
    }
    free(wire->buffer);
    free(wire);
}

struct wire *wire_connect(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct wire *wire = calloc(1, sizeof(*wire));

    wire->end = &wire->messages;
    wire->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check_at_end(close_at_end, wire);
    CHECK_LT(strlen(socket_path), sizeof(address.sun_path));
    memcpy(address.sun_path, socket_path, strlen(socket_path));
    if (connect(wire->fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        CHECK_FAIL("connect: %s", strerror(errno));
    }
    return wire;
}

void wire_close(struct wire *wire)
{
    close(wire->fd);
    wire->fd = -1;
    wire->is_eof = true;
}

int wire_fd(const struct wire *wire)
{
    return wire->fd;
}

int wire_take_fd(struct wire *wire)
{
    int fd = wire->fds[0];

    CHECK_GT(wire->n_fds, 0);
    wire->n_fds--;
    memmove(wire->fds, wire->fds + 1, wire->n_fds * sizeof(int));
    return fd;
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Wait for any of these events; returns those that came. */
static short wait_for(struct wire *wire, short events)
{
    struct pollfd waiting = {.fd = wire->fd, .events = events};
    int n;

    do {
        n = poll(&waiting, 1, DEADLINE_MS);
    } while (n < 0 && errno == EINTR);
    if (n == 0) {
        CHECK_FAIL("no answer within %d ms", DEADLINE_MS);
    }
    return waiting.revents;
}

static void keep_fds(struct wire *wire, struct msghdr *msg)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg != NULL; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        unsigned n = (unsigned)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));

        CHECK_EQ(cmsg->cmsg_type, SCM_RIGHTS);
        CHECK_LE(wire->n_fds + n, FDS_MAX);
        memcpy(wire->fds + wire->n_fds, CMSG_DATA(cmsg), n * sizeof(int));
        wire->n_fds += n;
    }
}

/* Take in what is there. */
static void receive_bytes(struct wire *wire)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct iovec iov;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    ssize_t got;

    if (wire->capacity - wire->size < READ_SIZE) {
        wire->capacity = 2 * wire->capacity + READ_SIZE;
        wire->buffer = realloc(wire->buffer, wire->capacity);
    }
    iov = (struct iovec){wire->buffer + wire->size, wire->capacity - wire->size};
    got = recvmsg(wire->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
        wire->size += (size_t)got;
        keep_fds(wire, &msg);
    } else if (got == 0 || errno != EAGAIN) {
        wire->is_eof = true;
    }
}

bool wire_send_bytes(struct wire *wire, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        short events = wait_for(wire, wire->is_eof ? POLLOUT : POLLIN | POLLOUT);
        ssize_t sent;

        if (events & POLLIN) {
            receive_bytes(wire);
        }
        sent = send(wire->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) {
            return false;
        }
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        }
    }
    return true;
}

/* ---- messages ------------------------------------------------------------------------------ */

/* The next whole message in the buffer, or NULL. */
static struct message *cut_message(struct wire *wire)
{
    struct message *message = calloc(1, sizeof(*message));
    size_t message_size = 0;

    msgpack_unpacked_init(&message->unpacked);
    if (wire->size == 0 || msgpack_unpack_next(&message->unpacked, wire->buffer, wire->size,
                                               &message_size) != MSGPACK_UNPACK_SUCCESS) {
        msgpack_unpacked_destroy(&message->unpacked);
        free(message);
        return NULL;
    }
    message->bytes = wire->buffer;
    wire->size -= message_size;
    wire->capacity = wire->size + READ_SIZE;
    wire->buffer = malloc(wire->capacity);
    memcpy(wire->buffer, message->bytes + message_size, wire->size);
    *wire->end = message;
    wire->end = &message->next;
    return message;
}

/* Wait for one more message; NULL at end of file. */
static struct message *next_message(struct wire *wire)
{
    struct message *message;

    while ((message = cut_message(wire)) == NULL) {
        if (wire->is_eof) {
            CHECK_EQ(wire->size, 0);
            return NULL;
        }
        wait_for(wire, POLLIN);
        receive_bytes(wire);
    }
    return message;
}

/* The first message, held over or new, that matches; marks it taken. */
static const msgpack_object *take_message(struct wire *wire,
                                          bool (*matches)(const msgpack_object *, const void *),
                                          const void *arg)
{
    struct message *message = wire->messages;

    for (;; message = message->next) {
        while (message != NULL && message->is_taken) {
            message = message->next;
        }
        if (message == NULL && (message = next_message(wire)) == NULL) {
            return NULL;
        }
        if (matches(&message->unpacked.data, arg)) {
            message->is_taken = true;
            return &message->unpacked.data;
        }
    }
}

static bool is_any(const msgpack_object *message, const void *arg)
{
    (void)message;
    (void)arg;
    return true;
}

static bool is_response_to(const msgpack_object *message, const void *arg)
{
    return wire_number(message, "0") == 1 && wire_number(message, "1") == *(const uint32_t *)arg;
}

static bool is_notification(const msgpack_object *message, const void *arg)
{
    return wire_number(message, "0") == 2 && strcmp(wire_text(message, "1"), arg) == 0;
}

const msgpack_object *wire_receive(struct wire *wire)
{
    return take_message(wire, is_any, NULL);
}

const msgpack_object *wire_response(struct wire *wire, uint32_t msgid)
{
    const msgpack_object *response = take_message(wire, is_response_to, &msgid);

    if (response == NULL) {
        CHECK_FAIL("end of file instead of the response to %u", msgid);
    }
    CHECK_EQ(wire_count(response, ""), 4);
    return response;
}

const msgpack_object *wire_result(struct wire *wire, uint32_t msgid)
{
    const msgpack_object *response = wire_response(wire, msgid);
    struct wire_error error = wire_error(wire_find(response, "2"));

    if (error.name[0] != '\0') {
        CHECK_FAIL("unexpected error %s: %s", error.name, error.message);
    }
    return wire_find(response, "3");
}

void wire_error_is(struct wire *wire, uint32_t msgid, const char *name, const char *text)
{
    const msgpack_object *response = wire_response(wire, msgid);
    struct wire_error error = wire_error(wire_find(response, "2"));

    if (strcmp(error.name, name) != 0) {
        CHECK_FAIL("%s (%s) instead of %s", error.name[0] == '\0' ? "success" : error.name,
                   error.message, name);
    }
    CHECK_HAS(error.message, text);
    CHECK_EQ(wire_find(response, "3")->type, MSGPACK_OBJECT_NIL);
}

const msgpack_object *wire_notification(struct wire *wire, const char *name)
{
    const msgpack_object *notification = take_message(wire, is_notification, name);

    if (notification == NULL) {
        CHECK_FAIL("end of file instead of %s", name);
    }
    return wire_find(notification, "2");
}

void wire_eof(struct wire *wire)
{
    while (next_message(wire) != NULL) {
    }
}

unsigned wire_held(const struct wire *wire)
{
    unsigned n = 0;

    for (const struct message *message = wire->messages; message != NULL; message = message->next) {
        n += !message->is_taken;
    }
    return n;
}

/* ---- requests ------------------------------------------------------------------------------ */

static uint32_t send_request(struct wire *wire, const char *method, const char *params,
                             va_list args)
{
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    pack_request(&buffer, ++wire->last_msgid, method, params, args);
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    return wire->last_msgid;
}

uint32_t wire_send(struct wire *wire, const char *method, const char *params, ...)
{
    va_list args;
    uint32_t msgid;

    va_start(args, params);
    msgid = send_request(wire, method, params, args);
    va_end(args);
    return msgid;
}

uint32_t wire_pack(struct wire *wire, msgpack_sbuffer *buffer, const char *method,
                   const char *params, ...)
{
    va_list args;

    va_start(args, params);
    pack_request(buffer, ++wire->last_msgid, method, params, args);
    va_end(args);
    return wire->last_msgid;
}

void wire_notify(struct wire *wire, const char *method, const char *params, ...)
{
    msgpack_sbuffer buffer;
    va_list args;

    msgpack_sbuffer_init(&buffer);
    va_start(args, params);
    pack_notification(&buffer, method, params, args);
    va_end(args);
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
}

void wire_pack_notification(msgpack_sbuffer *buffer, const char *method, const char *params, ...)
{
    va_list args;

    va_start(args, params);
    pack_notification(buffer, method, params, args);
    va_end(args);
}

const msgpack_object *wire_call(struct wire *wire, const char *method, const char *params, ...)
{
    va_list args;
    uint32_t msgid;

    va_start(args, params);
    msgid = send_request(wire, method, params, args);
    va_end(args);
    return wire_result(wire, msgid);
}

void wire_refused(struct wire *wire, const char *name, const char *text, const char *method,
                  const char *params, ...)
{
    va_list args;
    uint32_t msgid;

    va_start(args, params);
    msgid = send_request(wire, method, params, args);
    va_end(args);
    wire_error_is(wire, msgid, name, text);
}

/* ---- values -------------------------------------------------------------------------------- */

static void copy_text(const msgpack_object *object, char *ret_text, size_t size)
{
    if (object != NULL && object->type == MSGPACK_OBJECT_STR) {
        snprintf(ret_text, size, "%.*s", (int)object->via.str.size, object->via.str.ptr);
    }
}

/* Is there a path?  That a driver's device node is missing is no secret: every machine has it
 * there. */
static bool has_path(const char *text)
{
    static const char node[] = "/dev/nvidia";

    while ((text = strchr(text, '/')) != NULL) {
        if (strncmp(text, node, strlen(node)) != 0) {
            return true;
        }
        text += strlen(node);
    }
    return false;
}

/* In every test: no message names a path or an address of the daemon's. */
static void check_tells_no_secret(const struct wire_error *error)
{
    const char *number = strstr(error->message, "0x");

    if (has_path(error->message) ||
        (number != NULL && strspn(number + 2, "0123456789abcdef") > 2)) {
        CHECK_FAIL("a path or an address: %s: %s", error->name, error->message);
    }
}

static struct wire_error read_error(const msgpack_object *error)
{
    struct wire_error plain = {.name = ""};
    char whole[sizeof(plain.name) + sizeof(plain.message)] = "";
    char *colon;

    if (error->type == MSGPACK_OBJECT_NIL) {
        return plain;
    }
    if (error->type == MSGPACK_OBJECT_ARRAY) {
        copy_text(wire_find(error, "0"), plain.name, sizeof(plain.name));
        copy_text(wire_find(error, "1"), plain.message, sizeof(plain.message));
        copy_text(wire_find(error, "2.field"), plain.field, sizeof(plain.field));
        return plain;
    }
    CHECK_EQ(error->type, MSGPACK_OBJECT_STR);
    copy_text(error, whole, sizeof(whole));
    colon = strchr(whole, ':');
    CHECK(colon != NULL && colon[1] == ' ' && (size_t)(colon - whole) < sizeof(plain.name));
    memcpy(plain.name, whole, (size_t)(colon - whole));
    snprintf(plain.message, sizeof(plain.message), "%s", colon + 2);
    return plain;
}

struct wire_error wire_error(const msgpack_object *error)
{
    struct wire_error plain = read_error(error);

    check_tells_no_secret(&plain);
    return plain;
}

/* The value at one step of a path. */
static const msgpack_object *step_into(const msgpack_object *object, const char *key, size_t size)
{
    if (object->type == MSGPACK_OBJECT_ARRAY) {
        size_t index = strtoul(key, NULL, 10);

        return index < object->via.array.size ? &object->via.array.ptr[index] : NULL;
    }
    for (uint32_t i = 0; object->type == MSGPACK_OBJECT_MAP && i < object->via.map.size; i++) {
        const msgpack_object_kv *pair = &object->via.map.ptr[i];

        if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size == size &&
            memcmp(pair->key.via.str.ptr, key, size) == 0) {
            return &pair->val;
        }
    }
    return NULL;
}

const msgpack_object *wire_find(const msgpack_object *object, const char *path)
{
    while (object != NULL && *path != '\0') {
        size_t size = strcspn(path, ".");

        object = step_into(object, path, size);
        path += size + (path[size] == '.');
    }
    return object;
}

static const msgpack_object *must_find(const msgpack_object *object, const char *path)
{
    const msgpack_object *found = wire_find(object, path);

    if (found == NULL) {
        printf("# in ");
        msgpack_object_print(stdout, *object);
        printf("\n");
        CHECK_FAIL("there is no %s", path);
    }
    return found;
}

int64_t wire_number(const msgpack_object *object, const char *path)
{
    const msgpack_object *found = must_find(object, path);

    if (found->type != MSGPACK_OBJECT_POSITIVE_INTEGER &&
        found->type != MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        CHECK_FAIL("%s is no integer", path);
    }
    return found->via.i64;
}

bool wire_boolean(const msgpack_object *object, const char *path)
{
    const msgpack_object *found = must_find(object, path);

    CHECK_EQ(found->type, MSGPACK_OBJECT_BOOLEAN);
    return found->via.boolean;
}

const char *wire_text(const msgpack_object *object, const char *path)
{
    static char copies[8][512];
    static unsigned n;
    const msgpack_object *found = must_find(object, path);
    char *copy = copies[n++ % 8];

    if (found->type != MSGPACK_OBJECT_STR) {
        CHECK_FAIL("%s is no string", path);
    }
    copy_text(found, copy, sizeof(copies[0]));
    return copy;
}

const void *wire_bytes(const msgpack_object *object, const char *path, size_t *ret_size)
{
    const msgpack_object *found = must_find(object, path);

    if (found->type != MSGPACK_OBJECT_BIN) {
        CHECK_FAIL("%s is no bin", path);
    }
    *ret_size = found->via.bin.size;
    return found->via.bin.ptr;
}

unsigned wire_count(const msgpack_object *object, const char *path)
{
    const msgpack_object *found = must_find(object, path);

    if (found->type != MSGPACK_OBJECT_ARRAY) {
        CHECK_FAIL("%s is no array", path);
    }
    return found->via.array.size;
}

const void *wire_output(const msgpack_object *result, size_t size)
{
    const void *bytes;
    size_t got;

    CHECK_EQ(wire_count(result, "out"), 1);
    bytes = wire_bytes(result, "out.0", &got);
    CHECK_EQ(got, size);
    return bytes;
}

void wire_check_works(struct wire *wire)
{
    uint8_t bytes[777];
    const msgpack_object *result;

    random_bytes(bytes, sizeof(bytes));
    result = wire_call(wire, "run", "['copy', {}, {}, [%b]]", bytes, sizeof(bytes));
    CHECK_MEM(wire_output(result, sizeof(bytes)), bytes, sizeof(bytes));
}
