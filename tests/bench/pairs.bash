# SPDX-License-Identifier: Apache-2.0
# pairs.bash - interleaved pairs of two commands on a sandbox of their own
#
#   . pairs.bash; bench_up UP_OPTIONS...; bench_pairs N A B SALLOC_OPTIONS...
#
# A and B are shell functions. They run inside one allocation, so that no
# scheduler stands in the way, each once untimed and then N times, in an order
# that changes from pair to pair: the load of the machine meets both alike.
# $dir is the folder that the exit removes, $dir/s the sandbox.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${RV_BUILD:-${top_builddir:-$here/build}}
rv=$build/rv

bench_up() {
    dir=$(mktemp -d /tmp/rvbench.XXXXXX)
    trap '"$rv" sandbox down --dir "$dir/s" >&2; rm -rf "$dir"' EXIT
    unset "${!SLURM_@}" "${!SBATCH_@}"
    "$rv" sandbox up --dir "$dir/s" "$@" >&2
    eval "$("$rv" sandbox env --dir "$dir/s")"
}

# timed FUNCTION - the microseconds that it takes
timed() {
    local t0=${EPOCHREALTIME/./}
    "$1" >&2 || exit
    echo $((${EPOCHREALTIME/./} - t0))
}

in_turns() { # N A B, inside the allocation
    local i a b
    timed "$2" >/dev/null
    timed "$3" >/dev/null
    for ((i = 0; i < $1; i++)); do
        if ((i % 2)); then
            a=$(timed "$2") b=$(timed "$3")
        else
            b=$(timed "$3") a=$(timed "$2")
        fi
        echo "$a $b"
    done >"$dir/times"
}

# bench_pairs N A B SALLOC_OPTION... - fills $dir/times with "A B" lines, in
# microseconds, and prints medians, the mean of the differences A - B with its
# 95 % confidence interval (normal quantile), and the median of the differences
bench_pairs() {
    local n=$1 a=$2 b=$3
    shift 3
    export -f timed in_turns "${a?}" "${b?}"
    export dir build
    salloc -Q "$@" bash -c "set -e; in_turns $n $a $b"
    a=$(column '$1' | median) b=$(column '$2' | median)
    awk -v a="$a" -v b="$b" -v d="$(column '$1 - $2' | median)" '
        { x = ($1 - $2) / 1000; sum += x; squares += x * x }
        END {
            mean = sum / NR
            half = 1.96 * sqrt ((squares - NR * mean * mean) / (NR - 1) / NR)
            printf "medians %.1f and %.1f ms, ratio %.2f; difference: ", a, b, a / b
            printf "median %.2f, mean %.2f ms (95 %% %.2f to %.2f), %d pairs\n",
                d, mean, mean - half, mean + half, NR
        }' "$dir/times"
    echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
}

column() { # AWK_EXPRESSION - of each line of times, in milliseconds
    awk "{ print ($1) / 1000 }" "$dir/times"
}

median() {
    sort -g | awk '{ v[NR] = $1 }
        END { print (v[int ((NR + 1) / 2)] + v[int (NR / 2) + 1]) / 2 }'
}
