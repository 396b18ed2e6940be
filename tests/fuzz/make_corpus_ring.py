#!/usr/bin/python3
"""Write the corpus of the rings' fuzz target: stories of two honest sides, and of dishonest ones.

One file per story.  The files are committed; run this again after a change to the lists below, or
to the operations of fuzz_ring.c.  Usage: make_corpus_ring.py [CORPUS_FOLDER]
"""
import pathlib
import struct
import sys

# The operations of fuzz_ring.c, in its order.
(SUBMIT, SHOW_SUBMITTED, TAKE, COMPLETE, SHOW_COMPLETED, REAP, SLEEP, AWAKE, CLIENT_SLEEP,
 CLIENT_AWAKE, NUDGE, OVERWRITE, ATTACH) = range(13)

# What can be nudged, forwards; BACK goes the other way, FAR takes four bytes for how far.
SQ_TAIL, CQ_TAIL, CQ_HEAD, FIRST_INDEX = range(4)
FAR, BACK = 4, 8


def count(n):
    """One byte: up to 19, or in eights from 1024 to 2040."""
    return n if n < 20 else n // 8


def far(n):
    return list(struct.pack(">I", n))


def overwrite(at, value):
    return [OVERWRITE, *far(at // 4), *far(value)]


def turn(n):
    """n descriptors there and back."""
    return [SUBMIT, count(n), SHOW_SUBMITTED, TAKE, count(n), COMPLETE, count(n), SHOW_COMPLETED,
            REAP, count(n)]


SLEEPS = [SLEEP, CLIENT_SLEEP, SHOW_SUBMITTED, SHOW_COMPLETED, *turn(3), SLEEP, SUBMIT, 1,
          SHOW_SUBMITTED, SLEEP, AWAKE, TAKE, 1, CLIENT_SLEEP, CLIENT_AWAKE, COMPLETE, 1,
          SHOW_COMPLETED, CLIENT_SLEEP, REAP, 1]
PARTS = [SUBMIT, 19, SHOW_SUBMITTED, TAKE, 7, COMPLETE, 4, SHOW_COMPLETED, REAP, 3, SUBMIT, 5,
         TAKE, 19, SHOW_SUBMITTED, TAKE, 19, COMPLETE, 19, SHOW_COMPLETED, REAP, 2, REAP, 19]

STORIES = [
    ("nothing", 0, []),
    ("one", 0, turn(1)),
    ("batches", 0, turn(19) * 3),
    ("parts", 100, PARTS),
    ("wrap", 2**32 - 5, turn(19) + PARTS),
    ("full", 0, turn(1024) + PARTS),
    ("full-over-the-wrap", 2**32 - 512, turn(1024) * 3),
    ("more-than-fits", 7, turn(2040) * 2),
    ("not-shown", 0, [SUBMIT, 3, TAKE, 3, SHOW_SUBMITTED, TAKE, 3, COMPLETE, 3, REAP, 3]),
    ("sleep", 0, SLEEPS),
    ("sleep-over-the-wrap", 2**32 - 2, SLEEPS),
    ("tail-ahead", 0, [NUDGE, SQ_TAIL, 5, TAKE, 19, *turn(3)]),
    ("tail-far-ahead", 0, [NUDGE, SQ_TAIL | FAR, *far(1024), TAKE, 3, NUDGE, SQ_TAIL, 4, TAKE, 3]),
    ("tail-behind", 0, [*turn(5), NUDGE, SQ_TAIL | BACK, 1, TAKE, 3, SLEEP, *turn(2)]),
    ("head-ahead", 0, [*PARTS, NUDGE, CQ_HEAD, 1, COMPLETE, 3, *turn(3)]),
    ("head-behind", 0, [*PARTS, NUDGE, CQ_HEAD | BACK | FAR, *far(1024), COMPLETE, 1,
                        NUDGE, CQ_HEAD | BACK, 1, COMPLETE, 1, REAP, 1, COMPLETE, 1]),
    ("completion-of-nothing", 0, [NUDGE, CQ_TAIL, 1, REAP, 1, CLIENT_SLEEP, *turn(1)]),
    ("completion-tail-behind", 0, [*turn(3), NUDGE, CQ_TAIL | BACK, 1, REAP, 1, *turn(1)]),
    ("own-indices-overwritten", 0, [*PARTS, NUDGE, CQ_TAIL | FAR, *far(1 << 31), *turn(1),
                                    NUDGE, SQ_TAIL | FAR, *far(1 << 31), *turn(1)]),
    ("flags-overwritten", 0, overwrite(64, 2) + overwrite(128, 2**32 - 1) + turn(1) + SLEEPS),
    ("entry-overwritten", 0, [SUBMIT, 2, SHOW_SUBMITTED, *overwrite(256 + 64, 99), TAKE, 2]),
    ("attach-again", 0, [*turn(3), ATTACH, *turn(3), NUDGE, FIRST_INDEX, 3, ATTACH, *turn(3)]),
    ("attach-magic", 0, overwrite(0, 1) + [ATTACH, *turn(1)]),
    ("attach-layout", 0, overwrite(4, 2) + [ATTACH, *turn(1)]),
    ("attach-entries", 0, overwrite(12, 2048) + [ATTACH, *turn(1)]),
    ("attach-sq", 0, overwrite(16, 2**32 - 64) + [ATTACH, *turn(1)]),
    ("attach-cq", 0, overwrite(20, 192) + [ATTACH, *turn(1)]),
]


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "corpus") / "ring"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, first_index, operations in STORIES:
        (folder / name).write_bytes(struct.pack(">I", first_index) + bytes(operations))


main()
