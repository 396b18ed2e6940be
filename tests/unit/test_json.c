/* MessagePack as JSON: values that op.list's answer may come to hold, and some that it should not.
 */
#include "client/json.h"
#include "tests/check.h"
#include "tests/unit/codec_text.h"

static void check_json(const msgpack_object *object, const char *wanted)
{
    char *json = json_text(object);

    check_at_end(free, json);
    CHECK_STR(json, wanted);
}

static void check_text(const char *text, const char *wanted)
{
    check_json(result_from(text), wanted);
}

static void test_values(void)
{
    check_text("true", "true");
    check_text("false", "false");
    check_text("nil", "null");
    check_text("0", "0");
    check_text("18446744073709551615", "18446744073709551615");
    check_text("-9223372036854775808", "-9223372036854775808");
    check_text("[]", "[]");
    check_text("{}", "{}");
    check_text("[1, [2, {'a': []}], 'b']", "[1, [2, {\"a\": []}], \"b\"]");
    check_text("{'a': 1, 'b': {'c': nil}}", "{\"a\": 1, \"b\": {\"c\": null}}");
}

static void check_float(double number, const char *wanted)
{
    const msgpack_object object = {.type = MSGPACK_OBJECT_FLOAT64, .via.f64 = number};

    check_json(&object, wanted);
}

static void test_floats(void)
{
    check_float(0.1, "0.1");
    check_float(-2.5, "-2.5");
    check_float(1.0 / 3, "0.3333333333333333");
    check_float(0.1 + 0.2, "0.30000000000000004");
    check_float(3, "3");
    check_float(1e300, "1e+300");
    check_float(__builtin_inf(), "null");
    check_float(__builtin_nan(""), "null");
}

static void test_strings(void)
{
    static const char bytes[] = "a\"b\\c\n\x01\x1f\xc3\xa9";
    const msgpack_object object = {.type = MSGPACK_OBJECT_STR,
                                   .via.str = {.size = sizeof(bytes) - 1, .ptr = bytes}};

    check_json(&object, "\"a\\\"b\\\\c\\u000a\\u0001\\u001f\xc3\xa9\"");
}

static void test_what_has_no_word_in_json(void)
{
    const msgpack_object bin = {.type = MSGPACK_OBJECT_BIN, .via.bin = {.size = 3, .ptr = "abc"}};

    check_json(&bin, "null");
    check_text("{1: 2, 'a': 3, nil: 4, 'b': 5}", "{\"a\": 3, \"b\": 5}");
    check_text("{1: 2}", "{}");
}

CHECK_MAIN(CHECK_TEST(test_values), CHECK_TEST(test_floats), CHECK_TEST(test_strings),
           CHECK_TEST(test_what_has_no_word_in_json))
