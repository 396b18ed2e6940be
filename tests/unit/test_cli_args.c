/* What stands on gpupipe-cli's command line, and what it prints for people. */
#include "client/cli/args.h"
#include "client/cli/cli.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/quietly.h"

#include <math.h>
#include <unistd.h>

/* ---- sizes and durations ------------------------------------------------------------------- */

static void test_sizes(void)
{
    static const struct {
        const char *text;
        uint64_t size; /* 0: none */
    } rows[] = {
        {"1", 1},
        {"4096", 4096},
        {"64K", 65536},
        {"64k", 65536},
        {"3KiB", 3072},
        {"4M", 4194304},
        {"7MiB", 7340032},
        {"2G", UINT64_C(2147483648)},
        {"1T", UINT64_C(1099511627776)},
        {"12B", 12},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", UINT64_C(16777215) << 40},
        {"16777216T", 0},
        {"18446744073709551616", 0},
        {"0", 0},
        {"0K", 0},
        {"", 0},
        {"-1", 0},
        {"+1", 0},
        {" 1", 0},
        {"1 K", 0},
        {"1.5M", 0},
        {"1KB", 0},
        {"1iB", 0},
        {"1X", 0},
        {"K", 0},
        {"0x10", 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t size = 77;
        bool is_size = args_size(rows[i].text, &size);

        if (is_size != (rows[i].size != 0) || size != (rows[i].size != 0 ? rows[i].size : 77)) {
            CHECK_FAIL("'%s' gives %d, %" PRIu64, rows[i].text, is_size, size);
        }
    }
}

static void test_durations(void)
{
    static const struct {
        const char *text;
        uint64_t ns; /* 0: none */
    } rows[] = {
        {"5ms", 5000000},
        {"1ns", 1},
        {"250us", 250000},
        {"1.5s", 1500000000},
        {"2m", UINT64_C(120000000000)},
        {"1h", UINT64_C(3600000000000)},
        {"0.1us", 100},
        {"1e3ms", 1000000000},
        {"2502h", 0},
        {"5", 0},
        {"0s", 0},
        {"0.1ns", 0},
        {"-1s", 0},
        {"ms", 0},
        {"", 0},
        {"5 ms", 0},
        {"5d", 0},
        {"5mss", 0},
        {"nans", 0},
        {"1e400s", 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t ns = 77;
        bool is_duration = args_duration(rows[i].text, &ns);

        if (is_duration != (rows[i].ns != 0) || ns != (rows[i].ns != 0 ? rows[i].ns : 77)) {
            CHECK_FAIL("'%s' gives %d, %" PRIu64, rows[i].text, is_duration, ns);
        }
    }
}

static void test_choices(void)
{
    static const char *const words[] = {"raw", "text"};

    CHECK_EQ(args_choice("raw", words, 2), 0);
    CHECK_EQ(args_choice("text", words, 2), 1);
    CHECK_EQ(args_choice("tex", words, 2), 2);
    CHECK_EQ(args_choice("", words, 2), 2);
}

/* ---- parameters ---------------------------------------------------------------------------- */

static const struct manifest_op op = {
    .n_params = 2,
    .params = {{.name = "block", .type = PARAM_U32}, {.name = "mode", .type = PARAM_CHOICE}},
};

static void test_values_are_told_by_their_looks(void)
{
    static const struct {
        const char *text;
        enum value_kind kind;
        int64_t i;
        double f;
        const char *s;
    } rows[] = {
        {"block=4096", VALUE_INT, 4096, 0, ""},
        {"block=-7", VALUE_INT, -7, 0, ""},
        {"block=0x1f", VALUE_INT, 31, 0, ""},
        {"block=010", VALUE_INT, 10, 0, ""},
        {"block=4K", VALUE_INT, 4096, 0, ""},
        {"block=9223372036854775807", VALUE_INT, INT64_MAX, 0, ""},
        {"block=9223372036854775808", VALUE_FLOAT, 0, 9223372036854775808.0, ""},
        {"a=2.5", VALUE_FLOAT, 0, 2.5, ""},
        {"a=-1e-3", VALUE_FLOAT, 0, -1e-3, ""},
        {"a=inf", VALUE_FLOAT, 0, (double)INFINITY, ""},
        {"a=word", VALUE_STRING, 0, 0, "word"},
        {"a=", VALUE_STRING, 0, 0, ""},
        {"a=b=c", VALUE_STRING, 0, 0, "b=c"},
        {"mode=8", VALUE_STRING, 0, 0, "8"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct value value;

        CHECK_EQ(args_value(rows[i].text, &op, &value), 0);
        CHECK_EQ(strncmp(value.name, rows[i].text, strlen(value.name)), 0);
        CHECK_EQ(value.kind, rows[i].kind);
        CHECK_EQ(value.i, rows[i].kind == VALUE_INT ? rows[i].i : value.i);
        CHECK(value.f == rows[i].f);
        CHECK_STR(value.s, rows[i].s);
    }
}

static void test_values_that_are_none(void)
{
    static const char *const rows[] = {
        "block",
        "=4",
        "",
        "a_name_that_is_longer_than_any_may_be=1",
        "a=a_word_that_is_longer_than_any_choice_may_be",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct value value;

        CHECK_EQ(QUIETLY(args_value(rows[i], &op, &value)), CLI_USAGE);
        CHECK_HAS(said, rows[i]);
    }
}

/* ---- files --------------------------------------------------------------------------------- */

static const struct manifest_array arrays[] = {{.name = "x"}, {.name = "y"}};

static void test_files_are_bound_by_name_or_in_order(void)
{
    static const struct {
        const char *texts[2];
        uint32_t n_texts;
        const char *x, *y;
    } rows[] = {
        {{"one", "two"}, 2, "one", "two"},
        {{"y=two", "one"}, 2, "one", "two"},
        {{"one", "x=two"}, 2, "two", "one"},
        {{"y=b", "x=a"}, 2, "a", "b"},
        {{"z=b", "x="}, 2, "", "z=b"},
        {{"xy=b", "y=x=c"}, 2, "xy=b", "x=c"},
        {{"./x=file", "-"}, 2, "./x=file", "-"},
        {{"y=b"}, 1, NULL, "b"},
        {{"a"}, 1, "a", NULL},
        {{NULL}, 0, NULL, NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *paths[2] = {NULL, NULL};

        CHECK_EQ(args_bind(rows[i].texts, rows[i].n_texts, arrays, 2, "-i", "input", paths), 0);
        CHECK_STR(paths[0] == NULL ? "none" : paths[0], rows[i].x == NULL ? "none" : rows[i].x);
        CHECK_STR(paths[1] == NULL ? "none" : paths[1], rows[i].y == NULL ? "none" : rows[i].y);
    }
}

static void test_files_that_fit_nowhere(void)
{
    static const char *const twice[] = {"x=a", "x=b"};
    static const char *const too_many[] = {"x=a", "b", "c"};
    const char *paths[2] = {NULL, NULL};

    CHECK_EQ(QUIETLY(args_bind(twice, 2, arrays, 2, "-i", "input", paths)), CLI_USAGE);
    CHECK_HAS(said, "input x is given twice");
    paths[0] = paths[1] = NULL;
    CHECK_EQ(QUIETLY(args_bind(too_many, 3, arrays, 2, "-i", "input", paths)), CLI_USAGE);
    CHECK_HAS(said, "-i c: one file too many: the op has 2 inputs");
}

/* ---- for people ---------------------------------------------------------------------------- */

static void test_sizes_and_times_for_people(void)
{
    char text[PROGRESS_TEXT_SIZE];

    CHECK_STR(progress_size(0, text), "0 B");
    CHECK_STR(progress_size(1023, text), "1023 B");
    CHECK_STR(progress_size(1024, text), "1.0 KiB");
    CHECK_STR(progress_size(1048575, text), "1.0 MiB");
    CHECK_STR(progress_size(UINT64_C(5) << 30, text), "5.0 GiB");
    CHECK_STR(progress_size(UINT64_MAX, text), "16.0 EiB");
    CHECK_STR(progress_time(850, text), "850 ns");
    CHECK_STR(progress_time(12500, text), "12.5 us");
    CHECK_STR(progress_time(3000000, text), "3.0 ms");
    CHECK_STR(progress_time(4200000000, text), "4.2 s");
}

static void test_the_bar(void)
{
    char line[PROGRESS_LINE_SIZE];

    progress_format(1 << 20, 4 << 20, 500000000, line);
    CHECK_STR(line,
              "[======                  ]  25 %  1.0 MiB of 4.0 MiB  2.0 MiB/s  0:00:01 left");
    progress_format(4 << 20, 4 << 20, 1000000000, line);
    CHECK_HAS(line, "[========================] 100 %");
    CHECK_HAS(line, "0:00:00 left");
    progress_format(1 << 20, 0, 1000000000, line);
    CHECK_STR(line, "1.0 MiB  1.0 MiB/s");
    progress_format(8 << 20, 4 << 20, 1000000000, line);
    CHECK_STR(line, "8.0 MiB  8.0 MiB/s");
    progress_format(0, 4 << 20, 0, line);
    CHECK_HAS(line, "  0 %");
}

/* ---- text ---------------------------------------------------------------------------------- */

static void test_elements_as_text(void)
{
    char text[TEXT_ELEMENT_MAX + 1] = "";
    const uint8_t byte = 0xa7;
    const int16_t i16 = -12345;
    const uint64_t u64 = UINT64_MAX;
    const float complex_number[] = {1.5f, -2.25f};

    text[text_element(DTYPE_U8, true, &byte, text)] = '\0';
    CHECK_STR(text, "a7");
    text[text_element(DTYPE_U8, false, &byte, text)] = '\0';
    CHECK_STR(text, "167");
    text[text_element(DTYPE_I8, false, &byte, text)] = '\0';
    CHECK_STR(text, "-89");
    text[text_element(DTYPE_I16, false, (const uint8_t *)&i16, text)] = '\0';
    CHECK_STR(text, "-12345");
    text[text_element(DTYPE_U64, false, (const uint8_t *)&u64, text)] = '\0';
    CHECK_STR(text, "18446744073709551615");
    text[text_element(DTYPE_C64, false, (const uint8_t *)complex_number, text)] = '\0';
    CHECK_STR(text, "1.5-2.25i");
}

/* Whatever bits a number has, its text gives them back. */
static void test_floats_survive_as_text(void)
{
    char text[TEXT_ELEMENT_MAX + 1];

    for (int i = 0; i < 2000; i++) {
        uint64_t bits = random_u64();
        double f64, f64_back;
        float f32, f32_back;

        memcpy(&f64, &bits, sizeof(f64));
        memcpy(&f32, &bits, sizeof(f32));
        text[text_element(DTYPE_F64, false, (const uint8_t *)&f64, text)] = '\0';
        f64_back = strtod(text, NULL);
        CHECK(isnan(f64) ? isnan(f64_back) : f64 == f64_back);
        text[text_element(DTYPE_F32, false, (const uint8_t *)&f32, text)] = '\0';
        f32_back = strtof(text, NULL);
        CHECK(isnan(f32) ? isnan(f32_back) : f32 == f32_back);
    }
}

static char *write_lines(const struct manifest_array *array, enum format format,
                         uint32_t record_size, const void *bytes, uint64_t size)
{
    static char text[400000];
    char path[] = "/tmp/test_cli_XXXXXX";
    struct output output = {.path = path, .fd = mkstemp(path)};
    ssize_t n;

    CHECK_EQ(text_write(&output, array, format, record_size, bytes, size), 0);
    n = pread(output.fd, text, sizeof(text) - 1, 0);
    CHECK_GE(n, 0);
    text[n] = '\0';
    unlink(path);
    close(output.fd);
    return text;
}

static void test_records_as_lines(void)
{
    static const struct manifest_array digest = {
        .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.fixed = 3}}};
    static const struct manifest_array pair = {
        .dtype = DTYPE_I32, .n_dims = 1, .dims = {{.fixed = 2}}};
    static const struct manifest_array number = {.dtype = DTYPE_F64};
    static const int32_t integers[] = {1, -2, 3, 4};
    static const double numbers[] = {0.1, -3};

    CHECK_STR(write_lines(&digest, FORMAT_TEXT, 3, "\x01\xff\x20\x00\x0a\x7f", 6),
              "01ff20\n000a7f\n");
    CHECK_STR(write_lines(&pair, FORMAT_TEXT, 8, integers, sizeof(integers)), "1 -2\n3 4\n");
    CHECK_STR(write_lines(&number, FORMAT_TEXT, 8, numbers, sizeof(numbers)),
              "0.10000000000000001\n-3\n");
    CHECK_STR(write_lines(&number, FORMAT_TEXT, 8, numbers, 0), "");
    CHECK_STR(write_lines(&digest, FORMAT_HEX, 3, "\x01\xff\x20\x00\x0a\x7f", 6),
              "01ff20\n000a7f\n");
    CHECK_STR(write_lines(&pair, FORMAT_HEX, 8, integers, sizeof(integers)),
              "01000000feffffff\n0300000004000000\n");
}

/* Longer than the pieces that text goes out in. */
static void test_many_lines(void)
{
    static const struct manifest_array array = {.dtype = DTYPE_U16};
    static uint16_t numbers[50000];
    char *line;
    size_t n = 0;

    random_bytes(numbers, sizeof(numbers));
    line = strtok(write_lines(&array, FORMAT_TEXT, 2, numbers, sizeof(numbers)), "\n");
    for (; line != NULL; line = strtok(NULL, "\n")) {
        CHECK_LT(n, 50000);
        CHECK_EQ(strtoul(line, NULL, 10), numbers[n]);
        n++;
    }
    CHECK_EQ(n, 50000);
}

CHECK_MAIN(CHECK_TEST(test_sizes), CHECK_TEST(test_durations), CHECK_TEST(test_choices),
           CHECK_TEST(test_values_are_told_by_their_looks), CHECK_TEST(test_values_that_are_none),
           CHECK_TEST(test_files_are_bound_by_name_or_in_order),
           CHECK_TEST(test_files_that_fit_nowhere), CHECK_TEST(test_sizes_and_times_for_people),
           CHECK_TEST(test_the_bar), CHECK_TEST(test_elements_as_text),
           CHECK_TEST(test_floats_survive_as_text), CHECK_TEST(test_records_as_lines),
           CHECK_TEST(test_many_lines))
