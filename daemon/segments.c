/*
 * Segments: a table of segments, and a list of mappers with what each has of them.
 */
#include "daemon/segments.h"

#include "proto/util.h"

#include <assert.h>
#include <errno.h>

enum segment_state {
    SEGMENT_FREE,
    SEGMENT_ADDING,
    SEGMENT_USABLE,
    SEGMENT_DROPPING,
    SEGMENT_LEAVING
};

/* What a mapper has of a segment: whoever was asked to map it may have done so. */
enum mapped { MAPPED_NOT, MAPPED_ASKED, MAPPED_YES, MAPPED_DROPPING, MAPPED_REFUSED };

struct segment {
    enum segment_state state;
    int fd;
    size_t size;
    struct segment_watch watch;
};

struct segments {
    struct segment_mapper *mappers;
    uint32_t n;          /* ids that were ever used are below */
    uint32_t first_free; /* none that is free is below */
    struct segment all[LIMIT_SEGMENTS];
};

int segments_create(struct segments **ret_segments)
{
    struct segments *segments = calloc(1, sizeof(*segments));

    if (segments == NULL) {
        return -ENOMEM;
    }
    *ret_segments = segments;
    return 0;
}

void segments_destroy(struct segments *segments)
{
    if (segments == NULL) {
        return;
    }
    assert(segments->mappers == NULL);
    for (uint32_t id = 0; id < segments->n; id++) {
        if (segments->all[id].state != SEGMENT_FREE) {
            close(segments->all[id].fd);
        }
    }
    free(segments);
}

static void note_news(struct segment_mapper *mapper, uint32_t id)
{
    mapper->from = MIN(mapper->from, id);
}

/* All know before the first acts on it. */
static void tell_mappers(struct segments *segments, uint32_t id)
{
    struct segment_mapper *next;

    for (struct segment_mapper *mapper = segments->mappers; mapper != NULL; mapper = mapper->next) {
        note_news(mapper, id);
    }
    for (struct segment_mapper *mapper = segments->mappers; mapper != NULL; mapper = next) {
        next = mapper->next;
        mapper->on_news(mapper);
    }
}

static bool is_everywhere(const struct segments *segments, uint32_t id)
{
    bool is_anywhere = false;

    for (const struct segment_mapper *mapper = segments->mappers; mapper != NULL;
         mapper = mapper->next) {
        if (mapper->takes_work && mapper->has[id] != MAPPED_YES) {
            return false;
        }
        is_anywhere |= mapper->takes_work;
    }
    return is_anywhere;
}

static bool is_nowhere(const struct segments *segments, uint32_t id)
{
    const struct segment_mapper *mapper = segments->mappers;

    while (mapper != NULL && mapper->has[id] == MAPPED_NOT) {
        mapper = mapper->next;
    }
    return mapper == NULL;
}

/* Somebody mapped or unmapped it, or went. */
static void settle(struct segments *segments, uint32_t id)
{
    struct segment *segment = &segments->all[id];
    const struct segment_watch watch = segment->watch;

    if (segment->state == SEGMENT_ADDING && is_everywhere(segments, id)) {
        segment->state = SEGMENT_USABLE;
        if (watch.on_usable != NULL) {
            watch.on_usable(watch.owner, id);
        }
    } else if (segment->state == SEGMENT_DROPPING && is_nowhere(segments, id)) {
        segment->state = SEGMENT_LEAVING; /* told once, whatever that leads to */
        if (watch.on_gone != NULL) {
            watch.on_gone(watch.owner, id, segment->fd);
        }
        close(segment->fd);
        segment->state = SEGMENT_FREE;
        segments->first_free = MIN(segments->first_free, id);
    }
}

static void settle_all(struct segments *segments)
{
    for (uint32_t id = 0; id < segments->n; id++) {
        settle(segments, id);
    }
}

int segments_add(struct segments *segments, int fd, size_t size, const struct segment_watch *watch,
                 uint32_t *ret_id)
{
    uint32_t id = segments->first_free;

    while (id < segments->n && segments->all[id].state != SEGMENT_FREE) {
        id++;
    }
    if (id == LIMIT_SEGMENTS) {
        return -EAGAIN;
    }
    segments->n = MAX(segments->n, id + 1);
    segments->first_free = id + 1;
    segments->all[id] = (struct segment){.state = SEGMENT_ADDING, .fd = fd, .size = size};
    if (watch != NULL) {
        segments->all[id].watch = *watch;
    }
    *ret_id = id;
    tell_mappers(segments, id);
    settle(segments, id);
    return 0;
}

static void drop(struct segments *segments, uint32_t id)
{
    segments->all[id].state = SEGMENT_DROPPING;
    for (struct segment_mapper *mapper = segments->mappers; mapper != NULL; mapper = mapper->next) {
        if (mapper->has[id] == MAPPED_REFUSED) {
            mapper->has[id] = MAPPED_NOT; /* it is not asked again, for this segment */
        }
    }
    tell_mappers(segments, id);
    settle(segments, id);
}

void segments_drop(struct segments *segments, uint32_t id)
{
    assert(segments->all[id].state == SEGMENT_ADDING || segments->all[id].state == SEGMENT_USABLE);
    drop(segments, id);
}

int segments_fd(const struct segments *segments, uint32_t id)
{
    return segments->all[id].fd;
}

size_t segments_size(const struct segments *segments, uint32_t id)
{
    return segments->all[id].size;
}

/* ---- for workers ---------------------------------------------------------------------------- */

void segments_attach(struct segments *segments, struct segment_mapper *mapper)
{
    mapper->from = 0;
    mapper->next = segments->mappers;
    segments->mappers = mapper;
}

void segments_detach(struct segments *segments, struct segment_mapper *mapper)
{
    for (struct segment_mapper **at = &segments->mappers; *at != NULL; at = &(*at)->next) {
        if (*at == mapper) {
            *at = mapper->next;
            settle_all(segments);
            return;
        }
    }
}

enum segment_request segments_next(struct segments *segments, struct segment_mapper *mapper,
                                   uint32_t *ret_id)
{
    for (; mapper->from < segments->n; mapper->from++) {
        uint32_t id = mapper->from;
        enum segment_state state = segments->all[id].state;

        *ret_id = id;
        if (state == SEGMENT_DROPPING && mapper->has[id] == MAPPED_YES) {
            mapper->has[id] = MAPPED_DROPPING;
            return SEGMENT_DROP;
        }
        if ((state == SEGMENT_ADDING || state == SEGMENT_USABLE) && mapper->has[id] == MAPPED_NOT) {
            mapper->has[id] = MAPPED_ASKED;
            return SEGMENT_ADD;
        }
    }
    return SEGMENT_NOTHING;
}

void segments_set_takes_work(struct segments *segments, struct segment_mapper *mapper,
                             bool takes_work)
{
    mapper->takes_work = takes_work;
    settle_all(segments);
}

/* Its answer to a request of this kind: what it has then. */
static bool note(struct segment_mapper *mapper, uint32_t id, enum mapped asked, enum mapped now)
{
    if (id >= LIMIT_SEGMENTS || mapper->has[id] != asked) {
        return false;
    }
    mapper->has[id] = now;
    note_news(mapper, id); /* it may have been dropped meanwhile */
    return true;
}

void segments_note_unasked(struct segment_mapper *mapper, uint32_t id)
{
    if (!note(mapper, id, MAPPED_ASKED, MAPPED_NOT)) {
        note(mapper, id, MAPPED_DROPPING, MAPPED_YES);
    }
}

bool segments_note_mapped(struct segments *segments, struct segment_mapper *mapper, uint32_t id)
{
    if (!note(mapper, id, MAPPED_ASKED, MAPPED_YES)) {
        return false;
    }
    settle(segments, id);
    return true;
}

bool segments_note_refused(struct segments *segments, struct segment_mapper *mapper, uint32_t id,
                           const char *reason)
{
    if (!note(mapper, id, MAPPED_ASKED, MAPPED_NOT)) {
        return false;
    }
    const struct segment_watch watch = segments->all[id].watch;

    switch (segments->all[id].state) {
    case SEGMENT_ADDING:
        if (watch.on_failed == NULL) {
            return false;
        }
        segments->all[id].state = SEGMENT_DROPPING; /* told before it may be gone */
        watch.on_failed(watch.owner, id, reason);
        drop(segments, id);
        return true;
    case SEGMENT_USABLE:
        if (watch.on_spoiled == NULL) {
            return false;
        }
        mapper->has[id] = MAPPED_REFUSED;
        watch.on_spoiled(watch.owner, id, reason);
        return true;
    case SEGMENT_DROPPING:
        settle(segments, id);
        return true;
    default:
        return false;
    }
}

bool segments_note_gone(struct segments *segments, struct segment_mapper *mapper, uint32_t id)
{
    if (!note(mapper, id, MAPPED_DROPPING, MAPPED_NOT)) {
        return false;
    }
    settle(segments, id);
    return true;
}
