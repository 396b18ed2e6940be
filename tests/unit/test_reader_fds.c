/*
 * Descriptors on their way from writer to reader: whatever way the bytes arrive, each message has
 * its own.
 *
 * Message n is a response with message id n and, as descriptors, ends of pipes that hold n.  Its
 * result is a string, or a payload of which every byte is n.
 */
#include "proto/channel.h"
#include "proto/reader.h"
#include "proto/util.h"
#include "proto/writer.h"
#include "tests/check.h"
#include "tests/random.h"

#include <fcntl.h>
#include <msgpack.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGES_MAX = 64, PAYLOAD_MAX = 200000 };

static struct reader *reader;
static struct writer *writer;
static int sockets[2];
static uint8_t payload[MESSAGES_MAX][PAYLOAD_MAX], sink[PAYLOAD_MAX];
static uint32_t n_messages, n_fds_of[MESSAGES_MAX];
static uint32_t n_wanted; /* descriptors that on_message takes of each message */
static bool is_pausing;   /* on_message pauses reading at each */
static bool is_picky;     /* payloads are refused at random */

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    (void)owner;
    (void)prefix;
    (void)size;
    CHECK_LE(guard->payload_size, PAYLOAD_MAX);
    if (is_picky && random_below(2)) {
        return -EINVAL;
    }
    ret_sink->n_pieces = 1;
    ret_sink->pieces[0] = (struct iovec){sink, guard->payload_size};
    return 0;
}

static void check_and_close(const int *fds, uint32_t n, uint32_t message)
{
    for (uint32_t i = 0; i < n; i++) {
        uint8_t got[2] = {0xa5, 0xa5};

        CHECK_EQ(read(fds[i], got, 2), 2);
        CHECK_EQ(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
        close(fds[i]);
        CHECK_EQ(got[0], message);
        CHECK_EQ(got[1], i);
    }
}

/* Takes one after the other: they come in their order. */
static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    int fds[CHANNEL_FDS_MAX];
    uint32_t n = 0;

    (void)owner;
    (void)head;
    (void)size;
    CHECK_EQ(guard->msgid, n_messages);
    while (n < n_wanted && reader_take_fds(reader, &fds[n], 1)) {
        n++;
    }
    check_and_close(fds, n, n_messages);
    n_fds_of[n_messages++] = n;
    return is_pausing;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    (void)owner;
    (void)guard;
    CHECK_FAIL("the stream broke: %s", failure->message);
}

static const struct reader_callbacks callbacks = {
    .on_payload = on_payload,
    .on_message = on_message,
    .on_broken = on_broken,
};

static void close_all(void *arg)
{
    (void)arg;
    reader_destroy(reader);
    writer_destroy(writer);
    close(sockets[0]);
    close(sockets[1]);
}

static void begin_burst(void)
{
    n_messages = 0;
    memset(n_fds_of, 0xa5, sizeof(n_fds_of));
}

static void open_all(void)
{
    begin_burst();
    n_wanted = CHANNEL_FDS_MAX;
    is_pausing = false;
    is_picky = false;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    CHECK_EQ(writer_create(&writer), 0);
    CHECK_EQ(reader_create(&reader, GUARD_CLIENT, &callbacks, NULL), 0);
    check_at_end(close_all, NULL);
}

static void make_end(uint8_t n, uint8_t index, int *ret_fd)
{
    uint8_t bytes[2] = {n, index};
    int fds[2];

    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    CHECK_EQ(write(fds[1], bytes, 2), 2);
    close(fds[1]);
    *ret_fd = fds[0];
}

/* The head of message n, up to its result: [1, n, nil, */
static void pack_head(uint8_t n, msgpack_sbuffer *ret_head, msgpack_packer *ret_packer)
{
    msgpack_sbuffer_init(ret_head);
    msgpack_packer_init(ret_packer, ret_head, msgpack_sbuffer_write);
    msgpack_pack_array(ret_packer, 4);
    msgpack_pack_uint8(ret_packer, 1);
    msgpack_pack_uint8(ret_packer, n);
    msgpack_pack_nil(ret_packer);
}

/* Message n, with a payload of so many bytes, or none and a short string. */
static void queue(uint8_t n, size_t payload_size, uint32_t n_fds)
{
    struct writer_message *message;
    msgpack_sbuffer head;
    msgpack_packer packer;
    int ends[CHANNEL_FDS_MAX] = {0};

    pack_head(n, &head, &packer);
    if (payload_size > 0) {
        msgpack_pack_bin(&packer, payload_size);
    } else {
        msgpack_pack_str_with_body(&packer, "some text", random_below(10));
    }
    CHECK_EQ(writer_begin(&message, NULL, NULL), 0);
    CHECK_EQ(writer_add_copy(message, head.data, head.size), 0);
    msgpack_sbuffer_destroy(&head);
    memset(payload[n], n, payload_size);
    CHECK_EQ(writer_add_ref(message, payload[n], payload_size), 0);
    for (uint32_t i = 0; i < n_fds; i++) {
        make_end(n, (uint8_t)i, &ends[i]);
    }
    if (n_fds > 0) {
        CHECK_EQ(writer_add_fds(message, ends, n_fds), 0);
    }
    for (uint32_t i = 0; i < n_fds; i++) {
        close(ends[i]);
    }
    writer_queue(writer, message);
}

static void send_all(void)
{
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 1);
}

static void test_each_message_of_a_burst_has_its_own(void)
{
    static const uint32_t n_fds[] = {0, 0, 3, CHANNEL_FDS_MAX, 0, 1, 1, 0};

    open_all();
    for (uint8_t n = 0; n < ARRAY_SIZE(n_fds); n++) {
        queue(n, 0, n_fds[n]);
    }
    send_all();
    CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_IDLE);
    CHECK_EQ(n_messages, ARRAY_SIZE(n_fds));
    for (uint8_t n = 0; n < ARRAY_SIZE(n_fds); n++) {
        CHECK_EQ(n_fds_of[n], n_fds[n]);
    }
}

/* Messages before them wait in the reader, in the same input. */
static void test_a_pause_before_them_does_not_lose_them(void)
{
    open_all();
    is_pausing = true;
    queue(0, 0, 0);
    queue(1, 0, 0);
    queue(2, 0, 2);
    queue(3, 0, 3);
    send_all();
    for (uint32_t n = 1; n <= 4; n++) {
        CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_PAUSED);
        CHECK_EQ(n_messages, n);
        CHECK_EQ(n_fds_of[n - 1], n - 1 < 2 ? 0 : n - 1);
    }
}

/* One read brings the end of a payload whose descriptors came before, and the next message's. */
static void test_a_long_message_keeps_its_own_beside_the_next(void)
{
    open_all();
    queue(0, 50000, 3);
    queue(1, 0, 2);
    send_all();
    CHECK_EQ(reader_read(reader, sockets[1], 30000), READER_BUDGET);
    CHECK_EQ(n_messages, 0);
    CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_IDLE);
    CHECK_EQ(n_messages, 2);
    CHECK_EQ(n_fds_of[0], 3);
    CHECK_EQ(n_fds_of[1], 2);
}

static void test_byte_by_byte(void)
{
    static const uint32_t n_fds[] = {0, 2, 1, 0, 3};
    int outcome = 0;

    open_all();
    for (uint8_t n = 0; n < ARRAY_SIZE(n_fds); n++) {
        queue(n, n % 2 == 0 ? 20 : 0, n_fds[n]);
    }
    while (outcome == 0) {
        outcome = writer_send(writer, sockets[0], 1);
        CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_IDLE);
    }
    CHECK_EQ(n_messages, ARRAY_SIZE(n_fds));
    for (uint8_t n = 0; n < ARRAY_SIZE(n_fds); n++) {
        CHECK_EQ(n_fds_of[n], n_fds[n]);
    }
}

/* Messages of any size, with descriptors or without, sent and received in pieces of any size. */
static void any_burst(void)
{
    uint32_t n_fds[24];
    size_t most = random_below(2) ? 2000 : PAYLOAD_MAX;
    int sent, outcome;

    begin_burst();
    for (uint8_t n = 0; n < 24; n++) {
        n_fds[n] = random_below(2) ? 0 : (uint32_t)random_below(CHANNEL_FDS_MAX + 1);
        queue(n, random_below(2) ? 0 : 1 + random_below(most), n_fds[n]);
    }
    do {
        sent = writer_send(writer, sockets[0], 1 + random_below(2 * most));
        do {
            outcome = reader_read(reader, sockets[1], 1 + random_below(2 * most));
            CHECK_GE(outcome, 0);
        } while (outcome != READER_IDLE && (sent == 1 || random_below(3) > 0));
    } while (sent == 0);
    CHECK_EQ(sent, 1);
    CHECK_EQ(n_messages, 24);
    for (uint8_t n = 0; n < 24; n++) {
        CHECK_EQ(n_fds_of[n], n_fds[n]);
    }
}

static void test_any_story_any_way(void)
{
    int n_fds;

    open_all();
    n_fds = check_count_fds();
    is_picky = true;
    for (int i = 0; i < 60; i++) {
        is_pausing = random_below(2);
        any_burst();
        CHECK_EQ(check_count_fds(), n_fds);
    }
}

/*
 * A client took too few, for want of room; the rest was taken for the first of the next message.
 */
static void test_those_left_over_are_not_the_next_messages(void)
{
    int fds[CHANNEL_FDS_MAX], n_fds;

    open_all();
    n_fds = check_count_fds();
    n_wanted = 0;
    queue(0, 0, 2);
    queue(1, 0, 0);
    send_all();
    CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_IDLE);
    CHECK(!reader_take_fds(reader, fds, 3));
    CHECK_EQ(check_count_fds(), n_fds + 2);
    queue(2, 0, 3);
    queue(3, 0, 0);
    send_all();
    CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_IDLE);
    CHECK_EQ(n_messages, 4);
    CHECK_EQ(check_count_fds(), n_fds + 3);
    CHECK(reader_take_fds(reader, fds, 3)); /* though another came behind */
    check_and_close(fds, 3, 2);
    CHECK(!reader_take_fds(reader, fds, 1));
}

/* Both of the message under way, and of one that lies behind a message that paused. */
static void test_a_destroyed_reader_closes_what_it_has(void)
{
    int n_fds;

    open_all();
    n_fds = check_count_fds();
    is_pausing = true;
    queue(0, 0, 0);
    queue(1, 50000, 3);
    send_all();
    CHECK_EQ(reader_read(reader, sockets[1], 30000), READER_PAUSED);
    CHECK_EQ(check_count_fds(), n_fds + 3);
    reader_destroy(STEAL(reader));
    CHECK_EQ(check_count_fds(), n_fds);
    CHECK_EQ(reader_create(&reader, GUARD_CLIENT, &callbacks, NULL), 0);
    while (read(sockets[1], sink, sizeof(sink)) > 0) {
    }
    queue(0, 50000, 3);
    send_all();
    CHECK_EQ(reader_read(reader, sockets[1], 30000), READER_BUDGET);
    CHECK_EQ(reader_read(reader, sockets[1], 1000), READER_BUDGET);
    CHECK_EQ(check_count_fds(), n_fds + 3);
    reader_destroy(STEAL(reader));
    CHECK_EQ(check_count_fds(), n_fds);
}

/* A server that sends some with each byte of a message costs its client no more than it may have.
 */
static void test_a_message_has_no_more_than_the_most(void)
{
    msgpack_sbuffer head;
    msgpack_packer packer;
    int n_fds, ends[3];
    uint8_t index = 0;

    open_all();
    n_fds = check_count_fds();
    pack_head(0, &head, &packer);
    msgpack_pack_str_with_body(&packer, "text", 4);
    for (size_t i = 0; i < head.size; i++) {
        struct iovec iov = {head.data + i, 1};

        for (uint32_t k = 0; k < 3; k++) {
            make_end(0, index++, &ends[k]);
        }
        CHECK_EQ(channel_send_fds(sockets[0], &iov, 1, ends, 3), 1);
        for (uint32_t k = 0; k < 3; k++) {
            close(ends[k]);
        }
        CHECK_EQ(reader_read(reader, sockets[1], SIZE_MAX), READER_IDLE);
        CHECK_LE(check_count_fds(), n_fds + 2 * CHANNEL_FDS_MAX);
    }
    msgpack_sbuffer_destroy(&head);
    CHECK_EQ(n_messages, 1);
    CHECK_EQ(n_fds_of[0], CHANNEL_FDS_MAX);
    CHECK_EQ(check_count_fds(), n_fds);
}

CHECK_MAIN(CHECK_TEST(test_each_message_of_a_burst_has_its_own),
           CHECK_TEST(test_a_pause_before_them_does_not_lose_them),
           CHECK_TEST(test_a_long_message_keeps_its_own_beside_the_next),
           CHECK_TEST(test_byte_by_byte), CHECK_TEST(test_any_story_any_way),
           CHECK_TEST(test_those_left_over_are_not_the_next_messages),
           CHECK_TEST(test_a_destroyed_reader_closes_what_it_has),
           CHECK_TEST(test_a_message_has_no_more_than_the_most))
