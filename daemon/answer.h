/*
 * Answer: a message without payload, packed by a codec function and queued on its session.
 *
 *     struct answer answer;
 *     codec_pack_x(answer_begin(&answer), msgid, &x);
 *     return answer_send(&answer, session);
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/session.h"

struct answer {
    msgpack_sbuffer head;
    msgpack_packer packer;
};

static inline msgpack_packer *answer_begin(struct answer *answer)
{
    msgpack_sbuffer_init(&answer->head);
    msgpack_packer_init(&answer->packer, &answer->head, msgpack_sbuffer_write);
    return &answer->packer;
}

/* Always 0: a handler's last line. */
static inline int answer_send(struct answer *answer, struct session *session)
{
    session_queue_head(session, &answer->head);
    msgpack_sbuffer_destroy(&answer->head);
    return 0;
}
