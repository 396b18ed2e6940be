/*
 * fault: a copy whose kernel does what no kernel should.  Only the tests' own worker has it. Thread
 * 0 faults, the others copy; where the kernel is endless, every thread that has a byte is.
 *
 * On the CPU it would take the process with it in other ways, which prove nothing: there it returns
 * poison.
 */
#include "cuda/op.h"

#define FAULT_POISON 0xdb

enum fault_kind { FAULT_NONE, FAULT_ADDRESS, FAULT_TRAP, FAULT_MISALIGNED, FAULT_ENDLESS };

struct fault_params {
    uint32_t size; /* bytes of a record */
    uint32_t kind; /* enum fault_kind */
};

#ifdef __CUDACC__

GP_INLINE void fault_happen(const struct fault_params *params, uint8_t *out, size_t i)
{
    if (params->kind == FAULT_ENDLESS) {
        const volatile uint8_t *at = &out[i]; /* nobody else writes there, but nvcc must look */

        while (*at == *at) {
        }
    } else if (i != 0) {
        return;
    } else if (params->kind == FAULT_ADDRESS) {
        *(volatile uint32_t *)16 = 1;
    } else if (params->kind == FAULT_TRAP) {
        __trap();
    } else if (params->kind == FAULT_MISALIGNED) {
        *(volatile uint32_t *)(out + 1) = 1;
    }
}

#endif

GP_MAP(fault, (size_t)chunk->n_records * params->size)
{
    const uint8_t *in = GP_IN(0, uint8_t);
    uint8_t *out = GP_OUT(0, uint8_t);

#ifdef __CUDACC__
    fault_happen(params, out, i);
    out[i] = in[i];
#else
    out[i] = params->kind == FAULT_NONE ? in[i] : FAULT_POISON;
#endif
}

#ifdef GP_HOST

static const struct manifest_op fault_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "fault",
    .doc = "the input, unless the kernel comes to grief first",
    .n_in = 1,
    .n_out = 1,
    .n_params = 2,
    .params_size = sizeof(struct fault_params),
    .in = {{.name = "in", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "size"}}}},
    .out = {{.name = "out", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "size"}}}},
    .params = {{.name = "size",
                .type = PARAM_U32,
                .offset = offsetof(struct fault_params, size),
                .i_default = 1,
                .i_min = 1,
                .i_max = LIMIT_RECORD},
               {.name = "kind",
                .type = PARAM_CHOICE,
                .offset = offsetof(struct fault_params, kind),
                .i_max = FAULT_ENDLESS,
                .n_choices = FAULT_ENDLESS + 1,
                .choices = {"none", "address", "trap", "misaligned", "endless"}}},
    .min_parallel = 1,
};

GP_CODE(fault, .map = fault_map);

#endif
