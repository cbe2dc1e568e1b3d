#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shard.sh - every strategy is the same run: losses, checkpoints, a lost rank
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/s.ini
small "$i" '[log]' 'every = 6' '[precision]' 'param = fp64'

zeros ()
{
    yes 0 | head -n "$1" | xargs
}

# Three ranks do not divide a batch of 8, nor passes of 3 rows what they have.
ok "one rank" run "$i" "log.file=$tmp/one"
for strategy in no_shard ddp grad_op full; do
    for world in "1 1" "2 1" "3 1" "4 2"; do
        # shellcheck disable=SC2086
        ok "$strategy, $world ranks and nodes" ranks "$(zeros ${world% *})" $world "$i" \
            "shard.strategy=$strategy" data.micro_batch=3 "log.file=$tmp/many"
        ok "the losses are those of one rank within 1e-12" near "$tmp/one" "$tmp/many" 1e-12 12
    done
done
ok "says what a rank has" ranks "0 0 0" 3 1 "$i" shard.strategy=full shard.wrap=1500 shard.prefetch=0 "log.file=$tmp/many"
ok "so" grep -q '^shard: full, 3 units, [0-9]* parameters a rank$' "$tmp/out.0"
ok "the same losses" near "$tmp/one" "$tmp/many" 1e-12 12
ok "reduced once a step" ranks "0 0 0" 3 1 "$i" shard.strategy=full shard.no_sync=on data.micro_batch=1 "log.file=$tmp/many"
ok "the same losses" near "$tmp/one" "$tmp/many" 1e-12 12
for what in cheap blocks; do
    ok "activations made again: $what" run "$i" model.recompute=$what "log.file=$tmp/again"
    ok "the same bits" cmp <(losses "$tmp/one") <(losses "$tmp/again")
done
ok "sharded, blocks made again" ranks "0 0" 2 1 "$i" shard.strategy=full model.recompute=blocks data.micro_batch=3 "log.file=$tmp/many"
ok "the same losses" near "$tmp/one" "$tmp/many" 1e-12 12
ok "more ranks than rows" ranks "0 0 0" 3 1 "$i" shard.strategy=full data.batch=2 "log.file=$tmp/many"
ok "one rank has two rows" run "$i" data.batch=2 "log.file=$tmp/two"
ok "the same losses" near "$tmp/two" "$tmp/many" 1e-12 12
ok "gradients in bf16" ranks "0 0 0" 3 1 "$i" shard.strategy=full precision.param=fp32 precision.reduce=bf16 "log.file=$tmp/many"
ok "losses within 0.02" near "$tmp/one" "$tmp/many" 0.02 12

# Weights of bf16 with masters of fp32; a run in halves has the bits of one.
bf=("$i" precision.param=bf16 optim.schedule=constant)
ok "bf16 weights" run "${bf[@]}" "log.file=$tmp/bf"
ok "losses within 0.02 of fp64's" run "$i" optim.schedule=constant "log.file=$tmp/one"
ok "so" near "$tmp/one" "$tmp/bf" 0.02 12
for strategy in ddp full; do
    ok "bf16, $strategy" ranks "0 0 0" 3 1 "${bf[@]}" "shard.strategy=$strategy" "log.file=$tmp/many"
    ok "losses within 0.005" near "$tmp/bf" "$tmp/many" 0.005 12
done
ok "whole" ranks "0 0 0" 3 1 "${bf[@]}" shard.strategy=full "checkpoint.dir=$tmp/b" "log.file=$tmp/b.m"
h=("${bf[@]}" shard.strategy=full "checkpoint.dir=$tmp/h" "log.file=$tmp/h.m")
ok "half" ranks "0 0 0" 3 1 "${h[@]}" run.steps=5
ok "rest" ranks "0 0 0" 3 1 "${h[@]}"
ok "same losses" cmp <(losses "$tmp/b.m") <(losses "$tmp/h.m")
ok "three shards each" test "$(cat "$tmp"/[bh]/step-00000012/model-0000?-of-00003.safetensors | wc -c)" -gt 10000
ok "same masters" cmp <(cat "$tmp"/b/step-00000012/model-*) <(cat "$tmp"/h/step-00000012/model-*)

# A checkpoint of one strategy and world is any other's.
c=("$i" "checkpoint.dir=$tmp/c" "log.file=$tmp/c.m" optim.schedule=constant)
ok "three ranks write shards" ranks "0 0 0" 3 1 "${c[@]}" shard.strategy=full run.steps=5
ok "each rank its own" test -s "$tmp/c/step-00000005/model-00003-of-00003.safetensors"
ok "two of another strategy go on" ranks "0 0" 2 1 "${c[@]}" shard.strategy=grad_op run.steps=8
ok "one without shards goes on" run "${c[@]}" run.steps=10
ok "four go on" ranks "0 0 0 0" 4 2 "${c[@]}" shard.strategy=full shard.wrap=3000
ok "straight" run "$i" optim.schedule=constant "log.file=$tmp/d.m"
ok "same losses within 1e-12" near "$tmp/c.m" "$tmp/d.m" 1e-12 12

# A rank that ends takes its shard with it.
rm -f "$tmp"/out.*
start_ranks 3 1 "$i" shard.strategy=full run.steps=100000 "log.file=$tmp/k.m" \
    "checkpoint.dir=$tmp/k" checkpoint.every=2
for ((n = 0; n < 6000; n++)); do
    [ -f "$tmp/k.m" ] && [ "$(wc -l <"$tmp/k.m")" -ge 6 ] && break
    sleep 0.01
done
kill -KILL "${pids[1]}"
wait_ranks
ok "a rank that is killed ends the others with 4" test "$statuses" = "4 137 4"
ok "they name it and the checkpoint" grep -q "rv-train\[rank 2 on .*rank 1.*the newest checkpoint is step [0-9]* in $tmp/k" "$tmp/out.2"
plan
