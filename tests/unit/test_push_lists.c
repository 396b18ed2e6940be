/*
 * A job's pushes by state, against a plain array of them that is searched from end to end: pushes
 * are filled, dropped, accepted, released, late and answered in any order, with any number of rows.
 */
#include "daemon/push_lists.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#define WINDOW_MAX 40u
#define N_STEPS    4000u

struct model {
    struct push_lists lists;
    struct push pushes[WINDOW_MAX];
    uint32_t n_tags;                                      /* of rows that were taken */
    uint32_t n_taken[WINDOW_MAX], first_tags[WINDOW_MAX]; /* by push */
    uint32_t window;
    uint64_t next_seq;
};

static struct push *oldest(struct model *model, bool has_records)
{
    struct push *best = NULL;

    for (uint32_t i = 0; i < model->window; i++) {
        struct push *push = &model->pushes[i];
        bool counts = !has_records || (push->n_released < push->n_records && !push->is_late);

        if (push->state == PUSH_ACCEPTED && counts && (best == NULL || push->seq < best->seq)) {
            best = push;
        }
    }
    return best;
}

static uint32_t count(const struct model *model, enum push_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < model->window; i++) {
        n += model->pushes[i].state == state;
    }
    return n;
}

/* Each row is free or one push's, which has its rows in the order in which it took them. */
static void check_rows(const struct model *model)
{
    bool is_met[WINDOW_MAX] = {false};
    uint32_t n = 0;

    for (; n < model->lists.n_free_rows; n++) {
        CHECK_LT(model->lists.free_rows[n], model->window);
        CHECK(!is_met[model->lists.free_rows[n]]);
        is_met[model->lists.free_rows[n]] = true;
    }
    for (uint32_t i = 0; i < model->window; i++) {
        const struct push *push = &model->pushes[i];

        CHECK(!push->has_rows || push->state != PUSH_FREE);
        CHECK_EQ(push->n_rows, MAX(model->n_taken[i], 1u));
        for (uint32_t k = 0; k < model->n_taken[i]; k++, n++) {
            CHECK_LT(push->rows[k], model->window);
            CHECK(!is_met[push->rows[k]]);
            is_met[push->rows[k]] = true;
            CHECK_EQ(push_lists_row(&model->lists, push, k)->tag, model->first_tags[i] + k);
            CHECK_EQ(push_lists_work(&model->lists, push, k)->n_records, model->first_tags[i] + k);
        }
    }
    CHECK_EQ(n, model->window);
}

static void check_walks(struct model *model)
{
    const struct push *previous = NULL;
    uint32_t n_free = 0, n_accepted = 0;

    for (const struct push *push = model->lists.free; push != NULL; push = push->next) {
        CHECK_EQ(push->state, PUSH_FREE);
        n_free++;
        CHECK_LE(n_free, model->window);
    }
    for (const struct push *push = model->lists.first; push != NULL; push = push->next) {
        CHECK_EQ(push->state, PUSH_ACCEPTED);
        CHECK(push->previous == previous);
        CHECK(previous == NULL || previous->seq < push->seq);
        CHECK(push_lists_find(&model->lists, push->seq) == push);
        previous = push;
        n_accepted++;
    }
    CHECK(model->lists.last == previous);
    CHECK_EQ(n_free, count(model, PUSH_FREE));
    CHECK_EQ(n_accepted, count(model, PUSH_ACCEPTED));
    CHECK(model->lists.first == oldest(model, false));
    CHECK(push_lists_find(&model->lists, model->next_seq) == NULL);
}

static void accept(struct model *model, struct push *push)
{
    push->seq = model->next_seq++;
    push->n_records = random_below(4);
    push->n_released = 0;
    push->is_late = false;
    model->first_tags[push - model->pushes] = model->n_tags;
    for (uint64_t n = random_below(4); n > 0 && model->lists.n_free_rows > 0; n--) {
        const uint32_t i = push_lists_take_row(&model->lists, push);

        CHECK_EQ(i, model->n_taken[push - model->pushes]++);
        push_lists_row(&model->lists, push, i)->tag = model->n_tags;
        push_lists_work(&model->lists, push, i)->n_records = model->n_tags++;
    }
    push_lists_move(&model->lists, push, PUSH_ACCEPTED);
}

/* The next thing that can happen to this push. */
static void step(struct model *model, struct push *push)
{
    switch (push->state) {
    case PUSH_FREE:
        if (random_below(2) == 0) {
            push_lists_move(&model->lists, model->lists.free, PUSH_FILLING);
        } else {
            accept(model, model->lists.free);
        }
        break;
    case PUSH_FILLING:
        if (random_below(4) == 0) {
            push_lists_move(&model->lists, push, PUSH_FREE);
        } else {
            accept(model, push);
        }
        break;
    case PUSH_ACCEPTED:
        if (random_below(2) == 0) {
            push->is_late |= random_below(4) == 0;
        } else {
            push_lists_move(&model->lists, push, random_below(2) == 0 ? PUSH_ANSWERED : PUSH_FREE);
        }
        break;
    case PUSH_ANSWERED:
        push_lists_move(&model->lists, push, PUSH_FREE);
        break;
    }
}

static void test_agrees_with_a_search(void)
{
    struct model model = {.window = 1 + (uint32_t)random_below(WINDOW_MAX)};

    for (uint32_t i = 0; i < model.window; i++) {
        push_lists_add(&model.lists, &model.pushes[i]);
    }
    CHECK_EQ(push_lists_make_rows(&model.lists, model.window), 0);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        struct push *push;

        step(&model, &model.pushes[random_below(model.window)]);
        for (uint32_t k = 0; k < model.window; k++) {
            model.n_taken[k] *= model.pushes[k].state != PUSH_FREE;
        }
        push = random_below(2) == 0 ? push_lists_to_release(&model.lists) : NULL;
        if (push != NULL) {
            CHECK(push == oldest(&model, true));
            push->n_released++;
        }
        CHECK(push_lists_to_release(&model.lists) == oldest(&model, true));
        check_walks(&model);
        check_rows(&model);
    }
    push_lists_free_rows(&model.lists);
}

CHECK_MAIN(CHECK_TEST(test_agrees_with_a_search))
