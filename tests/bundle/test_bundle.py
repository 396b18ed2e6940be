#!/usr/bin/python3
"""The bundle, unpacked from its tarball at another place: it works there without what it was made
from, and its runner tells the truth.

Usage: test_bundle.py MAKE_BUNDLE SOURCE_ROOT BUILD_ROOT VERSION EXECUTABLE...
"""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "systemd")]
import daemon_socket
import tap

MAKE_BUNDLE, SOURCE_ROOT, BUILD_ROOT, VERSION, *EXECUTABLES = sys.argv[1:]
SIZE_MAX = 40 * 2**20
SYSTEM_LIBRARIES = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread))\.so.*")
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
HAS_CUDA = "gpupipe-worker-cuda" in map(os.path.basename, EXECUTABLES)
SUITES = {"gpu", "integration", "ops", "unit"}
STAYING = {"protocol_doc"}  # it reads the sources
STAYING |= {"job_admit", "job_answer", "job_queue", "ring_open"}  # all of the front end is in each
if HAS_CUDA:
    # They have no use for a GPU, and are large.
    STAYING |= {"cuda_beside", "cuda_calibrate", "cuda_copies", "cuda_pipeline", "cuda_tables"}
BLOCK = 4096

folder = tempfile.TemporaryDirectory()
bundle = None  # where it was unpacked
tarball = None


def run(*command, **options):
    """The output of a command that ends well, with as good as no environment."""
    options = {"check": True, "env": ENVIRONMENT, "cwd": folder.name, **options}
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, **options).stdout


def programs():
    for path in sorted(bundle.rglob("*")):
        if path.is_file() and path.parent.name != "lib" and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def it_is_made_and_unpacked_elsewhere():
    global bundle, tarball
    made = pathlib.Path(folder.name, "made")
    subprocess.run([sys.executable, MAKE_BUNDLE, "--tarball", folder.name, SOURCE_ROOT, BUILD_ROOT,
                    VERSION, made, *EXECUTABLES], check=True, stdout=subprocess.DEVNULL)
    (tarball,) = pathlib.Path(folder.name).glob(f"gpupipe-{VERSION}-linux-*.tar.xz")
    elsewhere = pathlib.Path(folder.name, "another place")
    elsewhere.mkdir()
    run("tar", "-xf", tarball, "-C", elsewhere)
    made.rename(made.with_name("gone"))
    (bundle,) = elsewhere.iterdir()
    tap.equal(bundle.name, tarball.name.removesuffix(".tar.xz"))
    for name in ("LICENSE", "README.md", "proto/PROTOCOL.md", "run-gpu-tests", "tests/plan"):
        tap.equal((name, (bundle / name).is_file()), (name, True))


def it_is_small():
    size = sum(path.stat().st_size for path in bundle.rglob("*"))
    print(f"# {size / 2**20:.1f} MiB, packed {tarball.stat().st_size / 2**20:.1f} MiB")
    tap.equal((size <= SIZE_MAX, tarball.stat().st_size <= SIZE_MAX), (True, True))


def every_test_is_in_it():
    tests = json.loads(pathlib.Path(BUILD_ROOT, "meson-info/intro-tests.json").read_text())
    wanted = {test["name"] for test in tests
              if SUITES & {suite.split(":")[-1] for suite in test["suite"]}}
    planned = re.findall(r"^(?:plan|alone) (\w+)/(\S+) ", (bundle / "tests/plan").read_text(), re.M)
    tap.equal(wanted - {name for suite, name in planned}, STAYING)
    for name in ("backends", "faults", "no_gpu", "worker_faults"):
        tap.equal((name, ("gpu", name) in planned), (name, HAS_CUDA))


def the_faulty_worker_is_for_its_own_daemon_alone():
    workers = {str(path.parent.relative_to(bundle)): b"endless" in path.read_bytes()
               for path in bundle.rglob("gpupipe-worker-cuda")}
    tap.equal(workers, {"libexec/gpupipe": False, "tests/gpu": True} if HAS_CUDA else {})
    beside = [(bundle / "tests/gpu" / name).exists() for name in ("gpupiped", "gpupipe-worker-cpu")]
    tap.equal(beside, [HAS_CUDA, HAS_CUDA])


def every_library_is_in_it_or_the_systems():
    for program in programs():
        listed = run("ldd", program)
        found = dict(re.findall(r"^\s*(\S+)(?: => (.+))? \(0x", listed, re.M))
        strange = {name: path for name, path in found.items()
                   if not SYSTEM_LIBRARIES.fullmatch(pathlib.Path(name).name)
                   and not path.startswith(f"{bundle}/")}
        tap.equal((program.name, strange), (program.name, {}))


def every_program_and_module_is_in_it():
    for place in re.findall(r'"\$here"/(\S+)', (bundle / "tests/plan").read_text()):
        tap.equal((place, (bundle / place).exists()), (place, True))
    for test in sorted(bundle.rglob("*.py")):
        for name in re.findall(r"^import (\w+)$", test.read_text(), re.M):
            missing = [str(module) for module in TESTS.rglob(f"{name}.py")
                       if not (bundle / "tests" / module.relative_to(TESTS)).is_file()]
            tap.equal((test.name, missing), (test.name, []))


def a_worker_needs_only_the_c_library():
    for worker in (bundle / "libexec/gpupipe").iterdir():
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", worker))
        strange = [name for name in needed if not SYSTEM_LIBRARIES.fullmatch(name)]
        tap.equal((worker.name, strange), (worker.name, []))


def nothing_leads_back_to_the_build():
    development = (bundle / "lib/libgpupipe.so", bundle / "lib/pkgconfig/gpupipe.pc")
    for path in (*programs(), *development, bundle / "tests/plan"):
        is_there = any(os.fsencode(root) in path.read_bytes() for root in (SOURCE_ROOT, BUILD_ROOT))
        tap.equal((path.name, is_there), (path.name, False))


def programs_say_what_they_are():
    tap.has(run(bundle / "bin/gpupiped", "--version"), VERSION)
    tap.has(run(bundle / "bin/gpupipe-cli", "version"), VERSION)
    tap.has(run(bundle / "libexec/gpupipe/gpupipe-worker-cpu", "--probe"), "chunk_size=")


@contextlib.contextmanager
def running_daemon():
    """Its process, and the path of its socket."""
    place = pathlib.Path(tempfile.mkdtemp(dir=folder.name))
    with open(place / "log", "w") as log:
        daemon = subprocess.Popen([bundle / "bin/gpupiped", "--socket", place / "socket",
                                   "--backend", "cpu", "--pinned-pool", "64M"], env={}, stderr=log)
    try:
        daemon_socket.connect(daemon, place / "socket").close()
        yield daemon, place / "socket"
    finally:
        daemon.terminate()
        code = daemon.wait()
        print("#", "\n# ".join((place / "log").read_text().splitlines()))
    tap.equal(code, 0)


def hashes_of(data):
    return [hashlib.sha256(data[i:i + BLOCK]) for i in range(0, len(data), BLOCK)]


def the_daemon_works_there():
    place = pathlib.Path(folder.name, "daemon")
    place.mkdir()
    data = os.urandom(3_000_001)
    (place / "data").write_bytes(data)
    with running_daemon() as (daemon, socket):
        run(bundle / "bin/gpupipe-cli", "--socket", socket, "run", "sha256", "-p",
            f"block={BLOCK}", "--tail", "short", "-i", place / "data", "-o", place / "hashes")
        children = pathlib.Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
        running = {os.readlink(f"/proc/{child}/exe") for child in children.split()}
    tap.has(running, str(bundle / "libexec/gpupipe/gpupipe-worker-cpu"))
    wanted = b"".join(each.digest() for each in hashes_of(data))
    tap.equal((place / "hashes").read_bytes() == wanted, True)


def a_program_is_built_with_what_is_in_it():
    if not all(map(shutil.which, ("cc", "pkg-config"))):
        raise tap.Skip("there is no compiler, or no pkg-config")
    place = pathlib.Path(tempfile.mkdtemp(dir=folder.name))
    data = os.urandom(100_001)
    (place / "data").write_bytes(data)
    environment = {**ENVIRONMENT, "PKG_CONFIG_LIBDIR": bundle / "lib/pkgconfig"}
    flags = run("pkg-config", "--cflags", "--libs", "gpupipe", env=environment)
    run("cc", bundle / "client/examples/blocking.c", "-o", place / "program", *shlex.split(flags))
    with running_daemon() as (daemon, socket):
        said = run(place / "program", place / "data",
                   env={"GPUPIPE_SOCKET": socket, "LD_LIBRARY_PATH": bundle / "lib"})
    tap.equal(said.split(), [each.hexdigest() for each in hashes_of(data)])


def the_readmes_commands_work():
    readme = pathlib.Path(SOURCE_ROOT, "README.md").read_text()
    (commands,) = re.findall(r"^## Download\n.*?^```sh\n(.*?)^```$", readme, re.M | re.S)
    place = tempfile.mkdtemp(dir=folder.name)
    shutil.copy(tarball, place)
    commands = commands.replace("/tmp/g.sock", f"{place}/socket").replace("sleep 1", "sleep 5")
    hashes = run("sh", "-ec", commands, cwd=place)
    data = (bundle / "README.md").read_bytes()
    tap.equal(hashes.split(), [each.hexdigest() for each in hashes_of(data)])


# ---- the runner ------------------------------------------------------------------------------

def run_tests(**environment):
    """(last line, exit code, everything) of run-gpu-tests."""
    command = [bundle / "run-gpu-tests", pathlib.Path(folder.name, "logs")]
    done = subprocess.run(command, env={**ENVIRONMENT, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.stdout.splitlines()[-1], done.returncode, done.stdout


def its_tests_pass():
    chosen = ("integration/run", "integration/worker_steered", "ops/sha256", "unit/scheduler",
              *(["gpu/no_gpu"] if HAS_CUDA else []))
    last, code, said = run_tests(ONLY=" ".join(chosen))
    print("#", "\n# ".join(said.splitlines()))
    tap.equal(code, 0)
    tap.equal(bool(re.fullmatch(r"[1-9]\d+ passed, 0 failed, \d+ skipped", last)), True)
    for name in chosen:
        tap.has(said, name)


def fake_plan(**scripts):
    lines = [f"plan fake/{name} 2 SAYS={name} /bin/sh -c '{script}'\n"
             for name, script in scripts.items()]
    (bundle / "tests/plan").write_text("".join(lines))


def whatever_goes_wrong_is_a_failure():
    fake_plan(
        right='echo "ok 1 - $SAYS"',
        skips='echo "ok 1 - one # SKIP for a reason"; echo "ok 2 - another"',
        skips_all='echo "1..0 # SKIP no time"',
        wrong='echo "ok 1 - one"; echo "not ok 2 - another"; exit 1',
        crashes='echo "ok 1 - one"; kill -SEGV $$',
        silent="exit 0",
        hangs='echo "ok 1 - one"; sleep 1000',
        lacking="no-such-program")
    last, code, said = run_tests(ONLY="fake/*")
    # right 1, skips 1, wrong 1, crashes 1, hangs 1; wrong, crashes, silent, hangs, lacking
    tap.equal((code, re.sub(r"\d+ skipped", "", last)), (1, "5 passed, 5 failed, "))
    tap.has(said, "for a reason")
    tap.has(said, "not ok 2 - another")


def what_has_no_time_left_is_a_failure():
    fake_plan(one='echo "ok 1 - one"', other='echo "ok 1 - other"')
    last, code, said = run_tests(ONLY="fake/*", SECONDS_MAX="0")
    tap.equal((code, re.sub(r"\d+ skipped", "", last)), (1, "0 passed, 2 failed, "))
    tap.has(said, "no time left")


def what_runs_alone_has_no_neighbour():
    taken = pathlib.Path(folder.name, "taken")
    script = f'mkdir "{taken}" && sleep 0.2 && rmdir "{taken}" && echo "ok 1 - $SAYS"'
    fake_plan(one=script, two=script, three=script)
    plan = (bundle / "tests/plan").read_text()
    (bundle / "tests/plan").write_text(plan.replace("plan fake/two", "alone fake/two"))
    last, code, said = run_tests(ONLY="fake/*", JOBS="3")
    tap.equal((code, re.sub(r"\d+ skipped", "", last)), (0, "3 passed, 0 failed, "))


def nothing_is_left_running():
    pid_file = pathlib.Path(folder.name, "pid")
    stray = bundle / "bin/stray"
    shutil.copy("/bin/sleep", stray)
    fake_plan(one=f'echo "ok 1 - one"; setsid "{stray}" 1000 & echo $! >"{pid_file}"')
    last, code, said = run_tests(ONLY="fake/*")
    tap.equal((code, re.sub(r"\d+ skipped", "", last)), (1, "1 passed, 1 failed, "))
    tap.has(said, "left running")
    tap.wait_until(lambda: not is_running(int(pid_file.read_text())), "the stray's end")


def is_running(pid):
    try:
        return os.path.exists(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def it_takes_its_tests_with_it():
    pid_file = pathlib.Path(folder.name, "pid")
    for how in ("terminate", "kill"):
        pid_file.unlink(missing_ok=True)
        fake_plan(endless=f'echo $$ >"{pid_file}"; while :; do sleep 0.1; done')
        runner = subprocess.Popen([bundle / "run-gpu-tests", pathlib.Path(folder.name, "logs")],
                                  env={**ENVIRONMENT, "ONLY": "fake/*"}, stdout=subprocess.DEVNULL)
        tap.wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the test")
        getattr(runner, how)()
        runner.wait()
        tap.wait_until(lambda: not is_running(int(pid_file.read_text())), f"its end by {how}")


tap.main([it_is_made_and_unpacked_elsewhere, it_is_small, every_test_is_in_it,
          the_faulty_worker_is_for_its_own_daemon_alone, every_library_is_in_it_or_the_systems,
          every_program_and_module_is_in_it, a_worker_needs_only_the_c_library,
          nothing_leads_back_to_the_build,
          programs_say_what_they_are, the_daemon_works_there,
          a_program_is_built_with_what_is_in_it, the_readmes_commands_work,
          its_tests_pass, whatever_goes_wrong_is_a_failure, what_has_no_time_left_is_a_failure,
          what_runs_alone_has_no_neighbour, nothing_is_left_running, it_takes_its_tests_with_it],
         deadline_s=280)
