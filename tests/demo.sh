#!/bin/bash
# The main job, end to end, on real data: builds gpupipe into build/, starts a daemon of its own,
# runs saxpy on 64 Mi random floats and sha256 on every 4 KiB block of a real file, and checks every
# result with independent tools.
#
#   bash tests/demo.sh [BACKEND]    auto (default), cpu or cuda
#
# Needs 1 GiB in TMPDIR for a while.  Installs what the build needs (see packages.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/packages.sh

backend=${1:-auto}
python=/usr/bin/python3
daemon_pid=""
folder=""

fail() {
    echo "demo: $*" >&2
    [ ! -s "$folder/log" ] || sed 's/^/  | /' "$folder/log" >&2
    exit 1
}

clean_up() {
    [ -z "$daemon_pid" ] || kill "$daemon_pid" 2>/dev/null || true
    [ -z "$folder" ] || rm -rf "$folder"
}

# The programs, with the GPU's worker where this build has one (nvcc was found).
targets() {
    echo daemon/gpupiped client/gpupipe-cli cuda/gpupipe-worker-cpu
    ninja -C build -t targets all | grep -o '^cuda/gpupipe-worker-cuda' || true
}

build() {
    packages_install build demo || exit 1
    mkdir -p build
    { [ -f build/build.ninja ] || meson setup build; } >build/demo.log 2>&1 &&
        ninja -C build $(targets) >>build/demo.log 2>&1 || {
        tail -n 40 build/demo.log
        fail "the build failed; all of it is in build/demo.log"
    }
}

start_daemon() {
    build/daemon/gpupiped --socket "$folder/rpc.sock" --backend "$backend" 2>"$folder/log" &
    daemon_pid=$!
    for _ in $(seq 200); do
        if cli -q ping >"$folder/ping" 2>&1; then
            return
        fi
        kill -0 "$daemon_pid" 2>/dev/null || break
        sleep 0.05
    done
    fail "the daemon did not start"
}

stop_daemon() {
    local code=0

    kill "$daemon_pid"
    wait "$daemon_pid" || code=$?
    daemon_pid=""
    [ "$code" = 0 ] || fail "the daemon ended with exit code $code"
}

cli() {
    build/client/gpupipe-cli --socket "$folder/rpc.sock" "$@"
}

# Say what a run's JSON tells.
report() {
    "$python" - "$1" <<'PYTHON'
import json, sys
run = json.load(open(sys.argv[1]))
total = run["bytes_in"] + run["bytes_out"]
print(f"  {run['op']} on {run['backend']} ({run['device']}): {run['records']} records, "
      f"{run['bytes_in'] / 1e6:.0f} MB in, {run['bytes_out'] / 1e6:.0f} MB out, "
      f"{run['seconds']:.3f} s, {total / run['seconds'] / 1e9:.2f} GB/s")
timing = run["timing"]
stages = (("waiting", "queue_ns"), ("copy in", "in_ns"), ("compute", "compute_ns"),
          ("copy out", "out_ns"))
print(f"  over its {run['pushes']} pushes:",
      ", ".join(f"{name} {timing[key] / 1e6:.1f} ms" for name, key in stages))
PYTHON
}

saxpy() {
    echo "saxpy: 64 Mi random floats"
    "$python" - "$folder" <<'PYTHON'
import sys
import numpy
random = numpy.random.default_rng()
for name in "xy":
    random.standard_normal(64 << 20, dtype=numpy.float32).tofile(f"{sys.argv[1]}/{name}")
PYTHON
    cli --json run saxpy -p a=2.5 -i x="$folder/x" -i y="$folder/y" -o "$folder/out" --timing \
        >"$folder/run.json"
    report "$folder/run.json"
    "$python" - "$folder" <<'PYTHON' || fail "saxpy is wrong"
import sys
import numpy
x, y, out = (numpy.fromfile(f"{sys.argv[1]}/{name}", dtype=numpy.float32)
             for name in ("x", "y", "out"))
x *= numpy.float32(2.5)
x += y
if out.shape != x.shape:
    sys.exit(f"{out.size} values instead of {x.size}")
wrong = numpy.count_nonzero(out.view(numpy.uint32) != x.view(numpy.uint32))
if wrong:
    sys.exit(f"{wrong} of {x.size} values differ from numpy's")
print(f"  checked: all {x.size} values have the same bits as numpy's")
PYTHON
    rm "$folder/x" "$folder/y" "$folder/out"
}

sha256() {
    echo "sha256: every 4 KiB block of a real file"
    # This machine's own programs, cut to a size that leaves a short last block.
    tar -C / -cf - usr/lib usr/bin 2>/dev/null | head -c 70000001 >"$folder/file" || true
    [ "$(stat -c %s "$folder/file")" = 70000001 ] || fail "less than 70 MB in /usr/lib and /usr/bin"
    cli --json run sha256 -p block=4096 --tail short -i "$folder/file" -o "$folder/hashes" \
        --timing >"$folder/run.json"
    report "$folder/run.json"
    "$python" - "$folder" <<'PYTHON' || fail "sha256 is wrong"
import hashlib
import os
import random
import subprocess
import sys

folder = sys.argv[1]
data = open(f"{folder}/file", "rb").read()
hashes = open(f"{folder}/hashes", "rb").read()
blocks = [data[at:at + 4096] for at in range(0, len(data), 4096)]
got = [hashes[at:at + 32].hex() for at in range(0, len(hashes), 32)]
if len(got) != len(blocks) or len(hashes) % 32 != 0:
    sys.exit(f"{len(hashes)} bytes of hashes for {len(blocks)} blocks")
wrong = [i for i, block in enumerate(blocks) if hashlib.sha256(block).hexdigest() != got[i]]
if wrong:
    sys.exit(f"{len(wrong)} of {len(blocks)} blocks differ from hashlib's, the first is {wrong[0]}")

os.mkdir(f"{folder}/blocks")
chosen = random.sample(range(len(blocks) - 1), 256) + [len(blocks) - 1]
for i in chosen:
    with open(f"{folder}/blocks/{i}", "wb") as file:
        file.write(blocks[i])
lines = subprocess.run(["sha256sum", *map(str, chosen)], cwd=f"{folder}/blocks", check=True,
                       capture_output=True, text=True).stdout.splitlines()
for line in lines:
    digest, name = line.split()
    if got[int(name)] != digest:
        sys.exit(f"block {name} differs from sha256sum's")
print(f"  checked: all {len(blocks)} blocks with hashlib; {len(lines) - 1} random ones and the "
      f"last, of {len(blocks[-1])} bytes, with sha256sum")
PYTHON
}

trap clean_up EXIT
build
folder=$(mktemp -d)
start_daemon
cli status | sed -n '/^backend/p'
saxpy
sha256
stop_daemon
echo "The main job works: every result is right."
