/* Manifests: parameters are packed as the op's C struct has them, or refused by name. */
#include "proto/manifest.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/sample_ops.h"

#include <math.h>

static struct failure failure;

static void test_pack_everything(void)
{
    const struct manifest_op op = make_op();
    const struct value values[] = {
        {.name = "mode", .kind = VALUE_STRING, .s = "lo"},
        {.name = "bias", .kind = VALUE_INT, .i = -8},
        {.name = "block", .kind = VALUE_INT, .i = 1 << 30},
        {.name = "shift", .kind = VALUE_INT, .i = INT64_MIN},
        {.name = "b", .kind = VALUE_FLOAT, .f = -1},
        {.name = "a", .kind = VALUE_INT, .i = -3},
    };
    uint8_t params[LIMIT_PARAM_BYTES];
    const uint8_t zeros[LIMIT_PARAM_BYTES] = {0};
    struct blend_params read;

    memset(params, 0xa5, sizeof(params));
    CHECK_EQ(manifest_pack(&op, values, ARRAY_SIZE(values), params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK_EQ(read.block, 1 << 30);
    CHECK(read.a == -3.0f);
    CHECK(read.b == -1.0);
    CHECK_EQ(read.shift, INT64_MIN);
    CHECK_EQ(read.bias, -8);
    CHECK_EQ(read.mode, 0);
    CHECK_MEM(params + sizeof(read), zeros, sizeof(params) - sizeof(read));
}

static void test_pack_defaults(void)
{
    const struct manifest_op op = make_op();
    const struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 0.1};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct blend_params read;

    memset(params, 0xa5, sizeof(params));
    CHECK_EQ(manifest_pack(&op, &a, 1, params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK_EQ(read.block, 4096);
    CHECK(read.a == 0.1f);
    CHECK(read.b == 0.25);
    CHECK_EQ(read.shift, -5);
    CHECK_EQ(read.bias, -1);
    CHECK_EQ(read.mode, 1);
}

static void test_pack_special_floats(void)
{
    struct manifest_op op = make_op();
    struct value value = {.name = "a", .kind = VALUE_FLOAT, .f = NAN};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct blend_params read;

    CHECK_EQ(manifest_pack(&op, &value, 1, params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK(isnan(read.a));
    value.f = -INFINITY;
    CHECK_EQ(manifest_pack(&op, &value, 1, params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK(isinf(read.a) && read.a < 0);
}

static void test_pack_refusals(void)
{
    const struct manifest_op op = make_op();
    static const struct {
        struct value value;
        enum status status;
        const char *message;
    } cases[] = {
        {{"c", VALUE_INT, 1, 0, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\" has no parameter \"c\"; it has block, a, b, shift, bias, mode"},
        {{"a", VALUE_INT, 1, 0, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"a\" stands there twice"},
        {{"block", VALUE_FLOAT, 0, 4096, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"block\" is no integer; it must be an integer, 1 to "
         "1073741824"},
        {{"block", VALUE_STRING, 0, 0, "4096"},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"block\" is no integer; it must be an integer, 1 to "
         "1073741824"},
        {{"block", VALUE_INT, 0, 0, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"block\" is 0; it must be an integer, 1 to 1073741824"},
        {{"bias", VALUE_INT, 8, 0, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"bias\" is 8; it must be an integer, -8 to 7"},
        {{"b", VALUE_FLOAT, 0, 1.5, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"b\" is 1.5; it must be an f64, -1 to 1"},
        {{"b", VALUE_FLOAT, 0, NAN, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"b\" is nan; it must be an f64, -1 to 1"},
        {{"b", VALUE_STRING, 0, 0, "x"},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"b\" is no number; it must be an f64, -1 to 1"},
        {{"mode", VALUE_STRING, 0, 0, "mid"},
         STATUS_RANGE,
         "op \"blend\": parameter \"mode\" is \"mid\"; it must be one of lo, hi"},
        {{"mode", VALUE_INT, 1, 0, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"mode\" is no string; it must be one of lo, hi"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct value values[] = {{.name = "a", .kind = VALUE_INT, .i = 1}, cases[i].value};
        uint8_t params[LIMIT_PARAM_BYTES], before[LIMIT_PARAM_BYTES];

        memset(params, 0xa5, sizeof(params));
        memset(before, 0xa5, sizeof(before));
        CHECK_EQ(manifest_pack(&op, values, 2, params, &failure), -(int)cases[i].status);
        CHECK_STR(failure.message, cases[i].message);
        CHECK_STR(failure.field, cases[i].value.name);
        CHECK_MEM(params, before, sizeof(params));
    }
}

static void test_pack_required_and_f32(void)
{
    const struct manifest_op op = make_op();
    struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 1e300};
    uint8_t params[LIMIT_PARAM_BYTES];

    CHECK_EQ(manifest_pack(&op, NULL, 0, params, &failure), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "op \"blend\": parameter \"a\" is missing; it must be an f32");
    CHECK_EQ(manifest_pack(&op, &a, 1, params, &failure), -STATUS_RANGE);
    CHECK_STR(failure.message, "op \"blend\": parameter \"a\" is 1e+300; it must be an f32");
}

static void test_pack_without_parameters(void)
{
    struct manifest_op op = make_op();
    const struct value a = {.name = "a", .kind = VALUE_INT, .i = 1};
    uint8_t params[LIMIT_PARAM_BYTES];

    op.n_params = 0;
    CHECK_EQ(manifest_pack(&op, NULL, 0, params, &failure), 0);
    CHECK_EQ(manifest_pack(&op, &a, 1, params, &failure), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "op \"blend\" has no parameter \"a\"; it has none");
}

/* What a parameter may not be less than: a value is refused, a default gives way. */
static void test_pack_bounds(void)
{
    static const struct {
        int64_t width, channels;
        int64_t pitch; /* -1: not said */
        int64_t packed;
        const char *message; /* NULL: it is packed */
    } cases[] = {
        {8, 3, 24, 24, NULL},
        {8, 3, 25, 25, NULL},
        {8, 3, 23, 0,
         "op \"hash\": parameter \"pitch\" is 23; it must be at least width * channels, 24"},
        {0, 3, 0, 0, NULL},
        {8, 3, -1, 24, NULL},
        {6, 3, -1, 20, NULL},
        {1 << 20, 1 << 20, -1, INT64_C(1) << 40, NULL},
        {1 << 20, (1 << 20) + 1, -1, 0,
         "op \"hash\": parameter \"pitch\" is at most 1099511627776; it must be at least width * "
         "channels, 1099512676352"},
        {UINT32_MAX, UINT32_MAX, 7, 0,
         "op \"hash\": parameter \"pitch\" is 7; it must be at least width * channels, "
         "9223372036854775807"},
    };
    const struct manifest_op op = make_bounded();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct value values[] = {
            {.name = "channels", .kind = VALUE_INT, .i = cases[i].channels},
            {.name = "width", .kind = VALUE_INT, .i = cases[i].width},
            {.name = "pitch", .kind = VALUE_INT, .i = cases[i].pitch},
        };
        uint32_t n_values = cases[i].pitch < 0 ? 2 : 3;
        uint8_t params[LIMIT_PARAM_BYTES];
        struct image_params read;
        int r = manifest_pack(&op, values, n_values, params, &failure);

        if (cases[i].message == NULL) {
            CHECK_EQ(r, 0);
            memcpy(&read, params, sizeof(read));
            CHECK_EQ(read.pitch, cases[i].packed);
            CHECK_EQ(read.width, cases[i].width);
        } else {
            CHECK_EQ(r, -STATUS_RANGE);
            CHECK_STR(failure.message, cases[i].message);
            CHECK_STR(failure.field, "pitch");
        }
    }
}

CHECK_MAIN(CHECK_TEST(test_pack_everything), CHECK_TEST(test_pack_defaults),
           CHECK_TEST(test_pack_special_floats), CHECK_TEST(test_pack_refusals),
           CHECK_TEST(test_pack_required_and_f32), CHECK_TEST(test_pack_without_parameters),
           CHECK_TEST(test_pack_bounds))
