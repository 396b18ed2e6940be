/*
 * One call, one answer: the SHA-256 of every 4 KiB of a file, of which the first MiB counts.
 *
 *     cc blocking.c $(pkg-config --cflags --libs gpupipe) && ./a.out FILE
 */
#include <gpupipe.h>

#include <stdio.h>

#define BLOCK 4096

int main(int argc, char **argv)
{
    static unsigned char bytes[256 * BLOCK], hashes[256 * 32];
    const struct gpupipe_value block = {"block", GPUPIPE_INT, BLOCK, 0, NULL};
    struct gpupipe *gpupipe;
    struct gpupipe_job_opts opts;
    struct gpupipe_desc desc;
    struct gpupipe_completion completion;
    FILE *file = fopen(argc == 2 ? argv[1] : "", "rb");
    int status;

    GPUPIPE_INIT(&opts);
    opts.tail = GPUPIPE_TAIL_SHORT; /* the last block may be shorter */
    GPUPIPE_INIT(&desc);
    desc.n_in = 1;
    desc.in[0].data = bytes;
    desc.in[0].size = file == NULL ? 0 : fread(bytes, 1, sizeof(bytes), file);
    desc.n_out = 1;
    desc.out[0].data = hashes;
    desc.out[0].size = sizeof(hashes);
    GPUPIPE_INIT(&completion);

    status = gpupipe_open(&gpupipe, NULL, "blocking");
    if (status == GPUPIPE_OK) {
        status = gpupipe_run(gpupipe, "sha256", &block, 1, &opts, &desc, &completion);
    }
    if (status != GPUPIPE_OK) {
        fprintf(stderr, "%s\n", gpupipe_last_error(gpupipe)->message);
    }
    for (uint64_t i = 0; status == GPUPIPE_OK && i < completion.out_size[0]; i++) {
        printf("%02x%s", hashes[i], i % 32 == 31 ? "\n" : "");
    }
    gpupipe_close(gpupipe);
    return status == GPUPIPE_OK && file != NULL && fclose(file) == 0 ? 0 : 1;
}
