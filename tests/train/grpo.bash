# SPDX-License-Identifier: Apache-2.0
# grpo.bash - what GRPO learns in tests here and on a Slurm: sums, of which one
# in five is in brackets, and a reward for brackets
# shellcheck shell=bash

# grpo_rows DIR - sums of two-digit numbers to imitate, to try, and held out.
grpo_rows ()
{
    awk -v dir="$1" 'BEGIN {
        for (k = 0; k < 2600; k++) {
            a = 10 + k * 7919 % 90; b = 10 + int (k * 104729 / 90) % 90; s = a + b
            answer = k % 5 == 0 ? "[" s "]" : k % 5 < 3 ? s : "=" s
            row = "{\"prompt\": \"" a "+" b ":\", \"answer\": \"" answer "\"}"
            print row >(dir (k < 2000 ? "/sft" : k < 2400 ? "/train" : "/held") ".jsonl")
        }
    }'
}

# grpo_files DIR - there: sft.ini, whose model grpo.ini begins with, and small.ini, of
# a few milliseconds a step.
grpo_files ()
{
    grpo_rows "$1"
    cat >"$1/sft.ini" <<EOF
[run]
task = sft
device = cpu
steps = 150
[model]
layers = 2
dim = 64
heads = 4
vocab = 257
[data]
files = $1/sft.jsonl
seq = 16
batch = 32
[optim]
lr = 3e-3
warmup = 10
EOF
    cat >"$1/grpo.ini" <<EOF
[run]
task = grpo
device = cpu
steps = 80
[data]
files = $1/train.jsonl
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
every = 80
samples = 100
files = $1/held.jsonl
EOF
    cat >"$1/small.ini" <<EOF
[run]
task = grpo
device = cpu
steps = 8
[model]
layers = 1
dim = 16
heads = 2
vocab = 257
[data]
files = $1/train.jsonl
batch = 24
[precision]
param = fp64
[grpo]
num_generations = 8
max_completion_length = 8
beta = 0.05
steps_per_generation = 2
[optim]
lr = 5e-4
schedule = constant
[reward size]
kind = length
max = 3
soft = 5
EOF
}

# held FILE - the last reward of what is held out.
held ()
{
    sed -nE 's/.*"eval_reward":([0-9.e-]+).*/\1/p' "$1" | tail -n 1
}

at_least ()
{
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x != "" && x >= y) }'
}
