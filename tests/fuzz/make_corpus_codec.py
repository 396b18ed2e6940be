#!/usr/bin/python3
"""Write the corpus of the codec's fuzz target: every message as it should be, and each refusal.

One file per message.  The files are committed; run this again after a change to the lists below.
Usage: make_corpus_codec.py [CORPUS_FOLDER]
"""
import pathlib
import sys

import msgpack

NIL = None
NAN = float("nan")
LONG = "a" * 32


class Pairs(list):
    """A map as a list of pairs: keys may repeat or be of any type."""


def pack(value):
    if isinstance(value, Pairs):
        packer = msgpack.Packer()
        return packer.pack_map_header(len(value)) + b"".join(pack(k) + pack(v) for k, v in value)
    if isinstance(value, (list, tuple)):
        return msgpack.Packer().pack_array_header(len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        return pack(Pairs(value.items()))
    return msgpack.packb(value, use_bin_type=True)


def requests():
    options = {"priority": "urgent", "deadline_ns": 10**9, "require": "gpu", "tail": "short",
               "device": "cuda1", "timing": True, "admit": True, "after": [1, LONG],
               "consts": [1, 2**53 - 1]}
    job = dict(options, window=64, max_push=1 << 20, ordered=False, total=1 << 40)
    many = {f"p{i}": i for i in range(17)}
    good = {
        "hello": [[], [NIL], [{"program": "x\n", "api": 3, "errors": "structured"}],
                  [{"errors": "string", "program": "p" * 80}]],
        "ping": [[]],
        "op.list": [[], [{"name": "sha256"}]],
        "run": [["copy"], ["saxpy", {"a": 2.5, "b": -3, "c": 7, "d": "x", "e": NAN}, options,
                           [b"1234", "5678"]], ["copy", NIL, NIL, NIL]],
        "job.open": [["sum"], ["sha256", {"block": 4096}, job], ["sum", {}, {"ordered": True}]],
        "job.push": [[1, 2], [1, 2, {"n": 3}, [b"abc"]], [2**53 - 1, 0, {}, []],
                     [1, 2, {"n": 3, "out": [[5, 64, 12]]}, [[5, 0, 3], [5, 128, 3]]],
                     [1, 2, {"deadline_ns": 10**9}, [b"abc"]]],
        "job.close": [[1]],
        "job.cancel": [[2**53 - 1]],
        "job.list": [[], [{"all": True}], [{"all": False}]],
        "events.subscribe": [[[]], [["device", "drain"]]],
        "const.put": [[{}, [b"abc"]], [NIL, []]],
        "const.drop": [[7]],
        "ring.open": [[1 << 26], [1, {"device": "cuda1"}]],
        "ring.close": [[7]],
        "stats": [[]],
        "device.list": [[]],
    }
    bad = {
        "hello": [[5], [{"progam": 1}], [{"pro\x07gam\xff": 1}], [Pairs([(5, 1)])],
                  [Pairs([("api", 1), ("api", 1)])], [{"errors": "loud"}], [{"errors": 5}],
                  [{"api": -1}], [{"api": 2**32}], [{"api": 1.5}], [{"program": 5}], [1, 2]],
        "ping": [[1]],
        "op.list": [[{"name": LONG}], [{"name": "a\n"}], [{"name": [1]}], [{"name": True}]],
        "run": [[], [NIL], [b"copy"], [[["copy", {}]]], [LONG], ["copy", []], ["copy", many],
                ["copy", Pairs([("a", 1), ("a", 2)])], ["copy", Pairs([(1, 1)])],
                ["copy", {"a": True}], ["copy", {"a": 2**64 - 1}], ["copy", {"a": LONG}],
                ["copy", {}, {"window": 3}], ["copy", {}, {"consts": 7}],
                ["copy", {}, {"consts": [1, 2, 3]}], ["copy", {}, {"consts": ["1"]}],
                ["copy", {}, {"timing": 1}], ["copy", {}, {"priority": "fast"}],
                ["copy", {}, {}, {}], ["copy", {}, {}, [5]], ["copy", {}, {}, [[1, 0, 64]]],
                ["copy", {}, {}, [msgpack.ExtType(1, b"x")]], ["copy", {}, {}, [NIL] * 5],
                ["copy", {"a": msgpack.ExtType(1, b"x")}], ["copy", b"stray"]],
        "job.open": [["sum", {}, {"window": 0}], ["sum", {}, {"window": 65}],
                     ["sum", {}, {"after": [""]}], ["sum", {}, {"after": [1.5]}],
                     ["sum", {}, {"after": list(range(17))}]],
        "job.push": [[1], [NIL, 0], [-1, 0], [2**53, 0], ["1", 0], [1, 0, {"out": []}],
                     [1, 0, {"out": [[1, 2]]}, [NIL]], [1, 0, {"out": [[1, 2, 3]] * 3}],
                     [1, 0, {}, [[1, 0, -1]]], [1, 0, {}, [[1, 0, 64], b"x"]],
                     [1, 0, {}, [b"x", [1, 0, 64]]]],
        "job.close": [[1.0], [NIL]],
        "job.list": [[{"all": 1}]],
        "events.subscribe": [[], [NIL], [["job"]], [["drain"] * 3], [[1]]],
        "const.put": [[{}], [{"device": 1}, [b"a"]], [{}, [b"a", b"b"]], [{}, 5]],
        "const.drop": [[NIL], [-1], ["1"]],
        "ring.open": [[], [0], [1.0], [2**53], [1, {"device": 1}], [1, {"numa": 0}]],
        "ring.close": [[], ["1"]],
        "no.such.method": [[1, [2], {"three": 3}]],
    }
    for kind, methods in (("good", good), ("bad", bad)):
        for method, calls in methods.items():
            for number, params in enumerate(calls):
                yield f"{kind}-{method}-{number}", pack([0, 7, method, params])
    yield "push-notification", pack([2, "job.push", [1, 0, {}, [b"abc"]]])


STATS = ("uptime_ns sessions sessions_total jobs jobs_total runs_total pushes_total chunks_total "
         "bytes_in pool_size").split()
BY = {"backend": "cpu", "device": "cpu0", "priority": "bulk", "path": "inline"}
TIMING = {"queue_ns": 1, "in_ns": 2, "compute_ns": 3, "out_ns": 4}
LOAD = {"waiting": 1, "waiting_size": 2, "oldest_ns": 3, "in_flight": 4, "in_flight_size": 5,
        "device_ns": 6}
OP = {"name": "blend", "doc": "Blends.", "kind": "reduce", "leaf": 1024, "min_parallel": 64,
      "tolerance": 1.5, "tail": ["error", "zero", "later", 5], "backends": ["cpu"],
      "in": [{"name": "x", "dtype": "f32", "shape": []},
             {"name": "y", "dtype": "u8", "shape": [3, "block"]},
             {"name": "to", "dtype": "u32", "ends": True},
             {"name": "text", "dtype": "u8", "shape": ["*"]}],
      "const": [{"name": "w", "dtype": "u16", "shape": ["block", 2]}],
      "out": [{"name": "z", "dtype": "c64"}],
      "params": [{"name": "block", "type": "u32", "default": 4096, "min": 1, "max": 65536,
                  "at_least": ["a", "b"]},
                 {"name": "a", "type": "f32", "required": True},
                 {"name": "b", "type": "f64", "default": -1, "min": -1.5, "max": 7},
                 {"name": "mode", "type": "choice", "choices": ["lo", "hi"], "default": "hi"}]}


def responses():
    good = {
        "hello": {"version": "0.1.0", "api_level": 1, "api_compatible": 1, "epoch": 2**52,
                  "rights": "user", "backend": "cpu", "limits": {"head": 65536}, "later": [1]},
        "run": dict(BY, n=3, timing=TIMING, out=[b"abc", b"d"]),
        "job-opened": {"job": 1, "token": LONG, "credit": 3, "max_push": 1 << 22,
                       "push_multiple": 1024, "in_size": [4, 4], "out_size": [8]},
        "job-closed": {"pushed": 3},
        "const": {"const": 5, "sha256": "0123456789abcdef" * 4},
        "ring-opened": {"ring": 1, "size": 1 << 26, "layout": 1, "sq": 192, "cq": 65792,
                        "entries": 1024, "align": 64},
        "job-state": {"state": "cancelled"},
        "stats": dict({key: 3**i for i, key in enumerate(STATS)}, version="0.1.0", backend="cpu",
                      queues=[dict(LOAD, priority="bulk", places=4)],
                      devices=[dict(LOAD, device="cpu0")],
                      users=[dict(LOAD, uid=1000, places=4, urgent_left_ns=-5)]),
        "op-list": [OP, dict(OP, kind="map")],
        "job-list": [{"job": 1, "op": "sum", "state": "open", "priority": "normal", "pushed": 2,
                      "done": 1, "held": 2, "token": LONG}],
        "device-list": [{"device": "cpu0", "name": "A CPU", "uuid": "", "state": "ready",
                         "backend": "cpu", "reason": "", "numa": -1, "memory": 1 << 40}],
        "nil": NIL, "empty": {}, "empty-list": [],
    }
    bad = [{"n": -1}, {"n": 1, "out": [1]}, {"n": 1, "out": 5}, {"n": 1, "priority": "fast"},
           {"n": 1, "timing": 7}, Pairs([("n", 1), ("n", 2)]), Pairs([(1, 2)]),
           {"job": 1, "credit": 1, "max_push": 1, "in_size": [1, -2]},
           {"job": 1, "credit": 1, "max_push": 1, "in_size": [1] * 5},
           {"job": 1, "credit": 1, "max_push": 1, "in_size": {}},
           {"state": "lost"}, [{"device": LONG * 2}], [{"device": "x", "numa": 2**31}],
           [{"device": "x", "numa": "0"}], [{}], [5], [dict(OP, kind="flat")],
           {"const": -1}, {"const": 5}, {"const": 5, "sha256": "0" * 65}, [dict(OP, const=[{}])],
           [dict(OP, const=[OP["in"][0]] * 3)],
           [dict(OP, tail=5)], [dict(OP, tolerance="x")], [dict(OP, tolerance=3)],
           [dict(OP, out=[{"name": "z", "dtype": "u8", "shape": [0]}])],
           [dict(OP, params=[{"name": "p", "type": "choice", "default": "x"}])],
           [dict(OP, params=[{"name": "p", "type": "choice"}])],
           [dict(OP, params=[{"name": "p", "type": "f32", "min": "low"}])],
           {"queues": [LOAD]}, {"devices": [{"device": "cpu0"}] * 33}, {"users": [{"uid": -1}]}]
    for name, result in good.items():
        yield f"result-{name}", pack([1, 7, NIL, result])
    for number, result in enumerate(bad):
        yield f"bad-result-{number}", pack([1, 7, NIL, result])
    errors = ["RANGE: too much", "NEW: later", "", ["SEQ", "why", {"field": "seq", "retry_ms": 9}],
              ["QUOTA", "why", {"limit": "jobs", "used": 64, "max": 64}],
              ["NEW", "why"], ["SEQ", 5, 6], [], {},
              ["DEADLINE", "why", {"predicted_ns": 10**9, "done": 3}]]
    for number, error in enumerate(errors):
        yield f"error-{number}", pack([1, 7, error, NIL])
    for number, end in enumerate([{"out": [b"abc"]}, {"error": errors[0]}, {"error": errors[3]},
                                  {}, {"out": [1]}]):
        result = dict(BY, n=3, credit=1, timing=TIMING, **end)
        yield f"job-result-{number}", pack([2, "job.result", [1, 2, result]])
        done = dict(end, state="done", pushes=3, n=9)
        yield f"job-done-{number}", pack([2, "job.done", [1, done]])
        yield f"ring-closed-{number}", pack([2, "ring.closed", [1, end]])
    events = [["device", {"device": "cuda1", "state": "restarting", "reason": "lost", "lost": 3}],
              ["drain", {}], ["rain", {}], ["device", {"lost": -1}]]
    for number, event in enumerate(events):
        yield f"event-{number}", pack([2, "event", event])


def envelopes():
    shapes = [[], [0, 1], [3, 1, "ping", []], [0, -1, "ping", []], [0, 1, 5, []],
              [0, 1, "ping", {}], [2, 5, []], [2, "x", 5], [0, 2**32, "ping", []], {"a": 1},
              [1, 1, NIL], [0, 1, "ping", [], 5]]
    for number, shape in enumerate(shapes):
        yield f"envelope-{number}", pack(shape)
    yield "two-messages", pack([0, 1, "ping", []]) + pack([0, 2, "stats", []])
    yield "cut", pack([0, 1, "run", ["copy", {}, {}, [b"abcdefgh"]]])[:-5]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent / "corpus" / "codec")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, message in [*requests(), *responses(), *envelopes()]:
        (folder / name).write_bytes(message)


main()
