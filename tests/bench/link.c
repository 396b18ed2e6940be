/*
 * Link: two copies on two streams.  See link.h.
 */
#include "tests/bench/link.h"

#include "proto/util.h"
#include "tests/bench/must.h"

#define POISON 0x5a

struct link {
    uint8_t *in;
    uint8_t *out;
    size_t size;
    void *target; /* of copies to the device */
    void *source; /* of copies from it; the inputs */
    cudaStream_t streams[2];
};

void link_open(uint8_t *in, uint8_t *out, size_t size, struct link **ret_link)
{
    struct link *link = bench_allocate(sizeof(*link));

    *link = (struct link){.in = in, .out = out, .size = size};
    MUST(cudaMalloc(&link->target, size));
    MUST(cudaMalloc(&link->source, size));
    for (size_t i = 0; i < ARRAY_SIZE(link->streams); i++) {
        MUST(cudaStreamCreateWithFlags(&link->streams[i], cudaStreamNonBlocking));
    }
    *ret_link = link;
}

void link_close(struct link *link)
{
    for (size_t i = 0; i < ARRAY_SIZE(link->streams); i++) {
        MUST(cudaStreamDestroy(link->streams[i]));
    }
    MUST(cudaFree(link->target));
    MUST(cudaFree(link->source));
    free(link);
}

void link_load(struct link *link)
{
    MUST(cudaMemcpy(link->source, link->in, link->size, cudaMemcpyHostToDevice));
    MUST(cudaMemset(link->target, POISON, link->size));
    MUST(cudaDeviceSynchronize());
}

double link_run(struct link *link, enum link_way way)
{
    uint64_t start_ns = now_ns();

    if (way != LINK_OUT) {
        MUST(cudaMemcpyAsync(link->target, link->in, link->size, cudaMemcpyHostToDevice,
                             link->streams[0]));
    }
    if (way != LINK_IN) {
        MUST(cudaMemcpyAsync(link->out, link->source, link->size, cudaMemcpyDeviceToHost,
                             link->streams[1]));
    }
    for (size_t i = 0; i < ARRAY_SIZE(link->streams); i++) {
        MUST(cudaStreamSynchronize(link->streams[i]));
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}

void link_check(struct link *link, enum link_way way)
{
    if (way != LINK_IN) {
        bench_check_same("from the device", link->out, link->in, link->size);
    }
    if (way != LINK_OUT) {
        bench_poison(link->out, link->size);
        MUST(cudaMemcpy(link->out, link->target, link->size, cudaMemcpyDeviceToHost));
        MUST(cudaMemset(link->target, POISON, link->size));
        MUST(cudaDeviceSynchronize());
        bench_check_same("to the device", link->out, link->in, link->size);
    }
}
