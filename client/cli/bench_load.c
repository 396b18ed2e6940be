/*
 * Pushes of a job, timed and checked.
 *
 * A round goes through its slots in order.  A slot is prepared, sent, back; the state is in two
 * counts and a mark: [0, n_sent) are sent, of which those with is_back are back, [n_sent, n_slots)
 * are prepared.
 *
 * Threads: one.
 */
#include "client/cli/bench_load.h"

#include "client/cli/interrupt.h"
#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Pushes of a round: enough that its begin and end are little, and the smallest ones are not
 * prepared for longer than they are sent. */
#define SLOTS_MOST 16384u
/* A round that takes less time than this becomes longer: of its time, begin and end are little. */
#define ROUND_NS 250000000u
/* A wait ends by then, whatever is under way: a signal may come just before it. */
#define WAIT_NS 100000000
/* An open loop ends when it has taken so many times its duration. */
#define BEHIND_TIMES 2
#define REAP_BATCH   16u

struct slot {
    uint64_t seed;
    uint64_t due_ns; /* what latency counts from */
    bool is_back;
};

struct load {
    struct gpupipe *gpupipe;
    const struct bench_memory *memory;
    const struct load_plan *plan;
    struct load_result *result;
    struct gpupipe_job *job;
    uint64_t next_seed;

    struct slot *slots;
    uint32_t n_room;   /* slots that there is memory for */
    uint32_t n_wanted; /* of the next round */
    uint32_t n_slots, n_sent, n_flying;

    uint64_t first_sent_ns, last_sent_ns, last_back_ns; /* of the round */

    uint64_t until_ns; /* closed loop: no push leaves after this */

    /* Open loop. */
    struct arrivals arrivals;
    uint64_t duration_ns; /* of the schedule */
    uint64_t next_due_ns; /* by its clock */
    uint64_t origin_ns;   /* when that was 0 */
};

/* ---- the memory ---------------------------------------------------------------------------- */

static uint64_t array_size(const struct load_plan *plan)
{
    return (plan->size + BENCH_ALIGN - 1) / BENCH_ALIGN * BENCH_ALIGN;
}

uint64_t load_push_size(const struct load_plan *plan)
{
    return (plan->op.n_in + 1) * array_size(plan);
}

/* Array n_in is the output. */
static uint8_t *array_at(const struct load *load, uint32_t slot, uint32_t array)
{
    return load->memory->bytes + slot * load_push_size(load->plan) + array * array_size(load->plan);
}

static void prepare(struct load *load, uint32_t slot)
{
    const struct bench_op *op = &load->plan->op;
    uint8_t *in[GPUPIPE_IN_MAX];

    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = array_at(load, slot, i);
    }
    load->slots[slot] = (struct slot){.seed = load->next_seed++};
    bench_op_prepare(op, load->slots[slot].seed, load->plan->size, in,
                     array_at(load, slot, op->n_in));
}

static int check(const struct load *load)
{
    const struct load_plan *plan = load->plan;

    for (uint32_t slot = 0; slot < load->n_sent; slot++) {
        uint64_t at;

        if (!load->slots[slot].is_back) {
            continue;
        }
        at = bench_op_check(&plan->op, load->slots[slot].seed, plan->size,
                            array_at(load, slot, plan->op.n_in));
        if (at < plan->size) {
            cli_error("wrong result: byte %" PRIu64 " of %" PRIu64 " that came out of %s is not "
                      "what its input makes",
                      at, plan->size, plan->op.name);
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}

/* ---- sending ------------------------------------------------------------------------------- */

static bool is_open_loop(const struct load *load)
{
    return load->plan->rate > 0;
}

static int submit(struct load *load, uint32_t slot)
{
    const struct load_plan *plan = load->plan;
    struct gpupipe_desc desc;
    int n;

    GPUPIPE_INIT(&desc);
    desc.job = load->job;
    desc.tag = slot;
    desc.n_records = plan->size / plan->op.element_size;
    desc.n_in = plan->op.n_in;
    for (uint32_t i = 0; i < desc.n_in; i++) {
        desc.in[i] = (struct gpupipe_span){array_at(load, slot, i), plan->size};
    }
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){array_at(load, slot, desc.n_in), plan->size};
    n = gpupipe_submit(load->gpupipe, &desc, 1);
    if (n < 0) {
        return cli_failure(gpupipe_last_error(load->gpupipe));
    }
    if (n == 0) {
        cli_error("the daemon's window is full before it can be");
        return CLI_FAILED;
    }
    return CLI_OK;
}

/* Of an open loop's schedule, and unless it is given up. */
static bool is_due_later(const struct load *load, uint64_t now)
{
    return load->next_due_ns < load->duration_ns &&
           now - load->origin_ns < BEHIND_TIMES * load->duration_ns;
}

/* Is there one more to send in this round, now or later?  A closed loop is full once in each. */
static bool is_one_left(const struct load *load, uint64_t now)
{
    if (load->n_sent == load->n_slots) {
        return false;
    }
    return is_open_loop(load) ? is_due_later(load, now)
                              : now < load->until_ns || load->n_sent < load->result->window;
}

/* When the next one may leave, if anything may now. */
static uint64_t next_ns(const struct load *load)
{
    return is_open_loop(load) ? load->origin_ns + load->next_due_ns : 0;
}

/* Send what may leave now.  *ret_wait_ns: until when the next one may not. */
static int send_some(struct load *load, int64_t *ret_wait_ns)
{
    uint64_t now = now_ns();
    int rc = CLI_OK;

    *ret_wait_ns = WAIT_NS;
    while (rc == CLI_OK && load->n_flying < load->result->window && is_one_left(load, now)) {
        struct slot *slot = &load->slots[load->n_sent];

        if (next_ns(load) > now) {
            *ret_wait_ns = MIN((int64_t)(next_ns(load) - now), (int64_t)WAIT_NS);
            break;
        }
        slot->due_ns = is_open_loop(load) ? next_ns(load) : now;
        histogram_add(&load->result->delay, now - slot->due_ns);
        load->first_sent_ns = load->n_sent == 0 ? now : load->first_sent_ns;
        load->last_sent_ns = now;
        rc = submit(load, load->n_sent);
        load->n_sent++;
        load->n_flying++;
        if (is_open_loop(load)) {
            load->next_due_ns = arrivals_next(&load->arrivals);
        }
        now = now_ns();
    }
    return rc;
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* Is it one of the list's, which are separated by commas? */
static bool is_listed(const char *list, const char *name)
{
    char in_commas[80], all[80];

    snprintf(in_commas, sizeof(in_commas), ",%s,", name);
    snprintf(all, sizeof(all), ",%s,", list);
    return strstr(all, in_commas) != NULL;
}

/* Pushes may go to several devices. */
static void note_by(struct load_result *result, const struct gpupipe_completion *completion)
{
    size_t used = strlen(result->device);

    if (!is_listed(result->device, completion->device)) {
        snprintf(result->device + used, sizeof(result->device) - used, "%s%s", used == 0 ? "" : ",",
                 completion->device);
    }
    snprintf(result->backend, sizeof(result->backend), "%s", completion->backend);
    snprintf(result->path, sizeof(result->path), "%s", completion->path);
}

static int take(struct load *load, const struct gpupipe_completion *completion, uint64_t now)
{
    const struct load_plan *plan = load->plan;
    struct load_result *result = load->result;
    struct slot *slot = &load->slots[completion->tag];

    if (completion->status != GPUPIPE_OK) {
        return cli_failure(completion->error);
    }
    if (completion->out_size[0] != plan->size ||
        completion->n_records != plan->size / plan->op.element_size) {
        cli_error("wrong result: %" PRIu64 " bytes came out of %" PRIu64, completion->out_size[0],
                  plan->size);
        return CLI_FAILED;
    }
    slot->is_back = true;
    load->n_flying--;
    load->last_back_ns = now;
    histogram_add(&result->latency, now - slot->due_ns);
    result->in_size += plan->op.n_in * plan->size;
    result->out_size += plan->size;
    note_by(result, completion);
    return CLI_OK;
}

static int receive(struct load *load, int64_t wait_ns)
{
    struct gpupipe_completion completions[REAP_BATCH];
    int n = gpupipe_wait(load->gpupipe, wait_ns), rc = CLI_OK;
    uint64_t now;

    if (n < 0) {
        return cli_failure(gpupipe_last_error(load->gpupipe));
    }
    do {
        GPUPIPE_INIT(&completions[0]);
        n = gpupipe_reap(load->gpupipe, completions, REAP_BATCH);
        if (n < 0) {
            return cli_failure(gpupipe_last_error(load->gpupipe));
        }
        now = now_ns();
        for (int i = 0; i < n && rc == CLI_OK; i++) {
            rc = take(load, &completions[i], now);
        }
    } while (rc == CLI_OK && n == (int)REAP_BATCH);
    return rc;
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* An open loop needs no more than are left; of poisson arrivals, about. */
static uint32_t round_size(const struct load *load)
{
    double left_ns = (double)load->duration_ns - (double)load->next_due_ns;
    double n_left = left_ns / 1e9 * load->plan->rate * 1.1 + 16;

    if (is_open_loop(load) && n_left < load->n_wanted) {
        return (uint32_t)n_left;
    }
    return load->n_wanted;
}

static int move_round(struct load *load)
{
    int64_t wait_ns;
    int rc;

    do {
        rc = send_some(load, &wait_ns);
        if (rc == CLI_OK) {
            rc = receive(load, wait_ns);
        }
        if (rc == CLI_OK && interrupt_came()) {
            rc = CLI_INTERRUPTED;
        }
    } while (rc == CLI_OK && (load->n_flying > 0 || is_one_left(load, now_ns())));
    return rc;
}

static void end_round(struct load *load)
{
    uint64_t took_ns = MAX(load->last_back_ns, load->first_sent_ns) - load->first_sent_ns;

    if (!is_open_loop(load)) {
        load->result->timed_ns += took_ns;
    }
    if (took_ns < ROUND_NS) {
        load->n_wanted = MIN(2 * load->n_wanted, load->n_room);
    }
}

/* The schedule's clock stood still since its last push has left. */
static int run_round(struct load *load)
{
    int rc, check_rc;

    load->n_slots = round_size(load);
    load->n_sent = 0;
    for (uint32_t slot = 0; slot < load->n_slots; slot++) {
        prepare(load, slot);
    }
    load->origin_ns += now_ns() - load->last_sent_ns;
    load->first_sent_ns = load->last_sent_ns = load->last_back_ns = now_ns();
    rc = move_round(load);
    end_round(load);
    if (rc != CLI_OK && rc != CLI_INTERRUPTED) {
        return rc;
    }
    check_rc = check(load);
    return check_rc != CLI_OK ? check_rc : rc;
}

static int run_rounds(struct load *load)
{
    bool is_over;
    int rc;

    do {
        rc = run_round(load);
        /* Slots that were not sent: nothing more is due, or it was given up. */
        is_over = is_open_loop(load)
                      ? load->n_sent < load->n_slots || load->next_due_ns >= load->duration_ns
                      : now_ns() >= load->until_ns;
    } while (rc == CLI_OK && !is_over);
    return rc;
}

/* From the start, for so long. */
static int measure(struct load *load, uint64_t duration_ns)
{
    const struct load_plan *plan = load->plan;
    struct load_result *result = load->result;
    uint32_t window = result->window;
    uint64_t now = now_ns();
    int rc;

    memset(result, 0, sizeof(*result));
    result->window = window;
    load->until_ns = now + duration_ns;
    load->duration_ns = duration_ns;
    load->origin_ns = load->last_sent_ns = now;
    if (is_open_loop(load)) {
        arrivals_init(&load->arrivals, plan->kind, plan->rate, load->next_seed++);
        load->next_due_ns = arrivals_next(&load->arrivals);
    }
    rc = run_rounds(load);
    if (is_open_loop(load)) {
        uint64_t took_ns = load->last_sent_ns - load->origin_ns;

        result->timed_ns = rc == CLI_OK ? MAX(took_ns, duration_ns) : took_ns;
        result->is_behind = rc == CLI_OK && load->next_due_ns < duration_ns;
    }
    return rc;
}

/* ---- the job ------------------------------------------------------------------------------- */

/* Refused: the daemon's memory has no room for so many at once, or for so large ones. */
static int open_job(struct load *load, uint32_t window)
{
    const struct load_plan *plan = load->plan;
    const struct bench_op *op = &plan->op;
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.priority = plan->priority;
    opts.require = plan->require;
    opts.device = plan->device;
    opts.window = window;
    opts.max_push = MAX(plan->size, gpupipe_limit(load->gpupipe, "max_push_least"));
    opts.ring = load->memory->ring;
    if (gpupipe_job_open(&load->job, load->gpupipe, op->name, &op->value, op->value.name != NULL,
                         &opts) < 0) {
        return cli_failure(gpupipe_last_error(load->gpupipe));
    }
    load->result->window = gpupipe_window(load->job);
    load->result->is_refused = load->result->window < window ||
                               gpupipe_push_records(load->job) < plan->size / op->element_size;
    return CLI_OK;
}

/* An open loop asks for as many at once as can be, and takes fewer. */
static int open_fitting_job(struct load *load)
{
    uint32_t window = load->plan->window;
    int rc = open_job(load, window);

    while (rc == CLI_OK && load->result->is_refused && is_open_loop(load) && window > 1) {
        gpupipe_job_free(load->job);
        window /= 2;
        rc = open_job(load, window);
    }
    return rc;
}

static int measure_warm(struct load *load)
{
    const struct load_plan *plan = load->plan;
    int rc = plan->warmup_ns > 0 ? measure(load, plan->warmup_ns) : CLI_OK;

    if (rc != CLI_OK) {
        memset(load->result, 0, sizeof(*load->result));
        return rc;
    }
    return measure(load, plan->duration_ns);
}

int load_run(struct gpupipe *gpupipe, const struct bench_memory *memory,
             const struct load_plan *plan, struct load_result *ret_result)
{
    _cleanup_(free_pointer) struct slot *slots = calloc(SLOTS_MOST, sizeof(*slots));
    struct load load = {
        .gpupipe = gpupipe,
        .memory = memory,
        .plan = plan,
        .result = ret_result,
        .slots = slots,
        .n_room = (uint32_t)MIN(memory->size / load_push_size(plan), (uint64_t)SLOTS_MOST),
    };
    int rc;

    memset(ret_result, 0, sizeof(*ret_result));
    if (slots == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    (void)getrandom(&load.next_seed, sizeof(load.next_seed), 0);
    load.n_wanted = is_open_loop(&load) ? load.n_room : MIN(4 * plan->window, load.n_room);
    rc = open_fitting_job(&load);
    if (rc == CLI_OK && !ret_result->is_refused) {
        rc = measure_warm(&load);
    }
    if (rc == CLI_OK) {
        gpupipe_job_free(load.job);
    }
    return rc;
}
