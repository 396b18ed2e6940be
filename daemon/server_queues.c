/*
 * Server queues: what waits and what is under way, by priority, device and user, for those who ask.
 *
 * It is counted when somebody asks, job by job, so that work pays nothing for it.
 */
#include "daemon/server.h"

#include "proto/util.h"

#include <stdio.h>

static void add_waiting(struct msg_load *load, const struct msg_load *more)
{
    load->waiting += more->waiting;
    load->waiting_size += more->waiting_size;
    load->oldest_ns = MAX(load->oldest_ns, more->oldest_ns);
}

/* Of the job's pushes that have records which no device has, and is to have. */
static struct msg_load waiting_of(const struct job *job)
{
    uint64_t chunk_records = prepared_chunk_records(job->prepared);
    uint64_t now = server_loop_ns(job->server);
    struct msg_load load = {0};

    if (job_is_held(job)) {
        return load;
    }
    for (const struct push *push = job->lists.first; push != NULL; push = push->next) {
        uint64_t n_left = push->n_records - push->n_released;

        if (n_left > 0 && push->seq < job->stop_seq && !push->is_late) {
            load.waiting += div_round_up(n_left, chunk_records);
            load.waiting_size += n_left * job->prepared->shape.largest;
            load.oldest_ns = MAX(load.oldest_ns, now - push->arrived_ns);
        }
    }
    return load;
}

static struct msg_user *row_of(struct msg_stats *stats, uint64_t uid)
{
    for (uint32_t i = 0; i < stats->n_users; i++) {
        if (stats->users[i].uid == uid) {
            return &stats->users[i];
        }
    }
    return NULL;
}

static void note_job(struct msg_stats *stats, const struct job *job)
{
    const struct msg_load load = waiting_of(job);
    struct msg_user *user = row_of(stats, job->user->uid);
    uint32_t devices = job->flow.devices;

    add_waiting(&stats->queues[job->flow.priority].load, &load);
    if (user != NULL) {
        add_waiting(&user->load, &load);
    }
    if (devices != SCHEDULER_ANY_DEVICE) {
        add_waiting(&stats->devices[__builtin_ctz(devices)].load, &load);
    }
}

static void note_device(const struct server *server, uint32_t device, struct msg_stats *stats)
{
    struct msg_device_load *row = &stats->devices[device];

    snprintf(row->device, sizeof(row->device), "%s", server->devices.all[device].name);
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        const struct scheduler_load *load = &server->scheduler.loads[device][priority];
        struct msg_load *const sums[] = {&row->load, &stats->queues[priority].load};

        for (size_t i = 0; i < ARRAY_SIZE(sums); i++) {
            sums[i]->in_flight += load->n_chunks;
            sums[i]->in_flight_size += load->n_bytes;
            sums[i]->device_ns += load->used_ns;
        }
    }
}

/* Root sees all users, others themselves. */
static void note_users(const struct server *server, uid_t viewer, struct msg_stats *stats)
{
    uint64_t now = server_loop_ns(server);

    for (const struct user *user = server->users;
         user != NULL && stats->n_users < LIMIT_USERS_LISTED; user = user->next) {
        if (viewer != 0 && user->uid != viewer) {
            continue;
        }
        struct msg_user *row = &stats->users[stats->n_users++];
        *row = (struct msg_user){
            .uid = user->uid,
            .urgent_left_ns = scheduler_urgent_left(&server->scheduler, &user->time, now),
            .load = {.in_flight = user->time.n_in_flight,
                     .in_flight_size = user->time.n_bytes,
                     .device_ns = user->time.had_ns},
        };
        for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
            row->places += user->places[priority].n_taken;
        }
    }
}

void server_queues(const struct server *server, uid_t viewer, struct msg_stats *stats)
{
    stats->n_queues = PRIORITY_COUNT;
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        stats->queues[priority].priority = priority;
        stats->queues[priority].places = server->places[priority].n_taken;
    }
    stats->n_devices = server->devices.n;
    for (uint32_t device = 0; device < server->devices.n; device++) {
        note_device(server, device, stats);
    }
    note_users(server, viewer, stats);
    for (const struct job *job = server->jobs; job != NULL; job = job->next) {
        note_job(stats, job);
    }
}
