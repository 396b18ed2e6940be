/*
 * Codec: each message struct to MessagePack and back.  The only other file that sees MessagePack is
 * rpc.c.
 *
 * unpack: 0, or a negative status with *ret_failure: unknown, missing, duplicate and mistyped keys
 * are INVALID_PARAM, values outside their range RANGE, each naming the field.  Options that
 * interface and PROTOCOL.md name for a later version say so.  Unknown keys in a *result* are
 * ignored, so that a client outlives additions.  *ret is untouched on failure.
 *
 * pack: appends to the packer; cannot fail but for memory, which msgpack_sbuffer reports itself.
 *
 * Threads: pure functions.
 */
#pragma once

#include "proto/message.h"
#include "proto/rpc.h"

/* The params of a request, as the server reads them ... */
int codec_unpack_hello(const msgpack_object_array *params, struct msg_hello *ret,
                       struct failure *ret_failure);
int codec_unpack_op_list(const msgpack_object_array *params, struct msg_op_list *ret,
                         struct failure *ret_failure);
int codec_unpack_run(const msgpack_object_array *params, struct msg_run *ret,
                     struct failure *ret_failure);
int codec_unpack_job_open(const msgpack_object_array *params, struct msg_job_open *ret,
                          struct failure *ret_failure);
int codec_unpack_job_push(const msgpack_object_array *params, struct msg_job_push *ret,
                          struct failure *ret_failure);
int codec_unpack_job(const msgpack_object_array *params, struct msg_job *ret,
                     struct failure *ret_failure);
int codec_unpack_job_list(const msgpack_object_array *params, struct msg_job_list *ret,
                          struct failure *ret_failure);
int codec_unpack_const_put(const msgpack_object_array *params, struct msg_const_put *ret,
                           struct failure *ret_failure);
int codec_unpack_const_drop(const msgpack_object_array *params, struct msg_const *ret,
                            struct failure *ret_failure);
int codec_unpack_ring_open(const msgpack_object_array *params, struct msg_ring_open *ret,
                           struct failure *ret_failure);
int codec_unpack_ring_close(const msgpack_object_array *params, struct msg_ring *ret,
                            struct failure *ret_failure);
int codec_unpack_subscribe(const msgpack_object_array *params, struct msg_subscribe *ret,
                           struct failure *ret_failure);
/* Which job a job.push is for, however wrong the rest of it; 0 (no job's id) where it names none.
 */
uint64_t codec_peek_job(const msgpack_object_array *params);

/*
 * ... and whole requests, as the client writes them.  run, job.push and const.put end with the
 * header of their payload array of n_data elements: the caller appends each as rpc_bin_header() and
 * bytes.  A job.push with n_refs is whole.
 */
void codec_pack_hello(msgpack_packer *packer, uint32_t msgid, const struct msg_hello *msg);
void codec_pack_ping(msgpack_packer *packer, uint32_t msgid);
void codec_pack_op_list(msgpack_packer *packer, uint32_t msgid, const struct msg_op_list *msg);
void codec_pack_run(msgpack_packer *packer, uint32_t msgid, const struct msg_run *msg);
void codec_pack_job_open(msgpack_packer *packer, uint32_t msgid, const struct msg_job_open *msg);
void codec_pack_job_push(msgpack_packer *packer, uint32_t msgid, const struct msg_job_push *msg);
void codec_pack_job(msgpack_packer *packer, uint32_t msgid, enum method method,
                    const struct msg_job *msg); /* JOB_CLOSE, JOB_CANCEL */
void codec_pack_job_list(msgpack_packer *packer, uint32_t msgid, const struct msg_job_list *msg);
void codec_pack_const_put(msgpack_packer *packer, uint32_t msgid, const struct msg_const_put *msg);
void codec_pack_const_drop(msgpack_packer *packer, uint32_t msgid, const struct msg_const *msg);
void codec_pack_ring_open(msgpack_packer *packer, uint32_t msgid, const struct msg_ring_open *msg);
void codec_pack_ring_close(msgpack_packer *packer, uint32_t msgid, const struct msg_ring *msg);
void codec_pack_stats_request(msgpack_packer *packer, uint32_t msgid);
void codec_pack_device_list(msgpack_packer *packer, uint32_t msgid);
void codec_pack_subscribe(msgpack_packer *packer, uint32_t msgid, const struct msg_subscribe *msg);

/* Whole responses, as the server writes them.  The answer's head ends with the array header of
 * "out" where n_out > 0 or the message is a result of run: the caller appends the outputs. */
void codec_pack_hello_result(msgpack_packer *packer, uint32_t msgid,
                             const struct msg_hello_result *msg);
void codec_pack_nil_result(msgpack_packer *packer, uint32_t msgid);   /* ping */
void codec_pack_empty_result(msgpack_packer *packer, uint32_t msgid); /* {} */
void codec_pack_op_list_result(msgpack_packer *packer, uint32_t msgid,
                               const struct manifest_op *const *ops, uint32_t n_ops,
                               const char *backend);
void codec_pack_run_result(msgpack_packer *packer, uint32_t msgid, const struct msg_answer *msg);
void codec_pack_job_opened(msgpack_packer *packer, uint32_t msgid,
                           const struct msg_job_opened *msg);
void codec_pack_job_closed(msgpack_packer *packer, uint32_t msgid,
                           const struct msg_job_closed *msg);
void codec_pack_const_put_result(msgpack_packer *packer, uint32_t msgid,
                                 const struct msg_const_put_result *msg);
void codec_pack_ring_opened(msgpack_packer *packer, uint32_t msgid,
                            const struct msg_ring_opened *msg);
void codec_pack_job_state(msgpack_packer *packer, uint32_t msgid, const struct msg_job_state *msg);
void codec_pack_job_list_result(msgpack_packer *packer, uint32_t msgid,
                                const struct msg_job_entry *entries, uint32_t n_entries);
void codec_pack_stats(msgpack_packer *packer, uint32_t msgid, const struct msg_stats *msg);
void codec_pack_device_list_result(msgpack_packer *packer, uint32_t msgid,
                                   const struct msg_device *devices, uint32_t n_devices);
/* ... and whole notifications. */
void codec_pack_job_result(msgpack_packer *packer, const struct msg_answer *msg,
                           bool is_structured);
void codec_pack_job_done(msgpack_packer *packer, const struct msg_job_done *msg,
                         bool is_structured);
void codec_pack_ring_closed(msgpack_packer *packer, const struct msg_ring_closed *msg,
                            bool is_structured);
void codec_pack_event(msgpack_packer *packer, const struct msg_event *msg);

/* Results and notification params, as the client reads them. */
int codec_unpack_hello_result(const msgpack_object *result, struct msg_hello_result *ret,
                              struct failure *ret_failure);
/* *ret_ops is malloc()ed, the caller's; */
int codec_unpack_op_list_result(const msgpack_object *result, struct manifest_op **ret_ops,
                                uint32_t *ret_n_ops, struct failure *ret_failure);
int codec_unpack_run_result(const msgpack_object *result, struct msg_answer *ret,
                            struct failure *ret_failure);
int codec_unpack_job_opened(const msgpack_object *result, struct msg_job_opened *ret,
                            struct failure *ret_failure);
int codec_unpack_job_closed(const msgpack_object *result, struct msg_job_closed *ret,
                            struct failure *ret_failure);
int codec_unpack_const_put_result(const msgpack_object *result, struct msg_const_put_result *ret,
                                  struct failure *ret_failure);
int codec_unpack_ring_opened(const msgpack_object *result, struct msg_ring_opened *ret,
                             struct failure *ret_failure);
int codec_unpack_job_state(const msgpack_object *result, struct msg_job_state *ret,
                           struct failure *ret_failure);
int codec_unpack_job_list_result(const msgpack_object *result, struct msg_job_entry **ret_entries,
                                 uint32_t *ret_n_entries, struct failure *ret_failure);
int codec_unpack_stats(const msgpack_object *result, struct msg_stats *ret,
                       struct failure *ret_failure);
int codec_unpack_device_list_result(const msgpack_object *result, struct msg_device **ret_devices,
                                    uint32_t *ret_n_devices, struct failure *ret_failure);
int codec_unpack_job_result(const msgpack_object_array *params, struct msg_answer *ret,
                            struct failure *ret_failure);
int codec_unpack_job_done(const msgpack_object_array *params, struct msg_job_done *ret,
                          struct failure *ret_failure);
int codec_unpack_ring_closed(const msgpack_object_array *params, struct msg_ring_closed *ret,
                             struct failure *ret_failure);
int codec_unpack_event(const msgpack_object_array *params, struct msg_event *ret,
                       struct failure *ret_failure);
