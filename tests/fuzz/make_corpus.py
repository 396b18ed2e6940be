#!/usr/bin/python3
"""Write the corpus that the fuzz targets start from and that each test run replays.

One file per named message, in the folder of its target.  The files are committed; run this again
after a change to the lists below.  Usage: make_corpus.py [CORPUS_FOLDER]
"""
import pathlib
import struct
import sys

import msgpack


def pack(value):
    return msgpack.packb(value, use_bin_type=True)


def request(method, *params, msgid=7):
    return pack([0, msgid, method, list(params)])


def notification(method, *params):
    return pack([2, method, list(params)])


def response(error, result, msgid=7):
    return pack([1, msgid, error, result])


def call(raw_value):
    """A request whose one param is these bytes."""
    return b"\x94\x00\x07\xa5hello\x91" + raw_value


OPTIONS = {"priority": "bulk", "deadline_ns": 5000000, "require": "cpu", "tail": "short"}

# Every method as a request, as a client would call it.
REQUESTS = [
    ("hello", request("hello", {"program": "test", "api": 1, "errors": "structured"})),
    ("ping", request("ping")),
    ("op-list", request("op.list", {"name": "saxpy"})),
    ("run", request("run", "saxpy", {"a": 2.5}, OPTIONS, [b"\x00\x00\x80?", b"\x00\x00\x00@"])),
    ("run-str", request("run", "copy", {}, {}, ["neovim sends str"])),
    ("run-empty-payload", request("run", "copy", {}, {}, [b"", ""])),
    ("run-refs", request("run", "copy", {}, {}, [[1, 4096, 64], b"abc", [1, 0, 64]])),
    ("job-open", request("job.open", "sha256", {"block": 4096}, dict(OPTIONS, window=3))),
    ("job-push", request("job.push", 1, 0, {"n": 1}, [b"x" * 4096])),
    ("job-close", request("job.close", 1)),
    ("job-cancel", request("job.cancel", 1)),
    ("job-list", request("job.list", {"all": True})),
    ("const-put", request("const.put", {}, [b"\x01\x02\x03"])),
    ("const-drop", request("const.drop", 3)),
    ("stats", request("stats")),
    ("device-list", request("device.list")),
    ("unknown-method", request("no.such.method", 1, [2], {"three": 3})),
    ("push-notification", notification("job.push", 1, 0, {}, [b"abc"])),
]

# What the daemon sends, for the client's role, and what clients answer to notifications.
RESPONSES = [
    ("result-nil", response(None, None)),
    ("result-outputs", response(None, {"n": 2, "out": [b"abcdefgh", b"ij"]})),
    ("result-bin16", response(None, {"out": [b"x" * 300]})),
    ("result-bin32", b"\x94\x01\x07\xc0\x81\xa3out\x91\xc6\x00\x00\x01\x00" + b"x" * 256),
    ("error-string", response("RANGE: n is 9; at most 8", None)),
    ("error-structured", response(["BUSY", "draining", {"retry_ms": 100}], None)),
    ("notify-result", notification("job.result", 1, 0, {"n": 1, "credit": 1, "out": [b"abc"]})),
    ("notify-done", notification("job.done", 1, {"state": "done", "pushes": 3, "n": 3})),
]

# Every first byte of MessagePack that starts a value, with all its widths.
TOKENS = [
    ("token-nil-bool", call(b"\x93\xc0\xc2\xc3")),
    ("token-fixint", call(b"\x94\x00\x7f\xff\xe0")),
    ("token-uint", call(b"\x94\xcc\x80\xcd\x80\x00\xce\x80\x00\x00\x00\xcf\x80" + bytes(7))),
    ("token-int", call(b"\x94\xd0\x80\xd1\x80\x00\xd2\x80\x00\x00\x00\xd3\x80" + bytes(7))),
    ("token-float", call(b"\x92\xca\x7f\x80\x00\x01\xcb\x7f\xf0" + bytes(6))),
    ("token-str", call(b"\x95\xa0\xa2hi\xd9\x02hi\xda\x00\x02hi\xdb\x00\x00\x00\x02hi")),
    ("token-array", call(b"\x94\x90\x91\x01\xdc\x00\x01\x01\xdd\x00\x00\x00\x01\x01")),
    ("token-map", call(b"\x94\x80\x81\x01\x02\xde\x00\x01\x01\x02\xdf\x00\x00\x00\x01\x01\x02")),
    ("token-never-used", call(b"\xc1")),
    ("token-fixext", call(b"\xd4\x01\x00")),
    ("token-ext8", call(b"\xc7\x01\x01\x00")),
    ("token-wide-envelope", b"\xdd\x00\x00\x00\x04\xd1\x00\x00\xcf" + bytes(7)
     + b"\x07\xdb\x00\x00\x00\x04ping\xdc\x00\x00"),
    ("token-payload-widths", b"\x94\x00\x07\xa3run\x94\xa4copy\x80\x80\x96\xc4\x01a\xc5\x00\x01b"
     + b"\xc6\x00\x00\x00\x01c\xd9\x01d\xda\x00\x01e\xdb\x00\x00\x00\x01f"),
]

# What the guard refuses, or drains.
ATTACKS = [
    ("stray-in-ping", request("ping", b"abc")),
    ("stray-in-options", request("run", "copy", {"a": b"abc"}, {}, [b"abc"])),
    ("stray-too-deep", request("run", "copy", {}, {}, [[b"abc"]])),
    ("stray-for-array", request("run", "copy", {}, {}, b"abc")),
    ("stray-in-map", request("run", "copy", {}, {}, {"in": b"abc"})),
    ("stray-for-params", pack([0, 7, "run", b"abc"])),
    ("stray-in-response", response(None, b"abc")),
    ("bomb-array", b"\xdd\xff\xff\xff\xff"),
    ("bomb-array-param", call(b"\xdd\xff\xff\xff\xff")),
    ("bomb-map-param", call(b"\xdf\x80\x00\x00\x01")),
    ("bomb-nested-counts", call(b"\xdc\x01\x90" * 20)),
    ("bomb-depth", call(b"\x91" * 4000)),
    ("bomb-depth-16", call(b"\x91" * 14 + b"\xc0")),
    ("bomb-string", call(b"\xdb\xff\xff\xff\xff")),
    ("bomb-string-1025", call(b"\xda\x04\x01" + b"x" * 1025)),
    ("bomb-head", call(b"\xdc\x00\x50" + (b"\xda\x04\x00" + b"x" * 1024) * 66)),
    ("bomb-frame", b"\x94\x00\x07\xa3run\x94\xa4copy\x80\x80\x91\xc6\xff\xff\xff\xff"),
    ("envelope-map", pack({0: 1, 2: 3})),
    ("envelope-int", pack(5)),
    ("envelope-short", pack([0, 7])),
    ("envelope-long", pack([0, 7, "ping", [], 1])),
    ("envelope-type-3", pack([3, 7, "ping", []])),
    ("envelope-type-2-of-4", pack([2, 7, "ping", []])),
    ("envelope-msgid-negative", pack([0, -1, "ping", []])),
    ("envelope-msgid-wide", pack([0, 1 << 32, "ping", []])),
    ("envelope-method-int", pack([0, 7, 8, []])),
    ("envelope-method-bin", pack([0, 7, b"ping", []])),
    ("params-map", pack([0, 7, "run", {1: 2, 3: [b"abc"]}])),
    ("http", b"GET / HTTP/1.0\r\n\r\n"),
    ("half-a-payload", request("job.push", 1, 0, {}, [b"x" * 100])[:-50]),
    ("half-a-string", request("no.such.method")[:-9]),
]

STREAMS = [
    ("stream-of-requests", b"".join(message for _, message in REQUESTS)),
    ("stream-of-responses", b"".join(message for _, message in RESPONSES[:3])),
    ("stream-then-nonsense", request("ping") + struct.pack("<d", 0.1)),
]

# Target: its messages.
CORPUS = {
    "guard": REQUESTS + RESPONSES + TOKENS + ATTACKS + STREAMS,
}


def main():
    here = pathlib.Path(__file__).resolve().parent
    corpus = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "corpus"
    for target, messages in CORPUS.items():
        folder = corpus / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, message in messages:
            (folder / name).write_bytes(message)


main()
