"""The way in to a daemon that a test in Python has started."""
import socket
import time

LIMIT_S = 20  # as long as tests/harness.c waits


def connect(process, path):
    """Returns a connection to the daemon, once it listens there.  Its socket file is not enough: it
    appears a moment before the daemon accepts.  A daemon that does not listen in time is killed."""
    end = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            time.sleep(0.01)
    process.kill()
    raise RuntimeError(f"the daemon does not listen at {path}: exit code {process.wait()}")
