#!/usr/bin/python3
"""Sum what Meson's test logs say, and print the logs of tests that failed.

Usage: tally.py TESTLOG.json...    prints "PASSED FAILED SKIPPED" on stdout, logs on stderr.

Each TAP line counts.  A test that failed as a whole (crashed, ran out of time, printed no TAP)
counts as one failure more than its TAP lines tell.
"""
import json
import re
import sys

LINE = re.compile(r"^(not ok|ok)\b(.*)$", re.M)


def tally(test):
    """[passed, failed, skipped] of one test program."""
    counts = [0, 0, 0]
    for verdict, rest in LINE.findall(test.get("stdout") or ""):
        is_skip = re.search(r"#\s*skip", rest, re.I) is not None
        counts[1 if verdict == "not ok" else 2 if is_skip else 0] += 1
    if test["result"] == "SKIP" and not any(counts):
        counts[2] += 1
    elif test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and counts[1] == 0:
        counts[1] += 1
    elif not any(counts):
        counts[0] += 1
    return counts


def main():
    total = [0, 0, 0]
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                test = json.loads(line)
                counts = tally(test)
                total = [a + b for a, b in zip(total, counts)]
                if counts[1] > 0:
                    print(f"---- {test['name']}: {test['result']}", file=sys.stderr)
                    print(test.get("stdout") or "", file=sys.stderr)
                    print(test.get("stderr") or "", file=sys.stderr)
    print(*total)


main()
