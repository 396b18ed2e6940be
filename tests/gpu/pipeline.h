/*
 * Pipeline: one of the CUDA backend over the runtime of runtime.h, with works that know what they
 * are to come to.  It has one op beyond the built-in ones, mix, which is not streaming, is narrow,
 * and whose arrays have records of different sizes.
 *
 * Threads: one.
 */
#pragma once

#include "cuda/cuda_pipeline.h"
#include "cuda/cuda_slots.h"

#define PIPELINE_SMALL  (256u << 10) /* bytes of the largest copy that is small */
#define PIPELINE_MOST   128u         /* completions of a poll */
#define PIPELINE_URGENT (-5)         /* that priority as CUDA counts */

#define MIX_IN 3u /* input k has records of size + k bytes, output k likewise */

struct mix_params {
    uint32_t size, key;
};

extern struct cuda_pipeline *pipeline; /* of the running test */
extern uint32_t pipeline_step; /* calls for other work that urgent work may stand behind: 1, if the
                                * test does not say another number */
extern struct op_chunk mix_chunk; /* the last one that mix got */

/* runtime_reset(), and then a pipeline until the end of the test, which must have left nothing. */
void pipeline_set_up(void);
/* The second half of that. */
void pipeline_create(void);

/* Random, until the end of the test; outputs as well. */
struct device_array pipeline_array(uint64_t size);
/* A MAP without arrays. */
struct device_work pipeline_work(const struct op_code *code, enum priority priority,
                                 uint32_t n_records);
/* Of records of size bytes. */
struct device_work pipeline_copy(enum priority priority, uint32_t n_records, uint32_t size);
/* Without input `missing`; MIX_IN: with all. */
struct device_work pipeline_mix(enum priority priority, uint32_t n_records,
                                struct mix_params params, uint32_t missing);
/* The work after the other, the start of whose output is its input. */
struct device_work pipeline_after(struct device_work work, const struct device_work *other);

/*
 * As the pump does.  They check that, while urgent work is likely, no more than pipeline_step calls
 * of CUDA are for other work.
 */
void pipeline_issue(struct device_work *works, uint32_t n);
uint32_t pipeline_poll(struct device_completion *ret_completions, uint32_t max);
/* Issue it, run the runtime, check that all come right. */
void pipeline_run(struct device_work *works, uint32_t n);
/* Urgent work comes and goes: from now on more of it is likely. */
void pipeline_do_urgent(void);

/* Nothing comes. */
void pipeline_check_none(void);
/* These come now, in any order, each once and right. */
void pipeline_check_all(const struct device_work *works, uint32_t n);
void pipeline_check_good(const struct device_work *work,
                         const struct device_completion *completion);
/* Are its outputs what the op makes of its inputs, where they lie? */
void pipeline_check_bytes(const struct device_work *work);

/* Launch i since runtime_forget(). */
void pipeline_check_launch(uint32_t i, const struct op_code *code, uint32_t n_chunks,
                           bool tells_end);
/* All calls since then are those of a launch by the copy engines. */
void pipeline_check_copied(void);
