/*
 * The client library beside its jobs: calls that block, misuse, waiting and waking, finding a
 * daemon.
 */
#include "client/calls.h"
#include "proto/util.h"
#include "tests/unit/client_bench.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

/* ---- calls --------------------------------------------------------------------------------- */

static void test_hello_and_calls(void)
{
    struct msg_job_entry *entries = NULL;
    struct msg_stats stats;
    uint32_t n_entries = 0;

    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(gpupipe_last_error(gpupipe)->status, GPUPIPE_OK);
    CHECK_STR(call_hello(gpupipe)->version, "9.9.9");
    CHECK_EQ(call_hello(gpupipe)->epoch, 1234567);
    CHECK_EQ(gpupipe_limit(gpupipe, "max_push"), LIMIT_PUSH);
    CHECK_EQ(gpupipe_limit(gpupipe, "no such limit"), 0);
    CHECK_EQ(call_ping(gpupipe), 0);
    CHECK_EQ(call_job_list(gpupipe, true, &entries, &n_entries), 0);
    CHECK_EQ(n_entries, 1);
    CHECK_STR(entries[0].op, "fake");
    CHECK_EQ(entries[0].state, JOB_CLOSED);
    CHECK_EQ(entries[0].pushed, 5);
    free(entries);
    check_error(call_stats(gpupipe, &stats), GPUPIPE_ERROR_UNKNOWN_METHOD, "the script says so");
    CHECK_STR(gpupipe_last_error(gpupipe)->field, "field");
    CHECK_EQ(call_ping(gpupipe), 0);
    check_server();
}

static void test_a_constant(void)
{
    size_t size = 1000000 + random_below(40000);
    const uint8_t *bytes = random_new(size);
    uint64_t id = 0, wanted = 0;
    char sha256[GPUPIPE_SHA256_SIZE] = "";
    struct gpupipe_job_opts opts;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_run();
    for (size_t i = 0; i < size; i++) {
        wanted = (wanted * FAKE_CONST + bytes[i]) % FAKE_CONST_IDS;
    }
    CHECK_EQ(gpupipe_const_put(gpupipe, bytes, size, &id, sha256), 0);
    CHECK_EQ(id, wanted);
    CHECK_EQ(strlen(sha256), 64);
    CHECK_EQ(strtoull(sha256, NULL, 16), wanted);
    GPUPIPE_INIT(&opts);
    opts.priority = GPUPIPE_URGENT;
    opts.consts = &id;
    opts.n_consts = 1;
    CHECK_EQ(gpupipe_run(gpupipe, "fake", NULL, 0, &opts, &works[0].desc, NULL), GPUPIPE_OK);
    opts.n_consts = 1000;
    check_error(gpupipe_run(gpupipe, "fake", NULL, 0, &opts, &works[0].desc, NULL),
                GPUPIPE_ERROR_RANGE, "1000 constants");
    CHECK_EQ(gpupipe_const_drop(gpupipe, id), 0);
    check_error(gpupipe_const_put(gpupipe, bytes, UINT64_MAX, &id, sha256), GPUPIPE_ERROR_TOO_BIG,
                "most");
    check_error(gpupipe_const_put(gpupipe, NULL, 1, &id, sha256), GPUPIPE_ERROR_MISUSE,
                "no address");
    CHECK_EQ(id, wanted);
    CHECK_EQ(strtoull(sha256, NULL, 16), wanted);
    check_server();
}

static void test_an_op_as_json(void)
{
    char *one = NULL, *all = NULL;
    char two[2048];

    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(gpupipe_op_describe(gpupipe, "fake", &one), 0);
    check_at_end(free, one);
    CHECK_EQ(strncmp(one, "{\"name\": \"fake\", ", 17), 0);
    CHECK_HAS(one, ", \"doc\": \"says \\\"\\\\\\\"\", ");
    CHECK_HAS(one, ", \"in\": [{\"name\": \"x\", \"dtype\": \"u8\", \"shape\": [4]}], ");
    CHECK_HAS(one, ", \"out\": [{\"name\": \"y\", \"dtype\": \"f32\", \"shape\": []}], ");
    CHECK_HAS(one, ", \"tolerance\": 0.1, \"backends\": [\"cpu\"]}");
    CHECK_EQ(gpupipe_op_describe(gpupipe, NULL, &all), 0);
    check_at_end(free, all);
    snprintf(two, sizeof(two), "[%s, %s]", one, one);
    CHECK_STR(all, two);
    check_error(gpupipe_op_describe(gpupipe, "none", &all), GPUPIPE_ERROR_UNKNOWN_OP, "script");
    CHECK_STR(all, two);
    check_server();
}

static void test_a_server_too_new_for_us(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .is_too_new = true};
    check_error(connect_to_script(), GPUPIPE_ERROR_VERSION,
                "the daemon (9.9.9) serves level 6 and later, this client speaks level 1");
    check_error(call_ping(gpupipe), GPUPIPE_ERROR_VERSION, "9.9.9");
    check_server();
}

static void test_a_server_that_talks_nonsense(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .is_nonsense = true};
    CHECK_LT(connect_to_script(), 0);
    check_error(call_ping(gpupipe), GPUPIPE_ERROR_LOST, "makes no sense");
    /* The server has not closed its end: it is the loss that shows. */
    CHECK(is_readable());
    check_server();
}

static void test_busy_says_when_to_come_back(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .n_busy = 1};
    CHECK_EQ(connect_to_script(), 0);
    check_error(gpupipe_job_open(&job, gpupipe, "fake", NULL, 0, NULL), GPUPIPE_ERROR_BUSY, "");
    CHECK_EQ(gpupipe_last_error(gpupipe)->retry_ms, 1);
    CHECK_EQ(gpupipe_job_open(&job, gpupipe, "fake", NULL, 0, NULL), 0);
    gpupipe_job_free(job);
    check_server();
}

static void test_statuses_have_words(void)
{
    CHECK_STR(gpupipe_strerror(GPUPIPE_OK), "success");
    CHECK_STR(gpupipe_strerror(GPUPIPE_ERROR_UNKNOWN_OP), "no such op on this daemon");
    CHECK_HAS(gpupipe_strerror(GPUPIPE_ERROR_LOST), "no connection");
    CHECK_HAS(gpupipe_strerror(-99), "does not know");
    CHECK_EQ(gpupipe_last_error(NULL)->status, GPUPIPE_ERROR_OUT_OF_MEMORY);
}

/* ---- what a program may do wrong ------------------------------------------------------------ */

static void test_structs_without_a_size(void)
{
    struct gpupipe_job_opts opts = {0};
    struct gpupipe_completion completion = {0};
    struct gpupipe_outcome outcome = {0};
    struct gpupipe_job *none = NULL;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(10);
    open_job();
    check_error(gpupipe_job_open(&none, gpupipe, "fake", NULL, 0, &opts), GPUPIPE_ERROR_MISUSE,
                "size");
    works[0].desc.size = 0;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "size");
    check_error(run_work(NULL), GPUPIPE_ERROR_MISUSE, "size");
    works[0].desc.size = SIZE_MAX;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "size");
    check_error(gpupipe_reap(gpupipe, &completion, 1), GPUPIPE_ERROR_MISUSE, "size");
    check_error(gpupipe_job_result(job, &outcome), GPUPIPE_ERROR_MISUSE, "size");
    CHECK(none == NULL);
    gpupipe_job_free(job);
    check_server();
}

/* A program built with a later header: what it does not use is no matter, what it uses is. */
static void test_structs_of_a_later_version(void)
{
    struct {
        struct gpupipe_desc desc;
        uint64_t later;
    } descs[2];
    struct {
        struct gpupipe_completion completion;
        uint64_t later;
    } completions[2];
    int n_back = 0;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(10);
    open_job();
    memset(descs, 0, sizeof(descs));
    for (int i = 0; i < 2; i++) {
        descs[i].desc = works[i].desc;
        descs[i].desc.job = job;
        descs[i].desc.size = sizeof(descs[i]);
    }
    descs[0].later = 1;
    check_error(gpupipe_submit(gpupipe, &descs[0].desc, 2), GPUPIPE_ERROR_MISUSE, "not know");
    descs[0].later = 0;
    CHECK_EQ(gpupipe_submit(gpupipe, &descs[0].desc, 2), 2);
    memset(completions, POISON, sizeof(completions));
    completions[0].completion.size = sizeof(completions[0]);
    while (n_back < 2) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
        n_back += gpupipe_reap(gpupipe, &completions[n_back].completion, 2 - (uint32_t)n_back);
        completions[1].completion.size = sizeof(completions[1]);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(completions[i].completion.tag, 1000 + i);
        CHECK_EQ(completions[i].completion.size, sizeof(completions[i]));
        CHECK_EQ(completions[i].later, 0);
    }
    gpupipe_job_free(job);
    check_server();
}

static void test_requests_that_make_no_sense(void)
{
    char long_name[100];
    const struct gpupipe_value nothing = {"x", (enum gpupipe_kind)9, 0, 0, NULL};
    struct gpupipe_value value = {long_name, GPUPIPE_INT, 1, 0, NULL};
    struct gpupipe_job_opts opts;
    struct gpupipe_job *none = NULL;

    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(10);
    open_job();
    check_error(gpupipe_job_open(&none, gpupipe, long_name, NULL, 0, NULL),
                GPUPIPE_ERROR_UNKNOWN_OP, "that long");
    check_error(gpupipe_job_open(&none, gpupipe, "fake", &value, 1, NULL),
                GPUPIPE_ERROR_INVALID_PARAM, "that long");
    check_error(gpupipe_job_open(&none, gpupipe, "fake", &value, 1000, NULL),
                GPUPIPE_ERROR_INVALID_PARAM, "1000");
    check_error(gpupipe_job_open(&none, gpupipe, "fake", &nothing, 1, NULL), GPUPIPE_ERROR_MISUSE,
                "no kind");
    GPUPIPE_INIT(&opts);
    opts.priority = (enum gpupipe_priority)3;
    check_error(gpupipe_job_open(&none, gpupipe, "fake", NULL, 0, &opts), GPUPIPE_ERROR_MISUSE,
                "enum");
    opts.priority = GPUPIPE_BULK;
    opts.device = long_name;
    check_error(gpupipe_job_open(&none, gpupipe, "fake", NULL, 0, &opts), GPUPIPE_ERROR_NO_DEVICE,
                "that long");
    CHECK(none == NULL);
    check_error(gpupipe_submit(gpupipe, &works[0].desc, 1), GPUPIPE_ERROR_MISUSE, "names a job");
    works[0].desc.n_in = 2;
    check_error(submit(&works[0]), GPUPIPE_ERROR_MISUSE, "1 inputs, the push 2");
    works[1].desc.out[0].size--;
    check_error(submit(&works[1]), GPUPIPE_ERROR_MISUSE, "room");
    works[2].desc.n_out = 3;
    check_error(submit(&works[2]), GPUPIPE_ERROR_MISUSE, "no op has those");
    works[3].desc.in[0].size = UINT64_MAX;
    check_error(submit(&works[3]), GPUPIPE_ERROR_TOO_BIG, "smaller pushes");
    works[4].desc.in[0].data = NULL;
    check_error(submit(&works[4]), GPUPIPE_ERROR_MISUSE, "input 0 has bytes, and no address");
    works[5].desc.out[0].data = NULL;
    check_error(submit(&works[5]), GPUPIPE_ERROR_MISUSE, "output 0 has room, and no address");
    gpupipe_job_free(job);
    check_server();
}

/* In the child it only says no; the parent's messages stay whole. */
static void test_a_child_leaves_the_connection_alone(void)
{
    int status;
    pid_t pid;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(200000);
    open_job();
    CHECK_EQ(submit(&works[0]), 1);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        bool is_right = submit(&works[1]) == GPUPIPE_ERROR_MISUSE &&
                        gpupipe_dispatch(gpupipe, -1) == GPUPIPE_ERROR_MISUSE &&
                        gpupipe_wait(gpupipe, -1) == GPUPIPE_ERROR_MISUSE &&
                        reap() == GPUPIPE_ERROR_MISUSE &&
                        gpupipe_job_end(job) == GPUPIPE_ERROR_MISUSE &&
                        call_ping(gpupipe) == GPUPIPE_ERROR_MISUSE &&
                        strstr(gpupipe_last_error(gpupipe)->message, "open another") != NULL;

        gpupipe_wake(gpupipe);
        gpupipe_job_free(job);
        gpupipe_close(gpupipe);
        _exit(is_right ? 0 : 1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    works[0].desc.job = job;
    CHECK_EQ(submit(&works[1]), 1);
    CHECK_EQ(submit(&works[2]), 1);
    for (int n_back = 0; n_back < 3; n_back += reap()) {
        /* Nobody has woken us. */
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[0]);
    check_output(&works[2]);
    gpupipe_job_free(job);
    check_server();
}

/* ---- waiting ------------------------------------------------------------------------------- */

static void test_the_descriptor_tells_of_work(void)
{
    struct pollfd poll_fd;
    int n_turns = 0;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(200000);
    open_job();
    poll_fd = (struct pollfd){.fd = gpupipe_get_fd(gpupipe), .events = POLLIN};
    CHECK_EQ(submit(&works[0]), 1);
    while (reap() == 0) {
        /* Would wait for ever if a push were not announced. */
        CHECK_EQ(poll(&poll_fd, 1, 20000), 1);
        CHECK_EQ(gpupipe_dispatch(gpupipe, 0), 0);
        n_turns++;
    }
    CHECK_GE(n_turns, 1);
    CHECK(!is_readable());
    gpupipe_job_free(job);
    check_server();
}

/* The result comes while a ping waits for its answer: nothing is left in the socket. */
static void test_what_a_call_meets_is_announced(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(1000);
    open_job();
    CHECK_EQ(submit(&works[0]), 1);
    CHECK_EQ(call_ping(gpupipe), 0);
    CHECK(is_readable());
    CHECK_EQ(gpupipe_dispatch(gpupipe, -1), 0);
    CHECK(!is_readable());
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    CHECK_EQ(reap(), 1);
    gpupipe_job_free(job);
    check_server();
}

static void *wake_later(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    gpupipe_wake(gpupipe);
    return NULL;
}

static void test_another_thread_wakes(void)
{
    pthread_t thread;

    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(pthread_create(&thread, NULL, wake_later, NULL), 0);
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, wake_later, NULL), 0);
    CHECK_EQ(gpupipe_dispatch(gpupipe, -1), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    /* One that came earlier is not lost to a call that blocks. */
    gpupipe_wake(gpupipe);
    CHECK_EQ(call_ping(gpupipe), 0);
    CHECK(is_readable());
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 0);
    CHECK(!is_readable());
    check_server();
}

/* What comes beside it is no news: the push is accepted, and not done. */
static void test_a_wake_up_is_not_lost_to_what_arrives(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(10);
    open_job();
    CHECK_EQ(submit(&works[0]), 1);
    CHECK_EQ(poll(&(struct pollfd){gpupipe_get_fd(gpupipe), POLLIN, 0}, 1, -1), 1);
    gpupipe_wake(gpupipe);
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 0);
    gpupipe_job_free(job);
    check_server();
}

static void test_a_wait_for_nothing_ends(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(gpupipe_wait(gpupipe, 0), 0);
    CHECK_EQ(gpupipe_wait(gpupipe, 3000000), 0);
    CHECK_EQ(gpupipe_dispatch(gpupipe, 0), 0);
    CHECK_EQ(gpupipe_dispatch(gpupipe, 3), 0);
    check_server();
}

/* ---- finding a daemon ----------------------------------------------------------------------- */

/* Where it looks, whatever is there. */
static void search(const char *socket_path)
{
    gpupipe_close(gpupipe);
    (void)gpupipe_open(&gpupipe, socket_path, "test");
}

static void check_tried(uint32_t i, const char *path)
{
    CHECK_LT(i, call_search(gpupipe)->n_tried);
    CHECK_STR(call_search(gpupipe)->tried[i].path, path);
}

static void test_where_daemons_are_looked_for(void)
{
    check_at_end(end_connection, NULL);
    unsetenv("GPUPIPE_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/no/such/runtime", 1);
    search("/no/such/socket");
    CHECK_EQ(call_search(gpupipe)->n_tried, 1);
    check_tried(0, "/no/such/socket");
    CHECK_STR(call_search(gpupipe)->tried[0].why, "--socket");
    setenv("GPUPIPE_SOCKET", "/no/such/environment", 1);
    search(NULL);
    CHECK_EQ(call_search(gpupipe)->n_tried, 1);
    check_tried(0, "/no/such/environment");
    setenv("GPUPIPE_SOCKET", "", 1);
    CHECK_EQ(setenv("XDG_RUNTIME_DIR", "not/absolute", 1), 0);
    search(NULL);
    check_tried(0, "/run/gpupiped/rpc.sock");
    setenv("XDG_RUNTIME_DIR", "/no/such/runtime", 1);
    search(NULL);
    CHECK_EQ(call_search(gpupipe)->n_tried, 2);
    check_tried(0, "/no/such/runtime/gpupiped/rpc.sock");
    check_tried(1, "/run/gpupiped/rpc.sock");
}

static void test_nobody_is_there(void)
{
    char long_path[200];

    check_at_end(end_connection, NULL);
    check_error(gpupipe_open(&gpupipe, "/no/such/socket", "test"), GPUPIPE_ERROR_LOST,
                "No such file");
    check_error(call_ping(gpupipe), GPUPIPE_ERROR_LOST, "No such file");
    check_error(gpupipe_wait(gpupipe, -1), GPUPIPE_ERROR_LOST, "No such file");
    CHECK(is_readable());
    CHECK_EQ(gpupipe_limit(gpupipe, "max_push"), 0);
    gpupipe_close(STEAL(gpupipe));
    memset(long_path, 'x', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    check_error(gpupipe_open(&gpupipe, long_path, "test"), GPUPIPE_ERROR_RANGE, "");
}

CHECK_MAIN(CHECK_TEST(test_hello_and_calls), CHECK_TEST(test_a_constant),
           CHECK_TEST(test_an_op_as_json), CHECK_TEST(test_a_server_too_new_for_us),
           CHECK_TEST(test_a_server_that_talks_nonsense),
           CHECK_TEST(test_busy_says_when_to_come_back), CHECK_TEST(test_statuses_have_words),
           CHECK_TEST(test_structs_without_a_size), CHECK_TEST(test_structs_of_a_later_version),
           CHECK_TEST(test_requests_that_make_no_sense),
           CHECK_TEST(test_a_child_leaves_the_connection_alone),
           CHECK_TEST(test_the_descriptor_tells_of_work),
           CHECK_TEST(test_what_a_call_meets_is_announced), CHECK_TEST(test_another_thread_wakes),
           CHECK_TEST(test_a_wake_up_is_not_lost_to_what_arrives),
           CHECK_TEST(test_a_wait_for_nothing_ends), CHECK_TEST(test_where_daemons_are_looked_for),
           CHECK_TEST(test_nobody_is_there))
