/*
 * Ring client: sleeps and wakes as PROTOCOL.md says.
 */
#include "tests/ring_client.h"

#include "proto/channel.h"
#include "proto/status.h"
#include "tests/check.h"
#include "tests/random.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEADLINE_MS = 50000 };

static void close_at_end(void *arg)
{
    struct ring_client *client = arg;

    ring_destroy(client->queues);
    munmap(client->shared, client->shared_size);
    munmap(client->data, client->size);
    close(client->queues_fd);
    close(client->data_fd);
    close(client->doorbell_fd);
    free(client);
}

static void *map(int fd, size_t size)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    CHECK(base != MAP_FAILED);
    return base;
}

struct ring_client *ring_client_opened(struct wire *wire, const msgpack_object *opened)
{
    struct ring_client *client = calloc(1, sizeof(*client));
    struct stat stat;

    CHECK_EQ(wire_number(opened, "layout"), RING_LAYOUT);
    CHECK_EQ(wire_number(opened, "entries"), RING_ENTRIES);
    CHECK_EQ(wire_number(opened, "align"), RING_ALIGN);
    client->wire = wire;
    client->id = (uint64_t)wire_number(opened, "ring");
    client->size = (uint64_t)wire_number(opened, "size");
    client->awake_ns = (uint64_t)wire_number(opened, "awake_ns");
    client->sq = (uint64_t)wire_number(opened, "sq");
    client->cq = (uint64_t)wire_number(opened, "cq");
    client->queues_fd = wire_take_fd(wire);
    client->data_fd = wire_take_fd(wire);
    client->doorbell_fd = wire_take_fd(wire);
    check_at_end(close_at_end, client);
    CHECK_EQ(fstat(client->queues_fd, &stat), 0);
    client->shared_size = (size_t)stat.st_size;
    client->shared = map(client->queues_fd, client->shared_size);
    client->data = map(client->data_fd, client->size);
    CHECK_EQ(ring_attach(client->queues_fd, &client->queues), 0);
    return client;
}

struct ring_client *ring_client_open(struct wire *wire, uint64_t size)
{
    return ring_client_opened(wire, wire_call(wire, "ring.open", "[%lu]", size));
}

void ring_client_submit(struct ring_client *client, const struct ring_desc *descs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        CHECK_GT(ring_submit_room(client->queues), 0);
        ring_submit(client->queues, &descs[i]);
    }
    if (ring_submit_publish(client->queues)) {
        channel_ring(client->doorbell_fd);
    }
}

struct ring_completion ring_client_reap(struct ring_client *client)
{
    struct ring_completion completion;
    int n;

    while ((n = ring_reap(client->queues, &completion, 1)) == 0) {
        struct pollfd bell = {.fd = client->doorbell_fd, .events = POLLIN};

        if (!ring_client_sleep(client->queues)) {
            continue;
        }
        if (poll(&bell, 1, DEADLINE_MS) == 0) {
            CHECK_FAIL("no completion within %d ms", DEADLINE_MS);
        }
        channel_drain(client->doorbell_fd, NULL);
        ring_client_awake(client->queues);
    }
    CHECK_EQ(n, 1);
    return completion;
}

void ring_client_is_empty(struct ring_client *client)
{
    struct ring_completion completion;

    CHECK_EQ(ring_reap(client->queues, &completion, 1), 0);
}

void ring_client_close(struct ring_client *client)
{
    wire_call(client->wire, "ring.close", "[%lu]", client->id);
}

uint64_t ring_client_open_copy(struct wire *wire, const char *options)
{
    char text[128];

    snprintf(text, sizeof(text), "['copy', {size: %d}, {inline: false%s}]", RING_CLIENT_BLOCK,
             options);
    return (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
}

struct ring_desc ring_client_copy(uint64_t job, size_t from, size_t to, uint32_t n)
{
    return (struct ring_desc){
        .job = (uint32_t)job,
        .n_records = n,
        .in = {(uint32_t)(from / RING_ALIGN)},
        .out = {(uint32_t)(to / RING_ALIGN)},
    };
}

void ring_client_check_works(struct ring_client *client, uint64_t job)
{
    size_t half = client->size / 2;
    struct ring_desc desc = ring_client_copy(job, 0, half, (uint32_t)(half / RING_CLIENT_BLOCK));

    random_bytes(client->data, half);
    memset(client->data + half, 0xa5, half);
    ring_client_submit(client, &desc, 1);
    struct ring_completion completion = ring_client_reap(client);
    CHECK_STR(status_name(completion.status), status_name(STATUS_OK));
    CHECK_MEM(client->data + half, client->data, half);
}
