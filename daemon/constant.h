/*
 * Constant: an operand that a client uploads once and names in its jobs.
 *
 * It belongs to its connection, which alone can name it, until it is dropped or the connection
 * ends; its bytes stay for as long as a job uses it.  They lie in one block of the pool, which
 * every worker has mapped, and do not change: a job's slot of the job block says where
 * (worker_abi.h), so workers that come and go need not be told.
 *
 * References: one of the connection, one of what each job was prepared to (prepared.h).
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/pool.h"

#include <nettle/sha2.h>
#include <stdint.h>

struct server;
struct session;
struct user;

struct constant {
    struct server *server;
    struct session *session;          /* NULL: dropped */
    struct user *user;                /* who is charged for it; a job of the same keeps it */
    struct constant *next, *previous; /* of the server's */
    uint64_t id;                      /* of no other, ever; 0: still being received */
    uint32_t size;
    struct block block;
    uint32_t n_refs;
    struct sha256_ctx sha256; /* of its first n_hashed bytes */
    uint32_t n_hashed;
};

/*
 * One of this connection's, with room for its bytes and the connection's reference.  RANGE: empty;
 * TOO_BIG; QUOTA: the connection has LIMIT_CONSTS_HELD, or its user no more of the pool; BUSY: the
 * pool has no room now.
 */
int constant_create(struct session *session, uint64_t size, struct constant **ret_constant,
                    struct failure *ret_failure);
struct constant *constant_ref(struct constant *constant);
/* NULL is fine. */
void constant_unref(struct constant *constant);

/*
 * Its first n_arrived bytes are here: hash what is new of them.  So the loop is never held up by
 * all of a constant at once.
 */
void constant_hash(struct constant *constant, uint32_t n_arrived);
/* All its bytes are here: give it its id, and the caller their hash. */
void constant_complete(struct constant *constant, uint8_t ret_sha256[SHA256_DIGEST_SIZE]);

/* The connection's constant of this id; errors (NOT_YOURS, NOT_FOUND) name the field. */
int constant_find(struct session *session, uint64_t id, const char *field,
                  struct constant **ret_constant, struct failure *ret_failure);

/* The connection lets go of it, or of all it has. */
void constant_drop(struct constant *constant);
void constant_drop_all(struct session *session);
