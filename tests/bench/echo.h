/*
 * Echo: a process that sends back what a Unix socket brings it, and nothing else: what moving the
 * bytes costs without any daemon.
 *
 * It reads as the daemon does (at most ECHO_READ_SIZE at a time) and answers as an op would: for
 * every in_record bytes of a push, out_record bytes, which are the first ones of that push.  So
 * in_record = out_record is a plain echo, and 4096 : 32 has the traffic of sha256.
 *
 * Threads: one on each side.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ECHO_READ_SIZE (256u << 10)
#define ECHO_PUSH_MAX  (16u << 20)

struct echo {
    int fd;
    pid_t pid;
};

/* Before large buffers are filled: they would be copied page by page. */
void echo_start(struct echo *echo);
void echo_stop(struct echo *echo);

struct echo_shape {
    uint64_t in_size; /* bytes in all, whole pushes */
    uint64_t push_size;
    uint64_t in_record;
    uint64_t out_record;
};

/* Send in, receive out, both at once. */
void echo_run(const struct echo *echo, const struct echo_shape *shape, const uint8_t *in,
              uint8_t *out);
