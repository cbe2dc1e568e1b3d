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
ok "more ranks than rows" ranks "0 0 0" 3 1 "$i" shard.strategy=full data.batch=2 "log.file=$tmp/many"
ok "one rank has two rows" run "$i" data.batch=2 "log.file=$tmp/two"
ok "the same losses" near "$tmp/two" "$tmp/many" 1e-12 12
ok "gradients in bf16" ranks "0 0 0" 3 1 "$i" shard.strategy=full precision.param=fp32 precision.reduce=bf16 "log.file=$tmp/many"
ok "losses within 0.02" near "$tmp/one" "$tmp/many" 0.02 12

# A checkpoint of one strategy and world is any other's.
c=("$i" "checkpoint.dir=$tmp/c" "log.file=$tmp/c.m" optim.schedule=constant)
ok "three ranks write shards" ranks "0 0 0" 3 1 "${c[@]}" shard.strategy=full run.steps=5
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
    [ -f "$tmp/k.m" ] && [ "$(wc -l <"$tmp/k.m")" -ge 4 ] && break
    sleep 0.01
done
kill -KILL "${pids[1]}"
wait_ranks
ok "a rank that is killed ends the others with 4" test "$statuses" = "4 137 4"
ok "they name it and the checkpoint" grep -q "rv-train\[rank 2 on .*rank 1.*the newest checkpoint is step [0-9]* in $tmp/k" "$tmp/out.2"
plan
