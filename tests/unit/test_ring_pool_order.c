/* The ring pool: in any order of everything, no byte of one user's is ever another's. */
#include "tests/unit/ring_pool_bench.h"

enum { N_CLIENTS = 12, N_UIDS = 3, N_KEPT = 48 };

static struct client clients[N_CLIENTS];
static uid_t uids[N_CLIENTS];
static struct {
    struct mapping mapping;
    uid_t uid;
} kept[N_KEPT];
static unsigned n_kept, n_stamped;

/* Users write their own number only, into all they ever mapped. */
static void check_and_stamp(const struct client *client, uid_t uid)
{
    struct mapping mapping;

    if (n_kept == N_KEPT) {
        unsigned i = (unsigned)random_below(N_KEPT);

        unmap(&kept[i].mapping);
        kept[i] = kept[--n_kept];
    }
    map(&mapping, client);
    kept[n_kept].mapping = mapping;
    kept[n_kept++].uid = uid;
    for (size_t i = 0; i < mapping.size; i += 512) {
        CHECK(mapping.base[i] == 0 || mapping.base[i] == uid);
    }
    memset(mapping.base, (int)uid, mapping.size);
    n_stamped++;
}

static void unmap_kept(void *arg)
{
    (void)arg;
    while (n_kept > 0) {
        unmap(&kept[--n_kept].mapping);
    }
}

/* A client opens or closes, a user goes, an old mapping is written to, or the table answers. */
static void act(void)
{
    unsigned i = (unsigned)random_below(N_CLIENTS);

    switch (random_below(8)) {
    case 0:
        ring_pool_forget(pool, connection_of((uid_t)(1 + random_below(N_UIDS))));
        return;
    case 1:
        is_urgent = random_below(4) == 0;
        return;
    case 2:
        if (n_kept > 0) {
            i = (unsigned)random_below(n_kept);
            memset(kept[i].mapping.base, (int)kept[i].uid, kept[i].mapping.size);
        }
        return;
    case 3:
        say_all();
        return;
    case 4:
        table.is_quick = random_below(2) == 0;
        table.is_chatty = random_below(2) == 0;
        return;
    default:
        break;
    }
    if (clients[i].lease != NULL) {
        close_ring(&clients[i]);
        return;
    }
    uids[i] = (uid_t)(1 + random_below(N_UIDS));
    if (open_on(&clients[i], uids[i], 1 + random_below(4 * MIB), -1) == 0) {
        clients[i].n_done = 1;
    }
    clients[i].leaves = random_below(4) == 0;
}

static void test_any_order_of_everything(void)
{
    begin(&(struct ring_pool_config){.size = 16 * MIB, .idle_ms = 2, .patience_ms = 1});
    check_at_end(unmap_kept, NULL);
    memset(clients, 0, sizeof(clients));
    n_stamped = 0;
    for (unsigned i = 0; i < 6000; i++) {
        act();
        if (random_below(4) == 0) {
            uv_run(&loop, UV_RUN_NOWAIT);
        } else if (random_below(2) == 0) {
            settle();
        }
        size_t used = 0;
        for (unsigned k = 0; k < N_CLIENTS; k++) {
            if (clients[k].lease != NULL && clients[k].n_done > 0) {
                used += ring_lease_size(clients[k].lease);
                if (clients[k].n_done == 1) {
                    clients[k].n_done++; /* once for each lease */
                    check_and_stamp(&clients[k], uids[k]);
                }
            }
        }
        CHECK_EQ(ring_pool_used(pool), used);
        CHECK_LE(ring_pool_size(pool), 16 * MIB);
    }
    for (unsigned k = 0; k < N_CLIENTS; k++) {
        close_ring(&clients[k]);
    }
    is_urgent = false;
    table.is_quick = true;
    say_all();
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(ring_pool_size(pool), 0);
    CHECK_GT(n_stamped, 500); /* it did do something */
}

CHECK_MAIN(CHECK_TEST(test_any_order_of_everything))
