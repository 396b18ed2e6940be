/*
 * Segments: every memfd that workers map, by the id that work names it with (worker_abi.h).
 *
 *     ADDING    each worker that takes work is mapping it; or there is none now
 *     USABLE    all of them have, and whoever starts to take work has as well, or it is spoiled
 *     DROPPING  each is unmapping it
 *     (free)    nobody has it mapped
 *
 * A *mapper* is one worker, from its start until its exit is known: a worker that is dying may have
 * mapped what it was asked to, and its device may still write there.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segments;

/* What becomes of a segment that was added; callbacks may add and drop others. */
struct segment_watch {
    void *owner;
    void (*on_usable)(void *owner, uint32_t id);
    /* A worker could not map or register it: it is being dropped.  reason is for people. */
    void (*on_failed)(void *owner, uint32_t id, const char *reason);
    /* Nobody has it mapped; its descriptor is closed after this. */
    void (*on_gone)(void *owner, uint32_t id, int fd);
    /*
     * A worker that came when it was USABLE could not map it, and will take work without it:
     * nothing new may name it, and it is to be dropped when nothing does.  Maybe more than once.
     */
    void (*on_spoiled)(void *owner, uint32_t id, const char *reason);
};

int segments_create(struct segments **ret_segments); /* 0 or -ENOMEM */
/* There are no mappers any more.  Closes what is left, without a word to its owners. */
void segments_destroy(struct segments *segments);

/*
 * Announce size bytes of fd, which is the table's from here on.  watch NULL: nobody cares.  0 with
 * its id, the smallest that is free, or -EAGAIN: LIMIT_SEGMENTS are there.
 */
int segments_add(struct segments *segments, int fd, size_t size, const struct segment_watch *watch,
                 uint32_t *ret_id);
/* Nothing that is or will be at a device names it. */
void segments_drop(struct segments *segments, uint32_t id);
int segments_fd(const struct segments *segments, uint32_t id);
size_t segments_size(const struct segments *segments, uint32_t id);

/* ---- for workers ---------------------------------------------------------------------------- */

struct segment_mapper {
    struct segment_mapper *next;
    bool takes_work;
    uint32_t from; /* there is nothing to ask of those below */
    /* There is something for segments_next(); not called from within it. */
    void (*on_news)(struct segment_mapper *mapper);
    uint8_t has[LIMIT_SEGMENTS]; /* enum mapped */
};

enum segment_request { SEGMENT_NOTHING, SEGMENT_ADD, SEGMENT_DROP };

void segments_attach(struct segments *segments, struct segment_mapper *mapper);
/* It has exited. */
void segments_detach(struct segments *segments, struct segment_mapper *mapper);
/* What it is to be asked next; it counts as asked from here on. */
enum segment_request segments_next(struct segments *segments, struct segment_mapper *mapper,
                                   uint32_t *ret_id);
/* It has all there is, and takes work from here on; or takes none any more. */
void segments_set_takes_work(struct segments *segments, struct segment_mapper *mapper,
                             bool takes_work);
/* What segments_next() said of this one could not be asked now, after all. */
void segments_note_unasked(struct segment_mapper *mapper, uint32_t id);
/* Its answers.  False: it was not asked. */
bool segments_note_mapped(struct segments *segments, struct segment_mapper *mapper, uint32_t id);
/*
 * The segment is dropped, or spoiled; false if its owner does not care for it, so that this mapper
 * cannot take work.
 */
bool segments_note_refused(struct segments *segments, struct segment_mapper *mapper, uint32_t id,
                           const char *reason);
bool segments_note_gone(struct segments *segments, struct segment_mapper *mapper, uint32_t id);
