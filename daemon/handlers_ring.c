/*
 * Handlers of rings: ring.open, ring.close.
 */
#include "daemon/handlers.h"
#include "daemon/ring_link.h"
#include "proto/codec.h"

int handle_ring_open(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure)
{
    struct msg_ring_open open;
    int r = codec_unpack_ring_open(&message->params, &open, ret_failure);

    return r < 0 ? r : ring_link_open(session, message->msgid, &open, ret_failure);
}

int handle_ring_close(struct session *session, const struct rpc_message *message,
                      struct failure *ret_failure)
{
    struct msg_ring msg;
    struct ring_link *link;
    int r = codec_unpack_ring_close(&message->params, &msg, ret_failure);

    if (r == 0) {
        r = ring_link_find(session, msg.ring, "ring", &link, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    ring_link_close(link, message->msgid);
    return 0;
}
