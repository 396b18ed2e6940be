#!/usr/bin/python3
"""The clients that PROTOCOL.md prints, as they stand there, against the real daemon.

Prints TAP.  Usage: protocol_example.py PROTOCOL_MD RING_EXAMPLE GPUPIPED
"""
import hashlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon_socket

LINES_MAX = {"a client": 40, "a client with a ring": 60}
BLOCK = 4096
SIZES = (20 * 2**20 + 1234, 0)  # bytes of the files; the first is many pushes and a short record


def start_daemon(program, folder):
    socket_path = folder / "rpc.sock"
    daemon = subprocess.Popen([program, "--socket", socket_path, "--backend", "cpu"],
                              stderr=subprocess.DEVNULL)
    daemon_socket.connect(daemon, socket_path).close()
    return daemon, socket_path


def is_right(client, socket_path, folder, size):
    data, source = os.urandom(size), folder / "data"
    source.write_bytes(data)
    result = subprocess.run([sys.executable, client, socket_path, source], stdout=subprocess.PIPE)
    wanted = b"".join(hashlib.sha256(data[i:i + BLOCK]).digest()
                      for i in range(0, len(data), BLOCK))
    return result.returncode == 0 and result.stdout == wanted


def verdicts(examples, ring_example, program, folder):
    """(is it as it should be?, what) of everything there is to say about the examples."""
    yield examples["a client with a ring"] == ring_example, "the ring's is the file that it names"
    daemon, socket_path = start_daemon(program, folder)
    try:
        for name, example in examples.items():
            n_lines = len(example.splitlines())
            yield n_lines <= LINES_MAX[name], f"{name}: {n_lines} lines of {LINES_MAX[name]}"
            client = folder / "client.py"
            client.write_text(example)
            for size in SIZES:
                yield (is_right(client, socket_path, folder, size),
                       f"{name}: its hashes of {size} bytes are those of hashlib")
    finally:
        daemon.terminate()
        daemon.wait()


def main():
    if importlib.util.find_spec("msgpack") is None:
        print("1..0 # SKIP this Python has no msgpack")
        return False
    protocol, ring_example = (pathlib.Path(path).read_text() for path in sys.argv[1:3])
    printed = re.findall(r"^```python\n(.*?)^```$", protocol, re.M | re.S)
    examples = dict(zip(LINES_MAX, printed, strict=True))
    n_failed = number = 0
    with tempfile.TemporaryDirectory() as name:
        for is_good, what in verdicts(examples, ring_example, sys.argv[3], pathlib.Path(name)):
            number += 1
            n_failed += not is_good
            print("ok" if is_good else "not ok", f"{number} - {what}")
    print(f"1..{number}")
    return n_failed > 0


sys.exit(main())
