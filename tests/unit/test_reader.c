/*
 * The reader: whatever way the bytes arrive, the same messages and payloads come out.
 *
 * A test writes messages to a socket and, beside them, the transcript that the callbacks should
 * produce: "P" and a payload's size and bytes (none if it is refused), "S" and a stray's size, "M"
 * and a message's head.  The sinks lie in the transcript that the callbacks write.
 */
#include "proto/channel.h"
#include "proto/reader.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <msgpack.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRANSCRIPT_SIZE (8u << 20)
#define FATES           4096

/* What becomes of the payloads, in order. */
enum fate {
    FATE_ACCEPTED,
    FATE_WAITING, /* no room when it is asked first */
    FATE_REFUSED,
    FATE_DRAINED, /* refused by reader_drain_payload() within the callback */
    FATE_COUNT,
};

struct transcript {
    size_t size;
    uint8_t bytes[TRANSCRIPT_SIZE];
};

static struct transcript expected, actual;
static enum fate fates[FATES];
static uint32_t n_expected_payloads;

static struct reader *reader;
static int sockets[2];
static uint32_t n_payloads, n_asked, n_messages, n_broken;
static uint32_t n_messages_wanted; /* on_message ends reading at the last of them */
static bool is_pausing;            /* on_message pauses reading at each */
static uint32_t max_pieces;
static struct failure broken;
static struct guard broken_guard;

/* The bytes on the wire, and the head of the message under way. */
static msgpack_sbuffer wire, head;
static msgpack_packer to_wire, to_head;
static bool is_wire_open;

static void note(struct transcript *transcript, char kind, uint64_t size, const void *bytes)
{
    size_t more = bytes == NULL ? 0 : size;

    CHECK_LE(transcript->size + 9 + more, TRANSCRIPT_SIZE);
    transcript->bytes[transcript->size] = (uint8_t)kind;
    memcpy(transcript->bytes + transcript->size + 1, &size, 8);
    if (more > 0) {
        memcpy(transcript->bytes + transcript->size + 9, bytes, size);
    }
    transcript->size += 9 + more;
}

/* A sink of random pieces in the transcript, poisoned. */
static void make_sink(uint64_t size, struct reader_sink *ret_sink)
{
    uint32_t n = 0;

    CHECK_LE(actual.size + size, TRANSCRIPT_SIZE);
    for (uint64_t left = size; left > 0; n++) {
        uint64_t piece = n + 1 == max_pieces ? left : MIN(left, random_below(left + 1));

        ret_sink->pieces[n] = (struct iovec){actual.bytes + actual.size, piece};
        memset(actual.bytes + actual.size, 0xa5, piece);
        actual.size += piece;
        left -= piece;
    }
    ret_sink->n_pieces = n;
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    enum fate fate = fates[n_payloads];
    msgpack_unpacked unpacked;
    size_t end = 0;

    CHECK(owner == &reader);
    msgpack_unpacked_init(&unpacked);
    CHECK_EQ((int)msgpack_unpack_next(&unpacked, (const char *)prefix, size, &end),
             MSGPACK_UNPACK_SUCCESS);
    msgpack_unpacked_destroy(&unpacked);
    CHECK_EQ(end, size);
    n_asked++;
    if (fate == FATE_WAITING && n_asked < 3) {
        return -EAGAIN;
    }
    n_asked = 0;
    n_payloads++;
    note(&actual, 'P', guard->payload_size, NULL);
    if (fate == FATE_REFUSED) {
        return -EINVAL;
    }
    if (fate == FATE_DRAINED) {
        reader_drain_payload(reader);
        return 0;
    }
    if (guard->payload_size > 0) {
        make_sink(guard->payload_size, ret_sink);
    }
    return 0;
}

static void on_stray(void *owner, const struct guard *guard)
{
    CHECK(owner == &reader);
    note(&actual, 'S', guard->payload_size, NULL);
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *bytes, size_t size)
{
    CHECK(owner == &reader);
    CHECK_EQ(guard->pos, size);
    note(&actual, 'M', size, bytes);
    return ++n_messages == n_messages_wanted ? -ECANCELED : is_pausing;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    CHECK(owner == &reader);
    n_broken++;
    broken = *failure;
    broken_guard = *guard;
}

static const struct reader_callbacks callbacks = {
    .on_payload = on_payload,
    .on_stray = on_stray,
    .on_message = on_message,
    .on_broken = on_broken,
};

static void close_reader(void *arg)
{
    (void)arg;
    reader_destroy(reader);
    reader = NULL;
    close_fd(&sockets[0]);
    close_fd(&sockets[1]);
}

static void free_wire(void *arg)
{
    (void)arg;
    msgpack_sbuffer_destroy(&wire);
    msgpack_sbuffer_destroy(&head);
    is_wire_open = false;
}

/* A fresh reader; may replace one within a test. */
static void open_reader(enum guard_role role)
{
    if (reader == NULL) {
        check_at_end(close_reader, NULL);
    } else {
        close_reader(NULL);
    }
    n_payloads = n_asked = n_messages = n_broken = n_messages_wanted = 0;
    is_pausing = false;
    max_pieces = READER_SINK_PIECES;
    actual.size = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    CHECK_EQ(reader_create(&reader, role, &callbacks, &reader), 0);
}

/* Fresh bytes to send; may replace others within a test. */
static void open_wire(void)
{
    if (is_wire_open) {
        free_wire(NULL);
    } else {
        check_at_end(free_wire, NULL);
    }
    msgpack_sbuffer_init(&wire);
    msgpack_sbuffer_init(&head);
    msgpack_packer_init(&to_wire, &wire, msgpack_sbuffer_write);
    msgpack_packer_init(&to_head, &head, msgpack_sbuffer_write);
    is_wire_open = true;
    n_expected_payloads = 0;
    expected.size = 0;
}

static void add_bytes(const void *bytes, size_t size)
{
    CHECK_EQ(msgpack_sbuffer_write(&wire, bytes, size), 0);
    CHECK_EQ(msgpack_sbuffer_write(&head, bytes, size), 0);
}

static void add_payload(size_t size, enum fate fate)
{
    uint8_t *bytes = malloc(size + 1);

    random_bytes(bytes, size);
    msgpack_pack_bin_with_body(&to_wire, bytes, size);
    msgpack_pack_nil(&to_head);
    fates[n_expected_payloads++] = fate;
    note(&expected, 'P', size, NULL);
    if (fate < FATE_REFUSED) {
        CHECK_LE(expected.size + size, TRANSCRIPT_SIZE);
        memcpy(expected.bytes + expected.size, bytes, size);
        expected.size += size;
    }
    free(bytes);
}

static void add_stray(size_t size)
{
    uint8_t *bytes = malloc(size + 1);

    random_bytes(bytes, size);
    msgpack_pack_bin_with_body(&to_wire, bytes, size);
    msgpack_pack_nil(&to_head);
    note(&expected, 'S', size, NULL);
    free(bytes);
}

static void end_message(void)
{
    note(&expected, 'M', head.size, head.data);
    msgpack_sbuffer_clear(&head);
}

/* [0, 7, "ping", []] */
static void add_ping(void)
{
    add_bytes("\x94\x00\x07\xa4ping\x90", 9);
    end_message();
}

/* [0, 7, "run", [0, 0, 0, [n payloads]]]: the opening. */
static void add_run(uint32_t n)
{
    add_bytes("\x94\x00\x07\xa3run\x94\x00\x00\x00", 11);
    msgpack_pack_array(&to_wire, n);
    msgpack_pack_array(&to_head, n);
}

static void add_random_message(size_t max_payload)
{
    uint32_t n = (uint32_t)random_below(4);

    switch (random_below(3)) {
    case 0:
        add_ping();
        break;
    case 1:
        add_run(n);
        for (uint32_t i = 0; i < n; i++) {
            size_t size = random_below(2) ? random_below(20) : random_below(max_payload);

            add_payload(size, (enum fate)random_below(FATE_COUNT));
        }
        end_message();
        break;
    default:
        add_bytes("\x93\x02\xa4ping\x92", 8);
        add_stray(random_below(max_payload));
        add_bytes("\xd9\x23"
                  "a string that may be cut somewhere.",
                  37);
        end_message();
        break;
    }
}

static void check_transcript(void)
{
    CHECK_EQ(actual.size, expected.size);
    CHECK_MEM(actual.bytes, expected.bytes, expected.size);
    CHECK_EQ(n_payloads, n_expected_payloads);
}

/* Read with this budget until the socket is empty. */
static int read_all(size_t budget)
{
    int outcome;

    do {
        outcome = reader_read(reader, sockets[0], budget);
        while (outcome == READER_BLOCKED) {
            outcome = reader_resume(reader);
            if (outcome == READER_IDLE) {
                outcome = READER_BUDGET;
            }
        }
    } while (outcome == READER_BUDGET || outcome == READER_PAUSED);
    return outcome;
}

static void send_all(const void *bytes, size_t size)
{
    CHECK_EQ(write(sockets[1], bytes, size), size);
}

/* Send the wire in random pieces of at most max_piece, reading between them. */
static void send_wire(size_t max_piece, size_t max_budget)
{
    for (size_t at = 0; at < wire.size;) {
        size_t n = MIN(wire.size - at, 1 + random_below(max_piece));

        send_all(wire.data + at, n);
        at += n;
        CHECK_EQ(read_all(1 + random_below(max_budget)), READER_IDLE);
    }
    CHECK_EQ(reader_received(reader), wire.size);
    CHECK(!reader_is_within(reader));
}

static void test_one_message(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_IDLE);
    add_ping();
    send_wire(1000, 1000);
    check_transcript();
    CHECK_EQ(n_messages, 1);
}

static void test_byte_by_byte(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    for (int i = 0; i < 20; i++) {
        add_random_message(300);
    }
    send_wire(1, 10);
    check_transcript();
}

static void test_several_messages_in_one_read(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    for (int i = 0; i < 300; i++) {
        add_random_message(100);
    }
    send_wire(wire.size, SIZE_MAX / 2);
    check_transcript();
}

/* Cut before every byte of a message with payloads of each fate, and of the message behind it. */
static void test_cut_at_every_offset(void)
{
    size_t size;

    open_wire();
    add_run(6);
    for (int fate = 0; fate < FATE_COUNT; fate++) {
        add_payload(40, (enum fate)fate);
    }
    add_payload(0, FATE_WAITING);
    add_payload(0, FATE_DRAINED);
    size = wire.size;
    end_message();
    add_ping();
    for (size_t cut = 0; cut <= wire.size; cut++) {
        open_reader(GUARD_SERVER);
        send_all(wire.data, cut);
        CHECK_EQ(read_all(1000), READER_IDLE);
        CHECK_EQ(reader_is_within(reader), cut != 0 && cut != size && cut != wire.size);
        send_all(wire.data + cut, wire.size - cut);
        CHECK_EQ(read_all(1000), READER_IDLE);
        check_transcript();
    }
}

static void test_any_story_any_way(void)
{
    for (int i = 0; i < 30; i++) {
        static const size_t pieces[] = {7, 1000, 60000};

        open_wire();
        open_reader(GUARD_SERVER);
        max_pieces = 1 + (uint32_t)random_below(READER_SINK_PIECES);
        is_pausing = random_below(2);
        for (int n = 0; n < 40; n++) {
            add_random_message(n % 8 == 0 ? 50000 : 1500);
        }
        send_wire(pieces[i % 3], i % 2 == 0 ? 3000 : 300000);
        check_transcript();
    }
}

static void test_the_budget_bounds_each_read(void)
{
    uint64_t before = 0;
    size_t sent = 0;
    int outcome;

    open_wire();
    open_reader(GUARD_SERVER);
    add_run(1);
    add_payload(1 << 20, FATE_ACCEPTED);
    end_message();
    do {
        ssize_t n = send(sockets[1], wire.data + sent, wire.size - sent, MSG_DONTWAIT);

        sent += n > 0 ? (size_t)n : 0;
        outcome = reader_read(reader, sockets[0], 10000);
        CHECK_LE(reader_received(reader) - before, 10000);
        before = reader_received(reader);
    } while (sent < wire.size || outcome == READER_BUDGET);
    CHECK_EQ(outcome, READER_IDLE);
    check_transcript();
}

static void test_no_room_stops_reading(void)
{
    int unread;

    open_wire();
    open_reader(GUARD_SERVER);
    add_run(1);
    add_payload(100000, FATE_WAITING);
    end_message();
    add_ping();
    send_all(wire.data, wire.size);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_BLOCKED);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_BLOCKED);
    CHECK_EQ(n_asked, 1);
    CHECK_EQ(reader_resume(reader), READER_BLOCKED);
    CHECK_EQ(n_asked, 2);
    CHECK_EQ(ioctl(sockets[0], FIONREAD, &unread), 0);
    CHECK_EQ(unread, wire.size - 1000);
    CHECK(reader_is_within(reader));
    CHECK_EQ(reader_resume(reader), READER_IDLE);
    CHECK_EQ(reader_read(reader, sockets[0], SIZE_MAX), READER_IDLE);
    check_transcript();
}

static void test_resume_goes_on_with_what_is_here(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_run(1);
    add_payload(10, FATE_WAITING);
    end_message();
    add_ping();
    add_ping();
    send_all(wire.data, wire.size);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_BLOCKED);
    CHECK_EQ(reader_resume(reader), READER_BLOCKED);
    CHECK_EQ(reader_resume(reader), READER_IDLE);
    check_transcript();
}

static void test_a_waiting_payload_can_be_drained(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_run(1);
    add_payload(5000, FATE_WAITING);
    end_message();
    add_ping();
    send_all(wire.data, wire.size);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_BLOCKED);
    reader_drain_payload(reader);
    CHECK_EQ(reader_read(reader, sockets[0], 10000), READER_IDLE);
    CHECK_EQ(n_messages, 2);
    CHECK_EQ(n_payloads, 0);
    reader_drain_payload(reader);
    CHECK(!reader_is_within(reader));
}

static void test_draining_leaves_the_sink_alone(void)
{
    static uint8_t poison[60000];
    size_t n_before, rest;

    open_wire();
    open_reader(GUARD_SERVER);
    add_run(1);
    add_payload(sizeof(poison), FATE_ACCEPTED);
    n_before = wire.size - sizeof(poison);
    end_message();
    add_run(1);
    add_payload(500, FATE_ACCEPTED);
    end_message();
    send_all(wire.data, n_before + 20000);
    CHECK_EQ(read_all(3000), READER_IDLE);
    CHECK_MEM(actual.bytes, expected.bytes, 9 + 20000);
    reader_drain_payload(reader);
    rest = wire.size - n_before - 20000;
    send_all(wire.data + n_before + 20000, rest);
    CHECK_EQ(read_all(3000), READER_IDLE);
    CHECK_EQ(n_messages, 2);
    CHECK_EQ(actual.size, expected.size);
    memset(poison, 0xa5, sizeof(poison));
    CHECK_MEM(actual.bytes + 9 + 20000, poison, sizeof(poison) - 20000);
    CHECK_MEM(actual.bytes + 9 + sizeof(poison), expected.bytes + 9 + sizeof(poison),
              expected.size - 9 - sizeof(poison));
}

static void test_a_client_takes_each_bin(void)
{
    open_wire();
    open_reader(GUARD_CLIENT);
    add_bytes("\x94\x01\x07\xc0\x81\xa3out\x92", 10);
    add_payload(3, FATE_ACCEPTED);
    add_payload(70000, FATE_ACCEPTED);
    end_message();
    send_wire(50000, 100000);
    check_transcript();
}

static void test_a_crowd_of_empty_payloads(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_bytes("\x94\x00\x07\xa3run\x94\xdc\x00\x32", 11);
    for (int i = 0; i < 50; i++) {
        char string[1000];

        memset(string, 'x', sizeof(string));
        add_bytes("\xda\x03\xe8", 3);
        add_bytes(string, sizeof(string));
    }
    add_bytes("\x00\x00\xdc\x0f\x00", 5);
    for (int i = 0; i < 0xf00; i++) {
        add_payload(0, (enum fate)random_below(FATE_COUNT));
    }
    end_message();
    send_wire(wire.size, SIZE_MAX / 2);
    check_transcript();
}

static void test_the_end_between_messages(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_ping();
    send_all(wire.data, wire.size);
    close(steal_fd(&sockets[1]));
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_EOF);
    CHECK(!reader_is_within(reader));
    check_transcript();
}

static void test_the_end_within_a_message(void)
{
    for (int is_payload = 0; is_payload < 2; is_payload++) {
        open_wire();
        open_reader(GUARD_SERVER);
        add_run(1);
        add_payload(100, FATE_ACCEPTED);
        end_message();
        send_all(wire.data, is_payload ? 50 : 5);
        close(steal_fd(&sockets[1]));
        CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_EOF);
        CHECK(reader_is_within(reader));
        CHECK_EQ(n_messages, 0);
        CHECK_EQ(n_payloads, is_payload);
    }
}

static void test_a_broken_stream_is_told_once(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_ping();
    send_all(wire.data, wire.size);
    send_all("\x94\x00\x05\xdd\xff\xff\xff\xff\x00\x00", 10);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_STOPPED);
    CHECK_EQ(n_messages, 1);
    CHECK_EQ(n_broken, 1);
    CHECK_EQ((int)broken.status, STATUS_PROTO);
    CHECK(broken_guard.has_msgid);
    CHECK_EQ(broken_guard.msgid, 5);
    send_all(wire.data, wire.size);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_STOPPED);
    CHECK_EQ(reader_resume(reader), READER_STOPPED);
    CHECK_EQ(n_messages, 1);
    CHECK_EQ(n_broken, 1);
}

static void test_a_callback_ends_reading(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_ping();
    add_ping();
    send_all(wire.data, wire.size);
    n_messages_wanted = 1;
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_STOPPED);
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_STOPPED);
    CHECK_EQ(n_messages, 1);
    CHECK_EQ(n_broken, 0);
}

/* What came in the same read waits in the reader, and comes without anything new to receive. */
static void test_a_callback_pauses_reading(void)
{
    open_wire();
    open_reader(GUARD_SERVER);
    add_ping();
    add_run(1);
    add_payload(100, FATE_ACCEPTED);
    end_message();
    add_ping();
    send_all(wire.data, wire.size);
    is_pausing = true;
    for (uint32_t i = 1; i <= 3; i++) {
        CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_PAUSED);
        CHECK_EQ(n_messages, i);
    }
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_IDLE);
    check_transcript();
}

static void test_a_descriptor_breaks_the_servers_stream(void)
{
    int n_fds;

    open_wire();
    open_reader(GUARD_SERVER);
    add_ping();
    CHECK_EQ(channel_send_packet(sockets[1], wire.data, wire.size, (int[]){0, 1}, 2), 0);
    n_fds = check_count_fds();
    CHECK_EQ(reader_read(reader, sockets[0], 1000), READER_STOPPED);
    CHECK_EQ(check_count_fds(), n_fds);
    CHECK_EQ(n_messages, 0);
    CHECK_EQ(n_broken, 1);
    CHECK_EQ((int)broken.status, STATUS_PROTO);
    CHECK_HAS(broken.message, "descriptors");
}

static void test_random_bytes_do_no_harm(void)
{
    for (int i = 0; i < 200; i++) {
        uint8_t bytes[2000];

        open_reader(i % 2 == 0 ? GUARD_SERVER : GUARD_CLIENT);
        random_bytes(bytes, sizeof(bytes));
        memcpy(bytes, "\x94\x01\x07\x9f", random_below(5));
        send_all(bytes, sizeof(bytes));
        for (uint32_t k = 0; k < FATES; k++) { /* one may claim more bytes than a transcript has */
            fates[k] = i % 4 < 2 ? FATE_REFUSED : FATE_DRAINED;
        }
        n_payloads = 0;
        CHECK_NE(read_all(500), READER_EOF);
        CHECK_LE(n_broken, 1);
    }
}

CHECK_MAIN(CHECK_TEST(test_one_message), CHECK_TEST(test_byte_by_byte),
           CHECK_TEST(test_several_messages_in_one_read), CHECK_TEST(test_cut_at_every_offset),
           CHECK_TEST(test_any_story_any_way), CHECK_TEST(test_the_budget_bounds_each_read),
           CHECK_TEST(test_no_room_stops_reading),
           CHECK_TEST(test_resume_goes_on_with_what_is_here),
           CHECK_TEST(test_a_waiting_payload_can_be_drained),
           CHECK_TEST(test_draining_leaves_the_sink_alone),
           CHECK_TEST(test_a_client_takes_each_bin), CHECK_TEST(test_a_crowd_of_empty_payloads),
           CHECK_TEST(test_the_end_between_messages), CHECK_TEST(test_the_end_within_a_message),
           CHECK_TEST(test_a_broken_stream_is_told_once), CHECK_TEST(test_a_callback_ends_reading),
           CHECK_TEST(test_a_callback_pauses_reading),
           CHECK_TEST(test_a_descriptor_breaks_the_servers_stream),
           CHECK_TEST(test_random_bytes_do_no_harm))
