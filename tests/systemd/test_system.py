#!/usr/bin/python3
"""The installed daemon under a real systemd, in a sandbox: a story, told in order.

Usage: test_system.py MESON BUILD_ROOT PREFIX SANITIZERS
"""
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import tap

MESON, BUILD_ROOT, PREFIX, SANITIZERS = sys.argv[1:]
HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 20
STRANGER = 65534
CLIENT = ("/usr/bin/python3", "/sandbox/client.py", "/run/gpupiped/rpc.sock")


class Sandbox:
    def __init__(self, tree):
        # A session of its own: it outlives a kill of this test's group, to tidy up.
        self.process = subprocess.Popen([HERE / "sandbox.sh", tree], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)
        said = self.process.stdout.readline().strip()
        if not said.startswith("ready "):
            self.close()
            if self.process.returncode == 77:
                raise tap.Skip(said)
            raise AssertionError(f"no sandbox: {said} (exit code {self.process.returncode})")
        self.init, self.cgroup = said.split()[1:]

    def command(self, *args, user=None, group=None):
        """The command line out here that runs args in there."""
        line = ["nsenter", f"--target={self.init}", "--mount", "--pid", "--uts", "--ipc", "--net",
                "--cgroup", "--"]
        if user is not None:
            line += ["setpriv", f"--reuid={user}", f"--regid={user}",
                     f"--groups={group}" if group is not None else "--clear-groups"]
        return [*line, *args]

    def run(self, *args, **who):
        return subprocess.run(self.command(*args, **who), capture_output=True, text=True,
                              timeout=LIMIT_S)

    def check(self, *args, **who):
        """The output of a command that must succeed."""
        ended = self.run(*args, **who)
        if ended.returncode != 0:
            raise AssertionError(f"{args}: exit code {ended.returncode}: "
                                 f"{ended.stdout}{ended.stderr}\n{self.journal()}")
        return ended.stdout

    def journal(self):
        return self.run("journalctl", "--no-pager", "--lines=30", "--output=cat").stdout

    def show(self, field, unit="gpupiped.service"):
        return self.check("systemctl", "show", "--value", f"--property={field}", unit).strip()

    def path(self, inside):
        return pathlib.Path(f"/proc/{self.init}/root", inside.lstrip("/"))

    def member(self, what):
        """The command line of a client whose user is a member of the group."""
        group = self.check("getent", "group", "gpupipe").split(":")[2]
        return self.command(*CLIENT, what, user=STRANGER, group=group)

    def hash(self):
        """As a client that may: everything works."""
        ended = subprocess.run(self.member("hash"), capture_output=True, text=True,
                               timeout=LIMIT_S)
        if ended.stdout != "hashed cpu\n":
            raise AssertionError(f"{ended.stdout}{ended.stderr}\n{self.journal()}")

    def processes(self):
        """What runs in the service's cgroup: {name: pid out here}."""
        try:
            pids = pathlib.Path(self.cgroup, "system.slice/gpupiped.service/cgroup.procs")
            return {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): int(pid)
                    for pid in pids.read_text().split()}
        except (FileNotFoundError, ProcessLookupError):
            return {}

    def await_processes(self):
        """Daemon, spawner and worker, once all three run."""
        return tap.wait_until(lambda: len(found := self.processes()) == 3 and found,
                              "daemon, spawner and worker")

    def await_end(self, processes):
        for name, pid in processes.items():
            tap.wait_until(lambda: not is_running(pid), f"the end of {name}")

    def drop_in(self, text):
        """Settings of the service; none takes them back."""
        folder = self.path("/run/systemd/system/gpupiped.service.d")
        if text:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "test.conf").write_text(f"[Service]\n{text}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        self.check("systemctl", "daemon-reload")

    def close(self):
        self.process.stdin.close()
        self.process.wait(LIMIT_S)
        self.process.stdout.close()


sandbox = None


def need_sandbox():
    if sandbox is None:
        raise tap.Skip("there is no sandbox")
    return sandbox


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def is_running(pid):
    """One that nobody has waited for yet does not run either."""
    try:
        return not status_of(pid)["State"].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---- the story ----------------------------------------------------------------------------------


def systemd_boots_with_gpupipe_installed():
    global sandbox

    if SANITIZERS != "none":
        raise tap.Skip(f"the {SANITIZERS} sanitizer does not run under the unit's confinement")
    if PREFIX not in ("/usr", "/usr/local"):
        raise tap.Skip(f"systemd does not look for units below {PREFIX}")
    if os.geteuid() != 0:
        raise tap.Skip("it takes root")
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run([MESON, "install", "--no-rebuild", "--quiet", "-C", BUILD_ROOT],
                       env={**os.environ, "DESTDIR": tree}, check=True, timeout=LIMIT_S)
        pathlib.Path(tree).chmod(0o755)
        shutil.copytree(HERE, f"{tree}/sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        sandbox = Sandbox(tree)


def the_installed_units_are_fit():
    ended = need_sandbox().run("systemd-analyze", "verify", "--man=no", "gpupiped.service",
                               "gpupiped.socket")
    tap.equal(ended.stderr, "")


def the_socket_belongs_to_the_group():
    need_sandbox().check("systemd-sysusers")
    sandbox.check("systemctl", "start", "gpupiped.socket")
    tap.equal(sandbox.check("stat", "--format=%A %U %G", "/run/gpupiped/rpc.sock"),
              "srw-rw---- root gpupipe\n")
    tap.equal(sandbox.show("ActiveState"), "inactive")


def a_member_of_the_group_starts_it():
    need_sandbox().hash()
    tap.equal(sandbox.show("ActiveState"), "active")
    tap.equal(sandbox.show("WatchdogUSec"), "30s")


def another_user_is_refused():
    ended = need_sandbox().run(*CLIENT, "hash", user=STRANGER)
    tap.equal(ended.stdout, "EACCES\n")
    tap.equal(ended.returncode, 3)


def its_status_says_what_computes():
    tap.has(need_sandbox().check("systemctl", "status", "--no-pager", "gpupiped"),
            'Status: "backend cpu, device cpu0')
    tap.has(sandbox.check("journalctl", "--no-pager", "--unit=gpupiped", "--priority=info"),
            "ready: backend cpu")


def all_its_processes_are_confined():
    processes = need_sandbox().await_processes()
    tap.equal(sorted(processes), ["gpupipe-spawner", "gpupipe-worker-", "gpupiped"])
    for pid in processes.values():
        status = status_of(pid)
        # The range that DynamicUser= takes from.
        tap.equal(61184 <= int(status["Uid"].split()[0]) <= 65519, True)
        tap.equal({name: status[name] for name in ("CapBnd", "NoNewPrivs", "Seccomp")},
                  {"CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"})
    # Not the daemon's: a container may lack the capability to lower it.
    score = pathlib.Path(f"/proc/{processes['gpupipe-worker-']}/oom_score_adj").read_text()
    tap.equal(score, "500\n")


def a_killed_worker_is_replaced():
    before = need_sandbox().await_processes()
    status = sandbox.show("StatusText")
    os.kill(before["gpupipe-worker-"], signal.SIGKILL)
    # Once the next one starts, the daemon has noticed: work sent before that may be DEVICE_LOST.
    tap.wait_until(lambda: sandbox.processes().get("gpupipe-worker-", before["gpupipe-worker-"])
                   != before["gpupipe-worker-"], "the next worker")
    sandbox.hash()
    tap.equal(sandbox.await_processes()["gpupiped"], before["gpupiped"])
    tap.equal(sandbox.show("StatusText"), status)


def a_killed_daemon_leaves_no_worker_and_is_restarted():
    before = need_sandbox().await_processes()
    os.kill(before["gpupiped"], signal.SIGKILL)
    sandbox.await_end(before)
    sandbox.hash()
    tap.equal(sandbox.show("NRestarts"), "1")


def a_daemon_that_lost_its_spawner_is_restarted():
    before = need_sandbox().await_processes()
    os.kill(before["gpupipe-spawner"], signal.SIGKILL)
    sandbox.await_end({"spawner": before["gpupipe-spawner"]})
    os.kill(before["gpupipe-worker-"], signal.SIGKILL)
    sandbox.await_end(before)
    sandbox.hash()


def the_watchdog_restarts_a_daemon_that_hangs():
    need_sandbox().drop_in("WatchdogSec=2")
    sandbox.check("systemctl", "restart", "gpupiped")
    before = sandbox.await_processes()
    os.kill(before["gpupiped"], signal.SIGSTOP)
    sandbox.await_end(before)
    sandbox.hash()
    tap.has(sandbox.journal(), "Watchdog timeout")
    sandbox.drop_in(None)


def stopping_lets_work_in_flight_finish():
    need_sandbox().check("systemctl", "restart", "gpupiped")
    before = sandbox.await_processes()
    client = subprocess.Popen(sandbox.member("hold"), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        tap.equal(client.stdout.readline(), "pushed\n")
        sandbox.check("systemctl", "stop", "--no-block", "gpupiped")
        tap.wait_until(lambda: sandbox.show("StatusText") == "draining", "STATUS=draining")
        tap.equal(sandbox.show("ActiveState"), "deactivating")
        tap.equal(client.communicate("\n", LIMIT_S)[0], "received 4\n")
    finally:
        client.kill()
        client.wait()
    sandbox.await_end(before)
    tap.wait_until(lambda: sandbox.show("ActiveState") == "inactive", "the end of the service")
    tap.equal([sandbox.show(field) for field in ("Result", "ExecMainStatus")], ["success", "0"])


def the_next_client_starts_it_again():
    need_sandbox().hash()


def ten_quick_restarts_trip_no_limit():
    need_sandbox()
    for _ in range(10):
        sandbox.check("systemctl", "restart", "gpupiped")
    sandbox.hash()
    tap.equal(sandbox.show("ActiveState", "gpupiped.socket"), "active")


def wrong_options_are_not_tried_again():
    program = need_sandbox().show("ExecStart").split("path=")[1].split()[0]
    sandbox.check("systemctl", "stop", "gpupiped.socket", "gpupiped.service")
    sandbox.drop_in(f"ExecStart=\nExecStart={program} --no-such-option")
    tap.equal(sandbox.run("systemctl", "start", "gpupiped").returncode, 1)
    tap.equal([sandbox.show(field) for field in ("ActiveState", "NRestarts")], ["failed", "0"])
    tap.has(sandbox.journal(), "no-such-option")


def nothing_is_left_behind():
    global sandbox

    gone = need_sandbox()
    sandbox = None
    gone.close()
    tap.equal(gone.process.returncode, 0)
    trace = f"gpupipe-test-{gone.process.pid}"
    tap.equal(os.path.exists(f"/proc/{gone.init}"), False)
    tap.equal(os.path.exists(gone.cgroup), False)
    tap.equal(glob.glob(f"{tempfile.gettempdir()}/{trace}-*"), [])
    tap.equal(trace in pathlib.Path("/proc/self/mounts").read_text(), False)


try:
    exit_code = tap.run([
        systemd_boots_with_gpupipe_installed,
        the_installed_units_are_fit,
        the_socket_belongs_to_the_group,
        a_member_of_the_group_starts_it,
        another_user_is_refused,
        its_status_says_what_computes,
        all_its_processes_are_confined,
        a_killed_worker_is_replaced,
        a_killed_daemon_leaves_no_worker_and_is_restarted,
        a_daemon_that_lost_its_spawner_is_restarted,
        the_watchdog_restarts_a_daemon_that_hangs,
        stopping_lets_work_in_flight_finish,
        the_next_client_starts_it_again,
        ten_quick_restarts_trip_no_limit,
        wrong_options_are_not_tried_again,
        nothing_is_left_behind,
    ], deadline_s=100)
finally:
    if sandbox is not None:
        sandbox.close()
sys.exit(exit_code)
