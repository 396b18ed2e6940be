/*
 * Rpc: the envelopes of MessagePack-RPC.
 *
 *     request       [0, msgid, method, [params...]]
 *     response      [1, msgid, error, result]
 *     notification  [2, method, [params...]]
 *
 * Only this file and codec.c see MessagePack.
 *
 * Threads: pure functions; a parsed message lives as long as its zone and its bytes.
 */
#pragma once

#include "proto/methods.h"
#include "proto/status.h"

#include <msgpack.h>

enum rpc_type { RPC_REQUEST, RPC_RESPONSE, RPC_NOTIFICATION };

struct rpc_message {
    enum rpc_type type;
    uint32_t msgid;      /* requests and responses */
    enum method method;  /* requests and notifications; METHOD_COUNT = unknown */
    msgpack_object name; /* the method's name, a str */
    msgpack_object_array params;
    msgpack_object error; /* responses: nil = none */
    msgpack_object result;
    msgpack_zone *zone; /* owns what the objects point to; rpc_finish() frees it */
};

/*
 * Decode one complete message that the guard has passed.  0 with *ret_message (rpc_finish() it), or
 * a negative status: PROTO for what is no envelope, INVALID_PARAM for a wrong number of parameters
 * of a known method's request (a notification may still say what it was about).  The bytes must
 * outlive the message.
 */
int rpc_parse(const uint8_t *bytes, size_t size, struct rpc_message *ret_message,
              struct failure *ret_failure);
void rpc_finish(struct rpc_message *message);

/* Envelope openings; the caller packs n_params params, or the result, behind them. */
void rpc_pack_request(msgpack_packer *packer, uint32_t msgid, enum method method,
                      uint32_t n_params);
void rpc_pack_notification(msgpack_packer *packer, const char *name, uint32_t n_params);
void rpc_pack_result(msgpack_packer *packer, uint32_t msgid);

/*
 * A whole error response.  is_structured false: the string "NAME: message"; true:
 * [name, message, {field, retry_ms, limit, used, max}].
 */
void rpc_pack_error(msgpack_packer *packer, uint32_t msgid, const struct failure *failure,
                    bool is_structured);

/* An error as it stands in a response or a result map (either form) into *ret_failure. */
void rpc_unpack_error(const msgpack_object *error, struct failure *ret_failure);
void rpc_pack_failure(msgpack_packer *packer, const struct failure *failure, bool is_structured);

/* The header of a bin of size bytes (0 < size <= LIMIT_FRAME).  Returns its length, 2, 3 or 5. */
#define RPC_BIN_HEADER_MAX 5
uint32_t rpc_bin_header(uint64_t size, uint8_t ret_header[RPC_BIN_HEADER_MAX]);
