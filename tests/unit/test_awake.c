/* Awake: who may keep the daemon from sleeping, with which CPUs, and for how long. */
#include "daemon/awake.h"

#include "proto/cpus.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The clock stands still but where a test moves it; see meson.build. */
static uint64_t clock_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    (void)clock;
    ret_time->tv_sec = (time_t)(clock_ns / 1000000000u);
    ret_time->tv_nsec = (long)(clock_ns % 1000000000u);
    return 0;
}

static void test_two_cpus_stay_free(void)
{
    static const struct {
        int asked;
        uint32_t usable, granted;
    } cases[] = {
        {AWAKE_CPUS_AUTO, 1, 0},
        {AWAKE_CPUS_AUTO, 2, 0},
        {AWAKE_CPUS_AUTO, 3, 1},
        {AWAKE_CPUS_AUTO, 16, 14},
        {0, 16, 0},
        {5, 2, 5},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        CHECK_EQ(awake_cpus(cases[i].asked, cases[i].usable), cases[i].granted);
    }
}

static void test_each_worker_needs_a_cpu(void)
{
    struct awake awake;

    awake_init(&awake, 2, AWAKE_ANYBODY);
    CHECK(awake_has_cpus(&awake, 0) && awake_has_cpus(&awake, 1) && !awake_has_cpus(&awake, 2));
    awake_init(&awake, 0, AWAKE_ANYBODY);
    CHECK(!awake_has_cpus(&awake, 0));
}

static void test_awake_for_a_while(void)
{
    struct awake awake;

    awake_init(&awake, 2, AWAKE_ANYBODY);
    clock_ns = 5;
    CHECK(!awake_is(&awake));
    awake_want(&awake, WORK_AWAKE_NS);
    CHECK(awake_is(&awake));
    clock_ns += WORK_AWAKE_NS - 1;
    CHECK(awake_is(&awake));
    awake_want(&awake, WORK_AWAKE_NS); /* another one */
    awake_want(&awake, AWAKE_END_NS);  /* and one that wants less */
    CHECK(awake_is(&awake));
    clock_ns += WORK_AWAKE_NS - 1;
    CHECK(awake_is(&awake));
    clock_ns += 1;
    CHECK(!awake_is(&awake));
    clock_ns -= WORK_AWAKE_NS / 2;
    CHECK(!awake_is(&awake));
}

static void test_sockets_are_looked_at(void)
{
    struct awake awake;

    awake_init(&awake, 2, AWAKE_ANYBODY);
    clock_ns = 1000000;
    awake_want(&awake, WORK_AWAKE_NS);
    CHECK(awake_is(&awake));
    CHECK(awake_is_socket_time(&awake));
    awake_note_sockets(&awake);
    clock_ns += AWAKE_LOOK_NS - 1;
    CHECK(awake_is(&awake));
    CHECK(!awake_is_socket_time(&awake));
    clock_ns += 1;
    CHECK(awake_is(&awake));
    CHECK(awake_is_socket_time(&awake));
}

/* The peer is this process; a group that it is not in is the first free one. */
static void test_members_of_the_group(void)
{
    gid_t groups[256], stranger = 1;
    int ends[2], n = getgroups(ARRAY_SIZE(groups), groups);
    struct awake awake;

    CHECK_GE(n, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    awake_init(&awake, 2, AWAKE_ANYBODY);
    CHECK(awake_permits(&awake, ends[0]));
    awake_init(&awake, 2, getegid());
    CHECK(awake_permits(&awake, ends[0]));
    for (int i = 0; i < n; i++) {
        awake_init(&awake, 2, groups[i]);
        CHECK(awake_permits(&awake, ends[0]));
    }
    for (int i = 0; i < n; i++) {
        if (groups[i] == stranger || getegid() == stranger) {
            stranger++;
            i = -1;
        }
    }
    awake_init(&awake, 2, stranger);
    CHECK(!awake_permits(&awake, ends[0]));
    close(ends[0]);
    close(ends[1]);
}

/* ---- CPUs ----------------------------------------------------------------------------------- */

static void write_quota(const char *folder, const char *text)
{
    char path[200];
    FILE *file;

    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    file = fopen(path, "we");
    fputs(text, file);
    CHECK_EQ(fclose(file), 0);
}

static void test_the_tightest_quota_counts(void)
{
    char root[] = "/tmp/gpupipe-cpus-XXXXXX";
    char outer[100], inner[100], command[120];

    CHECK(mkdtemp(root) != NULL);
    snprintf(outer, sizeof(outer), "%s/outer", root);
    snprintf(inner, sizeof(inner), "%.80s/inner", outer);
    CHECK_EQ(mkdir(outer, 0700), 0);
    CHECK_EQ(mkdir(inner, 0700), 0);
    CHECK_EQ(cpus_quota(root, "/outer/inner"), CPUS_NO_QUOTA);
    write_quota(inner, "max 100000\n");
    CHECK_EQ(cpus_quota(root, "/outer/inner"), CPUS_NO_QUOTA);
    write_quota(outer, "350000 100000\n");
    CHECK_EQ(cpus_quota(root, "/outer/inner"), 3);
    CHECK_EQ(cpus_quota(root, "/outer"), 3);
    write_quota(inner, "200000 100000\n");
    CHECK_EQ(cpus_quota(root, "/outer/inner"), 2);
    CHECK_EQ(cpus_quota(root, "/"), CPUS_NO_QUOTA);
    write_quota(inner, "1000 100000\n");
    CHECK_EQ(cpus_quota(root, "/outer/inner"), 1);
    write_quota(inner, "junk");
    CHECK_EQ(cpus_quota(root, "/outer/inner"), 3);
    CHECK_EQ(cpus_quota(root, ""), CPUS_NO_QUOTA);
    snprintf(command, sizeof(command), "rm -r %s", root);
    CHECK_EQ(system(command), 0);
}

static void test_some_cpu_is_usable(void)
{
    CHECK_GE(cpus_usable(), 1);
    CHECK_LE(cpus_usable(), (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
}

CHECK_MAIN(CHECK_TEST(test_two_cpus_stay_free), CHECK_TEST(test_each_worker_needs_a_cpu),
           CHECK_TEST(test_awake_for_a_while), CHECK_TEST(test_sockets_are_looked_at),
           CHECK_TEST(test_members_of_the_group), CHECK_TEST(test_the_tightest_quota_counts),
           CHECK_TEST(test_some_cpu_is_usable))
