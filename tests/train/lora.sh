#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lora.sh - adapters learn, alone; ranks, stops and export do not change what
# they are
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/l.ini
small "$i" '[checkpoint]' 'keep = 1'
c=("$i" precision.param=fp64 optim.schedule=constant model.lora_rank=4 'model.lora_targets=*_proj')
go () # FOLDER ARG...
{
    local folder=$1
    shift
    run "${c[@]}" "checkpoint.dir=$tmp/$folder/ck" "log.file=$tmp/$folder/m" "$@"
}
same () # FOLDER FOLDER
{
    cmp <(losses "$tmp/$1/m") <(losses "$tmp/$2/m") &&
        cmp "$tmp/$1/ck/step-00000012/model.safetensors" "$tmp/$2/ck/step-00000012/model.safetensors" &&
        cmp "$tmp/$1/ck/step-00000012/optim.safetensors" "$tmp/$2/ck/step-00000012/optim.safetensors"
}
# params FOLDER STEP - "NAME HASH" of each tensor of the model.
params ()
{
    "$train" ckpt verify "$tmp/$1/ck/step-$2" >/dev/null 2>&1
    /usr/bin/python3 - "$tmp/$1/ck/step-$2/model.safetensors" <<'P'
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

ok "straight" go one
ok "nobody is called unused" test "$(grep -c '^unused' "$tmp/out")" = 0
ok "the loss falls" test "$(losses "$tmp/one/m" | awk 'NR == 1 { a = $1 } END { print ($1 < a) }')" = 1
ok "one step" go first run.steps=1 optim.warmup=0
params one 00000012 >"$tmp/p12"
params first 00000001 >"$tmp/p1"
ok "adapters are other ones" test "$(diff "$tmp/p1" "$tmp/p12" | grep -c '^> .*lora_')" = 14
ok "and nothing else" test "$(diff "$tmp/p1" "$tmp/p12" | grep '^[<>]' | grep -vc lora_)" = 0
ok "half" go two run.steps=6
ok "whole" go two
ok "same bits" same one two
ok "three ranks, sharded" ranks "0 0 0" 3 1 "${c[@]}" shard.strategy=full \
    data.micro_batch=2 "checkpoint.dir=$tmp/three/ck" "log.file=$tmp/three/m"
ok "have one's losses" near "$tmp/one/m" "$tmp/three/m" 1e-12 12
ok "two ranks, ddp" ranks "0 0" 2 1 "${c[@]}" shard.strategy=ddp "log.file=$tmp/ddp"
ok "have one's losses" near "$tmp/one/m" "$tmp/ddp" 1e-12 12

"$train" export "$tmp/three/ck" "$tmp/merged" >"$tmp/out" 2>&1
ok "export merges" test $? = 0
ok "and leaves no adapter" test "$(grep -c lora_ "$tmp/merged/model.safetensors")" = 0
"$train" export --adapter "$tmp/one/ck" "$tmp/peft" >"$tmp/out" 2>&1
ok "export --adapter" test $? = 0
ok "as PEFT names them" grep -qa 'base_model.model.model.layers.0.mlp.up_proj.lora_A.weight' "$tmp/peft/adapter_model.safetensors"
ok "with rank" grep -q '"r": 4' "$tmp/peft/adapter_config.json"
for k in three/ck merged; do
    "$train" generate --max 24 "$tmp/$k" x >"$tmp/said-${k%%/*}" 2>"$tmp/out"
    ok "generate of $k" test $? = 0
done
ok "adapters say what they say when they are merged" cmp "$tmp/said-three" "$tmp/said-merged"

go one run.steps=13 model.lora_rank=5
ok "another rank is 2" test $? = 2
ok "and is named" grep -q 'lora_rank is 4 there and 5 here' "$tmp/out"
go one run.steps=13 model.lora_targets=v_proj
ok "other targets are 2" test $? = 2
ok "and are named" grep -q 'lora_targets is q_proj k_proj v_proj o_proj gate_proj up_proj down_proj there and v_proj here' "$tmp/out"
run "${c[@]}" 'model.lora_targets=q_proj,nothing'
ok "another target is 2" test $? = 2
ok "and is named" grep -q "lora_targets.*'nothing'" "$tmp/out"
plan
