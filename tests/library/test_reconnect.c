/* Connecting again, with daemons that are killed at any moment, and with others. */
#include "tests/check.h"
#include "tests/library/reconnect_bench.h"
#include "tests/random.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void cross(bool is_in_ring)
{
    start();
    for (int round = 0; round < 9; round++) {
        struct stream old = open_stream(is_in_ring), new;
        struct work *work = &old.works[round % N_WORKS];
        uint64_t id = gpupipe_job_id(old.job);
        float *x = random_new(MOST * sizeof(float));
        bool is_dropped_late = round >= 3;

        kill_in_the_middle(&old, round % 3);
        memcpy(x, work->x, work->n * sizeof(float));
        if (!is_dropped_late) {
            drop(&old);
        }
        reconnect();
        check_is_quiet();
        new = open_stream(is_in_ring);
        /* Or the old one would not be in the way. */
        CHECK_EQ(gpupipe_job_id(new.job), id);
        keep_busy(&new, 3);
        if (is_dropped_late) {
            check_takes_no_more(&old);
            CHECK_MEM(work->x, x, work->n * sizeof(float));
            drop(&old);
            keep_busy(&new, N_WORKS);
        }
        collect(true);
        drop(&new);
        kill_daemon();
        (void)gpupipe_dispatch(gpupipe, -1);
        reconnect();
    }
    finish(NULL);
}

static void test_a_daemon_killed_amid_pushes_through_the_socket(void)
{
    cross(false);
}

static void test_a_daemon_killed_amid_pushes_in_a_ring(void)
{
    cross(true);
}

/* The program learns of it from somebody else, and reaps when the next connection is at work. */
static void test_a_loss_that_nobody_has_met_yet(void)
{
    struct stream old[2], new;

    start();
    old[0] = open_stream(false);
    old[1] = open_stream(true);
    harness_pause(harness_await_worker(daemon_, 0));
    begin_all(&old[0]);
    begin_all(&old[1]);
    kill_daemon();
    launch();
    check_ok(gpupipe_reconnect(gpupipe));
    CHECK_EQ(n_under_way, 2 * N_WORKS);
    new = open_stream(true);
    begin_all(&new);
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    while (n_under_way > N_WORKS) {
        struct gpupipe_completion completion;

        GPUPIPE_INIT(&completion);
        CHECK_EQ(gpupipe_reap(gpupipe, &completion, 1), 1);
        CHECK_EQ(completion.status, GPUPIPE_ERROR_LOST);
        take_back(&completion);
    }
    collect(false);
    CHECK_EQ(n_lost, 2 * N_WORKS);
    CHECK_EQ(n_done, N_WORKS);
    finish(NULL);
}

/* The library's, found by where it leads to. */
static void shut_down_the_socket(void)
{
    struct sockaddr_un peer;
    int n_found = 0;

    for (int fd = 0; fd < 100; fd++) {
        socklen_t size = sizeof(peer);

        memset(&peer, 0, sizeof(peer));
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sun_family == AF_UNIX &&
            strcmp(peer.sun_path, harness_socket(daemon_)) == 0) {
            CHECK_EQ(shutdown(fd, SHUT_RDWR), 0);
            n_found++;
        }
    }
    CHECK_EQ(n_found, 1);
}

/* It closes the doorbell when it has met the end, and empties the ring at some time. */
static void test_a_daemon_that_lives_on(void)
{
    pid_t worker;

    start();
    worker = harness_await_worker(daemon_, 0);
    for (int round = 0; round < 10; round++) {
        struct stream old = open_stream(true), new;
        uint64_t epoch = gpupipe_epoch(gpupipe);

        keep_busy(&old, 5);
        collect(true);
        harness_pause(worker);
        begin_all(&old);
        shut_down_the_socket();
        collect(round % 2 == 0);
        CHECK_EQ(kill(worker, SIGCONT), 0);
        while (gpupipe_dispatch(gpupipe, -1) == 0) {
        }
        check_ok(gpupipe_reconnect(gpupipe));
        CHECK_EQ(gpupipe_epoch(gpupipe), epoch);
        new = open_stream(true);
        keep_busy(&new, 20);
        collect(true);
        check_takes_no_more(&old);
        memset(old.works[0].x, 0, MOST * sizeof(float));
        gpupipe_ring_close(new.ring); /* after what the daemon does at the old one's end */
        check_is_quiet();
        gpupipe_job_free(new.job);
        drop(&old);
    }
    finish(NULL);
}

static void test_a_connection_that_is_not_lost_goes_on(void)
{
    struct stream streams[2];

    start();
    for (int i = 0; i < 2; i++) {
        streams[i] = open_stream(i == 1);
        begin_all(&streams[i]);
    }
    check_error(gpupipe_reconnect(gpupipe), GPUPIPE_ERROR_MISUSE, "not lost");
    for (int i = 0; i < 10; i++) {
        keep_busy(&streams[i % 2], 5);
        check_error(gpupipe_reconnect(gpupipe), GPUPIPE_ERROR_MISUSE, "not lost");
    }
    collect(false);
    CHECK_EQ(n_lost, 0);
    finish(NULL);
}

static void test_a_daemon_that_comes_late(void)
{
    struct stream stream;

    prepare();
    harness_setenv("GPUPIPE_SOCKET", harness_socket(daemon_));
    check_error(gpupipe_open(&gpupipe, NULL, "test"), GPUPIPE_ERROR_LOST, "cannot connect to");
    CHECK_EQ(gpupipe_epoch(gpupipe), 0);
    watch();
    CHECK(is_signalled());
    /* The same path, whatever the environment is by now. */
    setenv("GPUPIPE_SOCKET", "none", 1);
    reconnect();
    check_is_quiet();
    stream = open_stream(true);
    keep_busy(&stream, 10);
    collect(true);
    kill_daemon();
    CHECK_EQ(gpupipe_dispatch(gpupipe, -1), GPUPIPE_ERROR_LOST);
    reconnect();
    finish(NULL);
}

/* A child that accepts one connection, whatever is said there, and answers with no message. */
static pid_t listen_and_babble(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", harness_socket(daemon_));
    unlink(address.sun_path);
    CHECK_EQ(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(listen(fd, 1), 0);
    pid = fork();
    if (pid == 0) {
        fd = accept(fd, NULL, NULL);
        _exit(write(fd, "\xdd\xff\xff\xff\xff", 5) == 5 ? 0 : 1);
    }
    close(fd);
    return pid;
}

static void test_somebody_who_is_no_daemon(void)
{
    struct stream stream;
    char reason[256];
    uint64_t limit;
    pid_t pid;

    start();
    stream = open_stream(true);
    kill_in_the_middle(&stream, 0);
    CHECK_EQ(gpupipe_wait(gpupipe, -1), GPUPIPE_ERROR_LOST);
    snprintf(reason, sizeof(reason), "%s", gpupipe_last_error(gpupipe)->message);
    limit = gpupipe_limit(gpupipe, "max_push");
    pid = listen_and_babble();
    check_error(gpupipe_reconnect(gpupipe), GPUPIPE_ERROR_PROTO, "");
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK(is_signalled());
    CHECK_EQ(gpupipe_limit(gpupipe, "max_push"), limit);
    check_error(gpupipe_wait(gpupipe, -1), GPUPIPE_ERROR_LOST, reason);
    reconnect();
    check_is_quiet();
    drop(&stream);
    stream = open_stream(true);
    keep_busy(&stream, 3);
    collect(true);
    finish(NULL);
}

CHECK_MAIN(CHECK_TEST(test_a_daemon_killed_amid_pushes_through_the_socket),
           CHECK_TEST(test_a_daemon_killed_amid_pushes_in_a_ring),
           CHECK_TEST(test_a_loss_that_nobody_has_met_yet), CHECK_TEST(test_a_daemon_that_lives_on),
           CHECK_TEST(test_a_connection_that_is_not_lost_goes_on),
           CHECK_TEST(test_a_daemon_that_comes_late), CHECK_TEST(test_somebody_who_is_no_daemon))
