/*
 * The names that --devices takes.
 */
#include "daemon/devices.h"

#include "tests/check.h"

#define UUID "GPU-0a1b2c3d-4E5F-6071-8293-a4b5c6d7e8f9"

static void test_the_first_of_a_list(void)
{
    static const struct {
        const char *list, *first;
    } rows[] = {
        {"0", "0"},
        {"17", "17"},
        {"3,1,2", "3"},
        {"GPU-0a,1", "GPU-0a"},
        {"1," UUID, "1"},
        {UUID "," UUID, UUID},
        {"MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"},
        {"MIG-" UUID "/7/0", "MIG-" UUID "/7/0"},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char device[64];
        struct failure failure;

        memset(device, 'x', sizeof(device));
        CHECK_EQ(devices_first(rows[i].list, device, sizeof(device), &failure), 0);
        CHECK_STR(device, rows[i].first);
    }
}

static void test_names_of_no_device(void)
{
    static const char *const lists[] = {
        "",       ",",
        "0,",     ",0",
        "0,,1",   "-1",
        "0x1",    "1 ",
        " 1",     "1;2",
        "cuda0",  "GPU",
        "GPU-",   "MIG-",
        "gpu-0a", "0,cuda1",
        "GPU-0z", "12345",
        "0\n",    "0,GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
    };

    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        char device[64] = "untouched";
        struct failure failure;

        CHECK_EQ(devices_first(lists[i], device, sizeof(device), &failure), -STATUS_INVALID_PARAM);
        CHECK_STR(failure.field, "devices");
        CHECK_HAS(failure.message, "--devices takes");
        CHECK_STR(device, "untouched");
    }
}

static void test_the_refused_name_is_quoted(void)
{
    char device[64];
    struct failure failure;

    devices_first("0,second,2", device, sizeof(device), &failure);
    CHECK_HAS(failure.message, "not \"second\"");
}

CHECK_MAIN(CHECK_TEST(test_the_first_of_a_list), CHECK_TEST(test_names_of_no_device),
           CHECK_TEST(test_the_refused_name_is_quoted))
