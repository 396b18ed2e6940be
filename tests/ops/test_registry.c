/* The table of built-in ops: complete, and each op what its manifest says. */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"

static const struct op_code *find(const char *name)
{
    for (uint32_t k = 0; k < n_op_codes; k++) {
        if (strcmp(op_codes[k]->manifest->name, name) == 0) {
            return op_codes[k];
        }
    }
    CHECK_FAIL("no op is called %s", name);
}

static void test_manifests_are_accepted(void)
{
    for (uint32_t k = 0; k < n_op_codes; k++) {
        struct failure failure = {0};

        if (manifest_check(op_codes[k]->manifest, &failure) != 0) {
            CHECK_FAIL("%s: %s", op_codes[k]->manifest->name, failure.message);
        }
    }
}

static void test_names_are_unique(void)
{
    CHECK_GT(n_op_codes, 0u);
    for (uint32_t k = 0; k < n_op_codes; k++) {
        CHECK(find(op_codes[k]->manifest->name) == op_codes[k]);
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

/* Record sizes of the first input and output with these parameters. */
static void check_sizes(const char *name, const struct value *values, uint32_t n_values,
                        uint32_t in_size, uint32_t out_size)
{
    const struct manifest_op *op = find(name)->manifest;
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure;
    uint32_t size;

    memset(params, 0xa5, sizeof(params));
    CHECK_EQ(manifest_pack(op, values, n_values, params, &failure), 0);
    CHECK_EQ(manifest_record_size(op, &op->in[0], params, &size, &failure), 0);
    CHECK_EQ(size, in_size);
    CHECK_EQ(manifest_record_size(op, &op->out[0], params, &size, &failure), 0);
    CHECK_EQ(size, out_size);
}

static void test_parameters_and_record_sizes(void)
{
    const struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 2.5};
    const struct value image[] = {
        {.name = "width", .i = 5},     {.name = "height", .i = 7}, {.name = "out_height", .i = 3},
        {.name = "out_width", .i = 2}, {.name = "pitch", .i = 16},
    };
    const struct value block = {.name = "block", .kind = VALUE_INT, .i = LIMIT_RECORD};
    const struct value size = {.name = "size", .kind = VALUE_INT, .i = 77};
    const struct value slices[] = {{.name = "k", .kind = VALUE_INT, .i = 3},
                                   {.name = "m", .kind = VALUE_INT, .i = 2},
                                   {.name = "n", .kind = VALUE_INT, .i = 5}};

    check_sizes("align_score", NULL, 0, 256, 4);
    check_sizes("copy", NULL, 0, 1, 1);
    check_sizes("copy", &size, 1, 77, 77);
    check_sizes("dhash", image, 2, 105, 8);
    check_sizes("gray", NULL, 0, 3, 1);
    check_sizes("iterate", NULL, 0, 4, 4);
    check_sizes("minhash", NULL, 0, 4, 512);
    check_sizes("resize", image, 4, 105, 18);
    check_sizes("resize", image, 5, 112, 18);
    check_sizes("rs16", slices, 3, 30, 20);
    check_sizes("saxpy", &a, 1, 4, 4);
    check_sizes("sha256", NULL, 0, 4096, 32);
    check_sizes("sha256", &block, 1, LIMIT_RECORD, 32);
    check_sizes("sincos", NULL, 0, 4, 4);
    check_sizes("sum", NULL, 0, 4, 8);
}

static void check_refused(const char *name, const struct value *values, uint32_t n_values,
                          enum status status, const char *field)
{
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure = {0};

    CHECK_EQ(manifest_pack(find(name)->manifest, values, n_values, params, &failure), -(int)status);
    CHECK_STR(failure.field, field);
}

static void test_wrong_parameters_are_refused(void)
{
    const struct value image[] = {
        {.name = "width", .i = 5}, {.name = "height", .i = 7}, {.name = "pitch", .i = 14}};
    const struct value length = {.name = "length", .kind = VALUE_INT, .i = 513};
    const struct value none = {.name = "block", .kind = VALUE_INT, .i = 0};
    const struct value k = {.name = "k", .kind = VALUE_INT, .i = 3};
    const struct value n = {.name = "n", .kind = VALUE_INT, .i = -1};
    const struct value ngram = {.name = "ngram", .kind = VALUE_INT, .i = 65};
    const struct value large = {.name = "size", .kind = VALUE_INT, .i = LIMIT_RECORD + 1};

    check_refused("align_score", &length, 1, STATUS_RANGE, "length");
    check_refused("dhash", image, 3, STATUS_RANGE, "pitch");
    check_refused("minhash", &ngram, 1, STATUS_RANGE, "ngram");
    check_refused("rs16", &k, 1, STATUS_INVALID_PARAM, "m");
    check_refused("saxpy", NULL, 0, STATUS_INVALID_PARAM, "a");
    check_refused("sha256", &none, 1, STATUS_RANGE, "block");
    check_refused("iterate", &n, 1, STATUS_RANGE, "n");
    check_refused("copy", &large, 1, STATUS_RANGE, "size");
    check_refused("sum", &none, 1, STATUS_INVALID_PARAM, "block");
}

CHECK_MAIN(CHECK_TEST(test_manifests_are_accepted), CHECK_TEST(test_names_are_unique),
           CHECK_TEST(test_functions_fit_the_kind), CHECK_TEST(test_parameters_and_record_sizes),
           CHECK_TEST(test_wrong_parameters_are_refused))
