#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rv_train_sft.sh - task = sft on a GPU: the losses of the host, padded and packed,
# and answers that are learnt. run.sh runs it.
: "${top_srcdir:?}"
required=${RV_REQUIRE:-}
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

for ((a = 0; a < 400; a++)); do
    b=$((a * 37 % 100))
    echo "{\"prompt\": \"$((a % 100))+$b=\", \"answer\": $((a % 100 + b))}"
done >"$tmp/sums.jsonl"
cat >"$tmp/s.ini" <<EOF
[run]
task = sft
steps = 4
[model]
layers = 2
dim = 64
heads = 4
kv_heads = 2
vocab = 257
[data]
files = $tmp/sums.jsonl
seq = 64
batch = 16
micro_batch = 7
[optim]
lr = 2e-3
warmup = 2
EOF

# on DEVICE NAME ARG... - a run whose metrics are $tmp/DEVICE.NAME
on ()
{
    local device=$1 name=$2
    shift 2
    run "$tmp/s.ini" "run.device=$device" "log.file=$tmp/$device.$name" "$@"
}

if ! on cuda first && grep -q 'device cuda: ' "$tmp/out"; then
    echo "1..0 # SKIP $(sed -n 's/.*device cuda: //p' "$tmp/out")"
    [[ ",$required," != *,gpu,* ]]
    exit
fi
for packed in off on; do
    ok "fp32, packed = $packed, host" on cpu "$packed" data.packed=$packed
    ok "GPU" on cuda "$packed" data.packed=$packed
    ok "the same losses" near "$tmp/cpu.$packed" "$tmp/cuda.$packed" 1e-4 4
    ok "bf16" on cuda "bf16.$packed" data.packed=$packed precision.param=bf16
    ok "near to them" near "$tmp/cpu.$packed" "$tmp/cuda.bf16.$packed" 0.05 4
done
ok "other losses where rows are packed" test "$(losses "$tmp/cuda.off")" != "$(losses "$tmp/cuda.on")"
ok "200 steps of packed rows" on cuda long data.packed=on data.batch=8 data.micro_batch=8 run.steps=200 eval.every=200 eval.samples=4
ok "learn" awk '{ exit !($1 < 2.0) }' <(losses "$tmp/cuda.long" | tail -n 1)
tail -n 1 "$tmp/cuda.long" | sed 's/^/# /'
plan
