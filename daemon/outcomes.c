/*
 * Outcomes: a table that is looked through, as hardly anybody asks.
 */
#include "daemon/outcomes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Where the next one of this user goes: in place of its own oldest if it has all it may have, else
 * of the oldest of all, free places first. */
static uint32_t choose_place(const struct outcomes *outcomes, uid_t uid)
{
    uint32_t n_own = 0, own = 0, oldest = 0;

    for (uint32_t i = 0; i < OUTCOMES_MAX; i++) {
        const struct outcome_age *age = &outcomes->ages[i];

        if (age->number < outcomes->ages[oldest].number) {
            oldest = i;
        }
        if (age->number != 0 && age->uid == uid) {
            own = n_own == 0 || age->number < outcomes->ages[own].number ? i : own;
            n_own++;
        }
    }
    return n_own >= LIMIT_JOBS_REMEMBERED ? own : oldest;
}

void outcomes_note(struct outcomes *outcomes, uid_t uid, const struct outcome *outcome)
{
    uint32_t place = choose_place(outcomes, uid);

    outcomes->ages[place] = (struct outcome_age){.number = ++outcomes->n_noted, .uid = uid};
    outcomes->all[place] = *outcome;
}

const struct outcome *outcomes_find(const struct outcomes *outcomes, uint64_t session, uint64_t job)
{
    for (uint32_t i = 0; i < OUTCOMES_MAX; i++) {
        const struct outcome *outcome = &outcomes->all[i];

        if (outcomes->ages[i].number != 0 && outcome->session == session && outcome->job == job) {
            return outcome;
        }
    }
    return NULL;
}

const struct outcome *outcomes_find_token(const struct outcomes *outcomes, const char *token)
{
    for (uint32_t i = 0; i < OUTCOMES_MAX; i++) {
        if (outcomes->ages[i].number != 0 && token_is(outcomes->all[i].token, token)) {
            return &outcomes->all[i];
        }
    }
    return NULL;
}

int token_make(char ret_token[MSG_TOKEN_SIZE])
{
    uint8_t bytes[(MSG_TOKEN_SIZE - 1) / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        return -EIO;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(ret_token + 2 * i, 3, "%02x", bytes[i]);
    }
    return 0;
}

/* In words: a request may name 16, and each is held against a thousand or two. */
bool token_is(const char token[MSG_TOKEN_SIZE], const char other[MSG_TOKEN_SIZE])
{
    uint64_t words[4], others[4], differing = 0;

    _Static_assert(sizeof(words) + 1 == MSG_TOKEN_SIZE, "all but the NUL");
    memcpy(words, token, sizeof(words));
    memcpy(others, other, sizeof(others));
    for (unsigned i = 0; i < 4; i++) {
        differing |= words[i] ^ others[i];
    }
    return differing == 0;
}
