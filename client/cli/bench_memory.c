/*
 * Where the data of a benchmark's pushes lie.
 *
 * Threads: one.
 */
#include "client/cli/bench_memory.h"

#include "proto/util.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t power_of_two(uint64_t size)
{
    uint64_t power = BENCH_ALIGN;

    while (power < size) {
        power *= 2;
    }
    return power;
}

/* Others may have the memory, now or for good: then a smaller ring will do. */
static int open_ring(struct gpupipe *gpupipe, const char *device, uint64_t least, uint64_t size,
                     struct gpupipe_ring **ret_ring, uint64_t *ret_size)
{
    int status;

    while ((status = gpupipe_ring_open(ret_ring, gpupipe, size, device)) < 0) {
        bool is_too_large = status == GPUPIPE_ERROR_BUSY || status == GPUPIPE_ERROR_QUOTA ||
                            status == GPUPIPE_ERROR_TOO_BIG;

        if (!is_too_large || size / 2 < least) {
            return cli_failure(gpupipe_last_error(gpupipe));
        }
        size /= 2;
    }
    *ret_size = size;
    return CLI_OK;
}

static int open_private(uint64_t size, struct bench_memory *ret_memory)
{
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED) {
        cli_error("cannot have memory for pushes: %s", strerror(errno));
        return CLI_FAILED;
    }
    *ret_memory = (struct bench_memory){.bytes = bytes, .size = size};
    return CLI_OK;
}

int bench_memory_open(struct gpupipe *gpupipe, bool is_inline, const char *device, uint64_t least,
                      uint64_t wanted, struct bench_memory *ret_memory)
{
    uint64_t size = MAX(wanted, least);
    struct bench_memory memory = {0};
    int rc;

    size = power_of_two(MAX(size, BENCH_MEMORY_LEAST));
    size = MIN(size, BENCH_MEMORY_MOST);
    if (is_inline) {
        return open_private(size, ret_memory);
    }
    rc = open_ring(gpupipe, device, least, size, &memory.ring, &memory.size);
    if (rc != CLI_OK) {
        return rc;
    }
    memory.bytes = gpupipe_ring_alloc(memory.ring, memory.size);
    if (memory.bytes == NULL) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    *ret_memory = memory;
    return CLI_OK;
}

void bench_memory_free(struct bench_memory *memory)
{
    if (memory->bytes != NULL && memory->ring == NULL) {
        munmap(memory->bytes, memory->size);
    }
}
