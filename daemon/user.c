/*
 * User: a short list, as there are few users.
 */
#include "daemon/user.h"

#include "proto/limits.h"
#include "proto/util.h"

#include <errno.h>

static struct user *find_user(struct user *users, uid_t uid)
{
    struct user *user = users;

    while (user != NULL && user->uid != uid) {
        user = user->next;
    }
    return user;
}

static void free_if_idle(struct user **users, struct user *user)
{
    struct user **at = users;

    if (user->n_sessions > 0 || user->n_jobs > 0) {
        return;
    }
    while (*at != user) {
        at = &(*at)->next;
    }
    *at = user->next;
    free(user);
}

int user_join(struct user **users, uid_t uid, struct user **ret_user)
{
    struct user *user = find_user(*users, uid);

    if (user == NULL) {
        user = calloc(1, sizeof(*user));
        if (user == NULL) {
            return -ENOMEM;
        }
        user->uid = uid;
        user->next = *users;
        *users = user;
    }
    if (user->n_sessions == LIMIT_USER_SESSIONS) {
        return -EDQUOT;
    }
    user->n_sessions++;
    *ret_user = user;
    return 0;
}

void user_leave(struct user **users, struct user *user)
{
    user->n_sessions--;
    free_if_idle(users, user);
}

bool user_has_all_jobs(const struct user *user)
{
    return user->n_jobs >= LIMIT_USER_JOBS;
}

void user_add_job(struct user *user)
{
    user->n_jobs++;
}

void user_drop_job(struct user **users, struct user *user)
{
    user->n_jobs--;
    free_if_idle(users, user);
}

uint64_t user_pool_share(size_t pool_size)
{
    return (uint64_t)pool_size * LIMIT_USER_POOL / 100;
}

uint64_t user_pool_room(const struct user *user, size_t pool_size)
{
    uint64_t share = user_pool_share(pool_size);

    return share - MIN(share, user->pool_size);
}

int user_refuse_pool(const struct user *user, size_t pool_size, struct failure *ret_failure)
{
    uint64_t share = user_pool_share(pool_size);

    fail(ret_failure, STATUS_QUOTA, NULL,
         "your jobs, runs and constants hold %llu bytes of the pool, of %llu that one user may "
         "have; end some, or read their results",
         (unsigned long long)user->pool_size, (unsigned long long)share);
    return failure_add_limit(ret_failure, "user_pool", user->pool_size, share);
}
