/*
 * Client bench: see client_bench.h.
 */
#include "tests/unit/client_bench.h"

#include "client/calls.h"
#include "proto/util.h"

#include <poll.h>
#include <sys/socket.h>

/* ---- a connection and a job that clean up after themselves ---------------------------------- */

struct fake_script script;
pid_t server_pid;
struct gpupipe *gpupipe;
struct gpupipe_job *job;
struct gpupipe_ring *ring;
bool is_ring_run;

void end_connection(void *arg)
{
    (void)arg;
    gpupipe_close(STEAL(gpupipe));
    ring = NULL;
    is_ring_run = false;
    if (server_pid != 0) {
        fake_server_end(server_pid);
        server_pid = 0;
    }
}

int connect_to_script(void)
{
    int fd;

    server_pid = fake_server_start(&script, &fd);
    check_at_end(end_connection, NULL);
    return call_open_fd(&gpupipe, fd, "test");
}

void check_server(void)
{
    gpupipe_close(STEAL(gpupipe));
    CHECK_EQ(fake_server_end(server_pid), 0);
    server_pid = 0;
}

void open_job(void)
{
    if (connect_to_script() < 0 || gpupipe_job_open(&job, gpupipe, "fake", NULL, 0, NULL) < 0) {
        CHECK_FAIL("cannot open a job: %s", gpupipe_last_error(gpupipe)->message);
    }
}

int open_ring(void)
{
    return gpupipe_ring_open(&ring, gpupipe, (uint64_t)4 << 20, NULL);
}

int open_job_with(const struct gpupipe_job_opts *opts)
{
    return gpupipe_job_open(&job, gpupipe, "fake", NULL, 0, opts);
}

void open_job_in_ring(uint64_t most_records)
{
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(open_ring(), 0);
    opts.ring = ring;
    opts.priority = script.is_awake ? GPUPIPE_URGENT : GPUPIPE_NORMAL;
    CHECK_EQ(open_job_with(&opts), 0);
    prepare_works(most_records);
}

bool is_readable(void)
{
    return poll(&(struct pollfd){gpupipe_get_fd(gpupipe), POLLIN, 0}, 1, 0) == 1;
}

void check_error(int rc, int status, const char *text)
{
    const struct gpupipe_error *error = gpupipe_last_error(gpupipe);

    CHECK_EQ(rc, status);
    CHECK_EQ(error->status, status);
    CHECK_HAS(error->message, text);
}

/* ---- pushes -------------------------------------------------------------------------------- */

struct work works[N_PUSHES];

void free_works(void *arg)
{
    (void)arg;
    /* Registered before the connection: undone after it, which gives the buffers back. */
    for (int i = 0; i < N_PUSHES; i++) {
        if (!works[i].is_in_ring) {
            free(works[i].in);
            free(works[i].out);
        }
    }
    memset(works, 0, sizeof(works));
}

static void *make_room(uint64_t size)
{
    void *data = ring != NULL ? gpupipe_ring_alloc(ring, MAX(size, UINT64_C(1))) : malloc(size);

    CHECK(data != NULL);
    return data;
}

void prepare_work(struct work *work, uint64_t n_records)
{
    uint64_t size = n_records * script.record_size;

    work->is_in_ring = ring != NULL;
    work->in = make_room(size);
    work->out = make_room(size + 1);
    random_bytes(work->in, size);
    memset(work->out, POISON, size + 1);
    GPUPIPE_INIT(&work->desc);
    work->desc.tag = (uint64_t)(work - works) + 1000;
    work->desc.n_records = n_records;
    work->desc.n_in = 1;
    work->desc.in[0] = (struct gpupipe_span){work->in, size};
    work->desc.n_out = script.is_reduce ? 0 : 1;
    work->desc.out[0] = (struct gpupipe_room){work->out, size};
}

void prepare_works(uint64_t most_records)
{
    check_at_end(free_works, NULL);
    for (int i = 0; i < N_PUSHES; i++) {
        prepare_work(&works[i], 1 + random_below(most_records));
    }
}

int submit(struct work *work)
{
    work->desc.job = job;
    return gpupipe_submit(gpupipe, &work->desc, 1);
}

int reap(void)
{
    struct gpupipe_completion completions[3];
    int n_back = 0, n;

    GPUPIPE_INIT(&completions[0]);
    while ((n = gpupipe_reap(gpupipe, completions, 3)) > 0) {
        for (int i = 0; i < n; i++) {
            struct work *work = &works[completions[i].tag - 1000];

            CHECK(!work->is_back);
            work->is_back = true;
            work->status = completions[i].status;
            work->n_records = completions[i].n_records;
            work->out_size = completions[i].out_size[0];
            if (completions[i].error != NULL) {
                CHECK_EQ(completions[i].error->status, work->status);
                snprintf(work->message, sizeof(work->message), "%s", completions[i].error->message);
            } else {
                CHECK_EQ(work->status, GPUPIPE_OK);
                CHECK_STR(completions[i].device, "cpu0");
                CHECK_STR(completions[i].backend, "cpu");
                CHECK_STR(completions[i].path, work->is_in_ring ? "ring" : "inline");
                CHECK_EQ(completions[i].priority, GPUPIPE_NORMAL);
                CHECK_EQ(completions[i].timing->out_ns, 4);
            }
            n_back++;
        }
    }
    return n_back > 0 ? n_back : n;
}

bool is_over(struct gpupipe_outcome *ret_outcome)
{
    struct gpupipe_outcome outcome;
    int rc;

    GPUPIPE_INIT(&outcome);
    rc = gpupipe_job_result(job, &outcome);
    CHECK_GE(rc, 0);
    *ret_outcome = outcome;
    return rc == 1;
}

struct gpupipe_outcome run_job(void)
{
    struct gpupipe_outcome outcome;
    int n_submitted = 0, n_back = 0, rc;

    while (!is_over(&outcome) || n_back < n_submitted) {
        while (n_submitted < N_PUSHES && (rc = submit(&works[n_submitted])) == 1) {
            n_submitted++;
        }
        if (n_submitted == N_PUSHES) {
            CHECK_EQ(gpupipe_job_end(job), 0);
        }
        (void)gpupipe_wait(gpupipe, -1);
        rc = reap();
        n_back += MAX(rc, 0);
    }
    return outcome;
}

void check_output(const struct work *work)
{
    uint64_t size = work->desc.in[0].size;

    CHECK(work->is_back);
    CHECK_EQ(work->status, GPUPIPE_OK);
    CHECK_EQ(work->n_records, work->desc.n_records);
    CHECK_EQ(work->out_size, size);
    for (uint64_t i = 0; i < size; i++) {
        CHECK_EQ(work->out[i], work->in[i] ^ FAKE_XOR);
    }
    CHECK_EQ(work->out[size], POISON);
}

void check_all_done(void)
{
    struct gpupipe_outcome outcome = run_job();

    for (int i = 0; i < N_PUSHES; i++) {
        check_output(&works[i]);
    }
    CHECK_EQ(outcome.status, GPUPIPE_OK);
    CHECK(outcome.error == NULL);
    CHECK_EQ(outcome.n_pushes, N_PUSHES);
    check_server();
}

int run_work(struct gpupipe_completion *ret_completion)
{
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.priority = GPUPIPE_URGENT;
    opts.no_ring = !is_ring_run;
    return gpupipe_run(gpupipe, "fake", NULL, 0, &opts, &works[0].desc, ret_completion);
}

void prepare_run(void)
{
    prepare_works(200000);
    CHECK_EQ(connect_to_script(), 0);
}
