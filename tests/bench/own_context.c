/*
 * own-context: what a program does that has no daemon, but a CUDA context of its own.
 *
 *     copy IN OUT   the file IN to the device, through a kernel, and back into OUT
 *     hold MIB      the same with random bytes, in so much memory of the device (0: in a page
 *                   each); then it says "ready" and holds on until its input ends
 *     watch         to each line of its input it says how many bytes of the device are free
 *     party MIB     takes part in a measurement (own_party.h), with so much bulk data
 *
 * Threads: one, and those of own_party.h.
 */
#include "proto/util.h"
#include "tests/bench/kernel.h"
#include "tests/bench/must.h"
#include "tests/bench/own_party.h"

#include <string.h>

#define FILE_MOST (16u << 20)
#define RECORD    4096u

static void copy(const uint8_t *in, uint8_t *out, size_t size)
{
    struct kernel kernel;
    void *memory;
    char *from, *to;

    kernel_load(&subject_copy, &kernel);
    MUST(cudaMalloc(&memory, 2 * size));
    from = memory;
    to = from + size;
    MUST(cudaMemcpy(from, in, size, cudaMemcpyHostToDevice));
    kernel_launch(&kernel, &subject_copy, from, to, size, NULL);
    MUST(cudaMemcpy(out, to, size, cudaMemcpyDeviceToHost));
}

static int copy_file(const char *in_path, const char *out_path)
{
    uint8_t *in = bench_allocate(FILE_MOST), *out = bench_allocate(FILE_MOST);
    FILE *file = fopen(in_path, "re");
    size_t size = 0;

    if (file != NULL) {
        size = fread(in, 1, FILE_MOST, file);
        fclose(file);
    }
    if (size == 0 || size % RECORD != 0) {
        bench_fail("%s: no whole records of %u bytes", in_path, RECORD);
    }
    copy(in, out, size);
    file = fopen(out_path, "we");
    if (file == NULL || fwrite(out, 1, size, file) != size || fclose(file) != 0) {
        bench_fail("%s: cannot be written", out_path);
    }
    return EXIT_SUCCESS;
}

static int hold(const char *mib)
{
    size_t size = MAX((size_t)atoi(mib) << 20, 2 * (size_t)RECORD) / 2;
    uint8_t *in = bench_allocate(size), *out = bench_allocate(size);

    bench_fill(in, size);
    bench_poison(out, size);
    copy(in, out, size);
    bench_check_same("own context", out, in, size);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return EXIT_SUCCESS;
}

static int watch(void)
{
    int c;

    MUST(cudaFree(NULL)); /* this process's own context is there from the start */
    while ((c = getchar()) != EOF) {
        size_t n_free, n_all;

        if (c == '\n') {
            MUST(cudaMemGetInfo(&n_free, &n_all));
            printf("%zu\n", n_free);
            fflush(stdout);
        }
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "copy") == 0) {
        return copy_file(argv[2], argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "hold") == 0) {
        return hold(argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "watch") == 0) {
        return watch();
    }
    if (argc == 5 && strcmp(argv[1], "party") == 0) {
        own_party_serve((size_t)atoi(argv[2]) << 20, argv[3], argv[4]);
    }
    fprintf(stderr, "usage: own-context copy IN OUT | hold MIB | watch | party MIB FD FD\n");
    return 2;
}
