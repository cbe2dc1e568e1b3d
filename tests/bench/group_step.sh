#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# group_step.sh [BYTES...] - all-reduce of the host group beside PyTorch's gloo
# in one step of 2 nodes x 2 ranks, in turns; prints a table in Markdown.
# Aim: not slower than gloo at 1 MiB.
set -eu
# shellcheck source-path=SCRIPTDIR source=pairs.bash
. "$(dirname "$0")/pairs.bash"
bench_up --nodes 2 --cpus 4
export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
echo "| bytes | ours us | gloo us | ratio | ours, best | gloo, best |"
echo "|---|---|---|---|---|---|"
srun -Q -N2 --ntasks-per-node=2 "$build/rv-exec" /usr/bin/python3 \
    "$(dirname "$0")/group_step.py" "$build" "$@"
