/*
 * A kernel that faults takes the context with it: the worker says so, leaves the in-flight table as
 * it stands, and exits with a status of its own.  This test is its front end.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#define REAL         "GPUPIPE_WORKER"
#define SEGMENT_SIZE (1u << 20)
#define CHUNK        4096u
#define N_COPIES     24u

/* Parameters as fault.cu and copy.cu pack them. */
struct fault_params {
    uint32_t size, kind;
};

enum { JOB_COPY, JOB_FAULT };
enum { SEGMENT_IN, SEGMENT_OUT };

static const struct kind {
    const char *name;
    uint32_t number;
    const char *error;
} kinds[] = {
    {"address", 1, "cudaErrorIllegalAddress"},
    {"trap", 2, "cudaErrorLaunchFailure"},
    {"misaligned", 3, "cudaErrorMisalignedAddress"},
};

static struct front front; /* of the running test */

struct flight {
    enum priority priority;
    uint32_t index;
    size_t offset; /* in both segments */
};

static void start(uint32_t kind)
{
    const uint32_t copy_size = 1;
    const struct fault_params fault = {1, kind};

    front_start_ready(&front, REAL, 0);
    random_bytes(front_add_segment(&front, SEGMENT_IN, SEGMENT_SIZE), SEGMENT_SIZE);
    random_bytes(front_add_segment(&front, SEGMENT_OUT, SEGMENT_SIZE), SEGMENT_SIZE);
    front_set_job(&front, JOB_COPY, front_op(&front, "copy"), &copy_size, sizeof(copy_size));
    front_set_job(&front, JOB_FAULT, front_op(&front, "fault"), &fault, sizeof(fault));
}

static struct work_entry entry_of(uint32_t job, size_t offset)
{
    return (struct work_entry){
        .job_slot = job,
        .n_records = CHUNK,
        .ref = {WORK_REF(SEGMENT_IN, offset), WORK_REF(SEGMENT_OUT, offset)}};
}

static struct flight submit(uint32_t job, size_t offset)
{
    struct flight flight = {.priority = (enum priority)random_below(PRIORITY_COUNT),
                            .offset = offset};

    flight.index = front_submit(&front, flight.priority, entry_of(job, offset));
    return flight;
}

static void check_copied(size_t offset)
{
    const uint8_t *in = front.segments[SEGMENT_IN].base, *out = front.segments[SEGMENT_OUT].base;

    CHECK_MEM(out + offset, in + offset, CHUNK);
}

static struct work_result result_of(const struct flight *flight)
{
    struct work_entry entry;
    struct work_result result;

    queue_work_read(front.queue, flight->priority, flight->index, &entry, &result);
    return result;
}

/* What the table says is done is right; what was not is as the worker left it. */
static void check_table(const struct flight *copies, const struct flight *fault)
{
    uint32_t n_done = 0;

    CHECK_EQ(result_of(fault).state, RESULT_ISSUED);
    for (uint32_t i = 0; i < N_COPIES; i++) {
        struct work_result result = result_of(&copies[i]);

        CHECK_LE(result.state, RESULT_DONE);
        if (result.state == RESULT_DONE) {
            CHECK_EQ(result.status, STATUS_OK);
            check_copied(copies[i].offset);
            n_done++;
        }
    }
    printf("# %u of %u copies were done\n", n_done, N_COPIES);
}

static void check_kind(const struct kind *kind, uint32_t n_before)
{
    struct flight copies[N_COPIES], fault;
    struct control_message fatal;

    printf("# %s behind %u copies\n", kind->name, n_before);
    start(kind->number);
    CHECK_EQ(front_run(&front, PRIORITY_NORMAL, entry_of(JOB_COPY, 0)).status, STATUS_OK);
    check_copied(0);
    for (uint32_t i = 0; i < n_before; i++) {
        copies[i] = submit(JOB_COPY, (i + 1) * CHUNK);
    }
    fault = submit(JOB_FAULT, 100 * CHUNK);
    for (uint32_t i = n_before; i < N_COPIES; i++) {
        copies[i] = submit(JOB_COPY, (i + 1) * CHUNK);
    }
    front_expect(&front, CONTROL_FATAL, &fatal);
    CHECK_EQ(fatal.fatal.status, STATUS_KERNEL_FAULT);
    CHECK_HAS(fatal.fatal.message, kind->error);
    front_expect_exit(&front, WORKER_EXIT_DEVICE << 8);
    check_table(copies, &fault);
    front_finish(&front);
}

static void test_each_fault_ends_the_worker_in_good_order(void)
{
    for (uint32_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        check_kind(&kinds[i], 0);
        check_kind(&kinds[i], N_COPIES);
        check_kind(&kinds[i], (uint32_t)random_below(N_COPIES));
    }
}

/* Without a fault the op is a copy: the tests above show the fault, not the op. */
static void test_the_op_without_a_fault(void)
{
    start(0);
    CHECK_EQ(front_run(&front, PRIORITY_URGENT, entry_of(JOB_FAULT, 0)).status, STATUS_OK);
    check_copied(0);
}

CHECK_MAIN(CHECK_TEST(test_the_op_without_a_fault),
           CHECK_TEST(test_each_fault_ends_the_worker_in_good_order))
