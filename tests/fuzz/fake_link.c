/*
 * Fake link: chunks in one list, in the order they came, done when the loop looks.  To be fast, or
 * safe, is no aim here: whatever is out of memory ends the program.
 */
#include "tests/fuzz/fake_link.h"

#include "daemon/worker_link.h"
#include "proto/util.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct place {
    struct place *next;
    struct work_entry entry;
    struct work_row rows[WORK_ROWS];
    void *chunk;
};

struct worker_link {
    struct worker_link_config config;
    struct worker_caps caps;
    uv_async_t wake;
    bool is_ready;
    struct place *first, **end;
    uint32_t n;
    uint8_t *segments[LIMIT_SEGMENTS]; /* mapped when first met; the pool's stay */
};

static struct worker_link *the_link;
static atomic_uint n_let;
static atomic_bool is_held, is_backwards, fails_next, dies;

/* ---- from any thread ------------------------------------------------------------------------ */

void fake_link_let(uint32_t n, bool is_backwards_)
{
    atomic_store(&is_backwards, is_backwards_);
    atomic_fetch_add(&n_let, n);
    uv_async_send(&the_link->wake);
}

void fake_link_hold(bool is_held_)
{
    atomic_store(&n_let, 0);
    atomic_store(&is_held, is_held_);
    uv_async_send(&the_link->wake);
}

void fake_link_fail_next(void)
{
    atomic_store(&fails_next, true);
}

void fake_link_die(void)
{
    atomic_store(&dies, true);
    uv_async_send(&the_link->wake);
}

/* ---- the loop's ------------------------------------------------------------------------------ */

static struct manifest_op *make_ops(void)
{
    static const struct manifest_array record = {
        .name = "in", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.fixed = FAKE_RECORD}}};
    struct manifest_op *ops = calloc(2, sizeof(*ops));

    ops[0] = (struct manifest_op){.abi = MANIFEST_ABI,
                                  .kind = OP_MAP,
                                  .name = "copy",
                                  .n_in = 1,
                                  .n_out = 1,
                                  .in = {record},
                                  .out = {record},
                                  .tails = TAIL_BIT(TAIL_ZERO),
                                  .min_parallel = 1};
    ops[1] = ops[0];
    ops[1].kind = OP_REDUCE;
    strcpy(ops[1].name, "sum");
    ops[1].tails = 0;
    ops[1].leaf = 1024;
    ops[1].partial_size = 16;
    return ops;
}

static void on_wake(uv_async_t *wake)
{
    struct worker_link *link = wake->data;

    if (!link->is_ready) {
        link->is_ready = true;
        link->config.ops->n = link->caps.n_ops;
        link->config.ops->all = make_ops();
        link->config.on_hello(link->config.owner, &link->caps);
        link->config.on_ready(link->config.owner);
    }
}

int worker_link_create(const struct worker_link_config *config, struct worker_link **ret_link,
                       struct failure *ret_failure)
{
    struct worker_link *link = calloc(1, sizeof(*link));

    (void)ret_failure;
    link->config = *config;
    link->end = &link->first;
    link->caps = (struct worker_caps){.backend = "cpu",
                                      .name = "fake",
                                      .chunk_size = 16384,
                                      .bulk_bytes = 65536,
                                      .bulk_chunks = 2,
                                      .n_threads = 1,
                                      .n_devices = 1,
                                      .numa = -1,
                                      .n_ops = 2};
    uv_async_init(config->loop, &link->wake, on_wake);
    link->wake.data = link;
    the_link = link;
    *ret_link = link;
    uv_async_send(&link->wake);
    return 0;
}

/* Only a daemon that ends would: this one never does. */
void worker_link_destroy(struct worker_link *link)
{
    (void)link;
    abort();
}

bool worker_link_is_ready(const struct worker_link *link)
{
    return link->is_ready;
}

const struct worker_caps *worker_link_caps(const struct worker_link *link)
{
    return &link->caps;
}

int worker_link_submit(struct worker_link *link, enum priority priority,
                       const struct work_entry *entry, const struct work_row *rows, void *chunk,
                       const void *after)
{
    struct place *place;

    (void)priority, (void)after;
    if (!link->is_ready || link->n == WORK_ENTRIES) {
        return -EAGAIN;
    }
    place = malloc(sizeof(*place));
    *place = (struct place){.entry = *entry, .chunk = chunk};
    if (entry->kind == WORK_TABLE) {
        memcpy(place->rows, rows, entry->n_records * sizeof(*rows));
    }
    *link->end = place;
    link->end = &place->next;
    link->n++;
    return 0;
}

void worker_link_publish(struct worker_link *link)
{
    (void)link;
}

bool worker_link_hear(struct worker_link *link, uint64_t ring, bool is_quick, int doorbell_fd)
{
    (void)link, (void)ring, (void)is_quick, (void)doorbell_fd;
    return false;
}

void worker_link_unhear(struct worker_link *link, uint64_t ring)
{
    (void)link, (void)ring;
}

static uint8_t *at(struct worker_link *link, work_ref ref)
{
    uint32_t id = WORK_REF_SEGMENT(ref);

    if (link->segments[id] == NULL) {
        link->segments[id] =
            mmap(NULL, segments_size(link->config.segments, id), PROT_READ | PROT_WRITE, MAP_SHARED,
                 segments_fd(link->config.segments, id), 0);
        assert(link->segments[id] != MAP_FAILED);
    }
    return link->segments[id] + WORK_REF_OFFSET(ref);
}

/* The first place, or the last; its memory is the caller's. */
static struct place *take(struct worker_link *link)
{
    struct place **at = &link->first, *place;

    while (atomic_load(&is_backwards) && (*at)->next != NULL) {
        at = &(*at)->next;
    }
    place = *at;
    *at = place->next;
    if (*at == NULL) {
        link->end = at;
    }
    link->n--;
    return place;
}

static void do_one(struct worker_link *link)
{
    struct place *place = take(link);
    const struct work_entry *entry = &place->entry;
    struct work_result result = {.state = RESULT_DONE};
    bool fails = atomic_exchange(&fails_next, false);

    result.issue_ns = result.start_ns = now_ns();
    if (fails) {
        result.status = STATUS_KERNEL_FAULT;
    } else if (entry->kind == WORK_MAP) {
        result.out_size[0] = entry->n_records * FAKE_RECORD;
        memcpy(at(link, entry->ref[1]), at(link, entry->ref[0]), result.out_size[0]);
    } else if (entry->kind == WORK_TABLE) {
        uint8_t *base = at(link, entry->ref[0]);

        for (uint32_t i = 0; i < entry->n_records; i++) {
            const struct work_row *row = &place->rows[i];

            memcpy(base + (size_t)row->out[0] * WORK_ALIGN, base + (size_t)row->in[0] * WORK_ALIGN,
                   (size_t)row->n_records * FAKE_RECORD);
            result.out_size[0] += row->n_records * FAKE_RECORD;
        }
    } else if (entry->kind == WORK_FINISH) {
        result.out_size[0] = FAKE_RECORD;
        memset(at(link, entry->ref[1]), 0, FAKE_RECORD);
    }
    result.end_ns = now_ns();
    result.device_ns = result.end_ns - result.start_ns;
    link->config.on_done(link->config.owner, place->chunk, &result, fails ? "it had to" : "");
    free(place);
}

static bool may_do(void)
{
    return !atomic_load(&is_held) || atomic_load(&n_let) > 0;
}

void worker_link_poll(struct worker_link *link)
{
    for (uint32_t n = atomic_exchange(&dies, false) ? link->n : 0; n > 0; n--) {
        struct place *place = take(link);

        link->config.on_lost(link->config.owner, place->chunk, "the worker died");
        free(place);
    }
    while (link->first != NULL && may_do()) {
        if (atomic_load(&is_held)) {
            atomic_fetch_sub(&n_let, 1);
        }
        do_one(link);
    }
}

bool worker_link_sleep(struct worker_link *link)
{
    return !atomic_load(&dies) && (link->first == NULL || !may_do());
}

void worker_link_awake(struct worker_link *link)
{
    (void)link;
}

uint64_t worker_link_starts(const struct worker_link *link)
{
    (void)link;
    return 1;
}

uint64_t worker_link_deaths(const struct worker_link *link)
{
    (void)link;
    return 0;
}
