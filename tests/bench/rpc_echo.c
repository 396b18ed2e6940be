/*
 * Rpc echo: uv_pipe_t, a streaming unpacker, and one write for all requests of one read.
 */
#include "tests/bench/rpc_echo.h"

#include "proto/util.h"
#include "tests/bench/bench.h"

#include <errno.h>
#include <msgpack.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define READ_SIZE 65536u /* what libuv suggests */

struct reply {
    uv_write_t write;
    msgpack_sbuffer bytes;
};

static void on_written(uv_write_t *write, int status)
{
    struct reply *reply = CONTAINER_OF(write, struct reply, write);

    (void)status;
    msgpack_sbuffer_destroy(&reply->bytes);
    free(reply);
}

/* [0, msgid, "run", [op, params, options, [bytes]]] -> [1, msgid, nil, {n: 1, out: [bytes]}] */
static void answer(const msgpack_object *request, msgpack_packer *packer)
{
    const msgpack_object *params = &request->via.array.ptr[3];
    const msgpack_object *payload = &params->via.array.ptr[3].via.array.ptr[0];

    msgpack_pack_array(packer, 4);
    msgpack_pack_int(packer, 1);
    msgpack_pack_object(packer, request->via.array.ptr[1]);
    msgpack_pack_nil(packer);
    msgpack_pack_map(packer, 2);
    msgpack_pack_str_with_body(packer, "n", 1);
    msgpack_pack_int(packer, 1);
    msgpack_pack_str_with_body(packer, "out", 3);
    msgpack_pack_array(packer, 1);
    msgpack_pack_object(packer, *payload);
}

static void on_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    msgpack_unpacker *unpacker = handle->data;

    (void)suggested;
    if (!msgpack_unpacker_reserve_buffer(unpacker, READ_SIZE)) {
        abort();
    }
    *ret_buffer = uv_buf_init(msgpack_unpacker_buffer(unpacker), READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    msgpack_unpacker *unpacker = stream->data;
    struct reply *reply;
    msgpack_packer packer;
    msgpack_unpacked request;

    (void)buffer;
    if (n < 0) {
        uv_stop(stream->loop);
        return;
    }
    msgpack_unpacker_buffer_consumed(unpacker, (size_t)n);
    reply = calloc(1, sizeof(*reply));
    msgpack_packer_init(&packer, &reply->bytes, msgpack_sbuffer_write);
    msgpack_unpacked_init(&request);
    while (msgpack_unpacker_next(unpacker, &request) == MSGPACK_UNPACK_SUCCESS) {
        answer(&request.data, &packer);
    }
    msgpack_unpacked_destroy(&request);
    uv_buf_t bytes = uv_buf_init(reply->bytes.data, (unsigned)reply->bytes.size);
    if (bytes.len == 0) {
        on_written(&reply->write, 0);
    } else if (uv_write(&reply->write, stream, &bytes, 1, on_written) < 0) {
        abort();
    }
}

static _Noreturn void serve(int fd)
{
    msgpack_unpacker unpacker;
    uv_loop_t loop;
    uv_pipe_t pipe;

    if (!msgpack_unpacker_init(&unpacker, READ_SIZE) || uv_loop_init(&loop) < 0 ||
        uv_pipe_init(&loop, &pipe, 0) < 0 || uv_pipe_open(&pipe, fd) < 0) {
        abort();
    }
    pipe.data = &unpacker;
    uv_read_start((uv_stream_t *)&pipe, on_allocate, on_read);
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}

void rpc_echo_start(struct rpc_echo *echo)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
        bench_fail("socketpair: %s", strerror(errno));
    }
    echo->fd = fds[0];
    echo->pid = bench_fork();
    if (echo->pid == 0) {
        close(fds[0]);
        serve(fds[1]);
    }
    close(fds[1]);
}

void rpc_echo_stop(struct rpc_echo *echo)
{
    bench_end(echo->pid);
}
