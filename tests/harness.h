/*
 * Harness: runs the real daemon for a test, on a private socket in a folder of its own, and is its
 * service manager: it listens on NOTIFY_SOCKET, sends SIGTERM, and looks at /proc.
 *
 *     struct harness *daemon = harness_start("--backend", "cpu");
 *     struct wire *wire = wire_connect(harness_socket(daemon));
 *
 * At the end of the test the daemon is stopped: it must exit 0 within its limits, on the way
 * leaving no descriptor of a client open and no child behind.  What it logged is printed if the
 * test failed.  A test that takes longer than HARNESS_DEADLINE_S fails.
 *
 * The programs come from the environment that Meson sets: GPUPIPED, GPUPIPE_CLI, GPUPIPE_WORKER.
 * GPUPIPE_BACKEND=cuda runs the stories on the GPU; the default is cpu.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#define HARNESS_DEADLINE_S 60

/* What a sanitizer adds to a daemon's resident memory: freed blocks that it keeps for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HARNESS_SANITIZER_KIB (32 * 1024)
#else
#define HARNESS_SANITIZER_KIB 0
#endif

struct harness;

/* What the daemons of the stories compute on: "cpu" or "cuda", and one device of it. */
const char *harness_backend(void);
const char *harness_devices(void);
/* Its kind, as `require` names it, and the kind that such a daemon does not have. */
const char *harness_kind(void);
const char *harness_other_kind(void);

/* A folder of our own for socket, log and files, without a daemon yet. */
struct harness *harness_create(void);
/* Start the daemon in it and wait until it is READY.  The options end with NULL. */
void harness_launch(struct harness *harness, const char *const *options);
/* Both. */
#define harness_start(...)                                                                         \
    ({                                                                                             \
        const char *const options_[] = {                                                           \
            "--backend", harness_backend(), "--devices", harness_devices(), "--pinned-pool",       \
            "64M",       "--log-level",     "debug",     ##__VA_ARGS__,     NULL};                 \
        struct harness *harness_ = harness_create();                                               \
        harness_launch(harness_, options_);                                                        \
        harness_;                                                                                  \
    })

/* For harness_start(), in a story that is about the CPU backend. */
#define HARNESS_ON_CPU "--backend", "cpu", "--devices", "cpu0"

/* Before the launch: it finds this program where it looks first for the worker of this backend. */
void harness_place_worker(struct harness *harness, const char *backend, const char *program);

/* The environment of what is started from here on; undone at the test's end. */
void harness_setenv(const char *name, const char *value);
/* Another deadline for this test. */
void harness_deadline(unsigned seconds);

/* SIGTERM, exit code 0, nothing left.  Happens by itself at the end of the test. */
void harness_stop(struct harness *harness);
void harness_signal(struct harness *harness, int signal);
/* Wait for the daemon to exit by itself; returns its exit code, or 128 + signal. */
int harness_wait_exit(struct harness *harness);

const char *harness_socket(const struct harness *harness);
const char *harness_folder(const struct harness *harness);
pid_t harness_pid(const struct harness *harness);
/* The (first) worker's pid; 0 = there is none now.  harness_await_worker() waits for another. */
pid_t harness_worker(const struct harness *harness);
pid_t harness_await_worker(struct harness *harness, pid_t other_than);
/* A process stands still when this returns, until it gets SIGCONT. */
void harness_pause(pid_t pid);
/* Open descriptors of the daemon, the pool's memfds not counted. */
unsigned harness_n_fds(const struct harness *harness);
/* The doorbell of a ring that is made for the next ring.open: open or, for a while, not. */
#define HARNESS_BLANK_FDS 2
/* Waits until they are as many as at READY; or at harness_settle(): devices may come after READY.
 */
void harness_check_fds(struct harness *harness);
void harness_settle(struct harness *harness);
unsigned harness_n_children(const struct harness *harness);
/* Resident memory in KiB, shared pages that it touches included. */
unsigned long harness_rss_kib(const struct harness *harness);
/* The text of a file in /proc/PID, NULs replaced by newlines; NULL if gone.  Lives until the next.
 */
const char *harness_proc(pid_t pid, const char *file);
/* What the daemon wrote on stderr so far.  Lives until the next. */
const char *harness_log(struct harness *harness);

/* All that sd_notify() sent so far, and how often a line of it came. */
const char *harness_notified(struct harness *harness);
unsigned harness_n_notified(struct harness *harness, const char *line);

/* A command for /bin/sh, with GPUPIPE_SOCKET set and the folder as working directory. */
struct harness_output {
    int code; /* exit code, or 128 + signal */
    char out[16384];
    char err[16384]; /* both cut to fit */
};
void harness_shell(struct harness *harness, struct harness_output *ret_output, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
/* The same, not waited for: returns its pid; harness_shell_end() waits. */
pid_t harness_shell_begin(struct harness *harness, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void harness_shell_end(struct harness *harness, pid_t pid, struct harness_output *ret_output);

/* A path in the folder (lives until eight more), and whole files there. */
const char *harness_path(const struct harness *harness, const char *name);
void harness_write(const struct harness *harness, const char *name, const void *bytes, size_t size);
/* The bytes are freed at the test's end. */
void *harness_read(const struct harness *harness, const char *name, size_t *ret_size);

/* Wait for a condition, for as long as a healthy daemon on a busy machine may take. */
extern unsigned harness_patience_ms;
#define HARNESS_WAIT(condition)                                                                    \
    do {                                                                                           \
        for (unsigned waited_ms_ = 0; !(condition); waited_ms_ += 5) {                             \
            if (waited_ms_ >= harness_patience_ms) {                                               \
                CHECK_FAIL("waited in vain for: %s", #condition);                                  \
            }                                                                                      \
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);                               \
        }                                                                                          \
    } while (0)
