/*
 * Outcomes: how jobs ended that are gone, for those that come later and want to be after them.
 *
 * Of each user the last LIMIT_JOBS_REMEMBERED, as long as not too many users have so many: then the
 * oldest of all give way.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "proto/message.h"

#include <sys/types.h>

#define OUTCOMES_MAX (4 * LIMIT_JOBS_REMEMBERED) /* 80 KiB of memory.  Not tuned. */

struct outcome {
    uint64_t job;
    uint64_t session; /* its connection's number, see session.h; 0: that had gone before */
    char token[MSG_TOKEN_SIZE];
    enum job_state state;
    enum status status; /* why it FAILED */
};

/* All zero at first. */
struct outcomes {
    uint64_t n_noted;
    struct outcome_age {
        uint64_t number; /* the higher the later; 0: there is none here */
        uid_t uid;
    } ages[OUTCOMES_MAX];
    struct outcome all[OUTCOMES_MAX];
};

void outcomes_note(struct outcomes *outcomes, uid_t uid, const struct outcome *outcome);
/* Of a job of this connection's, or with this token; NULL: it is not known (any more). */
const struct outcome *outcomes_find(const struct outcomes *outcomes, uint64_t session,
                                    uint64_t job);
const struct outcome *outcomes_find_token(const struct outcomes *outcomes, const char *token);

/* A new token, which nobody can guess.  0 or -errno. */
int token_make(char ret_token[MSG_TOKEN_SIZE]);
/* Are they the same?  It takes as long wherever they differ. */
bool token_is(const char token[MSG_TOKEN_SIZE], const char other[MSG_TOKEN_SIZE]);
