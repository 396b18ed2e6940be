#include "tests/unit/ring_bench.h"

#include "tests/check.h"

#include <sys/mman.h>

static void destroy(void *arg)
{
    struct ring_bench *bench = arg;

    if (bench->shared != NULL) {
        munmap(bench->shared, ring_size());
    }
    ring_destroy(bench->client);
    ring_destroy(bench->front);
    free(bench);
}

struct ring_bench *ring_bench_new(uint32_t first_index)
{
    struct ring_bench *bench = calloc(1, sizeof(*bench));
    void *shared;

    check_at_end(destroy, bench);
    CHECK_EQ(ring_create_at(first_index, &bench->front), 0);
    CHECK_EQ(ring_attach(ring_fd(bench->front), &bench->client), 0);
    shared = mmap(NULL, ring_size(), PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd(bench->front), 0);
    CHECK(shared != MAP_FAILED);
    bench->shared = shared;
    return bench;
}

uint32_t ring_bench_get(const struct ring_bench *bench, size_t at)
{
    return __atomic_load_n((const uint32_t *)(bench->shared + at), __ATOMIC_SEQ_CST);
}

void ring_bench_set(const struct ring_bench *bench, size_t at, uint32_t value)
{
    __atomic_store_n((uint32_t *)(bench->shared + at), value, __ATOMIC_SEQ_CST);
}

size_t ring_bench_sq(const struct ring_bench *bench, size_t at)
{
    return ring_bench_get(bench, RING_AT_SQ) + at;
}

size_t ring_bench_cq(const struct ring_bench *bench, size_t at)
{
    return ring_bench_get(bench, RING_AT_CQ) + at;
}
