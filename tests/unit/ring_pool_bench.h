/*
 * A bench for the ring pool: a loop, a table of segments that is a fake and answers at once or when
 * the test says so, and clients that map what they get.
 */
#pragma once

#include "daemon/ring_pool.h"
#include "proto/limits.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <sys/stat.h>

#define MIB     ((size_t)1 << 20)
#define DEFAULT ((size_t)LIMIT_RING_SIZE_DEFAULT)
#define NEVER   0x40000000u /* ms */
#define N_IDS   64

struct segments {
    struct {
        bool is_used, is_usable, is_dropping;
        int fd;
        struct segment_watch watch;
    } all[N_IDS];
    bool is_quick;  /* answers from within the call */
    bool is_chatty; /* and for others as well */
    int add_error;
    unsigned n_added;
    uint32_t last_added;
};

extern struct segments table;
extern uv_loop_t loop;
extern struct ring_pool *pool;
extern bool is_urgent;
extern char last_warning[256];

/* The table's answers; all that are due. */
void say_usable(uint32_t id);
void say_gone(uint32_t id);
void say_all(void);
unsigned n_dropping(void);

/* Loop and pool, until the test's end; or until end(). */
void begin(const struct ring_pool_config *partial);
void end(void *arg);
/* Until no thread works for the pool and nothing is due at once. */
void settle(void);

/* What one ring.open would hold. */
struct client {
    struct ring_lease *lease;
    unsigned n_done;
    bool has_failed;
    bool leaves; /* closes it from within the callback */
    struct failure failure;
};

/* Users have several connections: which of them opens from here on; the first at begin(). */
extern unsigned which_connection;
uint64_t connection_of(uid_t uid);

int open_on(struct client *client, uid_t uid, uint64_t size, int node);
/* And wait until it is ready. */
void open_ring(struct client *client, uid_t uid, size_t size);
void close_ring(struct client *client);
/* The same for the same segment only. */
ino_t identity(const struct client *client);

struct mapping {
    uint8_t *base;
    size_t size;
};

void map(struct mapping *mapping, const struct client *client);
void unmap(void *mapping);
/* As a client would, who keeps it to the end of the test. */
uint8_t *map_for_ever(struct mapping *mapping, const struct client *client);
bool is_all(const uint8_t *bytes, size_t size, uint8_t value);
