#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_overhead.sh - `rv run -f true` beside sbatch of a script with `srun true`
#
# run_overhead.sh [PAIRS]: on a sandbox of its own, PAIRS (20) interleaved
# pairs, each waited for to its end: rv's exit, and the script's last line
# (which writes a file that is looked for every 5 ms). Prints each pair, the
# medians and their difference; status 1 above 150 ms.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
build=${RV_BUILD:-${top_builddir:-$here/build}}
rv=$build/rv pairs=${1:-20}
dir=$(mktemp -d /tmp/rvbench.XXXXXX)
trap '"$rv" sandbox down --dir "$dir/s" >&2; rm -rf "$dir"' EXIT
unset "${!SLURM_@}" "${!SBATCH_@}"
export XDG_STATE_HOME=$dir/state
"$rv" sandbox up --dir "$dir/s" --nodes 1 --gpus 2 >&2
eval "$("$rv" sandbox env --dir "$dir/s")"

ms() {
    date +%s%3N
}

# Both run the same step: one task, one GPU, PMIx.
cat >"$dir/script" <<E
#!/bin/sh
srun true
: >"$dir/done"
E

one_sbatch() {
    local t0
    rm -f "$dir/done"
    t0=$(ms)
    sbatch --parsable --gres=gpu:1 -N1 --ntasks-per-node=1 -o /dev/null \
        "$dir/script" >/dev/null
    while [ ! -e "$dir/done" ]; do sleep 0.005; done
    echo $(($(ms) - t0))
}

one_rv() {
    local t0
    t0=$(ms)
    "$rv" run -f -g 1 -- true 2>/dev/null
    echo $(($(ms) - t0))
}

# The next job of either kind begins on an idle node. slurmctld wakes once a
# second, so a job starts up to a second late; both jobs of a pair begin at the
# same phase of the clock's second, and the pairs cover it evenly.
idle() {
    local now
    until [ -z "$(squeue -h)" ] && [ "$(sinfo -h -o %t)" = idle ]; do
        sleep 0.05
    done
    now=$(ms)
    sleep "$(printf '0.%03d' $((($1 * 1000 / pairs + 1000 - now % 1000) % 1000)))"
}

median() {
    sort -n | awk '{ v[NR] = $1 }
        END { print NR % 2 ? v[(NR + 1) / 2] : int((v[NR / 2] + v[NR / 2 + 1]) / 2) }'
}

printf '%4s %12s %12s\n' pair 'sbatch ms' 'rv run ms'
for i in $(seq "$pairs"); do
    idle "$i"
    a=$(one_sbatch)
    idle "$i"
    b=$(one_rv)
    printf '%4d %12d %12d\n' "$i" "$a" "$b"
    echo "$a" >>"$dir/sbatch"
    echo "$b" >>"$dir/rv"
done
printf 'least  %10d %12d\n' "$(sort -n "$dir/sbatch" | head -n 1)" \
    "$(sort -n "$dir/rv" | head -n 1)"
a=$(median <"$dir/sbatch") b=$(median <"$dir/rv")
printf 'median %10d %12d\n' "$a" "$b"
echo "overhead $((b - a)) ms (at most 150), $pairs pairs, $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
[ $((b - a)) -le 150 ]
