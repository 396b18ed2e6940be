/*
 * Handlers of work: run, job.open, job.push, job.close, job.cancel, job.list.
 *
 * A run is a job that no client can name: CLOSED from the start, with one push.
 */
#include "daemon/answer.h"
#include "daemon/handlers.h"
#include "daemon/server.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>

/* ---- payloads ------------------------------------------------------------------------------- */

/* "x, y": the inputs an op takes, for messages. */
static const char *input_names(const struct manifest_op *op, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < op->n_in && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", op->in[i].name);
    }
    return text;
}

static int check_n_data(const struct manifest_op *op, uint32_t n_data, struct failure *ret_failure)
{
    char names[LIMIT_IN * MANIFEST_NAME_SIZE];

    if (n_data == op->n_in) {
        return 0;
    }
    return fail(ret_failure, STATUS_INVALID_PARAM, "data", "op %s takes %u inputs (%s), not %u",
                op->name, op->n_in, input_names(op, names, sizeof(names)), n_data);
}

/* A varying input has whole elements, no more than there is room for, and none without a record. */
static int check_varying_size(const struct job *job, const struct incoming *incoming, uint64_t size,
                              struct failure *ret_failure)
{
    uint32_t array = job->prepared->shape.varying;
    const char *name = job->prepared->op->in[array].name;
    uint64_t room = push_array_size(&job->prepared->shape, array, incoming->n_records);

    if (size % job->prepared->shape.record_size[array] != 0) {
        return fail(ret_failure, STATUS_RANGE, name,
                    "input %s: %llu bytes are no multiple of its element of %u bytes", name,
                    (unsigned long long)size, job->prepared->shape.record_size[array]);
    }
    if (size > 0 && incoming->n_records == 0) {
        return fail(ret_failure, STATUS_RANGE, name,
                    "input %s: %llu bytes belong to no record, as input %s has none; send it empty",
                    name, (unsigned long long)size,
                    job->prepared->op->in[job->prepared->shape.ends].name);
    }
    if (size > room) {
        return fail(ret_failure, STATUS_TOO_BIG, name,
                    "input %s: %llu bytes are more than the %llu that this push has room for", name,
                    (unsigned long long)size, (unsigned long long)room);
    }
    incoming->push->varying_size = (uint32_t)size;
    return 0;
}

/* Every input but the first must have the records of the first. */
static int check_same_records(const struct job *job, const struct incoming *incoming,
                              uint32_t array, uint64_t size, struct failure *ret_failure)
{
    uint64_t n = 0;
    int r = job_count_records(job, array, size, &n, ret_failure);

    if (r == 0 && n != incoming->n_records) {
        r = fail(ret_failure, STATUS_RANGE, job->prepared->op->in[array].name,
                 "input %s has %llu records and input %s has %llu",
                 job->prepared->op->in[array].name, (unsigned long long)n,
                 job->prepared->op->in[0].name, (unsigned long long)incoming->n_records);
    }
    return r;
}

int handle_push_sink(struct session *session, uint32_t index, uint64_t size,
                     struct reader_sink *ret_sink, struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    int r = 0;

    if (index > 0 && index == incoming->job->prepared->shape.varying) {
        r = check_varying_size(incoming->job, incoming, size, ret_failure);
    } else if (index > 0) {
        r = check_same_records(incoming->job, incoming, index, size, ret_failure);
    }
    if (r == 0) {
        push_sink(incoming->push, &incoming->job->prepared->shape, index, size, ret_sink);
    }
    return r;
}

/*
 * The ends of a varying input neither go backwards nor past it, and the last is its own.  Nobody
 * else can write to the memory of a payload, so this holds for as long as the op runs.
 */
static int check_ends(const struct job *job, const struct push *push, uint64_t n_records,
                      struct failure *ret_failure)
{
    const struct push_shape *shape = &job->prepared->shape;
    const char *name = job->prepared->op->in[shape->ends].name;
    uint32_t least = 0, most = push->varying_size / shape->record_size[shape->varying];
    const uint32_t *ends =
        n_records > 0 ? (const uint32_t *)push_block(push, shape, 0, shape->ends)->base : NULL;

    for (uint64_t i = 0; i < n_records; i++) {
        if (i + 1 == n_records) {
            least = most;
        }
        if (ends[i] < least || ends[i] > most) {
            return fail(ret_failure, STATUS_RANGE, name,
                        "input %s: record %llu ends at %u; it must be %u to %u", name,
                        (unsigned long long)i, ends[i], least, most);
        }
        least = ends[i];
    }
    return 0;
}

/* All payloads are here: the push is the daemon's. */
static int accept_push(struct session *session, struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    struct job *job = incoming->job;
    struct push *push = incoming->push;

    if (job->prepared->shape.varying != 0) {
        int r = check_ends(job, push, incoming->n_records, ret_failure);

        if (r < 0) {
            return r;
        }
    }
    push->tail_size = 0;
    if (job->prepared->tail == TAIL_SHORT) {
        push->tail_size = (uint32_t)(incoming->first_size % job->prepared->shape.record_size[0]);
    } else if (job->prepared->tail == TAIL_ZERO && incoming->n_records > 0) {
        push_pad(push, &job->prepared->shape, incoming->first_size);
    }
    push->n_records = incoming->n_records;
    incoming->job = NULL;
    incoming->push = NULL;
    job_accept(job, push);
    return 0;
}

/* The payload array is as long as it must be, but not all in it is a payload. */
static int refuse_data(struct failure *ret_failure)
{
    return fail(ret_failure, STATUS_INVALID_PARAM, "data",
                "an input is neither bytes nor a string");
}

/* ---- run ------------------------------------------------------------------------------------ */

/* Its share of the jobs may be used up for good: to wait for one to end could be for ever. */
static int check_user_jobs(const struct session *session, struct failure *ret_failure)
{
    const struct user *user = session_user(session);

    if (!user_has_all_jobs(user)) {
        return 0;
    }
    fail(ret_failure, STATUS_QUOTA, "job", "%u jobs and runs of this user are open, at most %d",
         user->n_jobs, LIMIT_USER_JOBS);
    ret_failure->retry_ms =
        places_retry_any_ms(user->places, server_loop_ns(session_server(session)));
    return failure_add_limit(ret_failure, "user_jobs", user->n_jobs, LIMIT_USER_JOBS);
}

/* Its job, and how many records it has. */
static int start_run(struct session *session, struct prepared *prepared, uint64_t deadline_at_ns,
                     const struct msg_options *options, struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    int r = job_create(session, prepared, deadline_at_ns, &incoming->job, ret_failure);

    if (r == 0 && options != NULL) {
        r = job_hold(incoming->job, options, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    incoming->job->msgid = incoming->msgid;
    r = job_take_places(incoming->job, 1, ret_failure);
    if (r == 0) {
        r = job_count_records(incoming->job, 0, incoming->first_size, &incoming->n_records,
                              ret_failure);
    }
    return r < 0 ? r
                 : job_check_admit(incoming->job, incoming->n_records, deadline_at_ns, ret_failure);
}

static int begin_run(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    struct prepared *prepared = NULL;
    uint64_t deadline_at_ns;
    struct msg_run run;
    int r = codec_unpack_run(&message->params, &run, ret_failure);

    if (r == 0 && run.options.is_admitted && run.options.deadline_ns == 0) {
        r = fail(ret_failure, STATUS_INVALID_PARAM, "admit",
                 "admit is for what has a deadline: add deadline_ns");
    }
    if (r == 0) {
        r = job_deadline_at(run.options.deadline_ns, &deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = prepared_create(session, &run.op, &run.options, &prepared, ret_failure);
    }
    if (r == 0) {
        r = check_n_data(prepared->op, run.n_data, ret_failure);
    }
    if (r < 0) {
        prepared_unref(prepared);
        return r;
    }
    incoming->n_data = run.n_data;
    return start_run(session, prepared, deadline_at_ns, &run.options, ret_failure);
}

/*
 * While it waits for room nothing more is read: not what ends this connection's jobs, either. Those
 * that wait for one of them may have the room.
 */
static int refuse_to_wait(const struct job *awaited, struct failure *ret_failure)
{
    const struct pool *pool = awaited->server->pool;

    fail(ret_failure, STATUS_BUSY, NULL,
         "the pool has no room for this run now, and others wait for job %llu of this connection: "
         "end it first, or try again later",
         (unsigned long long)awaited->id);
    ret_failure->retry_ms = SERVER_RETRY_MS;
    return failure_add_limit(ret_failure, "pool", pool_used(pool), pool_size(pool));
}

static int lease_run(struct session *session, struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    int r = job_lease_run(incoming->job, incoming->n_records, ret_failure);
    const struct job *awaited =
        r == JOB_NO_ROOM ? job_find_awaited(session_server(session), session) : NULL;

    if (awaited != NULL) {
        return refuse_to_wait(awaited, ret_failure);
    }

    if (r == 0) {
        incoming->push = job_free_push(incoming->job);
        push_lists_move(&incoming->job->lists, incoming->push, PUSH_FILLING);
    }
    return r;
}

int handle_run_begin(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    int r = 0;

    if (incoming->job == NULL) { /* else it waited for room */
        r = check_user_jobs(session, ret_failure);
        r = r == 0 ? begin_run(session, message, ret_failure) : r;
    }
    return r < 0 ? r : lease_run(session, ret_failure);
}

int handle_run_begin_again(struct session *session, const struct memo *memo,
                           struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    int r = 0;

    if (incoming->job == NULL) {
        incoming->n_data = memo->n_data;
        r = check_user_jobs(session, ret_failure);
        r = r == 0 ? start_run(session, prepared_ref(memo->prepared), 0, NULL, ret_failure) : r;
    }
    return r < 0 ? r : lease_run(session, ret_failure);
}

int handle_run_end(struct session *session, struct failure *ret_failure)
{
    struct job *job = session_incoming(session)->job;
    int r;

    if (job->state >= JOB_DONE) { /* it has failed with whom it was to be after, a moment ago */
        *ret_failure = job->failure;
        return -(int)ret_failure->status;
    }
    r = accept_push(session, ret_failure);
    if (r < 0) {
        return r;
    }
    session_server(session)->stats.runs_total++;
    job_close(job);
    job_settle(job);
    return 0;
}

int handle_run(struct session *session, const struct rpc_message *message,
               struct failure *ret_failure)
{
    struct msg_run run;
    int r = codec_unpack_run(&message->params, &run, ret_failure);

    if (r == 0 && !session_incoming(session)->is_begun) {
        r = begin_run(session, message, ret_failure);
    }
    return r < 0 ? r : refuse_data(ret_failure);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static void describe_job(const struct job *job, struct msg_job_opened *ret_opened)
{
    *ret_opened = (struct msg_job_opened){
        .job = job->id,
        .credit = job->window,
        .max_push = job_max_push(job),
        .push_multiple = MAX(job->prepared->shape.leaf, 1u),
        .n_in = job->prepared->op->n_in,
        .n_out = job->prepared->op->n_out,
    };
    memcpy(ret_opened->token, job->token, sizeof(ret_opened->token));
    memcpy(ret_opened->in_size, job->prepared->shape.record_size, sizeof(ret_opened->in_size));
    memcpy(ret_opened->out_size, job->prepared->out_size, sizeof(ret_opened->out_size));
}

static int check_job_count(struct session *session, struct failure *ret_failure)
{
    uint32_t n = 0;

    for (struct job *job = session_server(session)->jobs; job != NULL; job = job->next) {
        n += job->session == session && job->id != 0;
    }
    if (n >= LIMIT_JOBS) {
        fail(ret_failure, STATUS_QUOTA, "job", "%u jobs are open on this connection, at most %d", n,
             LIMIT_JOBS);
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return failure_add_limit(ret_failure, "jobs", n, LIMIT_JOBS);
    }
    return check_user_jobs(session, ret_failure);
}

/* How many records it will have, as far as its client says; else the first result is in question.
 */
static uint64_t first_records(const struct job *job, const struct msg_options *options)
{
    uint64_t n = div_round_up(options->total_size, job->prepared->shape.record_size[0]);

    return MAX(n, UINT64_C(1));
}

int handle_job_open(struct session *session, const struct rpc_message *message,
                    struct failure *ret_failure)
{
    struct server *server = session_server(session);
    struct answer answer;
    struct msg_job_open open;
    struct msg_job_opened opened;
    struct prepared *prepared = NULL;
    struct job *job = NULL;
    uint64_t deadline_at_ns;
    int r = codec_unpack_job_open(&message->params, &open, ret_failure);

    if (r == 0) {
        r = job_deadline_at(open.options.deadline_ns, &deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = check_job_count(session, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    r = prepared_create(session, &open.op, &open.options, &prepared, ret_failure);
    if (r == 0) {
        r = job_create(session, prepared, deadline_at_ns, &job, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    r = job_hold(job, &open.options, ret_failure);
    if (r == 0) {
        r = job_check_admit(job, first_records(job, &open.options), deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = job_lease_window(job, &open.options, ret_failure);
    }
    if (r == 0) {
        r = server_name_job(server, job, ret_failure);
    }
    if (r < 0) {
        job_destroy(job);
        return r;
    }
    server->stats.jobs_total++;
    describe_job(job, &opened);
    codec_pack_job_opened(answer_begin(&answer), message->msgid, &opened);
    return answer_send(&answer, session);
}

/* A job of this connection's that has not ended. */
static int find_job(struct session *session, uint64_t id, struct job **ret_job,
                    struct failure *ret_failure)
{
    struct job *job = server_find_job(session_server(session), id);

    if (job != NULL && job->session != NULL && job->session != session) {
        return fail(ret_failure, STATUS_NOT_YOURS, "job", "job %llu is another connection's",
                    (unsigned long long)id);
    }
    if (job == NULL || job->session == NULL || job->state >= JOB_DONE) {
        return fail(ret_failure, STATUS_NOT_FOUND, "job", "there is no job %llu, or it has ended",
                    (unsigned long long)id);
    }
    *ret_job = job;
    return 0;
}

/* Does this connection's user own the job, or the machine? */
static bool may_manage(const struct session *session, const struct job *job)
{
    uid_t uid = session_uid(session);

    return job->session == session || uid == 0 ||
           (job->session != NULL && session_uid(job->session) == uid);
}

static int check_push(const struct job *job, const struct msg_job_push *push,
                      struct failure *ret_failure)
{
    if (push->seq != job->n_pushed) {
        return fail(ret_failure, STATUS_SEQ, "seq", "seq is %llu; the next push is %llu",
                    (unsigned long long)push->seq, (unsigned long long)job->n_pushed);
    }
    int r = job_check_input(job, ret_failure);

    if (r == 0 && job->prepared->is_in_rings != (push->n_refs > 0)) {
        r = fail(ret_failure, STATUS_INVALID_PARAM, "data",
                 job->prepared->is_in_rings
                     ? "the job was opened with inline = false: its data are Refs"
                     : "only a job opened with inline = false takes Refs");
    }
    if (r == 0 && !job->prepared->is_in_rings && push->n_out > 0) {
        r = fail(ret_failure, STATUS_INVALID_PARAM, "out",
                 "option out is for Refs: outputs of this job come with job.result");
    }
    return r < 0 ? r : check_n_data(job->prepared->op, push->n_data, ret_failure);
}

static int check_push_size(const struct job *job, const struct msg_job_push *push,
                           uint64_t n_records, struct failure *ret_failure)
{
    if (push->has_n && push->n != n_records) {
        return fail(ret_failure, STATUS_RANGE, "n", "n is %llu; the payload has %llu records",
                    (unsigned long long)push->n, (unsigned long long)n_records);
    }
    if (n_records > job->max_records) {
        fail(ret_failure, STATUS_TOO_BIG, "data",
             "%llu records in one push; max_push, %llu bytes an array, allows %u",
             (unsigned long long)n_records, (unsigned long long)job_max_push(job),
             job->max_records);
        return failure_add_limit(ret_failure, "max_push", n_records * job->prepared->shape.largest,
                                 job_max_push(job));
    }
    return 0;
}

int handle_job_push_begin(struct session *session, const struct rpc_message *message,
                          struct failure *ret_failure)
{
    struct incoming *incoming = session_incoming(session);
    struct msg_job_push push;
    struct job *job = NULL;
    uint64_t deadline_at_ns;
    int r = codec_unpack_job_push(&message->params, &push, ret_failure);

    if (r == 0) {
        r = find_job(session, push.job, &job, ret_failure);
    }
    if (r == 0) {
        r = check_push(job, &push, ret_failure);
    }
    if (r == 0) {
        r = job_push_deadline_at(job, push.deadline_ns, &deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = job_count_records(job, 0, incoming->first_size, &incoming->n_records, ret_failure);
    }
    if (r == 0) {
        r = check_push_size(job, &push, incoming->n_records, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    struct push *room = job_free_push(job);
    if (room == NULL) {
        return job_refuse_credit(job, ret_failure);
    }
    r = job_check_admit(job, incoming->n_records, deadline_at_ns, ret_failure);
    if (r < 0) {
        return r;
    }
    push_lists_move(&job->lists, room, PUSH_FILLING);
    room->n_records = incoming->n_records;
    room->deadline_at_ns = deadline_at_ns;
    incoming->job = job;
    incoming->push = room;
    incoming->n_data = push.n_data;
    return 0;
}

/* It is accepted. */
static void end_push(struct session *session, struct job *job, bool is_request, uint32_t msgid)
{
    struct answer answer;

    if (is_request) {
        codec_pack_empty_result(answer_begin(&answer), msgid);
        answer_send_as(&answer, session, job->flow.priority);
    }
    job_settle(job);
}

int handle_job_push_end(struct session *session, struct failure *ret_failure)
{
    const struct incoming *incoming = session_incoming(session);
    struct job *job = incoming->job;

    if (job->state >= JOB_DONE) {
        return fail(ret_failure, STATUS_NOT_FOUND, "job", "the job ended while this push arrived");
    }
    int r = accept_push(session, ret_failure);
    if (r < 0) {
        return r;
    }
    const struct push_shape *shape = &job->prepared->shape;
    job->has_short_push = incoming->first_size % shape->record_size[0] != 0;
    job->has_odd_push = shape->leaf != 0 && incoming->n_records % shape->leaf != 0;
    end_push(session, job, incoming->is_request, incoming->msgid);
    return 0;
}

/* Without payloads its data are Refs, or something is missing. */
int handle_job_push(struct session *session, const struct rpc_message *message,
                    struct failure *ret_failure)
{
    struct msg_job_push push;
    struct job *job = NULL;
    int r = codec_unpack_job_push(&message->params, &push, ret_failure);

    if (r == 0) {
        r = find_job(session, push.job, &job, ret_failure);
    }
    if (r == 0) {
        r = check_push(job, &push, ret_failure);
    }
    if (r == 0) {
        r = push.n_refs > 0 ? job_take_refs(job, &push, ret_failure) : refuse_data(ret_failure);
    }
    if (r == 0) {
        end_push(session, job, message->type == RPC_REQUEST, message->msgid);
    }
    return r;
}

/* Nobody waits for an answer: the job fails, unless it is another's, or has ended. */
void handle_job_push_refused(struct session *session, const struct rpc_message *message,
                             const struct failure *failure)
{
    struct failure ignored;
    struct job *job = NULL;

    if (find_job(session, codec_peek_job(&message->params), &job, &ignored) == 0) {
        job_refuse(job, failure);
        job_settle(job);
    }
}

int handle_job_close(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure)
{
    struct answer answer;
    struct msg_job msg;
    struct job *job = NULL;
    int r = codec_unpack_job(&message->params, &msg, ret_failure);

    if (r == 0) {
        r = find_job(session, msg.job, &job, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    struct msg_job_closed closed = {.pushed = job->n_pushed};
    codec_pack_job_closed(answer_begin(&answer), message->msgid, &closed);
    answer_send(&answer, session);
    if (job->state == JOB_OPEN) {
        job_close(job);
        job_settle(job);
    }
    return 0;
}

int handle_job_cancel(struct session *session, const struct rpc_message *message,
                      struct failure *ret_failure)
{
    struct answer answer;
    struct msg_job msg;
    int r = codec_unpack_job(&message->params, &msg, ret_failure);

    if (r < 0) {
        return r;
    }
    /* Unlike the other methods for any connection of the user's: how else to stop a lost program?
     */
    struct job *job = server_find_job(session_server(session), msg.job);
    if (job == NULL || !may_manage(session, job)) {
        return find_job(session, msg.job, &job, ret_failure);
    }
    job_cancel(job);
    struct msg_job_state state = {.state = job->state};
    codec_pack_job_state(answer_begin(&answer), message->msgid, &state);
    answer_send(&answer, session);
    job_settle(job);
    return 0;
}

int handle_job_list(struct session *session, const struct rpc_message *message,
                    struct failure *ret_failure)
{
    struct msg_job_entry entries[LIMIT_JOBS_LISTED];
    uint32_t n = 0;
    struct answer answer;
    struct msg_job_list list;
    int r = codec_unpack_job_list(&message->params, &list, ret_failure);

    if (r < 0) {
        return r;
    }
    for (struct job *job = session_server(session)->jobs; job != NULL && n < LIMIT_JOBS_LISTED;
         job = job->next) {
        bool is_shown = list.is_all ? may_manage(session, job) : job->session == session;

        if (job->id == 0 || !is_shown) {
            continue;
        }
        entries[n] = (struct msg_job_entry){
            .job = job->id,
            .state = job->state,
            .priority = job->flow.priority,
            .pushed = job->n_pushed,
            .done = job->n_done,
            .held = job->after.n_held_by,
        };
        memcpy(entries[n].token, job->token, sizeof(entries[n].token));
        snprintf(entries[n++].op, sizeof(entries[0].op), "%s", job->prepared->op->name);
    }
    codec_pack_job_list_result(answer_begin(&answer), message->msgid, entries, n);
    return answer_send(&answer, session);
}
