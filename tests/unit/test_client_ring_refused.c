/* Rings of the client library: what it refuses by itself, and what a child may do. */
#include "client/calls.h"
#include "proto/ring.h"
#include "proto/util.h"
#include "tests/unit/client_bench.h"

#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)

static void test_spans_that_the_daemon_would_refuse(void)
{
    struct gpupipe_desc good;
    struct gpupipe_desc *desc = &works[0].desc;

    script = (struct fake_script){FAKE_SCRIPT};
    open_job_in_ring(20000);
    desc->job = job;
    good = *desc;
    desc->in[0].data = &script;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "input 0, ");
    *desc = good;
    desc->in[0].data = works[0].in - 64;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "does not lie in the job's ring");
    *desc = good;
    desc->in[0].data = works[N_PUSHES - 1].in;
    desc->out[0].data = works[N_PUSHES - 1].in;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "output 0 lies over input 0");
    *desc = good;
    desc->out[0].data = works[0].in + 4 * MIB - 64;
    desc->out[0].size = 4 * MIB;
    desc->n_records = 17;
    desc->in[0].size = 17 * script.record_size;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "output 0, 68 bytes");
    *desc = good;
    desc->out[0].data = (uint8_t *)desc->out[0].data + 32;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "no multiple of 64");
    *desc = good;
    desc->n_out = 0;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "1 outputs, the push 0");
    *desc = good;
    desc->in[0].size++;
    check_error(submit(&works[0]), GPUPIPE_ERROR_RANGE, "records of 4");
    *desc = good;
    desc->in[0].size--;
    check_error(submit(&works[0]), GPUPIPE_ERROR_RANGE, "records of 4");
    *desc = good;
    desc->n_records = (uint64_t)1 << 32;
    desc->out[0].size = UINT64_MAX;
    check_error(submit(&works[0]), GPUPIPE_ERROR_TOO_BIG, "4294967296 records");
    *desc = good;
    CHECK_EQ(submit(&works[0]), 1);
    for (int n_back = 0; n_back < 1; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[0]);
    check_server();
}

/* The zeros go to the push's own memory: never to what lies behind it. */
static void test_zeros_behind_a_short_record(void)
{
    struct gpupipe_job_opts opts;
    uint8_t *in, *behind, *out;
    struct gpupipe_desc *desc = &works[0].desc;

    script = (struct fake_script){FAKE_SCRIPT};
    script.record_size = 100;
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(open_ring(), 0);
    in = gpupipe_ring_alloc(ring, 64);
    behind = gpupipe_ring_alloc(ring, 64);
    out = gpupipe_ring_alloc(ring, 256);
    GPUPIPE_INIT(&opts);
    opts.ring = ring;
    opts.tail = GPUPIPE_TAIL_ZERO;
    CHECK_EQ(open_job_with(&opts), 0);
    memset(in, POISON, 64);
    memset(behind, POISON, 64);
    GPUPIPE_INIT(desc);
    desc->tag = 1000;
    desc->n_records = 1;
    desc->n_in = desc->n_out = 1;
    desc->in[0] = (struct gpupipe_span){in, 60};
    desc->out[0] = (struct gpupipe_room){out, 256};
    works[0].is_in_ring = true;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "no room for the 40 zero bytes");
    CHECK_EQ(behind[0], POISON);
    gpupipe_ring_free(ring, in);
    in = gpupipe_ring_alloc(ring, 100);
    CHECK(in != NULL);
    memset(in, POISON, 128);
    desc->in[0].data = in;
    CHECK_EQ(submit(&works[0]), 1);
    for (int n_back = 0; n_back < 1; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    CHECK_EQ(works[0].out_size, 100);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(out[i], i < 60 ? POISON ^ FAKE_XOR : FAKE_XOR);
    }
    CHECK_EQ(in[100], POISON);
    CHECK_EQ(behind[0], POISON);
    memset(works, 0, sizeof(works));
    check_server();
}

static void test_memory_of_a_ring(void)
{
    struct gpupipe_ring *none = NULL;
    uint8_t *whole, *small;

    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(open_ring(), 0);
    CHECK(gpupipe_ring_alloc(ring, 0) == NULL);
    CHECK_EQ(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_MISUSE);
    CHECK(gpupipe_ring_alloc(ring, 4 * MIB + 1) == NULL);
    CHECK_EQ(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_TOO_BIG);
    whole = gpupipe_ring_alloc(ring, 4 * MIB);
    CHECK(whole != NULL);
    random_bytes(whole, 4 * MIB);
    CHECK(gpupipe_ring_alloc(ring, 1) == NULL);
    check_error(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_BUSY, "free piece of the ring");
    gpupipe_ring_free(ring, whole + 64);
    CHECK_EQ(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_MISUSE);
    gpupipe_ring_free(ring, whole);
    gpupipe_ring_free(ring, NULL);
    small = gpupipe_ring_alloc(ring, 1);
    CHECK_EQ((uintptr_t)small % 64, 0);
    gpupipe_ring_close(ring);
    gpupipe_ring_close(none);
    check_server();
}

static void test_rings_that_are_not_to_be_had(void)
{
    char long_name[300];

    memset(long_name, 'x', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    script = (struct fake_script){FAKE_SCRIPT, .n_busy_rings = 1};
    CHECK_EQ(connect_to_script(), 0);
    check_error(open_ring(), GPUPIPE_ERROR_BUSY, "the script says so");
    CHECK_EQ(gpupipe_last_error(gpupipe)->retry_ms, 1);
    check_error(gpupipe_ring_open(&ring, gpupipe, 4096, long_name), GPUPIPE_ERROR_NO_DEVICE,
                "that long");
    CHECK(ring == NULL);
    CHECK_EQ(open_ring(), 0);
    check_server();
    script = (struct fake_script){FAKE_SCRIPT, .has_no_rings = true};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(open_ring(), GPUPIPE_ERROR_UNKNOWN_METHOD);
    check_server();
}

static void test_another_connections_ring(void)
{
    struct gpupipe *mine;
    struct gpupipe_job_opts opts;
    int fd;
    pid_t pid;

    script = (struct fake_script){FAKE_SCRIPT};
    open_job_in_ring(100);
    pid = fake_server_start(&script, &fd);
    CHECK_EQ(call_open_fd(&mine, fd, "other"), 0);
    GPUPIPE_INIT(&opts);
    opts.ring = ring;
    CHECK_EQ(gpupipe_job_open(&job, mine, "fake", NULL, 0, &opts), GPUPIPE_ERROR_MISUSE);
    CHECK_HAS(gpupipe_last_error(mine)->message, "another connection's");
    gpupipe_close(mine);
    CHECK_EQ(fake_server_end(pid), 0);
    check_server();
}

/* A program that was built before opts had a ring. */
static void test_options_of_an_older_program(void)
{
    struct gpupipe_job_opts opts;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(100);
    CHECK_EQ(connect_to_script(), 0);
    memset(&opts, POISON, sizeof(opts));
    memset(&opts, 0, offsetof(struct gpupipe_job_opts, ring));
    opts.size = offsetof(struct gpupipe_job_opts, ring);
    CHECK_EQ(open_job_with(&opts), 0);
    opts.size--;
    check_error(open_job_with(&opts), GPUPIPE_ERROR_MISUSE, "size is not set");
    CHECK_EQ(submit(&works[0]), 1);
    gpupipe_job_free(job);
    check_server();
}

/* The child reads its parent's data, and that is all. */
static void test_a_child_leaves_the_ring_alone(void)
{
    int status;
    pid_t pid;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    open_job_in_ring(20000);
    CHECK_EQ(submit(&works[0]), 1);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        struct gpupipe_ring *none;
        uint8_t first = works[0].in[0];
        bool is_right =
            submit(&works[1]) == GPUPIPE_ERROR_MISUSE && reap() == GPUPIPE_ERROR_MISUSE &&
            gpupipe_wait(gpupipe, -1) == GPUPIPE_ERROR_MISUSE &&
            gpupipe_job_end(job) == GPUPIPE_ERROR_MISUSE && gpupipe_ring_alloc(ring, 64) == NULL &&
            gpupipe_ring_open(&none, gpupipe, 0, NULL) == GPUPIPE_ERROR_MISUSE &&
            gpupipe_last_error(gpupipe)->status == GPUPIPE_ERROR_MISUSE;

        gpupipe_ring_free(ring, works[1].in);
        gpupipe_ring_close(ring);
        is_right &= works[0].in[0] == first;
        gpupipe_close(gpupipe);
        _exit(is_right ? 0 : 1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(submit(&works[1]), 1);
    for (int n_back = 0; n_back < 2; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[0]);
    check_output(&works[1]);
    check_server();
}

/* It looked for the parent's urgent pushes, and took them. */
static void test_a_child_takes_no_urgent_pushes(void)
{
    int status;
    pid_t pid;

    script = (struct fake_script){FAKE_SCRIPT, .is_awake = true};
    open_job_in_ring(1000);
    CHECK_EQ(submit(&works[0]), 1);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int n_refused = 0;

        while (n_refused < 500 && gpupipe_wait(gpupipe, -1) == GPUPIPE_ERROR_MISUSE) {
            n_refused++;
        }
        gpupipe_close(gpupipe);
        _exit(n_refused == 500 ? 0 : 1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    for (int n_back = 0; n_back < 1; n_back += reap()) {
        CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
    }
    check_output(&works[0]);
    check_server();
}

CHECK_MAIN(CHECK_TEST(test_spans_that_the_daemon_would_refuse),
           CHECK_TEST(test_zeros_behind_a_short_record), CHECK_TEST(test_memory_of_a_ring),
           CHECK_TEST(test_rings_that_are_not_to_be_had), CHECK_TEST(test_another_connections_ring),
           CHECK_TEST(test_options_of_an_older_program),
           CHECK_TEST(test_a_child_leaves_the_ring_alone),
           CHECK_TEST(test_a_child_takes_no_urgent_pushes))
