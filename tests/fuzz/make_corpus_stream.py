#!/usr/bin/python3
"""Write the corpus of the stream's fuzz target: what a client may do, and the worker meanwhile.

One file per story.  The files are committed; run this again after a change to the lists below, or
to the operations of fuzz_stream.c.  Usage: make_corpus_stream.py [CORPUS_FOLDER]
"""
import pathlib
import random
import sys

# The operations of fuzz_stream.c; the lengths of its payloads, and the rest of how a push is.

PUSH, CLOSE, CANCEL, OPEN, LET, RUN, CONST, FLUSH, FAIL, LEAVE = 0, 5, 6, 7, 9, 11, 12, 13, 14, 15
REQUEST, WRONG = 1, 14
SMALL, MIDDLE, LARGEST, NOTHING, BROKEN, TOO_LARGE = (size << 4 for size in (0, 9, 10, 12, 13, 14))
ORDERED, SUM = 1, 6


def job(how=ORDERED, window=4, priority=0):
    return bytes([OPEN, how | (window - 1) << 3 | priority << 6])


def push(number=0, how=REQUEST, size=SMALL, seq=None):
    if seq is None:
        return bytes([PUSH, number, how | size])
    return bytes([PUSH, number, how | size | WRONG, seq])


def close(number=0):
    return bytes([CLOSE, number])


def cancel(number=0):
    return bytes([CANCEL, number])


def let(n, backwards=0):
    return bytes([LET, n - 1 | backwards << 3])


FLUSHED = bytes([FLUSH, 0])
DEATH, FAILURE = bytes([FAIL, 0]), bytes([FAIL, 1])
GONE = bytes([LEAVE, 3, 0])

STORIES = {
    "nothing": b"",
    "a-stream": job() + 4 * push() + close() + FLUSHED + let(8),
    "notifications": job() + 4 * push(how=0, size=MIDDLE) + FLUSHED + let(4),
    "beyond-the-window": job(window=2) + 5 * push() + FLUSHED + let(2) + push(),
    "a-notification-beyond-the-window": job(window=1) + 3 * push(how=0) + FLUSHED + let(2),
    "the-newest-first": job(window=8) + 8 * push(size=LARGEST) + FLUSHED + 5 * let(8, 1),
    "unordered": job(how=0, window=8) + 8 * push(size=LARGEST) + FLUSHED + let(3) + cancel(),
    "a-sum": job(how=SUM | ORDERED) + 3 * push(size=LARGEST) + close() + FLUSHED + let(8),
    "a-sum-of-nothing": job(how=SUM) + push(size=NOTHING) + close(),
    "two-jobs": job() + job(priority=2) + push(0) + push(1) + push(0) + push(1) + FLUSHED + let(2),
    "wrong-seqs": job() + push(seq=1) + push(seq=0) + push(seq=0) + push(seq=255) + FLUSHED,
    "wrong-sizes": job() + push(size=BROKEN) + push(size=TOO_LARGE) + push(size=NOTHING),
    "behind-the-end": job() + push() + close() + push() + close() + FLUSHED + let(1),
    "a-job-that-is-nobodys": job() + push(255) + close(255) + cancel(255) + push(255, how=0),
    "cancelled": job() + 4 * push(size=LARGEST) + FLUSHED + let(2) + cancel() + push() + cancel(),
    "a-failed-chunk": job() + 4 * push() + FLUSHED + FAILURE + let(1) + push() + close(),
    "a-dead-worker": job() + 4 * push(size=LARGEST) + FLUSHED + let(3) + DEATH + push() + close(),
    "a-dead-worker-of-a-sum": job(how=SUM) + 3 * push(size=LARGEST) + FLUSHED + let(5) + DEATH,
    "runs": b"".join(bytes([RUN, how]) for how in range(16)) + FLUSHED + let(8),
    "constants": b"".join(bytes([CONST, how]) for how in (0, 16, 1, 1, 20, 3, 4, 18)),
    "half-a-message-and-gone": job() + push(size=LARGEST) + bytes([LEAVE, 200, 0]),
    "gone-amid-chunks": job() + 4 * push(size=LARGEST) + FLUSHED + let(2) + GONE,
    "all-its-jobs": b"".join(job(window=w) for w in (1, 2, 3, 4, 5, 8, 8)) + push(5) + close(2),
}


def any_story(number):
    """Mostly right, so that it gets far."""
    dice = random.Random(number)
    moves = [job(dice.randrange(8), dice.randint(1, 8), dice.randrange(4))]
    for _ in range(dice.randint(20, 120)):
        which = dice.randrange(6)
        moves += [dice.choice([
            push(which, dice.randrange(2), dice.choice([SMALL, SMALL, MIDDLE, LARGEST])),
            push(which), push(which, 0),
            push(which, REQUEST, dice.choice([NOTHING, BROKEN, TOO_LARGE])),
            push(which, REQUEST, SMALL, dice.randrange(8)),
            job(dice.randrange(8), dice.randint(1, 8), dice.randrange(4)),
            let(dice.randint(1, 8), dice.randrange(2)), FLUSHED, bytes([FLUSH, dice.randrange(256)]),
            dice.choice([close(which), cancel(which), DEATH, FAILURE]),
            bytes([dice.choice([RUN, CONST]), dice.randrange(32)]),
        ])]
    return b"".join(moves) + (GONE if number % 5 == 0 else b"")


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "corpus") / "stream"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, story in STORIES.items():
        (folder / name).write_bytes(story)
    for number in range(24):
        (folder / f"any-{number}").write_bytes(any_story(number))


main()
