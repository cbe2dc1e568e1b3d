#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# documents.sh - what shares a row does not see each other: the losses are those
# of rows of one document each, for any number of ranks
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# 80 documents of 15 bytes and an end: two fill a row of 32.
files=()
for ((i = 0; i < 80; i++)); do
    files+=("$tmp/$(printf 'd%02d' "$i")")
    dd if="$text" of="${files[i]}" bs=15 skip=$((i * 3)) count=1 2>/dev/null
done
"$train" tokenize "$tmp/d.bin" "${files[@]}" >"$tmp/out" 2>&1
ok "tokenize" test $? = 0
i=$tmp/d.ini
small "$i"
c=("$i" precision.param=fp64 model.vocab=257 run.steps=4 data.shuffle=off "data.files=$tmp/d.bin")
on=("${c[@]}" data.documents=on)

ok "rows of two" run "${on[@]}" "log.file=$tmp/two" "checkpoint.dir=$tmp/ck"
ok "rows of one" run "${on[@]}" "log.file=$tmp/one" data.seq=16 data.batch=16
ok "have the same losses" near "$tmp/two" "$tmp/one" 1e-12 4
ok "rows of half a one" run "${on[@]}" "log.file=$tmp/half" data.seq=8 data.batch=32
ok "have others" test "$(losses "$tmp/half")" != "$(losses "$tmp/one")"
ok "rows without borders" run "${c[@]}" "log.file=$tmp/none"
ok "have others, too" test "$(losses "$tmp/none")" != "$(losses "$tmp/two")"
ok "three ranks, passes of 2" ranks "0 0 0" 3 1 "${on[@]}" "log.file=$tmp/three" \
    shard.strategy=full data.micro_batch=2
ok "have one's losses" near "$tmp/two" "$tmp/three" 1e-12 4
ok "evaluation" run "${on[@]}" "log.file=$tmp/eval" eval.every=4 eval.samples=2
ok "of what is held out" grep -q '"eval_loss":[0-9]' "$tmp/eval"

run "${c[@]}" "checkpoint.dir=$tmp/ck" run.steps=5
ok "a checkpoint of rows with borders is 2 without" test $? = 2
ok "and that is named" grep -q 'data' "$tmp/out"
run "${on[@]}" "data.files=$text"
ok "text is 2" test $? = 2
ok "and why" grep -q 'text has no ends of documents' "$tmp/out"

# Empty documents are their ends alone: of the first 512 tokens nothing is learnt.
empty=()
for ((i = 0; i < 530; i++)); do
    empty+=("$tmp/nothing")
done
: >"$tmp/nothing"
head -c 4000 "$text" >"$tmp/some"
"$train" tokenize "$tmp/e.bin" "${empty[@]}" "$tmp/some" >"$tmp/out" 2>&1
ok "tokenize empty documents" test $? = 0
e=("${on[@]}" "data.files=$tmp/e.bin" log.every=1)
ok "steps without any target" run "${e[@]}" "log.file=$tmp/e1" eval.every=1 eval.samples=2
ok "are said once" test "$(grep -c '^rv-train: step 1 has no target, ' "$tmp/out")" = 1
ok "have no loss and no gradient" grep -q '^step 2/4  loss none  grad 0 ' "$tmp/out"
ok "nor are parameters said to be unused" test "$(grep -c '^unused:' "$tmp/out")" = 0
ok "nor is the end's" grep -Eq '^done: step 4, loss [0-9.]+ -> [0-9.]+, ' "$tmp/out"
ok "metrics have null" test "$(grep -c '"loss":null,"grad_norm":0,' "$tmp/e1")" = 2
ok "and numbers behind it" test "$(grep -c '"loss":[0-9]' "$tmp/e1")" = 2
ok "no NaN anywhere" test "$(cat "$tmp/out" "$tmp/e1" | grep -ci nan)" = 0
ok "two ranks, passes of 1" ranks "0 0" 2 1 "${e[@]}" "log.file=$tmp/e2" data.micro_batch=1
ok "no NaN anywhere" test "$(cat "$tmp/out" "$tmp/e2" | grep -ci nan)" = 0
ok "passes without a target weigh nothing" near <(grep -v '"loss":null' "$tmp/e1") <(grep -v '"loss":null' "$tmp/e2") 1e-12 2
for strategy in no_shard full; do
    f=("${e[@]}" run.steps=2 optim.weight_decay=0 "log.file=" "shard.strategy=$strategy")
    rm -rf "$tmp/w0" "$tmp/w1" "$tmp/w2"
    ok "no target at all, $strategy" run "${f[@]}" "checkpoint.dir=$tmp/w1" log.every=0
    ok "of two ranks" ranks "0 0" 2 1 "${f[@]}" "checkpoint.dir=$tmp/w2"
    ok "is no loss" grep -q '^done: step 2, loss none -> none, ' "$tmp/out.0"
    ok "the first weights" run "${f[@]}" "checkpoint.dir=$tmp/w0" optim.lr=1e-300 run.steps=2 "data.files=$tmp/d.bin"
    for w in w1 w2; do
        "$train" export "$tmp/$w" "$tmp/x.$w" >>"$tmp/out" 2>&1
    done
    "$train" export "$tmp/w0" "$tmp/x.w0" >>"$tmp/out" 2>&1
    ok "stay as they were" cmp "$tmp/x.w0/model.safetensors" "$tmp/x.w1/model.safetensors"
    ok "on two as well" cmp "$tmp/x.w0/model.safetensors" "$tmp/x.w2/model.safetensors"
done
plan
