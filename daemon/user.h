/*
 * User: what the connections of one uid hold of what all users share: connections, job slots,
 * places of the queues, and memory of the pool.
 *
 * Each may have three quarters of it (limits.h), whatever the number of its programs: so one user's
 * defect is nobody else's.  The uid is that of the peer when it connected; what it does later, or
 * who inherits the connection, changes nothing.
 *
 * A user exists while it holds a connection or a job, and so a constant.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/places.h"
#include "daemon/scheduler.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct user {
    struct user *next;
    uid_t uid;
    uint32_t n_sessions;
    uint32_t n_jobs;            /* runs included */
    uint64_t pool_size;         /* bytes leased for its jobs and constants */
    struct scheduler_user time; /* of devices */
    struct places places[PRIORITY_COUNT];
};

/* A new connection of this uid.  0, -EDQUOT (it has LIMIT_USER_SESSIONS) or -ENOMEM. */
int user_join(struct user **users, uid_t uid, struct user **ret_user);
void user_leave(struct user **users, struct user *user);

/* Its share of the jobs is used up. */
bool user_has_all_jobs(const struct user *user);
void user_add_job(struct user *user);
/* Its last one may be the last of the user. */
void user_drop_job(struct user **users, struct user *user);

/* Bytes that one user may have of a pool of pool_size, and that this one may have beyond its own.
 */
uint64_t user_pool_share(size_t pool_size);
uint64_t user_pool_room(const struct user *user, size_t pool_size);
/* QUOTA: that is too little. */
int user_refuse_pool(const struct user *user, size_t pool_size, struct failure *ret_failure);
