/*
 * Own party: see own_party.h.  The memory is bulk's, and behind it the small jobs' slots.
 */
#include "tests/bench/own_party.h"

#include "proto/util.h"
#include "tests/bench/direct.h"
#include "tests/bench/mapped.h"
#include "tests/bench/must.h"
#include "tests/bench/pace.h"
#include "tests/bench/party.h"
#include "tests/bench/words.h"

#include <pthread.h>

#define SMALL_MAX    (64u << 10)
#define SLOTS        PACE_SLOTS_MAX
#define COPY_SLOTS   DIRECT_DEPTH_MAX /* a stream and an event each */
#define STREAMS      "32"             /* that the device tells apart: bulk's and those */
#define BULK_IN_TURN (64u << 20)      /* of chunks of 4 MiB: more would only take longer to fill */

static const struct {
    size_t chunk_size;
    uint32_t depth;
} bulk_shapes[] = {
    [OWN_PIPELINE] = {4u << 20, 4},
    [OWN_QUEUED_8] = {64u << 20, 8},
    [OWN_QUEUED_16] = {64u << 20, 16},
};

struct own_party {
    uint8_t *in;
    uint8_t *out;
    size_t bulk_size;
    struct direct *direct; /* bulk's memory */
    struct direct_plan *bulk_plans[OWN_BULKS];
    struct direct_plan *small_plan; /* for copies, of small_size */
    uint32_t small_size;
    struct subject small_subject;
    struct words words;
    struct mapped *mapped;
    struct pace *pace;
    uint32_t flying[SLOTS]; /* in the order in which they were sent */
    uint32_t n_flying;
    uint32_t n_taken; /* of mapped jobs, ever */
    const struct party_order *order;
    uint64_t n_bulk_chunks; /* that a run has done in its time */
    uint64_t n_bulk_all;
};

static enum own_bulk bulk_of(const struct party_order *order)
{
    return order->what % OWN_BULKS;
}

static enum own_small small_of(const struct party_order *order)
{
    return order->what / OWN_BULKS;
}

/* ---- small jobs ----------------------------------------------------------------------------- */

static void send_mapped(void *state, uint32_t slot)
{
    struct own_party *party = state;

    party->flying[party->n_flying++] = slot;
    mapped_send(party->mapped, party->bulk_size + slot * party->small_size, party->small_size);
}

static uint32_t forget_first(struct own_party *party, uint32_t n, uint32_t *ret_slots)
{
    for (uint32_t i = 0; i < n; i++) {
        ret_slots[i] = party->flying[i];
    }
    party->n_flying -= n;
    for (uint32_t i = 0; i < party->n_flying; i++) {
        party->flying[i] = party->flying[i + n];
    }
    return n;
}

static uint32_t take_mapped(void *state, uint32_t *ret_slots, uint32_t max)
{
    struct own_party *party = state;
    uint32_t n = MIN(mapped_n_done(party->mapped) - party->n_taken, max);

    party->n_taken += n;
    return forget_first(party, n, ret_slots);
}

static void send_copies(void *state, uint32_t slot)
{
    struct own_party *party = state;

    party->flying[party->n_flying++] = slot;
    direct_send(party->small_plan, slot);
}

/* In the order of sending: those behind the first that is not done have it no better. */
static uint32_t take_copies(void *state, uint32_t *ret_slots, uint32_t max)
{
    struct own_party *party = state;
    uint32_t n = 0;

    while (n < MIN(party->n_flying, max) && direct_is_done(party->small_plan, party->flying[n])) {
        n++;
    }
    return forget_first(party, n, ret_slots);
}

static void prepare_pace(struct own_party *party, const struct party_order *order)
{
    bool is_mapped = small_of(order) == OWN_MAPPED;
    const struct pace_plan plan = {
        .way = {.send = is_mapped ? send_mapped : send_copies,
                .take = is_mapped ? take_mapped : take_copies,
                .state = party},
        .in = party->in + party->bulk_size,
        .out = party->out + party->bulk_size,
        .size = order->size,
        .n_slots = is_mapped ? SLOTS : COPY_SLOTS,
        .rate = order->rate,
    };

    pace_create(&plan, &party->pace);
}

static void prepare_small(struct own_party *party, const struct party_order *order)
{
    enum own_small small = small_of(order);
    const struct direct_shape shape = {.subject = &party->small_subject,
                                       .chunk_size = order->size,
                                       .first = party->bulk_size,
                                       .depth = COPY_SLOTS,
                                       .wait = DIRECT_EVENTS,
                                       .is_urgent = true};

    party->small_size = order->size;
    party->small_subject = subject_copy;
    party->small_subject.record_size = MIN(order->size, subject_copy.record_size);
    party->small_subject.value = party->small_subject.record_size;
    if (small == OWN_COPIES || small == OWN_ONE_COPIES) {
        direct_plan_create(party->direct, &shape, &party->small_plan);
    }
    if (small == OWN_MAPPED || small == OWN_COPIES) {
        prepare_pace(party, order);
    }
}

/* ---- one by one ----------------------------------------------------------------------------- */

static void step(struct own_party *party, uint32_t number)
{
    uint32_t slot = number % COPY_SLOTS;
    size_t at = party->bulk_size + slot * party->small_size;

    words_write(&party->words, number, party->in + at, party->small_size);
    if (party->small_plan != NULL) {
        direct_step(party->small_plan, slot);
    } else {
        mapped_step(party->mapped, at, party->small_size);
        party->n_taken++;
    }
    words_check(&party->words, number, "one by one", party->out + at, party->small_size);
}

static uint64_t run_one_by_one(struct own_party *party, const struct party_order *order)
{
    uint64_t n = 0, now = 0;

    words_fill(&party->words);
    for (uint32_t i = 0; now < order->to_ns; i++) {
        step(party, i);
        now = now_ns();
        n += now >= order->from_ns && now < order->to_ns;
    }
    return n;
}

/* ---- bulk ----------------------------------------------------------------------------------- */

static size_t bulk_used(const struct own_party *party, enum own_bulk bulk)
{
    return bulk == OWN_PIPELINE ? MIN(party->bulk_size, (size_t)BULK_IN_TURN) : party->bulk_size;
}

static void prepare_bulk(struct own_party *party, enum own_bulk bulk)
{
    const struct direct_shape shape = {.subject = &subject_copy,
                                       .chunk_size = bulk_shapes[bulk].chunk_size,
                                       .depth = bulk_shapes[bulk].depth,
                                       .wait = DIRECT_EVENTS};

    if (party->bulk_plans[bulk] == NULL) {
        direct_plan_create(party->direct, &shape, &party->bulk_plans[bulk]);
    }
    subject_fill(party->in, bulk_used(party, bulk));
    bench_poison(party->out, bulk_used(party, bulk));
}

static void *run_bulk(void *state)
{
    struct own_party *party = state;
    const struct party_order *order = party->order;
    enum own_bulk bulk = bulk_of(order);
    uint32_t n_chunks = (uint32_t)(bulk_used(party, bulk) / bulk_shapes[bulk].chunk_size);

    party->n_bulk_chunks =
        direct_run_until(party->bulk_plans[bulk], n_chunks, order->from_ns, order->to_ns,
                         order->to_ns + PARTY_AFTER_NS, &party->n_bulk_all);
    return NULL;
}

/* ---- orders --------------------------------------------------------------------------------- */

static void forget_small(struct own_party *party)
{
    if (party->pace != NULL) {
        pace_destroy(party->pace);
    }
    direct_plan_destroy(party->small_plan);
    party->pace = NULL;
    party->small_plan = NULL;
}

static void prepare(void *state, const struct party_order *order)
{
    struct own_party *party = state;

    forget_small(party);
    if (small_of(order) != OWN_NO_SMALL) {
        prepare_small(party, order);
    }
    if (bulk_of(order) != OWN_NO_BULK) {
        prepare_bulk(party, bulk_of(order));
    }
}

static void run(void *state, const struct party_order *order, struct party_answer *answer)
{
    struct own_party *party = state;
    enum own_bulk bulk = bulk_of(order);
    pthread_t thread;

    party->order = order;
    if (bulk != OWN_NO_BULK && pthread_create(&thread, NULL, run_bulk, party) != 0) {
        bench_fail("no thread for bulk");
    }
    if (party->pace != NULL) {
        pace_run(party->pace, order->from_ns, order->to_ns, &answer->histogram);
    } else if (small_of(order) != OWN_NO_SMALL) {
        answer->n_bytes = run_one_by_one(party, order) * order->size;
    }
    if (bulk != OWN_NO_BULK) {
        pthread_join(thread, NULL);
        answer->n_bytes += party->n_bulk_chunks * bulk_shapes[bulk].chunk_size;
        subject_copy.check(
            "own bulk", party->out, party->in,
            MIN(bulk_used(party, bulk), party->n_bulk_all * bulk_shapes[bulk].chunk_size));
    }
}

static uint8_t *allocate(size_t size)
{
    uint8_t *memory = bench_allocate(size);

    bench_poison(memory, size);
    return memory;
}

void own_party_serve(size_t bulk_size, const char *fd, const char *answer_fd)
{
    static struct own_party party;
    const struct party_side side = {prepare, run, &party};
    size_t size = bulk_size + (size_t)SLOTS * SMALL_MAX;
    struct party_answer *answer;
    int joined = party_join(fd, answer_fd, &answer);

    setenv("CUDA_DEVICE_MAX_CONNECTIONS", STREAMS, 0);
    party.bulk_size = bulk_size;
    party.in = allocate(size);
    party.out = allocate(size);
    direct_open(party.in, party.out, size, &party.direct);
    mapped_open(party.in, party.out, &party.mapped);
    party_serve(joined, answer, &side);
}
