#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rv_train_ranks.sh - rv-train over the GPUs of this host, 4 at most: each strategy
# takes the steps of one GPU that shards nothing, and checkpoints go on with other
# strategies and numbers of ranks. run.sh and multi.sh run it.
: "${top_srcdir:?}"
required=${RV_REQUIRE:-}
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

steps=20
gpus=$(gpus_seen)
[ "$gpus" -le 4 ] || gpus=4
if [ "$gpus" = 0 ]; then
    echo "1..0 # SKIP no GPU"
    [[ ",$required," != *,gpu,* ]]
    exit
fi

cat >"$tmp/g.ini" <<EOF
[run]
device = cuda
steps = $steps
[model]
layers = 4
dim = 256
heads = 4
kv_heads = 2
[data]
files = $text
seq = 256
batch = 14
micro_batch = 4
[optim]
lr = 1e-3
warmup = 5
[eval]
every = 10
samples = 5
EOF

# ranks N ARG... - rv-train by N processes; their output in $tmp/out; the first
# status that is not 0. OWN=1: each sees its own GPU alone; TWIN=1: all see GPU 0.
ranks ()
{
    local n=$1 r rc=0 one port=$((20000 + RANDOM % 10000)) pids=() see
    shift
    : >"$tmp/out"
    for ((r = 0; r < n; r++)); do
        see=()
        [ -z "${OWN:-}" ] || see=("CUDA_VISIBLE_DEVICES=$r")
        [ -z "${TWIN:-}" ] || see=("CUDA_VISIBLE_DEVICES=0")
        env RANK=$r "WORLD_SIZE=$n" LOCAL_RANK=$r "LOCAL_WORLD_SIZE=$n" \
            MASTER_ADDR=127.0.0.1 "MASTER_PORT=$port" "${see[@]}" \
            timeout 60 "$train" "$tmp/g.ini" "$@" >>"$tmp/out" 2>&1 &
        pids+=($!)
    done
    for r in "${pids[@]}"; do
        wait "$r"
        one=$?
        [ "$rc" != 0 ] || rc=$one
    done
    return "$rc"
}

# dies - of two ranks the second is killed between two checkpoints: how the first
# ends, and what it says
dies ()
{
    local r port=$((20000 + RANDOM % 10000)) pids=() tries=0
    for r in 0 1; do
        env RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "MASTER_PORT=$port" \
            "$train" "$tmp/g.ini" run.steps=1000000 shard.strategy=full checkpoint.every=10 \
            "checkpoint.dir=$tmp/dies-ck" "log.file=$tmp/dies" >"$tmp/out.$r" 2>&1 &
        pids+=($!)
        started+=($!)
    done
    while [ "$(cat "$tmp/dies" 2>/dev/null | wc -l)" -lt 33 ] && [ $((tries++)) -lt 300 ]; do
        sleep 0.1
    done
    kill -KILL "${pids[1]}"
    tries=0
    while kill -0 "${pids[0]}" 2>/dev/null && [ $((tries++)) -lt 200 ]; do
        sleep 0.1
    done
    cp "$tmp/out.0" "$tmp/out"
    ! kill -0 "${pids[0]}" 2>/dev/null && ! wait "${pids[0]}" &&
        grep -Eq 'rank 1 .*ended.*newest checkpoint is step [1-9]' "$tmp/out"
}

last_eval ()
{
    sed -n 's/.*"eval_loss": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n 1
}

near_eval ()
{
    awk -v a="$(last_eval "$1")" -v b="$(last_eval "$2")" -v e="$3" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= e * b) }'
}

for param in fp32 bf16; do
    bound=1e-4
    [ $param = fp32 ] || bound=1e-2
    ok "$param: one GPU" run "$tmp/g.ini" "precision.param=$param" "log.file=$tmp/$param"
    for strategy in full grad_op ddp no_shard; do
        name="$param, $strategy, $gpus ranks"
        m=$tmp/$param-$strategy
        ok "$name: trains" ranks "$gpus" "precision.param=$param" "shard.strategy=$strategy" \
            "log.file=$m" "checkpoint.dir=$m-ck" checkpoint.every=10
        sed -n '1,3p; $p' "$tmp/out" | sed 's/^/# /'
        ok "$name: the losses of one GPU, within $bound" near "$tmp/$param" "$m" $bound $steps
        ok "$name: its evaluation" near_eval "$tmp/$param" "$m" $bound
        ok "$name: the checkpoint is whole" run ckpt verify "$m-ck"
    done
done
on=(run.steps=$((steps + 3)) "checkpoint.dir=$tmp/bf16-full-ck" precision.param=bf16)
ok "one GPU goes on with what $gpus wrote of a sharded model" \
    run "$tmp/g.ini" "${on[@]}" "log.file=$tmp/on-1" checkpoint.every=0 checkpoint.keep=9
ok "and says where" grep -q "^resumed at step $steps " "$tmp/out"
ok "$gpus ranks of ddp go on with that" \
    ranks "$gpus" "${on[@]}" run.steps=$((steps + 5)) shard.strategy=ddp "log.file=$tmp/on-n"
ok "and say where" grep -q "^resumed at step $((steps + 3)) " "$tmp/out"
ok "fp16: a scale that all ranks agree on" ranks "$gpus" precision.param=fp16 precision.scaler=on \
    shard.strategy=full "log.file=$tmp/fp16"
ok "fp16: the losses of one GPU in bf16, roughly" near "$tmp/bf16" "$tmp/fp16" 3e-2 $steps
for strategy in full ddp; do
    m=$tmp/far-$strategy far=(shard.offload=on)
    [ $strategy = ddp ] || far+=(shard.offload_weights=on)
    ok "$strategy, offload: trains" ranks "$gpus" precision.param=bf16 "shard.strategy=$strategy" \
        "${far[@]}" "log.file=$m" "checkpoint.dir=$m-ck" checkpoint.every=10
    ok "$strategy, offload: the losses of one GPU" near "$tmp/bf16" "$m" 1e-2 $steps
    ok "$strategy, offload: goes on" ranks "$gpus" precision.param=bf16 "shard.strategy=$strategy" \
        "${far[@]}" "log.file=$m" "checkpoint.dir=$m-ck" run.steps=$((steps + 2))
    ok "$strategy, offload: from where it was" grep -q "^resumed at step $steps " "$tmp/out"
done
if [ "$gpus" -gt 1 ]; then
    OWN=1 ok "each rank sees its own GPU alone" ranks "$gpus" shard.strategy=full "log.file=$tmp/own"
    ok "the same losses" near "$tmp/fp32" "$tmp/own" 1e-4 $steps
    NCCL_DEBUG=INFO ok "deterministic, with what NCCL says" ranks "$gpus" shard.strategy=ddp run.steps=10 optim.warmup=1
    ok "its sums are made in rings" grep -q 'NCCL_ALGO set by environment to Ring' "$tmp/out"
    twin ()
    {
        ! TWIN=1 ranks 2 && grep -q 'ranks 0 and 1 both have GPU' "$tmp/out"
    }
    ok "two ranks with one GPU are refused, by name" twin
    ok "a rank that dies is named, and where to go on" dies
fi
many ()
{
    ! ranks $((gpus + 1)) && grep -Eq "$((gpus + 1)) ranks on this node and $gpus GPUs|both have GPU" "$tmp/out"
}
ok "more ranks than GPUs are refused" many
plan
