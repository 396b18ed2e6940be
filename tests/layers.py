#!/usr/bin/python3
"""Folders are layers and includes point one way: proto <- client, daemon, cuda.  Examples are like
anybody's programs: they include what is installed.

Prints TAP.  Usage: layers.py SOURCE_ROOT
"""
import pathlib
import re
import sys

MAY_INCLUDE = {
    "proto": {"proto"},
    "client": {"client", "proto"},
    "client/examples": set(),
    "daemon": {"daemon", "proto"},
    "cuda": {"cuda", "proto"},
}
# Headers of libraries that only one layer may know.
ONLY_IN = {
    "msgpack.h": {"proto", "client", "daemon"},
    "uv.h": {"client/examples", "daemon"},
    "systemd/": {"daemon"},
    "cuda_runtime": {"cuda"},
    "cuda.h": {"cuda"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)


def layer_of(root, path):
    """The innermost folder of ours that the file lies in."""
    return max((folder for folder in MAY_INCLUDE if path.is_relative_to(root / folder)), key=len)


def wrong_includes(root, folder):
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in {".c", ".h", ".cu"} or layer_of(root, path) != folder:
            continue
        for kind, name in INCLUDE.findall(path.read_text()):
            top = name.split("/")[0]
            if kind == '"' and top not in MAY_INCLUDE[folder]:
                yield f"{path.relative_to(root)} includes \"{name}\""
            for library, folders in ONLY_IN.items():
                if name.startswith(library) and folder not in folders:
                    yield f"{path.relative_to(root)} includes <{name}>"


def main():
    root = pathlib.Path(sys.argv[1])
    failed = False
    print(f"1..{len(MAY_INCLUDE)}")
    for number, folder in enumerate(MAY_INCLUDE, 1):
        wrong = list(wrong_includes(root, folder))
        for line in wrong:
            print("#", line)
        print("not ok" if wrong else "ok", number, "-", folder, "includes only what lies below it")
        failed |= bool(wrong)
    return failed


sys.exit(main())
