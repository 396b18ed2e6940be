#!/usr/bin/python3
"""What fail() says goes to clients: no path of the machine, no pointer.

Prints TAP.  Usage: error_texts.py SOURCE_ROOT
"""
import pathlib
import re
import sys

FOLDERS = ("proto", "client", "daemon", "cuda")
# Device files of the driver have the same names everywhere, and are what an administrator looks for.
MAY_NAME_FILES = {"cuda/cuda_nodes.c"}
CALL = re.compile(r"\bfail\(")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')


def texts(source):
    """The string literals of each call of fail(), joined."""
    for call in CALL.finditer(source):
        depth, strings = 1, []
        for token in TOKEN.finditer(source, call.end()):
            if token.group() == "(":
                depth += 1
            elif token.group() == ")":
                depth -= 1
            else:
                strings.append(token.group()[1:-1])
            if depth == 0:
                break
        yield "".join(strings)


def wrong_texts(root, folder):
    n = 0
    for path in sorted((root / folder).rglob("*.c")):
        name = str(path.relative_to(root))
        for text in texts(path.read_text()):
            n += text != ""
            if "%p" in text or ("/" in text and name not in MAY_NAME_FILES):
                yield f"{name}: {text}"
    if n == 0:
        yield f"{folder}: no text found: does this test still look at the right thing?"


def main():
    root = pathlib.Path(sys.argv[1])
    failed = False
    print(f"1..{len(FOLDERS)}")
    for number, folder in enumerate(FOLDERS, 1):
        wrong = list(wrong_texts(root, folder))
        for line in wrong:
            print("#", line)
        print("not ok" if wrong else "ok", number, "-", folder, "tells no path and no pointer")
        failed |= bool(wrong)
    return failed


sys.exit(main())
