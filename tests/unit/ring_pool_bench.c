/*
 * The ring pool's bench: see ring_pool_bench.h.
 */
#include "tests/unit/ring_pool_bench.h"

#include "daemon/log.h"
#include "proto/shm.h"

#include <stdarg.h>

/* ---- the fake table ------------------------------------------------------------------------- */

struct segments table;

void say_usable(uint32_t id)
{
    table.all[id].is_usable = true;
    table.all[id].watch.on_usable(table.all[id].watch.owner, id);
}

void say_gone(uint32_t id)
{
    table.all[id].watch.on_gone(table.all[id].watch.owner, id, table.all[id].fd);
    close(table.all[id].fd);
    table.all[id].is_used = false;
}

int segments_add(struct segments *segments, int fd, size_t size, const struct segment_watch *watch,
                 uint32_t *ret_id)
{
    uint32_t id = 0;
    struct stat stat;

    if (segments->add_error < 0) {
        return segments->add_error;
    }
    while (segments->all[id].is_used) {
        id++;
    }
    if (id == N_IDS || fstat(fd, &stat) < 0 || (size_t)stat.st_size != size ||
        (size_t)stat.st_blocks * 512 < size) {
        abort();
    }
    segments->all[id].is_used = true;
    segments->all[id].is_usable = segments->all[id].is_dropping = false;
    segments->all[id].fd = fd;
    segments->all[id].watch = *watch;
    segments->n_added++;
    segments->last_added = id;
    if (segments->is_quick) {
        say_usable(id);
    }
    *ret_id = id;
    return 0;
}

void segments_drop(struct segments *segments, uint32_t id)
{
    if (!segments->all[id].is_used || segments->all[id].is_dropping) {
        abort();
    }
    segments->all[id].is_dropping = true;
    if (segments->is_chatty) {
        say_all();
    } else if (segments->is_quick) {
        say_gone(id);
    }
}

unsigned n_dropping(void)
{
    unsigned n = 0;

    for (uint32_t id = 0; id < N_IDS; id++) {
        n += table.all[id].is_used && table.all[id].is_dropping;
    }
    return n;
}

void say_all(void)
{
    for (uint32_t id = 0; id < N_IDS; id++) {
        if (table.all[id].is_used && table.all[id].is_dropping) {
            say_gone(id);
        } else if (table.all[id].is_used && !table.all[id].is_usable) {
            say_usable(id);
        }
    }
}

char last_warning[256];

void log_message(enum log_level level, const char *format, ...)
{
    va_list args;

    (void)level;
    va_start(args, format);
    vsnprintf(last_warning, sizeof(last_warning), format, args);
    va_end(args);
}

/* ---- the bench ------------------------------------------------------------------------------ */

uv_loop_t loop;
struct ring_pool *pool;
bool is_urgent;
unsigned which_connection;

static void on_done(void *owner, const struct failure *failure)
{
    struct client *client = owner;

    client->n_done++;
    if (failure != NULL) {
        client->has_failed = true;
        client->failure = *failure;
        client->lease = NULL;
    } else if (client->leaves) {
        close_ring(client);
    }
}

static bool has_urgent(void *owner)
{
    (void)owner;
    return is_urgent;
}

void settle(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
    while (loop.active_reqs.count > 0) {
        uv_run(&loop, UV_RUN_ONCE);
    }
}

void end(void *arg)
{
    (void)arg;
    is_urgent = false;
    ring_pool_close(pool);
    do {
        settle();
        say_all();
    } while (loop.active_reqs.count > 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ring_pool_destroy(pool);
    for (uint32_t id = 0; id < N_IDS; id++) {
        if (table.all[id].is_used) {
            close(table.all[id].fd);
        }
    }
    if (uv_loop_close(&loop) != 0) {
        abort();
    }
}

void begin(const struct ring_pool_config *partial)
{
    struct ring_pool_config config = *partial;

    memset(&table, 0, sizeof(table));
    last_warning[0] = '\0';
    is_urgent = false;
    CHECK_EQ(uv_loop_init(&loop), 0);
    config.loop = &loop;
    config.segments = &table;
    config.has_urgent = has_urgent;
    CHECK_EQ(ring_pool_create(&config, &pool), 0);
    which_connection = 0;
    check_at_end(end, NULL);
}

/* libuv opens some descriptors once for all loops: no test's. */
__attribute__((constructor)) static void warm_up(void)
{
    if (uv_loop_init(&loop) != 0 || uv_loop_close(&loop) != 0) {
        abort();
    }
}

uint64_t connection_of(uid_t uid)
{
    return (uint64_t)uid << 8 | which_connection;
}

int open_on(struct client *client, uid_t uid, uint64_t size, int node)
{
    const struct ring_holder holder = {uid, connection_of(uid)};

    memset(client, 0, sizeof(*client));
    return ring_pool_lease(pool, &holder, size, node, on_done, client, &client->lease,
                           &client->failure);
}

void open_ring(struct client *client, uid_t uid, size_t size)
{
    int r = open_on(client, uid, size, -1);

    CHECK_GE(r, 0);
    settle();
    CHECK_EQ(client->n_done, r == RING_POOL_LATER ? 1 : 0);
    CHECK(!client->has_failed);
}

void close_ring(struct client *client)
{
    ring_pool_release(pool, STEAL(client->lease));
}

ino_t identity(const struct client *client)
{
    struct stat stat;

    CHECK_EQ(fstat(ring_lease_fd(client->lease), &stat), 0);
    CHECK_EQ(stat.st_size, ring_lease_size(client->lease));
    return stat.st_ino;
}

void unmap(void *arg)
{
    struct mapping *mapping = arg;

    shm_unmap(mapping->base, mapping->size);
}

void map(struct mapping *mapping, const struct client *client)
{
    void *base;

    mapping->size = ring_lease_size(client->lease);
    CHECK_EQ(shm_map(ring_lease_fd(client->lease), mapping->size, &base), 0);
    mapping->base = base;
}

uint8_t *map_for_ever(struct mapping *mapping, const struct client *client)
{
    map(mapping, client);
    check_at_end(unmap, mapping);
    return mapping->base;
}

bool is_all(const uint8_t *bytes, size_t size, uint8_t value)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}
