#!/bin/bash
# Two users of a daemon, one with many programs or with long kernels: what share of the device's
# time has each?  The op takes long enough for any program to keep a device busy.  As root, who can
# be both; within half a minute.
#
#   bash tests/bench/fair.sh BUILD OUT
#
# BUILD is a build folder, or the unpacked bundle.  One line for each case: the first user's device
# time by the second's, and whether it lies within 5 % of 1.  Last line: N passed, N failed, N skipped.
#
#   DURATION=4      seconds of each case that are looked at
#   PROGRAMS=50     of the second user in the first case
set -uo pipefail

limit_s=60
. "$(dirname "$0")/reach.sh"

cli=$(ls "$build"/{client,bin}/gpupipe-cli 2>/dev/null | head -n 1)
daemon=$(ls "$build"/{daemon,bin}/gpupiped 2>/dev/null | head -n 1)
first=60001
second=60002
duration=${DURATION:-4}
n=20000
n_hog=100000
if [ $backend = cpu ]; then
    n=1000
    n_hog=5000
fi

if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null || ! command -v python3 >/dev/null; then
    echo "this takes root, setpriv and python3"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi

folder=$(mktemp -d)
pids=()
stop() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null
    wait
    rm -rf "$folder"
}
trap stop EXIT
chmod 711 "$folder"
"$daemon" --socket "$folder/s" --backend $backend --ring-pool 2G >"$out/daemon.txt" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
    "$cli" --socket "$folder/s" status >/dev/null 2>&1 && break
    sleep 0.1
done
chmod 666 "$folder/s"

programs() { # UID N OP [ARGUMENT...]
    local uid=$1 n=$2 i

    shift 2
    for ((i = 0; i < n; i++)); do
        setpriv --reuid="$uid" --regid="$uid" --clear-groups "$cli" --socket "$folder/s" \
            bench throughput "$@" --priority bulk --duration "$((duration + 4))s" --warmup 0 \
            >>"$out/$uid.txt" 2>&1 &
        clients+=($!)
    done
}

device_ns() { # prints the first user's and the second's
    "$cli" --socket "$folder/s" --json status | python3 -c "
import json, sys
users = {user['uid']: user['device_ns'] for user in json.load(sys.stdin)['queues']['users']}
print(users.get($first, 0), users.get($second, 0))"
}

case_of() { # NAME; all programs have been started
    local before after ratio

    sleep 2
    before=$(device_ns)
    sleep "$duration"
    after=$(device_ns)
    kill "${clients[@]}" 2>/dev/null
    wait "${clients[@]}" 2>/dev/null
    ratio=$(echo "$before $after" | awk '{ print ($4 > $2) ? ($3 - $1) / ($4 - $2) : 0 }')
    if awk "BEGIN { exit !($ratio > 0.95 && $ratio < 1.05) }"; then
        n_passed=$((n_passed + 1))
        printf '%-66s %9.3f yes\n' "$1" "$ratio"
    else
        n_failed=$((n_failed + 1))
        printf '%-66s %9.3f no\n' "$1" "$ratio"
    fi
}

clients=()
programs $first 1 iterate -p n=$n --size 1M --concurrency 8
programs $second "${PROGRAMS:-50}" iterate -p n=$n --size 1M --concurrency 2
case_of "iterate n=$n: one program against ${PROGRAMS:-50}"
clients=()
programs $first 1 iterate -p n=$n_hog --size 1M --concurrency 8
programs $second 1 iterate -p n=$n --size 1M --concurrency 8
case_of "iterate n=$n_hog against n=$n"
end_of_table
