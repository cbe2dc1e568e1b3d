#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# grpo.sh - task = grpo: a policy that mostly gives bare sums learns to put them
# in brackets, which prompts that are held out show; with shuffled advantages it
# does not. Ranks change nothing, and a run that was stopped goes on bit for bit.
# RV_TEST_LONG=1 takes three seeds.
: "${top_srcdir:?}"
long=${RV_TEST_LONG:-0}
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# Sums of two-digit numbers; one answer of five is in brackets.
awk -v dir="$tmp" 'BEGIN {
    for (k = 0; k < 2600; k++) {
        a = 10 + k * 7919 % 90; b = 10 + int (k * 104729 / 90) % 90; s = a + b
        answer = k % 5 == 0 ? "[" s "]" : k % 5 < 3 ? s : "=" s
        row = "{\"prompt\": \"" a "+" b ":\", \"answer\": \"" answer "\"}"
        print row >(dir (k < 2000 ? "/sft" : k < 2400 ? "/train" : "/held") ".jsonl")
    }
}'
cat >"$tmp/sft.ini" <<EOF
[run]
task = sft
steps = 150
[model]
layers = 2
dim = 64
heads = 4
vocab = 257
[data]
files = $tmp/sft.jsonl
seq = 16
batch = 32
[optim]
lr = 3e-3
warmup = 10
EOF
cat >"$tmp/grpo.ini" <<EOF
[run]
task = grpo
steps = 40
[data]
files = $tmp/train.jsonl
batch = 64
[grpo]
num_generations = 8
max_completion_length = 8
[optim]
lr = 5e-4
schedule = constant
[reward form]
kind = regex
pattern = ^\[[0-9]+\]\$
[eval]
every = 40
samples = 100
files = $tmp/held.jsonl
EOF

# held FILE - the last reward of what is held out.
held ()
{
    sed -nE 's/.*"eval_reward":([0-9.e-]+).*/\1/p' "$1" | tail -n 1
}

at_least ()
{
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x != "" && x >= y) }'
}

# learn SEED - of four in five that have no brackets to four in five that do.
learn ()
{
    local seed=$1 g
    ok "seed $seed: sft" run "$tmp/sft.ini" run.seed="$seed" checkpoint.dir="$tmp/sft-$seed"
    g=("$tmp/grpo.ini" run.seed="$seed" model.dir="$tmp/sft-$seed")
    ok "seed $seed: grpo" run "${g[@]}" log.file="$tmp/one-$seed" \
        grpo.completions="$tmp/said-$seed"
    ok "seed $seed: held out, four in five are in brackets" at_least "$(held "$tmp/one-$seed")" 0.8
    ok "seed $seed: shuffled" run "${g[@]}" log.file="$tmp/mixed-$seed" grpo.shuffle_advantages=on
    ok "seed $seed: of shuffled advantages less than half" \
        at_least 0.5 "$(held "$tmp/mixed-$seed")"
}

learn 1
if [ "$long" = 1 ]; then
    learn 2
    learn 3
fi
ok "completions are lines of JSON" python3 - "$tmp/said-1" <<'EOF'
import json, re, sys
rows = [json.loads (line) for line in open (sys.argv[1])]
assert len (rows) == 40 * 8
for r in rows:
    assert r["rewards"]["form"] == bool (re.fullmatch (r"\[[0-9]+\]", r["completion"])), r
    assert re.fullmatch (r"[0-9]+\+[0-9]+:", r["prompt"])
EOF

# A model of nothing, so that fp64 and several ranks are quick.
f=("$tmp/small.ini")
sed -e '/^\[eval\]/,$d' -e '/^\[reward/,$d' "$tmp/grpo.ini" >"$tmp/small.ini"
cat >>"$tmp/small.ini" <<EOF
[reward size]
kind = length
max = 3
soft = 5
EOF
f+=(precision.param=fp64 model.layers=1 model.dim=16 model.heads=2 model.vocab=257 run.steps=8
    data.batch=24 grpo.beta=0.05 grpo.steps_per_generation=2)
ok "one rank" run "${f[@]}" log.file="$tmp/a"
ok "three ranks" ranks "0 0 0" 3 1 "${f[@]}" log.file="$tmp/b"
ok "have one's losses" near "$tmp/a" "$tmp/b" 1e-6 8
ok "four ranks on two nodes, in small passes" ranks "0 0 0 0" 4 2 "${f[@]}" log.file="$tmp/c" \
    data.micro_batch=2 shard.strategy=ddp
ok "have them, too" near "$tmp/a" "$tmp/c" 1e-6 8

# same A B - are two files of metrics alike but for seconds and memory?
same ()
{
    local drop='s/"(mem_bytes|[a-z]+_s)":[^,}]*//g'
    diff <(sed -E "$drop" "$1") <(sed -E "$drop" "$2") >"$tmp/out"
}
f+=(checkpoint.dir="$tmp/ck")
ok "half of the way" run "${f[@]}" run.steps=4 log.file="$tmp/d"
ok "and the rest" run "${f[@]}" log.file="$tmp/d"
ok "is the whole, bit for bit" same "$tmp/a" "$tmp/d"
rm -r "$tmp/ck"
"$train" "${f[@]}" run.steps=4000 log.file="$tmp/e" >"$tmp/out" 2>&1 &
pid=$!
started+=("$pid")
for ((i = 0; i < 300; i++)); do
    [ "$(grep -c . "$tmp/e" 2>/dev/null)" -gt 2 ] 2>/dev/null && break
    sleep 0.1
done
kill -USR1 "$pid"
wait "$pid"
ok "SIGUSR1 ends it with 75" test $? = 75
n=$(grep -c . "$tmp/e")
ok "where a cycle ends" test $((n % 2)) = 0
ok "it goes on" run "${f[@]}" run.steps=$((n + 2)) log.file="$tmp/e"
ok "to where one comes that never stopped" run "${f[@]}" run.steps=$((n + 2)) log.file="$tmp/g" \
    checkpoint.dir=
ok "bit for bit" same "$tmp/e" "$tmp/g"

refused ()
{
    run "${f[@]}" "${@:2}"
    [ $? = 2 ] && grep -q "$1" "$tmp/out"
}
ok "a batch of no whole groups" refused 'no multiple of num_generations' data.batch=21
ok "checkpoints in mid-cycle" refused 'lie between cycles' checkpoint.every=3
ok "a sharded policy" refused 'whole weights' shard.strategy=full
ok "an end that the vocabulary lacks" refused 'is below 257' model.vocab=256
plan
