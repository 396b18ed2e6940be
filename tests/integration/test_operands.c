/*
 * Operands beyond inputs of one record each: constants, inputs whose records differ in length, and
 * parameters that bound each other.  OPERANDS_WORKER is a worker of OPERANDS_BACKEND that has the
 * ops of tests/operands.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <signal.h>

static void skip_without_gpu(struct harness *harness)
{
    struct harness_output output;

    harness_shell(harness, &output, "exec \"$OPERANDS_WORKER\" --probe");
    if (output.code != 0) {
        output.err[strcspn(output.err, "\n")] = '\0';
        CHECK_SKIP("%.200s", output.err);
    }
}

static struct harness *start(void)
{
    const char *backend = getenv("OPERANDS_BACKEND");
    bool is_cpu = strcmp(backend, "cpu") == 0;
    const char *const options[] = {"--backend",     backend, "--devices", is_cpu ? "cpu0" : "0",
                                   "--pinned-pool", "64M",   NULL};
    struct harness *harness = harness_create();

    if (!is_cpu) {
        skip_without_gpu(harness);
    }
    harness_place_worker(harness, backend, getenv("OPERANDS_WORKER"));
    harness_launch(harness, options);
    return harness;
}

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* Nothing is held any more. */
static void await_empty_pool(struct wire *wire)
{
    HARNESS_WAIT(stat_of(wire, "consts") == 0 && stat_of(wire, "pool_used") == 0);
}

/* ---- palette -------------------------------------------------------------------------------- */

enum { WIDTH = 29, CHANNELS = 3, PITCH = 100, N_COLORS = 200 };

#define PALETTE "'palette', {width: 29, channels: 3, pitch: 100, colors: 200}"

/* A connection's constants, and what they are. */
struct tables {
    uint32_t colors[N_COLORS];
    uint64_t start;
    uint64_t colors_id, start_id;
};

static uint64_t put(struct wire *wire, const void *bytes, size_t size)
{
    return (uint64_t)wire_number(wire_call(wire, "const.put", "[{}, [%b]]", bytes, size), "const");
}

static struct tables put_tables(struct wire *wire)
{
    struct tables tables;

    random_bytes(&tables, sizeof(tables));
    tables.colors_id = put(wire, tables.colors, sizeof(tables.colors));
    tables.start_id = put(wire, &tables.start, sizeof(tables.start));
    CHECK_NE(tables.colors_id, tables.start_id);
    return tables;
}

static void check_sums(const struct tables *tables, const uint8_t *rows, uint32_t n_rows,
                       const void *out)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        uint64_t expected = tables->start, sum;

        for (uint32_t x = 0; x < WIDTH * CHANNELS; x++) {
            expected = 3 * expected + tables->colors[rows[i * PITCH + x] % N_COLORS];
        }
        memcpy(&sum, (const uint8_t *)out + i * sizeof(sum), sizeof(sum));
        CHECK_EQ(sum, expected);
    }
}

static void check_run(struct wire *wire, const struct tables *tables, uint32_t n_rows)
{
    uint8_t *rows = random_new(n_rows * PITCH);
    const msgpack_object *result =
        wire_call(wire, "run", "[" PALETTE ", {consts: [%lu, %lu]}, [%b]]", tables->colors_id,
                  tables->start_id, rows, (size_t)n_rows * PITCH);

    check_sums(tables, rows, n_rows, wire_output(result, n_rows * sizeof(uint64_t)));
}

static uint64_t open_job(struct wire *wire, const struct tables *tables)
{
    return (uint64_t)wire_number(wire_call(wire, "job.open",
                                           "[" PALETTE ", {consts: [%lu, %lu], window: 2}]",
                                           tables->colors_id, tables->start_id),
                                 "job");
}

/* Push rows; false: they were lost with their worker. */
static bool try_push(struct wire *wire, const struct tables *tables, uint64_t job, uint64_t seq,
                     pid_t doomed)
{
    enum { N_ROWS = 30000 };
    uint8_t *rows = random_new(N_ROWS * PITCH);
    const msgpack_object *params;
    const void *out;
    size_t size;

    wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, rows, (size_t)N_ROWS * PITCH);
    if (doomed != 0) {
        kill(doomed, SIGKILL);
    }
    params = wire_notification(wire, "job.result");
    CHECK_EQ(wire_number(params, "1"), seq);
    if (wire_find(params, "2.error") != NULL) {
        CHECK_STR(wire_error(wire_find(params, "2.error")).name, "DEVICE_LOST");
        return false;
    }
    out = wire_bytes(params, "2.out.0", &size);
    CHECK_EQ(size, N_ROWS * sizeof(uint64_t));
    check_sums(tables, rows, N_ROWS, out);
    return true;
}

static void push(struct wire *wire, const struct tables *tables, uint64_t job, uint64_t seq)
{
    CHECK(try_push(wire, tables, job, seq, 0));
}

/* ---- constants ------------------------------------------------------------------------------ */

/* A few rows, and more than one piece and one chunk of them. */
static void test_runs_with_constants(void)
{
    struct wire *wire = wire_connect(harness_socket(start()));
    struct tables tables = put_tables(wire);

    check_run(wire, &tables, 1);
    check_run(wire, &tables, 17);
    check_run(wire, &tables, 120000);
}

/* Many jobs over the same op and parameters, each with tables of its own, small and at once. */
static void test_constants_do_not_mix(void)
{
    enum { N_SETS = 8, N_RUNS = 200, N_ROWS = 3 };
    struct wire *wire = wire_connect(harness_socket(start()));
    struct tables sets[N_SETS];
    uint8_t *rows[N_RUNS];
    uint32_t msgids[N_RUNS];

    for (uint32_t i = 0; i < N_SETS; i++) {
        sets[i] = put_tables(wire);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        rows[i] = random_new(N_ROWS * PITCH);
        msgids[i] = wire_send(wire, "run", "[" PALETTE ", {consts: [%lu, %lu]}, [%b]]",
                              sets[i % N_SETS].colors_id, sets[i % N_SETS].start_id, rows[i],
                              (size_t)N_ROWS * PITCH);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        const msgpack_object *result = wire_result(wire, msgids[i]);

        check_sums(&sets[i % N_SETS], rows[i], N_ROWS, wire_output(result, N_ROWS * 8));
    }
}

static void test_op_list_shows_them(void)
{
    struct wire *wire = wire_connect(harness_socket(start()));
    const msgpack_object *op = wire_call(wire, "op.list", "[{name: 'palette'}]");

    CHECK_EQ(wire_count(op, "0.const"), 2);
    CHECK_STR(wire_text(op, "0.const.0.name"), "colors");
    CHECK_STR(wire_text(op, "0.const.0.dtype"), "u32");
    CHECK_STR(wire_text(op, "0.const.0.shape.0"), "colors");
    CHECK_EQ(wire_count(op, "0.const.1.shape"), 0);
    CHECK_STR(wire_text(op, "0.params.2.name"), "pitch");
    CHECK_EQ(wire_count(op, "0.params.2.at_least"), 2);
    CHECK_STR(wire_text(op, "0.params.2.at_least.1"), "channels");
    CHECK(wire_find(op, "0.in.0.ends") == NULL);
    op = wire_call(wire, "op.list", "[{name: 'spans'}]");
    CHECK_EQ(wire_count(op, "0.const"), 0);
    CHECK(wire_boolean(op, "0.in.0.ends"));
    CHECK_STR(wire_text(op, "0.in.1.shape.0"), "*");
}

/* The error is about this field. */
#define REFUSED(wire, status, about, words, ...)                                                   \
    do {                                                                                           \
        struct wire_error error_ =                                                                 \
            wire_error(&wire_response((wire), wire_send((wire), __VA_ARGS__))->via.array.ptr[2]);  \
        CHECK_STR(error_.name, (status));                                                          \
        CHECK_HAS(error_.message, (words));                                                        \
        CHECK_STR(error_.field, (about));                                                          \
    } while (0)

static struct wire *connect_structured(const struct harness *daemon)
{
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_call(wire, "hello", "[{errors: 'structured'}]");
    return wire;
}

static void test_wrong_constants(void)
{
    struct harness *daemon = start();
    struct wire *wire = connect_structured(daemon), *other = connect_structured(daemon);
    struct tables tables = put_tables(wire), others = put_tables(other);
    uint64_t a = tables.colors_id, b = tables.start_id;
    uint64_t used = stat_of(wire, "pool_used");

    REFUSED(wire, "INVALID_PARAM", "consts", "op palette takes 2 constants, not 0", "run",
            "[" PALETTE ", {}, [<100>]]");
    REFUSED(wire, "INVALID_PARAM", "consts", "op palette takes 2 constants, not 1", "run",
            "[" PALETTE ", {consts: [%lu]}, [<100>]]", a);
    REFUSED(wire, "INVALID_PARAM", "consts", "3 elements are more than 2", "run",
            "[" PALETTE ", {consts: [%lu, %lu, 1]}, [<100>]]", a, b);
    REFUSED(wire, "INVALID_PARAM", "consts", "op spans takes 0 constants, not 1", "job.open",
            "['spans', {}, {consts: [%lu]}]", a);
    REFUSED(wire, "RANGE", "consts", "constant colors of op palette has 800 bytes", "run",
            "[" PALETTE ", {consts: [%lu, %lu]}, [<100>]]", b, a);
    REFUSED(wire, "RANGE", "consts", "has 796 bytes under these parameters, not 800", "job.open",
            "['palette', {colors: 199}, {consts: [%lu, %lu]}]", a, b);
    REFUSED(wire, "TOO_BIG", "colors", "would be larger than 16777216 bytes", "job.open",
            "['palette', {colors: 4194305}, {consts: [%lu, %lu]}]", a, b);
    REFUSED(wire, "NOT_FOUND", "consts", "there is no constant 12345", "job.open",
            "[" PALETTE ", {consts: [%lu, 12345]}]", a);
    REFUSED(wire, "NOT_FOUND", "consts", "there is no constant 0", "job.open",
            "[" PALETTE ", {consts: [0, %lu]}]", b);
    REFUSED(wire, "NOT_YOURS", "consts", "is another connection's", "job.open",
            "[" PALETTE ", {consts: [%lu, %lu]}]", others.colors_id, b);
    REFUSED(wire, "NOT_YOURS", "const", "is another connection's", "const.drop", "[%lu]",
            others.colors_id);
    REFUSED(wire, "NOT_FOUND", "const", "there is no constant 12345", "const.drop", "[12345]");
    CHECK_EQ(stat_of(wire, "pool_used"), used);
    check_run(wire, &tables, 5);
    check_run(other, &others, 5);
    wire_call(wire, "const.drop", "[%lu]", a);
    REFUSED(wire, "NOT_FOUND", "const", "or it was dropped", "const.drop", "[%lu]", a);
    REFUSED(wire, "NOT_FOUND", "consts", "or it was dropped", "run",
            "[" PALETTE ", {consts: [%lu, %lu]}, [<100>]]", a, b);
    check_run(other, &others, 5);
}

static void test_wrong_uploads(void)
{
    struct harness *daemon = start();
    struct wire *wire = connect_structured(daemon);

    REFUSED(wire, "RANGE", "data", "at least one byte", "const.put", "[{}, [<0>]]");
    REFUSED(wire, "TOO_BIG", "data", "a constant of 16777217 bytes", "const.put",
            "[{}, [<16777217>]]");
    REFUSED(wire, "INVALID_PARAM", "data", "2 arrays are more than 1", "const.put",
            "[{}, [<8>, <8>]]");
    REFUSED(wire, "INVALID_PARAM", "data", "one bin or string", "const.put", "[{}, []]");
    REFUSED(wire, "INVALID_PARAM", "data", "must be payloads", "const.put", "[{}, [5]]");
    REFUSED(wire, "INVALID_PARAM", "device", "no option", "const.put", "[{device: 1}, [<8>]]");
    REFUSED(wire, "INVALID_PARAM", "", "", "const.put", "[{}]");
    REFUSED(wire, "INVALID_PARAM", "", "a bin where no payload belongs", "const.put",
            "[<8>, [<8>]]");
    CHECK_EQ(stat_of(wire, "consts"), 0);
    CHECK_EQ(stat_of(wire, "pool_used"), 0);
    for (unsigned i = 0; i < 16; i++) {
        wire_call(wire, "const.put", "[{}, [<8>]]");
    }
    REFUSED(wire, "QUOTA", "data", "this connection has 16 constants", "const.put", "[{}, [<8>]]");
    CHECK_EQ(stat_of(wire, "consts"), 16);
    wire = wire_connect(harness_socket(daemon));
    check_run(wire, &(struct tables[]){put_tables(wire)}[0], 3);
}

/* ---- the hash of what was uploaded ---------------------------------------------------------- */

static void check_sha256(struct harness *daemon, const msgpack_object *result, const void *bytes,
                         size_t size)
{
    const uint8_t *digest = reference_sha256(daemon, bytes, size, size);
    char wanted[65];

    for (size_t i = 0; i < 32; i++) {
        sprintf(wanted + 2 * i, "%02x", digest[i]);
    }
    CHECK_STR(wire_text(result, "sha256"), wanted);
}

/* A request as bytes, for sending it in parts. */
static void pack_put(struct wire *wire, msgpack_sbuffer *ret_buffer, uint32_t *ret_msgid,
                     const void *bytes, size_t size)
{
    msgpack_sbuffer_init(ret_buffer);
    *ret_msgid = wire_pack(wire, ret_buffer, "const.put", "[{}, [%b]]", bytes, size);
}

/* Whole, and in parts that come as they like; with other connections' requests in between. */
static void test_the_hash_of_a_constant(void)
{
    static const size_t sizes[] = {1, 55, 56, 64, 65536, 65537, 1 << 20, 16 << 20};
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        const void *bytes = random_new(sizes[i]);
        const msgpack_object *result;
        msgpack_sbuffer buffer;
        uint32_t msgid;

        result = wire_call(wire, "const.put", "[{}, [%b]]", bytes, sizes[i]);
        check_sha256(daemon, result, bytes, sizes[i]);
        wire_call(wire, "const.drop", "[%lu]", (uint64_t)wire_number(result, "const"));
        pack_put(wire, &buffer, &msgid, bytes, sizes[i]);
        for (size_t at = 0, n; at < buffer.size; at += n) {
            n = MIN(1 + random_below(buffer.size / 4), buffer.size - at);
            CHECK(wire_send_bytes(wire, buffer.data + at, n));
            wire_call(other, "ping", "[]");
        }
        result = wire_result(wire, msgid);
        check_sha256(daemon, result, bytes, sizes[i]);
        wire_call(wire, "const.drop", "[%lu]", (uint64_t)wire_number(result, "const"));
        msgpack_sbuffer_destroy(&buffer);
    }
    await_empty_pool(wire);
}

/* In one write with the request that it is dropped by, and with one that names it by then. */
static void test_dropped_right_behind(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    size_t size = 1 + random_below(4 << 20);
    const void *bytes = random_new(size);
    msgpack_sbuffer buffer;
    uint32_t put_id, drop, again;

    pack_put(wire, &buffer, &put_id, bytes, size);
    drop = wire_pack(wire, &buffer, "const.drop", "[1]");
    again = wire_pack(wire, &buffer, "const.drop", "[1]");
    CHECK(wire_send_bytes(wire, buffer.data, buffer.size));
    msgpack_sbuffer_destroy(&buffer);
    CHECK_EQ(wire_number(wire_result(wire, put_id), "const"), 1);
    wire_result(wire, drop);
    wire_error_is(wire, again, "NOT_FOUND", "it was dropped");
    CHECK_EQ(wire_held(wire), 0);
    await_empty_pool(wire);
}

/* At any byte of it. */
static void test_gone_while_it_is_hashed(void)
{
    struct harness *daemon = start();
    struct wire *watcher = wire_connect(harness_socket(daemon));
    const void *bytes = random_new(1 << 20);
    struct tables tables;

    for (unsigned round = 0; round < 50; round++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        msgpack_sbuffer buffer;
        uint32_t msgid;

        pack_put(wire, &buffer, &msgid, bytes, 1 + random_below(1 << 20));
        wire_send_bytes(wire, buffer.data, 1 + random_below(buffer.size));
        msgpack_sbuffer_destroy(&buffer);
        if (round % 2 > 0) {
            wire_call(watcher, "ping", "[]"); /* it has begun, most likely */
        }
        wire_close(wire);
    }
    await_empty_pool(watcher);
    tables = put_tables(watcher);
    check_run(watcher, &tables, 3);
}

/* They count in their user's share of the pool, so that others still find room. */
static void test_room_for_constants(void)
{
    struct harness *daemon = start();
    struct wire *wire = connect_structured(daemon);
    uint64_t first =
        (uint64_t)wire_number(wire_call(wire, "const.put", "[{}, [<16777216>]]"), "const");

    wire_call(wire, "const.put", "[{}, [<16777216>]]");
    wire_call(wire, "const.put", "[{}, [<5000000>]]");
    REFUSED(wire, "QUOTA", "", "41943040 bytes of the pool", "const.put", "[{}, [<9000000>]]");
    wire_output(
        wire_call(wire, "run", "['spans', {}, {}, [%b, <8>]]", (uint32_t[]){1, 4}, (size_t)8), 16);
    wire_call(wire, "const.drop", "[%lu]", first);
    wire_call(wire, "const.put", "[{}, [<9000000>]]");
}

/* Jobs keep what they use, and nobody else finds it. */
static void test_dropped_while_in_use(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *watcher = wire_connect(harness_socket(daemon));
    struct tables tables = put_tables(wire);
    uint64_t job = open_job(wire, &tables);

    push(wire, &tables, job, 0);
    wire_call(wire, "const.drop", "[%lu]", tables.colors_id);
    wire_call(wire, "const.drop", "[%lu]", tables.start_id);
    put_tables(wire); /* would take the place of what is given back */
    CHECK_EQ(stat_of(watcher, "consts"), 4);
    push(wire, &tables, job, 1);
    push(wire, &tables, job, 2);
    wire_call(wire, "job.close", "[%lu]", job);
    wire_notification(wire, "job.done");
    HARNESS_WAIT(stat_of(watcher, "consts") == 2);
    wire_close(wire);
    await_empty_pool(watcher);
}

static void test_a_connection_ends(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *watcher = wire_connect(harness_socket(daemon));
    struct tables tables = put_tables(wire);
    msgpack_sbuffer buffer;

    /* With a job that uses them, and half of another in the socket. */
    wire_call(wire, "job.push", "[%lu, 0, {}, [<1000000>]]", open_job(wire, &tables));
    msgpack_sbuffer_init(&buffer);
    wire_pack(wire, &buffer, "const.put", "[{}, [<1000000>]]");
    wire_send_bytes(wire, buffer.data, buffer.size / 2);
    msgpack_sbuffer_destroy(&buffer);
    HARNESS_WAIT(stat_of(watcher, "consts") == 3);
    wire_close(wire);
    await_empty_pool(watcher);
}

/* The next worker needs to be told nothing. */
static void test_worker_dies(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct tables tables = put_tables(wire);
    uint64_t job = open_job(wire, &tables);
    uint64_t seq = 0;
    unsigned n_lost = 0;

    for (unsigned round = 0; round < 5; round++) {
        pid_t worker = harness_await_worker(daemon, 0);

        if (!try_push(wire, &tables, job, seq++, worker)) {
            wire_notification(wire, "job.done");
            job = open_job(wire, &tables);
            seq = 0;
            n_lost++;
        }
        harness_await_worker(daemon, worker);
        push(wire, &tables, job, seq++);
        check_run(wire, &tables, 100);
        harness_notified(daemon);
    }
    printf("# %u of 5 pushes were lost with their worker\n", n_lost);
    CHECK_EQ(stat_of(wire, "consts"), 2);
}

/* ---- varying inputs ------------------------------------------------------------------------- */

#define N_TEXTS 1000u

struct texts {
    uint32_t ends[N_TEXTS];
    uint16_t text[N_TEXTS * 100];
};

/* n texts of 0 to 99 elements. */
static void make_texts(struct texts *texts, uint32_t n)
{
    uint32_t end = 0;

    random_bytes(texts->text, sizeof(texts->text));
    for (uint32_t i = 0; i < n; i++) {
        end += (uint32_t)random_below(100);
        texts->ends[i] = end;
    }
}

static size_t text_size(const struct texts *texts, uint32_t n)
{
    return n > 0 ? texts->ends[n - 1] * sizeof(texts->text[0]) : 0;
}

static void check_hashes(const struct texts *texts, uint32_t n, const void *out)
{
    const uint16_t *at = texts->text;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t length = texts->ends[i] - (i > 0 ? texts->ends[i - 1] : 0), hash;
        uint64_t expected = length;

        while (length-- > 0) {
            expected = expected * 31 + *at++;
        }
        memcpy(&hash, (const uint8_t *)out + i * sizeof(hash), sizeof(hash));
        CHECK_EQ(hash, expected);
    }
}

static void check_texts(struct wire *wire, uint32_t n)
{
    struct texts *texts = random_new(sizeof(*texts));
    const msgpack_object *result;

    make_texts(texts, n);
    result = wire_call(wire, "run", "['spans', {}, {}, [%b, %b]]", texts->ends,
                       n * sizeof(texts->ends[0]), texts->text, text_size(texts, n));
    CHECK_EQ(wire_number(result, "n"), n);
    check_hashes(texts, n, wire_output(result, n * sizeof(uint64_t)));
}

static void test_runs_of_texts(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    check_texts(wire, 1);
    check_texts(wire, 2);
    check_texts(wire, N_TEXTS);
    check_texts(wire, 0);
    wire_output(
        wire_call(wire, "run", "['spans', {}, {}, [%b, <0>]]", (uint32_t[]){0, 0, 0}, (size_t)12),
        24);
    HARNESS_WAIT(stat_of(wire, "pool_used") == 0);
}

static void push_texts(struct wire *wire, uint64_t job, uint64_t seq, uint32_t n)
{
    struct texts *texts = random_new(sizeof(*texts));
    const msgpack_object *params;
    const void *out;
    size_t size;

    make_texts(texts, n);
    wire_call(wire, "job.push", "[%lu, %lu, {n: %lu}, [%b, %b]]", job, seq, (uint64_t)n,
              texts->ends, n * sizeof(texts->ends[0]), texts->text, text_size(texts, n));
    params = wire_notification(wire, "job.result");
    CHECK_EQ(wire_number(params, "2.n"), n);
    out = wire_bytes(params, "2.out.0", &size);
    CHECK_EQ(size, n * sizeof(uint64_t));
    check_hashes(texts, n, out);
}

static void test_a_job_of_texts(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *opened = wire_call(wire, "job.open", "['spans', {}, {window: 1}]");
    uint64_t job = (uint64_t)wire_number(opened, "job");

    CHECK_EQ(wire_number(opened, "in_size.0"), 4);
    CHECK_EQ(wire_number(opened, "in_size.1"), 2);
    CHECK_EQ(wire_number(opened, "max_push"), 4194304);
    for (uint64_t seq = 0; seq < 20; seq++) {
        push_texts(wire, job, seq, 1 + (uint32_t)random_below(N_TEXTS - 1)); /* none: no chunk */
    }
    CHECK_EQ(stat_of(wire, "chunks_total"), 20);
    wire_call(wire, "job.close", "[%lu]", job);
    CHECK_EQ(wire_number(wire_notification(wire, "job.done"), "1.pushes"), 20);
}

/* Each is refused whole; the job lives on, and so does the seq. */
static void test_wrong_ends(void)
{
    static const struct {
        uint32_t ends[3];
        const char *words;
    } cases[] = {
        {{2, 1, 4}, "input ends: record 1 ends at 1; it must be 2 to 4"},
        {{5, 5, 4}, "input ends: record 0 ends at 5; it must be 0 to 4"},
        {{1, 2, 5}, "input ends: record 2 ends at 5; it must be 4 to 4"},
        {{1, 2, 3}, "input ends: record 2 ends at 3; it must be 4 to 4"},
        {{1, UINT32_MAX, 4}, "input ends: record 1 ends at 4294967295; it must be 1 to 4"},
        {{0x80000000, 0, 4}, "input ends: record 0 ends at 2147483648"},
    };
    struct harness *daemon = start();
    struct wire *wire = connect_structured(daemon);
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", "['spans']"), "job");

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        REFUSED(wire, "RANGE", "ends", cases[i].words, "job.push", "[%lu, %lu, {}, [%b, <8>]]", job,
                (uint64_t)i, cases[i].ends, sizeof(cases[i].ends));
        REFUSED(wire, "RANGE", "ends", cases[i].words, "run", "['spans', {}, {}, [%b, <8>]]",
                cases[i].ends, sizeof(cases[i].ends));
        push_texts(wire, job, i, 5);
    }
    CHECK_EQ(stat_of(wire, "pushes_total"), ARRAY_SIZE(cases));
}

static void test_wrong_texts(void)
{
    struct harness *daemon = start();
    struct wire *wire = connect_structured(daemon);
    const uint32_t one = 4, big = 32770;
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['spans', {}, {max_push: 65536}]"), "job");

    REFUSED(wire, "RANGE", "text", "input text: 7 bytes are no multiple of its element of 2", "run",
            "['spans', {}, {}, [%b, <7>]]", &one, sizeof(one));
    REFUSED(wire, "INVALID_PARAM", "data", "op spans takes 2 inputs (ends, text), not 1", "run",
            "['spans', {}, {}, [%b]]", &one, sizeof(one));
    REFUSED(wire, "RANGE", "text", "8 bytes belong to no record, as input ends has none", "run",
            "['spans', {}, {}, [<0>, <8>]]");
    REFUSED(wire, "RANGE", "text", "65538 bytes belong to no record, as input ends has none",
            "job.push", "[%lu, 0, {}, [<0>, <65538>]]", job);
    REFUSED(wire, "TOO_BIG", "text", "bytes are more than the 4194304 that this push has room for",
            "run", "['spans', {}, {}, [%b, <4194306>]]", &one, sizeof(one));
    REFUSED(wire, "TOO_BIG", "data", "too many for one run", "run",
            "['spans', {}, {}, [<8388612>, <2>]]");
    REFUSED(wire, "TOO_BIG", "text", "65540 bytes are more than the 65536", "job.push",
            "[%lu, 0, {}, [%b, <65540>]]", job, &big, sizeof(big));
    REFUSED(wire, "TOO_BIG", "data", "8193 records in one push", "job.push",
            "[%lu, 0, {}, [<32772>, <2>]]", job);
    REFUSED(wire, "INVALID_PARAM", "tail", "does not take tail", "job.open",
            "['spans', {}, {tail: 'short'}]");
    push_texts(wire, job, 0, 300);
}

/* ---- bounds between parameters --------------------------------------------------------------- */

static void test_a_pitch_smaller_than_a_row(void)
{
    struct harness *daemon = start();
    struct wire *wire = connect_structured(daemon);
    struct tables tables = put_tables(wire);
    const msgpack_object *opened;

    REFUSED(wire, "RANGE", "pitch",
            "parameter \"pitch\" is 86; it must be at least width * "
            "channels, 87",
            "run",
            "['palette', {width: 29, channels: 3, pitch: 86, colors: 200}, "
            "{consts: [%lu, %lu]}, [<86>]]",
            tables.colors_id, tables.start_id);
    REFUSED(wire, "RANGE", "pitch",
            "at most 2097152; it must be at least width * channels, 4194304", "job.open",
            "['palette', {width: 1048576, channels: 4, colors: 200}]");
    opened = wire_call(wire, "job.open",
                       "['palette', {width: 29, channels: 3, colors: 200}, "
                       "{consts: [%lu, %lu]}]",
                       tables.colors_id, tables.start_id);
    CHECK_EQ(wire_number(opened, "in_size.0"), WIDTH * CHANNELS);
}

CHECK_MAIN(CHECK_TEST(test_runs_with_constants), CHECK_TEST(test_constants_do_not_mix),
           CHECK_TEST(test_op_list_shows_them), CHECK_TEST(test_wrong_constants),
           CHECK_TEST(test_wrong_uploads), CHECK_TEST(test_room_for_constants),
           CHECK_TEST(test_the_hash_of_a_constant), CHECK_TEST(test_dropped_right_behind),
           CHECK_TEST(test_gone_while_it_is_hashed), CHECK_TEST(test_dropped_while_in_use),
           CHECK_TEST(test_a_connection_ends), CHECK_TEST(test_worker_dies),
           CHECK_TEST(test_runs_of_texts), CHECK_TEST(test_a_job_of_texts),
           CHECK_TEST(test_wrong_ends), CHECK_TEST(test_wrong_texts),
           CHECK_TEST(test_a_pitch_smaller_than_a_row))
