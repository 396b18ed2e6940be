/*
 * The codec: what each request may say, what each result says on the wire (printed by msgpack-c's
 * own printer, which the codec does not use), and that both directions agree.
 */
#include "proto/codec.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/wire_text.h"

static struct failure failure;
static msgpack_sbuffer buffer;
static msgpack_packer packer;

/* A whole message in bytes that live until the test ends, parsed. */
struct parsed {
    struct wire_text wire;
    struct rpc_message message;
};

static void free_parsed(void *arg)
{
    struct parsed *parsed = arg;

    rpc_finish(&parsed->message);
    free(parsed);
}

static const struct rpc_message *parse_text(const char *text)
{
    struct parsed *parsed = calloc(1, sizeof(*parsed));
    int r;

    wire_from(&parsed->wire, text);
    r = rpc_parse(parsed->wire.bytes, parsed->wire.size, &parsed->message, &failure);
    if (r < 0) {
        free(parsed);
        CHECK_FAIL("%s: %s", text, failure.message);
    }
    check_at_end(free_parsed, parsed);
    return &parsed->message;
}

/* The params of a notification of no method: no count stands in the way. */
static const msgpack_object_array *params_from(const char *text)
{
    char whole[2048];

    snprintf(whole, sizeof(whole), "[2, 'test', %s]", text);
    return &parse_text(whole)->params;
}

static const msgpack_object *result_from(const char *text)
{
    char whole[2048];

    snprintf(whole, sizeof(whole), "[1, 1, nil, %s]", text);
    return &parse_text(whole)->result;
}

static void destroy_buffer(void *arg)
{
    msgpack_sbuffer_destroy(arg);
}

static void start_packing(void)
{
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    check_at_end(destroy_buffer, &buffer);
}

static const struct rpc_message *parse_packed(void)
{
    struct parsed *parsed = calloc(1, sizeof(*parsed));
    int r = rpc_parse((const uint8_t *)buffer.data, buffer.size, &parsed->message, &failure);

    if (r < 0) {
        free(parsed);
        CHECK_FAIL("%s", failure.message);
    }
    check_at_end(free_parsed, parsed);
    return &parsed->message;
}

static void check_printed(const char *wanted)
{
    static char text[8192];
    msgpack_unpacked unpacked;

    msgpack_unpacked_init(&unpacked);
    CHECK_EQ(msgpack_unpack_next(&unpacked, buffer.data, buffer.size, NULL),
             MSGPACK_UNPACK_SUCCESS);
    msgpack_object_print_buffer(text, sizeof(text), unpacked.data);
    msgpack_unpacked_destroy(&unpacked);
    CHECK_STR(text, wanted);
    msgpack_sbuffer_clear(&buffer);
}

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
                             " 'device': 'cuda1', 'timing': true}, [nil, nil]]"),
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
    struct msg_op_list op_list;

    CHECK_EQ(codec_unpack_job(params_from("[12]"), &job, &failure), 0);
    CHECK_EQ(job.job, 12);
    CHECK_EQ(codec_unpack_job_list(params_from("[{'all': true}]"), &job_list, &failure), 0);
    CHECK(job_list.is_all);
    CHECK_EQ(codec_unpack_job_list(params_from("[]"), &job_list, &failure), 0);
    CHECK(!job_list.is_all);
    CHECK_EQ(codec_unpack_op_list(params_from("[{'name': 'sha256'}]"), &op_list, &failure), 0);
    CHECK_STR(op_list.name, "sha256");
    CHECK_EQ(codec_unpack_op_list(params_from("[nil]"), &op_list, &failure), 0);
    CHECK_STR(op_list.name, "");
}

/* ---- refusals ------------------------------------------------------------------------------ */

enum request { HELLO, OP_LIST, RUN, OPEN, PUSH, JOB, JOB_LIST };

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
     "no option \"window\"; there is priority, deadline_ns, require, tail, device, timing"},
    {RUN, "['copy', {}, {'consts': []}]", STATUS_INVALID_PARAM, "consts",
     "option \"consts\" is not in this version"},
    {OPEN, "['copy', {}, {'after': [1]}]", STATUS_INVALID_PARAM, "after",
     "option \"after\" is not in this version"},
    {PUSH, "[1, 0, {'out': []}]", STATUS_INVALID_PARAM, "out",
     "option \"out\" is not in this version"},
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
    {RUN, "['copy', []]", STATUS_INVALID_PARAM, "params", "parameter \"params\": must be a map"},
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
    {RUN, "['copy', {}, {}, [[1, 0, 64]]]", STATUS_INVALID_PARAM, "data",
     "parameter \"data\": rings are not in this version"},
    {OPEN, "[[['copy', {}]]]", STATUS_INVALID_PARAM, "op",
     "parameter \"op\": chains are not in this version"},
    {JOB, "[1, 2]", STATUS_INVALID_PARAM, "", "2 parameters are more than 1"},
};

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
    run.options = (struct msg_options){.priority = PRIORITY_URGENT, .tail = TAIL_ZERO};
    codec_pack_run(&packer, 4, &run);
    msgpack_pack_bin_with_body(&packer, "one", 3);
    msgpack_pack_bin_with_body(&packer, "two", 3);
    check_printed("[0, 4, \"run\", [\"saxpy\", {\"a\"=>-3, \"m\"=>\"x\"}, "
                  "{\"priority\"=>\"urgent\", \"tail\"=>\"zero\"}, [\"one\", \"two\"]]]");

    open.options = (struct msg_options){
        .priority = PRIORITY_NORMAL, .window = 3, .is_unordered = true, .wants_timing = true};
    codec_pack_job_open(&packer, 5, &open);
    check_printed("[0, 5, \"job.open\", [\"sum\", {}, "
                  "{\"timing\"=>true, \"window\"=>3, \"ordered\"=>false}]]");
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
}

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
    const msgpack_object_map *limits = NULL;
    static const uint64_t values[] = {
#define X(name, wire, value, unit, reason) (value),
        LIMIT_LIST(X)
#undef X
    };

    start_packing();
    codec_pack_hello_result(&packer, 1, &msg);
    result = &parse_packed()->result;
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_hello_result(result, &read, &failure), 0);
    CHECK_MEM(&read, &msg, sizeof(msg));
    limits = &result->via.map.ptr[result->via.map.size - 1].val.via.map;
    CHECK_EQ(limits->size, ARRAY_SIZE(values));
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        CHECK_EQ(limits->ptr[i].val.via.u64, values[i]);
    }
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

    start_packing();
    codec_pack_job_opened(&packer, 5, &msg);
    memset(&read, 0xa5, sizeof(read));
    CHECK_EQ(codec_unpack_job_opened(&parse_packed()->result, &read, &failure), 0);
    CHECK_MEM(&read, &msg, sizeof(msg));
    check_printed("[1, 5, nil, {\"job\"=>9, \"credit\"=>3, \"max_push\"=>4194304, "
                  "\"push_multiple\"=>1024, \"in_size\"=>[4, 8], \"out_size\"=>[4]}]");
    codec_pack_job_closed(&packer, 6, &(struct msg_job_closed){.pushed = 12});
    CHECK_EQ(codec_unpack_job_closed(&parse_packed()->result, &closed, &failure), 0);
    CHECK_EQ(closed.pushed, 12);
    check_printed("[1, 6, nil, {\"pushed\"=>12}]");
    codec_pack_job_state(&packer, 7, &(struct msg_job_state){.state = JOB_CANCELLED});
    CHECK_EQ(codec_unpack_job_state(&parse_packed()->result, &state, &failure), 0);
    CHECK_EQ(state.state, JOB_CANCELLED);
    check_printed("[1, 7, nil, {\"state\"=>\"cancelled\"}]");
    codec_pack_nil_result(&packer, 8);
    check_printed("[1, 8, nil, nil]");
    codec_pack_empty_result(&packer, 9);
    check_printed("[1, 9, nil, {}]");
}

static void test_job_list_result(void)
{
    const struct msg_job_entry entries[] = {
        {1, "saxpy", JOB_OPEN, PRIORITY_URGENT, 5, 3},
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
        .n_in = 2,
        .n_out = 1,
        .n_params = 4,
        .in = {{.name = "x", .dtype = DTYPE_F32},
               {.name = "y", .dtype = DTYPE_U8, .n_dims = 2, .dims = {{3, ""}, {0, "block"}}}},
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
                    .choices = {"lo", "hi"}}},
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
        "{\"name\"=>\"y\", \"dtype\"=>\"u8\", \"shape\"=>[3, \"block\"]}], "
        "\"out\"=>[{\"name\"=>\"z\", \"dtype\"=>\"c64\", \"shape\"=>[32]}], "
        "\"params\"=>[{\"name\"=>\"block\", \"type\"=>\"u32\", \"default\"=>4096, \"min\"=>1, "
        "\"max\"=>1048576}, {\"name\"=>\"a\", \"type\"=>\"f32\", \"required\"=>true}, "
        "{\"name\"=>\"b\", \"type\"=>\"f64\", \"default\"=>0.500000, \"min\"=>-1.000000, "
        "\"max\"=>1000000000.000000}, "
        "{\"name\"=>\"mode\", \"type\"=>\"choice\", \"choices\"=>[\"lo\", \"hi\"], "
        "\"default\"=>\"hi\"}], \"tail\"=>[\"error\", \"short\"], \"min_parallel\"=>64, "
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

CHECK_MAIN(CHECK_TEST(test_hello), CHECK_TEST(test_text_for_people_is_cut),
           CHECK_TEST(test_run_with_everything), CHECK_TEST(test_run_with_defaults),
           CHECK_TEST(test_job_open_options), CHECK_TEST(test_job_push),
           CHECK_TEST(test_small_requests), CHECK_TEST(test_refusals),
           CHECK_TEST(test_packed_requests), CHECK_TEST(test_hello_result),
           CHECK_TEST(test_run_result), CHECK_TEST(test_job_result),
           CHECK_TEST(test_job_result_with_an_error), CHECK_TEST(test_job_done),
           CHECK_TEST(test_job_results_of_requests), CHECK_TEST(test_job_list_result),
           CHECK_TEST(test_device_list_result), CHECK_TEST(test_stats),
           CHECK_TEST(test_op_list_result), CHECK_TEST(test_results_ignore_unknown_keys),
           CHECK_TEST(test_broken_results))
