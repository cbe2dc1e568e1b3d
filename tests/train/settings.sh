#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# settings.sh - wrong settings: one line, the place, the nearest name, a status
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# refused STATUS PATTERN ARG... - one line on stderr, nothing on stdout.
refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    timeout 60 "$train" "$@" >"$tmp/stdout" 2>"$tmp/out"
    rc=$?
    [ $rc = "$want" ] || { echo "status $rc, not $want" >>"$tmp/out"; return 1; }
    [ "$(wc -l <"$tmp/out")" = 1 ] && [ ! -s "$tmp/stdout" ] &&
        grep -Eq -- "$pattern" "$tmp/out"
}

# with LINE... - a good file and these lines behind it, in $tmp/s.ini.
with ()
{
    small "$tmp/s.ini" "$@"
}

s=$tmp/s.ini
with
ok "no argument is a usage error" bash -c '"$1" 2>"$0"; [ $? = 2 ]' "$tmp/out" "$train"
ok "--help" bash -c '"$0" --help | grep -q "^Usage: rv-train"' "$train"
ok "--version" bash -c '"$0" --version | grep -Eq "^rv-train [0-9.]+ \(slurm "' "$train"
ok "--check is quiet about good settings" \
    test "$("$train" --check "$s")" = "$s: good"
# The manual names every key that the program knows.
undocumented ()
{
    local key
    sed -nE 's/^ *[{]"[a-z]+", "([a-z0-9_]+)", CONF_.*/\1/p' \
        "$top_srcdir"/libtrain/rv-train/settings{,_reward}.c >"$tmp/keys"
    [ "$(wc -l <"$tmp/keys")" -gt 40 ] || echo "no keys found"
    while read -r key; do
        grep -Eq "^\.B.*\b$key\b" "$top_srcdir/libtrain/rv-train/rv-train.1" || echo "$key"
    done <"$tmp/keys"
}
ok "rv-train(1) has every key" test -z "$(undocumented)"
undocumented_grpo ()
{
    local key
    tr -d '\\\n' <"$top_srcdir/libtrain/rv-train/settings_grpo.h" |
        grep -oE '[{] *"(grpo|reference)", *"[a-z0-9_]+"' |
        sed -E 's/.*"([a-z0-9_]+)"/\1/' >"$tmp/keys"
    [ "$(wc -l <"$tmp/keys")" -gt 35 ] || echo "no keys found"
    while read -r key; do
        grep -Eq "^\.B.*\b$key\b" "$top_srcdir/libtrain/rv-train/rv-train-grpo.5" || echo "$key"
    done <"$tmp/keys"
}
ok "rv-train-grpo(5) has every key" test -z "$(undocumented_grpo)"
ok "an unknown option" refused 2 "cannot understand '--quick'" --quick
ok "a word without . or /" refused 2 "'grpo'.*the commands are check, ckpt, tokenize, export, generate, plot, probe" grpo
ok "a missing file" refused 3 "$tmp/none.ini: No such file" "$tmp/none.ini"
ok "a folder" refused 3 "$tmp: " "$tmp"
ok "an override without =" refused 2 "section.key=value" "$s" run.steps
ok "an override of an unknown key" refused 2 "run.stepz=3: .*'steps'" "$s" run.stepz=3
ok "one of a name behind a dot" refused 2 'settings: reward.x.weight=2: unknown .*: \[reward x\]$' "$s" reward.x.weight=2
ok "an override of an unknown section" refused 2 'runn.steps=3: .*\[run\]' "$s" runn.steps=3
ok "an override with a bad value" refused 2 "run.steps=x: .*'x'" "$s" run.steps=x

# section | line | what the message says; a good file has 16 lines
while IFS='|' read -r section line pattern; do
    with "[$section]" "$line"
    ok "[$section] $line" refused 2 "$pattern" "$s"
done <<'EOF'
runs|x = 1|s.ini:17: .*\[runs\].*\[run\]
log|evry = 5|s.ini:18: .*'evry' in \[log\]; nearest is 'every'
log|every = often|s.ini:18: every: 'often' is not a whole number
log|slow = 1|s.ini:18: \[log\] slow: is neither above 1 nor 0
log|every = -1|s.ini:18: every: '-1' is not from 0
checkpoint|keep = 0|s.ini:18: keep: '0' is not from 1
checkpoint|every = 5|s.ini:18: \[checkpoint\] every: needs \[checkpoint\] dir
checkpoint|resume =|s.ini:18: \[checkpoint\] resume: is not auto, off or a path
precision|param = fp8|s.ini:18: param: 'fp8' is not one of fp32,fp64
precision|param = fp16|s.ini:18: \[precision\] param: fp16 needs \[precision\] scaler = on
precision|reduce = fp16|s.ini:18: \[precision\] reduce: only fp32 and bf16 are served
precision|reduce = fp64|s.ini:18: \[precision\] reduce: only fp32 and bf16 are served
precision|reduce = bf16|s.ini:18: \[precision\] reduce: bf16 needs \[shard\] strategy = grad_op or full
precision|buffer = fp64|s.ini:18: \[precision\] buffer: fp64 needs param = fp64
precision|scaler = on|s.ini:18: \[precision\] scaler: is of use with param = fp16
precision|scaler = yes|s.ini:18: scaler: 'yes' is not on or off
precision|stochastic_rounding = on|s.ini:18: \[precision\] stochastic_rounding: is of use with param = bf16
shard|strategy = half|s.ini:18: strategy: 'half' is not one of no_shard,ddp
shard|offload = on|s.ini:18: \[shard\] offload: is of a GPU's memory
shard|round_late = on|s.ini:18: \[shard\] round_late: is of use with strategy = grad_op or full
shard|offload_weights = on|s.ini:18: \[shard\] offload_weights: is of a GPU's memory
shard|no_sync = on|s.ini:18: \[shard\] no_sync: is of use with strategy = grad_op or full
model|recompute = some|s.ini:18: recompute: 'some' is not one of nothing,cheap,blocks
shard|prefetch = 2|s.ini:18: \[shard\] prefetch: is of use with strategy = grad_op or full
shard|wrap = layer|s.ini:18: \[shard\] wrap: is of no use with strategy = no_shard
shard|wrap = 5k|s.ini:18: \[shard\] wrap: is neither layer nor a number
eval|files = x|s.ini:18: \[eval\] files: needs \[eval\] every
eval|samples = 5|s.ini:18: \[eval\] samples: needs \[eval\] every
model|lora_alpha = 16|s.ini:18: \[model\] lora_alpha: is of use with lora_rank above 0 alone
model|lora_targets = q_proj|s.ini:18: \[model\] lora_targets: is of use with lora_rank above 0 alone
eval|samples = 0|s.ini:18: \[eval\] samples: 0 is all of \[eval\] files
generate|top_k = 5|s.ini:18: \[generate\] top_k is not served yet
grpo|group = 8|s.ini:18: .*group
reward length|kind = length|s.ini:18: \[reward length\] kind: rewards are of task = grpo alone
reward length|knd = length|s.ini:18: unknown key 'knd' in \[reward\]; nearest is 'kind'
reward length|kind = size|s.ini:18: kind: 'size' is not one of exact,regex,length
reward length|timeout = 5|s.ini:18: timeout: duration '5' has no unit
reference|address = x|s.ini:18: unknown key .address. in .reference
EOF

with
# override | what the message says
while IFS='|' read -r override pattern; do
    # shellcheck disable=SC2086
    ok "$override" refused 2 "$pattern" "$s" $override
done <<'EOF'
run.task=grpo|run.task=grpo: grpo needs a reward
run.steps=0|'0' is not from 1
model.dir=x|s.ini:5: \[model\] layers: follows from the folder that \[model\] dir names
model.heads=3|model.heads=3: does not divide dim
model.dim=6|s.ini:7: \[model\] heads: dim/heads is odd
model.kv_heads=3|model.kv_heads=3: does not divide heads
model.vocab=255|model.vocab=255: is below 256
model.rope_theta=x|'x' is not a number
data.files=|data.files=: is not set; name text files
data.end=x|data.end=x: goes with a tokenizer of tokens
data.seq=20000|\[data\] files: 11[0-9]* bytes of text in 1 file
eval.every=-1|'-1' is not from 0
optim.frozen=*nothing*|frozen: no parameter fits '.*nothing.*'; the first is called model.embed_tokens.weight
optim.lr=0|optim.lr=0: is not above 0
optim.lr=nan|'nan' is not a number
optim.min_lr=1|optim.min_lr=1: is above lr
optim.min_lr=0.001 optim.schedule=constant|optim.min_lr=0.001: is of no use with schedule = constant
optim.warmup=13|optim.warmup=13: is above \[run\] steps
optim.beta2=1|optim.beta2=1: is not below 1
grpo.sapo_temperature_pos=-1|'-1' is not from 0
grpo.sapo_temperature_neg=x|'x' is not a number
grpo.off_policy_mask_threshold=-2|'-2' is not from -1
grpo.kl_gradient=k2|'k2' is not on or off
optim.schedule=step|'step' is not one of constant,linear,cosine
EOF
ok "a missing data file" refused 3 "data.files=/none/x: /none/x: No such file" "$s" data.files=/none/x
sed -i 's|^files = .*|files = /none/*.txt|' "$s"
ok "a pattern that matches nothing, with its line" \
    refused 3 "s.ini:11: \[data\] files: no file matches '/none/\*.txt'" "$s"
printf '[run]\nsteps = 3\nsteps = 4\n' >"$s"
ok "a key twice" refused 2 "s.ini:3: 'steps' stands twice" "$s"
printf 'steps = 3\n' >"$s"
ok "a key before any section" refused 2 's.ini:1: ' "$s"
printf '[run]\nsteps = 3\n' >"$s"
ok "no data" refused 2 's.ini: \[data\] files: is not set' "$s"
printf '[data]\nfiles = x\n' >"$s"
ok "no steps" refused 2 's.ini: \[run\] steps: is not set' "$s"
ok "--check finds it too" refused 2 's.ini: \[run\] steps: is not set' --check "$s"
plan
