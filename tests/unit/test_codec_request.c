/* The codec: what each request may say, and what is refused of it. */
#include "proto/codec.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/codec_text.h"

/* ---- requests ------------------------------------------------------------------------------ */

static void test_hello(void)
{
    struct msg_hello msg;

    memset(&msg, 0xa5, sizeof(msg));
    CHECK_EQ(codec_unpack_hello(params_from("[]"), &msg, &failure), 0);
    CHECK_STR(msg.program, "");
    CHECK_EQ(msg.api, 0);
    CHECK(!msg.wants_structured);
    CHECK_EQ(
        codec_unpack_hello(params_from("[{'errors': 'structured', 'api': 3, 'program': 'a\nb'}]"),
                           &msg, &failure),
        0);
    CHECK_STR(msg.program, "a?b");
    CHECK_EQ(msg.api, 3);
    CHECK(msg.wants_structured);
    CHECK_EQ(codec_unpack_hello(params_from("[{'errors': 'string'}]"), &msg, &failure), 0);
    CHECK(!msg.wants_structured);
}

static void test_text_for_people_is_cut(void)
{
    struct msg_hello msg;

    CHECK_EQ(codec_unpack_hello(params_from("[{'program': '0123456789012345678901234567890123456789"
                                            "012345678901234567890123456789'}]"),
                                &msg, &failure),
             0);
    CHECK_EQ(strlen(msg.program), sizeof(msg.program) - 1);
}

static void test_run_with_everything(void)
{
    struct msg_run msg;

    memset(&msg, 0xa5, sizeof(msg));
    CHECK_EQ(codec_unpack_run(
                 params_from("['saxpy', {'a': 2.5, 'mode': 'fast', 'n': -7}, {'priority': 'urgent',"
                             " 'deadline_ns': 5000000000, 'require': 'gpu', 'tail': 'short',"
                             " 'device': 'cuda1', 'timing': true, 'consts': [7, 9007199254740991],"
                             " 'after': [5, '0123456789abcdef0123456789abcdef', 0]},"
                             " [nil, nil]]"),
                 &msg, &failure),
             0);
    CHECK_STR(msg.op.name, "saxpy");
    CHECK_EQ(msg.op.n_values, 3);
    CHECK_STR(msg.op.values[0].name, "a");
    CHECK_EQ(msg.op.values[0].kind, VALUE_FLOAT);
    CHECK(msg.op.values[0].f == 2.5);
    CHECK_EQ(msg.op.values[1].kind, VALUE_STRING);
    CHECK_STR(msg.op.values[1].s, "fast");
    CHECK_EQ(msg.op.values[2].kind, VALUE_INT);
    CHECK_EQ(msg.op.values[2].i, -7);
    CHECK_EQ(msg.options.priority, PRIORITY_URGENT);
    CHECK_EQ(msg.options.deadline_ns, 5000000000);
    CHECK_EQ(msg.options.require, REQUIRE_GPU);
    CHECK_EQ(msg.options.tail, TAIL_SHORT);
    CHECK_STR(msg.options.device, "cuda1");
    CHECK(msg.options.wants_timing);
    CHECK_EQ(msg.options.n_consts, 2);
    CHECK_EQ(msg.options.consts[0], 7);
    CHECK_EQ(msg.options.consts[1], (UINT64_C(1) << 53) - 1);
    CHECK_EQ(msg.options.n_after, 3);
    CHECK_EQ(msg.options.after[0].job, 5);
    CHECK_STR(msg.options.after[0].token, "");
    CHECK_STR(msg.options.after[1].token, "0123456789abcdef0123456789abcdef");
    CHECK_STR(msg.options.after[2].token, "");
    CHECK_EQ(msg.options.after[2].job, 0);
    CHECK_EQ(msg.n_data, 2);
}

static void test_run_with_defaults(void)
{
    static const char *const texts[] = {"['copy']", "['copy', nil, nil, nil]",
                                        "['copy', {}, {}, []]",
                                        "['copy', {}, {'priority': nil, 'device': nil}]"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct msg_run msg;

        memset(&msg, 0xa5, sizeof(msg));
        CHECK_EQ(codec_unpack_run(params_from(texts[i]), &msg, &failure), 0);
        CHECK_EQ(msg.op.n_values, 0);
        CHECK_EQ(msg.options.priority, PRIORITY_NORMAL);
        CHECK_EQ(msg.options.deadline_ns, 0);
        CHECK_EQ(msg.options.require, REQUIRE_ANY);
        CHECK_EQ(msg.options.tail, TAIL_ERROR);
        CHECK_STR(msg.options.device, "");
        CHECK(!msg.options.wants_timing);
        CHECK_EQ(msg.options.n_consts, 0);
        CHECK_EQ(msg.options.n_after, 0);
        CHECK_EQ(msg.n_data, 0);
    }
}

static void test_job_open_options(void)
{
    struct msg_job_open msg;

    CHECK_EQ(codec_unpack_job_open(params_from("['sum', nil, {'window': 64, 'max_push': 65536, "
                                               "'ordered': false, 'priority': 'bulk'}]"),
                                   &msg, &failure),
             0);
    CHECK_EQ(msg.options.window, 64);
    CHECK_EQ(msg.options.max_push, 65536);
    CHECK(msg.options.is_unordered);
    CHECK_EQ(msg.options.priority, PRIORITY_BULK);
    CHECK_EQ(codec_unpack_job_open(params_from("['sum', {}, {'ordered': true}]"), &msg, &failure),
             0);
    CHECK(!msg.options.is_unordered);
    CHECK_EQ(msg.options.window, 0);
}

static void test_job_push(void)
{
    struct msg_job_push msg;

    CHECK_EQ(
        codec_unpack_job_push(params_from("[9007199254740991, 3, {'n': 0}, [nil, nil, nil, nil]]"),
                              &msg, &failure),
        0);
    CHECK_EQ(msg.job, (UINT64_C(1) << 53) - 1);
    CHECK_EQ(msg.seq, 3);
    CHECK(msg.has_n);
    CHECK_EQ(msg.n, 0);
    CHECK_EQ(msg.n_data, 4);
    CHECK_EQ(codec_unpack_job_push(params_from("[0, 0]"), &msg, &failure), 0);
    CHECK(!msg.has_n);
    CHECK_EQ(msg.n_data, 0);
}

static void test_small_requests(void)
{
    struct msg_job job;
    struct msg_job_list job_list;
    struct msg_subscribe subscribe;
    struct msg_op_list op_list;
    struct msg_const_put put;
    struct msg_const constant;

    CHECK_EQ(codec_unpack_const_put(params_from("[{}, [nil]]"), &put, &failure), 0);
    CHECK_EQ(put.n_data, 1);
    CHECK_EQ(codec_unpack_const_put(params_from("[nil, []]"), &put, &failure), 0);
    CHECK_EQ(put.n_data, 0);
    CHECK_EQ(codec_unpack_const_drop(params_from("[3]"), &constant, &failure), 0);
    CHECK_EQ(constant.id, 3);
    CHECK_EQ(codec_unpack_job(params_from("[12]"), &job, &failure), 0);
    CHECK_EQ(job.job, 12);
    CHECK_EQ(codec_unpack_job_list(params_from("[{'all': true}]"), &job_list, &failure), 0);
    CHECK(job_list.is_all);
    CHECK_EQ(codec_unpack_job_list(params_from("[]"), &job_list, &failure), 0);
    CHECK(!job_list.is_all);
    CHECK_EQ(codec_unpack_subscribe(params_from("[['drain', 'device']]"), &subscribe, &failure), 0);
    CHECK_EQ(subscribe.n_kinds, 2);
    CHECK_EQ(subscribe.kinds[0], EVENT_DRAIN);
    CHECK_EQ(subscribe.kinds[1], EVENT_DEVICE);
    CHECK_EQ(codec_unpack_op_list(params_from("[{'name': 'sha256'}]"), &op_list, &failure), 0);
    CHECK_STR(op_list.name, "sha256");
    CHECK_EQ(codec_unpack_op_list(params_from("[nil]"), &op_list, &failure), 0);
    CHECK_STR(op_list.name, "");
}

/* ---- refusals ------------------------------------------------------------------------------ */

enum request { HELLO, OP_LIST, RUN, OPEN, PUSH, JOB, CONST_PUT, CONST_DROP, JOB_LIST };

static int unpack_request(enum request request, const msgpack_object_array *params, void *ret_msg)
{
    switch (request) {
    case HELLO:
        return codec_unpack_hello(params, ret_msg, &failure);
    case OP_LIST:
        return codec_unpack_op_list(params, ret_msg, &failure);
    case RUN:
        return codec_unpack_run(params, ret_msg, &failure);
    case OPEN:
        return codec_unpack_job_open(params, ret_msg, &failure);
    case PUSH:
        return codec_unpack_job_push(params, ret_msg, &failure);
    case JOB:
        return codec_unpack_job(params, ret_msg, &failure);
    case CONST_PUT:
        return codec_unpack_const_put(params, ret_msg, &failure);
    case CONST_DROP:
        return codec_unpack_const_drop(params, ret_msg, &failure);
    default:
        return codec_unpack_job_list(params, ret_msg, &failure);
    }
}

struct refusal {
    enum request request;
    const char *params;
    enum status status;
    const char *field;
    const char *message;
};

static const struct refusal refusals[] = {
    /* keys */
    {HELLO, "[{'progam': 'x'}]", STATUS_INVALID_PARAM, "progam",
     "no option \"progam\"; there is program, api, errors"},
    {HELLO, "[{'a\nb': 'x'}]", STATUS_INVALID_PARAM, "a?b",
     "no option \"a?b\"; there is program, api, errors"},
    {HELLO, "[{5: 'x'}]", STATUS_INVALID_PARAM, "options",
     "parameter \"options\": an option has an integer as its key"},
    {HELLO, "[{'api': 1, 'api': 1}]", STATUS_INVALID_PARAM, "api",
     "option \"api\" stands there twice"},
    {RUN, "['copy', {}, {'window': 4}]", STATUS_INVALID_PARAM, "window",
     "no option \"window\"; there is priority, deadline_ns, require, tail, device, timing, admit, "
     "after, consts"},
    {CONST_PUT, "[{'device': 1}, [nil]]", STATUS_INVALID_PARAM, "device",
     "no option \"device\"; there is none"},
    {OPEN, "['copy', {}, {'after': [1, '']}]", STATUS_INVALID_PARAM, "after",
     "option \"after\": must be a job's number or its token"},
    {OPEN, "['copy', {}, {'after': [1.5]}]", STATUS_INVALID_PARAM, "after",
     "option \"after\": must be an integer, not a float"},
    {RUN, "['copy', {}, {'after': ['0123456789012345678901234567890123']}]", STATUS_RANGE, "after",
     "option \"after\": 34 bytes are more than 32"},
    {PUSH, "[1, 0, {'out': [[1, 64]]}]", STATUS_INVALID_PARAM, "out",
     "option \"out\": must be [ring, offset, length]"},
    {PUSH, "[1, 0, {'out': [[1, 64, 1], [1, 64, 1], [1, 64, 1]]}]", STATUS_INVALID_PARAM, "out",
     "option \"out\": 3 elements are more than 2"},
    {PUSH, "[1, 0, {}, [[1, 0, -1]]]", STATUS_RANGE, "data",
     "parameter \"data\": -1 is less than 0"},
    {PUSH, "[1, 0, {}, [[1, 0, 64], nil]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": must be [ring, offset, length]"},
    {PUSH, "[1, 0, {}, [nil, [1, 0, 64]]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": a Ref among bytes; only job.push takes Refs, and then all data are some"},
    /* types */
    {HELLO, "[5]", STATUS_INVALID_PARAM, "options",
     "parameter \"options\": must be a map, not an integer"},
    {HELLO, "[{'errors': true}]", STATUS_INVALID_PARAM, "errors",
     "option \"errors\": must be a string, not a bool"},
    {HELLO, "[{'program': <3>}]", STATUS_INVALID_PARAM, "program",
     "option \"program\": must be a string, not bin"},
    {HELLO, "[{'api': 1.0}]", STATUS_INVALID_PARAM, "api",
     "option \"api\": must be an integer, not a float"},
    {OP_LIST, "[{'name': ['x']}]", STATUS_INVALID_PARAM, "name",
     "option \"name\": must be a string, not an array"},
    {RUN, "[nil]", STATUS_INVALID_PARAM, "op", "parameter \"op\" is missing"},
    {RUN, "[]", STATUS_INVALID_PARAM, "op", "parameter \"op\" is missing"},
    {RUN, "[<4>]", STATUS_INVALID_PARAM, "op", "parameter \"op\": must be a string, not bin"},
    {RUN, "['copy', [1]]", STATUS_INVALID_PARAM, "params", "parameter \"params\": must be a map"},
    {RUN, "['copy', {}, [1]]", STATUS_INVALID_PARAM, "options",
     "parameter \"options\": must be a map, not an array"},
    {RUN, "['copy', {}, {'timing': 1}]", STATUS_INVALID_PARAM, "timing",
     "option \"timing\": must be true or false, not an integer"},
    {RUN, "['copy', {}, {}, {}]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": must be an array, not a map"},
    {RUN, "['copy', {}, {}, [5]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": must be payloads (bin), not an integer"},
    {RUN, "['copy', {}, {}, [~]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": must be payloads (bin), not ext"},
    {PUSH, "[nil, 0]", STATUS_INVALID_PARAM, "job", "parameter \"job\" is missing"},
    {PUSH, "['1', 0]", STATUS_INVALID_PARAM, "job",
     "parameter \"job\": must be an integer, not a string"},
    {JOB, "[nil]", STATUS_INVALID_PARAM, "job", "parameter \"job\" is missing"},
    {RUN, "['copy', {}, {'consts': 7}]", STATUS_INVALID_PARAM, "consts",
     "option \"consts\": must be an array, not an integer"},
    {RUN, "['copy', {}, {'consts': [1, 'x']}]", STATUS_INVALID_PARAM, "consts",
     "option \"consts\": must be an integer, not a string"},
    {CONST_DROP, "[nil]", STATUS_INVALID_PARAM, "const", "parameter \"const\" is missing"},
    {CONST_DROP, "['1']", STATUS_INVALID_PARAM, "const",
     "parameter \"const\": must be an integer, not a string"},
    {JOB_LIST, "[{'all': 'yes'}]", STATUS_INVALID_PARAM, "all",
     "option \"all\": must be true or false, not a string"},
    /* ranges */
    {OPEN, "['copy', {}, {'window': 65}]", STATUS_RANGE, "window",
     "option \"window\": 65 is more than 64"},
    {OPEN, "['copy', {}, {'window': 0}]", STATUS_RANGE, "window",
     "option \"window\": 0 is less than 1"},
    {OPEN, "['copy', {}, {'max_push': 16777217}]", STATUS_RANGE, "max_push",
     "option \"max_push\": 16777217 is more than 16777216"},
    {OPEN, "['copy', {}, {'max_push': 65535}]", STATUS_RANGE, "max_push",
     "option \"max_push\": 65535 is less than 65536"},
    {RUN, "['copy', {}, {'priority': 'fast'}]", STATUS_RANGE, "priority",
     "option \"priority\": \"fast\" is none of urgent, normal, bulk"},
    {RUN, "['copy', {}, {'require': 'tpu'}]", STATUS_RANGE, "require",
     "option \"require\": \"tpu\" is none of any, gpu, cpu"},
    {RUN, "['copy', {}, {'deadline_ns': -1}]", STATUS_RANGE, "deadline_ns",
     "option \"deadline_ns\": -1 is less than 0"},
    {RUN, "['copy', {}, {'deadline_ns': 9007199254740992}]", STATUS_RANGE, "deadline_ns",
     "option \"deadline_ns\": 9007199254740992 is more than 9007199254740991"},
    {RUN, "['a234567890123456789012345678901x']", STATUS_RANGE, "op",
     "parameter \"op\": 32 bytes are more than 31"},
    {RUN, "['a\tb']", STATUS_INVALID_PARAM, "op",
     "parameter \"op\": byte 1 is not printable ASCII"},
    {HELLO, "[{'api': 4294967296}]", STATUS_RANGE, "api",
     "option \"api\": 4294967296 is more than 4294967295"},
    {PUSH, "[9007199254740992, 0]", STATUS_RANGE, "job",
     "parameter \"job\": 9007199254740992 is more than 9007199254740991"},
    {RUN, "['copy', {}, {'consts': [1, 9007199254740992]}]", STATUS_RANGE, "consts",
     "option \"consts\": 9007199254740992 is more than 9007199254740991"},
    {CONST_DROP, "[-1]", STATUS_RANGE, "const", "parameter \"const\": -1 is less than 0"},
    {JOB, "[-1]", STATUS_RANGE, "job", "parameter \"job\": -1 is less than 0"},
    /* the op's own parameters */
    {RUN, "['copy', {'a': 1, 'a': 2}]", STATUS_INVALID_PARAM, "a",
     "parameter \"a\" stands there twice"},
    {RUN, "['copy', {'a': true}]", STATUS_INVALID_PARAM, "a",
     "parameter \"a\": neither a number nor a string"},
    {RUN, "['copy', {'a': 18446744073709551615}]", STATUS_RANGE, "a",
     "parameter \"a\": does not fit into 64 bits"},
    {RUN, "['copy', {'a': 'a234567890123456789012345678901x'}]", STATUS_RANGE, "a",
     "parameter \"a\": 32 bytes are more than 31"},
    {RUN, "['copy', {7: 1}]", STATUS_INVALID_PARAM, "params",
     "parameter \"params\": must be a string, not an integer"},
    {RUN,
     "['copy', {'a':1,'b':1,'c':1,'d':1,'e':1,'f':1,'g':1,'h':1,'i':1,'j':1,'k':1,'l':1,'m':1,"
     "'n':1,'o':1,'p':1,'q':1}]",
     STATUS_INVALID_PARAM, "params", "parameter \"params\": 17 are more than 16"},
    /* counts, and what comes later */
    {RUN, "['copy', {}, {}, [nil, nil, nil, nil, nil]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": 5 arrays are more than 4"},
    {RUN, "['copy', {}, {'consts': [1, 2, 3]}]", STATUS_INVALID_PARAM, "consts",
     "option \"consts\": 3 elements are more than 2"},
    {CONST_PUT, "[{}, [nil, nil]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": 2 arrays are more than 1"},
    {RUN, "['copy', {}, {}, [[1, 0, 64]]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": a Ref among bytes; only job.push takes Refs, and then all data are some"},
    {OPEN, "[[['copy', {}]]]", STATUS_INVALID_PARAM, "op",
     "parameter \"op\": chains are not in this version; run one op after the other, each on the "
     "output of the one before"},
    {JOB, "[1, 2]", STATUS_INVALID_PARAM, "", "2 parameters are more than 1"},
};

/* However wrong the rest is: whose push was it? */
static void test_the_job_of_a_push(void)
{
    CHECK_EQ(codec_peek_job(params_from("[5, 0, {}, []]")), 5);
    CHECK_EQ(codec_peek_job(params_from("[7, 'zero', 8, 9, 10]")), 7);
    CHECK_EQ(codec_peek_job(params_from("[9]")), 9);
    CHECK_EQ(codec_peek_job(params_from("[]")), 0);
    CHECK_EQ(codec_peek_job(params_from("[-5]")), 0);
    CHECK_EQ(codec_peek_job(params_from("['5', 0]")), 0);
    CHECK_EQ(codec_peek_job(params_from("[nil, 0]")), 0);
}

static void test_refusals(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
        const struct refusal *refusal = &refusals[i];
        static uint8_t msg[sizeof(struct msg_run)], before[sizeof(msg)];
        struct parsed parsed;
        char whole[1024];

        printf("# %s\n", refusal->message);
        snprintf(whole, sizeof(whole), "[2, 'test', %s]", refusal->params);
        wire_from(&parsed.wire, whole);
        CHECK_EQ(rpc_parse(parsed.wire.bytes, parsed.wire.size, &parsed.message, &failure), 0);
        memset(msg, 0xa5, sizeof(msg));
        memset(before, 0xa5, sizeof(before));
        memset(&failure, 0xa5, sizeof(failure));
        int r = unpack_request(refusal->request, &parsed.message.params, msg);
        rpc_finish(&parsed.message);
        CHECK_EQ(r, -(int)refusal->status);
        CHECK_EQ(failure.status, refusal->status);
        CHECK_STR(failure.message, refusal->message);
        CHECK_STR(failure.field, refusal->field);
        CHECK_MEM(msg, before, sizeof(msg));
    }
}

/* ---- requests on the wire ------------------------------------------------------------------- */

static void test_packed_requests(void)
{
    struct msg_run run = {.op = {.name = "saxpy", .n_values = 2}, .n_data = 2};
    struct msg_job_open open = {.op = {.name = "sum"}};
    struct msg_hello hello = {.program = "test", .api = 1, .wants_structured = true};
    struct msg_job_push push = {.job = 5, .seq = 6, .has_n = true, .n_data = 1};

    start_packing();
    codec_pack_hello(&packer, 1, &hello);
    check_printed("[0, 1, \"hello\", [{\"program\"=>\"test\", \"api\"=>1, "
                  "\"errors\"=>\"structured\"}]]");
    codec_pack_ping(&packer, 2);
    check_printed("[0, 2, \"ping\", []]");
    codec_pack_op_list(&packer, 3, &(struct msg_op_list){.name = ""});
    check_printed("[0, 3, \"op.list\", [{}]]");

    run.op.values[0] = (struct value){.name = "a", .kind = VALUE_INT, .i = -3};
    run.op.values[1] = (struct value){.name = "m", .kind = VALUE_STRING, .s = "x"};
    run.options = (struct msg_options){
        .priority = PRIORITY_URGENT, .tail = TAIL_ZERO, .n_consts = 2, .consts = {5, 77}};
    codec_pack_run(&packer, 4, &run);
    msgpack_pack_bin_with_body(&packer, "one", 3);
    msgpack_pack_bin_with_body(&packer, "two", 3);
    check_printed("[0, 4, \"run\", [\"saxpy\", {\"a\"=>-3, \"m\"=>\"x\"}, "
                  "{\"priority\"=>\"urgent\", \"tail\"=>\"zero\", \"consts\"=>[5, 77]}, "
                  "[\"one\", \"two\"]]]");

    open.options = (struct msg_options){.priority = PRIORITY_NORMAL,
                                        .window = 3,
                                        .is_unordered = true,
                                        .wants_timing = true,
                                        .n_after = 2,
                                        .after = {{.job = 8}, {.job = 9, .token = "0f"}}};
    codec_pack_job_open(&packer, 5, &open);
    check_printed(
        "[0, 5, \"job.open\", [\"sum\", {}, "
        "{\"timing\"=>true, \"after\"=>[8, \"0f\"], \"window\"=>3, \"ordered\"=>false}]]");
    codec_pack_job_push(&packer, 6, &push);
    msgpack_pack_bin_with_body(&packer, "x", 1);
    check_printed("[0, 6, \"job.push\", [5, 6, {\"n\"=>0}, [\"x\"]]]");
    codec_pack_job(&packer, 7, METHOD_JOB_CANCEL, &(struct msg_job){.job = 5});
    check_printed("[0, 7, \"job.cancel\", [5]]");
    codec_pack_job_list(&packer, 8, &(struct msg_job_list){.is_all = true});
    check_printed("[0, 8, \"job.list\", [{\"all\"=>true}]]");
    codec_pack_stats_request(&packer, 9);
    check_printed("[0, 9, \"stats\", []]");
    codec_pack_device_list(&packer, 10);
    check_printed("[0, 10, \"device.list\", []]");
    codec_pack_const_put(&packer, 11, &(struct msg_const_put){.n_data = 1});
    msgpack_pack_bin_with_body(&packer, "x", 1);
    check_printed("[0, 11, \"const.put\", [{}, [\"x\"]]]");
    codec_pack_const_drop(&packer, 12, &(struct msg_const){.id = 5});
    check_printed("[0, 12, \"const.drop\", [5]]");
}

CHECK_MAIN(CHECK_TEST(test_hello), CHECK_TEST(test_text_for_people_is_cut),
           CHECK_TEST(test_run_with_everything), CHECK_TEST(test_run_with_defaults),
           CHECK_TEST(test_job_open_options), CHECK_TEST(test_job_push),
           CHECK_TEST(test_small_requests), CHECK_TEST(test_the_job_of_a_push),
           CHECK_TEST(test_refusals), CHECK_TEST(test_packed_requests))
