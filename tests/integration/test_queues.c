/*
 * Queues: what `stats` says of what waits and what is under way adds up, by priority, device and
 * user; and who may see it.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/integration/cli.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_PUSHES = 16, SIZE = 65536, ONE = 61001, OTHER = 61002 };

/* A number of this row, such as "queues.2", in these stats. */
static uint64_t number(const msgpack_object *stats, const char *row, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "%s.%s", row, name);
    return (uint64_t)wire_number(stats, path);
}

static const char *device_name(void)
{
    static char name[64];

    snprintf(name, sizeof(name), "%s0", harness_backend());
    return name;
}

static uint64_t open_job(struct wire *wire, const char *priority)
{
    const msgpack_object *opened = wire_call(
        wire, "job.open", "['copy', {}, {priority: %s, device: %s, window: 16, max_push: 65536}]",
        priority, device_name());

    CHECK_EQ(wire_number(opened, "credit"), N_PUSHES);
    return (uint64_t)wire_number(opened, "job");
}

static void send_pushes(struct wire *wire, uint64_t job, const uint8_t *bytes)
{
    for (uint64_t seq = 0; seq < N_PUSHES; seq++) {
        wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes, (size_t)SIZE);
    }
}

/* Of this row: nothing is lost between the queue and the device. */
static void check_all_there(const msgpack_object *stats, const char *row, uint64_t size)
{
    CHECK_EQ(number(stats, row, "waiting_size") + number(stats, row, "in_flight_size"), size);
    CHECK_EQ(number(stats, row, "waiting") > 0, number(stats, row, "waiting_size") > 0);
    CHECK_EQ(number(stats, row, "in_flight") > 0, number(stats, row, "in_flight_size") > 0);
}

static void check_nothing_there(const msgpack_object *stats, const char *row)
{
    CHECK_EQ(number(stats, row, "waiting"), 0);
    CHECK_EQ(number(stats, row, "waiting_size"), 0);
    CHECK_EQ(number(stats, row, "oldest_ns"), 0);
    CHECK_EQ(number(stats, row, "in_flight"), 0);
    CHECK_EQ(number(stats, row, "in_flight_size"), 0);
}

static void take_results(struct wire *wire, const uint8_t *bytes)
{
    for (unsigned i = 0; i < 2 * N_PUSHES; i++) {
        const msgpack_object *params = wire_notification(wire, "job.result");

        CHECK_MEM(wire_output(wire_find(params, "2"), SIZE), bytes, SIZE);
    }
}

/* The worker stands still, so that what is sent stays where it is. */
static void test_rows_add_up(void)
{
    struct harness *daemon = harness_start("--pinned-pool", "64M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    const uint8_t *bytes = random_new(SIZE);
    pid_t worker = harness_await_worker(daemon, 0);
    uint64_t bulk = open_job(wire, "bulk"), normal = open_job(wire, "normal"), oldest_ns;
    const msgpack_object *stats;

    harness_pause(worker);
    send_pushes(wire, bulk, bytes);
    send_pushes(wire, normal, bytes);
    stats = wire_call(wire, "stats", "[]");
    CHECK_EQ(wire_count(stats, "queues"), 3);
    CHECK_EQ(wire_count(stats, "devices"), 1);
    CHECK_EQ(wire_count(stats, "users"), 1);
    CHECK_STR(wire_text(stats, "queues.1.priority"), "normal");
    CHECK_STR(wire_text(stats, "queues.2.priority"), "bulk");
    CHECK_STR(wire_text(stats, "devices.0.device"), device_name());
    CHECK_EQ(number(stats, "users.0", "uid"), geteuid());
    check_nothing_there(stats, "queues.0");
    check_all_there(stats, "queues.1", N_PUSHES * SIZE);
    check_all_there(stats, "queues.2", N_PUSHES * SIZE);
    check_all_there(stats, "devices.0", 2 * N_PUSHES * SIZE);
    check_all_there(stats, "users.0", 2 * N_PUSHES * SIZE);
    CHECK_GT(number(stats, "queues.2", "waiting"), 0);
    CHECK_EQ(number(stats, "queues.2", "places"), N_PUSHES);
    CHECK_EQ(number(stats, "users.0", "places"), 2 * N_PUSHES);
    CHECK_EQ(number(stats, "users.0", "device_ns"), 0);
    oldest_ns = number(stats, "queues.2", "oldest_ns");
    HARNESS_WAIT(number(wire_call(wire, "stats", "[]"), "queues.2", "oldest_ns") > oldest_ns);

    kill(worker, SIGCONT);
    take_results(wire, bytes);
    stats = wire_call(wire, "stats", "[]");
    check_nothing_there(stats, "queues.1");
    check_nothing_there(stats, "queues.2");
    check_nothing_there(stats, "devices.0");
    check_nothing_there(stats, "users.0");
    CHECK_GT(number(stats, "queues.2", "device_ns"), 0);
    CHECK_EQ(number(stats, "devices.0", "device_ns"),
             number(stats, "queues.1", "device_ns") + number(stats, "queues.2", "device_ns"));
    CHECK_EQ(number(stats, "users.0", "device_ns"), number(stats, "devices.0", "device_ns"));
    CHECK_EQ(wire_number(stats, "users.0.urgent_left_ns"), 5000000);
}

static void be_root_again(void *arg)
{
    (void)arg;
    if (seteuid(0) < 0) {
        abort();
    }
}

static struct wire *connect_as(struct harness *daemon, uid_t uid)
{
    struct wire *wire;

    CHECK_EQ(seteuid(uid), 0);
    wire = wire_connect(harness_socket(daemon));
    CHECK_EQ(seteuid(0), 0);
    return wire;
}

/* A user's row is its own and root's to see; the sums are everybody's. */
static void test_who_sees_whom(void)
{
    struct harness *daemon = harness_start();

    if (geteuid() != 0) {
        CHECK_SKIP("needs root, to be several users");
    }
    check_at_end(be_root_again, NULL);
    CHECK_EQ(chmod(harness_folder(daemon), 0711), 0);
    CHECK_EQ(chmod(harness_socket(daemon), 0666), 0);
    struct wire *one = connect_as(daemon, ONE), *other = connect_as(daemon, OTHER);
    struct wire *root = wire_connect(harness_socket(daemon));
    wire_call(one, "job.open", "['copy', {}, {priority: 'bulk', window: 2}]");
    wire_call(other, "job.open", "['copy', {}, {priority: 'bulk', window: 3}]");
    const msgpack_object *stats = wire_call(one, "stats", "[]");
    CHECK_EQ(wire_count(stats, "users"), 1);
    CHECK_EQ(number(stats, "users.0", "uid"), ONE);
    CHECK_EQ(number(stats, "users.0", "places"), 2);
    CHECK_EQ(number(stats, "queues.2", "places"), 5);
    stats = wire_call(root, "stats", "[]");
    CHECK_EQ(wire_count(stats, "users"), 3);
    CHECK_EQ(number(stats, "users.0", "places") + number(stats, "users.1", "places") +
                 number(stats, "users.2", "places"),
             5);
}

static void test_status_shows_them(void)
{
    struct harness *daemon = harness_start();

    shell(daemon, OK, "printf %%65536s | cli run copy -i - -o out --priority urgent && cli status");
    CHECK_HAS(output.out, "URGENT LEFT");
    CHECK_HAS(output.out, "\nurgent ");
    CHECK_HAS(output.out, device_name());
    CHECK_HAS(output.out, "\nuid ");
    shell(daemon, OK,
          "cli --json status | /usr/bin/python3 -c 'import json, sys\n"
          "queues = json.load(sys.stdin)[\"queues\"]\n"
          "used = [sum(row[\"device_ns\"] for row in queues[name])"
          " for name in (\"priorities\", \"devices\")]\n"
          "assert [row[\"priority\"] for row in queues[\"priorities\"]]"
          " == [\"urgent\", \"normal\", \"bulk\"]\n"
          "assert used[0] == used[1] > 0 and len(queues[\"users\"]) == 1, queues'");
}

CHECK_MAIN(CHECK_TEST(test_rows_add_up), CHECK_TEST(test_who_sees_whom),
           CHECK_TEST(test_status_shows_them))
