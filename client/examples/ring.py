"""The SHA-256 of every 4 KiB block of a file, which is read straight into a ring, hashed there, and
held against hashlib.  The socket carries no data.  Usage: ring.py SOCKET FILE"""
import hashlib
import mmap
import socket
import sys
import msgpack

BLOCK, IN, OUT = 4096, 1 << 20, (1 << 20) // 4096 * 32  # bytes of a push

class Gpupipe:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.unpacker, self.fds, self.events, self.msgid = msgpack.Unpacker(), [], [], 0

    def read(self):
        while (message := next(self.unpacker, None)) is None:
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 3)
            self.unpacker.feed(data or sys.exit("connection lost"))
            self.fds += fds
        return message

    def call(self, method, *params):
        self.msgid += 1
        self.socket.sendall(msgpack.packb([0, self.msgid, method, params]))
        while (message := self.read())[0] != 1:
            self.events.append(message)
        return message[3] if message[2] is None else sys.exit(message[2])

    def event(self):
        _, name, params = self.events.pop(0) if self.events else self.read()
        return (name, *params) if "error" not in params[-1] else sys.exit(params[-1]["error"])

def take_result():
    _, _, seq, _ = daemon.event()
    at, size = seq % window * (IN + OUT), sizes.pop(0)
    hashes = data[at + IN:at + IN + (size + BLOCK - 1) // BLOCK * 32]
    wanted = (hashlib.sha256(data[at + i:at + min(i + BLOCK, size)]) for i in range(0, size, BLOCK))
    assert hashes == b"".join(hash.digest() for hash in wanted)
    sys.stdout.buffer.write(hashes)

daemon, file, sizes, seq = Gpupipe(sys.argv[1]), open(sys.argv[2], "rb"), [], 0
job = daemon.call("job.open", "sha256", {"block": BLOCK}, {"inline": False, "tail": "short"})
job, window = job["job"], job["credit"]
ring = daemon.call("ring.open", window * (IN + OUT))
queues_fd, data_fd, doorbell_fd = daemon.fds
data = memoryview(mmap.mmap(data_fd, ring["size"]))
while size := file.readinto(data[seq % window * (IN + OUT):][:IN]):
    at, out_size = seq % window * (IN + OUT), (size + BLOCK - 1) // BLOCK * 32
    daemon.call("job.push", job, seq, {"out": [[ring["ring"], at + IN, out_size]]},
                [[ring["ring"], at, size]])
    sizes, seq = sizes + [size], seq + 1
    if len(sizes) == window:
        take_result()
while sizes:
    take_result()
daemon.call("job.close", job)
assert daemon.event()[0] == "job.done"
daemon.call("ring.close", ring["ring"])
