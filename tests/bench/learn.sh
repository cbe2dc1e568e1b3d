#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# learn.sh - does GRPO learn sums and differences of three digits on a GPU?
#   learn.sh DIR [SEED...]
# For each seed (1 2 3) a model is taught a little by etc/examples/sums-sft.ini,
# and goes on by etc/examples/sums-grpo.ini; that once more with shuffled advantages,
# as a control. Logs and models go to DIR, a line of JSON for each seed to stdout:
# shares of 1000 pairs held out that are right, before, after, and shuffled.
# RV_TRAIN is the program, else build/rv-train.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
train=${RV_TRAIN:-$here/../../build/rv-train}
examples=$here/../../etc/examples
train=$(realpath "$train")
mkdir -p "$1"
cd "$1"
shift
[ $# -gt 0 ] || set -- 1 2 3

# held FILE - the last reward of what is held out.
held ()
{
    sed -nE 's/.*"eval_reward":([0-9.e-]+).*/\1/p' "$1" | awk '{ x = $1 } END { if (NR) printf "%.3f", x }'
}

# grpo NAME SEED KEY=VALUE... - from that seed's model; the log is NAME-SEED.log.
grpo ()
{
    local name=$1 seed=$2
    shift 2
    rm -f "$name-$seed.log"
    "$train" "$examples/sums-grpo.ini" run.seed="$seed" model.dir="sft-$seed" \
        log.file="$name-$seed.log" "$@"
}

awk -v digits=3 -v sft=60000 -v train=20000 -v held=1000 -f "$here/learn_rows.awk"
for seed; do
    rm -rf "sft-$seed"
    {
        "$train" "$examples/sums-sft.ini" run.seed="$seed" checkpoint.dir="sft-$seed"
        grpo before "$seed" run.steps=1 optim.warmup=1 optim.lr=1e-12
        grpo learnt "$seed"
        grpo shuffled "$seed" grpo.shuffle_advantages=on
    } >&2
    echo "{\"op\": \"learn\", \"seed\": $seed, \"before\": $(held "before-$seed.log")," \
        "\"after\": $(held "learnt-$seed.log"), \"shuffled\": $(held "shuffled-$seed.log")}"
done
