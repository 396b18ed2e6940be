/*
 * A machine with several GPUs: all are found, each does its share, and one that faults is nothing
 * to the other.  The daemon's workers have the ops of fault.cu and tests/operands.  What needs no
 * GPU is in test_devices.c.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <signal.h>

enum { MIB = 1 << 20 };

/* ---- daemons ------------------------------------------------------------------------------- */

static unsigned n_gpus(struct harness *harness)
{
    struct harness_output output;
    unsigned n = 0;

    harness_shell(harness, &output, "exec \"$GPUPIPE_WORKER\" --probe");
    if (output.code == 0) {
        CHECK_EQ(sscanf(strstr(output.out, "devices="), "devices=%u", &n), 1);
    }
    return n;
}

static struct harness *create(void)
{
    struct harness *harness = harness_create();
    unsigned n = n_gpus(harness);

    if (n < 2) {
        CHECK_SKIP("there are %u GPUs here; this takes two", n);
    }
    return harness;
}

static void await_ready(struct wire *wire, unsigned n)
{
    HARNESS_WAIT(wire_count(wire_call(wire, "device.list", "[]"), "") == n);
    for (unsigned i = 0; i < n; i++) {
        char path[32];

        snprintf(path, sizeof(path), "%u.state", i);
        HARNESS_WAIT(strcmp(wire_text(wire_call(wire, "device.list", "[]"), path), "ready") == 0);
    }
}

/* A client of a daemon with two GPUs. */
static struct wire *start(struct harness *harness)
{
    static const char *const options[] = {"--backend",     "cuda", "--devices", "0,1",
                                          "--pinned-pool", "256M", NULL};
    struct wire *wire;

    harness_launch(harness, options);
    wire = wire_connect(harness_socket(harness));
    await_ready(wire, 2);
    wire_close(wire);
    harness_settle(harness);
    return wire_connect(harness_socket(harness));
}

/* Where a run of copy of this size ran; with the right result. */
static const char *check_copy(struct wire *wire, size_t size, const char *device)
{
    const void *bytes = random_new(size);
    const msgpack_object *result =
        wire_call(wire, "run", "['copy', {}, {device: %s}, [%b]]", device, bytes, size);

    CHECK_MEM(wire_output(result, size), bytes, size);
    return wire_text(result, "device");
}

/* ---- the tests ----------------------------------------------------------------------------- */

static void test_all_are_found(void)
{
    static const char *const options[] = {"--backend", "auto", "--pinned-pool", "64M", NULL};
    struct harness *harness = create();
    unsigned n = n_gpus(harness);
    const msgpack_object *list;
    struct wire *wire;

    harness_launch(harness, options);
    wire = wire_connect(harness_socket(harness));
    await_ready(wire, n);
    harness_settle(harness);
    list = wire_call(wire, "device.list", "[]");
    CHECK(strcmp(wire_text(list, "0.uuid"), wire_text(list, "1.uuid")) != 0);
    for (unsigned i = 0; i < n; i++) {
        char name[16];

        snprintf(name, sizeof(name), "cuda%u", i);
        CHECK_STR(check_copy(wire, MIB + random_below(MIB), name), name);
    }
    wire_close(wire);
}

static void test_one_of_them_by_uuid_and_among_the_visible(void)
{
    struct harness *harness = create();
    struct wire *wire = start(harness);
    char uuid[80];

    snprintf(uuid, sizeof(uuid), "%s", wire_text(wire_call(wire, "device.list", "[]"), "1.uuid"));
    wire_close(wire);
    harness_stop(harness);
    for (unsigned round = 0; round < 2; round++) {
        const char *const options[] = {"--backend",
                                       "cuda",
                                       "--pinned-pool",
                                       "64M",
                                       "--worker-env",
                                       round == 0 ? "X=Y" : "CUDA_VISIBLE_DEVICES=1",
                                       "--devices",
                                       round == 0 ? uuid : "0",
                                       NULL};

        harness_launch(harness, options);
        wire = wire_connect(harness_socket(harness));
        await_ready(wire, 1);
        CHECK_STR(wire_text(wire_call(wire, "device.list", "[]"), "0.uuid"), uuid);
        CHECK_STR(check_copy(wire, 5 * MIB, ""), "cuda0");
        wire_close(wire);
        harness_stop(harness);
    }
}

static void test_work_spreads_and_its_result_is_right(void)
{
    enum { N = 8 << 20 };
    struct wire *wire = start(create());
    float *x = random_new_floats(N), *y = random_new_floats(N), *want = random_new(4 * N);
    const msgpack_object *result;
    double sum;

    reference_saxpy(-1.25F, x, y, want, N);
    result = wire_call(wire, "run", "['saxpy', {a: -1.25}, {}, [%b, %b]]", x, (size_t)N * 4, y,
                       (size_t)N * 4);
    CHECK_STR(wire_text(result, "device"), "cuda0,cuda1");
    reference_check_floats(wire_output(result, N * 4), want, N);
    result = wire_call(wire, "run", "['sum', {}, {}, [%b]]", x, (size_t)N * 4);
    CHECK_STR(wire_text(result, "device"), "cuda0,cuda1");
    memcpy(&sum, wire_output(result, sizeof(sum)), sizeof(sum));
    reference_check_sum(sum, x, N);
    result = wire_call(wire, "run", "['sum', {}, {device: 'cuda1'}, [%b]]", x, (size_t)N * 4);
    CHECK_MEM(wire_output(result, sizeof(sum)), &sum, sizeof(sum)); /* leaves in order */
}

/* One upload by the client is enough for every device, also for one whose worker is new. */
static void test_constants_are_everywhere(void)
{
    enum { N = 4 << 20 };
    struct wire *wire = start(create());
    uint32_t *colors = random_new(256 * sizeof(*colors));
    uint64_t start_value = random_u64() / 4, sum;
    int64_t ids[2];

    ids[0] = wire_number(wire_call(wire, "const.put", "[{}, [%b]]", colors, (size_t)1024), "const");
    ids[1] = wire_number(
        wire_call(wire, "const.put", "[{}, [%b]]", &start_value, sizeof(start_value)), "const");
    for (unsigned round = 0; round < 4; round++) {
        const uint8_t *bytes = random_new(N);
        const msgpack_object *result =
            wire_call(wire, "run", "['palette', {colors: 256}, {consts: [%lu, %lu]}, [%b]]",
                      (uint64_t)ids[0], (uint64_t)ids[1], bytes, (size_t)N);
        const uint8_t *out = wire_output(result, N * sizeof(sum));

        CHECK_STR(wire_text(result, "device"), "cuda0,cuda1");
        for (size_t i = 0; i < N; i++) {
            memcpy(&sum, out + i * sizeof(sum), sizeof(sum));
            CHECK_EQ(sum, 3 * start_value + colors[bytes[i]]);
        }
        wire_error_is(wire, wire_send(wire, "run", "['fault', {kind: 'trap'}, {}, [<5000>]]"),
                      "DEVICE_LOST", "device cuda");
        await_ready(wire, 2);
    }
}

static void test_a_fault_is_nothing_to_the_other(void)
{
    static const char *const kinds[] = {"address", "trap", "misaligned"};
    struct wire *wire = start(create());

    for (unsigned i = 0; i < 3; i++) {
        uint32_t fault =
            wire_send(wire, "run", "['fault', {kind: %s}, {device: 'cuda1'}, [<5000>]]", kinds[i]);

        for (unsigned k = 0; k < 20; k++) {
            CHECK_STR(check_copy(wire, MIB + random_below(MIB), "cuda0"), "cuda0");
        }
        wire_error_is(wire, fault, "DEVICE_LOST", "device cuda1");
        CHECK_STR(check_copy(wire, 3 * MIB, "cuda1"), "cuda1");
    }
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "worker_deaths"), 3);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "chunks_lost"), 3);
}

static void test_a_killed_worker_is_nothing_to_the_other(void)
{
    struct harness *daemon = create();
    struct wire *wire = start(daemon);

    for (unsigned i = 0; i < 4; i++) {
        pid_t victim = harness_worker(daemon);

        check_copy(wire, 2 * MIB, "cuda0"); /* both have answered: the next starts at once */
        check_copy(wire, 2 * MIB, "cuda1");
        CHECK_EQ(kill(victim, SIGKILL), 0);
        for (unsigned k = 0; k < 20; k++) {
            struct wire_error error;
            size_t size = 4 * MIB;
            const void *bytes = random_new(size);
            const msgpack_object *response =
                wire_response(wire, wire_send(wire, "run", "['copy', {}, {}, [%b]]", bytes, size));

            error = wire_error(wire_find(response, "2"));
            if (error.name[0] == '\0') {
                CHECK_MEM(wire_output(wire_find(response, "3"), size), bytes, size);
            } else {
                CHECK_STR(error.name, "DEVICE_LOST");
                CHECK_EQ(k, 0);
            }
        }
        await_ready(wire, 2);
    }
}

CHECK_MAIN(CHECK_TEST(test_all_are_found),
           CHECK_TEST(test_one_of_them_by_uuid_and_among_the_visible),
           CHECK_TEST(test_work_spreads_and_its_result_is_right),
           CHECK_TEST(test_constants_are_everywhere),
           CHECK_TEST(test_a_fault_is_nothing_to_the_other),
           CHECK_TEST(test_a_killed_worker_is_nothing_to_the_other))
