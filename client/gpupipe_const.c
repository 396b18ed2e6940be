/*
 * Constants: operands that are uploaded once.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_connection.h"
#include "proto/codec.h"

#include <string.h>

static int take_put(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_const_put_result(result, ret, ret_failure);
}

int gpupipe_const_put(struct gpupipe *gpupipe, const void *data, uint64_t size, uint64_t *ret_id,
                      char *ret_sha256)
{
    const struct gpupipe_span span = {data, size};
    const struct msg_const_put msg = {.n_data = 1};
    struct msg_const_put_result result;
    struct failure failure;
    struct request request;
    int rc;

    if (data == NULL && size > 0) {
        fail(&failure, STATUS_MISUSE, "data", "a constant has bytes, and no address");
        return error_record(gpupipe, -1, &failure);
    }
    /* The daemon would have to end the connection. */
    if (size > LIMIT_FRAME - LIMIT_HEAD) {
        fail(&failure, STATUS_TOO_BIG, "data", "a constant has %d bytes at most", LIMIT_CONST_SIZE);
        return error_record(gpupipe, -1, &failure);
    }
    request_init(&request, gpupipe);
    codec_pack_const_put(&request.packer, request.msgid, &msg);
    rc = connection_ask(gpupipe, &request, &span, take_put, &result);
    if (rc == 0) {
        *ret_id = result.id;
    }
    if (rc == 0 && ret_sha256 != NULL) {
        memcpy(ret_sha256, result.sha256, GPUPIPE_SHA256_SIZE);
    }
    return rc;
}

int gpupipe_const_drop(struct gpupipe *gpupipe, uint64_t id)
{
    const struct msg_const msg = {.id = id};
    struct request request;

    request_init(&request, gpupipe);
    codec_pack_const_drop(&request.packer, request.msgid, &msg);
    return connection_ask(gpupipe, &request, NULL, NULL, NULL);
}
