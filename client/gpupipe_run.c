/*
 * Runs: one push that is a message of its own, and waits for its answer; a large one goes through a
 * ring (gpupipe_run_ring.c) where it can.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_run.h"

#include "client/gpupipe_flight.h"
#include "client/gpupipe_job.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <string.h>

static void on_run_answer(struct call *call, const msgpack_object *result,
                          const struct failure *failure)
{
    struct flight *flight = CONTAINER_OF(call, struct flight, call);
    struct failure unreadable;
    struct msg_answer answer;

    flight->is_answered = true;
    if (failure != NULL) {
        flight_fail(flight, failure);
        flight->has_result = true;
    } else if (codec_unpack_run_result(result, &answer, &unreadable) < 0) {
        flight_fail(flight, &unreadable);
        flight->has_result = true;
    } else {
        flight_on_result(flight, &answer);
    }
}

static int on_run_payload(struct call *call, const struct guard *guard,
                          struct reader_sink *ret_sink)
{
    return flight_on_payload(CONTAINER_OF(call, struct flight, call), guard, ret_sink);
}

static int post_run(struct gpupipe *gpupipe, const struct msg_run *msg, struct flight *flight,
                    const struct gpupipe_desc *desc, struct failure *ret_failure)
{
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_run(&request.packer, request.msgid, msg);
    rc = connection_post(gpupipe, &request, &flight->call, desc->in, desc->n_in, flight_on_sent,
                         flight, ret_failure);
    request_finish(&request);
    return rc;
}

static int run(struct gpupipe *gpupipe, const struct msg_run *msg, const struct gpupipe_desc *desc,
               struct flight **ret_flight, struct failure *ret_failure)
{
    _cleanup_(free_pointer) struct flight *flight = NULL;
    struct failure loss;
    int rc = flight_create(desc, &flight, ret_failure);

    if (rc == 0) {
        rc = flight_check_frame(desc, ret_failure);
    }
    if (rc < 0) {
        return rc;
    }
    flight->call.on_answer = on_run_answer;
    flight->call.on_payload = on_run_payload;
    rc = post_run(gpupipe, msg, flight, desc, ret_failure);
    if (rc < 0) {
        return rc;
    }
    while (!flight_is_complete(flight)) {
        /* A loss answers the call as well. */
        (void)connection_turn(gpupipe, -1, CONNECTION_IGNORE_WAKES, &loss);
    }
    connection_announce(gpupipe);
    if (flight->answer.has_failure) {
        *ret_failure = flight->answer.failure;
        return -(int)ret_failure->status;
    }
    *ret_flight = STEAL(flight);
    return 0;
}

/* What this thread has yet to end does not while it blocks. */
static int check_after(const struct gpupipe *gpupipe, const struct msg_options *options,
                       struct failure *ret_failure)
{
    for (const struct gpupipe_job *job = gpupipe->jobs; job != NULL; job = job->next) {
        bool is_left_open = !job->is_lost && !job->has_done && (!job->is_ended || job->wants_close);

        for (uint32_t i = 0; is_left_open && i < options->n_after; i++) {
            if (strcmp(options->after[i].token, job->shape.token) == 0) {
                return fail(ret_failure, STATUS_MISUSE, "after",
                            "a run would wait for ever for a job of this connection that has yet "
                            "to be ended: call gpupipe_job_end(), and reap what is in its ring");
            }
        }
    }
    return 0;
}

int gpupipe_run(struct gpupipe *gpupipe, const char *op, const struct gpupipe_value *values,
                uint32_t n_values, const struct gpupipe_job_opts *opts,
                const struct gpupipe_desc *desc, struct gpupipe_completion *ret_completion)
{
    struct flight *flight = NULL;
    struct gpupipe_desc mine;
    struct failure failure;
    struct job_route route;
    struct msg_run msg;
    int rc = error_take_struct(&mine, desc, desc->size, sizeof(mine), DESC_LEAST, &failure);

    if (rc == 0 && ret_completion != NULL) {
        rc = error_check_size(ret_completion->size, sizeof(*ret_completion), &failure);
    }
    if (rc == 0) {
        rc = job_take_op(op, values, n_values, &msg.op, &failure);
    }
    if (rc == 0) {
        rc = job_take_options(opts, &msg.options, &route, &failure);
    }
    if (rc == 0) {
        rc = connection_check(gpupipe, &failure);
    }
    if (rc == 0) {
        rc = check_after(gpupipe, &msg.options, &failure);
    }
    if (rc == 0) {
        rc = route.is_ring_forbidden ? 0 : run_in_ring(gpupipe, &msg, &mine, &flight, &failure);
    }
    if (rc == 0) {
        msg.n_data = mine.n_in;
        rc = run(gpupipe, &msg, &mine, &flight, &failure);
    }
    if (rc < 0) {
        return error_record(gpupipe, rc, &failure);
    }
    flight_list_free(&gpupipe->reaped, NULL);
    flight_list_append(&gpupipe->reaped, flight);
    if (ret_completion != NULL) {
        flight_complete(flight, ret_completion, ret_completion->size);
    }
    return GPUPIPE_OK;
}
