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
#include <sys/mman.h>
#include <sys/stat.h>

/* fallocate() on a memfd gives up, and undoes its work, whenever a signal arrives. */
static int allocate(int fd, size_t size)
{
    int r;

    do {
        r = fallocate(fd, 0, 0, (off_t)size);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int shm_create(const char *name, size_t size)
{
    _cleanup_(close_fd) int fd = -1;
    int r;

    if (size == 0 || size % (size_t)sysconf(_SC_PAGESIZE) != 0) {
        return -EINVAL;
    }
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
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
