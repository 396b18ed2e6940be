/*
 * The daemon's side of worker_abi.h, one step at a time and without a loop of its own.
 */
#include "tests/worker/front_end.h"

#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"

#include <poll.h>
#include <signal.h>

pid_t front_spawn(const char *program, int fd)
{
    pid_t pid = fork();

    if (pid == 0) {
        /* dup2 onto itself would leave CLOEXEC set. */
        int copy_fd = dup(fd);

        dup2(copy_fd, WORKER_CONTROL_FD);
        if (copy_fd != WORKER_CONTROL_FD) {
            close(copy_fd);
        }
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static const struct front empty = {.control_fd = -1, .doorbell_fd = -1, .jobs_fd = -1};

void front_finish(struct front *front)
{
    if (front->pid > 0) {
        kill(front->pid, SIGKILL);
        waitpid(front->pid, NULL, 0);
    }
    for (uint32_t i = 0; i < FRONT_SEGMENTS; i++) {
        if (front->segments[i].base != NULL) {
            shm_unmap(front->segments[i].base, front->segments[i].size);
        }
    }
    if (front->jobs != NULL) {
        shm_unmap(front->jobs, FRONT_JOBS * sizeof(struct job_block));
    }
    queue_destroy(front->queue);
    close_fd(&front->jobs_fd);
    close_fd(&front->control_fd);
    close_fd(&front->doorbell_fd);
    *front = empty;
}

static void finish(void *arg)
{
    front_finish(arg);
}

static void wait_readable(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};

    if (poll(&pollfd, 1, FRONT_PATIENCE_MS) == 0) {
        CHECK_FAIL("the worker says nothing");
    }
}

/* The next message, whatever it is. */
static void receive(struct front *front, struct control_message *ret_message)
{
    uint32_t n_fds = 0;
    ssize_t size;

    wait_readable(front->control_fd);
    memset(ret_message, 0xa5, sizeof(*ret_message));
    size =
        channel_receive_packet(front->control_fd, ret_message, sizeof(*ret_message), NULL, &n_fds);
    CHECK_EQ(size, sizeof(*ret_message));
    CHECK_EQ(ret_message->abi, WORKER_ABI);
    CHECK_EQ(n_fds, 0);
    if (ret_message->type == CONTROL_FATAL) {
        printf("# FATAL: %s\n", ret_message->fatal.message);
    }
}

void front_expect(struct front *front, enum control_type type, struct control_message *ret_message)
{
    receive(front, ret_message);
    CHECK_EQ(ret_message->type, type);
}

void front_need_hello(const struct control_message *message)
{
    if (message->type == CONTROL_FATAL && message->fatal.status == STATUS_NO_DEVICE) {
        CHECK_SKIP("%s", message->fatal.message);
    }
    CHECK_EQ(message->type, CONTROL_HELLO);
}

void front_start(struct front *ret_front, const char *variable)
{
    struct control_message message;
    const char *program = getenv(variable);
    int fds[2];

    *ret_front = empty;
    check_at_end(finish, ret_front);
    CHECK(program != NULL);
    CHECK_EQ(channel_pair(false, fds), 0);
    ret_front->control_fd = fds[0];
    ret_front->pid = front_spawn(program, fds[1]);
    close(fds[1]);
    CHECK_GT(ret_front->pid, 0);
    receive(ret_front, &message);
    front_need_hello(&message);
    ret_front->caps = message.hello;
    CHECK_LE(ret_front->caps.n_ops, FRONT_OPS);
    for (uint32_t i = 0; i < ret_front->caps.n_ops; i++) {
        front_expect(ret_front, CONTROL_MANIFEST, &message);
        CHECK_EQ(message.manifest.index, i);
        ret_front->ops[i] = message.manifest.op;
    }
}

void front_start_ready(struct front *ret_front, const char *variable, uint32_t first_index)
{
    struct control_message message = {.type = CONTROL_QUEUES, .abi = WORKER_ABI};
    int doorbells[2], fds[3];
    void *base;

    front_start(ret_front, variable);
    CHECK_EQ(queue_create_at(1, first_index, &ret_front->queue), 0);
    ret_front->jobs_fd = shm_create("jobs", FRONT_JOBS * sizeof(struct job_block));
    CHECK_GE(ret_front->jobs_fd, 0);
    CHECK_EQ(shm_map(ret_front->jobs_fd, FRONT_JOBS * sizeof(struct job_block), &base), 0);
    ret_front->jobs = base;
    CHECK_EQ(channel_pair(true, doorbells), 0);
    ret_front->doorbell_fd = doorbells[0];
    message.queues.generation = 1;
    message.queues.n_job_slots = FRONT_JOBS;
    fds[0] = queue_fd(ret_front->queue);
    fds[1] = ret_front->jobs_fd;
    fds[2] = doorbells[1];
    front_send(ret_front, &message, fds, ARRAY_SIZE(fds));
    close(doorbells[1]);
    front_expect(ret_front, CONTROL_READY, &message);
}

void front_send(struct front *front, const struct control_message *message, const int *fds,
                uint32_t n_fds)
{
    CHECK_EQ(channel_send_packet(front->control_fd, message, sizeof(*message), fds, n_fds), 0);
}

void front_expect_exit(struct front *front, int status)
{
    struct control_message message;
    uint32_t n_fds = 0;
    int got;

    if (front->control_fd >= 0) {
        ssize_t size;

        wait_readable(front->control_fd);
        size = channel_receive_packet(front->control_fd, &message, sizeof(message), NULL, &n_fds);
        CHECK(size == 0 || size == -ECONNRESET);
    }
    CHECK_EQ(waitpid(front->pid, &got, 0), front->pid);
    front->pid = 0;
    CHECK_EQ(got, status);
}

void front_ping(struct front *front)
{
    const struct control_message message = {.type = CONTROL_PING, .abi = WORKER_ABI};
    struct control_message answer;

    front_send(front, &message, NULL, 0);
    front_expect(front, CONTROL_PONG, &answer);
}

static void send_segment_add(struct front *front, uint32_t id, int fd, size_t size)
{
    struct control_message message = {.type = CONTROL_SEGMENT_ADD, .abi = WORKER_ABI};

    message.segment.id = id;
    message.segment.size = size;
    front_send(front, &message, &fd, 1);
}

void *front_lend_segment(struct front *front, uint32_t id, int fd, size_t size)
{
    struct control_message message;

    CHECK_EQ(shm_map(fd, size, &front->segments[id].base), 0);
    front->segments[id].size = size;
    send_segment_add(front, id, fd, size);
    front_expect(front, CONTROL_SEGMENT_OK, &message);
    CHECK_EQ(message.segment.id, id);
    return front->segments[id].base;
}

void *front_add_segment(struct front *front, uint32_t id, size_t size)
{
    void *base;
    int fd = shm_create("segment", size);

    CHECK_GE(fd, 0);
    base = front_lend_segment(front, id, fd, size);
    close(fd);
    memset(base, 0xa5, size);
    return base;
}

void front_expect_refusal(struct front *front, uint32_t id, int fd, size_t size, const char *words)
{
    struct control_message message;

    send_segment_add(front, id, fd, size);
    front_expect(front, CONTROL_SEGMENT_REFUSED, &message);
    CHECK_EQ(message.segment_refused.id, id);
    CHECK_NE(message.segment_refused.failure.status, STATUS_OK);
    CHECK_HAS(message.segment_refused.failure.message, words);
}

void front_drop_segment(struct front *front, uint32_t id)
{
    struct control_message message = {.type = CONTROL_SEGMENT_DROP, .abi = WORKER_ABI};

    message.segment.id = id;
    front_send(front, &message, NULL, 0);
    front_expect(front, CONTROL_SEGMENT_GONE, &message);
    CHECK_EQ(message.segment.id, id);
}

uint32_t front_op(const struct front *front, const char *name)
{
    for (uint32_t i = 0; i < front->caps.n_ops; i++) {
        if (strcmp(front->ops[i].name, name) == 0) {
            return i;
        }
    }
    CHECK_FAIL("the worker has no op %s", name);
}

void front_set_job(struct front *front, uint32_t slot, uint32_t op, const void *params,
                   size_t params_size)
{
    struct job_block block = {.op = op};

    CHECK_LT(slot, FRONT_JOBS);
    if (params != NULL) {
        memcpy(block.params, params, params_size);
    }
    front->jobs[slot] = block;
}

uint32_t front_submit(struct front *front, enum priority priority, struct work_entry entry)
{
    return front_submit_table(front, priority, entry, NULL, 0);
}

uint32_t front_submit_table(struct front *front, enum priority priority, struct work_entry entry,
                            const struct work_row *rows, uint32_t n)
{
    uint32_t index = 0;

    CHECK_EQ(queue_work_put(front->queue, priority, &entry, &index), 0);
    queue_rows_put(front->queue, priority, index, rows, n);
    if (queue_work_publish(front->queue, priority)) {
        channel_ring(front->doorbell_fd);
    }
    return index;
}

/* One announced range into answers; returns how many that were. */
static uint32_t take_range(struct front *front, const struct done_entry *done,
                           struct front_answer *ret_answers)
{
    for (uint32_t i = 0; i < done->count; i++) {
        struct front_answer *answer = &ret_answers[i];

        answer->priority = done->queue;
        answer->index = done->first + i;
        queue_work_read(front->queue, done->queue, answer->index, &answer->entry, &answer->result);
        CHECK_EQ(answer->result.state, RESULT_DONE);
        CHECK_GT(answer->result.issue_ns, 0);
        CHECK_LE(answer->result.issue_ns, answer->result.start_ns);
        CHECK_LE(answer->result.start_ns, answer->result.end_ns);
        if (answer->result.status != STATUS_OK) {
            queue_error_read(front->queue, done->queue, answer->index, &front->error);
        }
        queue_work_release(front->queue, done->queue, answer->index);
    }
    return done->count;
}

void front_await(struct front *front, struct front_answer *ret_answers, uint32_t n)
{
    uint32_t n_got = 0;

    while (n_got < n) {
        struct done_entry done;
        int n_done = queue_done_take(front->queue, &done, 1);

        CHECK_GE(n_done, 0);
        if (n_done == 1) {
            CHECK_LE(n_got + done.count, n);
            n_got += take_range(front, &done, &ret_answers[n_got]);
        } else {
            if (queue_done_sleep(front->queue)) {
                wait_readable(front->doorbell_fd);
            }
            queue_done_awake(front->queue);
            channel_drain(front->doorbell_fd, NULL);
        }
    }
}

struct work_result front_run(struct front *front, enum priority priority, struct work_entry entry)
{
    struct front_answer answer;
    uint32_t index = front_submit(front, priority, entry);

    front_await(front, &answer, 1);
    CHECK_EQ(answer.priority, priority);
    CHECK_EQ(answer.index, index);
    return answer.result;
}
