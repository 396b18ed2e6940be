/*
 * A streaming job in a libuv loop: the sum of the numbers from 1 to N, by an op that reduces.
 *
 *     cc uv_loop.c $(pkg-config --cflags --libs gpupipe libuv) && ./a.out N
 */
#include <gpupipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

static struct gpupipe *gpupipe;
static struct gpupipe_job *job;
static uint64_t n_numbers, n_sent;        /* to be summed; submitted so far */
static uint64_t push_records;             /* numbers of one push */
static uint64_t n_pushes, n_back, window; /* submitted; reaped; under way at once, at most */
static float **buffers;                   /* window; pushes are done in order, so they go round */

static void check(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "%s\n", gpupipe_last_error(gpupipe)->message);
        exit(1);
    }
}

static void feed(void)
{
    struct gpupipe_desc desc;

    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.n_in = 1;
    while (n_sent < n_numbers && n_pushes - n_back < window) {
        float *numbers = buffers[n_pushes % window];

        desc.n_records = n_numbers - n_sent < push_records ? n_numbers - n_sent : push_records;
        for (uint64_t i = 0; i < desc.n_records; i++) {
            numbers[i] = (float)(n_sent + i + 1);
        }
        desc.in[0].data = numbers;
        desc.in[0].size = desc.n_records * sizeof(numbers[0]);
        check(gpupipe_submit(gpupipe, &desc, 1));
        n_sent += desc.n_records;
        n_pushes++;
    }
    if (n_sent == n_numbers) {
        check(gpupipe_job_end(job));
    }
}

static void reap(void)
{
    struct gpupipe_completion completion;

    GPUPIPE_INIT(&completion);
    while (gpupipe_reap(gpupipe, &completion, 1) == 1) {
        if (completion.error != NULL) {
            fprintf(stderr, "%s\n", completion.error->message);
            exit(1);
        }
        n_back++;
    }
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct gpupipe_outcome outcome;

    (void)status;
    (void)events;
    check(gpupipe_dispatch(gpupipe, 0));
    reap();
    feed();
    GPUPIPE_INIT(&outcome);
    if (gpupipe_job_result(job, &outcome) == 1) {
        if (outcome.status == GPUPIPE_OK) {
            printf("%.17g\n", *(const double *)outcome.out[0].data);
        } else {
            fprintf(stderr, "%s\n", outcome.error->message);
        }
        uv_close((uv_handle_t *)poll, NULL);
    }
}

static void open_job(void)
{
    check(gpupipe_open(&gpupipe, NULL, "uv_loop"));
    check(gpupipe_job_open(&job, gpupipe, "sum", NULL, 0, NULL));
    push_records = gpupipe_push_records(job);
    window = gpupipe_window(job);
    buffers = (float **)calloc(window, sizeof(buffers[0]));
    for (uint64_t i = 0; i < window; i++) {
        buffers[i] = (float *)malloc(push_records * sizeof(float));
    }
}

int main(int argc, char **argv)
{
    uv_poll_t poll;

    n_numbers = argc == 2 ? strtoull(argv[1], NULL, 10) : 1000000;
    open_job();
    uv_poll_init(uv_default_loop(), &poll, gpupipe_get_fd(gpupipe));
    uv_poll_start(&poll, UV_READABLE, on_ready);
    feed();
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    gpupipe_close(gpupipe);
    uv_loop_close(uv_default_loop());
    for (uint64_t i = 0; i < window; i++) {
        free(buffers[i]);
    }
    free(buffers);
    return 0;
}
