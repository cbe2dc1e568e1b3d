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
plan
