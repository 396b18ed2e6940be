/*
 * Fuzz target: the queues of a ring, both sides, and a third who writes anywhere in their memory.
 *
 * The input is the index to start from and then one operation after the other.  A model that knows
 * the layout from PROTOCOL.md alone says beforehand what each must return, whatever the memory
 * holds by then.
 */
#include "proto/ring.h"
#include "proto/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define ENTRIES    1024u
#define BATCH_MAX  (256u * 8)
#define ENTRY_SIZE 64u
#define RING_WORD  0x52505047u /* "GPPR", what a ring begins with */

/* Where things are: bytes. */
enum place {
    MAGIC = 0,
    FIRST_INDEX = 8,
    SQ = 16,
    CQ = 20,
    HEADER_END = 24,
    FRONT_END_SLEEP = 64,
    CLIENT_SLEEP = 128,
    SQ_TAIL = 192,
    SQ_ENTRIES = SQ_TAIL + 64,
    CQ_TAIL = SQ_ENTRIES + ENTRIES * ENTRY_SIZE,
    CQ_HEAD = CQ_TAIL + 64,
    CQ_ENTRIES = CQ_TAIL + 128,
    END = CQ_ENTRIES + ENTRIES * ENTRY_SIZE,
};

/* What either side must know for itself. */
struct side {
    struct ring *ring;
    uint32_t tail, shown, head;
    uint32_t n_unreaped;
};

struct play {
    const uint8_t *bytes;
    size_t n_left;
    struct side front, client;
    uint8_t *shared;
    uint32_t n_words; /* of entries so far */
    uint8_t header[HEADER_END];
};

/* ---- input and memory ----------------------------------------------------------------------- */

static uint8_t next_byte(struct play *play)
{
    if (play->n_left == 0) {
        return 0;
    }
    play->n_left--;
    return *play->bytes++;
}

static uint32_t next_u32(struct play *play)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++) {
        value = value << 8 | next_byte(play);
    }
    return value;
}

/* Mostly a few, at times more than a queue holds. */
static uint32_t next_count(struct play *play)
{
    uint8_t byte = next_byte(play);

    return byte < 128 ? byte % 20u : byte * 8u;
}

static uint32_t get(const struct play *play, size_t at)
{
    uint32_t value;

    memcpy(&value, play->shared + at, sizeof(value));
    return value;
}

static void set(struct play *play, size_t at, uint32_t value)
{
    memcpy(play->shared + at, &value, sizeof(value));
}

/* An entry of either queue: no two are alike. */
static void fill(struct play *play, void *entry)
{
    uint32_t words[ENTRY_SIZE / sizeof(uint32_t)];

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        words[i] = ++play->n_words * UINT32_C(0x9e3779b1);
    }
    memcpy(entry, words, sizeof(words));
}

/* ---- what must come of each operation ------------------------------------------------------- */

/* Room for max entries, and for one that nobody may write. */
static uint8_t copies[(BATCH_MAX + 1) * ENTRY_SIZE] __attribute__((aligned(8)));
static uint8_t poison[sizeof(copies)];

static void poison_copies(uint32_t max)
{
    memcpy(copies, poison, (max + 1) * ENTRY_SIZE);
}

static void must_stand_at(const struct play *play, size_t entries, uint32_t index,
                          const void *entry)
{
    MUST(memcmp(play->shared + entries + index % ENTRIES * ENTRY_SIZE, entry, ENTRY_SIZE) == 0);
}

/* The entries from a reader's head on: of n_ready, which may be no more than n_possible. */
static void must_have_read(const struct play *play, size_t entries, struct side *side, int n,
                           uint32_t n_ready, uint32_t n_possible, uint32_t max)
{
    size_t n_bytes;

    MUST(n == (n_ready > n_possible ? RING_BROKEN : (int)MIN(n_ready, max)));
    for (int i = 0; i < n; i++) {
        must_stand_at(play, entries, side->head++, copies + (size_t)i * ENTRY_SIZE);
    }
    n_bytes = (size_t)MAX(n, 0) * ENTRY_SIZE;
    MUST(memcmp(copies + n_bytes, poison, (max + 1) * ENTRY_SIZE - n_bytes) == 0);
}

/* A publisher with anything new shows it, and rings if the other side sleeps. */
static void must_have_published(struct play *play, struct side *side, bool rings, size_t tail,
                                bool is_asleep, size_t sleep)
{
    bool is_news = side->shown != side->tail;

    MUST(rings == (is_news && is_asleep));
    if (is_news) {
        MUST(get(play, tail) == side->tail);
        MUST(get(play, sleep) == 0);
        side->shown = side->tail;
    }
}

static void must_have_slept(const struct play *play, bool sleeps, bool has_news, size_t flag)
{
    MUST(sleeps == !has_news);
    MUST(get(play, flag) == sleeps);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void do_submit(struct play *play)
{
    uint32_t n = next_count(play);
    struct side *client = &play->client;
    struct ring_desc desc;

    MUST(ring_submit_room(client->ring) == ENTRIES - client->n_unreaped);
    for (; n > 0 && ring_submit_room(client->ring) > 0; n--) {
        fill(play, &desc);
        ring_submit(client->ring, &desc);
        must_stand_at(play, SQ_ENTRIES, client->tail++, &desc);
        client->n_unreaped++;
    }
}

static void do_submit_publish(struct play *play)
{
    bool is_asleep = get(play, FRONT_END_SLEEP) != 0;

    must_have_published(play, &play->client, ring_submit_publish(play->client.ring), SQ_TAIL,
                        is_asleep, FRONT_END_SLEEP);
}

static void do_take(struct play *play)
{
    struct side *front = &play->front;
    uint32_t max = next_count(play), n_ready = get(play, SQ_TAIL) - front->head;
    int n;

    poison_copies(max);
    n = ring_take(front->ring, (struct ring_desc *)copies, max);
    must_have_read(play, SQ_ENTRIES, front, n, n_ready, ENTRIES, max);
}

/* As many as asked for, if the client's head says that there is room. */
static void do_complete(struct play *play)
{
    uint32_t n = next_count(play);
    struct side *front = &play->front;
    uint32_t n_used = front->tail - get(play, CQ_HEAD);
    int room = ring_room(front->ring);
    struct ring_completion completion;

    MUST(room == (n_used > ENTRIES ? RING_BROKEN : (int)(ENTRIES - n_used)));
    for (; n > 0 && room > 0; n--, room--) {
        fill(play, &completion);
        ring_complete(front->ring, &completion, 1);
        must_stand_at(play, CQ_ENTRIES, front->tail++, &completion);
    }
}

static void do_publish(struct play *play)
{
    bool is_asleep = get(play, CLIENT_SLEEP) != 0;

    must_have_published(play, &play->front, ring_publish(play->front.ring), CQ_TAIL, is_asleep,
                        CLIENT_SLEEP);
}

static void do_reap(struct play *play)
{
    struct side *client = &play->client;
    uint32_t max = next_count(play), n_ready = get(play, CQ_TAIL) - client->head;
    uint32_t head = get(play, CQ_HEAD);
    bool is_cleared = get(play, MAGIC) != RING_WORD;
    int n;

    poison_copies(max);
    n = ring_reap(client->ring, (struct ring_completion *)copies, max);
    if (is_cleared && (n_ready > client->n_unreaped || MIN(n_ready, max) > 0)) {
        MUST(n == RING_CLEARED && get(play, CQ_HEAD) == head);
        return;
    }
    must_have_read(play, CQ_ENTRIES, client, n, n_ready, client->n_unreaped, max);
    client->n_unreaped -= (uint32_t)MAX(n, 0);
    MUST(get(play, CQ_HEAD) == (n <= 0 ? head : client->head));
}

static void do_sleep(struct play *play)
{
    bool has_news = get(play, SQ_TAIL) != play->front.head;

    must_have_slept(play, ring_sleep(play->front.ring), has_news, FRONT_END_SLEEP);
}

static void do_client_sleep(struct play *play)
{
    bool has_news = get(play, CQ_TAIL) != play->client.head;

    must_have_slept(play, ring_client_sleep(play->client.ring), has_news, CLIENT_SLEEP);
}

static void do_awake(struct play *play)
{
    ring_awake(play->front.ring);
    MUST(get(play, FRONT_END_SLEEP) == 0);
}

static void do_client_awake(struct play *play)
{
    ring_client_awake(play->client.ring);
    MUST(get(play, CLIENT_SLEEP) == 0);
}

/* An index, to near where it is or anywhere. */
static void do_nudge(struct play *play)
{
    static const size_t indices[] = {SQ_TAIL, CQ_TAIL, CQ_HEAD, FIRST_INDEX};
    uint8_t byte = next_byte(play);
    size_t at = indices[byte % ARRAY_SIZE(indices)];
    uint32_t by = (byte & 4) != 0 ? next_u32(play) : next_count(play);

    set(play, at, (byte & 8) != 0 ? get(play, at) - by : get(play, at) + by);
}

static void do_overwrite(struct play *play)
{
    size_t at = next_u32(play) % (END / sizeof(uint32_t)) * sizeof(uint32_t);

    set(play, at, next_u32(play));
}

/* Another client in its place, unless the header is not what it was but for the first index. */
static void do_attach(struct play *play)
{
    uint32_t first_index = get(play, FIRST_INDEX);
    struct ring *ring = NULL;
    int r;

    memcpy(play->header + FIRST_INDEX, &first_index, sizeof(first_index));
    r = ring_attach(ring_fd(play->front.ring), &ring);
    if (memcmp(play->header, play->shared, sizeof(play->header)) != 0) {
        MUST(r == -EINVAL && ring == NULL);
        return;
    }
    MUST(r == 0);
    ring_destroy(play->client.ring);
    play->client = (struct side){ring, first_index, first_index, first_index, 0};
}

static void (*const operations[])(struct play *play) = {
    do_submit, do_submit_publish, do_take,         do_complete, do_publish,   do_reap,   do_sleep,
    do_awake,  do_client_sleep,   do_client_awake, do_nudge,    do_overwrite, do_attach,
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct play play = {.bytes = bytes, .n_left = size};
    uint32_t first_index = next_u32(&play);
    struct ring *front, *client;
    void *shared;

    memset(poison, 0xa5, sizeof(poison));
    MUST(ring_size() >= END);
    MUST(ring_create_at(first_index, &front) == 0);
    MUST(ring_attach(ring_fd(front), &client) == 0);
    shared = mmap(NULL, ring_size(), PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd(front), 0);
    MUST(shared != MAP_FAILED);
    play.shared = shared;
    memcpy(play.header, play.shared, sizeof(play.header));
    MUST(get(&play, SQ) == SQ_TAIL && get(&play, CQ) == CQ_TAIL);
    play.front = (struct side){front, first_index, first_index, first_index, 0};
    play.client = (struct side){client, first_index, first_index, first_index, 0};
    while (play.n_left > 0) {
        operations[next_byte(&play) % ARRAY_SIZE(operations)](&play);
    }
    munmap(shared, ring_size());
    ring_destroy(play.client.ring);
    ring_destroy(play.front.ring);
    return 0;
}
