/*
 * Client: a process with a ring of its own, which copies data in it when it is told to.
 *
 * Thread: its caller's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client {
    pid_t pid;
    int fd;
};

struct client_shape {
    const char *socket_path;
    size_t size;      /* bytes of inputs, and as many of outputs */
    size_t push_size; /* bytes */
};

/* Returns when its ring is open. */
void client_start(struct client *client, const struct client_shape *shape);
void client_stop(struct client *client);

/* Fresh data, and outputs poisoned. */
void client_prepare(const struct client *client);
/* All of the data once, or so many times; returns at once. */
void client_begin(const struct client *client, uint32_t n_passes);
/* Until it is done: the seconds that it took by the client's clock. */
double client_end(const struct client *client);
/* It compares every byte; the program ends where one is wrong. */
void client_check(const struct client *client);
