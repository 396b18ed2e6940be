/*
 * Shot: on the CPU.  See shot.h.
 */
#include "cuda/registry.h"
#include "tests/bench/bench.h"
#include "tests/bench/shot.h"

#include <string.h>

struct core {
    const struct op_code *code;
    const struct shot_memory *memory;
};

static void run_core(void *state, uint32_t i)
{
    const struct core *core = state;
    const struct shot_memory *memory = core->memory;
    const uint32_t params[LIMIT_PARAM_BYTES / sizeof(uint32_t)] = {SHOT_UNIT};
    const struct op_chunk chunk = {
        .in = {memory->in + i * memory->size},
        .out = {memory->out + i * memory->size},
        .n_records = (uint32_t)(memory->size / SHOT_UNIT),
    };

    core->code->map(params, &chunk, 1);
}

uint32_t shot_open_cpu(const struct shot_memory *memory, struct shot_rival *ret_rivals)
{
    static struct core core;

    for (uint32_t i = 0; i < n_op_codes && core.code == NULL; i++) {
        if (strcmp(op_codes[i]->manifest->name, "copy") == 0) {
            core.code = op_codes[i];
        }
    }
    if (core.code == NULL) {
        bench_fail("there is no op copy");
    }
    core.memory = memory;
    ret_rivals[0] = (struct shot_rival){"in this process", run_core, &core};
    return 1;
}
