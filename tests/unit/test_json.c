/* MessagePack as JSON: values that op.list's answer may come to hold, and some that it should not.
 */
#include "client/base64.h"
#include "client/json.h"
#include "tests/check.h"
#include "tests/random.h"
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

static void test_bytes(void)
{
    static const char *const wanted[] = {"{\"@base64\": \"\"}", "{\"@base64\": \"Zg==\"}",
                                         "{\"@base64\": \"Zm8=\"}", "{\"@base64\": \"Zm9v\"}",
                                         "{\"@base64\": \"Zm9vYg==\"}"};

    for (uint32_t size = 0; size < sizeof(wanted) / sizeof(wanted[0]); size++) {
        const msgpack_object bin = {.type = MSGPACK_OBJECT_BIN,
                                    .via.bin = {.size = size, .ptr = "foobar"}};

        check_json(&bin, wanted[size]);
    }
}

static void check_back(const uint8_t *bytes, size_t size)
{
    static char text[BASE64_SIZE(9000)];
    static uint8_t back[9000];
    size_t size_back;

    base64_encode(bytes, size, text);
    random_bytes(back, sizeof(back));
    CHECK(base64_decode(text, BASE64_SIZE(size), back, &size_back));
    CHECK_EQ(size_back, size);
    CHECK_MEM(back, bytes, size);
}

/* Whatever the bytes, and longer than the pieces that they are written in. */
static void test_bytes_survive_as_text(void)
{
    static uint8_t bytes[7001];
    const msgpack_object bin = {.type = MSGPACK_OBJECT_BIN,
                                .via.bin = {.size = sizeof(bytes), .ptr = (const char *)bytes}};
    char *json, *text;
    static uint8_t back[9000];
    size_t size;

    random_bytes(bytes, sizeof(bytes));
    for (size_t i = 0; i < 300; i++) {
        check_back(bytes + i, random_below(500));
    }
    json = json_text(&bin);
    check_at_end(free, json);
    text = json + strlen("{\"@base64\": \"");
    CHECK(base64_decode(text, strlen(text) - strlen("\"}"), back, &size));
    CHECK_EQ(size, sizeof(bytes));
    CHECK_MEM(back, bytes, size);
}

static void test_what_is_no_base64(void)
{
    static const char *const texts[] = {"Z",    "Zg=",  "Zm9vY", "Zm9!",     "====", "Z===",
                                        "Zh==", "Zm9=", "=m9v",  "Zg==Zm9v", "Zm 9", "Zm-_"};
    uint8_t bytes[16];
    size_t size;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (base64_decode(texts[i], strlen(texts[i]), bytes, &size)) {
            CHECK_FAIL("%s was taken", texts[i]);
        }
    }
}

static void test_what_has_no_word_in_json(void)
{
    check_text("{1: 2, 'a': 3, nil: 4, 'b': 5}", "{\"a\": 3, \"b\": 5}");
    check_text("{1: 2}", "{}");
}

CHECK_MAIN(CHECK_TEST(test_values), CHECK_TEST(test_floats), CHECK_TEST(test_strings),
           CHECK_TEST(test_bytes), CHECK_TEST(test_bytes_survive_as_text),
           CHECK_TEST(test_what_is_no_base64), CHECK_TEST(test_what_has_no_word_in_json))
