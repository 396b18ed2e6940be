/* Status names, and the failure that every layer fills. */
#include "proto/status.h"
#include "tests/check.h"

static void test_names_round_trip(void)
{
    for (enum status status = STATUS_OK; status < STATUS_COUNT; status++) {
        CHECK_EQ(status_from_name(status_name(status)), status);
    }
    CHECK_STR(status_name(STATUS_COUNT), "INTERNAL");
    CHECK_EQ(status_from_name("NO_SUCH_NAME"), STATUS_INTERNAL);
}

static void test_fail_fills_everything(void)
{
    struct failure failure = {.retry_ms = 7};

    CHECK_EQ(fail(&failure, STATUS_RANGE, "n", "n is %d; at most %d", 9, 8), -STATUS_RANGE);
    CHECK_EQ(failure.status, STATUS_RANGE);
    CHECK_STR(failure.field, "n");
    CHECK_STR(failure.message, "n is 9; at most 8");
    CHECK_EQ(failure.retry_ms, 0);
}

static void test_fail_cuts_what_is_too_long(void)
{
    struct failure failure;
    char longer[1000];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    fail(&failure, STATUS_PROTO, longer, "%s", longer);
    CHECK_EQ(strlen(failure.field), sizeof(failure.field) - 1);
    CHECK_EQ(strlen(failure.message), sizeof(failure.message) - 1);
}

/* A method's name with an escape sequence in it went to terminals as it was. */
static void test_messages_are_printable(void)
{
    struct failure failure;

    fail(&failure, STATUS_UNKNOWN_METHOD, NULL, "no \"%s\"", "\xff\n\x1b[31m~ \x7f");
    CHECK_STR(failure.message, "no \"???[31m~ ?\"");
}

CHECK_MAIN(CHECK_TEST(test_names_round_trip), CHECK_TEST(test_fail_fills_everything),
           CHECK_TEST(test_fail_cuts_what_is_too_long), CHECK_TEST(test_messages_are_printable))
