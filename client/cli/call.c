/*
 * gpupipe-cli call: any method, with its parameters and its result as JSON.
 *
 * JSON has no bytes: {"@file": "PATH"} in a parameter stands for a file's, {"@base64": "..."} for
 * those, and a result's are shown likewise.
 *
 * Threads: one.
 */
#include "client/base64.h"
#include "client/call_any.h"
#include "client/cli/cli.h"
#include "client/cli/input.h"
#include "client/cli/interrupt.h"
#include "client/cli/output.h"
#include "client/json.h"
#include "proto/util.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define OUTPUTS_MAX 8

struct call_args {
    bool is_forced;
    uint32_t n_outputs;
    const char *outputs[OUTPUTS_MAX];
};

/* ---- parameters ---------------------------------------------------------------------------- */

static int pack_value(msgpack_packer *packer, const json_t *json);

static int out_of_memory(void)
{
    cli_error("out of memory");
    return CLI_FAILED;
}

/* All of a file, which one message must hold.  The bytes are the caller's to free() in any case. */
static int read_file(struct input *input, uint8_t **ret_bytes, size_t *ret_size)
{
    size_t room = 0, size = 0;
    int rc = CLI_OK;

    while (rc == CLI_OK && !input->is_at_end) {
        uint8_t *bytes = *ret_bytes;

        if (size == room) {
            room = room == 0 ? 65536 : 2 * room;
            bytes = realloc(*ret_bytes, room);
        }
        if (bytes == NULL) {
            return out_of_memory();
        }
        *ret_bytes = bytes;
        rc = input_fill(input, bytes, room, &size);
        if (size > LIMIT_FRAME) {
            cli_error("%s has more bytes than a message may", input->path);
            return CLI_FAILED;
        }
    }
    *ret_size = size;
    return rc;
}

static int pack_file(msgpack_packer *packer, const char *path)
{
    _cleanup_(free_pointer) uint8_t *bytes = NULL;
    struct input input;
    size_t size = 0;
    int rc = input_open("@file", path, NULL, &input);

    if (rc != CLI_OK) {
        return rc;
    }
    rc = read_file(&input, &bytes, &size);
    input_close(&input);
    if (rc == CLI_OK && msgpack_pack_bin_with_body(packer, bytes, size) < 0) {
        return out_of_memory();
    }
    return rc;
}

static int pack_base64(msgpack_packer *packer, const char *text)
{
    size_t size = strlen(text);
    _cleanup_(free_pointer) uint8_t *bytes = malloc(size + 1);

    if (bytes == NULL) {
        return out_of_memory();
    }
    if (!base64_decode(text, size, bytes, &size)) {
        return cli_usage("\"@base64\": \"%.40s\" is no base64", text);
    }
    return msgpack_pack_bin_with_body(packer, bytes, size) < 0 ? out_of_memory() : CLI_OK;
}

static int pack_object(msgpack_packer *packer, const json_t *json)
{
    const json_t *file = json_object_get(json, "@file");
    const json_t *base64 = json_object_get(json, "@base64");
    const char *key;
    json_t *value;
    int rc = CLI_OK;

    if (json_object_size(json) == 1 && json_is_string(file)) {
        return pack_file(packer, json_string_value(file));
    }
    if (json_object_size(json) == 1 && json_is_string(base64)) {
        return pack_base64(packer, json_string_value(base64));
    }
    msgpack_pack_map(packer, json_object_size(json));
    json_object_foreach((json_t *)json, key, value)
    {
        msgpack_pack_str_with_body(packer, key, strlen(key));
        rc = rc == CLI_OK ? pack_value(packer, value) : rc;
    }
    return rc;
}

static int pack_array(msgpack_packer *packer, const json_t *json)
{
    int rc = CLI_OK;

    msgpack_pack_array(packer, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json) && rc == CLI_OK; i++) {
        rc = pack_value(packer, json_array_get(json, i));
    }
    return rc;
}

static int pack_value(msgpack_packer *packer, const json_t *json)
{
    int rc;

    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return pack_object(packer, json);
    case JSON_ARRAY:
        return pack_array(packer, json);
    case JSON_STRING:
        rc = msgpack_pack_str_with_body(packer, json_string_value(json), json_string_length(json));
        break;
    case JSON_INTEGER:
        rc = msgpack_pack_int64(packer, json_integer_value(json));
        break;
    case JSON_REAL:
        rc = msgpack_pack_double(packer, json_real_value(json));
        break;
    case JSON_TRUE:
        rc = msgpack_pack_true(packer);
        break;
    case JSON_FALSE:
        rc = msgpack_pack_false(packer);
        break;
    default:
        rc = msgpack_pack_nil(packer);
        break;
    }
    return rc < 0 ? out_of_memory() : CLI_OK;
}

/* text NULL: no parameters. */
static int pack_params(const char *text, msgpack_sbuffer *params)
{
    msgpack_packer packer;
    json_error_t error;
    json_t *json;
    int rc;

    msgpack_packer_init(&packer, params, msgpack_sbuffer_write);
    json = json_loads(text == NULL ? "[]" : text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (json == NULL) {
        return cli_usage("%s: no JSON: %s", text, error.text);
    }
    if (!json_is_array(json)) {
        msgpack_pack_array(&packer, 1);
    }
    rc = pack_value(&packer, json);
    json_decref(json);
    if (rc == CLI_OK && params->size > LIMIT_FRAME - LIMIT_HEAD) {
        cli_error("the parameters have %zu bytes, and a message may have %d", params->size,
                  LIMIT_FRAME - LIMIT_HEAD);
        return CLI_FAILED;
    }
    return rc;
}

/* ---- the result ---------------------------------------------------------------------------- */

struct taking {
    const struct call_args *args;
    uint32_t n_written; /* files */
    int rc;
    msgpack_object_kv notes[OUTPUTS_MAX]; /* what stands for the bytes in the result */
};

static int write_file(const struct call_args *args, const char *path,
                      const msgpack_object_bin *bytes)
{
    struct output output;
    int rc = output_open(path, args->is_forced, true, &output);

    if (rc != CLI_OK) {
        return rc;
    }
    rc = output_write(&output, bytes->ptr, bytes->size);
    if (rc == CLI_OK) {
        rc = output_commit(&output);
    }
    output_abandon(&output);
    return rc;
}

/* Write the bytes of each bin, in order, as long as there are files; {"@file": PATH} stays. */
static void write_files(msgpack_object *object, struct taking *taking)
{
    uint32_t i = taking->n_written;

    if (object->type == MSGPACK_OBJECT_ARRAY) {
        for (uint32_t k = 0; k < object->via.array.size; k++) {
            write_files(&object->via.array.ptr[k], taking);
        }
    } else if (object->type == MSGPACK_OBJECT_MAP) {
        for (uint32_t k = 0; k < object->via.map.size; k++) {
            write_files(&object->via.map.ptr[k].val, taking);
        }
    } else if (object->type == MSGPACK_OBJECT_BIN && i < taking->args->n_outputs &&
               taking->rc == CLI_OK) {
        const char *path = taking->args->outputs[i];
        msgpack_object_kv *note = &taking->notes[i];

        taking->rc = write_file(taking->args, path, &object->via.bin);
        taking->n_written++;
        note->key = (msgpack_object){.type = MSGPACK_OBJECT_STR, .via.str = {5, "@file"}};
        note->val =
            (msgpack_object){.type = MSGPACK_OBJECT_STR, .via.str = {(uint32_t)strlen(path), path}};
        *object = (msgpack_object){.type = MSGPACK_OBJECT_MAP, .via.map = {1, note}};
    }
}

static void take_result(msgpack_object *result, void *arg)
{
    struct taking *taking = arg;
    char *text;

    write_files(result, taking);
    if (taking->rc != CLI_OK) {
        return;
    }
    text = json_text(result);
    if (text == NULL) {
        taking->rc = out_of_memory();
        return;
    }
    puts(text);
    free(text);
    taking->rc = cli_flush();
    if (taking->rc == CLI_OK && taking->n_written < taking->args->n_outputs) {
        cli_error("-o %s: the result has no bytes for it",
                  taking->args->outputs[taking->n_written]);
        taking->rc = CLI_FAILED;
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int take_option(struct cli *cli, int option, char **argv, struct call_args *args)
{
    switch (option) {
    case 'f':
        args->is_forced = true;
        return CLI_OK;
    case 'o':
        if (args->n_outputs == OUTPUTS_MAX) {
            return cli_usage("-o %s: more than %d files", optarg, OUTPUTS_MAX);
        }
        args->outputs[args->n_outputs++] = optarg;
        return CLI_OK;
    default:
        return cli_option(cli, option, argv);
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct call_args *ret_args)
{
    static const struct option options[] = {CLI_LONG_OPTIONS, {0}};
    int rc = CLI_OK, option;

    optind = 0;
    while (rc == CLI_OK &&
           (option = getopt_long(argc, argv, CLI_SHORT_OPTIONS "fo:", options, NULL)) != -1) {
        rc = take_option(cli, option, argv, ret_args);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (optind == argc) {
        return cli_usage("call: a method is missing, as in 'gpupipe-cli call stats'");
    }
    if (optind + 2 < argc) {
        return cli_usage("call: unexpected argument '%s'; all parameters are one JSON array",
                         argv[optind + 2]);
    }
    for (uint32_t i = 0; i < ret_args->n_outputs && rc == CLI_OK; i++) {
        rc = output_is_stdout(ret_args->outputs[i])
                 ? cli_usage("-o %s: standard output has the result as JSON", ret_args->outputs[i])
                 : output_check(ret_args->outputs[i], ret_args->is_forced, true);
    }
    return rc;
}

int command_call(struct cli *cli, int argc, char **argv)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    struct call_args args = {0};
    struct taking taking = {.args = &args};
    msgpack_sbuffer params;
    int rc = parse(cli, argc, argv, &args);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    signal(SIGPIPE, SIG_IGN);
    interrupt_install();
    msgpack_sbuffer_init(&params);
    rc = pack_params(optind + 1 < argc ? argv[optind + 1] : NULL, &params);
    if (rc == CLI_OK) {
        rc = cli_connect(cli, &gpupipe);
    }
    if (rc == CLI_OK && call_any(gpupipe, argv[optind], &params, take_result, &taking) < 0) {
        rc = cli_failure(gpupipe_last_error(gpupipe));
    }
    msgpack_sbuffer_destroy(&params);
    return rc == CLI_OK ? taking.rc : rc;
}
