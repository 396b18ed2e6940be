/*
 * Handlers of constants: const.put, const.drop.
 */
#include "daemon/answer.h"
#include "daemon/constant.h"
#include "daemon/handlers.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <stdio.h>

int handle_const_put_begin(struct session *session, const struct rpc_message *message,
                           struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    struct msg_const_put put;
    int r = codec_unpack_const_put(&message->params, &put, ret_failure);

    if (r < 0) {
        return r;
    }
    incoming->n_data = put.n_data;
    return constant_create(session, incoming->first_size, &incoming->constant, ret_failure);
}

int handle_const_put_sink(struct session *session, uint32_t index, uint64_t size,
                          struct reader_sink *ret_sink, struct failure *ret_failure)
{
    const struct constant *constant = session_incoming(session)->constant;

    (void)index, (void)ret_failure; /* there is one payload: the codec counts them */
    ret_sink->n_pieces = 1;
    ret_sink->pieces[0] = (struct iovec){.iov_base = constant->block.base, .iov_len = size};
    return 0;
}

static void print_hex(const uint8_t *bytes, size_t size, char *ret_text)
{
    for (size_t i = 0; i < size; i++) {
        sprintf(ret_text + 2 * i, "%02x", bytes[i]);
    }
}

int handle_const_put_end(struct session *session, struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    struct constant *constant = STEAL(incoming->constant);
    uint8_t sha256[SHA256_DIGEST_SIZE];
    struct msg_const_put_result result;
    struct answer answer;

    (void)ret_failure;
    constant_complete(constant, sha256);
    result.id = constant->id;
    print_hex(sha256, sizeof(sha256), result.sha256);
    codec_pack_const_put_result(answer_begin(&answer), incoming->msgid, &result);
    return answer_send(&answer, session);
}

int handle_const_put(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure)
{
    struct msg_const_put put;
    int r = codec_unpack_const_put(&message->params, &put, ret_failure);

    (void)session;
    if (r < 0) {
        return r;
    }
    return fail(ret_failure, STATUS_INVALID_PARAM, "data", "a constant is one bin or string");
}

int handle_const_drop(struct session *session, const struct rpc_message *message,
                      struct failure *ret_failure)
{
    struct answer answer;
    struct constant *constant;
    struct msg_const drop;
    int r = codec_unpack_const_drop(&message->params, &drop, ret_failure);

    if (r == 0) {
        r = constant_find(session, drop.id, "const", &constant, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    constant_drop(constant);
    codec_pack_empty_result(answer_begin(&answer), message->msgid);
    return answer_send(&answer, session);
}
