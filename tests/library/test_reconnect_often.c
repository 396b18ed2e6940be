/* Connecting again: what is left behind, and other threads and processes. */
#include "tests/check.h"
#include "tests/library/reconnect_bench.h"
#include "tests/random.h"
#include "tests/reference.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- nothing is left behind ----------------------------------------------------------------- */

static unsigned count_maps(const char *text)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned n = 0;

    while (fgets(line, sizeof(line), maps) != NULL) {
        n += strstr(line, text) != NULL;
    }
    fclose(maps);
    return n;
}

/* A large one, which goes through a ring that the library keeps. */
static void run_once(void)
{
    uint64_t n = 200000 + random_below(100000);
    float *x = malloc(4 * n * sizeof(float)), *y = x + n, *out = y + n, *wanted = out + n;
    struct gpupipe_completion completion;
    struct gpupipe_desc desc;

    random_floats(x, 2 * n);
    memset(out, 0xee, n * sizeof(float));
    GPUPIPE_INIT(&desc);
    desc.n_in = 2;
    desc.in[0] = (struct gpupipe_span){x, n * sizeof(float)};
    desc.in[1] = (struct gpupipe_span){y, n * sizeof(float)};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){out, n * sizeof(float)};
    GPUPIPE_INIT(&completion);
    check_ok(gpupipe_run(gpupipe, "saxpy", &a, 1, NULL, &desc, &completion));
    CHECK_STR(completion.path, "ring");
    reference_saxpy(2.5f, x, y, wanted, n);
    reference_check_floats(out, wanted, n);
    free(x);
}

/* A job, a push in flight, a ring, another of the library's, a constant: all lost with a daemon. */
static void lose_everything(uint64_t *constant)
{
    struct gpupipe_job_opts opts;
    struct stream stream = {0};
    float numbers[3] = {1, 2, 3};
    struct gpupipe_desc desc;

    check_ok(gpupipe_ring_open(&stream.ring, gpupipe, MIB, NULL));
    GPUPIPE_INIT(&opts);
    opts.ring = stream.ring;
    check_ok(gpupipe_job_open(&stream.job, gpupipe, "copy", NULL, 0, &opts));
    run_once();
    check_ok(gpupipe_const_put(gpupipe, numbers, sizeof(numbers), constant, NULL));
    GPUPIPE_INIT(&desc);
    desc.job = stream.job;
    desc.n_records = 4096;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){gpupipe_ring_alloc(stream.ring, 4096), 4096};
    desc.out[0] = (struct gpupipe_room){gpupipe_ring_alloc(stream.ring, 4096), 4096};
    CHECK_EQ(gpupipe_submit(gpupipe, &desc, 1), 1);
    kill_daemon();
    while (gpupipe_wait(gpupipe, -1) >= 0) {
        struct gpupipe_completion completion;

        GPUPIPE_INIT(&completion);
        (void)gpupipe_reap(gpupipe, &completion, 1);
    }
    drop(&stream);
}

static void test_fifty_reconnects_leave_nothing_behind(void)
{
    unsigned n_fds = 0, n_memfds = 0, n_maps = 0;
    size_t used = 0;

    start();
    for (int i = 0; i < 50; i++) {
        uint64_t constant;

        lose_everything(&constant);
        reconnect();
        check_is_quiet();
        check_error(gpupipe_const_drop(gpupipe, constant), GPUPIPE_ERROR_NOT_FOUND, "");
        if (i == 4) {
            n_fds = (unsigned)check_count_fds();
            n_memfds = count_maps("memfd:");
            n_maps = count_maps("");
            used = mallinfo2().uordblks + mallinfo2().hblkhd;
        }
    }
    CHECK_EQ(check_count_fds(), n_fds);
    CHECK_EQ(count_maps("memfd:"), n_memfds);
    CHECK_EQ(n_memfds, 0);
    CHECK_LT(count_maps(""), n_maps + 25); /* malloc has some of its own */
    if (HARNESS_SANITIZER_KIB == 0) {
        CHECK_LT(mallinfo2().uordblks + mallinfo2().hblkhd, used + 65536);
    }
    finish(NULL);
}

/* Sixteen are what one connection may have; those of lost ones do not count. */
static void test_rings_that_stay_open_across_many_reconnects(void)
{
    struct gpupipe_ring *rings[6][4];
    unsigned char *data[6];
    struct stream stream;

    start();
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 4; k++) {
            check_ok(gpupipe_ring_open(&rings[i][k], gpupipe, MIB, NULL));
        }
        data[i] = gpupipe_ring_alloc(rings[i][0], 4096);
        memset(data[i], i + 1, 4096);
        kill_daemon();
        CHECK_EQ(gpupipe_wait(gpupipe, -1), GPUPIPE_ERROR_LOST);
        reconnect();
    }
    stream = open_stream(true);
    keep_busy(&stream, 10);
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 4096; k++) {
            CHECK_EQ(data[i][k], i + 1);
        }
        for (int k = 0; k < 3; k++) {
            gpupipe_ring_close(rings[i][k]);
        }
    }
    keep_busy(&stream, 10);
    collect(false);
    finish(NULL);
}

/* ---- other threads and processes ------------------------------------------------------------ */

static atomic_bool is_over;

static void *keep_waking(void *arg)
{
    (void)arg;
    while (!atomic_load(&is_over)) {
        gpupipe_wake(gpupipe);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return NULL;
}

static void stop_waking(void *thread)
{
    atomic_store(&is_over, true);
    pthread_join(*(pthread_t *)thread, NULL);
}

static void test_a_thread_that_wakes_all_the_time(void)
{
    static pthread_t thread;

    start();
    atomic_store(&is_over, false);
    CHECK_EQ(pthread_create(&thread, NULL, keep_waking, NULL), 0);
    for (int round = 0; round < 4; round++) {
        struct stream stream = open_stream(round % 2 == 1);

        CHECK_GE(gpupipe_wait(gpupipe, -1), 0); /* for a push, or woken */
        kill_in_the_middle(&stream, round % 3);
        reconnect();
        CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
        drop(&stream);
    }
    stop_waking(&thread);
    finish(NULL);
}

static void *kill_later(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    kill(*(const pid_t *)arg, SIGKILL);
    return NULL;
}

/* Nobody wakes it. */
static void test_a_wait_that_the_daemons_end_ends(void)
{
    start();
    for (int round = 0; round < 4; round++) {
        struct stream stream = open_stream(round % 2 == 1);
        pid_t pid = harness_pid(daemon_);
        pthread_t thread;

        keep_busy(&stream, 3);
        collect(true);
        harness_pause(harness_await_worker(daemon_, 0));
        begin_all(&stream);
        CHECK_EQ(pthread_create(&thread, NULL, kill_later, &pid), 0);
        collect(true);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(harness_wait_exit(daemon_), 128 + SIGKILL);
        drop(&stream);
        reconnect();
        /* One that came before is not lost. */
        check_is_quiet();
        gpupipe_wake(gpupipe);
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 0);
    }
    finish(NULL);
}

/* In the child it is the parent's, lost or not; and it takes the parent nothing. */
static pid_t fork_child(void)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        bool is_right = gpupipe_reconnect(gpupipe) == GPUPIPE_ERROR_MISUSE &&
                        strstr(gpupipe_last_error(gpupipe)->message, "open another") != NULL;

        if (is_right) {
            pause();
        }
        _exit(1);
    }
    return pid;
}

static void end_child(pid_t pid)
{
    int status;

    /* It sleeps once it was right; else it is gone. */
    HARNESS_WAIT(strstr(harness_proc(pid, "stat"), ") S ") != NULL);
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
}

/* A child has descriptors of the lost socket and doorbells: they must not stay ready. */
static void test_a_child_that_holds_on_to_the_lost_connection(void)
{
    pid_t pids[2];

    start();
    for (int round = 0; round < 2; round++) {
        struct stream stream = open_stream(true);

        keep_busy(&stream, 3);
        pids[0] = fork_child();
        kill_in_the_middle(&stream, 1);
        pids[1] = fork_child();
        reconnect();
        check_is_quiet();
        drop(&stream);
        stream = open_stream(round % 2 == 0);
        keep_busy(&stream, 5);
        collect(true);
        drop(&stream);
        end_child(pids[0]);
        end_child(pids[1]);
    }
    finish(NULL);
}

CHECK_MAIN(CHECK_TEST(test_fifty_reconnects_leave_nothing_behind),
           CHECK_TEST(test_rings_that_stay_open_across_many_reconnects),
           CHECK_TEST(test_a_thread_that_wakes_all_the_time),
           CHECK_TEST(test_a_wait_that_the_daemons_end_ends),
           CHECK_TEST(test_a_child_that_holds_on_to_the_lost_connection))
