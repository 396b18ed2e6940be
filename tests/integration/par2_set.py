#!/usr/bin/python3
"""rs16 against par2, on a set of files that par2 protects.

The op makes every recovery slice anew, as par2 has it; then, with one file gone, it restores that
file from the others and from recovery slices, and par2 finds the set complete.

Prints TAP.  Usage: par2_set.py GPUPIPED
"""
import array
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import daemon_socket

try:
    import msgpack
except ImportError:
    msgpack = None

SLICE = 16380  # bytes: 8190 words
N_RECOVERY = 29
SIZES = [700_001, 17, SLICE, 12 * SLICE, 300_000, 1]
LOST = 3  # the file to restore, of 12 slices

# ---- the field, and PAR2's constants ------------------------------------------------------------

EXP = [1]
for _ in range(65534):
    EXP.append((EXP[-1] << 1) ^ (0x1100B if EXP[-1] & 0x8000 else 0))
LOG = {x: n for n, x in enumerate(EXP)}
BASES = [n for n in range(65535) if n % 3 and n % 5 and n % 17 and n % 257]  # as powers of 2


def multiply(a, b):
    return EXP[(LOG[a] + LOG[b]) % 65535] if a and b else 0


def coefficient(exponent, number):
    """Of input slice `number` in the recovery slice with this exponent."""
    return EXP[BASES[number] * exponent % 65535]


def eliminate(rows, n):
    """Turn the left n columns of n rows into the unit matrix."""
    for column in range(n):
        pivot = next(k for k in range(column, n) if rows[k][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        inverse = EXP[-LOG[rows[column][column]] % 65535]
        rows[column] = [multiply(inverse, x) for x in rows[column]]
        for k in range(n):
            factor = rows[k][column]
            if k != column and factor:
                rows[k] = [x ^ multiply(factor, y) for x, y in zip(rows[k], rows[column])]


# ---- the set ------------------------------------------------------------------------------------

def packets(data):
    at = 0
    while at < len(data):
        magic, size, _, _, kind = struct.unpack_from("<8sQ16s16s16s", data, at)
        assert magic == b"PAR2\0PKT"
        yield kind.strip(b"\0"), data[at + 64:at + size]
        at += size


def read_set(folder):
    """Names of the files in the order of their slices, and the recovery slices by exponent."""
    names, recovery = {}, {}
    for path in folder.glob("*.par2"):
        for kind, body in packets(path.read_bytes()):
            if kind == b"PAR 2.0\0Main":
                slice_size, n_files = struct.unpack_from("<QI", body)
                order = [body[12 + 16 * k:28 + 16 * k] for k in range(n_files)]
            elif kind == b"PAR 2.0\0FileDesc":
                names[body[:16]] = body[56:].rstrip(b"\0").decode()
            elif kind == b"PAR 2.0\0RecvSlic":
                recovery[struct.unpack_from("<I", body)[0]] = body[4:]
    assert slice_size == SLICE and len(recovery) == N_RECOVERY
    return [names[file_id] for file_id in order], recovery


def slices_of(data):
    return [data[at:at + SLICE].ljust(SLICE, b"\0") for at in range(0, len(data), SLICE)]


# ---- the daemon ---------------------------------------------------------------------------------

class Daemon:
    def __init__(self, program, folder):
        path = folder / "rpc.sock"
        self.process = subprocess.Popen([program, "--socket", path, "--backend", "cpu"],
                                        stderr=subprocess.DEVNULL)
        self.socket = daemon_socket.connect(self.process, path)

    def call(self, method, *params):
        answers = msgpack.Unpacker(max_buffer_size=1 << 27)
        self.socket.sendall(msgpack.packb([0, 1, method, params]))
        while (answer := next(answers, None)) is None:
            answers.feed(self.socket.recv(1 << 20) or sys.exit("Bail out! connection lost"))
        return answer[3] if answer[2] is None else sys.exit(f"Bail out! {answer[2]}")

    def combine(self, matrix, slices):
        """Each row of the matrix times the slices."""
        params = {"k": len(slices), "m": len(matrix), "n": SLICE // 2}
        words = array.array("H", [x for row in matrix for x in row])
        const = self.call("const.put", {}, [words.tobytes()])["const"]
        data = self.call("run", "rs16", params, {"consts": [const]}, [b"".join(slices)])["out"][0]
        self.call("const.drop", const)
        return [data[at:at + SLICE] for at in range(0, len(data), SLICE)]

    def stop(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait()


# ---- the test -----------------------------------------------------------------------------------

def par2(*args, folder):
    return subprocess.run(["par2", *args], cwd=folder, stdout=subprocess.DEVNULL).returncode


def restore(daemon, slices, missing, recovery):
    """The missing slices, from the others and as many recovery slices.

    Recovery slices R are A * missing + B * others, so that the missing ones are
    inverse(A) * R + inverse(A) * B * others: what elimination makes of A | unit | B.
    """
    others = [k for k in range(len(slices)) if k not in missing]
    exponents = sorted(recovery)[-len(missing):]
    rows = [[coefficient(e, k) for k in missing] + [int(e == f) for f in exponents] +
            [coefficient(e, k) for k in others] for e in exponents]
    eliminate(rows, len(missing))
    return daemon.combine([row[len(missing):] for row in rows],
                          [recovery[e] for e in exponents] + [slices[k] for k in others])


def check(daemon, folder):
    for number, size in enumerate(SIZES):
        (folder / f"file{number}").write_bytes(os.urandom(size))
    assert par2("create", f"-s{SLICE}", f"-c{N_RECOVERY}", "set.par2",
                *(f"file{k}" for k in range(len(SIZES))), folder=folder) == 0
    names, recovery = read_set(folder)
    files = [slices_of((folder / name).read_bytes()) for name in names]
    slices = [piece for file in files for piece in file]

    exponents = sorted(recovery)
    matrix = [[coefficient(e, k) for k in range(len(slices))] for e in exponents]
    yield daemon.combine(matrix, slices) == [recovery[e] for e in exponents], \
        f"{N_RECOVERY} recovery slices of {len(slices)} are those of par2"

    lost = names.index(f"file{LOST}")
    first = sum(len(file) for file in files[:lost])
    missing = range(first, first + len(files[lost]))
    (folder / names[lost]).unlink()
    yield par2("verify", "-q", "set.par2", folder=folder) != 0, "par2 misses a file"
    restored = b"".join(restore(daemon, slices, missing, recovery))
    (folder / names[lost]).write_bytes(restored[:SIZES[LOST]])
    yield par2("verify", "-q", "set.par2", folder=folder) == 0, "par2 finds it as it was"


def main():
    if msgpack is None or shutil.which("par2") is None:
        print("1..0 # SKIP par2 or Python's msgpack is not installed")
        return False
    with tempfile.TemporaryDirectory() as name:
        daemon = Daemon(sys.argv[1], pathlib.Path(name))
        try:
            print("1..3")
            results = list(check(daemon, pathlib.Path(name)))
        finally:
            daemon.stop()
    for number, (is_right, what) in enumerate(results, 1):
        print("ok" if is_right else "not ok", number, "-", what)
    return not all(is_right for is_right, _ in results)


sys.exit(main())
