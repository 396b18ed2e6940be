#!/usr/bin/python3
"""What systemd itself says of the units.

Usage: test_units.py GPUPIPED SERVICE SOCKET
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tap

# Tenths; what remains is device access, AF_UNIX and the host's root.
EXPOSURE_MOST = 15


def analyze(*args):
    """Runs systemd-analyze on the service as it is installed, but with a daemon that exists."""
    gpupiped, service, socket = map(os.path.abspath, sys.argv[1:])
    if shutil.which("systemd-analyze") is None:
        raise tap.Skip("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder, "gpupiped.service")
        text = pathlib.Path(service).read_text()
        unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={gpupiped}", text))
        shutil.copy(socket, folder)
        return subprocess.run(["systemd-analyze", *args, unit], capture_output=True, text=True,
                              timeout=30)


def systemd_has_nothing_to_say_of_the_units():
    """The socket is read along with the service.  The exit code is 0 for unknown settings too."""
    ended = analyze("verify", "--man=no")
    tap.equal(ended.stderr, "")
    tap.equal(ended.returncode, 0)


def the_service_is_hardly_exposed():
    ended = analyze("security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_MOST}")
    if ended.returncode != 0:
        exposed = [line for line in ended.stdout.splitlines() if not line.startswith("✓")]
        raise AssertionError("\n".join(exposed) + ended.stderr)
    tap.has(ended.stdout, "Overall exposure level")


tap.main([
    systemd_has_nothing_to_say_of_the_units,
    the_service_is_hardly_exposed,
])
