#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# modeldir.sh - a run that begins with the model of a folder begins at that
# model's loss, whoever shares it, and goes on and is exported as any other
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

for ((a = 0; a < 16; a++)); do
    b=$((a * 37 % 100))
    echo "{\"prompt\": \"$a+$b=\", \"answer\": \"$((a + b))\"}"
done >"$tmp/sums.jsonl"
small "$tmp/first.ini"
sed '/^\[model\]/,/^ffn/d' "$tmp/first.ini" >"$tmp/next.ini"
kind=(precision.param=fp64 data.shuffle=off optim.schedule=constant)
rows=(run.task=sft "data.files=$tmp/sums.jsonl" data.seq=16 data.batch=16 "${kind[@]}")
heldout=("eval.files=$tmp/sums.jsonl" eval.samples=0)
c=("$tmp/next.ini" "${rows[@]}" run.steps=4 "model.dir=$tmp/hf")

# evaluated FILE - as a file of metrics: the last loss of what is evaluated.
evaluated ()
{
    sed -nE 's/.*"eval_loss":([0-9][^,}]*).*/"loss":\1,/p' "$1" | tail -n 1
}
# begins A B [MOST] - is A's first loss the last evaluation of B?
begins ()
{
    evaluated "$2" >"$tmp/want"
    head -n 1 "$1" >"$tmp/got"
    near "$tmp/got" "$tmp/want" "${3:-1e-12}" 1
}
export_to () # CHECKPOINT DIR ARG...
{
    "$train" export "${@:3}" "$1" "$2" >"$tmp/out" 2>&1
}
# params FILE - "NAME HASH" of each tensor.
params ()
{
    /usr/bin/python3 - "$1" <<'P'
import hashlib, json, sys
with open (sys.argv[1], "rb") as f:
    header = json.loads (f.read (int.from_bytes (f.read (8), "little")))
    data = f.read ()
for name, t in sorted (header.items ()):
    if name != "__metadata__":
        a, b = t["data_offsets"]
        print (name, hashlib.sha256 (data[a:b]).hexdigest ())
P
}
# refused STATUS PATTERN ARG... - one line that says it
refused ()
{
    local want=$1 pattern=$2 rc
    run "${@:3}"
    rc=$?
    [ $rc = "$want" ] && [ "$(grep -c 'rv-train' "$tmp/out")" = 1 ] && grep -Eq -- "$pattern" "$tmp/out"
}

ok "a model" run "$tmp/first.ini" "${rows[@]}" model.vocab=257 eval.every=12 "${heldout[@]}" \
    "checkpoint.dir=$tmp/ck" "log.file=$tmp/m"
ok "as a folder" export_to "$tmp/ck" "$tmp/hf"
sed -i -E 's/("eos_token_id": )null/\1256/; s/("max_position_embeddings": )[0-9]+/\14096/' "$tmp/hf/config.json"

ok "a run from it" run "${c[@]}" "log.file=$tmp/one" eval.every=4 "${heldout[@]}" "checkpoint.dir=$tmp/one.ck"
ok "says so" grep -q "^model: .* layers of 16, 2 heads, of $tmp/hf\$" "$tmp/out"
ok "begins at the loss of the model" begins "$tmp/one" "$tmp/m"
ok "which another model has not" run "$tmp/first.ini" "${rows[@]}" run.steps=1 model.vocab=257 optim.warmup=0 "log.file=$tmp/drawn"
ok "as is seen" bash -c '! cmp -s "$0" "$1"' <(losses "$tmp/drawn") <(losses "$tmp/one" | head -n 1)
ok "one from the checkpoint" run "${c[@]}" "model.dir=$tmp/ck" "log.file=$tmp/ofck"
ok "has the same losses" cmp <(losses "$tmp/one") <(losses "$tmp/ofck")
for strategy in ddp grad_op full; do
    ok "two ranks, $strategy" ranks "0 0" 2 1 "${c[@]}" shard.strategy=$strategy "log.file=$tmp/two" \
        "checkpoint.dir=$tmp/$strategy.ck"
    ok "have one's losses" near "$tmp/one" "$tmp/two" 1e-12 4
done
ok "three ranks on one" ranks "0 0 0" 3 1 "${c[@]}" shard.strategy=full shard.wrap=500 "log.file=$tmp/three"
ok "have them, too" near "$tmp/one" "$tmp/three" 1e-12 4

# Each rank sees a folder of its own, as a file system that remembers has it: the
# same checkpoints, and another latest.
ok "a longer run of the model" run "$tmp/first.ini" "${rows[@]}" model.vocab=257 run.steps=14 checkpoint.every=1 \
    checkpoint.keep=9 "checkpoint.dir=$tmp/ck2" "log.file=$tmp/m2"
for r in 0 1; do
    mkdir -p "$tmp/sees.$r/ck"
    ln -s "$tmp"/ck2/step-* "$tmp/sees.$r/ck"
    echo "step-0000001$((4 - r * 2))" >"$tmp/sees.$r/ck/latest"
done
ok "one from its latest" run "${c[@]}" "model.dir=$tmp/ck2" "log.file=$tmp/latest"
ranks_cd=$tmp/sees
ok "two ranks that see another" ranks "0 0" 2 1 "${c[@]}" model.dir=ck shard.strategy=full log.file=two
ok "begin with rank 0's" near "$tmp/latest" "$tmp/sees.0/two" 1e-12 4
unset ranks_cd

ok "half" run "${c[@]}" run.steps=2 "log.file=$tmp/half" "checkpoint.dir=$tmp/half.ck"
ok "and half" run "${c[@]}" "log.file=$tmp/half" "checkpoint.dir=$tmp/half.ck"
ok "are the whole" cmp <(losses "$tmp/one") <(losses "$tmp/half")
same ()
{
    local f
    for f in model optim; do
        cmp "$tmp/one.ck/step-00000004/$f.safetensors" "$tmp/half.ck/step-00000004/$f.safetensors" || return 1
    done
}
ok "bit for bit" same

ok "what it learnt" export_to "$tmp/full.ck" "$tmp/again" --base "$tmp/hf"
ok "with the folder's config" cmp "$tmp/hf/config.json" "$tmp/again/config.json"
ok "in which is what no run knows" grep -q '"eos_token_id": 256' "$tmp/again/config.json"
ok "is a folder" run "${c[@]}" "model.dir=$tmp/again" "log.file=$tmp/chain"
ok "that begins where the run ended" begins "$tmp/chain" "$tmp/one"

# Files of fp32: masters have their numbers, weights and losses are rounded.
ok "a folder of fp32" export_to "$tmp/ck" "$tmp/fp32" --dtype fp32
half=(precision.param=bf16 "model.dir=$tmp/fp32" optim.lr=1e-30 optim.weight_decay=0)
ok "in bf16" run "${c[@]}" "${half[@]}" "log.file=$tmp/bf16" "checkpoint.dir=$tmp/bf16.ck"
ok "begins near the loss of the model" begins "$tmp/bf16" "$tmp/m" 0.05
ok "masters are what the files have" cmp <(params "$tmp/fp32/model.safetensors") \
    <(params "$tmp/bf16.ck/step-00000004/model.safetensors")
ok "shared, too" ranks "0 0" 2 1 "${c[@]}" "${half[@]}" shard.strategy=full "log.file=$tmp/two" \
    "checkpoint.dir=$tmp/bf16s.ck"
ok "and joined again" export_to "$tmp/bf16s.ck" "$tmp/bf16s"
ok "they are" cmp <(params "$tmp/fp32/model.safetensors") <(params "$tmp/bf16s/model.safetensors")

lora=(model.lora_rank=2 'model.lora_targets=*_proj')
ok "adapters beside it" run "${c[@]}" "${lora[@]}" "log.file=$tmp/lora" "checkpoint.dir=$tmp/lora.ck" eval.every=4 "${heldout[@]}"
ok "begin at its loss" begins "$tmp/lora" "$tmp/m"
params "$tmp/lora.ck/step-00000004/model.safetensors" >"$tmp/p"
ok "learn" test "$(losses "$tmp/lora" | sed -n 2p)" != "$(losses "$tmp/lora" | sed -n 4p)"
ok "and leave it as it is" cmp <(params "$tmp/hf/model.safetensors") <(grep -v lora_ "$tmp/p")
ok "three ranks, sharded" ranks "0 0 0" 3 1 "${c[@]}" "${lora[@]}" shard.strategy=full "log.file=$tmp/three"
ok "have their losses" near "$tmp/lora" "$tmp/three" 1e-12 4
ok "merged" export_to "$tmp/lora.ck" "$tmp/merged"
ok "they are a folder" run "${c[@]}" "model.dir=$tmp/merged" "log.file=$tmp/chain"
ok "that begins where they ended" begins "$tmp/chain" "$tmp/lora"

foreseen ()
{
    "$train" check --json "$@" 2>"$tmp/out" | sed -nE '/"what": "the program/,$d; s/^ *"bytes": ([0-9]+),?$/\1/p'
}
dims=(model.layers=1 model.dim=16 model.heads=2 model.kv_heads=1 model.ffn=32 model.vocab=257)
foreseen "${c[@]}" >"$tmp/a"
foreseen "${c[@]}" model.dir= "${dims[@]}" >"$tmp/b"
ok "check foresees it" test "$(wc -l <"$tmp/a")" -gt 4
ok "as of its sizes" cmp <(head -n -1 "$tmp/a") <(head -n -1 "$tmp/b")

# A tokenizer that lies in the folder: ASCII and three merges.
mkdir "$tmp/tok"
small_tokenizer "$tmp/tok/tokenizer.json"
printf "the thing in the middle\n%.0s" {1..40} >"$tmp/text"
words=("${kind[@]}" data.seq=32 data.batch=8 "data.files=$tmp/text")
ok "adapters alone" export_to "$tmp/lora.ck" "$tmp/peft" --adapter --base "$tmp/hf"
ok "name their model" grep -q "\"base_model_name_or_path\": \"$tmp/hf\"" "$tmp/peft/adapter_config.json"
ok "a model of words" run "$tmp/first.ini" "${words[@]}" model.vocab=600 "data.tokenizer=$tmp/tok" \
    eval.every=12 "eval.files=$tmp/text" eval.samples=8 "checkpoint.dir=$tmp/w.ck" "log.file=$tmp/w"
ok "and its tokenizer" export_to "$tmp/w.ck" "$tmp/words" --tokenizer "$tmp/tok"
export_to "$tmp/full.ck" "$tmp/other" --base "$tmp/words"
ok "which is no base of the other" test $? = 2
ok "and says why" grep -q "config.json's vocab is 600, the decoder's 257" "$tmp/out"
w=("$tmp/next.ini" "${words[@]}" run.steps=2 "model.dir=$tmp/words")
ok "text from there" run "${w[@]}" "log.file=$tmp/text.m"
ok "is read by it" begins "$tmp/text.m" "$tmp/w"
ok "tokens" run tokenize --tokenizer "$tmp/tok" "$tmp/text.tokens" "$tmp/text"
ok "need none" run "${w[@]}" "data.files=$tmp/text.tokens" "log.file=$tmp/tokens.m"
ok "and are the same" cmp <(losses "$tmp/text.m") <(losses "$tmp/tokens.m")
rm "$tmp/words/tokenizer.json"
ok "without it text is not read as bytes" refused 2 'tokenizer: is not set, .*words has no tokenizer.json.* of 600 is not that of bytes' "${w[@]}"
ok "unless that is said" run "${w[@]}" data.tokenizer=bytes

ok "sizes beside it" refused 2 'model.dim=16: follows from the folder that \[model\] dir names' "${c[@]}" model.dim=16
ok "in the file" refused 2 'first.ini:5: \[model\] layers: follows from the folder' "$tmp/first.ini" "${rows[@]}" "model.dir=$tmp/hf"
ok "no such folder" refused 3 "model.dir=$tmp/none: $tmp/none is no folder; name one that is there: .* not fetched" "${c[@]}" "model.dir=$tmp/none"
mkdir "$tmp/bare"
ok "a folder without a model" refused 3 "model.dir=$tmp/bare: $tmp/bare has neither config.json, .* nor a checkpoint" "${c[@]}" "model.dir=$tmp/bare"
ok "a checkpoint in parts" refused 1 "model.dir=.*written in parts; rv-train export .* works" "${c[@]}" "model.dir=$tmp/full.ck"
ok "one with adapters" refused 3 "model.dir=.*lora_A.* is not one of this model's" "${c[@]}" "model.dir=$tmp/lora.ck"
ok "even where some are wanted" refused 3 "model.dir=.*lora_A.* is not one of this model's" "${c[@]}" "${lora[@]}" "model.dir=$tmp/lora.ck"
ok "a model of bytes" run "$tmp/first.ini" "${words[@]}" run.steps=1 optim.warmup=0 "checkpoint.dir=$tmp/b.ck"
ok "has no end for rows" refused 2 'b.ck: 256 is below 257, the vocabulary of the data' "${c[@]}" "model.dir=$tmp/b.ck"
cp -r "$tmp/hf" "$tmp/short"
head -c 2000 "$tmp/hf/model.safetensors" >"$tmp/short/model.safetensors"
ok "weights that end early" refused 3 'short/model.safetensors' "${c[@]}" "model.dir=$tmp/short"
ok "on two ranks" ranks "3 3" 2 1 "${c[@]}" "model.dir=$tmp/short" shard.strategy=full
plan
