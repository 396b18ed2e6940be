/*
 * Rpc echo: a process with the barest MessagePack-RPC server that libuv and msgpack-c make: it
 * answers every `run` request with the bytes that came.  What requests cost without a daemon that
 * guards, schedules and hands work to another process.
 */
#pragma once

#include <sys/types.h>

struct rpc_echo {
    int fd; /* connected to it, non-blocking */
    pid_t pid;
};

void rpc_echo_start(struct rpc_echo *echo);
/* fd stays its owner's. */
void rpc_echo_stop(struct rpc_echo *echo);
