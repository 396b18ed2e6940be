#!/bin/bash
# Build and pass all tests, cheapest first.  Last line: N passed, N failed, N skipped.
#
#   bash tests/check.sh [STAGE...]    stages: format gcc bench asan tsan clang nocuda fuzz
#                                     default: all
#   FUZZ_SECONDS=60                   how long each fuzz target runs
#
# Everything that is needed is installed first (see packages.sh).  Each stage has a build folder of
# its own, kept for the next time; logs are in build*/meson-logs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh

n_passed=0
n_failed=0
n_skipped=0
failed_stages=""

count() { # PASSED FAILED SKIPPED
    n_passed=$((n_passed + $1))
    n_failed=$((n_failed + $2))
    n_skipped=$((n_skipped + $3))
}

# One thing that is right or wrong as a whole: its name, and the command that finds out.
verdict() {
    local name=$1 log

    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        count 1 0 0
    else
        echo "---- $name failed:"
        tail -n 60 "$log"
        count 0 1 0
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

build() { # FOLDER MESON-OPTIONS...
    local folder=$1

    shift
    verdict "configuring $folder" configure "$folder" "$@" &&
        verdict "building $folder" ninja -C "$folder"
}

configure() {
    local folder=$1

    shift
    [ -f "$folder/build.ninja" ] || meson setup --werror "$folder" "$@" || return
    # demo.sh makes build/ as well, for people whose compiler may warn of more.
    grep -q '"werror", "value": true' "$folder/meson-info/intro-buildoptions.json" ||
        meson configure "$folder" -Dwerror=true
}

run_tests() { # FOLDER MESON-TEST-OPTIONS...
    local folder=$1 counts

    shift
    rm -f "$folder/meson-logs/testlog.json"
    meson test -C "$folder" --no-rebuild "$@" >"$folder/meson-logs/console.txt" 2>&1
    if [ ! -s "$folder/meson-logs/testlog.json" ]; then
        echo "---- no test ran in $folder:"
        cat "$folder/meson-logs/console.txt"
        count 0 1 0
        return
    fi
    counts=$(/usr/bin/python3 tests/tally.py "$folder/meson-logs/testlog.json") || counts="0 1 0"
    count $counts
}

# ---- stages -----------------------------------------------------------------------------------

stage_format() {
    find client cuda daemon proto tests -name '*.[ch]' -o -name '*.cu' | sort >build-format.list
    verdict "clang-format" xargs clang-format --dry-run -Werror <build-format.list
    rm -f build-format.list
}

stage_gcc() {
    build build && run_tests build
}

# Figures to look at, and every byte checked; that a machine was busy is no failure.
stage_bench() {
    build build &&
        bench runs --runs 20000 --rounds 3 --latency-runs 100 &&
        bench inline --size 16M --rounds 3
}

bench() { # NAME ARGUMENTS...
    local figures=build/bench_$1.txt

    verdict "bench_$1" figures_of "$figures" build/tests/bench/bench_"$@" && cat "$figures"
}

figures_of() { # FILE COMMAND...
    local file=$1

    shift
    "$@" >"$file"
}

stage_asan() {
    build build-asan -Db_sanitize=address,undefined &&
        run_tests build-asan --timeout-multiplier 3 --suite unit --suite ops --suite integration --suite library
}

stage_tsan() {
    build build-tsan -Db_sanitize=thread &&
        run_tests build-tsan --timeout-multiplier 5 --suite unit --suite ops --suite smoke
}

stage_clang() {
    CC=clang build build-clang && run_tests build-clang --suite unit
}

stage_nocuda() {
    build build-nocuda -Dcuda=disabled && run_tests build-nocuda --suite ops --suite smoke
}

stage_fuzz() {
    local target

    CC=clang build build-fuzz -Dfuzz=true || return
    GPUPIPE_STATE_ROUNDS=$((${FUZZ_SECONDS:-60} * 100)) run_tests build-fuzz state_machine
    for target in build-fuzz/tests/fuzz/fuzz_*; do
        [ -f "$target" ] && [ -x "$target" ] && verdict "$target" fuzz_one "$target"
    done
}

fuzz_one() { # TARGET: starts from its corpus, and leaves it as it is
    local target=$1 name folder

    name=${target##*/fuzz_}
    folder=build-fuzz/found/$name
    mkdir -p "$folder"
    "$target" -max_total_time="${FUZZ_SECONDS:-60}" -max_len=65536 -artifact_prefix="$folder/" \
        "$folder" tests/fuzz/corpus/*
}

# ---- all of them ------------------------------------------------------------------------------

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=second_deadlock_stack=1

packages_install build test || exit 1
for stage in ${*:-format gcc bench asan tsan clang nocuda fuzz}; do
    before=$n_failed
    start=$SECONDS
    "stage_$stage"
    result=ok
    if [ "$n_failed" -gt "$before" ]; then
        result=FAILED
        failed_stages="$failed_stages $stage"
    fi
    printf '%-8s %-6s %4d s\n' "$stage" "$result" $((SECONDS - start))
done
[ -z "$failed_stages" ] || echo "failed stages:$failed_stages"
[ $((n_passed + n_failed)) -gt 0 ] || n_failed=1
echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ]
