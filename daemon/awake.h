/*
 * Awake: whether the front end and its workers may wait for urgent work without sleeping.
 *
 * To be woken takes 15 us at best and 50 to 80 in a virtual machine, at the front end and at the
 * worker again; who looks again and again sees news in 0.2 us, and keeps a CPU busy with it.  So a
 * descriptor of an urgent job keeps both awake for the next WORK_AWAKE_NS (worker_abi.h), and only
 *     - if its client is permitted: --awake-group, else everybody;
 *     - if there are CPUs for it, one for the front end and one for each worker: --awake-cpus, else
 *       what remains of those we may use without the last AWAKE_CPUS_LEFT.  Three that look again
 *       and again on two CPUs made a 14 us round trip one of 8 ms.
 * With one CPU more than that the front end's calls of sockets are made aside (aside.h).
 * Other work gains nothing by it and costs six times the CPU time; but when the last chunks of a
 * large push are on a device, its client waits for them and nothing else, and under the same
 * conditions the front end stays awake for as long as they may take, AWAKE_END_NS.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define AWAKE_CPUS_LEFT 2    /* for clients, and for whatever else the machine is there for */
#define AWAKE_CPUS_MOST 4096 /* far more than there are devices to wait for */

#define AWAKE_CPUS_AUTO (-1)        /* for awake_init(): what the machine can spare */
#define AWAKE_ANYBODY   ((gid_t)-1) /* likewise: no group */

/* While awake, sockets are looked at this often; a look costs a system call or two. */
#define AWAKE_LOOK_NS 50000

/* Two chunks of 1 MiB, which a push ends with, take 0.1 ms. */
#define AWAKE_END_NS 200000

struct awake {
    uint32_t n_cpus; /* that may be kept busy */
    gid_t group;
    uint64_t wanted_ns;  /* for as long, from when the clock is looked at next; 0: nobody wants */
    uint64_t until_ns;   /* 0: asleep */
    uint64_t now_ns;     /* when the clock was last looked at */
    uint64_t sockets_ns; /* when sockets were */
};

/* n_cpus and group: as the administrator has said, or the values above. */
void awake_init(struct awake *awake, int n_cpus, gid_t group);
/* CPUs of n_usable that may be kept busy, when n_cpus were asked for. */
uint32_t awake_cpus(int n_cpus, uint32_t n_usable);
/* May who is at the other end of this socket keep us awake? */
bool awake_permits(const struct awake *awake, int fd);
/* Are there CPUs for the front end and so many workers? */
bool awake_has_cpus(const struct awake *awake, uint32_t n_workers);

/* Work of somebody permitted is worth it for so long, and there are CPUs. */
void awake_want(struct awake *awake, uint64_t ns);
/* Look at the clock, unless asleep: go on without sleeping? */
bool awake_is(struct awake *awake);
/* Did the last look at the clock say so? */
static inline bool awake_was(const struct awake *awake)
{
    return awake->until_ns != 0;
}
/* Is it time to look at sockets?  As of the last awake_is(). */
bool awake_is_socket_time(const struct awake *awake);
void awake_note_sockets(struct awake *awake);
