/* Bench: what it leaves behind. */
#include "tests/bench/bench.h"
#include "tests/check.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static struct bench_daemon bench_daemon; /* of the benchmark that fails, which is a child ... */
static char *folder;                     /* ... and tells of it here */

static void unmap(void *arg)
{
    munmap(arg, sizeof(bench_daemon.folder));
}

static void tell(void)
{
    memcpy(folder, bench_daemon.folder, sizeof(bench_daemon.folder));
}

static void check_fails_and_leaves_nothing(void (*fail)(void))
{
    int status = 0;

    folder = mmap(NULL, sizeof(bench_daemon.folder), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(folder != MAP_FAILED);
    check_at_end(unmap, folder);
    pid_t child = bench_fork();
    if (child == 0) {
        atexit(tell);
        fail();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), EXIT_FAILURE);
    CHECK_HAS(folder, "gpupipe-bench-");
    CHECK_EQ(access(folder, F_OK), -1);
    CHECK_EQ(errno, ENOENT);
}

static void start_nothing(void)
{
    bench_daemon_start(&bench_daemon, "/bin/false", "cpu");
}

/* Its folder stayed for good, with whatever lay there. */
static void test_a_daemon_that_does_not_start_leaves_no_folder(void)
{
    check_fails_and_leaves_nothing(start_nothing);
}

static void start_and_fail(void)
{
    char path[sizeof(bench_daemon.folder) + 8];
    int status = 0;

    bench_daemon_start(&bench_daemon, NULL, "cpu");
    snprintf(path, sizeof(path), "%s/in", bench_daemon.folder);
    fclose(fopen(path, "we"));
    pid_t child = bench_fork();
    if (child == 0) {
        bench_fail("as it is to do: a child, which has no daemon");
    }
    if (waitpid(child, &status, 0) != child || access(bench_daemon.socket_path, F_OK) != 0) {
        _exit(0);
    }
    bench_fail("as it is to do");
}

static void test_a_benchmark_that_fails_leaves_no_folder_and_its_children_leave_it_alone(void)
{
    check_fails_and_leaves_nothing(start_and_fail);
}

CHECK_MAIN(CHECK_TEST(test_a_daemon_that_does_not_start_leaves_no_folder),
           CHECK_TEST(test_a_benchmark_that_fails_leaves_no_folder_and_its_children_leave_it_alone))
