/*
 * The codec: what each result and notification says on the wire, what a client takes of it, and
 * that both directions agree.
 */
#include "proto/codec.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/codec_text.h"

/* ---- results ------------------------------------------------------------------------------- */

static void test_hello_result(void)
{
    const struct msg_hello_result msg = {.version = "0.1.0",
                                         .api_level = 2,
                                         .api_compatible = 1,
                                         .epoch = 77,
                                         .rights = "user",
                                         .backend = "cpu"};
    struct msg_hello_result read;
    const msgpack_object *result;
    static const struct {
        const char *name;
        uint64_t value;
    } limits[] = {
#define X(name, wire, value, unit, reason) {(wire), (value)},
        LIMIT_LIST(X)
#undef X
    };

    start_packing();
    codec_pack_hello_result(&packer, 1, &msg);
    result = &parse_packed()->result;
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_hello_result(result, &read, &failure), 0);
    CHECK_MEM(&read, &msg, offsetof(struct msg_hello_result, n_limits));
    CHECK_EQ(read.n_limits, ARRAY_SIZE(limits));
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        CHECK_STR(read.limits[i].name, limits[i].name);
        CHECK_EQ(read.limits[i].value, limits[i].value);
    }
}

static void test_limits_of_another_version(void)
{
    struct msg_hello_result read;
    const msgpack_object *result =
        result_from("{'limits': {'new': 7, 8: 9, 'text': 'x', 'window': 3}}");

    CHECK_EQ(codec_unpack_hello_result(result, &read, &failure), 0);
    CHECK_EQ(read.n_limits, 2);
    CHECK_STR(read.limits[0].name, "new");
    CHECK_EQ(read.limits[1].value, 3);
}

static struct msg_answer make_answer(void)
{
    return (struct msg_answer){
        .job = 3,
        .seq = 4,
        .n = 1000,
        .credit = 1,
        .n_out = 1,
        .by = {.backend = "cpu", .device = "cpu0", .priority = PRIORITY_BULK, .path = "inline"}};
}

static void test_run_result(void)
{
    struct msg_answer msg = make_answer();
    struct msg_answer read;

    start_packing();
    msg.by.has_timing = true;
    msg.by.timing =
        (struct msg_timing){.queue_ns = 1, .in_ns = 0, .compute_ns = 70000000000, .out_ns = 2};
    codec_pack_run_result(&packer, 8, &msg);
    msgpack_pack_nil(&packer);
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_run_result(&parse_packed()->result, &read, &failure), 0);
    CHECK_EQ(read.n, 1000);
    CHECK_EQ(read.n_out, 1);
    CHECK_EQ(read.by.priority, PRIORITY_BULK);
    CHECK(read.by.has_timing);
    CHECK_EQ(read.by.timing.compute_ns, 70000000000);
    check_printed("[1, 8, nil, {\"n\"=>1000, \"backend\"=>\"cpu\", \"device\"=>\"cpu0\", "
                  "\"priority\"=>\"bulk\", \"path\"=>\"inline\", \"timing\"=>{\"queue_ns\"=>1, "
                  "\"in_ns\"=>0, \"compute_ns\"=>70000000000, \"out_ns\"=>2}, \"out\"=>[nil]}]");

    /* `out` is there even where it is empty. */
    msg.by.has_timing = false;
    msg.n_out = 0;
    codec_pack_run_result(&packer, 8, &msg);
    check_printed("[1, 8, nil, {\"n\"=>1000, \"backend\"=>\"cpu\", \"device\"=>\"cpu0\", "
                  "\"priority\"=>\"bulk\", \"path\"=>\"inline\", \"out\"=>[]}]");
}

static void test_job_result(void)
{
    struct msg_answer msg = make_answer();
    struct msg_answer read;

    start_packing();
    codec_pack_job_result(&packer, &msg, false);
    msgpack_pack_nil(&packer);
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_job_result(&parse_packed()->params, &read, &failure), 0);
    CHECK_MEM(&read, &msg, sizeof(msg));
    check_printed("[2, \"job.result\", [3, 4, {\"n\"=>1000, \"credit\"=>1, \"backend\"=>\"cpu\", "
                  "\"device\"=>\"cpu0\", \"priority\"=>\"bulk\", \"path\"=>\"inline\", "
                  "\"out\"=>[nil]}]]");
    msg.n_out = 0;
    codec_pack_job_result(&packer, &msg, false);
    check_printed("[2, \"job.result\", [3, 4, {\"n\"=>1000, \"credit\"=>1, \"backend\"=>\"cpu\", "
                  "\"device\"=>\"cpu0\", \"priority\"=>\"bulk\", \"path\"=>\"inline\"}]]");
}

static void test_job_result_with_an_error(void)
{
    start_packing();
    for (int is_structured = 0; is_structured <= 1; is_structured++) {
        struct msg_answer msg = make_answer();
        struct msg_answer read;

        msg.has_failure = true;
        fail(&msg.failure, STATUS_DEVICE_LOST, "device", "gone");
        codec_pack_job_result(&packer, &msg, is_structured);
        memset(&read, 0xa5, sizeof(read));
        CHECK_EQ(codec_unpack_job_result(&parse_packed()->params, &read, &failure), 0);
        CHECK(read.has_failure);
        CHECK_EQ(read.n_out, 0);
        CHECK_EQ(read.failure.status, STATUS_DEVICE_LOST);
        CHECK_STR(read.failure.message, "gone");
        CHECK_STR(read.failure.field, is_structured ? "device" : "");
        msgpack_sbuffer_clear(&buffer);
    }
}

static void test_event(void)
{
    struct msg_event msg = {.kind = EVENT_DEVICE, .device = "cpu0", .state = "ready", .lost = 3};
    struct msg_event read;

    start_packing();
    codec_pack_event(&packer, &msg);
    CHECK_EQ(codec_unpack_event(&parse_packed()->params, &read, &failure), 0);
    CHECK_EQ(read.kind, EVENT_DEVICE);
    CHECK_STR(read.device, "cpu0");
    CHECK_STR(read.state, "ready");
    CHECK_STR(read.reason, "");
    CHECK_EQ(read.lost, 3);
}

static void test_job_done(void)
{
    struct msg_job_done msg = {.job = 3, .state = JOB_DONE, .pushes = 2, .n = 20, .n_out = 1};
    struct msg_job_done read;

    start_packing();
    codec_pack_job_done(&packer, &msg, false);
    msgpack_pack_nil(&packer);
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_job_done(&parse_packed()->params, &read, &failure), 0);
    CHECK_MEM(&read, &msg, sizeof(msg));
    check_printed("[2, \"job.done\", [3, {\"state\"=>\"done\", \"pushes\"=>2, \"n\"=>20, "
                  "\"out\"=>[nil]}]]");
    msg.state = JOB_FAILED;
    msg.has_failure = true;
    fail(&msg.failure, STATUS_CANCELLED, NULL, "why");
    codec_pack_job_done(&packer, &msg, false);
    check_printed("[2, \"job.done\", [3, {\"state\"=>\"failed\", \"pushes\"=>2, \"n\"=>20, "
                  "\"error\"=>\"CANCELLED: why\"}]]");
    codec_pack_job_done(&packer, &msg, true);
    check_printed("[2, \"job.done\", [3, {\"state\"=>\"failed\", \"pushes\"=>2, \"n\"=>20, "
                  "\"error\"=>[\"CANCELLED\", \"why\", {}]}]]");
}

static void test_job_results_of_requests(void)
{
    const struct msg_job_opened msg = {.job = 9,
                                       .token = "0123456789abcdef0123456789abcdef",
                                       .credit = 3,
                                       .max_push = 4194304,
                                       .push_multiple = 1024,
                                       .n_in = 2,
                                       .n_out = 1,
                                       .in_size = {4, 8},
                                       .out_size = {4}};
    struct msg_job_opened read;
    struct msg_job_closed closed;
    struct msg_job_state state;
    struct msg_const_put_result put = {.id = 31, .sha256 = "0123456789abcdef"}, put_read;

    start_packing();
    codec_pack_job_opened(&packer, 5, &msg);
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_job_opened(&parse_packed()->result, &read, &failure), 0);
    CHECK_MEM(&read, &msg, sizeof(msg));
    check_printed("[1, 5, nil, {\"job\"=>9, \"token\"=>\"0123456789abcdef0123456789abcdef\", "
                  "\"credit\"=>3, \"max_push\"=>4194304, "
                  "\"push_multiple\"=>1024, \"in_size\"=>[4, 8], \"out_size\"=>[4]}]");
    codec_pack_job_closed(&packer, 6, &(struct msg_job_closed){.pushed = 12});
    CHECK_EQ(codec_unpack_job_closed(&parse_packed()->result, &closed, &failure), 0);
    CHECK_EQ(closed.pushed, 12);
    check_printed("[1, 6, nil, {\"pushed\"=>12}]");
    codec_pack_job_state(&packer, 7, &(struct msg_job_state){.state = JOB_CANCELLED});
    CHECK_EQ(codec_unpack_job_state(&parse_packed()->result, &state, &failure), 0);
    CHECK_EQ(state.state, JOB_CANCELLED);
    check_printed("[1, 7, nil, {\"state\"=>\"cancelled\"}]");
    codec_pack_const_put_result(&packer, 7, &put);
    memset(&put_read, 0xa5, sizeof(put_read));
    CHECK_EQ(codec_unpack_const_put_result(&parse_packed()->result, &put_read, &failure), 0);
    CHECK_EQ(put_read.id, put.id);
    CHECK_STR(put_read.sha256, put.sha256);
    check_printed("[1, 7, nil, {\"const\"=>31, \"sha256\"=>\"0123456789abcdef\"}]");
    codec_pack_nil_result(&packer, 8);
    check_printed("[1, 8, nil, nil]");
    codec_pack_empty_result(&packer, 9);
    check_printed("[1, 9, nil, {}]");
}

static void test_job_list_result(void)
{
    const struct msg_job_entry entries[] = {
        {1, "saxpy", JOB_OPEN, PRIORITY_URGENT, 5, 3, 2, "0123456789abcdef0123456789abcdef"},
        {2, "sum", JOB_EXPIRED, PRIORITY_BULK, 1, 1},
    };
    struct msg_job_entry *read = NULL;
    uint32_t n_read = 99;

    start_packing();
    codec_pack_job_list_result(&packer, 1, entries, 2);
    CHECK_EQ(codec_unpack_job_list_result(&parse_packed()->result, &read, &n_read, &failure), 0);
    check_at_end(free, read);
    CHECK_EQ(n_read, 2);
    CHECK_MEM(read, entries, sizeof(entries));
    msgpack_sbuffer_clear(&buffer);
    codec_pack_job_list_result(&packer, 1, NULL, 0);
    CHECK_EQ(codec_unpack_job_list_result(&parse_packed()->result, &read, &n_read, &failure), 0);
    CHECK_EQ(n_read, 0);
}

static void test_device_list_result(void)
{
    const struct msg_device devices[] = {
        {"cpu0", "A Processor", "", "ready", "cpu", "no GPU", -1, 1234567890123},
    };
    struct msg_device *read = NULL;
    uint32_t n_read = 99;

    start_packing();
    codec_pack_device_list_result(&packer, 1, devices, 1);
    CHECK_EQ(codec_unpack_device_list_result(&parse_packed()->result, &read, &n_read, &failure), 0);
    check_at_end(free, read);
    CHECK_EQ(n_read, 1);
    CHECK_MEM(read, devices, sizeof(devices));
}

static void test_stats(void)
{
    struct msg_stats msg = {.version = "1", .backend = "cpu", .reason = "asked for"};
    struct msg_stats read;
    uint64_t next = 1000;

#define X(field, doc) msg.field = next *= 3;
    STATS_LIST(X)
#undef X
    msg.n_queues = PRIORITY_COUNT;
    for (uint32_t i = 0; i < PRIORITY_COUNT; i++) {
        msg.queues[i] = (struct msg_queue){i, {1 + i, 2, 3, 4, 5, UINT64_MAX}, 7};
    }
    msg.n_devices = LIMIT_DEVICES;
    for (uint32_t i = 0; i < LIMIT_DEVICES; i++) {
        msg.devices[i] = (struct msg_device_load){"cuda31", {1, 2, 3, 4, 5, 6 + i}};
    }
    msg.n_users = LIMIT_USERS_LISTED;
    for (uint32_t i = 0; i < LIMIT_USERS_LISTED; i++) {
        msg.users[i] = (struct msg_user){UINT32_MAX - i, {1, 2, 3, 4, 5, 6}, 7, -8};
    }
    start_packing();
    codec_pack_stats(&packer, 1, &msg);
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_stats(&parse_packed()->result, &read, &failure), 0);
    CHECK_MEM(&read, &msg, sizeof(msg));
}

/* ---- op.list ------------------------------------------------------------------------------- */

static struct manifest_op make_op(void)
{
    return (struct manifest_op){
        .kind = OP_REDUCE,
        .name = "blend",
        .doc = "Everything a manifest can say.",
        .n_in = 4,
        .n_consts = 1,
        .n_out = 1,
        .n_params = 5,
        .in = {{.name = "x", .dtype = DTYPE_F32},
               {.name = "y", .dtype = DTYPE_U8, .n_dims = 2, .dims = {{3, ""}, {0, "block"}}},
               {.name = "to", .dtype = DTYPE_U32, .is_ends = 1},
               {.name = "text", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{0, MANIFEST_VARYING}}}},
        .consts = {{.name = "w", .dtype = DTYPE_U16, .n_dims = 1, .dims = {{0, "block"}}}},
        .out = {{.name = "z", .dtype = DTYPE_C64, .n_dims = 1, .dims = {{32, ""}}}},
        .params = {{.name = "block",
                    .type = PARAM_U32,
                    .is_bounded = true,
                    .i_default = 4096,
                    .i_min = 1,
                    .i_max = 1 << 20},
                   {.name = "a", .type = PARAM_F32, .is_required = true},
                   {.name = "b",
                    .type = PARAM_F64,
                    .is_bounded = true,
                    .f_default = 0.5,
                    .f_min = -1,
                    .f_max = 1e9},
                   {.name = "mode",
                    .type = PARAM_CHOICE,
                    .i_default = 1,
                    .n_choices = 2,
                    .choices = {"lo", "hi"}},
                   {.name = "pitch",
                    .type = PARAM_I64,
                    .is_bounded = true,
                    .i_max = 99,
                    .n_at_least = 2,
                    .at_least = {"block", "block"}}},
        .tails = TAIL_BIT(TAIL_SHORT),
        .min_parallel = 64,
        .leaf = 1024,
        .tolerance = 1.5};
}

static void test_op_list_result(void)
{
    const struct manifest_op op = make_op();
    const struct manifest_op *const ops[] = {&op, &op};
    struct manifest_op *read = NULL;
    uint32_t n_read = 99;

    start_packing();
    codec_pack_op_list_result(&packer, 1, ops, 2, "cpu");
    CHECK_EQ(codec_unpack_op_list_result(&parse_packed()->result, &read, &n_read, &failure), 0);
    check_at_end(free, read);
    CHECK_EQ(n_read, 2);
    CHECK_MEM(&read[0], &op, sizeof(op));
    CHECK_MEM(&read[1], &op, sizeof(op));
    msgpack_sbuffer_clear(&buffer);
    codec_pack_op_list_result(&packer, 1, ops, 1, "cpu");
    check_printed(
        "[1, 1, nil, [{\"name\"=>\"blend\", \"doc\"=>\"Everything a manifest can say.\", "
        "\"kind\"=>\"reduce\", \"in\"=>[{\"name\"=>\"x\", \"dtype\"=>\"f32\", \"shape\"=>[]}, "
        "{\"name\"=>\"y\", \"dtype\"=>\"u8\", \"shape\"=>[3, \"block\"]}, "
        "{\"name\"=>\"to\", \"dtype\"=>\"u32\", \"shape\"=>[], \"ends\"=>true}, "
        "{\"name\"=>\"text\", \"dtype\"=>\"u8\", \"shape\"=>[\"*\"]}], "
        "\"const\"=>[{\"name\"=>\"w\", \"dtype\"=>\"u16\", \"shape\"=>[\"block\"]}], "
        "\"out\"=>[{\"name\"=>\"z\", \"dtype\"=>\"c64\", \"shape\"=>[32]}], "
        "\"params\"=>[{\"name\"=>\"block\", \"type\"=>\"u32\", \"default\"=>4096, \"min\"=>1, "
        "\"max\"=>1048576}, {\"name\"=>\"a\", \"type\"=>\"f32\", \"required\"=>true}, "
        "{\"name\"=>\"b\", \"type\"=>\"f64\", \"default\"=>0.500000, \"min\"=>-1.000000, "
        "\"max\"=>1000000000.000000}, "
        "{\"name\"=>\"mode\", \"type\"=>\"choice\", \"choices\"=>[\"lo\", \"hi\"], "
        "\"default\"=>\"hi\"}, {\"name\"=>\"pitch\", \"type\"=>\"i64\", \"default\"=>0, "
        "\"min\"=>0, \"max\"=>99, \"at_least\"=>[\"block\", \"block\"]}], \"tail\"=>[\"error\", "
        "\"short\"], \"min_parallel\"=>64, "
        "\"leaf\"=>1024, \"tolerance\"=>1.500000, \"backends\"=>[\"cpu\"]}]]");
}

/* ---- what a later or broken server may send ------------------------------------------------- */

static void test_results_ignore_unknown_keys(void)
{
    struct msg_job_opened opened;
    struct msg_answer answer;

    CHECK_EQ(
        codec_unpack_job_opened(result_from("{'later': {'x': [1]}, 7: nil, 'job': 1, 'credit': 2, "
                                            "'max_push': 3}"),
                                &opened, &failure),
        0);
    CHECK_EQ(opened.push_multiple, 1);
    CHECK_EQ(opened.n_in, 0);
    CHECK_EQ(codec_unpack_job_result(
                 params_from("[1, 2, {'n': 3, 'credit': 1, 'weather': 'fine'}, 'more']"), &answer,
                 &failure),
             0);
    CHECK_EQ(answer.by.priority, PRIORITY_NORMAL);
}

static void test_broken_results(void)
{
    struct msg_job_opened opened;
    struct msg_job_done done;
    struct msg_job_entry *entries = NULL;
    struct manifest_op *ops = NULL;
    uint32_t n = 7;

    CHECK_EQ(codec_unpack_job_opened(result_from("nil"), &opened, &failure), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "nil, not a map");
    CHECK_EQ(codec_unpack_job_opened(result_from("{'job': 1}"), &opened, &failure),
             -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "key \"credit\" is missing");
    CHECK_EQ(codec_unpack_job_opened(
                 result_from("{'job': 1, 'credit': 1, 'max_push': 1, 'in_size': [1, -2]}"), &opened,
                 &failure),
             -STATUS_RANGE);
    CHECK_STR(failure.message, "key \"in_size\": -2 is less than 0");
    CHECK_EQ(codec_unpack_job_opened(
                 result_from("{'job': 1, 'credit': 1, 'max_push': 1, 'in_size': [1, 2, 3, 4, 5]}"),
                 &opened, &failure),
             -STATUS_INVALID_PARAM);
    CHECK_EQ(codec_unpack_job_done(params_from("[1]"), &done, &failure), -STATUS_INVALID_PARAM);
    CHECK_EQ(codec_unpack_job_done(params_from("[1, {'state': 'lost'}]"), &done, &failure),
             -STATUS_RANGE);
    CHECK_EQ(codec_unpack_job_list_result(result_from("{}"), &entries, &n, &failure),
             -STATUS_INVALID_PARAM);
    CHECK_EQ(codec_unpack_job_list_result(result_from("[{'job': 1}, {}]"), &entries, &n, &failure),
             -STATUS_INVALID_PARAM);
    CHECK_EQ(codec_unpack_op_list_result(
                 result_from("[{'name': 'x', 'kind': 'map', 'in': [{'name': 'a', 'dtype': 'u8', "
                             "'shape': [0]}], 'out': []}]"),
                 &ops, &n, &failure),
             -STATUS_RANGE);
    CHECK_EQ(codec_unpack_op_list_result(
                 result_from("[{'name': 'x', 'kind': 'map', 'in': [], 'out': [], 'tail': 5}]"),
                 &ops, &n, &failure),
             -STATUS_INVALID_PARAM);
    CHECK_EQ(codec_unpack_op_list_result(
                 result_from("[{'name': 'x', 'kind': 'map', 'in': [], 'out': [], 'params': "
                             "[{'name': 'p', 'type': 'f32', 'min': 'low'}]}]"),
                 &ops, &n, &failure),
             -STATUS_INVALID_PARAM);
    CHECK(entries == NULL);
    CHECK(ops == NULL);
    CHECK_EQ(n, 7);
}

CHECK_MAIN(CHECK_TEST(test_hello_result), CHECK_TEST(test_limits_of_another_version),
           CHECK_TEST(test_run_result), CHECK_TEST(test_job_result),
           CHECK_TEST(test_job_result_with_an_error), CHECK_TEST(test_event),
           CHECK_TEST(test_job_done), CHECK_TEST(test_job_results_of_requests),
           CHECK_TEST(test_job_list_result), CHECK_TEST(test_device_list_result),
           CHECK_TEST(test_stats), CHECK_TEST(test_op_list_result),
           CHECK_TEST(test_results_ignore_unknown_keys), CHECK_TEST(test_broken_results))
