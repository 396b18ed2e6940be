/*
 * The words that messages use for their enums.
 */
#include "proto/message.h"

const char *const priority_names[PRIORITY_COUNT] = {
    [PRIORITY_URGENT] = "urgent",
    [PRIORITY_NORMAL] = "normal",
    [PRIORITY_BULK] = "bulk",
};

const char *const require_names[REQUIRE_COUNT] = {
    [REQUIRE_ANY] = "any",
    [REQUIRE_GPU] = "gpu",
    [REQUIRE_CPU] = "cpu",
};

const char *const tail_names[TAIL_COUNT] = {
    [TAIL_ERROR] = "error",
    [TAIL_ZERO] = "zero",
    [TAIL_SHORT] = "short",
};

const char *const event_names[EVENT_COUNT] = {
#define X(name, text) [EVENT_##name] = (text),
    EVENT_LIST(X)
#undef X
};

const char *const job_state_names[JOB_STATE_COUNT] = {
#define X(name, text) [JOB_##name] = (text),
    JOB_STATE_LIST(X)
#undef X
};
