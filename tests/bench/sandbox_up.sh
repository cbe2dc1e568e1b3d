#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sandbox_up.sh [RUNS] - seconds that `rv sandbox up` and `down` take, with two
# nodes and four GPUs: least, median and most of RUNS (11).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
build=${RV_BUILD:-${top_builddir:-$here/build}}
runs=${1:-11}
dir=$(mktemp -d /tmp/rvbench.XXXXXX)
trap '"$build/rv" sandbox down --dir "$dir/s" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT

timed () # timed FILE CMD... - append the seconds that CMD took
{
    local file=$1 start
    shift
    start=$(date +%s%N)
    "$@" >/dev/null
    echo "$(( ($(date +%s%N) - start) / 1000000 ))" >>"$file"
}

for _ in $(seq "$runs"); do
    timed "$dir/up" "$build/rv" sandbox up --dir "$dir/s" --nodes 2 --gpus 4
    timed "$dir/down" "$build/rv" sandbox down --dir "$dir/s"
done
for what in up down; do
    sort -n "$dir/$what" | awk -v what="$what" '{v[NR] = $1}
        END {printf "%-5s least %d ms, median %d ms, most %d ms of %d\n", what, v[1], v[int ((NR + 1) / 2)], v[NR], NR}'
done
