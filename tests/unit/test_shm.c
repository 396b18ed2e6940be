/* Memfds: whole, sealed, shared, and refused where they are not. */
#include "proto/shm.h"
#include "tests/check.h"
#include "tests/random.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE  65536
#define LARGE ((size_t)4 << 20)

static void test_two_mappings_share_their_bytes(void)
{
    uint8_t random[SIZE];
    void *first, *second;
    int fd = shm_create("test", SIZE);

    CHECK_GE(fd, 0);
    CHECK_EQ(shm_map(fd, SIZE, &first), 0);
    CHECK_EQ(shm_map(fd, SIZE, &second), 0);
    CHECK(first != second);
    random_bytes(random, SIZE);
    memcpy(first, random, SIZE);
    CHECK_MEM(second, random, SIZE);
    shm_unmap(first, SIZE);
    shm_unmap(second, SIZE);
    close(fd);
}

#define SEAL_EXEC 0x20 /* Linux 6.3; an older one does not take the flag that asks for it */

static void check_seals(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat stat;

    CHECK_EQ(seals & ~SEAL_EXEC, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    CHECK_EQ(fstat(fd, &stat), 0);
    CHECK_EQ(stat.st_mode & 0111, (seals & SEAL_EXEC) != 0 ? 0 : 0111);
}

static void test_it_is_allocated_and_sealed(void)
{
    struct stat stat;
    int fd = shm_create("test", SIZE);

    CHECK_GE(fd, 0);
    CHECK_EQ(fstat(fd, &stat), 0);
    CHECK_EQ(stat.st_size, SIZE);
    CHECK_GE(stat.st_blocks * 512, SIZE);
    check_seals(fd);
    CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, SIZE / 2), -1);
    CHECK_EQ(ftruncate(fd, SIZE * 2), -1);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    close(fd);
}

static void test_sizes_that_are_no_pages_are_refused(void)
{
    CHECK_EQ(shm_create("test", 0), -EINVAL);
    CHECK_EQ(shm_create("test", SIZE + 1), -EINVAL);
}

/* The file size limit stands in for memory that runs out, which would hurt more than this test. */
static void test_more_than_there_is_is_refused(void)
{
    struct rlimit before, small;

    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){SIZE, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_EQ(shm_create("test", 2 * SIZE), -EFBIG);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* Whatever pages it got. */
static void test_a_large_one_is_whole_and_sealed(void)
{
    uint8_t *random = random_new(LARGE);
    struct stat stat;
    void *base;
    int fd = shm_create_large("test", LARGE, 0);

    CHECK_GE(fd, 0);
    CHECK_EQ(fstat(fd, &stat), 0);
    CHECK_EQ(stat.st_size, LARGE);
    CHECK_GE(stat.st_blocks * 512, LARGE);
    check_seals(fd);
    CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    CHECK_EQ(shm_map(fd, LARGE, &base), 0);
    memcpy(base, random, LARGE);
    CHECK_MEM(base, random, LARGE);
    shm_unmap(base, LARGE);
    close(fd);
    CHECK_EQ(shm_create_large("test", 0, -1), -EINVAL);
    CHECK_EQ(shm_create_large("test", SIZE + 1, -1), -EINVAL);
}

/* The file size limit catches what would be tried: not -EFBIG, so it was not. */
static void test_more_than_the_machine_has_left_is_not_tried(void)
{
    struct rlimit before, small;

    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){SIZE, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    int huge = shm_create_large("test", (size_t)1 << 62, -1);
    int large = shm_create_large("test", 2 * SIZE, -1);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_EQ(huge, -ENOMEM);
    CHECK_EQ(large, -EFBIG);
}

/* What else the thread allocates is none of its business. */
static void test_the_memory_policy_is_as_before(void)
{
    static const int nodes[] = {-1, 0, 1023, 1 << 30};
    unsigned long all[16] = {0}, now[16];
    int mode = -1;

    if (syscall(SYS_get_mempolicy, NULL, all, 1024, NULL, MPOL_F_MEMS_ALLOWED) < 0 ||
        syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, all, 1024) < 0) {
        CHECK_SKIP("memory policies are not to be had: %s", strerror(errno));
    }
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        int fd = shm_create_large("test", LARGE, nodes[i]);

        CHECK_GE(fd, 0);
        close(fd);
        CHECK_EQ(syscall(SYS_get_mempolicy, &mode, now, 1024, NULL, 0), 0);
        CHECK_EQ(mode, MPOL_INTERLEAVE);
        CHECK_MEM(now, all, sizeof(all));
    }
    CHECK_EQ(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), 0);
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        int fd = shm_create_large("test", LARGE, nodes[i]);

        CHECK_GE(fd, 0);
        close(fd);
        CHECK_EQ(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0), 0);
        CHECK_EQ(mode, MPOL_DEFAULT);
    }
}

/* Of one node's memory it is said that it lies there, and of no other that it does. */
static void test_where_memory_lies(void)
{
    unsigned long all[16] = {0};
    unsigned n_there = 0, n_nodes = 0;
    int fd = shm_create_large("test", LARGE, 0);

    if (syscall(SYS_get_mempolicy, NULL, all, 1024, NULL, MPOL_F_MEMS_ALLOWED) < 0) {
        CHECK_SKIP("memory policies are not to be had: %s", strerror(errno));
    }
    CHECK_GE(fd, 0);
    for (int node = 0; node < 1024; node++) {
        n_nodes += all[node / 64] >> node % 64 & 1;
        n_there += shm_lies_on(fd, LARGE, node);
    }
    CHECK_LE(n_there, 1); /* 0: some of it here, some there */
    CHECK(n_nodes > 1 || n_there == 1);
    CHECK(shm_lies_on(fd, LARGE, -1));
    CHECK(!shm_lies_on(fd, LARGE, 1 << 30));
    close(fd);
}

static void test_punched_pages_are_gone_for_everybody(void)
{
    uint8_t *zeros = calloc(1, LARGE);
    struct stat stat;
    void *base;
    int fd = shm_create_large("test", LARGE, -1);

    check_at_end(free, zeros);
    CHECK_GE(fd, 0);
    CHECK_EQ(shm_map(fd, LARGE, &base), 0);
    random_bytes(base, LARGE);
    shm_punch(fd, LARGE);
    CHECK_EQ(fstat(fd, &stat), 0);
    CHECK_EQ(stat.st_blocks, 0);
    CHECK_EQ(stat.st_size, LARGE);
    CHECK_MEM(base, zeros, LARGE);
    shm_unmap(base, LARGE);
    close(fd);
}

static void test_map_refuses_what_could_fault(void)
{
    void *base = &base;
    int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int fd = shm_create("test", SIZE);

    CHECK_EQ(ftruncate(unsealed, SIZE), 0);
    CHECK_EQ(shm_map(unsealed, SIZE, &base), -EINVAL);
    CHECK_EQ(shm_map(file, 4096, &base), -EINVAL);
    CHECK_EQ(shm_map(fd, SIZE + 4096, &base), -EINVAL);
    CHECK_EQ(shm_map(fd, 0, &base), -EINVAL);
    CHECK_EQ(shm_map(-1, SIZE, &base), -EBADF);
    CHECK(base == &base);
    close(unsealed);
    close(file);
    close(fd);
}

CHECK_MAIN(CHECK_TEST(test_two_mappings_share_their_bytes),
           CHECK_TEST(test_it_is_allocated_and_sealed),
           CHECK_TEST(test_sizes_that_are_no_pages_are_refused),
           CHECK_TEST(test_more_than_there_is_is_refused),
           CHECK_TEST(test_a_large_one_is_whole_and_sealed),
           CHECK_TEST(test_more_than_the_machine_has_left_is_not_tried),
           CHECK_TEST(test_the_memory_policy_is_as_before), CHECK_TEST(test_where_memory_lies),
           CHECK_TEST(test_punched_pages_are_gone_for_everybody),
           CHECK_TEST(test_map_refuses_what_could_fault))
