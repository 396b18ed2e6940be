/*
 * Shot: on a GPU.  See shot.h.
 */
#include "tests/bench/direct.h"
#include "tests/bench/mapped.h"
#include "tests/bench/shot.h"

static const struct shot_memory *memory;
static struct direct *direct;
static struct direct_plan *calls;
static struct direct_plan *graphs;
static struct mapped *mapped;

static void run_plan(void *state, uint32_t i)
{
    direct_step(state, i);
}

static void run_mapped(void *state, uint32_t i)
{
    mapped_step(state, i * memory->size, memory->size);
}

uint32_t shot_open_cuda(const struct shot_memory *shot_memory, struct shot_rival *ret_rivals)
{
    struct direct_shape shape = {
        .subject = &subject_copy,
        .chunk_size = shot_memory->size,
        .depth = 1,
        .wait = DIRECT_EVENTS,
        .is_urgent = true,
    };

    memory = shot_memory;
    direct_open(memory->in, memory->out, memory->n * memory->size, &direct);
    direct_plan_create(direct, &shape, &calls);
    shape.wait = DIRECT_GRAPHS;
    direct_plan_create(direct, &shape, &graphs);
    mapped_open(memory->in, memory->out, &mapped);
    ret_rivals[0] = (struct shot_rival){"direct, events", run_plan, calls};
    ret_rivals[1] = (struct shot_rival){"direct, graphs", run_plan, graphs};
    ret_rivals[2] = (struct shot_rival){"direct, mapped", run_mapped, mapped};
    return 3;
}

void shot_close_cuda(void)
{
    mapped_close(mapped);
    direct_plan_destroy(calls);
    direct_plan_destroy(graphs);
    direct_close(direct);
}
