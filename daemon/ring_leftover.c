/*
 * Ring leftovers: a list, the newest first.
 */
#include "daemon/ring_leftover.h"

#include "proto/limits.h"
#include "proto/util.h"

struct ring_leftover {
    struct ring_leftover *next;
    uid_t uid;
    uint64_t connection;
    struct ring *queues;
};

/* Take out the one that *at leads to. */
static void drop(struct ring_leftover **at)
{
    struct ring_leftover *leftover = *at;

    *at = leftover->next;
    ring_clear(leftover->queues);
    ring_destroy(leftover->queues);
    free(leftover);
}

static void drop_oldest(struct ring_leftover **leftovers, uid_t uid)
{
    uint32_t n = 0;

    for (struct ring_leftover **at = leftovers; *at != NULL;) {
        n += (*at)->uid == uid;
        if ((*at)->uid == uid && n > LIMIT_RINGS) {
            drop(at);
        } else {
            at = &(*at)->next;
        }
    }
}

void ring_leftovers_add(struct ring_leftover **leftovers, uid_t uid, uint64_t connection,
                        struct ring *queues)
{
    struct ring_leftover *leftover = malloc(sizeof(*leftover));

    if (leftover == NULL) {
        ring_clear(queues);
        ring_destroy(queues);
        return;
    }
    *leftover = (struct ring_leftover){*leftovers, uid, connection, queues};
    *leftovers = leftover;
    drop_oldest(leftovers, uid);
}

void ring_leftovers_drop(struct ring_leftover **leftovers, uint64_t connection)
{
    for (struct ring_leftover **at = leftovers; *at != NULL;) {
        if ((*at)->connection == connection) {
            drop(at);
        } else {
            at = &(*at)->next;
        }
    }
}
