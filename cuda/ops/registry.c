/*
 * Registry: the table of the built-in ops, in the order of ops.list.
 */
#include "cuda/registry.h"

#include "cuda/ops/op_list.h"
#include "proto/util.h"

#define X(name) extern const struct op_code op_##name;
OP_LIST(X)
#undef X

const struct op_code *const op_codes[] = {
#define X(name) &op_##name,
    OP_LIST(X)
#undef X
};

const uint32_t n_op_codes = ARRAY_SIZE(op_codes);
