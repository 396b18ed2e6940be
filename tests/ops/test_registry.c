/* The table of built-in ops: complete, and each op what its manifest says. */
#include "cuda/registry.h"
#include "tests/check.h"

static void test_names_are_unique(void)
{
    CHECK_GT(n_op_codes, 0u);
    for (uint32_t a = 0; a < n_op_codes; a++) {
        for (uint32_t b = 0; b < a; b++) {
            CHECK(strcmp(op_codes[a]->manifest->name, op_codes[b]->manifest->name) != 0);
        }
    }
}

static void test_functions_fit_the_kind(void)
{
    for (uint32_t k = 0; k < n_op_codes; k++) {
        const struct op_code *code = op_codes[k];
        const bool is_reduce = code->manifest->kind == OP_REDUCE;

        CHECK_EQ(code->map != NULL, !is_reduce);
        CHECK_EQ(code->leaves != NULL, is_reduce);
        CHECK_EQ(code->merge != NULL, is_reduce);
        CHECK_EQ(code->finish != NULL, is_reduce);
    }
}

CHECK_MAIN(CHECK_TEST(test_names_are_unique), CHECK_TEST(test_functions_fit_the_kind))
