/*
 * Job, after others: whom it names, and what becomes of it when they end.
 *
 * A job names others by their numbers, if they are its own connection's, or by their tokens,
 * whoever has them: a token lets its holder wait and learn how the job ended, and nothing else.  No
 * other number is ever looked at, so the answer for one that is not there and for one that is
 * somebody else's are the same.
 */
#include "daemon/job.h"

#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/user.h"
#include "proto/util.h"

#include <assert.h>
#include <string.h>

/* ---- how others end ------------------------------------------------------------------------- */

static struct outcome outcome_of(const struct job *job)
{
    struct outcome outcome = {
        .job = job->id,
        .session = job->session != NULL ? session_number(job->session) : 0,
        .state = job->state,
        .status = job->failure.status,
    };

    memcpy(outcome.token, job->token, sizeof(outcome.token));
    return outcome;
}

/* It did not end well; words: why it failed, for those who may know, else "". */
static int refuse_end(const struct outcome *outcome, const char *words, struct failure *ret_failure)
{
    unsigned long long id = outcome->job;

    switch (outcome->state) {
    case JOB_CANCELLED:
        return fail(ret_failure, STATUS_CANCELLED, "after",
                    "job %llu, which this one is after, was cancelled, or its connection ended",
                    id);
    case JOB_EXPIRED:
        return fail(ret_failure, STATUS_CANCELLED, "after",
                    "job %llu, which this one is after, did not meet its deadline", id);
    default:
        return fail(ret_failure, STATUS_CANCELLED, "after",
                    "job %llu, which this one is after, failed: %s%s%s", id,
                    status_name(outcome->status), words[0] != '\0' ? ": " : "", words);
    }
}

/* ---- being held ----------------------------------------------------------------------------- */

static struct job *find_own(const struct job *job, uint64_t id)
{
    struct job *found = server_find_job(job->server, id);

    return found != NULL && found->session == job->session ? found : NULL;
}

static struct job *find_by_token(const struct server *server, const char *token)
{
    struct job *job = server->jobs;

    while (job != NULL && !token_is(job->token, token)) {
        job = job->next;
    }
    return job;
}

/* A job that has not ended, or NULL: it has, and well. */
static int find(const struct job *job, const struct msg_after *after, struct job **ret_other,
                struct failure *ret_failure)
{
    const struct outcomes *outcomes = &job->server->outcomes;
    bool has_token = after->token[0] != '\0';
    struct job *other =
        has_token ? find_by_token(job->server, after->token) : find_own(job, after->job);

    *ret_other = NULL;
    if (other != NULL && !other->has_said_done) {
        *ret_other = other;
        return 0;
    }
    const struct outcome *outcome =
        has_token ? outcomes_find_token(outcomes, after->token)
                  : outcomes_find(outcomes, session_number(job->session), after->job);
    if (outcome != NULL) {
        return outcome->state == JOB_DONE ? 0 : refuse_end(outcome, "", ret_failure);
    }
    if (has_token) {
        return fail(ret_failure, STATUS_NOT_FOUND, "after",
                    "no job has this token, or it ended too long ago");
    }
    return fail(ret_failure, STATUS_NOT_FOUND, "after",
                "this connection has no job %llu, or it ended too long ago; a job of another "
                "connection is named by its token",
                (unsigned long long)after->job);
}

int job_hold(struct job *job, const struct msg_options *options, struct failure *ret_failure)
{
    struct after_node *others[LIMIT_AFTER] = {NULL};
    uint32_t n = 0;

    for (uint32_t i = 0; i < options->n_after; i++) {
        struct job *other;
        int r = find(job, &options->after[i], &other, ret_failure);

        if (r < 0) {
            return r;
        }
        if (other != NULL) {
            others[n++] = &other->after;
        }
    }
    if (after_wait(&job->after, others, n) < 0) {
        fail(ret_failure, STATUS_BUSY, NULL, "the daemon is out of memory; try again later");
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return -(int)ret_failure->status;
    }
    job->is_after = options->n_after > 0;
    if (n > 0) {
        server_room_came(job->server); /* a run may have to wait no longer: refuse_to_wait() */
    }
    return 0;
}

bool job_is_held(const struct job *job)
{
    return job->after.n_held_by > 0;
}

const struct job *job_find_awaited(const struct server *server, const struct session *session)
{
    const struct job *job = server->jobs;

    while (job != NULL && (job->session != session || job->state != JOB_OPEN || job->id == 0 ||
                           job->after.waiters == NULL)) {
        job = job->next;
    }
    return job;
}

/* ---- being released ------------------------------------------------------------------------- */

static void fail_waiter(struct job *waiter, const struct failure *failure)
{
    for (struct push *push = waiter->lists.first; push != NULL; push = push->next) {
        push_note_failure(push, failure);
    }
    job_fail(waiter, failure, 0);
}

/* Of a chain there is no room for the words of all: those of the first to fail are passed on. */
static const char *first_words(const struct job *ended)
{
    static const char behind[] = "failed: CANCELLED: ";
    const char *words = ended->failure.message, *next;

    while ((next = strstr(words, behind)) != NULL) {
        words = next + strlen(behind);
    }
    return words;
}

static void fail_with(struct job *waiter, const struct job *ended)
{
    const struct outcome outcome = outcome_of(ended);
    struct failure failure;

    refuse_end(&outcome, waiter->user == ended->user ? first_words(ended) : "", &failure);
    fail_waiter(waiter, &failure);
}

void job_settle_later(struct job *job)
{
    if (!job->is_released) {
        job->is_released = true;
        job->next_released = job->server->released;
        job->server->released = job;
    }
}

void job_note_end(struct job *job)
{
    const struct outcome outcome = outcome_of(job);
    struct after_node *node;

    after_stop(&job->after);
    if (job->id == 0) {
        return;
    }
    outcomes_note(&job->server->outcomes, job->user->uid, &outcome);
    while ((node = after_release(&job->after)) != NULL) {
        struct job *waiter = CONTAINER_OF(node, struct job, after);

        if (job->state != JOB_DONE) {
            fail_with(waiter, job);
        }
        job_settle_later(waiter);
    }
}

static void give_up_on(struct job *job)
{
    struct failure failure;
    struct after_node *node;

    fail(&failure, STATUS_CANCELLED, "after",
         "job %llu, which this one is after, is still open, and the daemon is stopping",
         (unsigned long long)job->id);
    while ((node = after_release(&job->after)) != NULL) {
        struct job *waiter = CONTAINER_OF(node, struct job, after);

        fail_waiter(waiter, &failure);
        job_settle_later(waiter);
    }
}

void jobs_give_up_on_open(struct server *server)
{
    for (struct job *job = server->jobs; job != NULL; job = job->next) {
        if (job->state == JOB_OPEN) {
            give_up_on(job);
        }
    }
}

void job_stop_waiting(struct job *job)
{
    struct job **at = &job->server->released;

    assert(job->after.waiters == NULL);
    after_stop(&job->after);
    while (job->is_released && *at != NULL) {
        if (*at == job) {
            *at = job->next_released;
            return;
        }
        at = &(*at)->next_released;
    }
}

void jobs_settle_released(struct server *server)
{
    struct job *job;

    while ((job = server->released) != NULL) {
        server->released = job->next_released;
        job->is_released = false;
        job_settle(job);
    }
}
