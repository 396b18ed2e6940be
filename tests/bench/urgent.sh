#!/bin/bash
# What urgent work is to reach, from one run within nine minutes: tables and JSON into a folder, and
# in the end one line for each row: what, figure, bound, whether it was reached, and the command.
#
#   bash tests/bench/urgent.sh BUILD OUT
#
# BUILD is a build folder, or the unpacked bundle.  Where there is no GPU the CPU backend is measured,
# with bounds of its own, for two CPUs that have nothing else to do, and rivals are left out; "-" is
# what was not measured.  Last line: N passed, N failed, N skipped: of the benchmarks, not of the
# bounds; failed is what gave a wrong byte or did not end in time.
#
#   RUN=1500     milliseconds of each run of bench_urgent
#   ROUNDS=5     its rounds
#   DURATION=15  seconds of either load of bench_overload (60 takes 90 s more)
set -uo pipefail

# Each has a limit of its own, well above what it takes, so that one that hangs leaves the others
# their time; whatever becomes of them, limit_s ends it all.
limit_s=525
. "$(dirname "$0")/reach.sh"

run urgent 280 --backend $backend --run "${RUN:-1500}" --rounds "${ROUNDS:-5}"
run small 60 --backend $backend
run overload $((50 + 2 * ${DURATION:-15})) --backend $backend --duration "${DURATION:-15}"
run latency 60 --backend $backend --shots 0
run after 30 --backend $backend
run fair 45 --backend $backend
run gpus 60 --backend $backend

head_of_table
row urgent "4 KiB in a ring beside bulk, p99, us" "4 KiB beside bulk: p99"
row urgent "... against a mapped kernel in one process, beside its bulk" "4 KiB against mapped in one process"
row urgent "64 KiB likewise" "64 KiB against mapped in one process"
[ $backend = cuda ] || row urgent "64 KiB in a ring beside bulk, p99, us" "64 KiB beside bulk: p99"
row urgent "4 KiB: above that of urgent alone, us" "likewise, above that of urgent alone"
row urgent "... against the same under MPS with a mapped kernel" "4 KiB against mapped under MPS"
row urgent "bulk kept at 1,000 urgent jobs a second" "bulk kept at 1000 a second"
row urgent "... at 20,000" "bulk kept at 20000 a second"
row urgent "4 KiB beside kernels that fill the device for long, p99, us" "4 KiB beside iterate: p99"
row urgent "... bulk kept" "iterate kept at 1000 a second"
row urgent "own process, mapped, beside three bulk processes: times p99" "own process, mapped, against 4 KiB"
row urgent "... with copies" "own process, copies, against 4 KiB"
row urgent "the same under MPS with copies: times p99" "MPS, copies, against 4 KiB"
row urgent "priority streams alone, 8 chunks of 64 MiB queued: times p99" "8 x 64 MiB queued against 4 KiB"
row urgent "... 16 chunks" "16 x 64 MiB queued against 4 KiB"
row urgent "beside 8 inline bulk clients, against without them" "beside inline bulk against without"
if [ $backend = cuda ]; then
    row latency "4 KiB, back to back, idle: p50 against copy, kernel, copy, event" "back to back: ring against direct, events" 0.85
    row latency "... against a mapped kernel" "back to back: ring against direct, mapped" 1.2
else
    # Two CPUs that are woken one after the other, there and back: 240 to 570 times on quiet ones.
    row latency "4 KiB, back to back, idle: p50 against a function call" "back to back: ring against in this process" 1000
fi
row after "a chain of 8 jobs of 4 KiB in a ring: times as fast as by answers" "8 jobs: after against answers"
row small "1 KiB jobs a second, every byte touched, against copies one by one" "touched against one by one, copies"
row small "... against a mapped kernel one by one" "touched against one by one, mapped"
row small "... data untouched, against copies one by one" "untouched against one by one, copies"
row small "... data untouched, against a mapped kernel one by one" "untouched against one by one, mapped"
row small "... eight clients together, touched, against one" "together against touched"
row gpus "two GPUs, bulk, one client for each, against direct processes" "a client for each against direct"
row gpus "... one client for both" "a client for both against direct"
row overload "130 % of bulk offered: goodput of the capacity" "goodput of the capacity"
row overload "... urgent p99 against that at 70 %" "urgent p99 against that at 70 %"
row overload "... memory of the front end against that at 70 %" "memory of the front end"
row overload "... memory of the worker" "memory of the worker"
row fair "two users, 1 and 50 processes: device time, off from equal by" "one process against many: off by"
row fair "... device time of both in a second" "busy: one process against many"
row fair "... a hog with kernels five times as long, and another user" "a hog against short kernels: off by"
row fair "... device time of both in a second" "busy: a hog against short kernels"
end_of_table
