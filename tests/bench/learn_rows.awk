# SPDX-License-Identifier: Apache-2.0
# learn_rows.awk - sums and differences of numbers of so many digits, no two alike:
# awk -v digits=3 -v sft=60000 -v train=20000 -v held=1000 -f learn_rows.awk, into
# sft.jsonl, train.jsonl and held.jsonl of the folder that it runs in.
BEGIN {
    low = 10 ^ (digits - 1)
    n = 9 * low
    all = n * n # pairs; k -> k * step + 17 reaches each of them once
    step = int(all * 0.6180339887)
    while (common(step, all) != 1)
        step++
    p = 17
    for (k = 0; k < sft + train + held; k++) {
        p = (p + step) % all
        a = low + int(p / n)
        b = low + p % n
        op = (a + b) % 2 ? "-" : "+"
        row = "{\"prompt\": \"" a op b "=\", \"answer\": \"" (op == "+" ? a + b : a - b) "\"}"
        print row > ((k < held ? "held" : k < held + train ? "train" : "sft") ".jsonl")
    }
}

function common(x, y,   z)
{
    while (y) {
        z = x % y
        x = y
        y = z
    }
    return x
}
