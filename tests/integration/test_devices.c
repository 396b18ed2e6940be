/*
 * Several devices: work spreads over them, and what happens to one is nothing to the others.
 *
 * Most of them are fakes (tests/fake_device.h) in place of GPUs.  Where results count, each is the
 * CPU worker: what it is told of devices a script keeps from it.  Real GPUs: tests/gpu/test_gpus.c.
 */
#include "tests/check.h"
#include "tests/fake_device.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = FAKE_CHUNK_SIZE };

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    if (value == NULL) {
        CHECK_FAIL("%s is not set: run this test through meson test", name);
    }
    return value;
}

static struct harness *create_with_fakes(void)
{
    struct harness *harness = harness_create();

    harness_place_worker(harness, "cuda", variable("FAKE_WORKER"));
    return harness;
}

/* A file of the folder, as a line of the workers' environment. */
static const char *uuid_file(struct harness *harness)
{
    static char line[512];

    snprintf(line, sizeof(line), "FAKE_UUID_FILE=%s", harness_path(harness, "uuid"));
    return line;
}

#define LAUNCH(harness, ...)                                                                       \
    harness_launch(harness, (const char *const[]){"--pinned-pool", "64M", ##__VA_ARGS__, NULL})

static const char *state_of(struct wire *wire, unsigned device)
{
    char path[32];

    snprintf(path, sizeof(path), "%u.state", device);
    return wire_text(wire_call(wire, "device.list", "[]"), path);
}

static void await_state(struct wire *wire, unsigned device, const char *state)
{
    HARNESS_WAIT(strcmp(state_of(wire, device), state) == 0);
}

static void await_ready(struct wire *wire, unsigned n_devices)
{
    for (unsigned i = 0; i < n_devices; i++) {
        await_state(wire, i, "ready");
    }
    CHECK_EQ(wire_count(wire_call(wire, "device.list", "[]"), ""), n_devices);
}

/* A client of a daemon all of whose devices are there. */
static struct wire *connect_to_all(struct harness *daemon, unsigned n_devices)
{
    struct wire *wire = wire_connect(harness_socket(daemon));

    await_ready(wire, n_devices);
    wire_close(wire);
    harness_settle(daemon);
    return wire_connect(harness_socket(daemon));
}

/* A run of so many of the fake's chunks on this device ("": any); where it ran. */
static const char *run_chunks(struct wire *wire, unsigned n_chunks, const char *device)
{
    static uint8_t bytes[64 * CHUNK];
    const msgpack_object *result;

    random_bytes(bytes, n_chunks * CHUNK);
    result = wire_call(wire, "run", "['affine', {}, {device: %s}, [%b]]", device, bytes,
                       (size_t)n_chunks * CHUNK);
    CHECK_EQ(wire_number(result, "n"), n_chunks * CHUNK / 4);
    return wire_text(result, "device");
}

/* ---- which ---------------------------------------------------------------------------------- */

static void test_all_that_the_first_worker_sees(void)
{
    struct harness *daemon = create_with_fakes();
    const msgpack_object *list;
    struct wire *wire;

    LAUNCH(daemon, "--backend", "cuda", "--worker-env", "FAKE_DEVICES=3");
    wire = connect_to_all(daemon, 3);
    list = wire_call(wire, "device.list", "[]");
    CHECK_STR(wire_text(list, "0.device"), "cuda0");
    CHECK_STR(wire_text(list, "1.device"), "cuda1");
    CHECK_STR(wire_text(list, "2.device"), "cuda2");
    CHECK_STR(wire_text(list, "0.uuid"), "FAKE-0");
    CHECK_STR(wire_text(list, "1.uuid"), "FAKE-1");
    CHECK_STR(wire_text(list, "2.uuid"), "FAKE-2");
    HARNESS_WAIT(harness_n_children(daemon) == 4); /* the spawner, too */
    HARNESS_WAIT(strstr(harness_notified(daemon), "cuda2: Fake") != NULL);
}

static void test_only_those_that_are_named(void)
{
    struct harness *daemon = create_with_fakes();
    const msgpack_object *list;
    struct wire *wire;

    LAUNCH(daemon, "--backend", "cuda", "--devices", "5,2", "--worker-env", "FAKE_DEVICES=8");
    wire = connect_to_all(daemon, 2);
    list = wire_call(wire, "device.list", "[]");
    CHECK_STR(wire_text(list, "0.device"), "cuda0");
    CHECK_STR(wire_text(list, "0.uuid"), "FAKE-5");
    CHECK_STR(wire_text(list, "1.uuid"), "FAKE-2");
}

static void test_more_than_there_may_be(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    LAUNCH(daemon, "--backend", "cuda", "--worker-env", "FAKE_DEVICES=33");
    wire = connect_to_all(daemon, 32);
    CHECK_HAS(harness_log(daemon), "of 33 devices the first 32 are used");
    CHECK_STR(run_chunks(wire, 1, "cuda31"), "cuda31");
    wire_refused(wire, "NO_DEVICE", "no device \"cuda32\"", "run",
                 "['affine', {}, {device: 'cuda32'}, [<4>]]");
}

/* Both would have the same memory and the same link. */
static void test_one_device_by_two_names(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    harness_write(daemon, "uuid", "GPU-0a", 6);
    LAUNCH(daemon, "--backend", "cuda", "--devices", "0,GPU-0a", "--worker-env", uuid_file(daemon));
    wire = wire_connect(harness_socket(daemon));
    HARNESS_WAIT(strstr(harness_log(daemon), "--devices names it twice") != NULL);
    CHECK_EQ(strcmp(state_of(wire, 0), "ready") == 0, strcmp(state_of(wire, 1), "ready") != 0);
    run_chunks(wire, 1, "");
}

/* ---- who gets what -------------------------------------------------------------------------- */

static void test_chunks_go_to_the_least_loaded(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    LAUNCH(daemon, "--backend", "cuda", "--worker-env", "FAKE_DEVICES=3");
    wire = connect_to_all(daemon, 3);
    for (unsigned i = 0; i < 20; i++) {
        CHECK_STR(run_chunks(wire, 1, ""), "cuda0"); /* nothing else is in flight */
        CHECK_STR(run_chunks(wire, 2, ""), "cuda0,cuda1");
        CHECK_STR(run_chunks(wire, 7, ""), "cuda0,cuda1,cuda2");
        CHECK_STR(run_chunks(wire, 7, "cuda1"), "cuda1");
        CHECK_STR(run_chunks(wire, 64, "cuda2"), "cuda2");
    }
    CHECK_STR(wire_text(wire_call(wire, "run", "['affine', {}, {}, [<0>]]"), "device"), "cuda0");
    wire_refused(wire, "NO_DEVICE", "no device \"cuda3\"", "run",
                 "['affine', {}, {device: 'cuda3'}, [<4>]]");
}

/* ---- devices that fail ----------------------------------------------------------------------- */

static void test_a_broken_one_is_done_without(void)
{
    static const char *const broken[] = {"0", "1", "2"};

    for (unsigned i = 0; i < 3; i++) {
        struct harness *daemon = create_with_fakes();
        char words[64], name[16], line[32], params[64];
        struct wire *wire;

        snprintf(line, sizeof(line), "FAKE_BROKEN=%s", broken[i]);
        snprintf(name, sizeof(name), "cuda%u", i);
        snprintf(words, sizeof(words), FAKE_BREAK, i);
        snprintf(params, sizeof(params), "['affine', {}, {device: '%s'}, [<4>]]", name);
        LAUNCH(daemon, "--backend", "cuda", "--worker-env", "FAKE_DEVICES=3", "--worker-env", line);
        wire = wire_connect(harness_socket(daemon));
        for (unsigned k = 0; k < 3; k++) {
            await_state(wire, k, k == i ? "restarting" : "ready");
        }
        HARNESS_WAIT(strstr(harness_notified(daemon), words) != NULL);
        CHECK(strstr(run_chunks(wire, 8, ""), name) == NULL);
        wire_refused(wire, "NO_DEVICE", "is not ready yet", "run", params);
        HARNESS_WAIT(strcmp(state_of(wire, i), "restarting") == 0);
        harness_stop(daemon);
    }
}

static void test_none_that_works(void)
{
    struct harness *harness = create_with_fakes();
    struct harness_output output;

    harness_shell(harness, &output,
                  "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda --pinned-pool 64M "
                  "--worker-env FAKE_DEVICES=2 --worker-env FAKE_BROKEN=01");
    CHECK_EQ(output.code, 1);
    CHECK_HAS(output.err, "fake device 0 is broken");
    CHECK_HAS(output.err, "fake device 1 is broken");
    CHECK_EQ(access(harness_socket(harness), F_OK), -1);
}

/* Its ops are others than those of the GPU workers that were heard of. */
static void test_auto_falls_to_the_cpu_when_none_works(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    harness_place_worker(daemon, "cpu", variable("GPUPIPE_WORKER_CPU"));
    LAUNCH(daemon, "--backend", "auto", "--worker-env", "FAKE_DEVICES=3", "--worker-env",
           "FAKE_BROKEN=012");
    wire = wire_connect(harness_socket(daemon));
    wire_check_works(wire);
    CHECK_EQ(wire_count(wire_call(wire, "device.list", "[]"), ""), 1);
    CHECK_STR(wire_text(wire_call(wire, "device.list", "[]"), "0.device"), "cpu0");
    CHECK_HAS(wire_text(wire_call(wire, "stats", "[]"), "reason"), "fake device 0 is broken");
    HARNESS_WAIT(harness_n_children(daemon) == 2); /* a sanitizer has processes of its own */
}

static void test_auto_stays_with_the_one_that_works(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    harness_place_worker(daemon, "cpu", variable("GPUPIPE_WORKER_CPU"));
    LAUNCH(daemon, "--backend", "auto", "--worker-env", "FAKE_DEVICES=3", "--worker-env",
           "FAKE_BROKEN=02");
    wire = wire_connect(harness_socket(daemon));
    await_state(wire, 1, "ready");
    CHECK_STR(run_chunks(wire, 5, ""), "cuda1");
    CHECK_STR(wire_text(wire_call(wire, "stats", "[]"), "backend"), "cuda");
}

/* A device that its worker lost is lost to what it had in flight. */
static void test_a_loss_is_that_devices_alone(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    LAUNCH(daemon, "--backend", "cuda", "--worker-env", "FAKE_DEVICES=2");
    wire = connect_to_all(daemon, 2);
    for (unsigned i = 0; i < 5; i++) {
        uint32_t lost = wire_send(wire, "run", "['affine', {add: %lu}, {device: 'cuda0'}, [<400>]]",
                                  (uint64_t)FAKE_LOSES);

        for (unsigned k = 0; k < 20; k++) {
            CHECK_STR(run_chunks(wire, 1, "cuda1"), "cuda1");
        }
        wire_error_is(wire, lost, "DEVICE_LOST", "device cuda0");
        CHECK_STR(run_chunks(wire, 1, "cuda0"), "cuda0"); /* waits for its next worker */
        harness_notified(daemon);
    }
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "worker_deaths"), 5);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "worker_starts"), 7);
}

/* A GPU that is gone must not make the next one in line take its name. */
static void test_a_worker_that_finds_another_device(void)
{
    struct harness *daemon = create_with_fakes();
    struct wire *wire;

    LAUNCH(daemon, "--backend", "cuda", "--worker-env", "FAKE_DEVICES=1", "--worker-env",
           uuid_file(daemon));
    wire = wire_connect(harness_socket(daemon));
    run_chunks(wire, 1, "");
    harness_write(daemon, "uuid", "FAKE-7", 6);
    kill(harness_worker(daemon), SIGKILL);
    HARNESS_WAIT(strstr(harness_log(daemon), "another device in the place of its own") != NULL);
    CHECK_STR(state_of(wire, 0), "restarting");
    CHECK_STR(wire_text(wire_call(wire, "device.list", "[]"), "0.uuid"), "FAKE-0");
    CHECK_EQ(unlink(harness_path(daemon, "uuid")), 0);
    run_chunks(wire, 1, "");
    CHECK_STR(state_of(wire, 0), "ready");
}

/* ---- what they compute ----------------------------------------------------------------------- */

/* Three times the CPU, as three devices. */
static struct harness *start_with_cpus(void)
{
    struct harness *harness = harness_create();
    char script[512];
    int length =
        snprintf(script, sizeof(script), "#!/bin/sh\nexec '%s'\n", variable("GPUPIPE_WORKER_CPU"));

    harness_write(harness, "worker", script, (size_t)length);
    CHECK_EQ(chmod(harness_path(harness, "worker"), 0700), 0);
    harness_place_worker(harness, "cuda", harness_path(harness, "worker"));
    LAUNCH(harness, "--backend", "cuda", "--devices", "0,1,2");
    return harness;
}

/* The pid of this device's last worker, from the log. */
static pid_t worker_of(struct harness *daemon, unsigned device)
{
    const char *at = harness_log(daemon);
    char words[64];
    int pid = 0;

    snprintf(words, sizeof(words), "worker of cuda%u (pid ", device);
    while ((at = strstr(at, words)) != NULL) {
        at += strlen(words);
        pid = atoi(at);
    }
    CHECK_GT(pid, 0);
    return pid;
}

static void test_the_result_of_several_is_the_result(void)
{
    enum { N = 4 << 20 };
    struct harness *daemon = start_with_cpus();
    struct wire *wire = connect_to_all(daemon, 3);
    float *x = random_new_floats(N), *y = random_new_floats(N), *want = random_new(4 * N);
    const msgpack_object *result;
    double sum;

    reference_saxpy(2.5F, x, y, want, N);
    result = wire_call(wire, "run", "['saxpy', {a: 2.5}, {}, [%b, %b]]", x, (size_t)N * 4, y,
                       (size_t)N * 4);
    CHECK_STR(wire_text(result, "device"), "cuda0,cuda1,cuda2");
    reference_check_floats(wire_output(result, N * 4), want, N);
    result = wire_call(wire, "run", "['sum', {}, {}, [%b]]", x, (size_t)N * 4);
    CHECK_STR(wire_text(result, "device"), "cuda0,cuda1,cuda2");
    memcpy(&sum, wire_output(result, sizeof(sum)), sizeof(sum));
    reference_check_sum(sum, x, N);
    for (unsigned i = 0; i < 3; i++) { /* leaves are folded in order, wherever they were made */
        result = wire_call(wire, "run", "['sum', {}, {device: 'cuda1'}, [%b]]", x, (size_t)N * 4);
        CHECK_STR(wire_text(result, "device"), "cuda1");
        CHECK_MEM(wire_output(result, sizeof(sum)), &sum, sizeof(sum));
    }
}

/* Jobs of devices whose workers are killed over and over, beside one whose device is left alone. */
static void test_workers_die_beside_one_that_does_not(void)
{
    enum { N_ROUNDS = 15, SIZE = 1 << 20 };
    struct harness *daemon = start_with_cpus();
    struct wire *calm = connect_to_all(daemon, 3);
    struct wire *wild = wire_connect(harness_socket(daemon));
    uint8_t *bytes = random_new(SIZE);
    unsigned n_lost = 0;
    uint64_t job;

    job = (uint64_t)wire_number(wire_call(calm, "job.open", "['copy', {}, {device: 'cuda2'}]"),
                                "job");
    for (unsigned i = 0; i < N_ROUNDS; i++) {
        const char *victim = i % 2 == 0 ? "cuda0" : "cuda1";
        const msgpack_object *response, *params;
        uint32_t run;

        wire_call(wild, "run", "['copy', {}, {device: %s}, [<10>]]", victim);
        run =
            wire_send(wild, "run", "['copy', {}, {device: %s}, [%b]]", victim, bytes, (size_t)SIZE);
        kill(worker_of(daemon, i % 2), SIGKILL);
        wire_call(calm, "job.push", "[%lu, %lu, {}, [%b]]", job, (uint64_t)i, bytes, (size_t)SIZE);
        params = wire_notification(calm, "job.result");
        CHECK_EQ(wire_number(params, "1"), i);
        CHECK_STR(wire_text(params, "2.device"), "cuda2");
        CHECK_MEM(wire_output(wire_find(params, "2"), SIZE), bytes, SIZE);
        response = wire_response(wild, run);
        if (wire_error(wire_find(response, "2")).name[0] != '\0') {
            CHECK_STR(wire_error(wire_find(response, "2")).name, "DEVICE_LOST");
            n_lost++;
        } else {
            CHECK_MEM(wire_output(wire_find(response, "3"), SIZE), bytes, SIZE);
        }
        harness_notified(daemon);
        /* It may have answered first, and the daemon not have seen that it is dead. */
        HARNESS_WAIT(wire_number(wire_call(calm, "stats", "[]"), "worker_deaths") == i + 1);
        await_ready(calm, 3);
    }
    printf("# %u of %u runs were lost with their workers\n", n_lost, N_ROUNDS);
    wire_check_works(wild);
}

/* One device stands still: what another has done need not wait for it, unless order was asked for.
 */
static void check_overtaking(bool is_ordered)
{
    enum { N = 8, SIZE = 50000 };
    struct harness *daemon = start_with_cpus();
    struct wire *wire = connect_to_all(daemon, 3);
    const uint8_t *bytes = random_new(N * SIZE);
    unsigned n_results[N] = {0}, first = N;
    const msgpack_object *opened, *done;
    pid_t stopped = worker_of(daemon, 0);
    uint64_t job;

    opened = wire_call(wire, "job.open",
                       is_ordered ? "['copy', {}, {window: 8, max_push: 65536}]"
                                  : "['copy', {}, {window: 8, max_push: 65536, ordered: false}]");
    job = (uint64_t)wire_number(opened, "job");
    CHECK_EQ(wire_number(opened, "credit"), N);
    harness_pause(stopped);
    for (uint64_t seq = 0; seq < N; seq++) {
        wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes + seq * SIZE,
                  (size_t)SIZE);
    }
    wire_call(wire, "job.close", "[%lu]", job);
    if (is_ordered) {
        HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "chunks_in_flight") <= N / 2);
        CHECK_EQ(wire_held(wire), 0);
        kill(stopped, SIGCONT);
    }
    for (unsigned i = 0; i < N; i++) {
        const msgpack_object *params = wire_notification(wire, "job.result");
        unsigned seq = (unsigned)wire_number(params, "1");

        CHECK_LT(seq, N);
        CHECK(!is_ordered || seq == i);
        CHECK_MEM(wire_output(wire_find(params, "2"), SIZE), bytes + seq * SIZE, SIZE);
        first = i == 0 ? seq : first;
        n_results[seq]++;
        if (i == 0) {
            kill(stopped, SIGCONT);
        }
    }
    CHECK_EQ(first == 0, is_ordered);
    for (unsigned seq = 0; seq < N; seq++) {
        CHECK_EQ(n_results[seq], 1);
    }
    done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "done");
    CHECK_EQ(wire_number(done, "1.pushes"), N);
    wire_call(wire, "ping", "[]");
    CHECK_EQ(wire_held(wire), 0);
}

static void test_unordered_answers_overtake(void)
{
    check_overtaking(false);
}

static void test_ordered_answers_wait(void)
{
    check_overtaking(true);
}

CHECK_MAIN(CHECK_TEST(test_all_that_the_first_worker_sees),
           CHECK_TEST(test_only_those_that_are_named), CHECK_TEST(test_more_than_there_may_be),
           CHECK_TEST(test_one_device_by_two_names), CHECK_TEST(test_chunks_go_to_the_least_loaded),
           CHECK_TEST(test_a_broken_one_is_done_without), CHECK_TEST(test_none_that_works),
           CHECK_TEST(test_auto_falls_to_the_cpu_when_none_works),
           CHECK_TEST(test_auto_stays_with_the_one_that_works),
           CHECK_TEST(test_a_loss_is_that_devices_alone),
           CHECK_TEST(test_a_worker_that_finds_another_device),
           CHECK_TEST(test_the_result_of_several_is_the_result),
           CHECK_TEST(test_workers_die_beside_one_that_does_not),
           CHECK_TEST(test_unordered_answers_overtake), CHECK_TEST(test_ordered_answers_wait))
