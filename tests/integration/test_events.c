/*
 * Events: whoever subscribed is told of devices and of the daemon's end; who does not read loses
 * them, and costs no memory.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/wire.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

/* The next event must be this one; returns its map. */
static const msgpack_object *take_event(struct wire *wire, const char *kind)
{
    const msgpack_object *params = wire_notification(wire, "event");

    CHECK_STR(wire_text(params, "0"), kind);
    return wire_find(params, "1");
}

static void take_device_event(struct wire *wire, const char *state)
{
    const msgpack_object *event = take_event(wire, "device");
    char name[16];

    snprintf(name, sizeof(name), "%s0", harness_backend());
    CHECK_STR(wire_text(event, "device"), name);
    CHECK_STR(wire_text(event, "state"), state);
    CHECK_EQ(wire_find(event, "reason") != NULL, strcmp(state, "ready") != 0);
    CHECK(wire_find(event, "lost") == NULL);
}

static void test_a_device_dies_and_comes_back(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));

    wire_call(wire, "events.subscribe", "[['device']]");
    wire_call(other, "events.subscribe", "[['drain']]");
    kill(harness_await_worker(daemon, 0), SIGKILL);
    take_device_event(wire, "restarting");
    take_device_event(wire, "ready");
    wire_check_works(wire);
    wire_check_works(other);
    CHECK_EQ(wire_held(wire), 0);
    CHECK_EQ(wire_held(other), 0);
    CHECK_EQ(stat_of(wire, "events_lost"), 0);
}

static void test_the_daemon_stops(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));

    wire_call(wire, "events.subscribe", "[['device', 'drain']]");
    wire_call(other, "events.subscribe", "[['device']]");
    harness_signal(daemon, SIGTERM);
    CHECK_EQ(take_event(wire, "drain")->via.map.size, 0);
    wire_eof(wire);
    wire_eof(other);
    CHECK_EQ(wire_held(wire), 0);
    CHECK_EQ(wire_held(other), 0);
    CHECK_EQ(harness_wait_exit(daemon), 0);
}

static void test_a_subscription_replaces_the_one_before(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);

    wire_call(wire, "events.subscribe", "[['device']]");
    wire_call(wire, "events.subscribe", "[[]]");
    wire_call(other, "events.subscribe", "[['device', 'device']]");
    wire_refused(other, "RANGE", "device, drain", "events.subscribe", "[['job']]");
    wire_refused(other, "INVALID_PARAM", "events.subscribe", "events.subscribe", "[]");
    wire_refused(other, "INVALID_PARAM", "kinds", "events.subscribe", "['device']");
    wire_refused(other, "INVALID_PARAM", "kinds", "events.subscribe",
                 "[['drain', 'drain', 'drain', 'drain', 'drain']]");
    kill(worker, SIGKILL);
    take_device_event(other,
                      "restarting"); /* what was refused changed nothing, and each comes once */
    take_device_event(other, "ready");
    wire_check_works(wire);
    CHECK_EQ(wire_held(wire), 0);
    CHECK_EQ(wire_held(other), 0);
}

/* Requests until the daemon reads no more of them: their answers fill the socket and wait. */
static unsigned go_deaf(struct wire *wire)
{
    msgpack_sbuffer buffer;
    bool is_stuck = false;
    unsigned n = 0;

    msgpack_sbuffer_init(&buffer);
    while (!is_stuck) {
        msgpack_sbuffer_clear(&buffer);
        wire_pack(wire, &buffer, "op.list", "[]");
        for (size_t sent = 0; sent < buffer.size && !is_stuck;) {
            ssize_t got;

            is_stuck = poll(&(struct pollfd){.fd = wire_fd(wire), .events = POLLOUT}, 1, 300) == 0;
            got = send(wire_fd(wire), buffer.data + sent, buffer.size - sent, MSG_DONTWAIT);
            sent += got > 0 ? (size_t)got : 0;
            n += sent == buffer.size;
        }
    }
    msgpack_sbuffer_destroy(&buffer);
    return n;
}

static void test_a_subscriber_that_does_not_read(void)
{
    struct harness *daemon = harness_start();
    struct wire *deaf = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const msgpack_object *params;
    pid_t worker = harness_await_worker(daemon, 0);
    unsigned n_answers;
    int64_t n_lost;

    wire_call(deaf, "events.subscribe", "[['device']]");
    wire_call(other, "events.subscribe", "[['device']]");
    n_answers = go_deaf(deaf);
    kill(worker, SIGKILL);
    take_device_event(other, "restarting");
    take_device_event(other, "ready");
    n_lost = stat_of(other, "events_lost");
    CHECK_EQ(n_lost, 2);

    /* It reads again: every answer is there, and the next event says what is missing. */
    for (unsigned i = 0; i < n_answers; i++) {
        const msgpack_object *answer = wire_receive(deaf);

        CHECK_EQ(wire_number(answer, "0"), 1);
        CHECK_EQ(wire_number(answer, "1"), 2 + i);
    }
    kill(harness_await_worker(daemon, worker), SIGKILL);
    params = wire_notification(deaf, "event");
    CHECK_EQ(wire_number(params, "1.lost"), n_lost);
    take_device_event(deaf, "ready");
    CHECK_EQ(stat_of(other, "events_lost"), n_lost);
}

CHECK_MAIN(CHECK_TEST(test_a_device_dies_and_comes_back), CHECK_TEST(test_the_daemon_stops),
           CHECK_TEST(test_a_subscription_replaces_the_one_before),
           CHECK_TEST(test_a_subscriber_that_does_not_read))
