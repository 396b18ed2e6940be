/*
 * Race: the writer is `iterate`, which takes milliseconds, on one stream; the reader is `copy`,
 * launched for the first time meanwhile, on another.  See race.h.
 */
#include "tests/bench/race.h"

#include "proto/util.h"
#include "tests/bench/kernel.h"
#include "tests/bench/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#define POISON 0x5a

struct arena {
    uint8_t *in; /* of the host, pinned */
    uint8_t *out;
    char *device; /* two headers, and three arrays: input, result, what was read of it */
    struct kernel writer;
    struct kernel reader;
    cudaStream_t streams[2];
    cudaEvent_t written;
};

static char *array_of(const struct arena *arena, uint32_t i)
{
    return arena->device + (size_t)i * RACE_SIZE;
}

static uint8_t *allocate_pinned(void)
{
    uint8_t *memory = bench_allocate(RACE_SIZE);

    bench_poison(memory, RACE_SIZE);
    MUST(cudaHostRegister(memory, RACE_SIZE, cudaHostRegisterDefault));
    return memory;
}

static void prepare(struct arena *ret_arena)
{
    void *device;

    ret_arena->in = allocate_pinned();
    ret_arena->out = allocate_pinned();
    subject_fill(ret_arena->in, RACE_SIZE);
    MUST(cudaMalloc(&device, 3 * RACE_SIZE));
    MUST(cudaMemset(device, POISON, 3 * RACE_SIZE));
    ret_arena->device = device;
    kernel_load(&subject_iterate_long, &ret_arena->writer);
    kernel_load(&subject_copy, &ret_arena->reader);
    for (size_t i = 0; i < ARRAY_SIZE(ret_arena->streams); i++) {
        MUST(cudaStreamCreateWithFlags(&ret_arena->streams[i], cudaStreamNonBlocking));
    }
    MUST(cudaEventCreateWithFlags(&ret_arena->written, cudaEventDisableTiming));
    MUST(cudaDeviceSynchronize());
}

static size_t run(const struct race *race)
{
    struct arena arena;

    setenv("CUDA_MODULE_LOADING", race->is_eager ? "EAGER" : "LAZY", 1);
    prepare(&arena);
    MUST(cudaMemcpyAsync(array_of(&arena, 0), arena.in, RACE_SIZE, cudaMemcpyHostToDevice,
                         arena.streams[0]));
    kernel_launch(&arena.writer, &subject_iterate_long, array_of(&arena, 0), array_of(&arena, 1),
                  RACE_SIZE, arena.streams[0]);
    if (race->has_event) {
        MUST(cudaEventRecord(arena.written, arena.streams[0]));
        MUST(cudaStreamWaitEvent(arena.streams[1], arena.written, 0));
    }
    kernel_launch(&arena.reader, &subject_copy, array_of(&arena, 1), array_of(&arena, 2), RACE_SIZE,
                  arena.streams[1]);
    MUST(cudaMemcpyAsync(arena.out, array_of(&arena, 2), RACE_SIZE, cudaMemcpyDeviceToHost,
                         arena.streams[1]));
    MUST(cudaDeviceSynchronize());
    return subject_count_wrong(arena.out, arena.in, RACE_SIZE);
}

size_t race_run(const struct race *race)
{
    size_t n_wrong = 0;
    int fds[2], status;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        bench_fail("pipe: %s", strerror(errno));
    }
    pid = bench_fork();
    if (pid == 0) {
        n_wrong = run(race);
        _exit(write(fds[1], &n_wrong, sizeof(n_wrong)) != sizeof(n_wrong));
    }
    close(fds[1]);
    if (read(fds[0], &n_wrong, sizeof(n_wrong)) != sizeof(n_wrong)) {
        bench_fail("the process of the race has no result");
    }
    close(fds[0]);
    waitpid(pid, &status, 0);
    return n_wrong;
}
