"""Tests in Python that print TAP: functions in order, each named after what it shows."""
import signal
import sys
import time
import traceback


class Skip(Exception):
    """This machine cannot run the test; the text says why."""


class TooLate(Exception):
    pass


def on_alarm(_signal, _frame):
    raise TooLate("the tests took too long")


def run(tests, deadline_s):
    """Returns the exit code.  Past the deadline the test under way fails, and so do the others."""
    failed = False
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(deadline_s)
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        name = test.__name__.replace("_", " ")
        try:
            test()
            print("ok", number, "-", name, flush=True)
        except Skip as reason:
            print("ok", number, "-", name, "# SKIP", reason, flush=True)
        except Exception as error:
            print("not ok", number, "-", name)
            print("#", "\n# ".join(traceback.format_exc().splitlines()), flush=True)
            failed = True
            if isinstance(error, TooLate):
                signal.alarm(1)
    signal.alarm(0)
    return failed


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"got {got!r}, not {expected!r}")


def has(text, part):
    if part not in text:
        raise AssertionError(f"{part!r} is not in {text!r}")


def wait_until(condition, what, limit_s=15):
    """Returns the condition's value once it is true."""
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s} s for {what}")
        time.sleep(0.02)


def main(tests, deadline_s=50):
    sys.exit(run(tests, deadline_s))
