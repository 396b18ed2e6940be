#!/usr/bin/python3
"""gpupipe-cli bench against the real daemon: what it counts is what was sent, what it checks is what
came out, and what it prints can be read by others.  How fast anything is plays no part.

Prints TAP.  Usage: cli_bench.py GPUPIPED GPUPIPE_CLI WORKER_CPU WRONG_WORKER
"""
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "systemd")]
import daemon_socket
import tap

GPUPIPED, CLI, WORKER, WRONG_WORKER = map(pathlib.Path, sys.argv[1:])
PERCENTILES = ("min", "p50", "p90", "p99", "p99.9", "p99.99", "max")
PATIENCE_S = 250


class Daemon:
    """In a folder of its own, in which commands run as well."""

    def __init__(self, *options, worker=WORKER):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        (self.folder / "bin").mkdir()
        (self.folder / "lib").symlink_to(GPUPIPED.parent.parent / "lib")
        shutil.copy(GPUPIPED, self.folder / "bin" / "gpupiped")
        shutil.copy(worker, self.folder / "bin" / "gpupipe-worker-cpu")
        environment = os.environ | {"GPUPIPE_WORKER": str(self.folder / "bin/gpupipe-worker-cpu")}
        self.process = subprocess.Popen(
            [self.folder / "bin" / "gpupiped", "--socket", self.folder / "s", "--backend", "cpu",
             "--pinned-pool", "64M", "--ring-pool", "256M", *options],
            env=environment, stderr=subprocess.DEVNULL)
        daemon_socket.connect(self.process, self.folder / "s").close()
        tap.wait_until(lambda: self.json("status")["devices"], "a device", PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)

    def begin(self, *args):
        return subprocess.Popen([CLI, "--socket", self.folder / "s", *args], cwd=self.folder,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def end(self, process, code=0):
        out, err = process.communicate(timeout=PATIENCE_S)
        if process.returncode != code:
            raise AssertionError(f"exit code {process.returncode}, not {code}: {err}")
        return out, err

    def run(self, *args, code=0):
        return self.end(self.begin(*args), code)

    def json(self, *args):
        return json.loads(self.run("--json", *args)[0])

    def stat(self, name):
        return self.json("status")["stats"][name]

    def workers(self):
        """Processes with our worker's path."""
        path = str(self.folder / "bin" / "gpupipe-worker-cpu")
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "cmdline").read_bytes().split(b"\0")[0].decode() == path:
                        yield int(entry.name)
                except OSError:
                    pass


def check_spread(spread):
    values = [spread[name] for name in PERCENTILES]
    tap.equal(values, sorted(values))
    assert spread["min"] <= spread["mean"] <= spread["max"], spread
    assert spread["min"] > 0, spread


def check_point(point, n_in=1):
    """Sums and quotients of one measurement."""
    assert point["pushes"] > 0, point
    tap.equal(point["bytes_in"], n_in * point["pushes"] * point["size"])
    tap.equal(point["bytes_out"], point["pushes"] * point["size"])
    seconds = point["timed_ns"] / 1e9
    for name, count in (("pushes_per_second", point["pushes"]),
                        ("gb_per_second_in", point["bytes_in"] / 1e9),
                        ("gb_per_second_out", point["bytes_out"] / 1e9)):
        assert math.isclose(point[name], count / seconds, rel_tol=1e-9), (name, point)
    check_spread(point["latency_ns"])


def only(result):
    (point,) = result["results"]
    return point


# ---- counts ---------------------------------------------------------------------------------------

def pushes_are_those_that_the_daemon_had():
    with Daemon() as daemon:
        for op, n_in, options in (("copy", 1, ()), ("copy", 1, ("--inline",)),
                                  ("copy", 1, ("--concurrency", "1", "--size", "5000")),
                                  ("saxpy", 2, ("-p", "a=-0.3")), ("iterate", 1, ("-p", "n=63")),
                                  ("iterate", 1, ("-p", "n=64", "--priority", "urgent"))):
            before = daemon.stat("pushes_total")
            result = daemon.json("bench", "throughput", op, "--size", "64K", "--warmup", "0",
                                 "--duration", "100ms", *options)
            point = only(result)
            check_point(point, n_in)
            tap.equal(daemon.stat("pushes_total") - before, point["pushes"])
            tap.equal((result["benchmark"], result["settings"]["op"], result["settings"]["warmup_ns"],
                       result["backend"], result["device"], result["interrupted"],
                       point["in_flight"], result["settings"]["priority"]),
                      ("throughput", op, 0, "cpu", "cpu0", False,
                       1 if "--concurrency" in options else 4,
                       "urgent" if "urgent" in options else "normal"))
            tap.equal(result["path"], "inline" if "--inline" in options else "ring")
        tap.equal(daemon.stat("rings_broken"), 0)


def what_is_warmed_up_with_is_not_counted():
    with Daemon() as daemon:
        point = only(daemon.json("bench", "latency", "--warmup", "100ms", "--duration", "100ms"))
        check_point(point)
        tap.equal((point["size"], point["in_flight"]), (4096, 1))
        assert daemon.stat("pushes_total") > point["pushes"]


def a_rate_is_kept_however_long_it_takes():
    """Due at 0, 5, ... 495 ms: a hundred, sent or told of."""
    with Daemon() as daemon:
        before = daemon.stat("pushes_total")
        result = daemon.json("bench", "latency", "--rate", "200", "--duration", "500ms",
                             "--warmup", "0")
        point = only(result)
        check_point(point)
        tap.equal(point["pushes"] + point["unsent"], 100)
        tap.equal(daemon.stat("pushes_total") - before, point["pushes"])
        assert point["timed_ns"] >= 500_000_000, point
        assert point["sent_late_ns"]["max"] <= point["latency_ns"]["max"], point
        tap.equal((result["settings"]["rate"], result["settings"]["distribution"]),
                  (200, "constant"))


def poisson_arrivals_are_about_as_many():
    with Daemon() as daemon:
        point = only(daemon.json("bench", "throughput", "--rate", "800", "--size", "4K",
                                 "--distribution", "poisson", "--duration", "500ms"))
        check_point(point)
        # Eight deviations; what is not sent is told in round figures.
        assert abs(point["pushes"] + point["unsent"] - 400) < 8 * 20, point


def a_stall_is_told_of_in_full():
    """250 a second, while the worker stands still for more than a second: 64 are under way then,
    and a benchmark that waits for those before it counts on would tell of no others.  The median
    is of pushes that were due while nothing moved.  (Inline: a worker has a part in opening a ring.)"""
    with Daemon() as daemon:
        (worker,) = daemon.workers()
        os.kill(worker, signal.SIGSTOP)
        try:
            bench = daemon.begin("bench", "latency", "--rate", "250", "--duration", "2s",
                                 "--warmup", "0", "--inline", "--format", "json")
            tap.wait_until(lambda: any(job["pushed"] >= 64 for job in daemon.json("job", "list")["jobs"]),
                           "pushes under way", PATIENCE_S)
            time.sleep(1)
        finally:
            os.kill(worker, signal.SIGCONT)
        point = only(json.loads(daemon.end(bench)[0]))
        check_point(point)
        tap.equal(point["pushes"] + point["unsent"], 500)
        # It stood still for at least 64 / 250 s and 1 s: half of what was sent had 0.25 s to wait.
        assert point["latency_ns"]["p50"] > 200e6, point
        assert point["latency_ns"]["max"] > 1000e6, point
        assert point["sent_late_ns"]["max"] > 900e6, point


def more_than_can_be_done_is_given_up():
    with Daemon() as daemon:
        out, err = daemon.run("--json", "bench", "throughput", "iterate", "-p", "n=5000", "--size", "4K",
                              "--rate", "1e6", "--duration", "100ms", "--warmup", "0")
        point = only(json.loads(out))
        check_point(point)
        tap.equal(point["pushes"] + point["unsent"], 100_000)
        assert point["unsent"] > 0, point
        tap.has(err, "more than could be done")


# ---- sweeps and pictures --------------------------------------------------------------------------

def check_picture(path, n_curves, n_points=None):
    picture = xml.dom.minidom.parse(str(path))
    curves = picture.getElementsByTagName("polyline")
    tap.equal(len(curves), n_curves)
    for curve in curves:
        points = curve.getAttribute("points").split()
        tap.equal(len(points), n_points or len(points))
        assert points, path
        for point in points:
            x, y = map(float, point.split(","))
            assert 0 < x < 720 and 0 < y < 1000, point
    return [text.firstChild.data for text in picture.getElementsByTagName("text")
            if text.firstChild is not None]


def chunks_go_from_64_KiB_to_16_MiB():
    with Daemon() as daemon:
        result = daemon.json("bench", "chunks", "--duration", "20ms", "--warmup", "20ms", "--svg",
                             "picture.svg")
        tap.equal([point["size"] for point in result["results"]],
                  [2 ** power for power in range(16, 25)])
        for point in result["results"]:
            check_point(point)
            tap.equal(point["in_flight"], 4)
        texts = check_picture(daemon.folder / "picture.svg", 2, 9)
        for text in ("64.0 KiB", "16.0 MiB", "GB/s, in and out together"):
            assert text in texts, texts
        assert any(re.fullmatch("latency p99, (ns|us|ms|s)", text) for text in texts), texts


def streams_go_up_to_the_window():
    with Daemon() as daemon:
        result = daemon.json("bench", "streams", "--size", "64K", "--duration", "20ms", "--warmup",
                             "0", "--svg", "picture.svg")
        tap.equal([point["in_flight"] for point in result["results"]], [1, 2, 4, 8, 16, 32, 64])
        for point in result["results"]:
            check_point(point)
            assert point["pushes"] >= point["in_flight"], point
        check_picture(daemon.folder / "picture.svg", 2, 7)


def a_sweep_ends_where_there_is_no_room():
    """Through the socket three quarters of 64 MiB are to be had, in a ring of 128 MiB all of it."""
    with Daemon() as daemon:
        for options, most in ((["--size", "1M", "--inline"], 16), (["--size", "16M"], 4)):
            out, err = daemon.run("--json", "bench", "streams", "--duration", "10ms", "--warmup",
                                  "0", *options)
            tap.equal(json.loads(out)["results"][-1]["in_flight"], most)
            tap.has(err, "the sweep ends here")
        out, err = daemon.run("bench", "throughput", "--concurrency", "64", "--size", "1M",
                              "--inline", code=1)
        tap.equal(out, "")
        tap.has(err, "lower --concurrency or --size")


def pictures_replace_nothing():
    with Daemon() as daemon:
        latency = ("bench", "latency", "--duration", "20ms", "--warmup", "0", "--svg", "picture.svg")
        picture = daemon.folder / "picture.svg"
        picture.write_text("mine")
        before = daemon.stat("pushes_total")
        tap.has(daemon.run(*latency, code=1)[1], "exists")
        tap.equal((picture.read_text(), daemon.stat("pushes_total")), ("mine", before))
        daemon.run(*latency, "-f")
        tap.has(" ".join(check_picture(picture, 1)), "percentile")
        tap.equal(sorted(path.name for path in daemon.folder.iterdir()),
                  ["bin", "lib", "picture.svg", "s", "s.lock"])


# ---- formats --------------------------------------------------------------------------------------

def a_percentile_log_can_be_read():
    with Daemon() as daemon:
        out, _ = daemon.run("bench", "latency", "--duration", "100ms", "--format", "hgrm")
        head, empty, *lines = out.splitlines()
        tap.equal((head.split(), empty), (["Value", "Percentile", "TotalCount", "1/(1-Percentile)"],
                                          ""))
        rows = [list(map(float, line.split())) for line in lines if not line.startswith("#")]
        for value, part, count, inverse in rows[:-1]:
            assert math.isclose(1 / (1 - part), inverse, rel_tol=0.01), (part, inverse)
        for column in range(4):
            values = [row[column] for row in rows]
            tap.equal(values, sorted(values))
        closing = re.sub(" +", " ", "\n".join(line for line in lines if line.startswith("#")))
        mean, deviation, most, total = map(float, re.fullmatch(
            r"#\[Mean = ([0-9.]+), StdDeviation = ([0-9.]+)\]\n"
            r"#\[Max = ([0-9.]+), Total count = ([0-9]+)\]\n"
            r"#\[Buckets = [0-9]+, SubBuckets = [0-9]+\]", closing).groups())
        tap.equal(rows[-1], [most, 1, total, math.inf])
        tap.equal(rows[0][1], 0)
        assert rows[0][0] <= mean <= most and deviation >= 0, out


def text_is_a_table():
    with Daemon() as daemon:
        out, err = daemon.run("bench", "throughput", "saxpy", "--size", "64K", "--duration", "20ms")
        first, titles, row = out.splitlines()
        tap.equal(first, "saxpy a=2.5, ring, by cpu0, pushes of 64.0 KiB, 4 in flight; every byte "
                         "was checked")
        tap.equal(titles.split(), ["PUSH", "IN", "FLIGHT", "PUSHES", "PUSHES/S", "GB/S", "IN",
                                   "GB/S", "OUT", "P50", "P90", "P99", "P99.9", "P99.99", "MAX"])
        tap.equal(row.split()[:3], ["64.0", "KiB", "4"])
        tap.equal(err, "")


# ---- what goes wrong ------------------------------------------------------------------------------

def a_wrong_byte_is_a_failure():
    with Daemon(worker=WRONG_WORKER) as daemon:
        for op in ("copy", "saxpy", "iterate"):
            for options in ((), ("--inline",), ("--rate", "100")):
                out, err = daemon.run("bench", "throughput", op, "--size", "64K", "--duration",
                                      "50ms", "--warmup", "0", *options, code=1)
                tap.equal(out, "")
                tap.has(err, "wrong result")


def mistakes_are_told():
    usage = {
        "bench": "throughput, latency, chunks or streams",
        "bench speed": "may be throughput, latency, chunks, streams",
        "bench latency copy x": "unexpected argument 'x'",
        "bench latency sha256": "may be copy, saxpy, iterate",
        "bench latency nope": "may be copy, saxpy, iterate",
        "bench latency --rate 0": "--rate 0: expected",
        "bench latency --rate -1": "--rate -1: expected",
        "bench latency --rate nan": "--rate nan: expected",
        "bench latency --rate 1e7": "--rate 1e7: expected",
        "bench latency --rate 5 --concurrency 2": "give one of them",
        "bench latency --concurrency 0": "1 to 64",
        "bench latency --concurrency 65": "1 to 64",
        "bench latency --concurrency 2x": "1 to 64",
        "bench latency --duration 0": "--duration 0: expected",
        "bench latency --duration 0s": "--duration 0s: expected",
        "bench latency --duration 5": "with its unit",
        "bench latency --duration 2h": "up to 1h",
        "bench latency --warmup x": "--warmup x: expected",
        "bench latency --distribution poisson": "give a --rate",
        "bench latency --rate 5 --distribution normal": "may be constant, poisson",
        "bench latency --size 0": "--size 0: expected",
        "bench latency --size 17M": "up to 16M",
        "bench latency saxpy --size 10": "elements of 4 bytes",
        "bench latency -p size=4": "copy needs no parameter",
        "bench latency saxpy -p b=4": "a=VALUE",
        "bench latency iterate -p n=100001": "from 0 to 100000",
        "bench latency --format xml": "may be text, json, hgrm",
        "bench latency --json --format hgrm": "--json and another",
        "bench chunks --format hgrm": "use throughput or latency",
        "bench chunks --rate 5": "use throughput or latency",
        "bench chunks --size 64K": "goes through all of them",
        "bench streams --concurrency 2": "goes through all of them",
        "bench throughput --size 16M --concurrency 64": "lower --concurrency or --size",
        "bench latency --priority high": "may be normal, urgent, bulk",
        "bench latency --require tpu": "may be any, gpu, cpu",
        "bench latency --sideways": "unknown",
    }
    with Daemon() as daemon:
        for line, message in usage.items():
            out, err = daemon.run(*line.split(), code=2)
            tap.equal(out, "")
            tap.has(err, message)
        tap.has(daemon.run("bench", "latency", "--require", "gpu", code=1)[1], "NO_DEVICE")
        tap.has(daemon.run("bench", "latency", "--device", "cpu7", code=1)[1], "NO_DEVICE")
        tap.has(daemon.run("bench", "latency", "--svg", "no/such/folder", code=1)[1],
                "no/such/folder")
        tap.has(daemon.run("bench", "--help")[0], "--distribution")
        tap.equal(daemon.stat("pushes_total"), 0)


def an_interrupt_prints_what_there_is():
    with Daemon() as daemon:
        for line in ("latency", "latency --rate 300 --distribution poisson", "streams"):
            before = daemon.stat("pushes_total")
            bench = daemon.begin("--json", "bench", *line.split(), "--duration", "1h", "--warmup",
                                 "0", "--svg", "picture.svg")
            tap.wait_until(lambda: daemon.stat("pushes_total") > before + 20, "pushes", PATIENCE_S)
            bench.send_signal(signal.SIGINT)
            out, err = daemon.end(bench, 130)
            result = json.loads(out)
            assert result["interrupted"], out
            check_point(only(result))
            assert only(result)["pushes"] <= daemon.stat("pushes_total") - before
            assert not (daemon.folder / "picture.svg").exists()
            tap.equal(err, "")


def a_daemon_that_goes_away_is_told():
    with Daemon() as daemon:
        before = daemon.stat("pushes_total")
        bench = daemon.begin("bench", "latency", "--duration", "1h")
        tap.wait_until(lambda: daemon.stat("pushes_total") > before + 20, "pushes", PATIENCE_S)
        daemon.process.kill()
        out, err = daemon.end(bench, 69)
        tap.equal(out, "")
        tap.has(err, "gpupipe-cli: ")


tap.main([
    pushes_are_those_that_the_daemon_had,
    what_is_warmed_up_with_is_not_counted,
    a_rate_is_kept_however_long_it_takes,
    poisson_arrivals_are_about_as_many,
    a_stall_is_told_of_in_full,
    more_than_can_be_done_is_given_up,
    chunks_go_from_64_KiB_to_16_MiB,
    streams_go_up_to_the_window,
    a_sweep_ends_where_there_is_no_room,
    pictures_replace_nothing,
    a_percentile_log_can_be_read,
    text_is_a_table,
    a_wrong_byte_is_a_failure,
    mistakes_are_told,
    an_interrupt_prints_what_there_is,
    a_daemon_that_goes_away_is_told,
], deadline_s=580)
