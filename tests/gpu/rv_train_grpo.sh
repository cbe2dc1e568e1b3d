#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rv_train_grpo.sh - task = grpo on GPUs: the losses of the host; sharded, with
# adapters, with a reference in the host's memory; and on from mid-cycle. run.sh
# and multi.sh run it.
: "${top_srcdir:?}"
required=${RV_REQUIRE:-}
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"
# shellcheck source=tests/train/grpo.bash
. "$top_srcdir/tests/train/grpo.bash"
grpo_files "$tmp"
gpus=$(gpus_seen)
c=("$tmp/small.ini" precision.param=fp32 model.layers=2 model.dim=64 model.heads=4 run.deterministic=on)

# on DEVICE NAME ARG... - a run whose metrics are $tmp/DEVICE.NAME
on ()
{
    local device=$1 name=$2
    shift 2
    run "${c[@]}" "run.device=$device" "log.file=$tmp/$device.$name" "$@"
}

# over N NAME ARG... - the same on N GPUs.
over ()
{
    local n=$1 name=$2 r port pids=() rc=0
    shift 2
    port=$(free_port)
    for ((r = 0; r < n; r++)); do
        env RANK=$r "WORLD_SIZE=$n" LOCAL_RANK=$r "LOCAL_WORLD_SIZE=$n" MASTER_ADDR=127.0.0.1 \
            "MASTER_PORT=$port" timeout 60 "$train" "${c[@]}" run.device=cuda \
            "log.file=$tmp/cuda.$name" "$@" >>"$tmp/out.$name" 2>&1 &
        pids+=($!)
    done
    for r in "${pids[@]}"; do
        wait "$r" || rc=$?
    done
    cp "$tmp/out.$name" "$tmp/out"
    return $rc
}

if ! on cuda one && grep -q 'device cuda: ' "$tmp/out"; then
    echo "1..0 # SKIP $(sed -n 's/.*device cuda: //p' "$tmp/out")"
    [[ ",$required," != *,gpu,* ]]
    exit
fi
ok "host" on cpu one
ok "GPU" on cuda one
ok "the same losses" near "$tmp/cpu.one" "$tmp/cuda.one" 2e-4 8
for s in grad_op full; do
    ok "$s of one GPU" on cuda $s shard.strategy=$s
    ok "the same" near "$tmp/cuda.one" "$tmp/cuda.$s" 1e-4 8
done
ok "a reference in the host's memory" on cuda far reference.offload=on
ok "which is said" grep -q "reference a copy in the host's memory" "$tmp/out"
ok "the same" near "$tmp/cuda.one" "$tmp/cuda.far" 1e-5 8
l=(model.lora_rank=4 optim.lr=0.01)
ok "adapters, host" on cpu lora "${l[@]}"
ok "GPU" on cuda lora "${l[@]}"
ok "the same" near "$tmp/cpu.lora" "$tmp/cuda.lora" 2e-4 8
ok "full" on cuda lora.full "${l[@]}" shard.strategy=full
ok "the same" near "$tmp/cuda.lora" "$tmp/cuda.lora.full" 1e-4 8
for s in no_shard full; do
    for p in fp32 bf16; do
        k=("precision.param=$p" "shard.strategy=$s" grpo.num_iterations=2)
        ok "$s, $p" on cuda "whole.$s.$p" "${k[@]}"
        k+=("checkpoint.dir=$tmp/$s.$p")
        ok "three steps of a cycle of four" on cuda "part.$s.$p" "${k[@]}" run.steps=3
        ok "and the rest" on cuda "part.$s.$p" "${k[@]}"
        ok "have the bits" alike "$tmp/cuda.whole.$s.$p" "$tmp/cuda.part.$s.$p"
    done
done
# A policy that comes by units: the completions and losses of a whole one, bit for bit.
units ()
{
    local by=$1 name=$2 w
    shift 2
    for w in whole unit; do
        ok "$w, $name" $by "$w.$name" shard.strategy=full "grpo.gather=$w" \
            "grpo.completions=$tmp/said.$w.$name" grpo.completions_shown=1000 \
            model.vocab=264 model.ffn=192 "$@"
        ok "as it says" grep -q "^gather: ${w/unit/by unit}" "$tmp/out"
    done
    ok "the same metrics" alike "$tmp/cuda.whole.$name" "$tmp/cuda.unit.$name"
    ok "and completions" cmp "$tmp/said.whole.$name" "$tmp/said.unit.$name"
}
for p in fp32 bf16; do
    units "on cuda" "gather.$p" "precision.param=$p" grpo.num_iterations=2
    units "on cuda" "gather.untied.$p" "precision.param=$p" model.tie=off shard.prefetch=2 grpo.at_once=3
    units "on cuda" "gather.lora.$p" "precision.param=$p" "${l[@]}"
done
units "on cuda" gather.same precision.param=bf16 grpo.batch_invariant=on
if [ "$gpus" -gt 1 ]; then
    units "over 2" gather.two precision.param=bf16 grpo.num_iterations=2
    units "over 2" gather.few precision.param=bf16 grpo.at_once=2
    for s in ddp grad_op full; do
        ok "two GPUs of $s" over 2 two.$s shard.strategy=$s
        ok "the same" near "$tmp/cuda.one" "$tmp/cuda.two.$s" 2e-4 8
    done
    ok "two GPUs, a reference in parts in the host's memory" over 2 parts reference.shard=on reference.offload=on
    ok "the same" near "$tmp/cuda.one" "$tmp/cuda.parts" 2e-4 8
    ok "two GPUs of full, adapters" over 2 lora.two "${l[@]}" shard.strategy=full
    ok "the same" near "$tmp/cuda.lora" "$tmp/cuda.lora.two" 2e-4 8
    ok "two GPUs go on in mid-cycle" over 2 part.full.fp32 precision.param=fp32 shard.strategy=full \
        grpo.num_iterations=2 run.steps=10 "checkpoint.dir=$tmp/full.fp32"
fi
plan
