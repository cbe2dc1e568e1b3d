#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ranks.sh - several ranks are one run: same losses, stops, resumes, failures
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/r.ini
small "$i" '[log]' 'every = 6'

# The global batch alone decides: 1 rank, 4 on one node, 4 on two, 8.
for param in fp32 fp64; do
    ok "one rank, $param" run "$i" precision.param=$param "log.file=$tmp/one"
    if [ $param = fp32 ]; then most=1e-4; else most=1e-12; fi
    for world in "2 1" "4 1" "4 2" "8 2"; do
        # shellcheck disable=SC2086
        ok "$world ranks and nodes, $param" ranks "$(yes 0 | head -n "${world% *}" | xargs)" \
            $world "$i" precision.param=$param "log.file=$tmp/many"
        ok "the losses are those of one rank within $most" near "$tmp/one" "$tmp/many" $most 12
    done
done
ok "only rank 0 speaks" test "$(cat "$tmp"/out.[1-7] | wc -c)" = 0
ok "four ranks in micro-batches of one" ranks "0 0 0 0" 4 2 "$i" precision.param=fp64 \
    data.micro_batch=1 "log.file=$tmp/many"
ok "same losses" near "$tmp/one" "$tmp/many" 1e-12 12

# Half and half has the bits of the whole, on as many ranks; fp32 and fp64.
same_files ()
{
    cmp "$1/step-00000012/model.safetensors" "$2/step-00000012/model.safetensors" &&
        cmp "$1/step-00000012/optim.safetensors" "$2/step-00000012/optim.safetensors"
}
for param in fp32 fp64; do
    common=("$i" "precision.param=$param" optim.schedule=constant)
    a=$tmp/a-$param b=$tmp/b-$param
    ok "whole, $param" ranks "0 0 0 0" 4 2 "${common[@]}" "checkpoint.dir=$a" "log.file=$a.m"
    ok "half" ranks "0 0 0 0" 4 2 "${common[@]}" "checkpoint.dir=$b" "log.file=$b.m" run.steps=5
    ok "rest" ranks "0 0 0 0" 4 2 "${common[@]}" "checkpoint.dir=$b" "log.file=$b.m"
    ok "same losses" cmp <(losses "$a.m") <(losses "$b.m")
    ok "same weights and moments" same_files "$a" "$b"
done
# A checkpoint of four ranks serves one and two.
cp -r "$tmp/b-fp64" "$tmp/c" && cp "$tmp/b-fp64.m" "$tmp/c.m"
ok "goes on with one rank" run "${common[@]}" "checkpoint.dir=$tmp/c" "log.file=$tmp/c.m" run.steps=15
ok "goes on with two" ranks "0 0" 2 1 "${common[@]}" "checkpoint.dir=$tmp/c" "log.file=$tmp/c.m" run.steps=18
ok "straight" ranks "0 0 0 0" 4 2 "${common[@]}" "log.file=$tmp/d.m" run.steps=18
ok "same losses within 1e-12" near "$tmp/c.m" "$tmp/d.m" 1e-12 18

# One rank is told to stop: all stop after the same step, and go on.
rm -f "$tmp"/out.*
start_ranks 4 2 "$i" run.steps=100000 "checkpoint.dir=$tmp/s" "log.file=$tmp/s.m"
for ((n = 0; n < 6000; n++)); do
    [ -f "$tmp/s.m" ] && [ "$(wc -l <"$tmp/s.m")" -ge 5 ] && break
    sleep 0.01
done
kill -TERM "${pids[2]}"
wait_ranks
ok "all end with 75" test "$statuses" = "75 75 75 75"
step=$(wc -l <"$tmp/s.m")
ok "they go on" ranks "0 0 0 0" 4 2 "$i" run.steps=$((step + 2)) "checkpoint.dir=$tmp/s" "log.file=$tmp/s.m"
ok "from there" grep -q "^resumed at step $step from" "$tmp/out.0"

# The same by SIGUSR1, to two ranks of which each has a part of the model.
rm -f "$tmp"/out.*
start_ranks 2 1 "$i" run.steps=100000 shard.strategy=full "checkpoint.dir=$tmp/u" "log.file=$tmp/u.m"
for ((n = 0; n < 6000; n++)); do
    [ -f "$tmp/u.m" ] && [ "$(wc -l <"$tmp/u.m")" -ge 5 ] && break
    sleep 0.01
done
kill -USR1 "${pids[1]}"
wait_ranks
ok "SIGUSR1 to rank 1 ends both with 75" test "$statuses" = "75 75"
ok "and a checkpoint of that step" test -d "$tmp/u/step-$(printf %08d "$(wc -l <"$tmp/u.m")")"

# What one rank alone cannot do, the others learn.
mixed ()
{
    rm -f "$tmp"/out.*
    local port
    port=$(free_port)
    pids=()
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port RV_NCCL_TIMEOUT=60 "$train" "$i" "optim.lr=0.0$((rank + 1))" \
            >"$tmp/out.$rank" 2>&1 &
        pids+=($!)
        started+=($!)
    done
    wait_ranks
}
mixed
ok "ranks of other settings" test "$statuses" = "4 4"
ok "say so" grep -q 'ranks differ in their options: lr is 0.02 here, 0.01 to 0.02 on all; start all with the same file' "$tmp/out.1"
ok "a checkpoint that is not there, on rank 0 alone" ranks "3 3" 2 1 "$i" checkpoint.resume=/none
# A rate times decay of a million: weights overflow within a few steps.
ok "a run that diverges ends with 1" ranks "1 1" 2 1 "$i" run.steps=100 optim.lr=1000 \
    optim.weight_decay=1000 optim.schedule=constant shard.strategy=full "log.file=$tmp/n.m"
ok "after ten steps without a number, on every rank" \
    test "$(grep -c 'not finite for 10 steps in a row' "$tmp"/out.[01] | cut -d: -f2 | xargs)" = "1 1"
ok "with the first of them by name, once" \
    test "$(grep -Ec '^rv-train: a step is skipped: step [0-9]+: (NaN|Inf) in .*\(rank [01] on .*, pass 1 of 1\)$' "$tmp/out.0")" = 1
ok "nine are in the metrics" test "$(grep -c '"skipped":true' "$tmp/n.m")" = 9
rm -f "$tmp"/out.*
start_ranks 4 2 "$i" run.steps=100000 "log.file=$tmp/k.m"
for ((n = 0; n < 6000; n++)); do
    [ -f "$tmp/k.m" ] && [ "$(wc -l <"$tmp/k.m")" -ge 3 ] && break
    sleep 0.01
done
kill -KILL "${pids[1]}"
wait_ranks
ok "a rank that is killed ends the others with 4" test "$statuses" = "4 137 4 4"
ok "and they name it" grep -q 'rv-train\[rank 3 on .*rank 1' "$tmp/out.3"
plan
