/* The method table: names lead to rows, and nothing else does. */
#include "proto/methods.h"
#include "tests/check.h"

static void test_every_name_finds_its_row(void)
{
    for (int method = 0; method < METHOD_COUNT; method++) {
        const struct method_row *row = method_row((enum method)method);

        CHECK_EQ((int)method_find(row->name, strlen(row->name)), method);
        CHECK_LE(row->n_params_least, row->n_params_most);
    }
}

static void test_a_payload_is_the_last_param(void)
{
    for (int method = 0; method < METHOD_COUNT; method++) {
        const struct method_row *row = method_row((enum method)method);

        if (row->payload >= 0) {
            CHECK_EQ(row->payload, row->n_params_most - 1);
        }
    }
    CHECK_EQ(method_row(METHOD_RUN)->payload, 3);
    CHECK_EQ(method_row(METHOD_JOB_PUSH)->payload, 3);
}

static void test_other_names_find_nothing(void)
{
    static const char *const others[] = {"", "pin", "pingg", "Ping", "job", "job.", "job.result"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK_EQ((int)method_find(others[i], strlen(others[i])), (int)METHOD_COUNT);
    }
    CHECK_EQ((int)method_find("ping\0", 5), (int)METHOD_COUNT);
    CHECK_EQ((int)method_find("pingX", 4), (int)METHOD_PING);
}

CHECK_MAIN(CHECK_TEST(test_every_name_finds_its_row), CHECK_TEST(test_a_payload_is_the_last_param),
           CHECK_TEST(test_other_names_find_nothing))
