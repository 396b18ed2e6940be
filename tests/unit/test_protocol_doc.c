/* PROTOCOL.md says what the headers say: every row, and no other; the shell's completion has every
 * method. */
#include "proto/limits.h"
#include "proto/message.h"
#include "proto/methods.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/ring_bench.h"

static char document[1 << 16];

static void read_file(const char *path)
{
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        CHECK_FAIL("%s: %s", path, strerror(errno));
    }
    document[fread(document, 1, sizeof(document) - 1, file)] = '\0';
    fclose(file);
    CHECK_LT(strlen(document), sizeof(document) - 1);
}

/* Is this, from its first character to its last, a line of the document? */
static void check_line(const char *line)
{
    const char *at = document;
    size_t length = strlen(line);

    while ((at = strstr(at, line)) != NULL) {
        if ((at == document || at[-1] == '\n') && at[length] == '\n') {
            return;
        }
        at++;
    }
    CHECK_FAIL("PROTOCOL.md has no line: %s", line);
}

/* Lines that begin so, between the line `heading` and the start of a later text. */
static unsigned count_lines_to(const char *heading, const char *start, const char *end_text)
{
    const char *at = strstr(document, heading);
    const char *end;
    unsigned n = 0;

    CHECK(at != NULL);
    end = strstr(at + 1, end_text);
    for (at = strstr(at, start); at != NULL && (end == NULL || at < end);
         at = strstr(at + 1, start)) {
        n++;
    }
    return n;
}

/* The same to the next heading. */
static unsigned count_lines(const char *heading, const char *start)
{
    return count_lines_to(heading, start, "\n#");
}

static void test_limits(void)
{
    unsigned n = 0;
    char line[512];

    read_file(PROTOCOL_MD);
#define X(name, wire, value, unit, reason)                                                         \
    snprintf(line, sizeof(line), "| `%s` | %d | %s | %s |", wire, value, unit, reason);            \
    check_line(line);                                                                              \
    n++;
    LIMIT_LIST(X)
#undef X
    CHECK_EQ(count_lines("\n## Limits\n", "\n| `"), n);
}

static void test_statuses(void)
{
    unsigned n = 0;
    char line[512];

    read_file(PROTOCOL_MD);
#define X(name, doc)                                                                               \
    snprintf(line, sizeof(line), "| `%s` | %s |", #name, doc);                                     \
    check_line(line);                                                                              \
    CHECK_EQ(count_lines_to("\n## Errors\n", "\n| `", line), STATUS_##name);                       \
    n++;
    STATUS_LIST(X)
#undef X
    CHECK_EQ(count_lines("\n## Errors\n", "\n| `"), n);
}

static void test_counters(void)
{
    unsigned n = 0;
    char line[512];

    read_file(PROTOCOL_MD);
#define X(field, doc)                                                                              \
    snprintf(line, sizeof(line), "| `%s` | %s |", #field, doc);                                    \
    check_line(line);                                                                              \
    n++;
    STATS_LIST(X)
#undef X
    CHECK_EQ(count_lines("\n### `stats()`\n", "\n| `"), n);
}

/* A section for each method and notification; as many parameters as the table allows. */
static void test_methods(void)
{
    unsigned n = 0;
    const char *at = document;

    read_file(PROTOCOL_MD);
    for (enum method method = 0; method < METHOD_COUNT; method++) {
        const struct method_row *row = method_row(method);
        unsigned n_params = 0, depth = 0;
        char heading[64];

        snprintf(heading, sizeof(heading), "\n### `%s(", row->name);
        at = strstr(document, heading);
        if (at == NULL) {
            CHECK_FAIL("PROTOCOL.md has no section for %s", row->name);
        }
        at += strlen(heading);
        n_params = *at != ')';
        for (; *at != ')'; at++) {
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            n_params += *at == ',' && depth == 0;
        }
        printf("# %s\n", row->name);
        CHECK_EQ(n_params, row->n_params_most);
    }
    CHECK_HAS(document, "\n### `" NOTIFY_JOB_RESULT "(");
    CHECK_HAS(document, "\n### `" NOTIFY_JOB_DONE "(");
    CHECK_HAS(document, "\n### `" NOTIFY_RING_CLOSED "(");
    CHECK_HAS(document, "\n### `" NOTIFY_EVENT "(");
    for (at = strstr(document, "\n### `"); at != NULL; at = strstr(at + 1, "\n### `")) {
        n++;
    }
    CHECK_EQ(n, METHOD_COUNT + 4);
}

/* It lacked those of rings for a while. */
static void test_completion_of_methods(void)
{
    read_file(COMPLETION);
#define X(name, wire, least, most, payload) CHECK_HAS(document, wire);
    METHOD_LIST(X)
#undef X
}

static void test_names(void)
{
    char text[64];

    read_file(PROTOCOL_MD);
    snprintf(text, sizeof(text), "API level %d.", API_LEVEL);
    CHECK_HAS(document, text);
#define X(name, text_, size) CHECK_HAS(document, " " text_);
    DTYPE_LIST(X)
    PARAM_TYPE_LIST(X)
#undef X
    for (size_t i = 0; i < ARRAY_SIZE(priority_names); i++) {
        snprintf(text, sizeof(text), "`\"%s\"`", priority_names[i]);
        CHECK_HAS(document, text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(require_names); i++) {
        snprintf(text, sizeof(text), "`\"%s\"`", require_names[i]);
        CHECK_HAS(document, text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(tail_names); i++) {
        snprintf(text, sizeof(text), "`\"%s\"`", tail_names[i]);
        CHECK_HAS(document, text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(event_names); i++) {
        snprintf(text, sizeof(text), "\n* `\"%s\"`: ", event_names[i]);
        CHECK_HAS(document, text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(job_state_names); i++) {
        CHECK_HAS(document, job_state_names[i]);
    }
}

/* What a field's line begins with, at its place; a line has a descriptor's and a completion's. */
#define RING_FIELDS(X)                                                                             \
    X(ring_desc, job, "u32 job: ")                                                                 \
    X(ring_desc, n_records, "u32 records ")                                                        \
    X(ring_desc, tag, "u64 tag: ")                                                                 \
    X(ring_desc, in, "u32 in[4]: ")                                                                \
    X(ring_desc, out, "u32 out[2]: ")                                                              \
    X(ring_desc, varying_size, "u32 varying_size, ")                                               \
    X(ring_desc, tail_size, "u32 tail_size: ")                                                     \
    X(ring_desc, deadline_ns, "u64 deadline_ns: ")                                                 \
    X(ring_desc, flags, "u64 flags")                                                               \
    X(ring_completion, tag, "u64 tag\n")                                                           \
    X(ring_completion, job, "u32 job\n")                                                           \
    X(ring_completion, n_records, "u32 records\n")                                                 \
    X(ring_completion, out_size, "u32 out_size[2]: ")                                              \
    X(ring_completion, devices, "u32 devices: ")                                                   \
    X(ring_completion, status, "u16 status: 0, ")                                                  \
    X(ring_completion, priority, "u8 priority: 0 urgent, 1 normal, 2 bulk\n")                      \
    X(ring_completion, has_timing, "u8 has_timing\n")                                              \
    X(ring_completion, queue_ns, "u64 queue_ns, in_ns, compute_ns, out_ns\n")

static void test_ring_layout(void)
{
    static const struct {
        const char *start;
        enum ring_place place;
    } lines[] = {
        {"%7d  the daemon sleeps ", RING_AT_FRONT_END_SLEEP},
        {"%7d  the client sleeps ", RING_AT_CLIENT_SLEEP},
        {" sq+%d  descriptors ", RING_SQ_DESCS},
        {" cq+%d  completion head ", RING_CQ_HEAD},
        {"cq+%d  completions ", RING_CQ_COMPLETIONS},
    };
    char text[64];

    read_file(PROTOCOL_MD);
    snprintf(text, sizeof(text), "\nThis is layout %d ", RING_LAYOUT);
    CHECK_HAS(document, text);
    CHECK_HAS(document, "\n      0  magic u32 \"GPPR\", layout u32, first index u32, entries u32, "
                        "sq u32, cq u32\n");
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        snprintf(text, sizeof(text), lines[i].start, (int)lines[i].place);
        CHECK_HAS(document, text);
    }
#define X(type, field, start)                                                                      \
    snprintf(text, sizeof(text), " %2zu %s", offsetof(struct type, field), start);                 \
    CHECK_HAS(document, text);
    RING_FIELDS(X)
#undef X
}

CHECK_MAIN(CHECK_TEST(test_limits), CHECK_TEST(test_statuses), CHECK_TEST(test_counters),
           CHECK_TEST(test_methods), CHECK_TEST(test_completion_of_methods), CHECK_TEST(test_names),
           CHECK_TEST(test_ring_layout))
