/*
 * The table of segments, with workers that are played: what each one really has mapped is kept
 * here, from what it was told and what it answered, and every callback is held against that.
 */
#include "daemon/segments.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#define N_IDS     24u
#define N_WORKERS 4u

enum action { ACTION_OK, ACTION_REFUSE, ACTION_KILL, ACTION_EXIT, ACTION_JOIN, N_ACTIONS };
enum life { LIFE_NONE, LIFE_ADDING, LIFE_USABLE, LIFE_FAILED, LIFE_DROPPED, LIFE_GONE };

/* One segment, as its owner sees it. */
static struct owned {
    enum life life;
    bool is_spoiled; /* whoever is ready may be so without it */
    bool is_watched;
    int fd;
    size_t size; /* of no other: the table only passes it on */
    char reason[32];
} owned[N_IDS];

/* One worker, as its kernel sees it. */
static struct played {
    struct segment_mapper mapper;
    bool is_there; /* has not exited */
    bool is_ready;
    bool is_killed;
    bool is_full;   /* its socket takes nothing now */
    bool is_broken; /* its socket takes nothing any more */
    enum segment_request order;
    uint32_t id;          /* that it is about */
    size_t mapped[N_IDS]; /* sizes; 0: not mapped */
} workers[N_WORKERS];

static struct segments *segments;
static size_t last_size;
static unsigned n_usable, n_failed, n_gone, n_spoiled;
static bool is_chatty; /* whoever is told of one adds another, once */
static bool is_over;   /* nobody cares any more */

static uint32_t add(bool is_watched);

/* ---- what its owner is told ----------------------------------------------------------------- */

static bool is_ready(const struct played *worker)
{
    return worker->is_there && worker->is_ready && !worker->is_killed;
}

static unsigned n_ready(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < N_WORKERS; i++) {
        n += is_ready(&workers[i]);
    }
    return n;
}

static void check_ready_have(uint32_t id)
{
    for (unsigned i = 0; i < N_WORKERS; i++) {
        if (is_ready(&workers[i]) && !owned[id].is_spoiled) {
            CHECK_EQ(workers[i].mapped[id], owned[id].size);
        }
    }
}

static void chat(void)
{
    if (is_chatty) {
        is_chatty = false;
        add(true);
    }
}

static void on_usable(void *owner, uint32_t id)
{
    if (is_over) {
        return;
    }
    CHECK(owner == owned);
    CHECK_EQ(owned[id].life, LIFE_ADDING);
    CHECK_GT(n_ready(), 0);
    check_ready_have(id);
    owned[id].life = LIFE_USABLE;
    n_usable++;
    chat();
}

static void on_failed(void *owner, uint32_t id, const char *reason)
{
    if (is_over) {
        return;
    }
    CHECK(owner == owned);
    CHECK_EQ(owned[id].life, LIFE_ADDING);
    owned[id].life = LIFE_FAILED;
    snprintf(owned[id].reason, sizeof(owned[id].reason), "%s", reason);
    n_failed++;
    chat();
}

static void on_spoiled(void *owner, uint32_t id, const char *reason)
{
    if (is_over) {
        return;
    }
    CHECK(owner == owned);
    CHECK_EQ(owned[id].life, LIFE_USABLE);
    CHECK_STR(reason, "no sugar");
    owned[id].is_spoiled = true;
    n_spoiled++;
    chat();
}

static void on_gone(void *owner, uint32_t id, int fd)
{
    if (is_over) {
        return;
    }
    CHECK(owner == owned);
    CHECK_EQ(owned[id].fd, fd);
    CHECK_NE(fcntl(fd, F_GETFD), -1);
    CHECK(owned[id].life == LIFE_FAILED || owned[id].life == LIFE_DROPPED);
    for (unsigned i = 0; i < N_WORKERS; i++) {
        if (workers[i].is_there) {
            CHECK_EQ(workers[i].mapped[id], 0);
        }
    }
    owned[id].life = LIFE_GONE; /* the id is not free before this returns */
    n_gone++;
    chat();
    owned[id].life = LIFE_NONE;
}

/* ---- what workers are told, and do ----------------------------------------------------------- */

static void kill_worker(struct played *worker)
{
    worker->is_killed = true;
    segments_set_takes_work(segments, &worker->mapper, false);
}

static void receive(struct played *worker, enum segment_request order, uint32_t id)
{
    if (order == SEGMENT_ADD) {
        CHECK_EQ(segments_fd(segments, id), owned[id].fd);
        CHECK_EQ(segments_size(segments, id), owned[id].size);
        CHECK(owned[id].life == LIFE_USABLE || owned[id].life == LIFE_ADDING);
        CHECK_EQ(worker->mapped[id], 0);
        worker->mapped[id] = owned[id].size;
    } else {
        CHECK_EQ(order, SEGMENT_DROP);
        CHECK(owned[id].life == LIFE_FAILED || owned[id].life == LIFE_DROPPED);
        CHECK_EQ(worker->mapped[id], owned[id].size); /* nobody drops what it has refused */
    }
    worker->order = order;
    worker->id = id;
}

/* As a link does: one request at a time, and it takes work when there is none. */
static void ask(struct played *worker)
{
    uint32_t id;

    if (!worker->is_there || worker->is_killed || worker->order != SEGMENT_NOTHING) {
        return;
    }
    enum segment_request order = segments_next(segments, &worker->mapper, &id);
    if (order != SEGMENT_NOTHING && worker->is_broken) {
        kill_worker(worker);
    } else if (order != SEGMENT_NOTHING && worker->is_full) {
        segments_note_unasked(&worker->mapper, id);
    } else if (order != SEGMENT_NOTHING) {
        receive(worker, order, id);
    } else if (!worker->is_ready) {
        worker->is_ready = true;
        segments_set_takes_work(segments, &worker->mapper, true);
    }
}

static void on_news(struct segment_mapper *mapper)
{
    ask(CONTAINER_OF(mapper, struct played, mapper));
}

/* What every socket that was full does later; and what is always true. */
static void ask_all(void)
{
    for (unsigned i = 0; i < N_WORKERS; i++) {
        ask(&workers[i]);
    }
    for (uint32_t id = 0; id < N_IDS; id++) {
        if (owned[id].life == LIFE_USABLE) {
            check_ready_have(id);
        }
    }
}

static bool answer(struct played *worker, bool is_refused)
{
    uint32_t id = worker->id;

    enum segment_request order = worker->order;

    worker->order = SEGMENT_NOTHING;
    if (order == SEGMENT_DROP) {
        worker->mapped[id] = 0;
        return segments_note_gone(segments, &worker->mapper, id);
    }
    if (is_refused) {
        worker->mapped[id] = 0;
        return segments_note_refused(segments, &worker->mapper, id, "no sugar");
    }
    return segments_note_mapped(segments, &worker->mapper, id);
}

static void join(struct played *worker)
{
    memset(worker, 0, sizeof(*worker));
    worker->is_there = true;
    worker->mapper.on_news = on_news;
    segments_attach(segments, &worker->mapper);
}

/* A killed one may write to its memory until here. */
static void end_worker(struct played *worker)
{
    worker->is_there = false;
    segments_detach(segments, &worker->mapper);
}

static void act_on_order(struct played *worker, bool is_refused)
{
    bool is_refusal = is_refused && worker->order == SEGMENT_ADD;
    bool is_needed = owned[worker->id].life == LIFE_USABLE && !owned[worker->id].is_watched;
    bool is_fine = answer(worker, is_refusal);

    CHECK_EQ(is_fine, !(is_refusal && is_needed));
    if (!is_fine) {
        kill_worker(worker);
    }
}

/* Returns false if a worker in its state cannot do so. */
static bool act(struct played *worker, enum action action)
{
    bool is_there = worker->is_there;

    if (action == ACTION_JOIN && !is_there) {
        join(worker);
    } else if (action == ACTION_KILL && is_there && !worker->is_killed) {
        kill_worker(worker);
    } else if (action == ACTION_EXIT && is_there && worker->is_killed) {
        end_worker(worker);
    } else if (action <= ACTION_REFUSE && is_there && !worker->is_killed &&
               worker->order != SEGMENT_NOTHING) {
        act_on_order(worker, action == ACTION_REFUSE);
    } else {
        return false;
    }
    ask_all();
    return true;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void finish(void *arg)
{
    (void)arg;
    is_over = true;
    for (unsigned i = 0; i < N_WORKERS; i++) {
        if (workers[i].is_there && segments != NULL) {
            segments_detach(segments, &workers[i].mapper);
        }
        workers[i].is_there = false;
    }
    segments_destroy(STEAL(segments));
}

static void start(void)
{
    memset(owned, 0, sizeof(owned));
    memset(workers, 0, sizeof(workers));
    n_usable = n_failed = n_gone = n_spoiled = 0;
    is_chatty = is_over = false;
    CHECK_EQ(segments_create(&segments), 0);
}

static uint32_t add(bool is_watched)
{
    const struct segment_watch watch = {owned, on_usable, on_failed, on_gone, on_spoiled};
    uint32_t id = 0, got = UINT32_MAX;
    int fd = eventfd(0, EFD_CLOEXEC);

    CHECK_GE(fd, 0);
    while (owned[id].life != LIFE_NONE) {
        id++;
        CHECK_LT(id, N_IDS);
    }
    owned[id] = (struct owned){
        .life = is_watched ? LIFE_ADDING : LIFE_USABLE,
        .is_watched = is_watched,
        .fd = fd,
        .size = ++last_size,
    };
    CHECK_EQ(segments_add(segments, fd, last_size, is_watched ? &watch : NULL, &got), 0);
    CHECK_EQ(got, id); /* the lowest that is free */
    ask_all();
    return id;
}

static void drop(uint32_t id)
{
    owned[id].life = LIFE_DROPPED;
    segments_drop(segments, id);
    ask_all();
}

/* Do as they are told, until nobody is told anything. */
static void obey(void)
{
    bool has_any = true;

    while (has_any) {
        has_any = false;
        for (unsigned i = 0; i < N_WORKERS; i++) {
            if (workers[i].is_there && !workers[i].is_killed &&
                workers[i].order != SEGMENT_NOTHING) {
                act(&workers[i], ACTION_OK);
                has_any = true;
            }
        }
    }
}

/* Whatever happened, all come to an end: everything is usable or gone, and then all is gone. */
static void check_all_end(void)
{
    for (unsigned i = 0; i < N_WORKERS; i++) {
        workers[i].is_full = false;
        if (workers[i].is_there && workers[i].is_killed) {
            end_worker(&workers[i]);
        }
        act(&workers[i], ACTION_JOIN);
    }
    ask_all(); /* whose socket was full */
    obey();
    CHECK_EQ(n_ready(), N_WORKERS);
    for (uint32_t id = 0; id < N_IDS; id++) {
        CHECK(owned[id].life == LIFE_NONE || owned[id].life == LIFE_USABLE);
        if (owned[id].life == LIFE_USABLE && id > 0) { /* 0 is not watched */
            drop(id);
        }
    }
    obey();
    for (uint32_t id = 1; id < N_IDS; id++) {
        CHECK_EQ(owned[id].life, LIFE_NONE);
    }
    finish(NULL);
}

/* ---- stories ----------------------------------------------------------------------------- */

static void test_it_is_usable_when_all_ready_workers_have_it(void)
{
    check_at_end(finish, NULL);
    start();
    add(false);
    join(&workers[0]);
    join(&workers[1]);
    ask_all();
    obey();
    CHECK_EQ(n_ready(), 2);
    uint32_t id = add(true);
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_usable, 0);
    act(&workers[1], ACTION_OK);
    CHECK_EQ(n_usable, 1);
    drop(id);
    act(&workers[1], ACTION_OK);
    CHECK_EQ(n_gone, 0);
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_gone, 1);
    check_all_end();
}

/* What was added before it is usable with it, and one that joins later has it. */
static void test_the_first_worker_finds_one_that_is_added(void)
{
    check_at_end(finish, NULL);
    start();
    add(false);
    add(true);
    CHECK_EQ(n_usable, 0);
    act(&workers[0], ACTION_JOIN);
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_usable, 0);
    act(&workers[0], ACTION_OK);
    CHECK(workers[0].is_ready);
    CHECK_EQ(n_usable, 1);
    act(&workers[1], ACTION_JOIN);
    act(&workers[1], ACTION_OK);
    CHECK(!workers[1].is_ready);
    act(&workers[1], ACTION_OK);
    CHECK(workers[1].is_ready);
    check_all_end();
}

static void test_one_refuses_and_all_drop_it(void)
{
    check_at_end(finish, NULL);
    start();
    act(&workers[0], ACTION_JOIN);
    act(&workers[1], ACTION_JOIN);
    uint32_t id = add(true);
    act(&workers[0], ACTION_OK);
    act(&workers[1], ACTION_REFUSE);
    CHECK_EQ(n_failed, 1);
    CHECK_STR(owned[id].reason, "no sugar");
    CHECK_EQ(n_gone, 0);
    CHECK_EQ(workers[0].order, SEGMENT_DROP);
    CHECK_EQ(workers[1].order, SEGMENT_NOTHING);
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_gone, 1);
    CHECK_EQ(n_ready(), 2);
    check_all_end();
}

/* Nobody else has it to drop: it has failed first, and is gone after. */
static void test_the_only_worker_refuses(void)
{
    check_at_end(finish, NULL);
    start();
    act(&workers[0], ACTION_JOIN);
    add(true);
    act(&workers[0], ACTION_REFUSE);
    CHECK_EQ(n_failed, 1);
    CHECK_EQ(n_gone, 1);
    check_all_end();
}

/* It is not asked to drop what it has refused; the next of its id is another one. */
static void test_a_later_worker_refuses(void)
{
    check_at_end(finish, NULL);
    start();
    act(&workers[0], ACTION_JOIN);
    uint32_t id = add(true);
    act(&workers[0], ACTION_OK);
    act(&workers[1], ACTION_JOIN);
    act(&workers[1], ACTION_REFUSE);
    CHECK_EQ(n_spoiled, 1);
    CHECK_EQ(n_ready(), 2);
    drop(id);
    CHECK_EQ(workers[1].order, SEGMENT_NOTHING);
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_gone, 1);
    CHECK_EQ(add(true), id);
    obey();
    CHECK_EQ(n_usable, 2);
    check_all_end();
}

/* What is added on that news finds a worker that must be condemned, and all is looked at again. */
static void test_gone_is_said_once(void)
{
    check_at_end(finish, NULL);
    start();
    act(&workers[0], ACTION_JOIN);
    act(&workers[1], ACTION_JOIN);
    uint32_t id = add(true);
    obey();
    drop(id);
    act(&workers[1], ACTION_OK);
    CHECK_EQ(n_gone, 0);
    workers[1].is_broken = true;
    is_chatty = true;
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_gone, 1);
    CHECK(workers[1].is_killed);
    check_all_end();
}

/* Killed, it may still write: only its exit frees what it had, and what it was still asked for. */
static void test_a_killed_worker_has_it_until_its_exit(void)
{
    check_at_end(finish, NULL);
    start();
    act(&workers[0], ACTION_JOIN);
    act(&workers[1], ACTION_JOIN);
    uint32_t id = add(true);
    act(&workers[0], ACTION_OK);
    act(&workers[1], ACTION_KILL);
    CHECK_EQ(n_usable, 1); /* the other is not waited for */
    drop(id);
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_gone, 0);
    act(&workers[1], ACTION_EXIT);
    CHECK_EQ(n_gone, 1);
    check_all_end();
}

/* What is due follows from the table: what was added and dropped meanwhile is never heard of. */
static void test_a_full_socket_loses_nothing(void)
{
    check_at_end(finish, NULL);
    start();
    act(&workers[0], ACTION_JOIN);
    workers[0].is_full = true;
    uint32_t first = add(true), second = add(true);
    drop(first);
    CHECK_EQ(n_gone, 1);
    workers[0].is_full = false;
    ask_all();
    CHECK_EQ(workers[0].id, second);
    workers[0].is_full = true;
    act(&workers[0], ACTION_OK);
    CHECK_EQ(n_usable, 1);
    drop(second);
    uint32_t third = add(true);
    CHECK_EQ(third, first);
    workers[0].is_full = false;
    ask_all();
    obey();
    CHECK_EQ(n_gone, 2);
    CHECK_EQ(n_usable, 2);
    workers[0].is_full = true;
    drop(third);
    ask_all();
    CHECK_EQ(n_gone, 2);
    workers[0].is_full = false;
    ask_all();
    obey();
    CHECK_EQ(n_gone, 3);
    check_all_end();
}

static void check_takes_no_answer(uint32_t id)
{
    struct segment_mapper *mapper = &workers[0].mapper;

    CHECK(!segments_note_mapped(segments, mapper, id));
    CHECK(!segments_note_refused(segments, mapper, id, ""));
    CHECK(!segments_note_gone(segments, mapper, id));
}

static void test_answers_to_no_question(void)
{
    check_at_end(finish, NULL);
    start();
    add(false);
    act(&workers[0], ACTION_JOIN);
    CHECK_EQ(workers[0].order, SEGMENT_ADD);
    check_takes_no_answer(1);
    check_takes_no_answer(UINT32_MAX);
    CHECK(!segments_note_gone(segments, &workers[0].mapper, 0));
    act(&workers[0], ACTION_OK);
    check_takes_no_answer(0);
    check_all_end();
}

static void test_all_ids(void)
{
    uint32_t id;

    CHECK_EQ(segments_create(&segments), 0);
    check_at_end(finish, NULL);
    memset(workers, 0, sizeof(workers));
    for (uint32_t i = 0; i < 65536; i++) {
        CHECK_EQ(segments_add(segments, -1, 1, NULL, &id), 0);
        CHECK_EQ(id, i);
    }
    CHECK_EQ(segments_add(segments, -1, 1, NULL, &id), -EAGAIN);
}

/* ---- every order ------------------------------------------------------------------------- */

enum { N_STEPS = 6, N_CHOICES = 2 * N_ACTIONS + 1 };

/* Returns false if that cannot happen now. */
static bool choose(unsigned choice, uint32_t id)
{
    if (choice < N_CHOICES - 1) {
        return act(&workers[choice / N_ACTIONS], choice % N_ACTIONS);
    }
    if (owned[id].life != LIFE_ADDING && owned[id].life != LIFE_USABLE) {
        return false;
    }
    drop(id);
    return true;
}

/* Two ready workers, and a segment is added: whatever happens next, so many times. */
static void test_every_order(void)
{
    unsigned n_orders = 1, n_played = 0;

    check_at_end(finish, NULL);
    for (unsigned step = 0; step < N_STEPS; step++) {
        n_orders *= N_CHOICES;
    }
    for (unsigned order = 0, next; order < n_orders; order = next) {
        unsigned n_same = n_orders; /* orders with the same steps so far */

        start();
        add(false);
        for (unsigned i = 0; i < 2; i++) {
            act(&workers[i], ACTION_JOIN);
            act(&workers[i], ACTION_OK);
        }
        uint32_t id = add(true);
        do {
            n_same /= N_CHOICES;
            next = (order / n_same + 1) * n_same;
        } while (choose(order / n_same % N_CHOICES, id) && n_same > 1);
        check_all_end();
        CHECK_EQ(n_gone, 1);
        n_played++;
    }
    CHECK_GT(n_played, 10000);
}

static void random_step(void)
{
    uint32_t id = 1 + (uint32_t)random_below(N_IDS / 2);
    struct played *worker = &workers[random_below(N_WORKERS)];

    switch (random_below(16)) {
    case 0:
        if (owned[id].life == LIFE_ADDING || owned[id].life == LIFE_USABLE) {
            drop(id);
        }
        break;
    case 1:
        for (id = 0; id < N_IDS / 2 && owned[id].life != LIFE_NONE; id++) {
        }
        if (id < N_IDS / 2) {
            add(true);
        }
        break;
    case 2:
        worker->is_full = !worker->is_full;
        break;
    case 3:
        act(worker, ACTION_KILL);
        break;
    case 4:
        act(worker, ACTION_REFUSE);
        break;
    case 5:
        act(worker, ACTION_EXIT);
        break;
    case 6:
    case 7:
        act(worker, ACTION_JOIN);
        break;
    default:
        act(worker, ACTION_OK);
    }
}

static void test_long_lives(void)
{
    enum { N_LIVES = 50, N_RANDOM_STEPS = 3000 };
    unsigned n_all_usable = 0, n_all_failed = 0, n_all_spoiled = 0;

    check_at_end(finish, NULL);
    for (unsigned life = 0; life < N_LIVES; life++) {
        start();
        add(false);
        for (unsigned step = 0; step < N_RANDOM_STEPS; step++) {
            random_step();
        }
        n_all_usable += n_usable;
        n_all_failed += n_failed;
        n_all_spoiled += n_spoiled;
        check_all_end();
    }
    CHECK_GT(n_all_usable, N_LIVES);
    CHECK_GT(n_all_failed, N_LIVES);
    CHECK_GT(n_all_spoiled, N_LIVES);
}

CHECK_MAIN(CHECK_TEST(test_it_is_usable_when_all_ready_workers_have_it),
           CHECK_TEST(test_the_first_worker_finds_one_that_is_added),
           CHECK_TEST(test_one_refuses_and_all_drop_it), CHECK_TEST(test_the_only_worker_refuses),
           CHECK_TEST(test_a_later_worker_refuses), CHECK_TEST(test_gone_is_said_once),
           CHECK_TEST(test_a_killed_worker_has_it_until_its_exit),
           CHECK_TEST(test_a_full_socket_loses_nothing), CHECK_TEST(test_answers_to_no_question),
           CHECK_TEST(test_all_ids), CHECK_TEST(test_every_order), CHECK_TEST(test_long_lives))
