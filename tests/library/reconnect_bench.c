/*
 * Reconnect bench: see reconnect_bench.h.
 */
#include "tests/library/reconnect_bench.h"

#include "tests/check.h"
#include "tests/random.h"
#include "tests/reference.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { MOST_TAGS = 1 << 16 };

struct harness *daemon_;
struct gpupipe *gpupipe;
uint64_t n_under_way, n_done, n_lost;

static int outer_fd = -1;
static struct work *by_tag[MOST_TAGS]; /* what is under way */
static uint64_t n_tags;

/* ---- daemon and connection ------------------------------------------------------------------ */

void launch(void)
{
    const char *const options[] = {
        "--backend", harness_backend(), "--devices", harness_devices(), "--pinned-pool",
        "64M",       "--ring-pool",     "256M",      "--log-level",     "debug",
        NULL};

    harness_launch(daemon_, options);
}

void kill_daemon(void)
{
    harness_signal(daemon_, SIGKILL);
    CHECK_EQ(harness_wait_exit(daemon_), 128 + SIGKILL);
}

/* Before the test ends: the last daemon is looked at first then. */
void finish(void *arg)
{
    (void)arg;
    gpupipe_close(gpupipe);
    gpupipe = NULL;
    if (outer_fd >= 0) {
        close(outer_fd);
    }
    outer_fd = -1;
}

void check_ok(int rc)
{
    if (rc < 0) {
        CHECK_FAIL("%s: %s", gpupipe_last_error(gpupipe)->name,
                   gpupipe_last_error(gpupipe)->message);
    }
}

void check_error(int rc, int status, const char *text)
{
    CHECK_EQ(rc, status);
    CHECK_EQ(gpupipe_last_error(gpupipe)->status, status);
    CHECK_HAS(gpupipe_last_error(gpupipe)->message, text);
}

void watch(void)
{
    struct epoll_event event = {.events = EPOLLIN};

    outer_fd = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(epoll_ctl(outer_fd, EPOLL_CTL_ADD, gpupipe_get_fd(gpupipe), &event), 0);
}

void prepare(void)
{
    daemon_ = harness_create();
    harness_deadline(600);
    check_at_end(finish, NULL);
}

void start(void)
{
    prepare();
    n_tags = n_under_way = n_done = n_lost = 0;
    memset(by_tag, 0, sizeof(by_tag));
    launch();
    check_ok(gpupipe_open(&gpupipe, harness_socket(daemon_), "test"));
    watch();
}

bool is_signalled(void)
{
    return poll(&(struct pollfd){outer_fd, POLLIN, 0}, 1, 0) == 1;
}

/* Nothing of the lost connection is left that could be ready. */
void check_is_quiet(void)
{
    check_ok(gpupipe_dispatch(gpupipe, 0));
    CHECK(!is_signalled());
}

/* 0, or LOST. */
static int await(void)
{
    struct epoll_event event;
    int rc;

    CHECK_EQ(TEMP_FAILURE_RETRY(epoll_wait(outer_fd, &event, 1, -1)), 1);
    rc = gpupipe_dispatch(gpupipe, 0);
    CHECK(rc == 0 || rc == GPUPIPE_ERROR_LOST);
    return rc;
}

/* With nobody there first. */
void reconnect(void)
{
    uint64_t epoch = gpupipe_epoch(gpupipe);
    int fd = gpupipe_get_fd(gpupipe);

    check_error(gpupipe_reconnect(gpupipe), GPUPIPE_ERROR_LOST, harness_socket(daemon_));
    CHECK_HAS(gpupipe_last_error(gpupipe)->message, "start gpupiped there");
    CHECK(is_signalled());
    CHECK_EQ(gpupipe_epoch(gpupipe), epoch);
    check_error(gpupipe_dispatch(gpupipe, 0), GPUPIPE_ERROR_LOST, "");
    launch();
    check_ok(gpupipe_reconnect(gpupipe));
    CHECK_NE(gpupipe_epoch(gpupipe), epoch);
    CHECK_NE(gpupipe_epoch(gpupipe), 0);
    CHECK_EQ(gpupipe_get_fd(gpupipe), fd);
    CHECK_GT(gpupipe_limit(gpupipe, "max_push"), 0);
}

/* ---- streams -------------------------------------------------------------------------------- */

const struct gpupipe_value a = {"a", GPUPIPE_FLOAT, 0, 2.5, NULL};

/* For streams through the socket, of which two are there at once. */
static float memory[2][3 * N_WORKS][MOST + 1];
static unsigned n_streams;

static float *make_room(const struct stream *stream, unsigned i)
{
    float *data = stream->ring == NULL
                      ? memory[n_streams % 2][i]
                      : gpupipe_ring_alloc(stream->ring, (MOST + 1) * sizeof(float));

    CHECK(data != NULL);
    return data;
}

int open_job(struct stream *stream)
{
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.ring = stream->ring;
    opts.window = N_WORKS;
    return gpupipe_job_open(&stream->job, gpupipe, "saxpy", &a, 1, &opts);
}

struct stream open_stream(bool is_in_ring)
{
    struct stream stream = {0};

    if (is_in_ring) {
        check_ok(gpupipe_ring_open(&stream.ring, gpupipe, 16 * MIB, NULL));
    }
    check_ok(open_job(&stream));
    for (unsigned i = 0; i < N_WORKS; i++) {
        stream.works[i].x = make_room(&stream, 3 * i);
        stream.works[i].y = make_room(&stream, 3 * i + 1);
        stream.works[i].out = make_room(&stream, 3 * i + 2);
    }
    n_streams++;
    return stream;
}

static struct gpupipe_desc describe(const struct stream *stream, struct work *work)
{
    struct gpupipe_desc desc;

    GPUPIPE_INIT(&desc);
    desc.job = stream->job;
    desc.tag = n_tags;
    desc.n_records = work->n;
    desc.n_in = 2;
    desc.in[0] = (struct gpupipe_span){work->x, work->n * sizeof(float)};
    desc.in[1] = (struct gpupipe_span){work->y, work->n * sizeof(float)};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){work->out, work->n * sizeof(float)};
    return desc;
}

static bool begin(struct stream *stream, struct work *work)
{
    struct gpupipe_desc desc;
    int n;

    work->n = 1 + random_below(MOST);
    random_floats(work->x, work->n);
    random_floats(work->y, work->n);
    memset(work->out, 0xee, (work->n + 1) * sizeof(float));
    desc = describe(stream, work);
    n = gpupipe_submit(gpupipe, &desc, 1);
    check_ok(n);
    if (n == 1) {
        CHECK_LT(n_tags, MOST_TAGS);
        by_tag[n_tags++] = work;
        work->is_under_way = true;
        n_under_way++;
    }
    return n == 1;
}

/* All but the last, which is for when something stands still. */
static void begin_most(struct stream *stream)
{
    for (int i = 0; i < N_WORKS - 1; i++) {
        if (!stream->works[i].is_under_way && !begin(stream, &stream->works[i])) {
            break;
        }
    }
}

void begin_last(struct stream *stream)
{
    CHECK(!stream->works[N_WORKS - 1].is_under_way);
    CHECK(begin(stream, &stream->works[N_WORKS - 1]));
}

void begin_all(struct stream *stream)
{
    begin_most(stream);
    begin_last(stream);
}

static void check_output(const struct work *work)
{
    static float wanted[MOST + 1];

    memset(&wanted[work->n], 0xee, sizeof(float));
    reference_saxpy(2.5f, work->x, work->y, wanted, work->n);
    reference_check_floats(work->out, wanted, work->n);
    CHECK_MEM(&work->out[work->n], &wanted[work->n], sizeof(float));
}

/* Fails where one comes a second time. */
void take_back(const struct gpupipe_completion *completion)
{
    struct work *work;

    CHECK_LT(completion->tag, n_tags);
    work = by_tag[completion->tag];
    CHECK(work != NULL);
    by_tag[completion->tag] = NULL;
    work->is_under_way = false;
    n_under_way--;
    if (completion->status == GPUPIPE_OK) {
        check_output(work);
        n_done++;
    } else {
        CHECK_EQ(completion->status, GPUPIPE_ERROR_LOST);
        CHECK_EQ(completion->error->status, GPUPIPE_ERROR_LOST);
        n_lost++;
    }
}

static void reap(void)
{
    struct gpupipe_completion completions[4];
    int n;

    GPUPIPE_INIT(&completions[0]);
    while ((n = gpupipe_reap(gpupipe, completions, 4)) > 0) {
        for (int i = 0; i < n; i++) {
            take_back(&completions[i]);
        }
    }
    CHECK(n == 0 || n == GPUPIPE_ERROR_LOST);
}

/* Until n more pushes are done; the window is kept full but for one. */
void keep_busy(struct stream *stream, uint64_t n)
{
    uint64_t enough = n_done + n;

    begin_most(stream);
    while (n_done < enough) {
        CHECK_EQ(await(), 0);
        reap();
        begin_most(stream);
    }
}

/* Everything is back, once. */
void collect(bool by_wait)
{
    while (n_under_way > 0) {
        int rc = by_wait ? gpupipe_wait(gpupipe, -1) : await();

        CHECK(rc >= 0 || rc == GPUPIPE_ERROR_LOST);
        reap();
    }
    for (uint64_t i = 0; i < n_tags; i++) {
        CHECK(by_tag[i] == NULL);
    }
    CHECK_EQ(n_done + n_lost, n_tags);
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* What is in flight at the end cannot be done: worker or daemon stand still. */
void kill_in_the_middle(struct stream *stream, int way)
{
    uint64_t n_before = n_lost;

    keep_busy(stream, random_below(20));
    if (way > 0) {
        harness_pause(way == 1 ? harness_await_worker(daemon_, 0) : harness_pid(daemon_));
        begin_last(stream);
    }
    kill_daemon();
    collect(random_below(2) == 0);
    while (gpupipe_dispatch(gpupipe, -1) == 0) {
    }
    if (way > 0) {
        CHECK_GT(n_lost, n_before);
    }
    CHECK_EQ(gpupipe_reap(gpupipe, NULL, 0), GPUPIPE_ERROR_LOST);
}

void check_takes_no_more(struct stream *old)
{
    struct gpupipe_desc desc = describe(old, &old->works[0]);
    struct gpupipe_outcome outcome;
    struct stream another = {.ring = old->ring};

    check_error(gpupipe_submit(gpupipe, &desc, 1), GPUPIPE_ERROR_MISUSE, "earlier connection");
    CHECK_EQ(gpupipe_job_end(old->job), 0);
    CHECK_EQ(gpupipe_job_cancel(old->job), 0);
    GPUPIPE_INIT(&outcome);
    CHECK_EQ(gpupipe_job_result(old->job, &outcome), 1);
    CHECK_EQ(outcome.status, GPUPIPE_ERROR_LOST);
    if (old->ring != NULL) {
        CHECK(gpupipe_ring_alloc(old->ring, 64) == NULL);
        check_error(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_MISUSE, "earlier");
        check_error(open_job(&another), GPUPIPE_ERROR_MISUSE, "earlier connection");
    }
}

void drop(const struct stream *old)
{
    if (random_below(2) == 0) {
        gpupipe_ring_close(old->ring);
        gpupipe_job_free(old->job);
    } else {
        gpupipe_job_free(old->job);
        gpupipe_ring_close(old->ring);
    }
}
