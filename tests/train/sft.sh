#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sft.sh - task = sft: the loss is the answers' alone, whatever shares the batch
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# Answers of 1 to 3 bytes and their end.
tokens=0
for ((a = 0; a < 40; a++)); do
    b=$((a * 37 % 100))
    answer=$((a + b))
    echo "{\"prompt\": \"$a+$b=\", \"answer\": $answer, \"level\": [$a]}"
    [ $a -lt 16 ] && tokens=$((tokens + ${#answer} + 1))
done >"$tmp/sums.jsonl"
i=$tmp/sft.ini
small "$i"
c=("$i" run.task=sft "data.files=$tmp/sums.jsonl" model.vocab=257 precision.param=fp64 data.shuffle=off data.batch=16 run.steps=4)

ok "sft" run "${c[@]}" data.seq=16 "log.file=$tmp/one"
ok "counts answers and ends alone" grep -q "\"step\":1,.*\"tokens\":${tokens}[,}]" "$tmp/one"
ok "rows with more padding" run "${c[@]}" data.seq=40 "log.file=$tmp/wide"
ok "have the same losses" near "$tmp/one" "$tmp/wide" 1e-12 4
ok "passes of 3" run "${c[@]}" data.seq=16 data.micro_batch=3 "log.file=$tmp/three"
ok "have the same losses" near "$tmp/one" "$tmp/three" 1e-12 4
ok "three ranks, each a part" ranks "0 0 0" 3 1 "${c[@]}" data.seq=16 "log.file=$tmp/ranks" \
    shard.strategy=full data.micro_batch=2
ok "have one's losses" near "$tmp/one" "$tmp/ranks" 1e-12 4

sed 's/"answer": [0-9]*/"answer": "??"/' "$tmp/sums.jsonl" >"$tmp/other.jsonl"
ok "other answers" run "${c[@]}" "data.files=$tmp/other.jsonl" data.seq=16 "log.file=$tmp/other"
ok "have other losses" test "$(losses "$tmp/one")" != "$(losses "$tmp/other")"

ok "many steps" run "${c[@]}" data.seq=16 run.steps=400 optim.lr=0.01 data.shuffle=on model.dim=32 precision.param=fp32 "log.file=$tmp/long"
ok "learn the answers" awk '{ exit !($1 < 0.3) }' <(losses "$tmp/long" | tail -n 1)

ok "half" run "${c[@]}" data.seq=16 run.steps=2 optim.schedule=constant "checkpoint.dir=$tmp/ck" "log.file=$tmp/half"
ok "and half" run "${c[@]}" data.seq=16 optim.schedule=constant "checkpoint.dir=$tmp/ck" "log.file=$tmp/half"
ok "whole" run "${c[@]}" data.seq=16 optim.schedule=constant "log.file=$tmp/whole"
ok "are the same" test "$(losses "$tmp/half")" = "$(losses "$tmp/whole")"
run "${c[@]}" data.seq=16 "data.files=$tmp/other.jsonl" "checkpoint.dir=$tmp/ck"
ok "a checkpoint of other rows is 2" test $? = 2
ok "and that is named" grep -q 'data' "$tmp/out"

ok "rows held out" run "${c[@]}" data.seq=16 eval.every=2 eval.samples=8 "log.file=$tmp/held"
ok "are evaluated" grep -q '"eval_loss":[0-9]' "$tmp/held"
ok "rows of other files" run "${c[@]}" data.seq=16 eval.every=2 "eval.files=$tmp/other.jsonl" "log.file=$tmp/apart"
ok "are evaluated, too" grep -q '"eval_loss":[0-9]' "$tmp/apart"

# Rows of 6 + 3 + 1 ids, so of 9 places: two fill a sample of 18.
for ((a = 10; a < 50; a++)); do
    echo "{\"prompt\": \"$a+$((99 - a))=\", \"answer\": \"099\"}"
done >"$tmp/pairs.jsonl"
p=("${c[@]}" "data.files=$tmp/pairs.jsonl")
ok "rows that share samples" run "${p[@]}" data.seq=18 data.batch=4 data.packed=on "log.file=$tmp/packed"
ok "rows with samples of their own" run "${p[@]}" data.seq=9 data.batch=8 "log.file=$tmp/own"
ok "have the same losses" near "$tmp/packed" "$tmp/own" 1e-12 4
ok "two ranks" ranks "0 0" 2 1 "${p[@]}" data.seq=18 data.batch=4 data.packed=on "log.file=$tmp/two" data.micro_batch=1
ok "have them, too" near "$tmp/packed" "$tmp/two" 1e-12 4
ok "held out" run "${p[@]}" data.seq=18 data.packed=on eval.every=4 eval.samples=3 "log.file=$tmp/held"
ok "and evaluated" grep -q '"eval_loss":[0-9]' "$tmp/held"

# Messages of a chat, and a text as one.
echo '{"prompt": [{"role": "user", "content": "1+1="}], "answer": "2"}' >"$tmp/chat.jsonl"
echo '{"prompt": "1+1=", "answer": "2"}' >"$tmp/text.jsonl"
for kind in chat text; do
    run "${c[@]}" "data.files=$tmp/$kind.jsonl" data.batch=1 data.seq=80 data.template=chatml "log.file=$tmp/$kind"
done
ok "a text is a user's message" test "$(losses "$tmp/chat")" = "$(losses "$tmp/text")"
ok "and there are losses" test "$(losses "$tmp/chat" | wc -l)" = 4

# refused STATUS PATTERN KEY=VALUE... - one line that says it
refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    run "${c[@]}" data.seq=16 "$@"
    rc=$?
    [ $rc = "$want" ] && grep -Eq -- "$pattern" "$tmp/out"
}
echo '{"prompt": "1+1="}' >"$tmp/none.jsonl"
ok "a row without answer" refused 2 "data.files=.*none.jsonl:1: no field 'answer'" "data.files=$tmp/none.jsonl"
ok "a row that is too long" refused 2 'sums.jsonl:1: prompt and answer have 6 tokens, and a sample of seq 4 has room for 5' data.seq=4
ok "may be left out" run "${c[@]}" data.seq=6 data.long=skip
ok "and how many is said" grep -q 'of 40 rows are longer than a sample of 6 tokens' "$tmp/out"
ok "or cut" run "${c[@]}" data.seq=6 data.long=cut
ok "text is no JSON" refused 3 "LICENSE:[0-9]+: no JSON" "data.files=$text"
ok "messages without a template" refused 3 "chat.jsonl:1: 'prompt' has messages" "data.files=$tmp/chat.jsonl"
ok "a template of no name" refused 2 "template 'chat' is none of auto, plain" data.template=chat
ok "a vocabulary without the end" refused 2 '256 is below 257' model.vocab=256
ok "documents" refused 2 'documents=on: is of use to task = pretrain alone' data.documents=on
ok "a template of text" refused 2 'template=plain: is of tasks sft and grpo alone' run.task=pretrain data.template=plain
ok "an end that is no token" refused 2 "end 'x' is no token" data.end=x
plan
