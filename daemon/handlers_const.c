/*
 * Handlers of constants: const.put, const.drop.
 */
#include "daemon/answer.h"
#include "daemon/constant.h"
#include "daemon/handlers.h"
#include "proto/codec.h"
#include "proto/util.h"

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

int handle_const_put_end(struct session *session, struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    struct constant *constant = STEAL(incoming->constant);
    struct answer answer;

    (void)ret_failure;
    constant_complete(constant);
    codec_pack_const_result(answer_begin(&answer), incoming->msgid,
                            &(struct msg_const){.id = constant->id});
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
