/* After: whoever waits goes on when the last of the others has ended; and how those ended that are
 * gone is known for a while. */
#include "daemon/after.h"
#include "daemon/outcomes.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

enum { N_NODES = 60, OTHERS_MAX = 5 };

/* Each waits for some of those before it, which the model knows as well. */
struct model {
    struct after_node nodes[N_NODES];
    unsigned others[N_NODES][OTHERS_MAX];
    unsigned n_others[N_NODES];
    bool has_ended[N_NODES], has_stopped[N_NODES];
};

static unsigned held_by(const struct model *model, unsigned i)
{
    unsigned n = 0;

    for (unsigned other = 0; !model->has_stopped[i] && other < model->n_others[i]; other++) {
        n += !model->has_ended[model->others[i][other]];
    }
    return n;
}

static void make_nodes(struct model *model)
{
    for (unsigned i = 0; i < N_NODES; i++) {
        struct after_node *others[OTHERS_MAX];
        unsigned n = i == 0 ? 0 : (unsigned)random_below(OTHERS_MAX + 1);

        for (unsigned other = 0; other < n; other++) {
            model->others[i][other] = (unsigned)random_below(i);
            others[other] = &model->nodes[model->others[i][other]];
        }
        model->n_others[i] = n;
        CHECK_EQ(after_wait(&model->nodes[i], others, n), 0);
    }
}

/* Does it still wait for this one? */
static bool names(const struct model *model, unsigned i, unsigned wanted)
{
    bool does = false;

    for (unsigned other = 0; other < model->n_others[i]; other++) {
        does |= model->others[i][other] == wanted;
    }
    return does && !model->has_stopped[i] && !model->has_ended[wanted];
}

static void check_nodes(const struct model *model)
{
    for (unsigned i = 0; i < N_NODES; i++) {
        const struct after_node *only = after_only(&model->nodes[i]);

        CHECK_EQ(model->nodes[i].n_held_by, held_by(model, i));
        CHECK_EQ(only != NULL, held_by(model, i) == 1);
        CHECK(only == NULL || names(model, i, (unsigned)(only - model->nodes)));
    }
}

/* How often the node that has ended was named by one that still waits. */
static unsigned n_waiters(const struct model *model, unsigned ended)
{
    unsigned n = 0;

    for (unsigned i = ended + 1; i < N_NODES; i++) {
        for (unsigned other = 0; !model->has_stopped[i] && other < model->n_others[i]; other++) {
            n += model->others[i][other] == ended;
        }
    }
    return n;
}

static void test_held_until_the_last_has_ended(void)
{
    static struct model model;

    memset(&model, 0, sizeof(model));
    make_nodes(&model);
    check_nodes(&model);
    for (unsigned step = 0; step < 20 * N_NODES; step++) {
        unsigned i = (unsigned)random_below(N_NODES), n = 0;

        if (random_below(8) == 0) { /* cancelled */
            after_stop(&model.nodes[i]);
            model.has_stopped[i] = true;
        } else if (!model.has_ended[i] && held_by(&model, i) == 0) {
            unsigned wanted = n_waiters(&model, i);

            while (after_release(&model.nodes[i]) != NULL) {
                n++;
            }
            CHECK_EQ(n, wanted);
            model.has_ended[i] = true;
        }
        check_nodes(&model);
    }
    for (unsigned i = 0; i < N_NODES; i++) {
        after_stop(&model.nodes[i]);
    }
}

static struct outcome outcome_of(uint64_t job, uint64_t session)
{
    struct outcome outcome = {.job = job, .session = session, .state = JOB_DONE};

    CHECK_EQ(token_make(outcome.token), 0);
    return outcome;
}

static void test_the_last_of_each_user_are_remembered(void)
{
    static struct outcomes outcomes;
    struct outcome quiet = outcome_of(1, 7), noted[LIMIT_JOBS_REMEMBERED * 2];
    uint32_t n = ARRAY_SIZE(noted);

    memset(&outcomes, 0, sizeof(outcomes));
    outcomes_note(&outcomes, 1000, &quiet);
    for (uint32_t i = 0; i < n; i++) {
        noted[i] = outcome_of(2 + i, 8);
        outcomes_note(&outcomes, 1001, &noted[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_known = i >= n - LIMIT_JOBS_REMEMBERED;
        const struct outcome *found = outcomes_find(&outcomes, 8, 2 + i);

        CHECK_EQ(found != NULL, is_known);
        CHECK(found == outcomes_find_token(&outcomes, noted[i].token));
        CHECK(outcomes_find(&outcomes, 7, 2 + i) == NULL);
    }
    CHECK(outcomes_find(&outcomes, 7, 1) != NULL);
    CHECK_STR(outcomes_find_token(&outcomes, quiet.token)->token, quiet.token);
}

static void test_many_users_take_the_oldest_places(void)
{
    static struct outcomes outcomes;
    struct outcome first = outcome_of(1, 1), other;

    memset(&outcomes, 0, sizeof(outcomes));
    outcomes_note(&outcomes, 1, &first);
    for (uint32_t i = 1; i < OUTCOMES_MAX; i++) {
        other = outcome_of(1 + i, 2);
        outcomes_note(&outcomes, 1 + i, &other);
    }
    CHECK(outcomes_find(&outcomes, 1, 1) != NULL);
    other = outcome_of(OUTCOMES_MAX + 1, 2);
    outcomes_note(&outcomes, 0, &other);
    CHECK(outcomes_find(&outcomes, 1, 1) == NULL);
    CHECK(outcomes_find(&outcomes, 2, 2) != NULL);
    CHECK(outcomes_find_token(&outcomes, other.token) != NULL);
}

static void test_tokens(void)
{
    char one[MSG_TOKEN_SIZE], other[MSG_TOKEN_SIZE], empty[MSG_TOKEN_SIZE] = "";

    CHECK_EQ(token_make(one), 0);
    CHECK_EQ(token_make(other), 0);
    CHECK_EQ(strspn(one, "0123456789abcdef"), MSG_TOKEN_SIZE - 1);
    CHECK(token_is(one, one));
    CHECK(!token_is(one, other));
    CHECK(!token_is(one, empty));
    for (size_t i = 0; i < MSG_TOKEN_SIZE - 1; i++) {
        memcpy(other, one, sizeof(other));
        other[i] ^= 1;
        CHECK(!token_is(one, other));
        other[(i + 8) % (MSG_TOKEN_SIZE - 1)] ^= 1;
        CHECK(!token_is(one, other));
    }
}

static unsigned n_told;

static void note_told(struct after_node *waiter)
{
    n_told++;
    CHECK_EQ(waiter->n_held_by, 1);
}

static void test_all_that_wait_are_told(void)
{
    enum { N = 7 };
    struct after_node first = {0}, waiters[N] = {{0}};
    struct after_node *const other = &first;

    n_told = 0;
    after_tell(&first, note_told);
    CHECK_EQ(n_told, 0);
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(after_wait(&waiters[i], &other, 1), 0);
    }
    after_stop(&waiters[3]);
    after_tell(&first, note_told);
    CHECK_EQ(n_told, N - 1);
    for (unsigned i = 0; i < N; i++) {
        after_stop(&waiters[i]);
    }
    CHECK_EQ(first.waiters, NULL);
}

CHECK_MAIN(CHECK_TEST(test_held_until_the_last_has_ended), CHECK_TEST(test_all_that_wait_are_told),
           CHECK_TEST(test_the_last_of_each_user_are_remembered),
           CHECK_TEST(test_many_users_take_the_oldest_places), CHECK_TEST(test_tokens))
