#!/usr/bin/python3
"""A client of gpupiped that shares no code with it, for the tests beside it.

Usage: client.py SOCKET hash   hash random blocks, compare with hashlib, print "hashed BACKEND"
       client.py SOCKET hold   push copies whose results are left unread, print "pushed", wait for a
                               line on standard input, read them and compare, print "received N"
An errno's name is printed where the connection is refused, and the exit code is then 3.
"""
import errno
import hashlib
import os
import socket
import sys
import time

import msgpack

DEADLINE_S = 15


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(path)
        self.unpacker = msgpack.Unpacker(max_buffer_size=64 << 20)
        self.last_id = 0

    def close(self):
        self.socket.close()

    def send(self, method, *params):
        self.last_id += 1
        self.socket.sendall(msgpack.packb([0, self.last_id, method, params]))
        return self.last_id

    def receive(self):
        while True:
            for message in self.unpacker:
                return message
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the daemon hung up")
            self.unpacker.feed(data)

    def call(self, method, *params):
        request = self.send(method, *params)
        while True:
            kind, msgid, error, result = self.receive()
            if kind == 1 and msgid == request:
                if error is not None:
                    raise RuntimeError(f"{method}: {error}")
                return result

    def result(self):
        """The parameters of the next job.result; answers to pushes are passed over."""
        while True:
            message = self.receive()
            if message[0] == 2 and message[1] == "job.result":
                return message[2]
            if message[0] != 1 or message[2] is not None:
                raise RuntimeError(f"no result but {str(message)[:200]}")


def hash_blocks(path):
    """Say hello and hash random blocks; returns the backend that did it."""
    n_blocks, block = 100, 4096
    data = os.urandom(n_blocks * block)
    expected = b"".join(
        hashlib.sha256(data[i:i + block]).digest() for i in range(0, len(data), block))
    client = Client(path)
    client.call("hello", {"program": "systemd-test"})
    result = client.call("run", "sha256", {"block": block}, {}, [data])
    client.close()
    if result["out"] != [expected]:
        raise RuntimeError("the hashes are wrong")
    return result["backend"]


def hold_results(path):
    """More than a socket holds: the daemon has work in flight until they are read."""
    pushes = [os.urandom(2 << 20) for _ in range(4)]
    other = Client(path)
    client = Client(path)
    n_before = other.call("stats")["pushes_total"]
    job = client.call("job.open", "copy", {}, {"window": len(pushes)})["job"]
    for seq, data in enumerate(pushes):
        client.send("job.push", job, seq, {}, [data])
    while other.call("stats")["pushes_total"] < n_before + len(pushes):
        time.sleep(0.01)
    print("pushed", flush=True)
    sys.stdin.readline()
    for seq, data in enumerate(pushes):
        params = client.result()
        if params[:2] != [job, seq] or params[2].get("out") != [data]:
            raise RuntimeError(f"result {seq} is wrong: {str(params)[:200]}")
    print("received", len(pushes))


def main():
    path, what = sys.argv[1:]
    try:
        if what == "hash":
            print("hashed", hash_blocks(path))
        else:
            hold_results(path)
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
