#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# epoch.sh - stopped within an epoch, a run goes on with the very next sample,
# whatever number of ranks it has then
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# 46 samples an epoch: 12 steps of 8 are two epochs and four samples.
head -c 1500 "$top_srcdir/LICENSE" >"$tmp/text.txt"
"$train" tokenize "$tmp/text.bin" "$tmp/text.txt" >"$tmp/out" 2>&1
i=$tmp/e.ini
small "$i"
for data in text.txt text.bin; do
    c=("$i" precision.param=fp64 optim.schedule=constant model.vocab=257 "data.files=$tmp/$data")
    d=("checkpoint.dir=$tmp/$data.ck" "log.file=$tmp/$data.m")
    ok "$data: straight" run "${c[@]}" "log.file=$tmp/$data.one"
    ok "three ranks to 24 of 46" ranks "0 0 0" 3 1 "${c[@]}" "${d[@]}" shard.strategy=full run.steps=3
    "$train" ckpt show "$tmp/$data.ck" >"$tmp/out" 2>&1
    ok "the checkpoint says so" grep -q '^  position = 24$' "$tmp/out"
    ok "two to 56, of the second epoch" ranks "0 0" 2 1 "${c[@]}" "${d[@]}" run.steps=7
    ok "one to the third" run "${c[@]}" "${d[@]}"
    ok "the losses of one that never stopped" near "$tmp/$data.one" "$tmp/$data.m" 1e-12 12
    run "${c[@]}" "${d[@]}" run.steps=13 data.shuffle=off
    ok "another order is 2" test $? = 2
    ok "and is named" grep -q 'shuffle is 1 there and 0 here' "$tmp/out"
done
ok "tokens and text have the same samples" cmp <(losses "$tmp/text.txt.one" | head -n 5) <(losses "$tmp/text.bin.one" | head -n 5)
plan
