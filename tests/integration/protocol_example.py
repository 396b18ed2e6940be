#!/usr/bin/python3
"""The client that PROTOCOL.md prints, as it stands there, against the real daemon.

Prints TAP.  Usage: protocol_example.py PROTOCOL_MD GPUPIPED
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

LINES_MAX = 40
BLOCK = 4096


def extract(protocol):
    (example,) = re.findall(r"^```python\n(.*?)^```$", protocol, re.M | re.S)
    return example


def start_daemon(program, folder):
    socket_path = folder / "rpc.sock"
    daemon = subprocess.Popen([program, "--socket", socket_path, "--backend", "cpu"],
                              stderr=subprocess.DEVNULL)
    daemon_socket.connect(daemon, socket_path).close()
    return daemon, socket_path


def main():
    if importlib.util.find_spec("msgpack") is None:
        print("1..0 # SKIP this Python has no msgpack")
        return False
    protocol, program = pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]
    example = extract(protocol)
    print("1..2")
    n_lines = len(example.splitlines())
    print("ok" if n_lines <= LINES_MAX else "not ok", f"1 - {n_lines} lines of {LINES_MAX}")

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        client, source = folder / "client.py", folder / "data"
        data = os.urandom(20 * 2**20 + 1234)
        client.write_text(example)
        source.write_bytes(data)
        daemon, socket_path = start_daemon(program, folder)
        try:
            result = subprocess.run([sys.executable, client, socket_path, source],
                                    stdout=subprocess.PIPE)
        finally:
            daemon.terminate()
            daemon.wait()
    wanted = b"".join(hashlib.sha256(data[i:i + BLOCK]).digest()
                      for i in range(0, len(data), BLOCK))
    is_right = result.returncode == 0 and result.stdout == wanted
    print("ok" if is_right else "not ok", "2 - its hashes are those of hashlib")
    return not is_right or n_lines > LINES_MAX


sys.exit(main())
