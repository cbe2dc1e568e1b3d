#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# eval.sh - the loss of text that is not trained on: when, of what, the same on
# any number of ranks
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/e.ini
small "$i" '[log]' 'every = 4'

# evals FILE - the steps that were evaluated, and the losses.
evals ()
{
    sed -nE 's/^[{]"step":([0-9]+),.*,"eval_loss":([0-9].*)[}]$/\1 \2/p' "$1"
}

ok "every fifth step" run "$i" eval.every=5 "log.file=$tmp/m"
ok "says what is held out" grep -q '^eval: every 5 steps, 64 samples of 32 tokens, held out$' "$tmp/out"
ok "which [data] lacks then" grep -q '^data: .* 290 samples of 32 tokens$' "$tmp/out"
ok "so, and after the last" test "$(evals "$tmp/m" | cut -d' ' -f1 | xargs)" = "5 10 12"
ok "it falls" awk 'NR == 1 { first = $2 } END { exit !($2 < first && $2 > 2 && first < 5.7) }' <(evals "$tmp/m")
ok "it stands in the line of its step" \
    grep -Eq "^step 10/12 .* eval $(printf %.4f "$(evals "$tmp/m" | sed -n 's/^10 //p')")\$" "$tmp/out"
ok "other steps have null" test "$(grep -c '"eval_loss":null}$' "$tmp/m")" = 9

# Text of its own: what is trained is what it was.
ok "without" run "$i" "log.file=$tmp/none"
ok "files of their own" run "$i" eval.every=3 "eval.files=$top_srcdir/NEWS" eval.samples=10 "log.file=$tmp/own"
ok "the same training" cmp <(losses "$tmp/none") <(losses "$tmp/own")
ok "all of the files" run "$i" eval.every=3 "eval.files=$top_srcdir/NEWS" "log.file=$tmp/own"
ok "says how many" grep -Eq '^eval: every 3 steps, [0-9]{3,} samples of 32 tokens of other files$' "$tmp/out"

# So small a rate leaves the weights: then only the number of ranks is another.
still=(run.steps=2 eval.every=1 eval.samples=7 optim.lr=1e-300)
ok "one rank" run "$i" "${still[@]}" "log.file=$tmp/one"
for strategy in no_shard ddp grad_op full; do
    for world in "2 1" "3 1"; do
        # shellcheck disable=SC2086
        ok "$strategy, $world" ranks "$(yes 0 | head -n "${world% *}" | xargs)" $world "$i" \
            "${still[@]}" "shard.strategy=$strategy" "log.file=$tmp/many"
        ok "the same bits" cmp <(evals "$tmp/one") <(evals "$tmp/many")
    done
done
ok "two evaluations" test "$(evals "$tmp/many" | wc -l)" = 2
ok "passes of three" ranks "0 0" 2 1 "$i" "${still[@]}" data.micro_batch=3 shard.strategy=full "log.file=$tmp/many"
near_evals ()
{
    paste <(evals "$1") <(evals "$2") |
        awk '{ d = $2 - $4; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || NR != 2 }'
}
ok "the same loss within 1e-5" near_evals "$tmp/one" "$tmp/many"

# Stopped and gone on, with the same samples held out.
half=("$i" eval.every=2 optim.schedule=constant)
ok "whole" run "${half[@]}" "log.file=$tmp/w"
ok "half" run "${half[@]}" run.steps=6 "checkpoint.dir=$tmp/ck" "log.file=$tmp/h"
ok "rest" run "${half[@]}" "checkpoint.dir=$tmp/ck" "log.file=$tmp/h"
ok "the same evaluations" cmp <(evals "$tmp/w") <(evals "$tmp/h")
run "${half[@]}" eval.samples=9 run.steps=13 "checkpoint.dir=$tmp/ck"
ok "other samples held out are another run" test $? = 2
plan
