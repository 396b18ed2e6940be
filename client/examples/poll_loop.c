/*
 * A streaming job in a loop of one's own: the SHA-256 of every 4 KiB of the standard input, of any
 * length, while input, daemon and output all move at the same time.  A daemon that goes away is
 * waited for, and what it had not done is done by the next.
 *
 *     cc poll_loop.c $(pkg-config --cflags --libs gpupipe) && ./a.out <FILE
 */
#include <gpupipe.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK   4096
#define RECORDS 64 /* of one push */
#define PUSHES  8  /* under way at once, at most */

/* A push, and its buffers; its tag is its place in the array. */
struct push {
    unsigned char in[RECORDS * BLOCK];
    unsigned char out[RECORDS * 32];
    size_t filled;
    int is_under_way;
};

static struct gpupipe *gpupipe;
static struct gpupipe_job *job;
static struct push pushes[PUSHES];
static unsigned next;   /* to be filled and submitted */
static unsigned oldest; /* whose output comes next */
static int is_at_end;

static void fail(void)
{
    fprintf(stderr, "%s\n", gpupipe_last_error(gpupipe)->message);
    exit(1);
}

/* Returns 0 where the window is full: the push stays as it is, and is tried again. */
static int submit(struct push *push)
{
    struct gpupipe_desc desc;
    int n;

    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.tag = (uint64_t)(push - pushes);
    desc.n_records = (push->filled + BLOCK - 1) / BLOCK;
    desc.n_in = 1;
    desc.in[0].data = push->in;
    desc.in[0].size = push->filled;
    desc.n_out = 1;
    desc.out[0].data = push->out;
    desc.out[0].size = sizeof(push->out);
    n = gpupipe_submit(gpupipe, &desc, 1);
    if (n < 0) {
        fail();
    }
    push->is_under_way = n == 1;
    return n;
}

/* Read into the push; when it is full, or the input at its end, off it goes. */
static void fill(struct push *push)
{
    ssize_t n = read(STDIN_FILENO, push->in + push->filled, sizeof(push->in) - push->filled);

    if (n < 0) {
        perror("read");
        exit(1);
    }
    push->filled += (size_t)n;
    is_at_end = n == 0;
}

static int is_ready(const struct push *push)
{
    return push->filled == sizeof(push->in) || (is_at_end && push->filled > 0);
}

/* Completions come in the order of submission, unless a job is opened otherwise. */
static void reap(void)
{
    struct gpupipe_completion completion;

    GPUPIPE_INIT(&completion);
    while (gpupipe_reap(gpupipe, &completion, 1) == 1) {
        struct push *push = &pushes[completion.tag];

        push->is_under_way = 0;
        if (completion.status == GPUPIPE_ERROR_LOST) {
            continue; /* its input is still there, for recover() */
        }
        if (completion.error != NULL) {
            fprintf(stderr, "%s\n", completion.error->message);
            exit(1);
        }
        for (uint64_t i = 0; i < completion.out_size[0]; i++) {
            printf("%02x%s", push->out[i], i % 32 == 31 ? "\n" : "");
        }
        push->filled = 0;
        oldest = (oldest + 1) % PUSHES;
    }
}

static void open_job(void)
{
    const struct gpupipe_value block = {"block", GPUPIPE_INT, BLOCK, 0, NULL};
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.tail = GPUPIPE_TAIL_SHORT;
    opts.priority = GPUPIPE_BULK;
    opts.window = PUSHES;
    if (gpupipe_job_open(&job, gpupipe, "sha256", &block, 1, &opts) < 0) {
        fail();
    }
}

/* All pushes are back: go on with the first that was not done, in another job. */
static void recover(void)
{
    gpupipe_job_free(job);
    while (gpupipe_reconnect(gpupipe) < 0) {
        fprintf(stderr, "%s\n", gpupipe_last_error(gpupipe)->message);
        sleep(1);
    }
    open_job();
    next = oldest;
}

int main(void)
{
    struct gpupipe_outcome outcome;
    struct pollfd fds[2];
    int is_lost;

    if (gpupipe_open(&gpupipe, NULL, "poll_loop") < 0) {
        fail();
    }
    open_job();
    GPUPIPE_INIT(&outcome);
    fds[0].events = fds[1].events = POLLIN;
    fds[0].fd = gpupipe_get_fd(gpupipe);
    while (gpupipe_job_result(job, &outcome) == 0) {
        struct push *push = &pushes[next];

        if (!push->is_under_way && is_ready(push) && submit(push)) {
            next = (next + 1) % PUSHES;
            continue;
        }
        if (is_at_end && !is_ready(push) && gpupipe_job_end(job) < 0) {
            fail();
        }
        fds[1].fd = push->is_under_way || is_ready(push) || is_at_end ? -1 : STDIN_FILENO;
        if (poll(fds, 2, -1) < 0) {
            perror("poll");
            return 1;
        }
        if (fds[1].fd >= 0 && fds[1].revents != 0) {
            fill(push);
        }
        is_lost = gpupipe_dispatch(gpupipe, 0) == GPUPIPE_ERROR_LOST;
        reap();
        if (is_lost) {
            recover();
        }
    }
    if (outcome.error != NULL) {
        fprintf(stderr, "%s\n", outcome.error->message);
    }
    gpupipe_close(gpupipe);
    return outcome.status == GPUPIPE_OK ? 0 : 1;
}
