#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# death.sh [TASKS [TRIES]] - from the death of one rank to the end of its step:
# 64 tasks on two nodes, one of them kills itself when all are up, under
# rv-exec with PMIx and under plain `srun -K`, in turns, five times each.
# Aim: 5 s or less. Status 1 above it.
set -eu
# shellcheck source-path=SCRIPTDIR source=pairs.bash
. "$(dirname "$0")/pairs.bash"
tasks=${1:-64} tries=${2:-5}
bench_up --nodes 2 --cpus "$((tasks / 2))"
export dir tasks

cat >"$dir/task" <<'X'
#!/bin/sh
: >"$dir/up.$SLURM_PROCID"
[ "$SLURM_PROCID" = $((tasks / 2)) ] || exec sleep 100
until [ "$(ls "$dir" | grep -c '^up\.')" = "$tasks" ]; do sleep 0.1; done
date +%s%3N >"$dir/died"
kill -9 $$
X
chmod +x "$dir/task"

# one COMMAND... - milliseconds, and the status of srun
one() {
    local status=0 now
    rm -f "$dir"/up.* "$dir/died"
    "$@" "$dir/task" >"$dir/out" 2>&1 || status=$?
    now=$(date +%s%3N)
    echo "$((now - $(cat "$dir/died"))) $status"
}

worst=0
for ((i = 0; i < tries; i++)); do
    read -r a status <<<"$(one srun -N2 -n"$tasks" --mpi=pmix "$build/rv-exec")"
    [ "$status" = 137 ] || { cat "$dir/out"; exit 1; }
    read -r b _ <<<"$(one srun -K -N2 -n"$tasks" --mpi=none)"
    echo "$tasks tasks: rv-exec $a ms, srun -K $b ms"
    echo "$((a * 1000)) $((b * 1000))" >>"$dir/times"
    [ "$a" -le "$worst" ] || worst=$a
done
a=$(column '$1' | median) b=$(column '$2' | median)
echo "medians: rv-exec $a ms, srun -K $b ms; the longest $worst ms (at most 5000), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
[ "$worst" -le 5000 ]
