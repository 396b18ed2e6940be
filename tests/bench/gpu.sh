#!/bin/bash
# All benchmarks of the GPU, one after the other, within six minutes: tables and JSON into a folder.
#
#   bash tests/bench/gpu.sh BUILD OUT
#
# BUILD is a build folder, or any other with daemon/, cuda/ and tests/bench/ of one in it.  Last
# line: N passed, N failed, N skipped.  Failed is what gave a wrong byte or did not end in time; a
# claim that was not reached is a figure, and listed above that line.
set -uo pipefail

build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
export GPUPIPE_WORKER=$build/cuda/gpupipe-worker-cuda

limit_s=360
n_passed=0
n_failed=0
n_skipped=0

run() { # NAME SECONDS [ARGUMENT...]
    local name=$1 most_s=$2 left_s=$((limit_s - SECONDS)) start_s=$SECONDS status

    shift 2
    echo "==== $name"
    if [ "$left_s" -lt 5 ]; then
        echo "no time is left"
        n_failed=$((n_failed + 1))
        return
    fi
    timeout -k 5 $((left_s < most_s ? left_s : most_s)) "$build/tests/bench/bench_$name" "$@" \
        2>&1 | tee "$out/$name.txt"
    status=${PIPESTATUS[0]}
    echo "---- $name: exit status $status after $((SECONDS - start_s)) s"
    case $status in
    0) n_passed=$((n_passed + 1)) ;;
    77) n_skipped=$((n_skipped + 1)) ;;
    *) n_failed=$((n_failed + 1)) ;;
    esac
}

if ! "$GPUPIPE_WORKER" --probe; then
    echo "0 passed, 0 failed, 7 skipped"
    exit 77
fi
run calibrate 30 --json "$out/calibrate.json"
run overlap 60 --json "$out/overlap.json"
run worker 40
run rival 170 --search-rounds 2 --json "$out/rival.json"
run ops 60 --rounds 3 --json "$out/ops.json"
run streams 130 --json "$out/streams.json"
run inline 80 --backend cuda --size 128M --rounds 5 --json "$out/inline.json"

echo "==== claims"
grep -hE ' (yes|no)$' "$out/rival.txt" "$out/streams.txt"
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ]
