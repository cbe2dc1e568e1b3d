#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plugin_cost.sh [PAIRS] - `srun true` with and without the plugin: one task of
# an allocated node, plugstack.conf with its line and empty, 200 pairs.
set -eu
# shellcheck source-path=SCRIPTDIR source=pairs.bash
. "$(dirname "$0")/pairs.bash"

# plugstack.conf is read by srun and by slurmstepd, each time anew.
with() {
    cp "$dir/with" "$dir/s/plugstack.conf"
    srun --overlap true
}

without() {
    : >"$dir/s/plugstack.conf"
    srun --overlap true
}

bench_up --nodes 1 --gpus 2
cp "$dir/s/plugstack.conf" "$dir/with"
bench_pairs "${1:-200}" with without -N1 -n1
