/*
 * Kernels that fault, never end, or find no memory, and a worker that is killed while it copies:
 * whoever was in flight is told, nobody else notices more than a pause, and what is computed
 * afterwards is right.  The daemon's worker has the op of fault.cu.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* ---- a daemon ------------------------------------------------------------------------------ */

static void skip_without_gpu(struct harness *harness)
{
    struct harness_output output;

    harness_shell(harness, &output, "exec \"$GPUPIPE_WORKER\" --probe");
    if (output.code != 0) {
        output.err[strcspn(output.err, "\n")] = '\0';
        CHECK_SKIP("%.200s", output.err);
    }
}

static struct harness *create(void)
{
    struct harness *harness = harness_create();

    harness_deadline(120);
    skip_without_gpu(harness);
    return harness;
}

static void launch(struct harness *harness)
{
    static const char *const options[] = {"--backend",     "cuda", "--devices", "0",
                                          "--pinned-pool", "256M", NULL};

    harness_launch(harness, options);
}

static struct harness *start(void)
{
    struct harness *harness = create();

    launch(harness);
    return harness;
}

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

/* A job of copies of its own data, more than the daemon takes in one go. */
static void check_copies(struct wire *wire)
{
    size_t size = (size_t)(8 + random_below(16)) * MIB + random_below(MIB);
    const void *bytes = random_new(size);
    const msgpack_object *result = wire_call(wire, "run", "['copy', {}, {}, [%b]]", bytes, size);

    CHECK_STR(wire_text(result, "backend"), "cuda");
    CHECK_MEM(wire_output(result, size), bytes, size);
}

static void check_all_is_well(struct harness *daemon, struct wire *wire, int64_t n_deaths)
{
    check_copies(wire);
    CHECK_EQ(stat_of(wire, "worker_deaths"), n_deaths);
    CHECK_EQ(stat_of(wire, "worker_starts"), n_deaths + 1);
    CHECK_STR(wire_text(wire_call(wire, "device.list", "[]"), "0.state"), "ready");
    HARNESS_WAIT(stat_of(wire, "pool_used") == 0);
    CHECK_EQ(harness_n_children(daemon), 2); /* spawner and worker */
}

/* ---- pushes in flight ---------------------------------------------------------------------- */

enum { N_PUSHES = 12 };

struct stream {
    struct wire *wire;
    size_t size; /* of a push */
    const uint8_t *bytes;
    unsigned n_right, n_lost;
};

/* The victim is killed between two bytes. */
static void send_and_kill(struct wire *wire, const msgpack_sbuffer *buffer, pid_t victim)
{
    size_t before = random_below(buffer->size);

    CHECK(wire_send_bytes(wire, buffer->data, before));
    CHECK_EQ(kill(victim, SIGKILL), 0);
    CHECK(wire_send_bytes(wire, buffer->data + before, buffer->size - before));
}

/* All pushes at once; results are asked for later.  0: nobody is killed meanwhile. */
static struct stream begin_stream(struct harness *daemon, size_t size, pid_t victim)
{
    struct stream stream = {.wire = wire_connect(harness_socket(daemon)), .size = size};
    const msgpack_object *opened = wire_call(
        stream.wire, "job.open", "['copy', {}, {window: %d, max_push: %lu, ordered: false}]",
        (int)N_PUSHES, (uint64_t)size);
    uint64_t job = (uint64_t)wire_number(opened, "job");
    msgpack_sbuffer buffer;

    CHECK_EQ(wire_number(opened, "credit"), N_PUSHES);
    stream.bytes = random_new(N_PUSHES * size);
    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < N_PUSHES; i++) {
        wire_pack(stream.wire, &buffer, "job.push", "[%lu, %lu, {}, [%b]]", job, (uint64_t)i,
                  stream.bytes + i * size, size);
    }
    if (victim != 0) {
        send_and_kill(stream.wire, &buffer, victim);
    } else {
        CHECK(wire_send_bytes(stream.wire, buffer.data, buffer.size));
    }
    msgpack_sbuffer_destroy(&buffer);
    return stream;
}

static bool is_loss(const char *name)
{
    return strcmp(name, "DEVICE_LOST") == 0 || strcmp(name, "KERNEL_FAULT") == 0;
}

/* A push after the job has failed: the response may be its only answer. */
static void take_message(struct stream *stream, const msgpack_object *message, unsigned *n_answered)
{
    const msgpack_object *params = wire_find(message, "2");

    if (wire_number(message, "0") == 1) {
        struct wire_error error = wire_error(params);

        CHECK(error.name[0] == '\0' || strcmp(error.name, "NOT_FOUND") == 0);
        *n_answered += error.name[0] != '\0';
        return;
    }
    CHECK_STR(wire_text(message, "1"), "job.result");
    if (wire_find(params, "2.error") == NULL) {
        CHECK_MEM(wire_output(wire_find(params, "2"), stream->size),
                  stream->bytes + (size_t)wire_number(params, "1") * stream->size, stream->size);
        stream->n_right++;
    } else {
        struct wire_error error = wire_error(wire_find(params, "2.error"));

        CHECK(is_loss(error.name) || strcmp(error.name, "CANCELLED") == 0);
        stream->n_lost++;
    }
    (*n_answered)++;
}

/* Every push has one answer: its bytes, or that they are lost. */
static void finish_stream(struct stream *stream)
{
    unsigned n_answered = 0;

    while (n_answered < N_PUSHES) {
        const msgpack_object *message = wire_receive(stream->wire);

        CHECK(message != NULL);
        if (wire_number(message, "0") == 2 && strcmp(wire_text(message, "1"), "job.done") == 0) {
            continue;
        }
        take_message(stream, message, &n_answered);
    }
    printf("# %u pushes right, %u lost\n", stream->n_right, stream->n_lost);
    wire_close(stream->wire);
}

/* ---- faults -------------------------------------------------------------------------------- */

static void expect_loss(struct wire *wire, uint32_t msgid)
{
    const msgpack_object *response = wire_response(wire, msgid);
    struct wire_error error = wire_error(wire_find(response, "2"));

    printf("# %s: %s\n", error.name, error.message);
    CHECK(is_loss(error.name));
}

static void check_fault(struct harness *daemon, struct wire *wire, const char *kind,
                        int64_t n_deaths)
{
    struct stream stream = begin_stream(daemon, 2 * MIB, 0);
    char params[64];
    uint32_t msgid;

    printf("# %s\n", kind);
    snprintf(params, sizeof(params), "['fault', {kind: '%s'}, {}, [<5000>]]", kind);
    msgid = wire_send(wire, "run", params);
    expect_loss(wire, msgid);
    finish_stream(&stream);
    check_all_is_well(daemon, wire, n_deaths);
}

static void test_a_fault_costs_what_was_in_flight_and_no_more(void)
{
    static const struct {
        const char *kind, *error;
    } rows[] = {
        {"address", "cudaErrorIllegalAddress"},
        {"trap", "cudaErrorLaunchFailure"},
        {"misaligned", "cudaErrorMisalignedAddress"},
    };
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    int64_t n_deaths = 0;

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            check_fault(daemon, wire, rows[i].kind, ++n_deaths);
            CHECK_HAS(harness_log(daemon), rows[i].error);
        }
    }
}

/* ---- endless ------------------------------------------------------------------------------- */

/* One block leaves the rest of the device to others; 4 MiB of threads leave nothing. */
static void check_endless(struct harness *daemon, struct wire *wire, size_t size, int64_t n_deaths)
{
    struct wire *other = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);
    const void *bytes = random_new(size);
    uint32_t msgid = wire_send(wire, "run", "['fault', {kind: 'endless'}, {}, [%b]]", bytes, size);

    HARNESS_WAIT(stat_of(other, "chunks_in_flight") > 0);
    if (size == 1) {
        wire_check_works(other);
    }
    sleep(2);
    CHECK_GT(stat_of(other, "chunks_in_flight"), 0);
    CHECK_EQ(stat_of(other, "worker_deaths"), n_deaths - 1);
    CHECK_EQ(kill(worker, SIGKILL), 0);
    expect_loss(wire, msgid);
    wire_close(other);
    check_all_is_well(daemon, wire, n_deaths);
}

static void test_an_endless_kernel_ends_with_its_worker(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    int64_t n_deaths = 0;

    for (unsigned round = 0; round < 2; round++) {
        check_endless(daemon, wire, 1, ++n_deaths);
        check_endless(daemon, wire, 4 * MIB, ++n_deaths);
    }
}

/* The daemon gives it its 10 s, and then ends it. */
static void test_sigterm_with_an_endless_kernel(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);

    wire_send(wire, "run", "['fault', {kind: 'endless'}, {}, [<5000>]]");
    HARNESS_WAIT(stat_of(other, "chunks_in_flight") > 0);
    harness_signal(daemon, SIGTERM);
    CHECK_EQ(harness_wait_exit(daemon), 0);
    CHECK_EQ(kill(worker, 0), -1);
}

/* ---- kill -9 ------------------------------------------------------------------------------- */

static void test_killed_while_it_copies(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    unsigned n_lost = 0;

    for (int64_t round = 1; round <= 20; round++) {
        struct stream stream = begin_stream(daemon, 4 * MIB, harness_await_worker(daemon, 0));

        finish_stream(&stream);
        n_lost += stream.n_lost;
        check_all_is_well(daemon, wire, round);
    }
    printf("# %u pushes lost in 20 kills\n", n_lost);
    CHECK_GT(n_lost, 0);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Another program that leaves so many MiB of the GPU's memory; returns once it has the rest. */
static pid_t start_hog(struct harness *harness, unsigned n_left)
{
    pid_t pid;

    unlink(harness_path(harness, "full"));
    pid = harness_shell_begin(harness, "exec \"$GPUPIPE_HOG\" %u", n_left);
    HARNESS_WAIT(access(harness_path(harness, "full"), F_OK) == 0);
    return pid;
}

static void end_hog(struct harness *harness, pid_t pid)
{
    struct harness_output output;

    kill(pid, SIGKILL);
    harness_shell_end(harness, pid, &output);
    printf("# hog: %s", output.out);
    CHECK_EQ(output.code, 128 + SIGKILL);
}

static void test_the_device_is_out_of_memory(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *bytes = random_new(16 * MIB);
    pid_t hog = start_hog(daemon, 8);
    uint32_t msgid;

    msgid = wire_send(wire, "run", "['copy', {size: %d}, {}, [%b]]", 16 * MIB, bytes,
                      (size_t)(16 * MIB));
    wire_error_is(wire, msgid, "NO_MEMORY", "free");
    check_all_is_well(daemon, wire, 0); /* chunks that fit a slot need nothing more */
    end_hog(daemon, hog);
    CHECK_MEM(wire_output(wire_call(wire, "run", "['copy', {size: %d}, {}, [%b]]", 16 * MIB, bytes,
                                    (size_t)(16 * MIB)),
                          16 * MIB),
              bytes, 16 * MIB);
    check_all_is_well(daemon, wire, 0);
}

static void test_the_device_is_full_at_start(void)
{
    static const char *const options[] = {"--backend",     "auto", "--devices", "0",
                                          "--pinned-pool", "64M",  NULL};
    struct harness *harness = create();
    struct harness_output output;
    struct wire *wire;
    pid_t hog = start_hog(harness, 8);

    harness_shell(
        harness, &output,
        "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --devices 0 --pinned-pool 64M");
    CHECK_EQ(output.code, 1);
    printf("# %s", output.err);
    CHECK_HAS(output.err, "no memory left on the GPU");
    harness_launch(harness, options);
    wire = wire_connect(harness_socket(harness));
    printf("# %s\n", wire_text(wire_call(wire, "stats", "[]"), "reason"));
    CHECK_STR(wire_text(wire_call(wire, "stats", "[]"), "backend"), "cpu");
    CHECK_HAS(wire_text(wire_call(wire, "stats", "[]"), "reason"), "no memory left on the GPU");
    wire_check_works(wire);
    end_hog(harness, hog);
}

/* Where there is room for the context, but not for all slots. */
static void test_the_device_has_no_room_for_the_slots(void)
{
    struct harness *harness = create();
    struct harness_output output;
    pid_t hog = start_hog(harness, 500);

    harness_shell(
        harness, &output,
        "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --devices 0 --pinned-pool 64M");
    printf("# %s", output.err);
    CHECK_EQ(output.code, 1);
    CHECK_HAS(output.err, "memory");
    end_hog(harness, hog);
}

/* ---- choice and environment ---------------------------------------------------------------- */

static void test_a_gpu_by_index_and_by_uuid(void)
{
    struct harness *harness = create();
    struct harness_output output;
    char uuid[64] = "";

    harness_shell(harness, &output, "\"$GPUPIPE_WORKER\" --device 0 --probe");
    CHECK_EQ(output.code, 0);
    CHECK_HAS(output.out, "uuid=GPU-");
    sscanf(strstr(output.out, "uuid="), "uuid=%63s", uuid);
    for (unsigned round = 0; round < 2; round++) {
        const char *const options[] = {
            "--backend",     "cuda", "--devices", round == 0 ? "0" : uuid,
            "--pinned-pool", "64M",  NULL};
        struct wire *wire;

        harness_launch(harness, options);
        wire = wire_connect(harness_socket(harness));
        CHECK_STR(wire_text(wire_call(wire, "device.list", "[]"), "0.uuid"), uuid);
        check_copies(wire);
        wire_close(wire);
        harness_stop(harness);
    }
    harness_shell(
        harness, &output,
        "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --pinned-pool 64M --devices 64");
    CHECK_EQ(output.code, 1);
    CHECK_HAS(output.err, "the NVIDIA driver shows no GPU \"64\"");
}

static void test_variables_that_would_break_cuda(void)
{
    struct harness *daemon = create(); /* looks for a GPU in an environment that does not hide it */

    harness_setenv("CUDA_INJECTION64_PATH", "/nowhere/lib.so");
    harness_setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere");
    harness_setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1");
    harness_setenv("CUDA_VISIBLE_DEVICES", "7");
    launch(daemon);
    check_all_is_well(daemon, wire_connect(harness_socket(daemon)), 0);
}

CHECK_MAIN(CHECK_TEST(test_a_fault_costs_what_was_in_flight_and_no_more),
           CHECK_TEST(test_an_endless_kernel_ends_with_its_worker),
           CHECK_TEST(test_sigterm_with_an_endless_kernel), CHECK_TEST(test_killed_while_it_copies),
           CHECK_TEST(test_the_device_is_out_of_memory),
           CHECK_TEST(test_the_device_is_full_at_start),
           CHECK_TEST(test_the_device_has_no_room_for_the_slots),
           CHECK_TEST(test_a_gpu_by_index_and_by_uuid),
           CHECK_TEST(test_variables_that_would_break_cuda))
