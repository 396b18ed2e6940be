/*
 * Hog: another program that has taken the GPU's memory.  `hog MIB` takes all but so many MiB, makes
 * the file "full" in its working directory, and holds on until it is killed.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STEP_LEAST ((size_t)1 << 20)

/* Large steps first; returns what is free in the end. */
static size_t fill(size_t n_left)
{
    size_t n_free = 0, n_all = 0;

    for (size_t step = (size_t)1 << 34; step >= STEP_LEAST; step /= 2) {
        void *memory;

        while (cudaMemGetInfo(&n_free, &n_all) == cudaSuccess && n_free >= step + n_left &&
               cudaMalloc(&memory, step) == cudaSuccess) {
        }
        cudaGetLastError();
    }
    return n_free;
}

int main(int argc, char **argv)
{
    size_t n_left = argc == 2 ? (size_t)atoi(argv[1]) << 20 : 0;
    FILE *full;

    printf("%zu MiB are free\n", fill(n_left) >> 20);
    fflush(stdout);
    full = fopen("full", "we");
    if (full == NULL || fclose(full) != 0) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
