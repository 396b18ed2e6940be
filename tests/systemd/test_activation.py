#!/usr/bin/python3
"""Socket activation by systemd-socket-activate: the test is the service manager that is notified.

Usage: test_activation.py GPUPIPED
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import tap
from client import hash_blocks

LIMIT_S = 20


class Activation:
    """systemd-socket-activate, which becomes the daemon when the first client connects."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "rpc.sock")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(os.path.join(folder, "notify"))
        self.notify.settimeout(LIMIT_S)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "systemd-socket-activate", "--listen", self.path,
             "--fdname=rpc", f"--setenv=NOTIFY_SOCKET={folder}/notify", sys.argv[1],
             "--backend", "cpu", "--pinned-pool", "64M"], stderr=subprocess.DEVNULL)

    def program(self):
        """Its name's first 15 letters; where it lies is hidden, for the daemon is not dumpable."""
        with open(f"/proc/{self.process.pid}/comm") as comm:
            return comm.read().strip()

    def await_notification(self, line):
        """Returns the whole message that holds this line."""
        while True:
            message = self.notify.recv(4096).decode()
            if line in message.splitlines():
                return message

    def finish(self):
        self.process.kill()
        self.process.wait(LIMIT_S)
        self.notify.close()


def the_first_client_starts_the_daemon():
    if shutil.which("systemd-socket-activate") is None:
        raise tap.Skip("systemd-socket-activate is not installed")
    with tempfile.TemporaryDirectory() as folder:
        activation = Activation(folder)
        try:
            tap.wait_until(lambda: os.path.exists(activation.path), "the socket")
            tap.equal(activation.program(), "systemd-socket-")
            tap.equal(hash_blocks(activation.path), "cpu")
            tap.equal(activation.program(), "gpupiped")
            tap.has(activation.await_notification("READY=1"), "STATUS=backend cpu")

            activation.process.terminate()
            activation.await_notification("STOPPING=1")
            tap.equal(activation.process.wait(LIMIT_S), 0)
            # It is the manager's: later clients start the next daemon through it.
            tap.equal(os.path.exists(activation.path), True)
        finally:
            activation.finish()


tap.main([the_first_client_starts_the_daemon])
