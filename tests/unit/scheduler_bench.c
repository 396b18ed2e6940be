#include "tests/unit/scheduler_bench.h"

#include "proto/util.h"
#include "tests/check.h"

const struct worker_caps four_chunks = {.bulk_chunks = 4, .bulk_bytes = 16 * MIB};

struct scheduler_user users[200];
struct scheduler_rate rate;
struct scheduler_charge charges[8 * WORK_ENTRIES]; /* in flight */
size_t n_charges;
uint64_t at_ns;

struct scheduler make(void)
{
    struct scheduler scheduler;

    memset(users, 0, sizeof(users));
    rate = (struct scheduler_rate){.is_known = true};
    n_charges = 0;
    at_ns = 0;
    scheduler_init(&scheduler);
    scheduler_device_up(&scheduler, 0, &four_chunks);
    return scheduler;
}

struct flow flow_of(enum priority priority, uint64_t next_size)
{
    return (struct flow){.priority = priority,
                         .devices = SCHEDULER_ANY_DEVICE,
                         .user = &users[0],
                         .rate = &rate,
                         .next_size = next_size,
                         .next_link_size = next_size};
}

/* What goes next, where there is one device. */
struct flow *next_of(struct scheduler *scheduler)
{
    struct scheduler_place place = {.device = UINT32_MAX};
    struct flow *flow = scheduler_next(scheduler, at_ns, &place);

    CHECK_EQ(place.device, flow != NULL ? 0 : UINT32_MAX);
    return flow;
}

/* The chunk of this flow goes where it shall, and is on the books. */
void issue(struct scheduler *scheduler, struct flow *flow, const struct scheduler_place *place)
{
    CHECK_LT(n_charges, ARRAY_SIZE(charges));
    scheduler_issued(scheduler, flow, place, &charges[n_charges++]);
}

/* The oldest chunk of this priority and size comes back from this device. */
void done(struct scheduler *scheduler, enum priority priority, uint32_t device, uint64_t size)
{
    for (size_t i = 0; i < n_charges; i++) {
        struct scheduler_charge charge = charges[i];

        if (charge.place.priority == priority && charge.place.device == device &&
            charge.size == size) {
            memmove(&charges[i], &charges[i + 1], (--n_charges - i) * sizeof(charge));
            scheduler_done(scheduler, &charge, 0);
            return;
        }
    }
    CHECK_FAIL("no such chunk is in flight");
}

/* Take the next flow and issue its chunk. */
struct flow *step(struct scheduler *scheduler)
{
    struct scheduler_place place;
    struct flow *flow = scheduler_next(scheduler, at_ns, &place);

    if (flow != NULL) {
        issue(scheduler, flow, &place);
        CHECK_EQ(place.device, 0);
    }
    return flow;
}

/* Issue what goes next; returns the device, or -1 for none. */
int place(struct scheduler *scheduler)
{
    struct scheduler_place place;
    struct flow *flow = scheduler_next(scheduler, at_ns, &place);

    if (flow == NULL) {
        return -1;
    }
    issue(scheduler, flow, &place);
    return (int)place.device;
}
