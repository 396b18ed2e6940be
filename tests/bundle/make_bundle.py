#!/usr/bin/python3
"""Lay a build out as a folder that runs where it is put: programs, tests, and their libraries.

Usage: make_bundle.py [--tarball FOLDER] SOURCE_ROOT BUILD_ROOT VERSION BUNDLE EXECUTABLE...

BUNDLE is replaced.  What each test needs is taken from Meson's own list of tests: executables and
scripts keep their place below tests/, and tests/plan holds one command for each, as run-gpu-tests
reads it.  Tests of other suites, or of executables that are not named, are left out.  Libraries are
found through the RPATHs that the executables were linked with.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

# What every system has, or must have of its own: the C library, and the driver.
SYSTEM_LIBRARIES = re.compile(r"(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv|cuda)\.so.*)")
SUITES = ("gpu", "integration", "ops", "unit")
DOCUMENTS = ("LICENSE", "README.md", "proto/PROTOCOL.md")
SCRIPTS = ("tests/bench/reach.sh", "tests/bench/rings.sh", "tests/bench/urgent.sh")
MODULES = ("tests/daemon_socket.py", "tests/systemd/tap.py")  # that tests in Python import


def drop_absolute_places(executable):
    """Of its libraries, as a library outside the system's folders brings them: they lead back."""
    listed = subprocess.run(["chrpath", "--list", executable], capture_output=True, text=True)
    places = listed.stdout.strip().partition("PATH=")[2].split(":")
    kept = [place for place in places if not place.startswith("/")]
    if kept != places:
        subprocess.run(["chrpath", "--replace", ":".join(kept), executable], check=True,
                       capture_output=True)


class Bundle:
    def __init__(self, source, build, folder):
        self.source, self.build, self.folder = source, build, folder
        self.executables = []

    def place_of(self, executable):
        """Where an executable of the build lies in the bundle."""
        path = executable.relative_to(self.build)
        if path.parts[0] == "tests":
            return path
        if path.name.startswith("gpupipe-worker-"):
            return pathlib.Path("libexec/gpupipe", path.name)
        if path.name.startswith("libgpupipe.so."):
            return pathlib.Path("lib", re.match(r"libgpupipe\.so\.\d+", path.name)[0])
        return pathlib.Path("bin", path.name)

    def add(self, path, place):
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        return target

    def add_executable(self, executable):
        target = self.add(executable, self.place_of(executable))
        subprocess.run(["strip", target], check=True)
        drop_absolute_places(target)
        self.executables.append(executable)

    def add_libraries(self):
        libraries = {}
        for executable in self.executables:
            libraries.update(libraries_of(executable))
        for name, path in libraries.items():
            self.add(path, pathlib.Path("lib", name))
        for package in sorted(set(filter(None, map(package_of, libraries.values())))):
            self.add(f"/usr/share/doc/{package}/copyright", f"share/licenses/{package}")

    def add_development(self):
        """What programs are built with, against the library among the executables."""
        (library,) = (self.folder / "lib").glob("libgpupipe.so.*")
        library.with_name("libgpupipe.so").symlink_to(library.name)
        self.add(self.source / "client/gpupipe.h", "include/gpupipe.h")
        for example in (self.source / "client/examples").glob("*.[ch]"):
            self.add(example, f"client/examples/{example.name}")
        described = (self.build / "meson-private/gpupipe.pc").read_text()
        places = {"prefix": "${pcfiledir}/../..", "includedir": "${prefix}/include",
                  "libdir": "${prefix}/lib"}
        for name, place in places.items():
            described = re.sub(f"^{name}=.*", f"{name}={place}", described, flags=re.M)
        (self.folder / "lib/pkgconfig").mkdir()
        (self.folder / "lib/pkgconfig/gpupipe.pc").write_text(described)

    def translate(self, text):
        """An argument or a variable's value of a test, as a word for run-gpu-tests."""
        path = pathlib.Path(os.path.normpath(text))
        if path.is_relative_to(self.build):
            return '"$here"/' + quote(str(self.place_of(path)))
        if path.is_relative_to(self.source):
            place = path.relative_to(self.source)
            self.add(path, place)
            return '"$here"/' + quote(str(place))
        return quote(text)

    def plan_line(self, test, suite):
        words = [f"{name}={self.translate(value)}" for name, value in sorted(test["env"].items())]
        words += map(self.translate, test["cmd"])
        how = "plan" if test["is_parallel"] else "alone"
        return " ".join([how, quote(f"{suite}/{test['name']}"), str(test["timeout"]), *words])

    def has(self, test):
        program = pathlib.Path(test["cmd"][0])
        return not program.is_relative_to(self.build) or program in self.executables

    def add_plan(self, tests):
        """The suites in their order, in each what runs alone first, then what takes longest."""
        lines = []
        for suite in SUITES:
            chosen = [test for test in tests if suite_of(test) == suite and self.has(test)]
            chosen.sort(key=lambda test: (test["is_parallel"], -test["priority"], test["name"]))
            lines += [self.plan_line(test, suite) for test in chosen]
        (self.folder / "tests/plan").write_text("\n".join(lines) + "\n")


def absolute(path):
    """Symbolic links as they are: so Meson names its files."""
    return pathlib.Path(os.path.abspath(path))


def quote(text):
    """Shell's quotes, only where they are needed."""
    return text if re.fullmatch(r"[\w./@%+=:,-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def suite_of(test):
    """The first of ours that the test belongs to; Meson puts the project's name before each."""
    names = [name.split(":")[-1] for name in test["suite"]]
    return next((suite for suite in SUITES if suite in names), None)


def libraries_of(executable):
    """{name: path} of all libraries that the loader takes for it, those of the system left out."""
    listed = subprocess.run(["ldd", executable], check=True, capture_output=True, text=True).stdout
    if "not found" in listed:
        sys.exit(f"{executable} lacks libraries:\n{listed}")
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M))
    return {name: path for name, path in found.items() if not SYSTEM_LIBRARIES.fullmatch(name)}


def package_of(library):
    """The Debian package whose license is the library's; None on other systems."""
    real = os.path.realpath(library)
    for path in (real, real.removeprefix("/usr"), f"/usr{real}"):
        if shutil.which("dpkg-query") is not None:
            owner = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True)
            if owner.returncode == 0:
                return owner.stdout.split(":")[0]
    return None


def make_bundle(arguments):
    source, build = absolute(arguments.source_root), absolute(arguments.build_root)
    shutil.rmtree(arguments.bundle, ignore_errors=True)
    bundle = Bundle(source, build, arguments.bundle)
    for executable in arguments.executables:
        bundle.add_executable(absolute(executable))
    bundle.add_libraries()
    bundle.add_development()
    bundle.add_plan(json.loads((build / "meson-info/intro-tests.json").read_text()))
    bundle.add(source / "tests/bundle/run-gpu-tests", "run-gpu-tests")
    for path in (*DOCUMENTS, *MODULES, *SCRIPTS):
        bundle.add(source / path, path)
    bundle.add(source / "client/gpupipe-cli.bash", "share/bash-completion/completions/gpupipe-cli")
    manual = build / "client/gpupipe-cli.1"
    if manual.exists():
        bundle.add(manual, "share/man/man1/gpupipe-cli.1")


def make_tarball(bundle, name, folder):
    path = folder / f"{name}.tar.xz"
    subprocess.run(["tar", "--create", "--xz", "--file", path, "--directory", bundle, "--sort=name",
                    "--owner=0", "--group=0", "--numeric-owner", f"--transform=s,^[.],{name},", "."],
                   check=True, env={**os.environ, "XZ_OPT": "-6 -T0"})
    return path


def mib(size):
    return f"{size / 2**20:.1f} MiB"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tarball", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("source_root", type=pathlib.Path)
    parser.add_argument("build_root", type=pathlib.Path)
    parser.add_argument("version")
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("executables", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    make_bundle(arguments)
    files = [path for path in arguments.bundle.rglob("*") if path.is_file()]
    print(f"{arguments.bundle}: {mib(sum(path.stat().st_size for path in files))}")
    if arguments.tarball is not None:
        name = f"gpupipe-{arguments.version}-linux-{platform.machine()}"
        tarball = make_tarball(arguments.bundle, name, arguments.tarball)
        print(f"{tarball}: {mib(tarball.stat().st_size)}")


main()
