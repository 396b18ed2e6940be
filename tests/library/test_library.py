#!/usr/bin/python3
"""libgpupipe as it is built and installed: what it needs, what it gives away, and that programs of
several languages compile and run with it.

Usage: test_library.py MESON SOURCE_ROOT BUILD_ROOT PREFIX SANITIZERS GPUPIPED
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "systemd")]
import daemon_socket
import tap

MESON, SOURCE_ROOT, BUILD_ROOT, PREFIX, SANITIZERS, GPUPIPED = sys.argv[1:]
CLIENT = pathlib.Path(SOURCE_ROOT, "client")
BUILT = pathlib.Path(BUILD_ROOT, "client")
STRICT = ("-Wall", "-Wextra", "-Werror")

folder = tempfile.TemporaryDirectory()
place = pathlib.Path(folder.name)
tree = place / "tree"


def run(*command, **options):
    """The output of a command that ends well."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=place, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}: {done.stdout}")
    return done.stdout


def compilers(*names):
    found = list(filter(shutil.which, names))
    if not found:
        raise tap.Skip(f"none of {', '.join(names)} is installed")
    return found


def without_sanitizers():
    if SANITIZERS != "none":
        raise tap.Skip(f"programs without the {SANITIZERS} sanitizer cannot use this build")


def declared():
    header = (CLIENT / "gpupipe.h").read_text()
    without_comments = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    return set(re.findall(r"\b(gpupipe_\w+)\(", without_comments))


def symbols(*command):
    return {line.split()[-1].split("@")[0] for line in run("nm", *command).splitlines()
            if re.search(r" [TDBRVW] ", line)}


# ---- the header -------------------------------------------------------------------------------

def the_header_stands_alone_in_c():
    for compiler in compilers("gcc", "clang"):
        for standard in ("c99", "c11", "c17"):
            run(compiler, f"-std={standard}", "-pedantic", *STRICT, "-Wc++-compat",
                "-fsyntax-only", "-x", "c", CLIENT / "gpupipe.h")


def the_header_stands_alone_in_cpp():
    for compiler in compilers("g++", "clang++"):
        for standard in ("c++11", "c++20"):
            # As a file's only include: a header compiled itself has warnings of its own.
            (place / "alone.cpp").write_text("#include <gpupipe.h>\n")
            run(compiler, f"-std={standard}", "-pedantic", *STRICT, f"-I{CLIENT}", "-fsyntax-only",
                "alone.cpp")


# ---- the library ------------------------------------------------------------------------------

def it_needs_only_the_c_library():
    without_sanitizers()
    dynamic = run("readelf", "-d", BUILT / "libgpupipe.so")
    tap.equal(re.findall(r"NEEDED.*\[(.*)\]", dynamic), ["libc.so.6"])
    tap.equal(re.findall(r"SONAME.*\[(.*)\]", dynamic), ["libgpupipe.so.0"])
    tap.equal(re.findall(r"R(?:UN)?PATH", dynamic), [])


def it_exports_what_the_header_declares():
    tap.equal(symbols("--dynamic", "--defined-only", BUILT / "libgpupipe.so"), declared())
    tap.equal(symbols("--extern-only", "--defined-only", BUILT / "libgpupipe.a"), declared())
    has_at_least = 20
    tap.equal(len(declared()) >= has_at_least, True)


def two_builds_of_it_can_be_compared():
    """abidiff needs the types of what is exported: those that the header defines."""
    options = json.loads(pathlib.Path(BUILD_ROOT, "meson-info/intro-buildoptions.json").read_text())
    if not next(option["value"] for option in options if option["name"] == "debug"):
        raise tap.Skip("this build has no debug information")
    header = (CLIENT / "gpupipe.h").read_text()
    defined = set(re.findall(r"^(?:struct|enum) (gpupipe_\w+) {", header, re.M))
    tap.equal(len(defined) >= 8, True)
    described = run("readelf", "--debug-dump=info", BUILT / "libgpupipe.so")
    tap.equal((defined | declared()) - set(re.findall(r"DW_AT_name\b.*: (gpupipe_\w+)$", described, re.M)),
              set())
    if shutil.which("abidiff"):
        run("abidiff", "--headers-dir1", CLIENT, "--headers-dir2", CLIENT,
            *2 * [BUILT / "libgpupipe.so"])


# ---- installed --------------------------------------------------------------------------------

def pkg_config_environment():
    """For pkg-config and the loader, as if the tree were the root."""
    (libraries,) = {path.parent for path in tree.rglob("libgpupipe.so")}
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries),
            "PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig"),
            "PKG_CONFIG_SYSROOT_DIR": str(tree)}


def flags(*options):
    return run("pkg-config", *options, "gpupipe", env=pkg_config_environment()).split()


def it_is_installed():
    run(MESON, "install", "--no-rebuild", "--quiet", "-C", BUILD_ROOT,
        env={**os.environ, "DESTDIR": str(tree)})
    header = tree / PREFIX.lstrip("/") / "include/gpupipe.h"
    tap.equal(header.read_text(), (CLIENT / "gpupipe.h").read_text())
    tap.equal([option for option in flags("--libs", "--static") if option.startswith("-l")],
              ["-lgpupipe"])


class Daemon:
    """A private daemon, and what programs need to find it and the library."""

    def __enter__(self):
        socket = place / "socket"
        self.log = open(place / "log", "w")
        self.process = subprocess.Popen([GPUPIPED, "--socket", socket, "--backend", "cpu",
                                         "--pinned-pool", "64M"], stderr=self.log)
        daemon_socket.connect(self.process, socket).close()
        return {**pkg_config_environment(), "GPUPIPE_SOCKET": str(socket)}

    def __exit__(self, *exception):
        self.process.terminate()
        code = self.process.wait()
        self.log.close()
        print("#", "\n# ".join((place / "log").read_text().splitlines()))
        tap.equal(code, 0)


def hashes_of(data):
    return [hashlib.sha256(data[i:i + 4096]).hexdigest() for i in range(0, len(data), 4096)]


def check_blocking(environment):
    data = os.urandom(100_001)
    (place / "data").write_bytes(data)
    tap.equal(run("./program", "data", env=environment).split(), hashes_of(data))


def a_program_in_c_or_cpp_links_and_runs():
    without_sanitizers()
    example = CLIENT / "examples/blocking.c"
    with Daemon() as environment:
        for compiler in compilers("gcc", "clang"):
            run(compiler, "-std=c99", "-pedantic", *STRICT, *flags("--cflags"), example,
                *flags("--libs"), "-o", "program")
            check_blocking(environment)
        for compiler in compilers("g++", "clang++"):
            run(compiler, *STRICT, *flags("--cflags"), "-x", "c++", example, "-x", "none",
                *flags("--libs"), "-o", "program")
            check_blocking(environment)


def a_program_with_the_library_inside_runs():
    without_sanitizers()
    (archive,) = tree.rglob("libgpupipe.a")
    run("cc", *STRICT, *flags("--cflags"), CLIENT / "examples/blocking.c", archive, "-o", "program")
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", "program"))
    tap.equal(needed, ["libc.so.6"])
    with Daemon() as environment:
        check_blocking(environment)


def the_readmes_program_works():
    without_sanitizers()
    readme = pathlib.Path(SOURCE_ROOT, "README.md").read_text()
    section = re.search(r"^## From C\n(.*?)^## ", readme, re.M | re.S).group(1)
    (program,) = re.findall(r"^```c\n(.*?)^```$", section, re.M | re.S)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    (place / "saxpy.c").write_text(program)
    with Daemon() as environment:
        tap.equal(run("sh", "-ec", commands, env=environment), "12.5 25 37.5 50\n")


tap.main([the_header_stands_alone_in_c, the_header_stands_alone_in_cpp, it_needs_only_the_c_library,
          it_exports_what_the_header_declares, two_builds_of_it_can_be_compared, it_is_installed,
          a_program_in_c_or_cpp_links_and_runs, a_program_with_the_library_inside_runs,
          the_readmes_program_works], deadline_s=110)
