/*
 * Shm: named, sealed memfds.
 *
 * A memfd is born with all its pages and sealed before anybody else sees it: a mapping of it can
 * neither fault for want of memory nor be cut off by the other side.
 */
#include "proto/shm.h"

#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* Linux 6.3 */
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define N_SAMPLES 16 /* pages that are asked: a node that is full gives no more from there on */
#define LONG_BITS (8 * sizeof(unsigned long))
#define N_NODES   1024u /* the most that a kernel is built for; it refuses to tell of fewer */

/* The memory policy of a thread: which NUMA nodes its new pages come from. */
struct policy {
    int mode;
    unsigned long nodes[N_NODES / LONG_BITS];
};

/* fallocate() on a memfd gives up, and undoes its work, whenever a signal arrives. */
static int allocate(int fd, size_t size)
{
    int r;

    do {
        r = fallocate(fd, 0, 0, (off_t)size);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

/* Not to be executed, where the kernel knows of that. */
static int create_empty(const char *name, unsigned flags)
{
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

    return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd;
}

static int create(const char *name, size_t size, unsigned flags)
{
    _cleanup_(close_fd) int fd = create_empty(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    int r;

    if (fd < 0) {
        return -errno;
    }
    r = allocate(fd, size);
    if (r < 0) {
        return r;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return -errno;
    }
    return steal_fd(&fd);
}

int shm_create(const char *name, size_t size)
{
    if (size == 0 || size % (size_t)sysconf(_SC_PAGESIZE) != 0) {
        return -EINVAL;
    }
    return create(name, size, 0);
}

static void set_policy(const struct policy *policy)
{
    bool has_nodes = (policy->mode & ~MPOL_MODE_FLAGS) != MPOL_DEFAULT;

    syscall(SYS_set_mempolicy, policy->mode, has_nodes ? policy->nodes : NULL,
            has_nodes ? N_NODES : 0);
}

/* Take this thread's new pages from the node while there are some.  False: nothing was changed. */
static bool prefer_node(int node, struct policy *ret_before)
{
    struct policy wanted = {.mode = MPOL_PREFERRED};

    if (node < 0 || (unsigned)node >= N_NODES ||
        syscall(SYS_get_mempolicy, &ret_before->mode, ret_before->nodes, N_NODES, NULL, 0) < 0) {
        return false;
    }
    wanted.nodes[(unsigned)node / LONG_BITS] = 1UL << (unsigned)node % LONG_BITS;
    set_policy(&wanted);
    return true;
}

/* Huge pages lie in a pool of their own, which has them or not; what it has not is asked first. */
static int create_large(const char *name, size_t size)
{
    if (size > 0 && size % HUGE_PAGE == 0) {
        int fd = create(name, size, MFD_HUGETLB | MFD_HUGE_2MB);

        if (fd >= 0) {
            return fd;
        }
    }
    return size > shm_available() ? -ENOMEM : shm_create(name, size);
}

int shm_create_large(const char *name, size_t size, int node)
{
    struct policy before = {0};
    bool is_changed = prefer_node(node, &before);
    int fd = create_large(name, size);

    if (is_changed) {
        set_policy(&before);
    }
    return fd;
}

bool shm_is_huge(int fd)
{
    struct statfs statfs;

    return fstatfs(fd, &statfs) == 0 && statfs.f_type == HUGETLBFS_MAGIC;
}

bool shm_lies_on(int fd, size_t size, int node)
{
    bool lies_there = true;
    void *base;
    int found;

    if (node < 0 || shm_map(fd, size, &base) < 0) {
        return true;
    }
    for (size_t i = 0; i < N_SAMPLES; i++) {
        uint8_t *page = (uint8_t *)base + size / N_SAMPLES * i;

        /* It tells of pages that this process has in its tables. */
        *(volatile uint8_t *)page;
        if (syscall(SYS_get_mempolicy, &found, NULL, 0, page, MPOL_F_NODE | MPOL_F_ADDR) == 0) {
            lies_there &= found == node;
        }
    }
    shm_unmap(base, size);
    return lies_there;
}

void shm_punch(int fd, size_t size)
{
    int r;

    do {
        r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size);
    } while (r < 0 && errno == EINTR);
}

bool shm_has_nodes(void)
{
    unsigned long nodes[N_NODES / LONG_BITS] = {0};
    unsigned n = 0;

    if (syscall(SYS_get_mempolicy, NULL, nodes, N_NODES, NULL, MPOL_F_MEMS_ALLOWED) < 0) {
        return false;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(nodes); i++) {
        n += (unsigned)__builtin_popcountl(nodes[i]);
    }
    return n > 1;
}

size_t shm_available(void)
{
    size_t kib = SIZE_MAX >> 10;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib << 10;
}

int shm_map(int fd, size_t size, void **ret_base)
{
    struct stat stat;
    void *base;
    int seals;

    if (fstat(fd, &stat) < 0) {
        return -errno;
    }
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || size == 0 || (uint64_t)stat.st_size < size) {
        return -EINVAL;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return -errno;
    }
    *ret_base = base;
    return 0;
}

void shm_unmap(void *base, size_t size)
{
    munmap(base, size);
}
