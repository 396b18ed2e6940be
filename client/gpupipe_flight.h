/*
 * Flights: pushes between gpupipe_submit() and gpupipe_reap(), and runs.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe_connection.h"
#include "client/gpupipe_error.h"
#include "proto/message.h"

struct flight {
    struct flight *next;
    struct call call;
    struct gpupipe_job *job; /* NULL: a run */
    uint64_t seq;
    uint64_t tag;
    struct gpupipe_room out[LIMIT_OUT];
    uint64_t out_size[LIMIT_OUT];
    bool is_sent;
    bool is_answered; /* the request job.push */
    bool has_result;
    struct msg_answer answer;
    struct error error; /* once landed: answer.failure */
    struct gpupipe_timing timing;
    bool is_in_ring;
    bool is_last;
    uint64_t ring_tag; /* names it in its ring's queues */
    uint32_t devices;  /* the set of those that it ran on, where it is in a ring */
};

#define DESC_LEAST offsetof(struct gpupipe_desc, deadline_ns) /* the first version's */

void flight_list_init(struct flight_list *list);
/* Frees those of this job; NULL: all. */
void flight_list_free(struct flight_list *list, const struct gpupipe_job *job);

void flight_list_append(struct flight_list *list, struct flight *flight);
/* The first; there is one. */
struct flight *flight_list_take(struct flight_list *list);

/* One for this push; the counts that only its job can judge are left to the caller. */
int flight_create(const struct gpupipe_desc *desc, struct flight **ret_flight,
                  struct failure *ret_failure);
/* Does it fit a message? */
int flight_check_frame(const struct gpupipe_desc *desc, struct failure *ret_failure);
/* Its request has left, or never will (is_sent): as the writer's callback. */
void flight_on_sent(void *arg, bool is_sent);
/* Have all things happened that bring it back? */
bool flight_is_complete(const struct flight *flight);
/* The first failure is what went wrong. */
void flight_fail(struct flight *flight, const struct failure *failure);
/* What the caller gets to see of it. */
void flight_complete(struct flight *flight, struct gpupipe_completion *ret, size_t ret_size);

/* The place of a payload of this flight's result: as call.on_payload. */
int flight_on_payload(struct flight *flight, const struct guard *guard,
                      struct reader_sink *ret_sink);
/* Its result has come. */
void flight_on_result(struct flight *flight, const struct msg_answer *answer);
/* Likewise, and flight->answer says what, and with a failure why not. */
void flight_has_answer(struct flight *flight);
/* What still flies of a lost connection's job ends with this failure. */
void flight_lose(struct flight *flight, const struct failure *failure);
