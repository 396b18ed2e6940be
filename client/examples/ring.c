/*
 * A streaming job whose data lie in a ring: the SHA-256 of every 4 KiB of the standard input, which
 * is read straight into memory that the device has mapped, and hashed there.
 *
 *     cc ring.c $(pkg-config --cflags --libs gpupipe) && ./a.out <FILE
 */
#include <gpupipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK   4096
#define RECORDS 1024 /* of one push */
#define PUSHES  4    /* under way at once, at most */

/* A push, and its pieces of the ring; its tag is its place in the array. */
struct push {
    unsigned char *in;
    unsigned char *out;
    int is_under_way;
};

static struct gpupipe *gpupipe;
static struct gpupipe_ring *ring;
static struct gpupipe_job *job;
static struct push pushes[PUSHES];

static void fail(void)
{
    fprintf(stderr, "%s\n", gpupipe_last_error(gpupipe)->message);
    exit(1);
}

static void open_job(void)
{
    const struct gpupipe_value block = {"block", GPUPIPE_INT, BLOCK, 0, NULL};
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.tail = GPUPIPE_TAIL_SHORT;
    opts.window = PUSHES;
    if (gpupipe_open(&gpupipe, NULL, "ring") < 0 ||
        gpupipe_ring_open(&ring, gpupipe, 32 << 20, NULL) < 0) {
        fail();
    }
    opts.ring = ring;
    if (gpupipe_job_open(&job, gpupipe, "sha256", &block, 1, &opts) < 0) {
        fail();
    }
    for (int i = 0; i < PUSHES; i++) {
        pushes[i].in = (unsigned char *)gpupipe_ring_alloc(ring, RECORDS * BLOCK);
        pushes[i].out = (unsigned char *)gpupipe_ring_alloc(ring, RECORDS * 32);
        if (pushes[i].in == NULL || pushes[i].out == NULL) {
            fail();
        }
    }
}

/* Fill the push from the input, as far as that goes. */
static size_t fill(struct push *push)
{
    size_t filled = 0;
    ssize_t n = 1;

    while (filled < RECORDS * BLOCK && n > 0) {
        n = read(STDIN_FILENO, push->in + filled, RECORDS * BLOCK - filled);
        filled += n > 0 ? (size_t)n : 0;
    }
    if (n < 0) {
        perror("read");
        exit(1);
    }
    return filled;
}

static void submit(struct push *push, size_t size)
{
    struct gpupipe_desc desc;

    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.tag = (uint64_t)(push - pushes);
    desc.n_records = (size + BLOCK - 1) / BLOCK;
    desc.n_in = 1;
    desc.in[0].data = push->in;
    desc.in[0].size = size;
    desc.n_out = 1;
    desc.out[0].data = push->out;
    desc.out[0].size = RECORDS * 32;
    if (gpupipe_submit(gpupipe, &desc, 1) != 1) {
        fail();
    }
    push->is_under_way = 1;
}

/* Completions come in the order of submission, unless a job is opened otherwise. */
static void await(const struct push *push)
{
    struct gpupipe_completion completion;

    GPUPIPE_INIT(&completion);
    while (push->is_under_way) {
        if (gpupipe_wait(gpupipe, -1) < 0) {
            fail();
        }
        while (gpupipe_reap(gpupipe, &completion, 1) == 1) {
            struct push *back = &pushes[completion.tag];

            if (completion.error != NULL) {
                fprintf(stderr, "%s\n", completion.error->message);
                exit(1);
            }
            for (uint64_t i = 0; i < completion.out_size[0]; i++) {
                printf("%02x%s", back->out[i], i % 32 == 31 ? "\n" : "");
            }
            back->is_under_way = 0;
        }
    }
}

int main(void)
{
    unsigned next = 0;
    size_t size;

    open_job();
    while ((size = fill(&pushes[next])) > 0) {
        submit(&pushes[next], size);
        next = (next + 1) % gpupipe_window(job);
        await(&pushes[next]);
    }
    for (int i = 0; i < PUSHES; i++) {
        await(&pushes[(next + i) % PUSHES]);
    }
    gpupipe_job_free(job);
    gpupipe_ring_close(ring);
    gpupipe_close(gpupipe);
    return 0;
}
