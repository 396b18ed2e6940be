/* Memfds: whole, sealed, shared, and refused where they are not. */
#include "proto/shm.h"
#include "tests/check.h"
#include "tests/random.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE 65536

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

static void test_it_is_allocated_and_sealed(void)
{
    struct stat stat;
    int fd = shm_create("test", SIZE);

    CHECK_GE(fd, 0);
    CHECK_EQ(fstat(fd, &stat), 0);
    CHECK_EQ(stat.st_size, SIZE);
    CHECK_GE(stat.st_blocks * 512, SIZE);
    CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
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
           CHECK_TEST(test_map_refuses_what_could_fault))
