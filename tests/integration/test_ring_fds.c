/*
 * The descriptors that come with a ring, and what another user can do with them: memory that it may
 * write, and one end of a doorbell.  Everything is tried; the daemon goes on, and so does the ring
 * unless the client has spoiled it.
 */
#include "proto/channel.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20, USER = 61003 }; /* a uid that nobody has */

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20 /* Linux 6.3 */
#endif

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static off_t size_of(int fd)
{
    struct stat stat;

    return fstat(fd, &stat) < 0 ? 0 : stat.st_size;
}

/* Each returns what the call did: negative is a failure, with errno. */

static int grow(int fd)
{
    return ftruncate(fd, size_of(fd) * 2);
}

static int shrink(int fd)
{
    return ftruncate(fd, 4096);
}

static int write_behind_the_end(int fd)
{
    return (int)pwrite(fd, "x", 1, size_of(fd));
}

static int allocate_behind_the_end(int fd)
{
    return fallocate(fd, 0, size_of(fd), 4096);
}

static int collapse(int fd)
{
    return fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096);
}

static int seal_against_writes(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE);
}

static int seal_against_future_writes(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
}

static int allow_all(int fd)
{
    return fchmod(fd, 0777);
}

static int forbid_all(int fd)
{
    return fchmod(fd, 0);
}

static int own(int fd)
{
    return fchown(fd, USER, USER);
}

static int truncate_anew(int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
}

static int execute(int fd)
{
    char *nothing[] = {"x", NULL};

    if ((fcntl(fd, F_GET_SEALS) & F_SEAL_EXEC) == 0) {
        errno = EACCES; /* an old kernel, where it would be */
        return -1;
    }
    return fexecve(fd, nothing, nothing + 1);
}

static int lease(int fd)
{
    return fcntl(fd, F_SETLEASE, F_WRLCK);
}

static int lock(int fd) /* for good; so the second time it is locked already */
{
    return flock(fd, LOCK_EX | LOCK_NB) < 0 && errno != EWOULDBLOCK ? -1 : 0;
}

static int write_inside(int fd)
{
    return pwrite(fd, "abcdefgh", 8, 40) == 8 ? 0 : -1; /* of the queues: behind their header */
}

static int map_to_execute(int fd)
{
    void *base = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, fd, 0);

    return base == MAP_FAILED ? -1 : munmap(base, 4096);
}

static int change_the_description(int fd) /* which the daemon has as well */
{
    return fcntl(fd, F_SETFL, O_APPEND | O_ASYNC | O_NONBLOCK | O_NOATIME) == 0 ||
                   fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK) == 0
               ? (int)lseek(fd, 12345, SEEK_SET) - 12345
               : -1;
}

#define ATTEMPT(act, error)                                                                        \
    {                                                                                              \
#act, act, error                                                                           \
    }

static const struct attempt {
    const char *name;
    int (*act)(int fd);
    int error; /* 0: it may */
} attempts[] = {
    ATTEMPT(grow, EPERM),
    ATTEMPT(shrink, EPERM),
    ATTEMPT(write_behind_the_end, EPERM),
    ATTEMPT(allocate_behind_the_end, EPERM),
    ATTEMPT(collapse, EOPNOTSUPP),
    ATTEMPT(seal_against_writes, EPERM),
    ATTEMPT(seal_against_future_writes, EPERM),
    ATTEMPT(allow_all, EPERM),
    ATTEMPT(forbid_all, EPERM),
    ATTEMPT(own, EPERM),
    ATTEMPT(truncate_anew, EPERM),
    ATTEMPT(execute, EACCES),
    ATTEMPT(lease, EACCES),
    ATTEMPT(lock, 0),
    ATTEMPT(write_inside, 0),
    ATTEMPT(map_to_execute, 0),
    ATTEMPT(change_the_description, 0),
};

/* In the user's process: is everything as it should be with this descriptor? */
static bool try_all(int fd, const char *which)
{
    bool is_right = true;

    for (unsigned i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        errno = 0;
        int r = attempts[i].act(fd), error = r < 0 ? errno : 0;

        if (error != attempts[i].error) {
            printf("# %s of the %s: \"%s\", not \"%s\"\n", attempts[i].name, which, strerror(error),
                   strerror(attempts[i].error));
            is_right = false;
        }
    }
    return is_right;
}

/* The same with a description of its own, if there can be one. */
static bool try_all_again(int fd, const char *which)
{
    char path[32];
    int again;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    return again < 0 || try_all(again, which);
}

/* Another user's process, which has inherited the ring. */
static void be_user(void)
{
    if (setresgid(USER, USER, USER) != 0 || setresuid(USER, USER, USER) != 0) {
        _exit(2);
    }
}

static void await_success(pid_t pid)
{
    int status;

    CHECK_GT(pid, 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void need_root(void)
{
    if (geteuid() != 0) {
        CHECK_SKIP("needs root, to be another user");
    }
}

static void test_memory_that_another_user_has(void)
{
    need_root();
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *watcher = wire_connect(harness_socket(daemon));
    /* Never of huge pages, which take no write(). */
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = ring_client_open_copy(wire, "");
    uint8_t mark[64];

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        be_user();
        bool is_right = try_all(ring->data_fd, "data") && try_all(ring->queues_fd, "queues") &&
                        try_all_again(ring->data_fd, "data, opened anew") &&
                        try_all_again(ring->queues_fd, "queues, opened anew");
        fflush(stdout);
        _exit(is_right ? 0 : 1);
    }
    await_success(pid);
    for (unsigned i = 0; i < 3; i++) {
        ring_client_check_works(ring, job);
    }
    CHECK_EQ(stat_of(watcher, "worker_deaths"), 0);
    CHECK_EQ(stat_of(watcher, "rings_broken"), 0);
    random_bytes(mark, sizeof(mark));
    memcpy(ring->data + MIB / 2, mark, sizeof(mark));
    wire_close(wire); /* the daemon can still free it */
    HARNESS_WAIT(memcmp(ring->data + MIB / 2, mark, sizeof(mark)) != 0);
    CHECK_EQ(ring->data[MIB / 2], 0);
}

/* The daemon has these pages mapped, and reads and writes what is there now. */
static void test_holes_in_the_queues(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *honest = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(honest, 2 * MIB);
    uint64_t job = ring_client_open_copy(honest, "");

    for (unsigned round = 0; round < 20; round++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        struct ring_client *holed = ring_client_open(wire, MIB);
        struct ring_desc desc =
            ring_client_copy(ring_client_open_copy(wire, ", window: 64"), 0, MIB / 2, 128);

        for (unsigned i = 0; i < random_below(60); i++) {
            ring_client_submit(holed, &desc, 1);
        }
        CHECK_EQ(fallocate(holed->queues_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                           (off_t)holed->shared_size),
                 0);
        channel_ring(holed->doorbell_fd);
        ring_client_check_works(ring, job);
        wire_call(wire, "ping", "[]");
        wire_close(wire);
    }
    CHECK_EQ(stat_of(honest, "worker_deaths"), 0);
}

/* ---- /proc ----------------------------------------------------------------------------------- */

/* In the user's process: can it have anything of that one? */
static bool has_anything_of(pid_t pid)
{
    static const char *const names[] = {"mem", "maps", "environ", "cwd/.", "root/.", "exe"};
    char path[64];

    for (unsigned i = 0; i < 256 + sizeof(names) / sizeof(names[0]); i++) {
        if (i < 256) {
            snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)pid, i);
        } else {
            snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, names[i - 256]);
        }
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, path, 1) != -1) {
            return true;
        }
    }
    return false;
}

static void test_nothing_through_proc(void)
{
    need_root();
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    const pid_t pids[] = {harness_pid(daemon), harness_worker(daemon), getpid()};

    ring_client_open(wire, MIB);
    pid_t pid = fork();
    if (pid == 0) {
        be_user();
        for (unsigned i = 0; i < 3; i++) {
            if (has_anything_of(pids[i])) {
                _exit(1 + (int)i);
            }
        }
        _exit(0);
    }
    await_success(pid);
}

/* ---- the doorbell ---------------------------------------------------------------------------- */

static void send_large(int fd)
{
    uint8_t *bytes = random_new(65536);

    CHECK_EQ(send(fd, bytes, 65536, MSG_NOSIGNAL), 65536);
}

static void send_fds(int fd)
{
    int fds[CHANNEL_FDS_MAX] = {0};
    int r = channel_send_packet(fd, "x", 1, fds, CHANNEL_FDS_MAX);

    CHECK(r == 0 || r == -EPERM); /* see channel_refuse_fds() */
}

static void widen(int fd)
{
    const int size = 1 << 24;

    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    for (unsigned i = 0; i < 3000; i++) {
        channel_ring(fd);
    }
}

static void block(int fd)
{
    CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
}

static void hear_nothing(int fd)
{
    CHECK_EQ(shutdown(fd, SHUT_RD), 0);
}

static void test_what_a_doorbell_carries(void)
{
    void (*const acts[])(int fd) = {send_large, send_fds, widen, block, hear_nothing};
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = ring_client_open_copy(wire, "");

    for (unsigned i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        struct ring_client *ring = ring_client_open(wire, MIB);
        unsigned n_fds = harness_n_fds(daemon);

        for (unsigned k = 0; k < 10; k++) {
            acts[i](ring->doorbell_fd);
            ring_client_check_works(ring, job);
        }
        CHECK_LE(harness_n_fds(daemon), n_fds + HARNESS_BLANK_FDS);
        ring_client_close(ring);
    }
}

CHECK_MAIN(CHECK_TEST(test_memory_that_another_user_has), CHECK_TEST(test_holes_in_the_queues),
           CHECK_TEST(test_nothing_through_proc), CHECK_TEST(test_what_a_doorbell_carries))
