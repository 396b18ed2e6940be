/*
 * Constant: the server's list of them, and the count of who needs each.
 */
#include "daemon/constant.h"

#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/user.h"
#include "proto/util.h"

/* As with jobs: at most half of what the pool has free, so that each leaves room for the next. */
#define CONST_SHARE(free) ((free) / 2)

static int check_count(const struct session *session, struct failure *ret_failure)
{
    const struct constant *constant = session_server(session)->constants;
    uint32_t n = 0;

    for (; constant != NULL; constant = constant->next) {
        n += constant->session == session;
    }
    if (n < LIMIT_CONSTS_HELD) {
        return 0;
    }
    fail(ret_failure, STATUS_QUOTA, "data",
         "this connection has %u constants, at most %d; drop one first", n, LIMIT_CONSTS_HELD);
    ret_failure->retry_ms = SERVER_RETRY_MS;
    return failure_add_limit(ret_failure, "consts_held", n, LIMIT_CONSTS_HELD);
}

static int check_size(uint64_t size, struct failure *ret_failure)
{
    if (size == 0) {
        return fail(ret_failure, STATUS_RANGE, "data", "a constant has at least one byte");
    }
    if (size > LIMIT_CONST_SIZE) {
        fail(ret_failure, STATUS_TOO_BIG, "data", "a constant of %llu bytes, at most %d",
             (unsigned long long)size, LIMIT_CONST_SIZE);
        return failure_add_limit(ret_failure, "const_size", size, LIMIT_CONST_SIZE);
    }
    return 0;
}

/* Of the pool, at its user's cost. */
static int lease(struct constant *constant, struct failure *ret_failure)
{
    struct pool *pool = constant->server->pool;
    size_t size = pool_rounded(constant->size);

    if (size > user_pool_room(constant->user, pool_size(pool))) {
        user_refuse_pool(constant->user, pool_size(pool), ret_failure);
    } else if (size <= CONST_SHARE(pool_size(pool) - pool_used(pool)) &&
               pool_lease(pool, constant->size, &constant->block) == 0) {
        constant->user->pool_size += size;
        return 0;
    } else {
        fail(ret_failure, STATUS_BUSY, NULL,
             "the pool has no room for a constant of %u bytes now; try again later",
             constant->size);
        failure_add_limit(ret_failure, "pool", pool_used(pool), pool_size(pool));
    }
    ret_failure->retry_ms = SERVER_RETRY_MS;
    return -(int)ret_failure->status;
}

static void link_constant(struct server *server, struct constant *constant)
{
    constant->next = server->constants;
    if (server->constants != NULL) {
        server->constants->previous = constant;
    }
    server->constants = constant;
}

int constant_create(struct session *session, uint64_t size, struct constant **ret_constant,
                    struct failure *ret_failure)
{
    _cleanup_(free_pointer) struct constant *constant = NULL;
    int r = check_count(session, ret_failure);

    if (r == 0) {
        r = check_size(size, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    constant = calloc(1, sizeof(*constant));
    if (constant == NULL) {
        fail(ret_failure, STATUS_BUSY, NULL, "the daemon is out of memory; try again later");
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return -(int)ret_failure->status;
    }
    *constant = (struct constant){
        .server = session_server(session),
        .session = session,
        .user = session_user(session),
        .size = (uint32_t)size,
        .n_refs = 1,
    };
    r = lease(constant, ret_failure);
    if (r < 0) {
        return r;
    }
    sha256_init(&constant->sha256);
    link_constant(constant->server, constant);
    *ret_constant = STEAL(constant);
    return 0;
}

struct constant *constant_ref(struct constant *constant)
{
    constant->n_refs++;
    return constant;
}

void constant_unref(struct constant *constant)
{
    if (constant == NULL || --constant->n_refs > 0) {
        return;
    }
    if (constant->previous != NULL) {
        constant->previous->next = constant->next;
    } else {
        constant->server->constants = constant->next;
    }
    if (constant->next != NULL) {
        constant->next->previous = constant->previous;
    }
    constant->user->pool_size -= constant->block.size;
    pool_release(constant->server->pool, &constant->block);
    server_room_came(constant->server);
    free(constant);
}

void constant_hash(struct constant *constant, uint32_t n_arrived)
{
    const uint8_t *bytes = constant->block.base;

    sha256_update(&constant->sha256, n_arrived - constant->n_hashed, bytes + constant->n_hashed);
    constant->n_hashed = n_arrived;
}

void constant_complete(struct constant *constant, uint8_t ret_sha256[SHA256_DIGEST_SIZE])
{
    constant_hash(constant, constant->size);
    sha256_digest(&constant->sha256, SHA256_DIGEST_SIZE, ret_sha256);
    constant->id = ++constant->server->last_const_id;
}

int constant_find(struct session *session, uint64_t id, const char *field,
                  struct constant **ret_constant, struct failure *ret_failure)
{
    struct constant *constant = session_server(session)->constants;

    while (constant != NULL && (constant->id != id || id == 0)) {
        constant = constant->next;
    }
    if (constant == NULL || constant->session == NULL) {
        return fail(ret_failure, STATUS_NOT_FOUND, field,
                    "there is no constant %llu, or it was dropped", (unsigned long long)id);
    }
    if (constant->session != session) {
        return fail(ret_failure, STATUS_NOT_YOURS, field, "constant %llu is another connection's",
                    (unsigned long long)id);
    }
    *ret_constant = constant;
    return 0;
}

void constant_drop(struct constant *constant)
{
    constant->session = NULL;
    constant_unref(constant);
}

void constant_drop_all(struct session *session)
{
    struct constant *next;

    for (struct constant *constant = session_server(session)->constants; constant != NULL;
         constant = next) {
        next = constant->next;
        if (constant->session == session) {
            constant_drop(constant);
        }
    }
}
