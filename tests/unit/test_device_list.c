/*
 * The names that --devices takes.
 */
#include "daemon/device_list.h"

#include "tests/check.h"
#include "tests/random.h"

#define UUID "GPU-0a1b2c3d-4E5F-6071-8293-a4b5c6d7e8f9"

static struct device_list list;

static void check_refused(const char *text, const char *words)
{
    static struct device_list untouched;
    struct failure failure;

    memset(&untouched, 'x', sizeof(untouched));
    list = untouched;
    CHECK_EQ(device_list_read(text, &list, &failure), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.field, "devices");
    CHECK_HAS(failure.message, words);
    CHECK_MEM(&list, &untouched, sizeof(list));
}

static void test_names(void)
{
    static const char *const names[] = {
        "0",
        "17",
        "9999",
        "GPU-0a",
        UUID,
        "MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        "MIG-" UUID "/7/0",
    };
    enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

    for (unsigned i = 0; i < 1000; i++) {
        unsigned n = 1 + (unsigned)random_below(N_NAMES), first = (unsigned)random_below(N_NAMES);
        char text[1024] = "";
        struct failure failure;

        for (unsigned k = 0; k < n; k++) {
            strcat(text, k > 0 ? "," : "");
            strcat(text, names[(first + k) % N_NAMES]);
        }
        memset(&list, 'x', sizeof(list));
        CHECK_EQ(device_list_read(text, &list, &failure), 0);
        CHECK_EQ(list.n, n);
        for (unsigned k = 0; k < n; k++) {
            CHECK_STR(list.names[k], names[(first + k) % N_NAMES]);
        }
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
        check_refused(lists[i], "--devices takes");
    }
}

static void test_the_refused_name_is_quoted(void)
{
    check_refused("0,second,2", "not \"second\"");
    check_refused("0,1,0", "names \"0\" twice");
    check_refused("GPU-0a,GPU-0A", "names \"GPU-0A\" twice");
}

static void test_as_many_as_there_may_be(void)
{
    char text[LIMIT_DEVICES * 4 + 8] = "0";
    size_t size = 1;
    struct failure failure;

    for (unsigned i = 1; i < LIMIT_DEVICES; i++) {
        size += (size_t)sprintf(text + size, ",%u", i);
    }
    CHECK_EQ(device_list_read(text, &list, &failure), 0);
    CHECK_EQ(list.n, LIMIT_DEVICES);
    sprintf(text + size, ",%u", LIMIT_DEVICES);
    check_refused(text, "more than 32 devices");
}

CHECK_MAIN(CHECK_TEST(test_names), CHECK_TEST(test_names_of_no_device),
           CHECK_TEST(test_the_refused_name_is_quoted), CHECK_TEST(test_as_many_as_there_may_be))
