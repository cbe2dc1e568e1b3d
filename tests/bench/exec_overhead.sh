#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# exec_overhead.sh [TASKS [PAIRS]] - a step of rv-exec with PMIx beside the same
# step without it: TASKS (4) of `true` on two allocated nodes, 40 pairs.
# Aims: 100 ms more at 4 tasks, twice as long at 64.
set -eu
# shellcheck source-path=SCRIPTDIR source=pairs.bash
. "$(dirname "$0")/pairs.bash"

with() {
    srun --overlap --mpi=pmix "$build/rv-exec" -- true
}

without() {
    srun --overlap --mpi=pmix true
}

tasks=${1:-4}
bench_up --nodes 2 --cpus "$((tasks / 2))"
echo "$tasks tasks, with and without rv-exec:"
bench_pairs "${2:-40}" with without -N2 -n"$tasks"
