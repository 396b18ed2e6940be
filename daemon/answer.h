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

/* The same with descriptors, which stay the caller's.  0 or -errno; nothing was queued then. */
static inline int answer_send_with_fds(struct answer *answer, struct session *session,
                                       const int *fds, uint32_t n_fds)
{
    struct writer_message *message = NULL;
    int r = writer_begin(&message, NULL, NULL);

    if (r == 0) {
        r = writer_add_copy(message, answer->head.data, answer->head.size);
    }
    if (r == 0) {
        r = writer_add_fds(message, fds, n_fds);
    }
    if (r == 0) {
        session_queue_with_fds(session, message);
    } else {
        writer_abandon(message);
    }
    msgpack_sbuffer_destroy(&answer->head);
    return r;
}

/* The same of what belongs to a job. */
static inline int answer_send_as(struct answer *answer, struct session *session,
                                 enum priority priority)
{
    session_queue_head(session, &answer->head, priority);
    msgpack_sbuffer_destroy(&answer->head);
    return 0;
}

/* Always 0: a handler's last line. */
static inline int answer_send(struct answer *answer, struct session *session)
{
    return answer_send_as(answer, session, PRIORITY_NORMAL);
}
