/*
 * Job admission: whether something with a deadline is let in, as far as anybody can tell.
 *
 * The forecast is a walk over all jobs, not over their pushes: that costs nothing but those who
 * ask for it, with the option admit.
 */
#include "daemon/forecast.h"
#include "daemon/job.h"
#include "daemon/server.h"
#include "proto/util.h"

/* Device time of what it has and no device has been given. */
static uint64_t queued_ns(const struct job *job)
{
    return forecast_cost(&job->prepared->rate, job->n_queued, job->prepared->shape.link_size);
}

/* False: nobody can tell. */
static bool foresee(const struct job *job, const struct flow *flow, uint64_t n_records,
                    uint64_t *ret_ns, uint64_t *ret_alone_ns)
{
    struct forecast forecast;

    if (!forecast_begin(&forecast, &job->server->scheduler, flow, now_ns(), n_records,
                        job->prepared->shape.link_size, prepared_chunk_records(job->prepared))) {
        return false;
    }
    for (const struct job *other = job->server->jobs; other != NULL; other = other->next) {
        if (other == job || other->flow.is_queued) { /* its own goes first even while it is held */
            forecast_add(&forecast, other == job ? flow : &other->flow, queued_ns(other));
        }
    }
    *ret_ns = forecast_ns(&forecast, ret_alone_ns);
    return true;
}

static int refuse(uint64_t predicted_ns, uint64_t alone_ns, uint64_t left_ns,
                  struct failure *ret_failure)
{
    bool is_hopeless = alone_ns > left_ns;

    fail(ret_failure, STATUS_DEADLINE, "admit",
         "it would take %.3f ms, and its deadline is in %.3f%s", (double)predicted_ns / 1e6,
         (double)left_ns / 1e6,
         is_hopeless ? "; it takes too long even alone: allow more, or do less at once"
                     : ": others are before it");
    ret_failure->predicted_ns = predicted_ns;
    if (!is_hopeless) {
        ret_failure->retry_ms =
            (uint32_t)MIN(div_round_up(predicted_ns - left_ns, 1000000), (uint64_t)LIMIT_DEADLINE);
    }
    return -(int)ret_failure->status;
}

int job_check_admit(const struct job *job, uint64_t n_records, uint64_t deadline_at_ns,
                    struct failure *ret_failure)
{
    struct flow flow = job->flow; /* as it will be */
    uint64_t now, left_ns, predicted_ns, alone_ns;

    if (!job->prepared->is_admitted || deadline_at_ns == 0) {
        return 0;
    }
    now = now_ns();
    left_ns = deadline_at_ns > now ? deadline_at_ns - now : 0;
    flow.deadline_ns = deadline_at_ns;
    if (!foresee(job, &flow, n_records, &predicted_ns, &alone_ns) || predicted_ns <= left_ns) {
        return 0;
    }
    return refuse(predicted_ns, alone_ns, left_ns, ret_failure);
}
