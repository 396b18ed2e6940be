/*
 * Machines whose GPU cannot be used: each cause has its own words, in the worker's --probe, in the
 * daemon's log, and, where --backend auto falls to the CPU, in what clients are told.  The driver
 * is fake_cuda.c, so a GPU that is there makes no difference, but for its device nodes: where they
 * are missing, some causes are blamed on them, and that is right.
 *
 * What the fake cannot do: fail after cuInit().  A busy GPU in EXCLUSIVE_PROCESS mode fails later
 * than here, when its context is made, with the same error.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/wire.h"

#include <unistd.h>

#define NO_NODE "/dev/nvidiactl is missing"

static const struct cause {
    const char *version, *init; /* of the fake */
    bool may_be_nodes;
    const char *words;
} causes[] = {
    {"12020", "0", false, "the NVIDIA driver is too old: it knows CUDA 12.2, this program needs"},
    {"11000", "0", false, "the NVIDIA driver is too old: it knows CUDA 11.0, this program needs"},
    {"13000", "100", true, "there is no GPU (cudaErrorNoDevice)"},
    {"13000", "3", true, "does not start (cudaErrorInitializationError)"},
    {"13000", "304", true, "no access to the GPU (cudaErrorOperatingSystem)"},
    {"13000", "999", true, "does not know why: see dmesg (cudaErrorUnknown)"},
    {"13000", "34", false, "the toolkit's stub, not a driver"},
    {"13000", "46", false, "EXCLUSIVE_PROCESS mode and in use by another process"},
    {"13000", "802", false, "nvidia-fabricmanager"},
    {"13000", "803", false, "libcuda.so.1 and the kernel module are of different versions"},
    {"13000", "804", false, "forward compatibility"},
    {"13000", "805", false, "the MPS server cannot be reached"},
    {"13000", "2", false, "no memory left on the GPU"},
};

enum { N_CAUSES = sizeof(causes) / sizeof(causes[0]) };

static const char *words_of(const struct cause *cause)
{
    bool has_nodes = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;

    return cause->may_be_nodes && !has_nodes ? NO_NODE : cause->words;
}

static const char *folder(void)
{
    const char *path = getenv("FAKE_CUDA_FOLDER");

    if (path == NULL) {
        CHECK_FAIL("FAKE_CUDA_FOLDER is not set: run this test through meson test");
    }
    return path;
}

/* Variables of the worker's, as options of the daemon; they live until the next. */
static const char *worker_env(const char *name, const char *value)
{
    static char lines[8][512];
    static unsigned n;
    char *line = lines[n++ % 8];

    snprintf(line, sizeof(lines[0]), "%s=%s", name, value);
    return line;
}

static void probe(struct harness *harness, struct harness_output *ret_output,
                  const struct cause *cause)
{
    harness_shell(harness, ret_output,
                  "LD_LIBRARY_PATH='%s' FAKE_CUDA_VERSION=%s FAKE_CUDA_INIT=%s "
                  "exec \"$GPUPIPE_WORKER\" --probe",
                  folder(), cause->version, cause->init);
}

static void test_probe_says_why(void)
{
    struct harness *harness = harness_create();

    for (unsigned i = 0; i < N_CAUSES; i++) {
        struct harness_output output;

        probe(harness, &output, &causes[i]);
        printf("# %s", output.err);
        CHECK_EQ(output.code, 1);
        CHECK_STR(output.out, "");
        CHECK_HAS(output.err, words_of(&causes[i]));
    }
}

static void test_no_driver_at_all(void)
{
    struct harness *harness = harness_create();
    struct harness_output output;

    /* The runtime takes a library without functions for none. */
    harness_shell(harness, &output,
                  "mkdir empty && echo 'void nothing(void); void nothing(void) {}' > nothing.c && "
                  "cc -shared -fPIC -o empty/libcuda.so.1 nothing.c || exit 99; "
                  "LD_LIBRARY_PATH=empty exec \"$GPUPIPE_WORKER\" --probe");
    if (output.code == 99) {
        CHECK_SKIP("no compiler here");
    }
    CHECK_EQ(output.code, 1);
    CHECK_HAS(output.err, "no NVIDIA driver");
}

static void test_the_daemon_does_not_start_without_it(void)
{
    struct harness *harness = harness_create();

    for (unsigned i = 0; i < N_CAUSES; i++) {
        struct harness_output output;

        harness_shell(harness, &output,
                      "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --pinned-pool 64M "
                      "--worker-env LD_LIBRARY_PATH='%s' --worker-env FAKE_CUDA_VERSION=%s "
                      "--worker-env FAKE_CUDA_INIT=%s",
                      folder(), causes[i].version, causes[i].init);
        CHECK_EQ(output.code, 1);
        CHECK_HAS(output.err, words_of(&causes[i]));
        CHECK_EQ(access(harness_socket(harness), F_OK), -1);
    }
}

/* The whole sentence in what programs and people are told. */
static void check_reason(struct harness *daemon, const char *words)
{
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct harness_output output;

    wire_check_works(wire);
    CHECK_STR(wire_text(wire_call(wire, "stats", "[]"), "backend"), "cpu");
    CHECK_HAS(wire_text(wire_call(wire, "stats", "[]"), "reason"), words);
    CHECK_HAS(wire_text(wire_call(wire, "device.list", "[]"), "0.reason"), words);
    wire_refused(wire, "NO_DEVICE", "backend is cpu", "run",
                 "['copy', {}, {require: 'gpu'}, [<10>]]");
    wire_close(wire);
    harness_shell(daemon, &output, "\"$GPUPIPE_CLI\" status");
    CHECK_EQ(output.code, 0);
    CHECK_HAS(output.out, words);
    CHECK_HAS(harness_notified(daemon), words);
    CHECK_HAS(harness_log(daemon), words);
}

static void launch_auto(struct harness *harness, const struct cause *cause)
{
    const char *const options[] = {"--backend",
                                   "auto",
                                   "--pinned-pool",
                                   "64M",
                                   "--worker-env",
                                   worker_env("LD_LIBRARY_PATH", folder()),
                                   "--worker-env",
                                   worker_env("FAKE_CUDA_VERSION", cause->version),
                                   "--worker-env",
                                   worker_env("FAKE_CUDA_INIT", cause->init),
                                   NULL};

    harness_launch(harness, options);
}

static void test_auto_falls_to_the_cpu_and_says_why(void)
{
    for (unsigned i = 0; i < N_CAUSES; i++) {
        struct harness *daemon = harness_create();

        launch_auto(daemon, &causes[i]);
        check_reason(daemon, words_of(&causes[i]));
        harness_stop(daemon);
    }
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* The fake has this one GPU, and it is busy. */
static void run_with_devices(struct harness *harness, struct harness_output *ret_output,
                             const char *present, const char *options)
{
    harness_shell(harness, ret_output,
                  "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --pinned-pool 64M "
                  "%s --worker-env LD_LIBRARY_PATH='%s' "
                  "--worker-env FAKE_CUDA_VISIBLE='%s' --worker-env FAKE_CUDA_INIT=46",
                  options, folder(), present);
}

#define BUSY "EXCLUSIVE_PROCESS"

static void test_each_worker_gets_its_device(void)
{
    static const char *const names[] = {"0",        "3",
                                        "11",       "GPU-0a1b2c3d-0000-1111-2222-0123456789ab",
                                        "GPU-0a1b", "MIG-0a1b2c3d-0000-1111-2222-0123456789ab"};
    struct harness *harness = harness_create();
    struct harness_output output;
    char options[128];

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(options, sizeof(options), "--devices '%s'", names[i]);
        run_with_devices(harness, &output, names[i], options);
        CHECK_EQ(output.code, 1);
        CHECK_HAS(output.err, BUSY);
        snprintf(options, sizeof(options), "--devices '7,%s,GPU-77'", names[i]);
        run_with_devices(harness, &output, names[i], options);
        CHECK_EQ(output.code, 1);
        CHECK_HAS(output.err, "the worker of cuda1 did not start: the GPU is in " BUSY);
        CHECK_HAS(output.err, access("/dev/nvidiactl", F_OK) == 0 ? "shows no GPU \"7\"" : NO_NODE);
    }
}

/* What --worker-env shows them, indices count within. */
static void test_devices_among_the_visible(void)
{
    static const struct {
        const char *options, *seen;
    } rows[] = {
        {"--worker-env CUDA_VISIBLE_DEVICES=5,3", "5,3"}, /* the first of these */
        {"--worker-env CUDA_VISIBLE_DEVICES=5,3 --devices 0", "5"},
        {"--worker-env CUDA_VISIBLE_DEVICES=5,3 --devices 1", "3"},
        {"--worker-env CUDA_VISIBLE_DEVICES=GPU-0a,GPU-77 --devices 1", "GPU-77"},
        {"--worker-env CUDA_VISIBLE_DEVICES=5,3 --devices GPU-77", "GPU-77"},
    };
    struct harness *harness = harness_create();
    struct harness_output output;

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        run_with_devices(harness, &output, rows[i].seen, rows[i].options);
        CHECK_EQ(output.code, 1);
        CHECK_HAS(output.err, BUSY);
    }
    run_with_devices(harness, &output, "3", "--worker-env CUDA_VISIBLE_DEVICES=5,3 --devices 2");
    CHECK_EQ(output.code, 1);
    CHECK_HAS(output.err, "there is no device 2: CUDA_VISIBLE_DEVICES is \"5,3\"");
}

static void test_a_device_that_is_not_there(void)
{
    static const char *const names[] = {"1", "GPU-0a1b"};
    struct harness *harness = harness_create();
    struct harness_output output;

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char words[128], options[64];

        snprintf(words, sizeof(words), "the NVIDIA driver shows no GPU \"%s\"", names[i]);
        snprintf(options, sizeof(options), "--devices %s", names[i]);
        run_with_devices(harness, &output, "0", options);
        CHECK_EQ(output.code, 1);
        CHECK_HAS(output.err, access("/dev/nvidiactl", F_OK) == 0 ? words : NO_NODE);
    }
}

static void test_names_that_no_device_has(void)
{
    static const char *const names[] = {"",     "cuda0",   "-1",  "0,",    "0,,1", "1;2",
                                        "GPU-", "GPU-xyz", "0 1", "99999", "0,1,0"};
    struct harness *harness = harness_create();
    struct harness_output output;

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char options[64];

        snprintf(options, sizeof(options), "--devices '%s'", names[i]);
        run_with_devices(harness, &output, "0", options);
        CHECK_EQ(output.code, 2);
        CHECK_HAS(output.err, "--devices ");
        CHECK_EQ(access(harness_socket(harness), F_OK), -1);
    }
    harness_shell(harness, &output,
                  "exec \"$GPUPIPED\" --socket rpc.sock --backend cpu --devices 0");
    CHECK_EQ(output.code, 2);
    CHECK_HAS(output.err, "there is only cpu0");
}

/* The CPU worker knows nothing of GPUs. */
static void test_auto_falls_from_a_chosen_device_to_the_cpu(void)
{
    const char *const options[] = {"--backend",
                                   "auto",
                                   "--devices",
                                   "3",
                                   "--pinned-pool",
                                   "64M",
                                   "--worker-env",
                                   worker_env("LD_LIBRARY_PATH", folder()),
                                   "--worker-env",
                                   worker_env("FAKE_CUDA_INIT", "46"),
                                   NULL};
    struct harness *daemon = harness_create();

    harness_launch(daemon, options);
    check_reason(daemon, "EXCLUSIVE_PROCESS");
}

/* ---- the environment ----------------------------------------------------------------------- */

static void test_what_the_driver_sees_of_the_daemons_environment(void)
{
    struct harness *harness = harness_create();
    struct harness_output output;
    const char *seen;
    size_t size;

    harness_shell(harness, &output,
                  "export CUDA_INJECTION64_PATH=/nowhere/lib.so CUDA_VISIBLE_DEVICES=5 "
                  "CUDA_MPS_PIPE_DIRECTORY=/nowhere CUDA_MPS_LOG_DIRECTORY=/nowhere "
                  "CUDA_MPS_CLIENT_PRIORITY=1 CUDA_DEVICE_ORDER=FASTEST_FIRST LD_BIND_NOW=1 "
                  "NVIDIA_TF32_OVERRIDE=0 CUDA_CACHE_PATH=/nowhere HOME=/nowhere\n"
                  "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --pinned-pool 64M "
                  "--worker-env LD_LIBRARY_PATH='%s' --worker-env FAKE_CUDA_ENVIRON=seen",
                  folder());
    CHECK_EQ(output.code, 1);
    seen = harness_read(harness, "seen", &size);
    CHECK_HAS(seen, "FAKE_CUDA_ENVIRON=seen\n");
    CHECK_HAS(seen, "PATH=");
    CHECK(strstr(seen, "nowhere") == NULL);
    CHECK(strstr(seen, "CUDA_MPS") == NULL);
    CHECK(strstr(seen, "CUDA_INJECTION64_PATH") == NULL);
    CHECK(strstr(seen, "CUDA_VISIBLE_DEVICES") == NULL);
    CHECK(strstr(seen, "FASTEST_FIRST") == NULL);
    CHECK(strstr(seen, "LD_BIND_NOW") == NULL);
    CHECK(strstr(seen, "NVIDIA_TF32_OVERRIDE") == NULL);
}

CHECK_MAIN(CHECK_TEST(test_probe_says_why), CHECK_TEST(test_no_driver_at_all),
           CHECK_TEST(test_the_daemon_does_not_start_without_it),
           CHECK_TEST(test_auto_falls_to_the_cpu_and_says_why),
           CHECK_TEST(test_each_worker_gets_its_device), CHECK_TEST(test_devices_among_the_visible),
           CHECK_TEST(test_a_device_that_is_not_there), CHECK_TEST(test_names_that_no_device_has),
           CHECK_TEST(test_auto_falls_from_a_chosen_device_to_the_cpu),
           CHECK_TEST(test_what_the_driver_sees_of_the_daemons_environment))
