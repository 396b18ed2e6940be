/*
 * Fake device: a backend that computes nothing but affine and does what a test wants to see: fail,
 * end, or say how long it took.  It takes the place of a backend in a worker that has the fake ops.
 *
 * The op affine's parameter `add` says what becomes of its work: that status, with FAKE_ERROR; or
 * FAKE_LOSES, which loses the device with FAKE_LOSS, or FAKE_DIES, which ends the process by
 * SIGABRT, or FAKE_SHORT, which leaves the last byte out.  Everything else succeeds.  Each work
 * that is timed took the FAKE_x_NS.
 *
 * Its environment says which devices there are:
 *     FAKE_DEVICES=3      so many, of the UUIDs FAKE-0, FAKE-1, ... (default: one without)
 *     FAKE_BROKEN=02      those of these indices cannot be opened: FAKE_BREAK
 *     FAKE_SEGMENT_MOST=N segments of more bytes cannot be registered: FAKE_REFUSAL
 *     FAKE_SEGMENT_FILE=F the same, while there is a file F, with the N that it says
 *     FAKE_CHUNK_LEAST=N  it is the device's chunk_least (default: FAKE_CHUNK_SIZE), and work took
 *                         FAKE_DEVICE_NS (default: it does not say)
 *     FAKE_CHUNK_FILE=F   to a file F each work adds a line: its records
 *     FAKE_UUID_FILE=F    while there is a file F, its first line is the UUID of any of them
 */
#pragma once

#define FAKE_CHUNK_SIZE 65536u

#define FAKE_LOSES 1000u
#define FAKE_DIES  1001u
#define FAKE_SHORT 1002u

#define FAKE_ERROR                                                                                 \
    "fakeCopy(to, from): fakeErrorOutOfCoffee (7) at fake.c:12; 24 bytes wanted, 8 free"
#define FAKE_BREAK   "fake device %u is broken"
#define FAKE_REFUSAL "fakeRegister(segment %u): fakeErrorOutOfSugar (8) at fake.c:56"
#define FAKE_LOSS    "fakeQuery(event): fakeErrorIllegalAddress (700) at fake.c:34"

#define FAKE_IN_NS      3u
#define FAKE_COMPUTE_NS UINT64_C(5000000000)
#define FAKE_OUT_NS     7u
#define FAKE_DEVICE_NS  1000u
