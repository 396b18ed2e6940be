# Reach: what scripts over several benchmarks share, to be sourced with BUILD and OUT as $1 and $2.
# Sets build, out and backend; the script has set limit_s, the seconds that all of it may take.

build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2

n_passed=0
n_failed=0
n_skipped=0
declare -A commands=()

backend=cpu
for folder in cuda libexec/gpupipe; do
    if [ -x "$build/$folder/gpupipe-worker-cuda" ] && "$build/$folder/gpupipe-worker-cuda" --probe; then
        backend=cuda
    fi
done

run() { # NAME SECONDS [ARGUMENT...]
    local name=$1 most_s=$2 left_s=$((limit_s - SECONDS)) start_s=$SECONDS status

    shift 2
    commands[$name]="bench_$name $*"
    echo "==== ${commands[$name]}"
    : >"$out/$name.txt"
    if [ ! -x "$build/tests/bench/bench_$name" ]; then
        echo "not in this build"
        n_skipped=$((n_skipped + 1))
        return
    fi
    if [ "$left_s" -lt 5 ]; then
        echo "no time is left"
        n_failed=$((n_failed + 1))
        return
    fi
    timeout -k 5 $((left_s < most_s ? left_s : most_s)) "$build/tests/bench/bench_$name" "$@" \
        --json "$out/$name.json" 2>&1 | tee "$out/$name.txt"
    status=${PIPESTATUS[0]}
    echo "---- $name: exit status $status after $((SECONDS - start_s)) s"
    case $status in
    0) n_passed=$((n_passed + 1)) ;;
    77) n_skipped=$((n_skipped + 1)) ;;
    *) n_failed=$((n_failed + 1)) ;;
    esac
}

# A row of the table: the claim or limit as the benchmark prints it, whose line ends with figure,
# bound, and yes, no or stated.  A bound that is given is another limit than the benchmark's own.
row() { # NAME WHAT CLAIM [BOUND]
    local found

    found=$(awk -v claim="$3  " -v bound="${4-}" '
        { line = $0; sub(/^ +/, "", line) }
        index(line, claim) == 1 && $NF ~ /^(yes|no|stated)$/ {
            if (bound == "") {
                print $(NF - 2), $(NF - 1), $NF
            } else {
                print $(NF - 2), bound, $(NF - 2) <= bound + 0 ? "yes" : "no"
            }
            exit
        }' "$out/$1.txt")
    read -r figure bound reached <<<"${found:-- - -}"
    printf '%-66s %9s %6s %-6s  %s\n' "$2" "$figure" "$bound" "$reached" "${commands[$1]}"
}

head_of_table() {
    echo "==== reach, backend $backend"
    printf '%-66s %9s %6s %-6s  %s\n' what figure bound "" command
}

# The script's exit status.
end_of_table() {
    echo "$n_passed passed, $n_failed failed, $n_skipped skipped in $SECONDS s"
    [ "$n_failed" -eq 0 ]
}
