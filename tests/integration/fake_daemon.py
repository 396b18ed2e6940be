#!/usr/bin/python3
"""A daemon that does nothing, well or badly: what the harness must notice.

FAKE_DAEMON in the environment: well, early, exit, file, leak, finding.
"""
import os
import signal
import socket
import sys
import time

fake = os.environ["FAKE_DAEMON"]
path = sys.argv[sys.argv.index("--socket") + 1]
if fake == "early":
    print("cannot start, for a reason", file=sys.stderr)
    sys.exit(3)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
opened = []
while not ended:
    time.sleep(0.02)
    if fake == "leak" and not opened:
        opened = [open("/dev/null") for _ in range(3)]
if fake == "finding":
    print("==1==ERROR: AddressSanitizer: heap-use-after-free", file=sys.stderr)
if fake == "file":
    sys.exit(0)
os.unlink(path)
sys.exit(4 if fake == "exit" else 0)
