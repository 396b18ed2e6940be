/*
 * Job: making, ending and settling.  See job.h for the states.
 */
#include "daemon/job.h"

#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/user.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/*
 * A new job takes at most half of what the pool has free, so that each leaves room for the next,
 * and a run at most its user's share of the pool, three quarters: up to there a buddy allocator
 * that packs blocks of up to a quarter segment always finds room once the pool is empty, so a
 * waiting run cannot wait for ever.  While it waits it holds nothing, for the same reason.
 */
#define JOB_SHARE(free) ((free) / 2)
_Static_assert(LIMIT_USER_POOL <= 75, "a run of a user's whole share fits an empty pool");

/* ---- making --------------------------------------------------------------------------------- */

static void set_state(struct job *job, enum job_state state)
{
    assert(state > job->state && job->state < JOB_DONE);
    job->state = state;
}

int job_create(struct session *session, struct prepared *prepared, uint64_t deadline_at_ns,
               struct job **ret_job, struct failure *ret_failure)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        prepared_unref(prepared);
        fail(ret_failure, STATUS_BUSY, NULL, "the daemon is out of memory; try again later");
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return -(int)ret_failure->status;
    }
    job->session = session;
    job->user = session_user(session);
    job->server = session_server(session);
    job->prepared = prepared;
    job->stop_seq = UINT64_MAX;
    job->deadline_at_ns = deadline_at_ns;
    job->flow.priority = prepared->priority;
    job->flow.devices = prepared->devices;
    job->flow.rate = &prepared->rate;
    job->flow.user = &job->user->time;
    user_add_job(job->user);
    server_add_job(job->server, job);
    *ret_job = job;
    return 0;
}

static struct places_pair places_of(const struct job *job)
{
    enum priority priority = job->flow.priority;

    return (struct places_pair){&job->server->places[priority], &job->user->places[priority]};
}

int job_take_places(struct job *job, uint32_t n_wanted, struct failure *ret_failure)
{
    struct places_pair places = places_of(job);

    return places_take(&places, job->flow.priority, n_wanted, server_loop_ns(job->server),
                       &job->n_places, ret_failure);
}

/* As many as it does not need after all. */
static void give_back_places(struct job *job, uint32_t n)
{
    struct places_pair places = places_of(job);

    places_give_back(&places, n);
    job->n_places -= n;
}

static void free_places(struct job *job)
{
    struct places_pair places = places_of(job);

    if (job->n_pushed == 0) {
        give_back_places(job, job->n_places);
        return;
    }
    places_free(&places, job->n_places, server_loop_ns(job->server));
    job->n_places = 0;
}

static void release_fold(struct job *job)
{
    pool_release(job->server->pool, &job->fold);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        pool_release(job->server->pool, &job->out[i]);
    }
}

void job_destroy(struct job *job)
{
    struct server *server = job->server;

    assert(job->n_chunks == 0 && job->n_messages == 0 && job->n_queued == 0);
    if (job->session != NULL) {
        session_forget_job(job->session, job);
    }
    job_stop_waiting(job);
    scheduler_remove(&server->scheduler, &job->flow);
    for (uint32_t i = 0; i < job->window; i++) {
        push_release(&job->pushes[i], &job->prepared->shape, server->pool);
    }
    free(job->pushes);
    push_lists_free_rows(&job->lists);
    release_fold(job);
    prepared_unref(job->prepared);
    free_places(job);
    job->user->pool_size -= job->pool_size;
    user_drop_job(&server->users, job->user);
    server_room_came(server);
    server_remove_job(server, job);
    free(job);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* The fold so far, and the one that a worker makes of it. */
#define FOLD_SIZE (2 * MANIFEST_PARTIAL_SIZE)

/* What the pool lends for a reduce op's fold and outputs. */
static uint64_t fold_pool_size(const struct job *job)
{
    uint64_t total = 0;

    if (job->prepared->shape.leaf == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < job->prepared->op->n_out; i++) {
        total += pool_rounded(job->prepared->out_size[i]);
    }
    return total + pool_rounded(FOLD_SIZE);
}

static int lease_fold(struct job *job)
{
    struct pool *pool = job->server->pool;

    if (job->prepared->shape.leaf == 0) {
        return 0;
    }
    int r = pool_lease(pool, FOLD_SIZE, &job->fold);
    for (uint32_t i = 0; r == 0 && i < job->prepared->op->n_out; i++) {
        r = pool_lease(pool, job->prepared->out_size[i], &job->out[i]);
    }
    if (r < 0) {
        release_fold(job);
    }
    return r;
}

/* All that the job will ever lease, which is what the pool lends more of than before. */
static void charge(struct job *job, size_t used_before)
{
    job->pool_size = pool_used(job->server->pool) - used_before;
    job->user->pool_size += job->pool_size;
}

static int make_window(struct job *job, uint32_t window, uint64_t n_records)
{
    job->pushes = calloc(window, sizeof(*job->pushes));
    if (job->pushes == NULL) {
        return -ENOMEM;
    }
    for (job->window = 0; job->window < window; job->window++) {
        struct push *push = &job->pushes[job->window];

        push->job = job;
        push_lists_add(&job->lists, push);
        if (n_records > 0 && push_lease(push, &job->prepared->shape, job->server->pool, n_records,
                                        (uint32_t)n_records) < 0) {
            break;
        }
    }
    if (job->window == window) {
        return 0;
    }
    for (uint32_t i = 0; i < job->window; i++) {
        push_release(&job->pushes[i], &job->prepared->shape, job->server->pool);
    }
    free(STEAL(job->pushes));
    job->lists = (struct push_lists){0};
    job->window = 0;
    return -ENOMEM;
}

/* Records of a push of at most size bytes an array: whole leaves, at least one record or leaf. */
static uint64_t push_records(const struct job *job, uint64_t size)
{
    uint64_t step = MAX(job->prepared->shape.leaf, 1u);

    return MAX(size / job->prepared->shape.largest / step, UINT64_C(1)) * step;
}

/* What the pool lends for a window of pushes of this size. */
static uint64_t window_pool_size(const struct job *job, uint32_t window, uint64_t n_records)
{
    uint64_t total = 0;

    for (uint32_t array = 0; array < job->prepared->shape.n_arrays; array++) {
        total += pool_rounded(push_array_size(&job->prepared->shape, array, n_records));
    }
    return window * total;
}

/* Nothing smaller would do: is it the pool that is full, or the user's share of it? */
static int refuse_window(const struct job *job, uint64_t wanted, struct failure *ret_failure)
{
    size_t size = pool_size(job->server->pool);
    const struct places *places = job->server->places;

    if (wanted > user_pool_room(job->user, size)) {
        user_refuse_pool(job->user, size, ret_failure);
        places = job->user->places;
    } else {
        fail(ret_failure, STATUS_BUSY, NULL,
             "the pool has no room for a push of this op now; try again later");
        failure_add_limit(ret_failure, "pool", pool_used(job->server->pool), size);
    }
    ret_failure->retry_ms = places_retry_any_ms(places, server_loop_ns(job->server));
    return -(int)ret_failure->status;
}

/*
 * Halve max_push down to its least, then the window, until the window has its memory.  The fold has
 * its own already, and is still to be charged.
 */
static int shrink_to_fit(struct job *job, uint32_t window, uint64_t size,
                         struct failure *ret_failure)
{
    const struct pool *pool = job->server->pool;
    uint64_t fold = fold_pool_size(job);
    uint64_t room = user_pool_room(job->user, pool_size(pool)) - fold;
    uint64_t share = MIN(JOB_SHARE(pool_size(pool) - pool_used(pool)), room);

    for (;;) {
        uint64_t n_records = push_records(job, size);

        job->prepared->shape.varying_size = n_records * job->prepared->shape.largest;
        uint64_t wanted = window_pool_size(job, window, n_records);

        /* The last try may take more than half: one push of few large records. */
        if ((wanted <= share || (window == 1 && wanted <= room)) &&
            make_window(job, window, n_records) == 0) {
            job->max_records = (uint32_t)n_records;
            return 0;
        }
        if (size > LIMIT_PUSH_LEAST && n_records > push_records(job, 1)) {
            size = MAX(size / 2, (uint64_t)LIMIT_PUSH_LEAST);
        } else if (window > 1) {
            window /= 2;
        } else {
            return refuse_window(job, wanted + fold, ret_failure);
        }
    }
}

int job_lease_window(struct job *job, const struct msg_options *options,
                     struct failure *ret_failure)
{
    size_t used = pool_used(job->server->pool);
    uint64_t size = options->max_push != 0 ? options->max_push : LIMIT_PUSH_DEFAULT;
    uint64_t fold = fold_pool_size(job);
    int r = job_take_places(job, options->window != 0 ? options->window : LIMIT_WINDOW_DEFAULT,
                            ret_failure);

    if (r < 0) {
        return r;
    }
    if (fold > user_pool_room(job->user, pool_size(job->server->pool)) || lease_fold(job) < 0) {
        return refuse_window(job, fold, ret_failure);
    }
    if (job->prepared->is_in_rings) {
        uint64_t wanted;

        r = job_make_ring_window(job, options, job->n_places, &wanted);
        charge(job, used);
        return r < 0 ? refuse_window(job, wanted, ret_failure) : 0;
    }
    r = shrink_to_fit(job, job->n_places, size, ret_failure);
    charge(job, used);
    give_back_places(job, job->n_places - job->window);
    return r;
}

/* What a connection gives back only by requests that are still to come. */
static uint64_t held_by(const struct server *server, const struct session *session)
{
    uint64_t held = 0;

    for (const struct job *job = server->jobs; job != NULL; job = job->next) {
        held += job->session == session && job->state == JOB_OPEN ? job->pool_size : 0;
    }
    for (const struct constant *constant = server->constants; constant != NULL;
         constant = constant->next) {
        held += constant->session == session ? pool_rounded(constant->size) : 0;
    }
    return held;
}

int job_lease_run(struct job *job, uint64_t n_records, struct failure *ret_failure)
{
    struct pool *pool = job->server->pool;
    size_t used = pool_used(pool);
    uint32_t piece_records;
    uint64_t size;
    int r = push_plan(&job->prepared->shape, n_records, &piece_records, &size, ret_failure);

    if (r < 0) {
        return r;
    }
    uint64_t share = user_pool_share(pool_size(pool));
    size += fold_pool_size(job);
    if (size > share) {
        fail(ret_failure, STATUS_TOO_BIG, "data",
             "this run needs %llu bytes of the pool and may have %llu; use a job",
             (unsigned long long)size, (unsigned long long)share);
        return failure_add_limit(ret_failure, "user_pool", size, share);
    }
    if (size > user_pool_room(job->user, pool_size(pool)) &&
        size > share - MIN(share, held_by(job->server, job->session))) {
        /* To wait would be for ever: who waits is not read. */
        user_refuse_pool(job->user, pool_size(pool), ret_failure);
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return -(int)ret_failure->status;
    }
    if (size > user_pool_room(job->user, pool_size(pool)) ||
        (job->pushes == NULL && make_window(job, 1, 0) < 0) || lease_fold(job) < 0) {
        return JOB_NO_ROOM;
    }
    if (push_lease(&job->pushes[0], &job->prepared->shape, pool, n_records, piece_records) < 0) {
        release_fold(job);
        return JOB_NO_ROOM;
    }
    charge(job, used);
    return 0;
}

uint64_t job_max_push(const struct job *job)
{
    return (uint64_t)job->max_records * job->prepared->shape.largest;
}

/* ---- pushes --------------------------------------------------------------------------------- */

struct push *job_free_push(const struct job *job)
{
    return job->lists.free;
}

void job_accept(struct job *job, struct push *push)
{
    push->seq = job->n_pushed;
    job->n_pushed += push->n_rows;
    job->n_queued += push->n_records;
    push_lists_move(&job->lists, push, PUSH_ACCEPTED);
    push->n_released = 0;
    push->n_chunks = 0;
    push->devices = 0;
    push->ran_as = job->flow.priority;
    push->n_merged = 0;
    push->is_late = false;
    job->n_timed += push->deadline_at_ns != 0;
    if (push->deadline_at_ns != 0) {
        server_need_tick(job->server);
    }
    free(STEAL(push->failure));
    push->arrived_ns = server_loop_ns(job->server);
    push->accepted_ns = job->prepared->wants_timing ? now_ns() : 0;
    push->start_ns = 0;
    push->in_ns = 0;
    push->compute_ns = 0;
    push->out_ns = 0;
    job->server->stats.pushes_total += push->n_rows;
}

/* ---- ending --------------------------------------------------------------------------------- */

void job_close(struct job *job)
{
    set_state(job, JOB_CLOSED);
}

/* Pushes from there on get no more chunks. */
static void stop_at(struct job *job, uint64_t seq)
{
    const struct push *push = job->lists.first;

    job->stop_seq = seq;
    job->n_queued = 0;
    for (; push != NULL && push->seq < seq; push = push->next) {
        job->n_queued += push->is_late ? 0 : push->n_records - push->n_released;
    }
}

static void stop(struct job *job, enum job_state state, uint64_t stop_seq)
{
    if (job->state < JOB_DONE) {
        set_state(job, state);
        stop_at(job, stop_seq);
    }
}

void job_fail(struct job *job, const struct failure *failure, uint64_t seq)
{
    if (job->state < JOB_DONE) {
        job->failure = *failure;
        stop(job, JOB_FAILED, seq);
    }
    if (seq < job->stop_seq) { /* a push before the one that failed first has failed as well */
        stop_at(job, seq);
    }
}

void job_refuse(struct job *job, const struct failure *failure)
{
    job->has_refused = true;
    job_fail(job, failure, job->n_pushed);
}

void job_cancel(struct job *job)
{
    stop(job, JOB_CANCELLED, job->n_answered);
}

void job_expire(struct job *job)
{
    if (job->state < JOB_DONE) {
        if (job->id == 0) {
            fail(&job->failure, STATUS_DEADLINE, "deadline_ns",
                 "the deadline passed before the run was done");
        } else {
            fail(&job->failure, STATUS_DEADLINE, "deadline_ns",
                 "the deadline passed; %llu of %llu pushes were done",
                 (unsigned long long)job->n_done, (unsigned long long)job->n_pushed);
        }
        stop(job, JOB_EXPIRED, job->n_answered);
    }
}

/* A push that is computed, and waits for those before it, is not late. */
static bool note_late_pushes(struct job *job, uint64_t now_ns)
{
    bool has_any = false;

    if (job->n_timed == 0) {
        return false;
    }
    for (struct push *push = job->lists.first; push != NULL; push = push->next) {
        if (push->deadline_at_ns != 0 && !push->is_late && now_ns >= push->deadline_at_ns &&
            push->seq < job->stop_seq && !push_is_computed(push, &job->prepared->shape)) {
            push->is_late = has_any = true;
            job->n_queued -= push->n_records - push->n_released;
        }
    }
    return has_any;
}

bool job_note_late(struct job *job, uint64_t now_ns)
{
    if (job->state < JOB_DONE && job->deadline_at_ns != 0 && now_ns >= job->deadline_at_ns) {
        job_expire(job);
        return true;
    }
    return note_late_pushes(job, now_ns);
}

bool job_is_timed(const struct job *job)
{
    return job->n_timed > 0 || (job->deadline_at_ns != 0 && job->state < JOB_DONE);
}

void job_orphan(struct job *job)
{
    job_cancel(job);
    job->session = NULL;
    stop_at(job, 0);
    job_settle(job);
}

/* Why a push has no more chunks. */
static void describe_stop(const struct job *job, const struct push *push,
                          struct failure *ret_failure)
{
    uint64_t n_done = push_n_done(push, &job->prepared->shape);

    if (push->failure != NULL) {
        *ret_failure = *push->failure;
    } else if (push->is_late || job->state == JOB_EXPIRED) {
        fail(ret_failure, STATUS_DEADLINE, "deadline_ns",
             "the deadline passed; %llu of %llu records were done", (unsigned long long)n_done,
             (unsigned long long)push->n_records);
        ret_failure->n_done = n_done;
    } else if (job->state == JOB_FAILED && job->id == 0) {
        *ret_failure = job->failure; /* a run's FINISH failed, of no push */
    } else {
        fail(ret_failure, STATUS_CANCELLED, NULL,
             "the job was cancelled or failed before this push");
        ret_failure->n_done = n_done;
    }
}

/*
 * May this push be answered now, and how?  Behind stop_seq the answer is an error, as soon as the
 * device has let go of the push's memory.
 */
static bool try_answer(struct job *job, struct push *push)
{
    uint32_t n_rows = push->n_rows;
    bool is_stopped = push->seq >= job->stop_seq || push->is_late;
    struct failure failure;

    if (push->n_chunks > 0 || (!is_stopped && !push_is_computed(push, &job->prepared->shape))) {
        return false;
    }
    if (!is_stopped && job_is_held(job)) {
        return false; /* without records it is computed all the same */
    }
    if (!is_stopped && job->id == 0 && job->prepared->shape.leaf != 0 && !job->is_finished) {
        return false; /* a reduce run's answer carries the output */
    }
    if (!is_stopped) {
        job->n_records += push->n_records;
        job_answer_push(job, push, NULL);
    } else {
        describe_stop(job, push, &failure);
        job_answer_push(job, push, &failure);
    }
    job->n_done += n_rows;
    return true;
}

/* Pushes of no records have nothing to fold: the next one's turn has come. */
static void skip_empty_merges(struct job *job)
{
    struct push *push;

    while ((push = push_lists_find(&job->lists, job->merge_seq)) != NULL && push->n_records == 0) {
        job->merge_seq++;
    }
}

/* In order: from the oldest on, up to the first that has to wait. */
static void answer_pushes(struct job *job)
{
    struct push *next;

    for (struct push *push = job->lists.first; push != NULL; push = next) {
        next = push->next;
        if (!try_answer(job, push) && job->prepared->is_ordered) {
            break;
        }
    }
}

static void answer_refused(struct job *job)
{
    job->refused = (struct push){
        .job = job,
        .state = PUSH_FILLING,
        .n_rows = 1,
        .seq = job->n_pushed++,
        .ran_as = job->flow.priority,
    };
    push_lists_move(&job->lists, &job->refused, PUSH_ACCEPTED);
    job->n_done++;
    job_answer_push(job, &job->refused, &job->failure);
}

static void end_if_complete(struct job *job)
{
    if (job->n_done < job->n_pushed) {
        return;
    }
    if (job->state == JOB_CLOSED && !job_is_held(job) &&
        (job->prepared->shape.leaf == 0 || job->is_finished)) {
        set_state(job, JOB_DONE);
    }
    if (job->state >= JOB_DONE && !job->has_said_done && !job->is_merging) {
        if (job->has_refused) {
            answer_refused(job);
        }
        job->has_said_done = true;
        job_say_done(job);
        job_note_end(job);
    }
}

/* Of all that is still to be handed out; 0: none. */
static uint64_t nearest_deadline(struct job *job)
{
    uint64_t nearest_ns = job->deadline_at_ns;
    const struct push *push;

    if (job->n_timed == 0) {
        return nearest_ns;
    }
    for (push = push_lists_to_release(&job->lists); push != NULL; push = push->next) {
        if (push->n_released < push->n_records && !push->is_late && push->deadline_at_ns != 0 &&
            (nearest_ns == 0 || push->deadline_at_ns < nearest_ns)) {
            nearest_ns = push->deadline_at_ns;
        }
    }
    return nearest_ns;
}

void job_unqueue(struct job *job)
{
    scheduler_remove(&job->server->scheduler, &job->flow);
    job->flow.devices = job->prepared->devices;
}

void job_queue(struct job *job)
{
    struct scheduler *scheduler = &job->server->scheduler;
    uint64_t deadline_ns = nearest_deadline(job);
    uint32_t devices = job_next_devices(job);

    if (!job_has_work(job)) {
        job_unqueue(job);
        job_let_follow(job);
        return;
    }
    if (job->flow.deadline_ns != deadline_ns || job->flow.devices != devices) {
        scheduler_remove(scheduler, &job->flow); /* as they may not change while it is queued */
        job->flow.deadline_ns = deadline_ns;
        job->flow.devices = devices;
    }
    scheduler_add(scheduler, &job->flow, server_loop_ns(job->server));
}

void job_conclude(struct job *job)
{
    job->n_answered = job->lists.first != NULL ? job->lists.first->seq : job->n_pushed;
    end_if_complete(job);
    if (job->has_said_done && job->n_chunks == 0 && job->n_messages == 0) {
        if (job->server->is_aside) {
            job_settle_later(job); /* what is read or sent now may lie in its memory */
        } else {
            job_destroy(job);
        }
        return;
    }
    job_queue(job);
}

void job_answer(struct job *job, struct push *push)
{
    skip_empty_merges(job);
    if (push == NULL || job->prepared->is_ordered) {
        answer_pushes(job);
    } else if (push->state == PUSH_ACCEPTED) {
        try_answer(job, push);
    }
}

void job_settle(struct job *job)
{
    job_settle_push(job, NULL);
}

void job_settle_push(struct job *job, struct push *push)
{
    job_answer(job, push);
    job_conclude(job);
}
