/*
 * Job input: may a job have another push, and how many records is that?
 */
#include "daemon/job.h"
#include "proto/util.h"

int job_count_records(const struct job *job, uint32_t array, uint64_t size, uint64_t *ret_n,
                      struct failure *ret_failure)
{
    uint32_t record_size = job->prepared->shape.record_size[array];

    if (size % record_size != 0 && (job->prepared->tail == TAIL_ERROR || array > 0)) {
        return fail(ret_failure, STATUS_RANGE, job->prepared->op->in[array].name,
                    "input %s: %llu bytes are no multiple of its record of %u bytes%s",
                    job->prepared->op->in[array].name, (unsigned long long)size, record_size,
                    job->prepared->op->tails != 0 && array == 0
                        ? "; option tail can take the short record"
                        : "");
    }
    *ret_n = div_round_up(size, record_size);
    return 0;
}

int job_check_input(const struct job *job, struct failure *ret_failure)
{
    if (job->state == JOB_CLOSED) {
        return fail(ret_failure, STATUS_SEQ, "seq", "the job's input was closed");
    }
    if (job->has_short_push) {
        return fail(ret_failure, STATUS_SEQ, "seq", "a short record ended the input before");
    }
    if (job->has_odd_push) {
        return fail(ret_failure, STATUS_RANGE, "n",
                    "the push before had no multiple of %u records, which ended the input",
                    job->prepared->shape.leaf);
    }
    return 0;
}

int job_deadline_at(uint64_t deadline_ns, uint64_t *ret_at_ns, struct failure *ret_failure)
{
    if (deadline_ns > LIMIT_DEADLINE * UINT64_C(1000000)) {
        uint64_t deadline_ms = div_round_up(deadline_ns, 1000000);

        fail(ret_failure, STATUS_RANGE, "deadline_ns",
             "a deadline in %llu ms: at most %d (deadline_ms); 0 is none",
             (unsigned long long)deadline_ms, LIMIT_DEADLINE);
        return failure_add_limit(ret_failure, "deadline_ms", deadline_ms, LIMIT_DEADLINE);
    }
    *ret_at_ns = deadline_ns != 0 ? now_ns() + deadline_ns : 0;
    return 0;
}

int job_push_deadline_at(const struct job *job, uint64_t deadline_ns, uint64_t *ret_at_ns,
                         struct failure *ret_failure)
{
    if (deadline_ns != 0 && job->prepared->shape.leaf != 0) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "deadline_ns",
                    "op %s needs all of its pushes: give the deadline to the job",
                    job->prepared->op->name);
    }
    return job_deadline_at(deadline_ns, ret_at_ns, ret_failure);
}

int job_refuse_credit(const struct job *job, struct failure *ret_failure)
{
    fail(ret_failure, STATUS_NO_CREDIT, "seq",
         "%u pushes are unanswered, all the window holds; wait for a result", job->window);
    return failure_add_limit(ret_failure, "window", job->window, job->window);
}
