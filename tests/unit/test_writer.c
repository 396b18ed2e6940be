/* The writer: order, pieces, partial sends, and callbacks exactly once. */
#include "proto/util.h"
#include "proto/writer.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/writer_bench.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Everything that can be read now, behind the size bytes that are there. */
static size_t receive(uint8_t *bytes, size_t size, size_t capacity)
{
    ssize_t n;

    while ((n = read(sockets[1], bytes + size, capacity - size)) > 0) {
        size += (size_t)n;
    }
    return size;
}

static void test_copies_and_references_leave_in_order(void)
{
    uint8_t got[64];
    char owned[] = "<1>", referenced[] = "<2>";
    struct writer_message *message;

    writer_open();
    message = writer_message(0);
    CHECK_EQ(writer_add_copy(message, owned, 3), 0);
    memset(owned, '?', 3);
    CHECK_EQ(writer_add_ref(message, referenced, 3), 0);
    CHECK_EQ(writer_add_copy(message, "<3>", 3), 0);
    CHECK_EQ(writer_add_copy(message, "", 0), 0);
    CHECK_EQ(writer_add_copy(message, "<4>", 3), 0);
    CHECK_EQ(writer_add_ref(message, referenced, 0), 0);
    CHECK_EQ(writer_add_ref(message, "<5>", 3), 0);
    CHECK(writer_is_empty(writer));
    writer_queue(writer, message);
    CHECK(!writer_is_empty(writer));
    CHECK_EQ(writer_sent(writer), 0);
    CHECK_EQ(writer_send(writer, sockets[0], 1000), 1);
    CHECK(writer_is_empty(writer));
    CHECK_EQ(writer_sent(writer), 15);
    CHECK_EQ(receive(got, 0, sizeof(got)), 15);
    CHECK_MEM(got, "<1><2><3><4><5>", 15);
    CHECK_EQ(n_sent[0], 1);
}

static void test_nothing_to_send(void)
{
    writer_open();
    CHECK(writer_is_empty(writer));
    CHECK_EQ(writer_send(writer, sockets[0], 1000), 1);
    CHECK_EQ(writer_send(writer, sockets[0], 0), 1);
}

static void test_an_abandoned_message_calls_nobody(void)
{
    struct writer_message *message;

    writer_open();
    message = writer_message(0);
    CHECK_EQ(writer_add_copy(message, "x", 1), 0);
    writer_abandon(message);
    writer_abandon(NULL);
    CHECK_EQ(n_sent[0] + n_lost[0], 0);
    CHECK(writer_is_empty(writer));
}

static void test_an_empty_message_is_sent_at_once(void)
{
    writer_open();
    writer_queue(writer, writer_message(0));
    CHECK_EQ(writer_send(writer, sockets[0], 1000), 1);
    CHECK_EQ(n_sent[0], 1);
}

/* Messages of random pieces; returns their bytes, one after the other. */
static size_t queue_random_messages(uint8_t *all, size_t capacity, unsigned n_messages)
{
    size_t size = 0;

    random_bytes(all, capacity);
    for (unsigned n = 0; n < n_messages; n++) {
        struct writer_message *message = writer_message(n);
        size_t n_pieces = random_below(8);

        for (size_t i = 0; i < n_pieces; i++) {
            size_t piece = MIN(capacity - size, random_below(random_below(2) ? 20 : 5000));

            if (random_below(2) == 0) {
                CHECK_EQ(writer_add_copy(message, all + size, piece), 0);
            } else {
                CHECK_EQ(writer_add_ref(message, all + size, piece), 0);
            }
            size += piece;
        }
        writer_queue(writer, message);
    }
    return size;
}

static void test_a_slow_reader_gets_every_byte_once(void)
{
    static uint8_t all[1 << 20], got[1 << 20];
    int small = 4096;
    size_t size, n_got = 0;
    unsigned n_turns = 0;

    writer_open();
    CHECK_EQ(setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    size = queue_random_messages(all, sizeof(all), 150);
    while (writer_send(writer, sockets[0], 1 + random_below(30000)) == 0) {
        n_got = receive(got, n_got, n_got + random_below(6000));
        CHECK_LE(n_got, writer_sent(writer));
        CHECK_LT(writer_sent(writer), size);
        n_turns++;
    }
    n_got = receive(got, n_got, sizeof(got));
    CHECK_GT(n_turns, 10);
    CHECK_EQ(n_got, size);
    CHECK_MEM(got, all, size);
    for (unsigned n = 0; n < 150; n++) {
        CHECK_EQ(n_sent[n], 1);
        CHECK_EQ(n_lost[n], 0);
    }
}

static void test_the_budget_is_kept(void)
{
    static const char bytes[1000] = "x";
    uint8_t got[2000];

    writer_open();
    for (unsigned n = 0; n < 2; n++) {
        struct writer_message *message = writer_message(n);

        CHECK_EQ(writer_add_ref(message, bytes, sizeof(bytes)), 0);
        writer_queue(writer, message);
    }
    CHECK_EQ(writer_send(writer, sockets[0], 0), 0);
    CHECK_EQ(writer_send(writer, sockets[0], 999), 0);
    CHECK_EQ(n_sent[0], 0);
    CHECK_EQ(writer_send(writer, sockets[0], 1), 0);
    CHECK_EQ(n_sent[0], 1);
    CHECK_EQ(receive(got, 0, sizeof(got)), 1000);
    CHECK_EQ(writer_send(writer, sockets[0], 1000), 1);
    CHECK_EQ(n_sent[1], 1);
}

static void test_a_full_socket_waits(void)
{
    static uint8_t bytes[1 << 22];
    struct writer_message *message;

    writer_open();
    message = writer_message(0);
    CHECK_EQ(writer_add_ref(message, bytes, sizeof(bytes)), 0);
    writer_queue(writer, message);
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 0);
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 0);
    CHECK_EQ(n_sent[0] + n_lost[0], 0);
    CHECK(!writer_is_empty(writer));
    CHECK_LT(writer_sent(writer), sizeof(bytes));
}

static void test_a_gone_peer_is_an_error_and_no_signal(void)
{
    struct writer_message *message;

    writer_open();
    message = writer_message(0);
    CHECK_EQ(writer_add_copy(message, "x", 1), 0);
    writer_queue(writer, message);
    shutdown(sockets[1], SHUT_RD);
    CHECK_EQ(writer_send(writer, sockets[0], 1000), -EPIPE);
    CHECK_EQ(n_sent[0] + n_lost[0], 0);
}

static void test_destroying_tells_who_still_waits(void)
{
    struct writer_message *message;
    struct writer *other;

    writer_open();
    CHECK_EQ(writer_create(&other), 0);
    for (unsigned n = 0; n < 3; n++) {
        message = writer_message(n);
        CHECK_EQ(writer_add_copy(message, "xyz", 3), 0);
        writer_queue(other, message);
    }
    CHECK_EQ(writer_send(other, sockets[0], 4), 0);
    writer_destroy(other);
    writer_destroy(NULL);
    CHECK_EQ(n_sent[0], 1);
    CHECK_EQ(n_lost[0], 0);
    CHECK_EQ(n_lost[1], 1);
    CHECK_EQ(n_lost[2], 1);
}

/* Each message queues the next one when it has left, until message 20. */
static void queue_next(void *arg, bool is_sent)
{
    unsigned n = (unsigned)(uintptr_t)arg;
    struct writer_message *message;

    writer_count(arg, is_sent);
    if (is_sent && n < 20 && writer_begin(&message, queue_next, writer_number(n + 1)) == 0) {
        writer_add_copy(message, "abc", 3);
        writer_queue(writer, message);
    }
}

static void test_a_callback_may_queue(void)
{
    uint8_t got[100];
    struct writer_message *message;

    writer_open();
    CHECK_EQ(writer_begin(&message, queue_next, writer_number(0)), 0);
    CHECK_EQ(writer_add_copy(message, "abc", 3), 0);
    writer_queue(writer, message);
    message = writer_message(100);
    CHECK_EQ(writer_add_copy(message, "xyz", 3), 0);
    writer_queue(writer, message);
    CHECK_EQ(writer_send(writer, sockets[0], 65536), 1);
    CHECK_EQ(receive(got, 0, sizeof(got)), 66);
    CHECK_MEM(got, "abcxyzabcabc", 12);
    for (unsigned n = 0; n <= 20; n++) {
        CHECK_EQ(n_sent[n], 1);
    }
    CHECK_EQ(last_sent, 20);
}

static void test_many_small_messages_share_a_send(void)
{
    uint8_t got[3 * WRITER_MESSAGES_MAX];

    writer_open();
    for (unsigned n = 0; n < WRITER_MESSAGES_MAX; n++) {
        struct writer_message *message = writer_message(n);
        uint8_t bytes[3] = {(uint8_t)n, (uint8_t)(n >> 8), 'm'};

        CHECK_EQ(writer_add_copy(message, bytes, 3), 0);
        writer_queue(writer, message);
    }
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 1);
    CHECK_EQ(receive(got, 0, sizeof(got)), sizeof(got));
    for (unsigned n = 0; n < WRITER_MESSAGES_MAX; n++) {
        CHECK_EQ(got[3 * n] | got[3 * n + 1] << 8, n);
        CHECK_EQ(n_sent[n], 1);
    }
}

/* Counted is what the writer holds itself, from when a message is queued until it has left. */
static void test_memory_is_that_of_waiting_messages(void)
{
    static uint8_t referenced[100000], got[2048];
    struct writer_message *message;
    size_t size, size_of_one = 0;

    writer_open();
    CHECK_EQ(writer_memory(writer), 0);
    for (unsigned n = 0; n < 3; n++) {
        message = writer_message(n);
        CHECK_EQ(writer_add_copy(message, referenced, 300), 0);
        size = writer_memory(writer);
        CHECK_EQ(size, n * size_of_one);
        writer_queue(writer, message);
        size_of_one = writer_memory(writer) - size;
        CHECK_GE(size_of_one, 300);
        CHECK_LE(size_of_one, 2048);
    }
    CHECK_EQ(writer_send(writer, sockets[0], 1000), 1);
    CHECK_EQ(receive(got, 0, sizeof(got)), 900);
    CHECK_EQ(writer_memory(writer), 0);
    message = writer_message(3);
    CHECK_EQ(writer_add_ref(message, referenced, sizeof(referenced)), 0);
    writer_queue(writer, message);
    CHECK_LE(writer_memory(writer), 1024);
}

/* Each is small; but so many of them kept others waiting for 150 us. */
static void test_small_messages_use_up_a_budget_as_well(void)
{
    const uint32_t n = 1000;
    uint32_t n_calls = 1;

    writer_open();
    for (uint32_t i = 0; i < n; i++) {
        struct writer_message *message = writer_message(0);

        CHECK_EQ(writer_add_copy(message, "small", 5), 0);
        writer_queue(writer, message);
    }
    while (writer_send(writer, sockets[0], 16384) == 0) {
        CHECK_EQ(writer_sent(writer), 5 * 64 * n_calls);
        n_calls++;
    }
    CHECK_EQ(writer_sent(writer), 5 * n);
    CHECK_EQ(n_calls, div_round_up(n, 64));
}

CHECK_MAIN(CHECK_TEST(test_copies_and_references_leave_in_order), CHECK_TEST(test_nothing_to_send),
           CHECK_TEST(test_an_abandoned_message_calls_nobody),
           CHECK_TEST(test_an_empty_message_is_sent_at_once),
           CHECK_TEST(test_a_slow_reader_gets_every_byte_once), CHECK_TEST(test_the_budget_is_kept),
           CHECK_TEST(test_a_full_socket_waits),
           CHECK_TEST(test_a_gone_peer_is_an_error_and_no_signal),
           CHECK_TEST(test_destroying_tells_who_still_waits), CHECK_TEST(test_a_callback_may_queue),
           CHECK_TEST(test_many_small_messages_share_a_send),
           CHECK_TEST(test_memory_is_that_of_waiting_messages),
           CHECK_TEST(test_small_messages_use_up_a_budget_as_well))
