#!/bin/bash
# What rings are to reach, from one run within eight minutes: tables and JSON into a folder, and in
# the end one line for each row: what, figure, bound, whether it was reached, and the command.
#
#   bash tests/bench/rings.sh BUILD OUT
#
# BUILD is a build folder, or the unpacked bundle.  Where there is no GPU the CPU backend is measured,
# as far as that goes; "-" is what was not measured.  Last line: N passed, N failed, N skipped: of the
# benchmarks, not of the bounds; failed is what gave a wrong byte or did not end in time.
#
#   SIZE=1G       of one run of bench_rival
set -uo pipefail

limit_s=470
. "$(dirname "$0")/reach.sh"
size=64M
[ $backend = cpu ] || size=128M

run start 40 --backend $backend
run open 40 --backend $backend
run idle 40 --backend $backend
run clients 60 --backend $backend --size $size
run rings 60 --backend $backend --size $size --rounds 7
run sweep 60 --backend $backend --size $size
run latency 130 --backend $backend
run rival 220 --size "${SIZE:-1G}" --search-rounds 1

# A rival of the CPU backend is a function call, and another of the GPU's.
direct="direct, events"
mapped="direct, mapped"
[ $backend = cuda ] || direct="in this process"

head_of_table
row rival "copy in a ring against the best direct pipeline" "copy: ring against best direct"
row rival "iterate, n=1, likewise" "iterate: ring against best direct"
row rival "copy in a ring against the link with both directions busy" "copy: ring against the link, both ways"
row sweep "default chunks and depth against the best fixed, 64 KiB to 16 MiB" "default against the best fixed"
row rings "ring against the socket, pushes of 1 MiB" "ring against the socket, pushes of 1 MiB"
row latency "4 KiB, back to back: p50 against copy, kernel, copy, event" "back to back: ring against $direct"
row latency "likewise through libgpupipe" "back to back: library against $direct"
row latency "likewise in a ring, against a mapped kernel" "back to back: ring against $mapped"
row latency "4 KiB after 2 s of silence, against the same after it" "after silence: ring against $direct"
row latency "likewise through libgpupipe" "after silence: library against $direct"
row latency "likewise in a ring, against a mapped kernel" "after silence: ring against $mapped"
row open "ring.open of 64 MiB, first of a connection: ms" "rpc, first"
row open "ring.open of 64 MiB, opened again: ms" "rpc, opened again"
row open "open to every page written, first: ms" "library, first"
row open "open to every page written, opened again: ms" "library, opened again"
row rival "CPU seconds of front end, worker and client for each GB" "ring"
row start "gpupipe-cli run of 4 KiB: times as long a fresh CUDA process takes" "an own context against gpupipe-cli"
row clients "8 client processes against one: throughput" "throughput of all clients against one"
row clients "device memory of 8 own contexts to the worker's" "memory of own contexts to the worker's"
row clients "likewise, with the buffers of a pipeline in each" "likewise, with a pipeline in each"
row idle "wake-ups of an idle daemon in 10 s" "wake-ups of an idle daemon"
row idle "of the driver's own threads in it" "wake-ups of the driver's threads"
row idle "of a bare process with an idle CUDA context" "wake-ups of a bare process"
end_of_table
