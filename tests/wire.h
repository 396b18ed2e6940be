/*
 * Wire: a raw client for tests.  It connects, sends what it is told (right or wrong), and decodes
 * whatever comes back.  It shares no code with proto/, so it checks the codec too.
 *
 * Requests are written as text (pack.h).  Values in answers are found by a path: "limits.frame",
 * "0.params.2.name".  Everything received lives until the connection closes, which happens by
 * itself at the end of the test.  Every wait has a deadline; what goes wrong fails the test.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire;

struct wire_error {
    char name[32]; /* "" = no error */
    char message[256];
    char field[64]; /* structured errors only */
};

struct wire *wire_connect(const char *socket_path);
void wire_close(struct wire *wire);
int wire_fd(const struct wire *wire);
/* The oldest descriptor that came along with a message: the caller's. */
int wire_take_fd(struct wire *wire);

/* Send bytes, taking in what comes meanwhile.  False: the peer has closed the connection. */
bool wire_send_bytes(struct wire *wire, const void *bytes, size_t size);

/* Send a request and return its msgid; or only pack it, for many in one write. */
uint32_t wire_send(struct wire *wire, const char *method, const char *params, ...);
uint32_t wire_pack(struct wire *wire, msgpack_sbuffer *buffer, const char *method,
                   const char *params, ...);

/* The same for a notification. */
void wire_notify(struct wire *wire, const char *method, const char *params, ...);
void wire_pack_notification(msgpack_sbuffer *buffer, const char *method, const char *params, ...);

/* The next message as it comes, held-over ones first; NULL at end of file. */
const msgpack_object *wire_receive(struct wire *wire);
/* The response to this request; other messages are held over. */
const msgpack_object *wire_response(struct wire *wire, uint32_t msgid);
/* Its result; it must not be an error. */
const msgpack_object *wire_result(struct wire *wire, uint32_t msgid);
/* Its error, which it must be: checks its name, and that the message has this text. */
void wire_error_is(struct wire *wire, uint32_t msgid, const char *name, const char *text);
/* The params of the next notification of this name; other messages are held over. */
const msgpack_object *wire_notification(struct wire *wire, const char *name);
/* Nothing but what is held over, then end of file. */
void wire_eof(struct wire *wire);
/* Messages that came and were not asked for yet. */
unsigned wire_held(const struct wire *wire);

/* Request and result; request and error. */
const msgpack_object *wire_call(struct wire *wire, const char *method, const char *params, ...);
void wire_refused(struct wire *wire, const char *name, const char *text, const char *method,
                  const char *params, ...);

/* An error in either form; nil gives an empty one. */
struct wire_error wire_error(const msgpack_object *error);

/* NULL where there is no such value ... */
const msgpack_object *wire_find(const msgpack_object *object, const char *path);
/* ... and these fail the test. */
int64_t wire_number(const msgpack_object *object, const char *path);
bool wire_boolean(const msgpack_object *object, const char *path);
/* A copy that lives until eight more have been taken. */
const char *wire_text(const msgpack_object *object, const char *path);
const void *wire_bytes(const msgpack_object *object, const char *path, size_t *ret_size);
unsigned wire_count(const msgpack_object *object, const char *path);
/* The only output of a result, which must be of this size. */
const void *wire_output(const msgpack_object *result, size_t size);

/* Random bytes through the op copy and back: the daemon works for this client. */
void wire_check_works(struct wire *wire);
