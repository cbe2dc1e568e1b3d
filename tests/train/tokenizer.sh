#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tokenizer.sh - text by a tokenizer.json trains as the tokens that rv-train
# tokenize makes of it
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# ASCII, three merges, two tokens that may end a text.
json=$tmp/tokenizer.json
small_tokenizer "$json"
printf "the thing in the middle\n%.0s" {1..40} >"$tmp/second"
printf "then nothing is inside\n%.0s" {1..30} >"$tmp/first"
texts=("$tmp/first" "$tmp/second")
with=(data.tokenizer="$json" "data.end=</s>" data.files="${texts[0]}, ${texts[1]}")

# refused STATUS PATTERN ARG...
refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    run "$@"
    rc=$?
    [ $rc = "$want" ] && grep -Eq -- "$pattern" "$tmp/out"
}

small "$tmp/s.ini"
run tokenize --tokenizer "$json" --end '</s>' "$tmp/text.tokens" "${texts[@]}" || cat "$tmp/out"
vocab=$(sed -nE 's/.*vocabulary ([0-9]+)$/\1/p' "$tmp/out")
ok "tokens of the tokenizer" test "$vocab" = 101
run "$tmp/s.ini" model.vocab=300 data.files="$tmp/text.tokens" log.file="$tmp/a.jsonl" || cat "$tmp/out"
ok "text by a tokenizer" run "$tmp/s.ini" model.vocab=300 "${with[@]}" log.file="$tmp/b.jsonl"
ok "the same losses as the file of its tokens has" cmp -s <(losses "$tmp/a.jsonl") <(losses "$tmp/b.jsonl")
ok "losses are there" test "$(losses "$tmp/b.jsonl" | wc -l)" = 12
run "$tmp/s.ini" model.vocab=300 "${with[@]}" log.file="$tmp/c.jsonl" "data.end=<s>"
ok "another end is another text" bash -c '! cmp -s "$0" "$1"' <(losses "$tmp/b.jsonl") <(losses "$tmp/c.jsonl")
ok "rows of documents" run "$tmp/s.ini" model.vocab=300 "${with[@]}" data.documents=on
ok "a vocabulary that is too small" refused 2 "model.vocab=100: 100 is below 101" "$tmp/s.ini" "${with[@]}" model.vocab=100
ok "an end that is no token" refused 2 "end 'nothing' is no token of" "$tmp/s.ini" "${with[@]}" model.vocab=300 data.end=nothing
ok "a tokenizer that is not there" refused 3 "no-such.json" "$tmp/s.ini" model.vocab=300 data.tokenizer="$tmp/no-such.json"
ok "tokens are not read by one" refused 2 "has tokens, which tokenizer .* cannot read" \
    "$tmp/s.ini" model.vocab=300 data.files="$tmp/text.tokens" data.tokenizer="$json"
plan
