#!/usr/bin/python3
"""The strangers' clients that README.md prints, as they stand there, against the real daemon.

Prints TAP.  Usage: readme_examples.py README_MD GPUPIPED GPUPIPE_CLI
"""
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon_socket

SYSTEM_SOCKET = "/run/gpupiped/rpc.sock"
NEOVIM = ["nvim", "--headless", "-u", "NONE", "-i", "NONE"]
ERROR = 'UNKNOWN_OP: no op "sha257"'


def start_daemon(program, folder):
    socket_path = folder / "rpc.sock"
    daemon = subprocess.Popen([program, "--socket", socket_path, "--backend", "cpu"],
                              stderr=subprocess.DEVNULL)
    daemon_socket.connect(daemon, socket_path).close()
    return daemon, socket_path


def run(command):
    """All that it prints; the end of an example that hangs is a failure."""
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
    return process.stdout.decode(errors="replace").replace("\r", "")


def wanted_of(language):
    """Texts that must come, in this order."""
    digest = hashlib.sha256(pathlib.Path("/bin/sh").read_bytes()[:4096]).hexdigest()
    if language == "python":
        return ["cpu", digest]
    if language == "python with a ring":
        return ["ring", "True", digest]
    if language == "lua":
        return ["0.", "copy", "the input, unchanged", "sha256",
                hashlib.sha256(b"some text").hexdigest(), ERROR]
    return ["0.", "'copy'", "'sha256'", "some text", ERROR]


def comes_in_order(wanted, output):
    at = 0
    for text in wanted:
        at = output.find(text, at)
        if at < 0:
            return False
        at += len(text)
    return True


def shell_line_works(readme, cli, folder, socket_path):
    """The one that calls a method: what goes in comes out."""
    (line,) = re.findall(r"^(gpupipe-cli call .*?)  +#", readme, re.M)
    data = os.urandom(100_000)
    (folder / "in").write_bytes(data)
    (folder / "gpupipe-cli").symlink_to(cli)
    environment = os.environ | {"GPUPIPE_SOCKET": str(socket_path),
                                "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(line, shell=True, cwd=folder, env=environment, timeout=30,
                   stdout=subprocess.DEVNULL)
    return (folder / "out").exists() and (folder / "out").read_bytes() == data


def why_not(language):
    if "python" in language and importlib.util.find_spec("msgpack") is None:
        return "this Python has no msgpack"
    if "python" not in language and shutil.which("nvim") is None:
        return "nvim is not installed"
    return None


def examples_of(readme):
    """(language, text) of each."""
    found = {language: re.findall(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S)
             for language in ("python", "lua", "vim")}
    python, with_ring = found["python"]
    return [("python", python), ("python with a ring", with_ring), ("lua", *found["lua"]),
            ("vim", *found["vim"])]


def main():
    readme, program = pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]
    cli = pathlib.Path(sys.argv[3]).absolute()
    n_failed = 0
    print("1..5")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        daemon, socket_path = start_daemon(program, folder)
        try:
            for number, (language, example) in enumerate(examples_of(readme), 1):
                if why_not(language):
                    print(f"ok {number} - {language} # SKIP {why_not(language)}")
                    continue
                file = folder / f"example{number}.{language[:3]}"
                file.write_text(example.replace(SYSTEM_SOCKET, str(socket_path)))
                command = ([sys.executable, file] if "python" in language
                           else NEOVIM + ["-S", file, "+q"])
                output = run(command)
                is_right = comes_in_order(wanted_of(language), output)
                n_failed += not is_right
                print("#", output.replace("\n", "\n# "))
                print("ok" if is_right else "not ok", f"{number} - {language}")
            is_right = shell_line_works(readme, cli, folder, socket_path)
            n_failed += not is_right
            print("ok" if is_right else "not ok", "5 - shell")
        finally:
            daemon.terminate()
            daemon.wait()
    return n_failed


if __name__ == "__main__":
    sys.exit(main() != 0)
