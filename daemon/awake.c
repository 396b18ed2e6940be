/*
 * Awake: the rules.  See awake.h.
 */
#include "daemon/awake.h"

#include "proto/cpus.h"
#include "proto/util.h"
#include "proto/worker_abi.h"

#include <errno.h>
#include <sys/socket.h>

/* ---- who, and with what --------------------------------------------------------------------- */

uint32_t awake_cpus(int n_cpus, uint32_t n_usable)
{
    if (n_cpus >= 0) {
        return (uint32_t)n_cpus;
    }
    return n_usable > AWAKE_CPUS_LEFT ? n_usable - AWAKE_CPUS_LEFT : 0;
}

void awake_init(struct awake *awake, int n_cpus, gid_t group)
{
    *awake = (struct awake){.n_cpus = awake_cpus(n_cpus, cpus_usable()), .group = group};
}

bool awake_has_cpus(const struct awake *awake, uint32_t n_workers)
{
    return awake->n_cpus >= 1 + n_workers;
}

static bool has_group(const gid_t *groups, size_t n, gid_t group)
{
    for (size_t i = 0; i < n; i++) {
        if (groups[i] == group) {
            return true;
        }
    }
    return false;
}

/* Its supplementary groups when it connected; the kernel says how much room they take. */
static bool has_supplementary(int fd, gid_t group)
{
    _cleanup_(free_pointer) gid_t *groups = NULL;
    socklen_t size = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) == 0 || errno != ERANGE) {
        return false; /* none, or a kernel before 4.13 */
    }
    groups = malloc(size);
    return groups != NULL && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) == 0 &&
           has_group(groups, size / sizeof(gid_t), group);
}

bool awake_permits(const struct awake *awake, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (awake->group == AWAKE_ANYBODY) {
        return true;
    }
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.gid == awake->group || has_supplementary(fd, awake->group));
}

/* ---- for how long --------------------------------------------------------------------------- */

void awake_want(struct awake *awake, uint64_t ns)
{
    awake->wanted_ns = MAX(awake->wanted_ns, ns);
}

bool awake_is(struct awake *awake)
{
    if (awake->until_ns == 0 && awake->wanted_ns == 0) {
        return false;
    }
    awake->now_ns = now_ns();
    if (awake->wanted_ns != 0) {
        awake->until_ns = MAX(awake->until_ns, awake->now_ns + awake->wanted_ns);
        awake->wanted_ns = 0;
    } else if (awake->now_ns >= awake->until_ns) {
        awake->until_ns = 0;
    }
    return awake->until_ns != 0;
}

bool awake_is_socket_time(const struct awake *awake)
{
    return awake->now_ns - awake->sockets_ns >= AWAKE_LOOK_NS;
}

void awake_note_sockets(struct awake *awake)
{
    awake->sockets_ns = awake->now_ns;
}
