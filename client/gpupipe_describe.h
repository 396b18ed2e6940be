/*
 * Describe: a push whose arrays lie in a ring, as the daemon gets to read it.  What the daemon
 * would refuse for its memory is refused here, with the name of the span.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe_job.h"
#include "proto/ring.h"

/*
 * All but the tag.  MISUSE: an array is not in the ring, not where one may begin, or an output lies
 * over another array.  RANGE, TOO_BIG: its size is not that of the records.
 */
int describe_push(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                  struct ring_desc *ret_desc, struct failure *ret_failure);
/* With tail "zero": the zeros behind a short last record.  For a push that was described. */
void describe_pad(const struct gpupipe_job *job, const struct gpupipe_desc *desc);
