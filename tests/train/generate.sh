#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate.sh - rv-train generate: a checkpoint that has learnt one text says it
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

text=$tmp/abc.txt
for ((i = 0; i < 200; i++)); do printf 'abcdefghijklmnopqrstuvwxyz.\n'; done >"$text"
small "$tmp/g.ini" '[checkpoint]' "dir = $tmp/ckpt" 'every = 60'

gen ()
{
    timeout 60 "$train" generate "$@" >"$tmp/out" 2>"$tmp/errors"
}

# says TEXT ARG... - does it print this, and nothing else?
says ()
{
    local want=$1
    shift
    gen "$@" && [ "$(cat "$tmp/out")" = "$want" ]
}

# refused STATUS PATTERN ARG...
refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    gen "$@"
    rc=$?
    cat "$tmp/errors" >>"$tmp/out"
    [ $rc = "$want" ] && [ "$(wc -l <"$tmp/errors")" = 1 ] && grep -Eq -- "$pattern" "$tmp/errors"
}

ok "a model learns a text" run "$tmp/g.ini" run.steps=60
ok "the folder's latest checkpoint goes on" says "fghijklm" --max 8 "$tmp/ckpt" "abcde"
ok "which keeps its type" refused 2 "dtype is of a directory's weights: checkpoint .*step-00000060 keeps its own; rv-train export --dtype" \
    --dtype bf16 "$tmp/ckpt" abcde
ok "a name of a hub is no folder" refused 3 "Qwen/Qwen3-0.6B is no folder; name one that is there" Qwen/Qwen3-0.6B abcde
ok "so does the checkpoint itself" says "fghijklm" --max 8 "$tmp/ckpt/step-00000060" "abcde"
printf abcde >"$tmp/prompt"
ok "a prompt from a file" says "fghijklm" --max 8 --file "$tmp/prompt" "$tmp/ckpt"
ok "a stop string, not shown, whose beginnings are" says "fghij" --max 20 --stop hx --stop kl "$tmp/ckpt" "abcde"
ok "a stop id, not shown" says "fg" --max 20 --stop-id 104 "$tmp/ckpt" "abcde"
# The letters' ids are those of their bytes, and k's is a token that no text shows.
{
    printf '{"model":{"type":"BPE","merges":[],"vocab":{'
    for letter in a b c d e f g h i j l; do printf '"%s":%d,' $letter "'$letter"; done
    printf '"m":109}},"added_tokens":[{"id":107,"content":"<|k|>","special":true}],'
    printf '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"}}'
} >"$tmp/k.json"
ok "a token that no text shows, skipped" says "fghijlm" --max 8 --tokenizer "$tmp/k.json" "$tmp/ckpt" abcde
ok "or as a stop string" says "fghij" --max 8 --tokenizer "$tmp/k.json" --stop nope --stop '<|k|>' "$tmp/ckpt" abcde
by_id ()
{
    gen --json --max 8 --tokenizer "$tmp/k.json" --stop '<|k|>' "$tmp/ckpt" abcde &&
        tail -n 1 "$tmp/out" | grep -qx '{"schema":"rv.generate/1","text":0,"id":107,"piece":"","end":"id"}'
}
ok "which is said to be an id" by_id
# A prompt as a user's message: what the same text says that is written out.
{
    printf '{"model":{"type":"BPE","merges":[],"vocab":{"\304\212":10,".":46'
    for letter in {a..z}; do printf ',"%s":%d' "$letter" "'$letter"; done
    printf '}},"added_tokens":[{"id":1,"content":"<|im_start|>","special":true},{"id":2,"content":"<|im_end|>","special":true}],'
    printf '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"}}'
} >"$tmp/chat.json"
c=(--json --max 40 --temperature 3 --top-k 3 --ignore-eos --tokenizer "$tmp/chat.json")
# same_ids PROMPT ARG... - as those of the prompt, with the options
same_ids ()
{
    gen "${c[@]}" "$tmp/ckpt" "$1" && mv "$tmp/out" "$tmp/want" && gen "${c[@]}" "${@:2}" && cmp "$tmp/want" "$tmp/out"
}
ok "a prompt as a user's message" same_ids $'<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n' --template chatml "$tmp/ckpt" abc
cp "$tmp/want" "$tmp/bare"
ok "behind a system message" same_ids $'<|im_start|>system\nxyz<|im_end|>\n<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n' \
    --template chatml --system xyz "$tmp/ckpt" abc
ok "which is another text" test "$(cat "$tmp/want")" != "$(cat "$tmp/bare")"
ok "a template that the tokenizer does not know" refused 2 "llama3 ends texts with '<.eot_id.>', which is no token" "${c[@]}" --template llama3 "$tmp/ckpt" abc
of_bytes ()
{
    local c=(--json --max 40 --temperature 3 --top-k 3 --ignore-eos --tokenizer bytes)
    same_ids $'<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n' --template chatml "$tmp/ckpt" abc
}
ok "nor need bytes know it, whose end is their own" of_bytes
ok "a system message without one" refused 2 "system needs a --template" "${c[@]}" --system xyz "$tmp/ckpt" abc
ok "a model of tokens" run "$tmp/g.ini" run.steps=2 model.vocab=600 checkpoint.dir="$tmp/many"
ok "is not asked in bytes" refused 2 "many/step-00000002 has no tokenizer.json, and its vocabulary of 600 is not that of bytes; --tokenizer" "$tmp/many" abc
ok "unless they are meant" gen --tokenizer bytes "$tmp/many" abc
lines ()
{
    gen --json --max 3 --at-once 1 "$tmp/ckpt" "abcde" "bcdefghi" || return 1
    cat >"$tmp/want" <<'EOF'
{"schema":"rv.generate/1","text":0,"id":102,"piece":"f","end":null}
{"schema":"rv.generate/1","text":0,"id":103,"piece":"g","end":null}
{"schema":"rv.generate/1","text":0,"id":104,"piece":"h","end":"length"}
{"schema":"rv.generate/1","text":1,"id":106,"piece":"j","end":null}
{"schema":"rv.generate/1","text":1,"id":107,"piece":"k","end":null}
{"schema":"rv.generate/1","text":1,"id":108,"piece":"l","end":"length"}
EOF
    cmp "$tmp/want" "$tmp/out"
}
ok "--json has a line for each token of each text" lines
# As the programs of Slurm's tests are: by jsonschema, where it is.
schema ()
{
    local line n=0
    while read -r line; do
        n=$((n + 1))
        printf '%s' "$line" >"$tmp/line.$n"
    done <"$tmp/want"
    /usr/bin/python3 "$top_srcdir/tests/slurm/validate.py" "$top_srcdir/etc/schema" "$tmp"/line.* >"$tmp/out" 2>&1
}
if /usr/bin/python3 -c 'import jsonschema' 2>/dev/null; then
    ok "each line obeys its schema" schema
else
    count=$((count + 1))
    echo "ok $count - each line obeys its schema # SKIP no jsonschema of Python"
fi
seeds ()
{
    gen --temperature 3 --seed 5 --max 30 "$tmp/ckpt" abc && cp "$tmp/out" "$tmp/first" &&
        gen --temperature 3 --seed 5 --max 30 "$tmp/ckpt" abc && cmp "$tmp/out" "$tmp/first" &&
        gen --temperature 3 --seed 6 --max 30 "$tmp/ckpt" abc && ! cmp -s "$tmp/out" "$tmp/first"
}
ok "a seed gives its text again, another another" seeds
beyond ()
{
    gen --max "$1" "$tmp/ckpt" abcde && [ "$(grep -c "$2" "$tmp/errors")" = "$3" ]
}
ok "a text behind the model's 32 positions is said, once" beyond 40 'rv-train: --max makes texts of up to 33 tokens; .* knows 32 positions' 1
ok "one up to them is not" beyond 27 positions 0
ok "no model" refused 2 "no model"
ok "a model that is not there" refused 3 "none" "$tmp/none" abc
ok "no prompt" refused 2 "give prompts" "$tmp/ckpt"
ok "an option that is none" refused 2 "'--tmperature' is no option" --tmperature 1 "$tmp/ckpt" abc
ok "a value that is none" refused 2 "top-k 'x'" --top-k x "$tmp/ckpt" abc
ok "a chance above 1" refused 2 "top_p 1.5" --top-p 1.5 "$tmp/ckpt" abc
ok "an empty prompt" refused 2 "at least 1 is needed" "$tmp/ckpt" ""
ok "several prompts without --json" refused 2 "need --json" "$tmp/ckpt" a b
plan
