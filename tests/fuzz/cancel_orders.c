/*
 * Cancel orders: every order in which two pushes, their chunks, the end of the input and a cancel
 * can come, of jobs of each kind.  A second main for the fuzz target of the stream, which knows
 * what may be answered; between any two steps there is a response, so the order is what was asked
 * for.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum step { PUSH, LET, CLOSE, CANCEL, N_STEPS };

/* As fuzz_stream.c reads them; AWAIT is a const.put that is waited for. */
static const uint8_t open_ordered[] = {7, 1 | 3 << 3}, open_unordered[] = {7, 3 << 3},
                     open_sum[] = {7, 1 | 6 | 3 << 3}, await[] = {12, 16};
static const uint8_t push[] = {0, 0, 1}, let[] = {9, 0}, close_job[] = {5, 0}, cancel[] = {6, 0};

struct story {
    uint8_t bytes[128];
    size_t size;
};

static void add(struct story *story, const uint8_t *bytes, size_t size)
{
    memcpy(story->bytes + story->size, bytes, size);
    story->size += size;
}

static void add_step(struct story *story, enum step step)
{
    static const uint8_t *const steps[] = {push, let, close_job, cancel};

    add(story, steps[step], step == PUSH ? sizeof(push) : sizeof(let));
    add(story, await, sizeof(await));
}

/* All orders of the steps that are left, behind those of the story; returns their number. */
static unsigned play(const struct story *story, const unsigned *left)
{
    unsigned n = 0;

    for (enum step step = PUSH; step < N_STEPS; step++) {
        struct story next = *story;
        unsigned next_left[N_STEPS];

        if (left[step] > 0) {
            memcpy(next_left, left, sizeof(next_left));
            next_left[step]--;
            add_step(&next, step);
            n += play(&next, next_left);
        }
    }
    if (n == 0) {
        LLVMFuzzerTestOneInput(story->bytes, story->size);
        n = 1;
    }
    return n;
}

static void play_all(unsigned number, const char *name, const uint8_t *open)
{
    static const unsigned all[N_STEPS] = {[PUSH] = 2, [LET] = 3, [CLOSE] = 1, [CANCEL] = 1};
    struct story story = {.size = 0};

    add(&story, open, sizeof(open_ordered));
    printf("# %u orders\n", play(&story, all));
    printf("ok %u - %s\n", number, name);
}

/* What is wrong aborts. */
int main(void)
{
    printf("1..3\n");
    play_all(1, "an ordered job", open_ordered);
    play_all(2, "an unordered job", open_unordered);
    play_all(3, "a reduce op", open_sum);
    return 0;
}
