/*
 * Device nodes that are missing or closed to us, in a folder that stands for /dev.
 */
#include "cuda/cuda_nodes.h"

#include "tests/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static const char *const names[] = {"nvidiactl", "nvidia-uvm", "nvidia0",
                                    "nvidia1",   "nvidia63",   "dxg"};

static void remove_folder(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unlink(path_of(names[i]));
        rmdir(path_of(names[i]));
    }
    rmdir(folder);
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/gpupipe-nodes-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    check_at_end(remove_folder, NULL);
}

static void make_node(const char *name)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK_GE(fd, 0);
    close(fd);
}

static void make_all(void)
{
    make_node("nvidiactl");
    make_node("nvidia-uvm");
    make_node("nvidia0");
}

static void check_blames(const char *words)
{
    struct failure failure;

    CHECK_EQ(cuda_nodes_check(folder, &failure), -STATUS_NO_DEVICE);
    CHECK_HAS(failure.message, words);
}

static void check_blames_nothing(void)
{
    struct failure failure = {.message = "untouched"};

    CHECK_EQ(cuda_nodes_check(folder, &failure), 0);
    CHECK_STR(failure.message, "untouched");
}

static void test_all_is_well(void)
{
    make_folder();
    make_all();
    check_blames_nothing();
}

static void test_each_missing_node_is_named(void)
{
    make_folder();
    check_blames("/nvidiactl is missing: is the kernel module loaded");
    make_node("nvidiactl");
    check_blames("/nvidia-uvm is missing: is the module nvidia-uvm loaded");
    make_node("nvidia-uvm");
    check_blames("/nvidia0 is missing: is there a GPU");
    make_node("nvidia0");
    check_blames_nothing();
}

static void test_a_container_has_any_one_gpu(void)
{
    make_folder();
    make_all();
    CHECK_EQ(unlink(path_of("nvidia0")), 0);
    make_node("nvidia63");
    check_blames_nothing();
}

/* Root may open everything, so a user without rights looks; a user cannot become another. */
static void test_no_permission(void)
{
    static const char *const closed[] = {"nvidiactl", "nvidia-uvm", "nvidia0"};
    const uid_t nobody = 65534;
    bool is_root = geteuid() == 0;

    for (unsigned i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
        char words[128];

        make_folder();
        make_all();
        if (is_root) {
            CHECK_EQ(chmod(folder, 0755), 0);
            CHECK_EQ(chmod(path_of("nvidiactl"), 0666), 0);
            CHECK_EQ(chmod(path_of("nvidia-uvm"), 0666), 0);
            CHECK_EQ(chmod(path_of("nvidia0"), 0666), 0);
        }
        CHECK_EQ(chmod(path_of(closed[i]), 0), 0);
        snprintf(words, sizeof(words), "no permission to open %s/%s", folder, closed[i]);
        if (is_root) {
            CHECK_EQ(seteuid(nobody), 0);
        }
        struct failure failure;
        int error = cuda_nodes_check(folder, &failure);
        if (is_root) {
            CHECK_EQ(seteuid(0), 0);
        }
        CHECK_EQ(error, -STATUS_NO_DEVICE);
        CHECK_HAS(failure.message, words);
        remove_folder(NULL);
    }
}

static void test_a_closed_gpu_beside_an_open_one(void)
{
    make_folder();
    make_all();
    CHECK_EQ(unlink(path_of("nvidia0")), 0);
    CHECK_EQ(mkdir(path_of("nvidia0"), 0700), 0);
    check_blames("cannot open");
    make_node("nvidia1");
    check_blames_nothing();
}

static void test_below_windows_there_are_no_nodes(void)
{
    make_folder();
    make_node("dxg");
    check_blames_nothing();
}

CHECK_MAIN(CHECK_TEST(test_all_is_well), CHECK_TEST(test_each_missing_node_is_named),
           CHECK_TEST(test_a_container_has_any_one_gpu), CHECK_TEST(test_no_permission),
           CHECK_TEST(test_a_closed_gpu_beside_an_open_one),
           CHECK_TEST(test_below_windows_there_are_no_nodes))
