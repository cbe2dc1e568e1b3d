#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# files.sh - rv-train ckpt lists and verifies, tokenize makes what trains alike
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/f.ini
small "$i"
ok "a run with a checkpoint" run "$i" "checkpoint.dir=$tmp/ck" "log.file=$tmp/m"
list () # list ARG... - of rv-train ckpt, its output in $tmp/list
{
    "$train" ckpt "$@" >"$tmp/list" 2>&1
}
ok "shows the latest" list show "$tmp/ck"
ok "step, ranks, strategy" grep -Eq '/step-00000012: step 12, 1 rank, [a-z_]+, device cpu, libtrain ' "$tmp/list"
ok "its state" grep -q '^  position = 96$' "$tmp/list"
ok "tensors" grep -Eq '^F32 +[0-9]+ +1  \[256,16\] +model\.embed_tokens\.weight$' "$tmp/list"
ok "a file by itself" list show "$tmp/ck/step-00000012/model.safetensors"
ok "verifies all" list verify "$tmp/ck"
ok "says so" grep -Eq '^ +12 +1  no_shard .* good, latest$' "$tmp/list"
many=("checkpoint.dir=$tmp/many" checkpoint.every=2 checkpoint.keep=9 "log.file=$tmp/m4")
ok "six of a folder" run "$i" "${many[@]}"
printf '\001' | dd of="$tmp/many/step-00000010/optim.safetensors" bs=1 seek=3000 conv=notrunc 2>/dev/null
rm "$tmp/many/step-00000002/optim.safetensors"
ok "list as JSON" list list --json "$tmp/many"
ok "is rv.ckpt/1" grep -q '^{"schema":"rv.ckpt/1","action":"list","checkpoints":\[{' "$tmp/list"
schema () # what jsonschema says of $tmp/list
{
    cp "$tmp/list" "$tmp/line.json"
    /usr/bin/python3 "$top_srcdir/tests/slurm/validate.py" "$top_srcdir/etc/schema" "$tmp/line.json" >"$tmp/out" 2>&1
}
if /usr/bin/python3 -c 'import jsonschema' 2>/dev/null; then
    ok "by its schema" schema
    list show --json "$tmp/ck"
    ok "and so is show" schema
fi
"$train" ckpt list --json "$tmp/nowhere" >"$tmp/list" 2>/dev/null
ok "a path that is not there is 3" test $? = 3
ok "and rv.error/1" grep -q '^{"schema":"rv.error/1","status":3,"message":".*nowhere' "$tmp/list"
list list --json "$tmp/many"
ok "with a missing file" grep -q '"damage":"[^"]*step-00000002/optim.safetensors' "$tmp/list"
list verify "$tmp/many"
ok "verify is 3" test $? = 3
ok "names the first" grep -q "step-00000010/optim.safetensors: tensor '.*' does not match its checksum" "$tmp/list"
ok "the others are good" test "$(grep -c ' good' "$tmp/list")" = 4
list prune --keep 2 "$tmp/many"
ok "two good ones stay, and what is damaged" \
    test "$(cd "$tmp/many" && echo step-*)" = "step-00000002 step-00000008 step-00000010 step-00000012"
list prune "$tmp/many"
ok "prune without --keep is 2" test $? = 2
printf '\001' | dd of="$tmp/ck/step-00000012/optim.safetensors" bs=1 seek=3000 conv=notrunc 2>/dev/null
list verify "$tmp/ck/step-00000012"
ok "a changed byte is 3" test $? = 3
ok "and its file is named" grep -q "step-00000012/optim.safetensors: tensor '.*' does not match its checksum" "$tmp/list"
list verify "$tmp/none"
ok "nothing there is 3" test $? = 3
list list
ok "without a name it is 2" test $? = 2

# Tokens of one file are the file's bytes, and a token that ends it: the first
# samples, and so the first losses, are alike.
files=$(sed -nE 's/^files *= *//p' "$i")
# shellcheck disable=SC2086
first=$(ls ${files//,/ } | head -n 1)
for n in 1 2 3 4 5; do
    cat "$first"
done >"$tmp/text.txt"
"$train" tokenize "$tmp/t.bin" "$tmp/text.txt" >"$tmp/list" 2>&1
ok "tokenize" grep -q ' tokens of 2 bytes, 1 documents, vocabulary 257$' "$tmp/list"
ok "sizes" test "$(stat -c %s "$tmp/t.bin")" = $((64 + 2 * ($(stat -c %s "$tmp/text.txt") + 1)))
many=(model.vocab=257 data.shuffle=off)
ok "from text" run "$i" "data.files=$tmp/text.txt" "log.file=$tmp/a" "${many[@]}"
ok "from tokens" run "$i" "data.files=$tmp/t.bin" "log.file=$tmp/b" "${many[@]}"
losses "$tmp/a" >"$tmp/a.l"
losses "$tmp/b" >"$tmp/b.l"
run "$i" "data.files=$tmp/t.bin" model.vocab=256
ok "a vocabulary that lacks tokens is 2" test $? = 2
ok "and is named" grep -q "model.vocab=256.*257" "$tmp/out"
ok "the same losses" cmp "$tmp/a.l" "$tmp/b.l"
ok "of twelve steps" test "$(wc -l <"$tmp/a.l")" = 12
# A damaged file of tokens: its sum is of another, and what is no token ends a
# step or an evaluation that meets it.
ok "check of a good one" run check "$i" "data.files=$tmp/t.bin" model.vocab=257
cp "$tmp/t.bin" "$tmp/x.bin"
printf '\377\377' | dd of="$tmp/x.bin" bs=1 seek=$((64 + 2 * 40)) conv=notrunc 2>/dev/null
run check "$i" "data.files=$tmp/x.bin" model.vocab=257
ok "a damaged file of tokens is 3 for check" test $? = 3
ok "and named" grep -q "$tmp/x.bin does not match its checksum" "$tmp/out"
run "$i" "data.files=$tmp/x.bin" "${many[@]}"
ok "and for a run" test $? = 3
ok "and named, with the place" grep -q "$tmp/x.bin: token 40 is 65535, and its vocabulary 257; .* rv-train tokenize" "$tmp/out"
run "$i" "data.files=$tmp/t.bin" "${many[@]}" eval.every=2 "eval.files=$tmp/x.bin"
ok "and for an evaluation" test $? = 3
ok "and named" grep -q "$tmp/x.bin: token 40 is 65535" "$tmp/out"
"$train" tokenize "$tmp/u.bin" "$tmp/nowhere" >"$tmp/list" 2>&1
ok "no such text is 3" test $? = 3
ok "and nothing is left" test ! -e "$tmp/u.bin"
cat >"$tmp/tokenizer.json" <<'EOF'
{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE",
"dropout":null,"unk_token":"c","continuing_subword_prefix":null,"end_of_word_suffix":null,
"fuse_unk":false,"byte_fallback":false,"vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":["a b"]}}
EOF
printf abcab >"$tmp/abc"
"$train" tokenize --tokenizer "$tmp/tokenizer.json" --end c "$tmp/v.bin" "$tmp/abc" "$tmp/abc" >"$tmp/list" 2>&1
ok "by a tokenizer.json" test $? = 0
ok "its ids" test "$(od -An -v -tu2 -j64 "$tmp/v.bin" | xargs)" = "2 3 2 3 2 3 2 3"
"$train" tokenize --tokenizer "$tmp/tokenizer.json" --end z "$tmp/w.bin" "$tmp/abc" >"$tmp/list" 2>&1
ok "an end that is no token is 2" test $? = 2

# Of one rank, and of three with shards.
ok "one rank" run "$i" "checkpoint.dir=$tmp/one" "log.file=$tmp/m1"
mkdir "$tmp/model"
cp "$tmp/tokenizer.json" "$tmp/model/"
echo '{}' >"$tmp/model/tokenizer_config.json"
echo no >"$tmp/model/notes"
"$train" export --dtype bf16 --tokenizer "$tmp/model" "$tmp/one" "$tmp/hf" >"$tmp/list" 2>&1
ok "export" test $? = 0 -a -s "$tmp/hf/config.json"
ok "with the tokenizer's files" cmp -s "$tmp/tokenizer.json" "$tmp/hf/tokenizer.json"
ok "and those alone" test -e "$tmp/hf/tokenizer_config.json" -a ! -e "$tmp/hf/notes"
ok "says so" grep -q ": 2 files of the tokenizer in $tmp/model$" "$tmp/list"
"$train" export --tokenizer "$tmp/three.none" "$tmp/one" "$tmp/hf0" >"$tmp/list" 2>&1
ok "none there is 3" test $? = 3
ok "and nothing is written" test ! -e "$tmp/hf0"
ok "with what would work" grep -q -- '--tokenizer: .*three.none has no tokenizer.json and .* works$' "$tmp/list"
# What ends a text, by the tokenizer's files: its name, as text or with it, and its id
# in the vocabulary or among what was added; a model's own word for it goes first.
ends () # NAME WANT FILE JSON... - is that eos_token_id, with these files?
{
    local want=$2 dir=$tmp/end.$1
    mkdir -p "$dir"
    cp "$tmp/tokenizer.json" "$dir/"
    shift 2
    while [ $# -gt 0 ]; do
        echo "$2" >"$dir/$1"
        shift 2
    done
    "$train" export --tokenizer "$dir" "$tmp/one" "$dir.out" >"$tmp/list" 2>&1 || return 1
    [ "$(tr -d ' \n' <"$dir.out/config.json" | sed -E 's/.*"eos_token_id":(\[[^]]*\]|[^,}]*).*/\1/')" = "$want" ]
}
ok "no end is known" ends none null tokenizer_config.json '{}'
ok "an end of the vocabulary" ends vocab 3 tokenizer_config.json '{"eos_token": "c"}'
ok "in an object" ends object 3 tokenizer_config.json '{"eos_token": {"content": "c", "lstrip": false}}'
ok "in the map" ends map 3 special_tokens_map.json '{"eos_token": {"content": "c"}}'
ok "that was added" ends added 7 tokenizer_config.json '{"eos_token": "<end>", "added_tokens_decoder": {"7": {"content": "<end>"}}}'
ok "no token" ends lost null tokenizer_config.json '{"eos_token": "<end>"}'
ok "several" ends several '[2,3]' tokenizer_config.json '{"eos_token": "a"}' generation_config.json '{"eos_token_id": [2, 3]}'
ok "of a model whose generation_config.json has none" ends gen 5 generation_config.json '{"top_k": 4}' config.json '{"eos_token_id": 5}'
ok "which gets it, too" grep -q '"eos_token_id": 5' "$tmp/end.gen.out/generation_config.json"
ends other 5000 config.json '{"eos_token_id": 5000}'
ok "another model's is refused" grep -q 'end.other: the token that ends a text is 5000, and the model has 256: ' "$tmp/list"
ok "before anything is written" test ! -e "$tmp/end.other.out"
ok "as bf16" grep -q bfloat16 "$tmp/hf/config.json"
ok "in bf16" bash -c '"$0" ckpt show "$1" | grep -q "^BF16 .*model.embed_tokens.weight"' "$train" "$tmp/hf/model.safetensors"
"$train" export --dtype bf16 "$tmp/one" "$tmp/one/step-00000012" >"$tmp/list" 2>&1
ok "onto a checkpoint is 2" test $? = 2
ok "and why" grep -q "one/step-00000012 holds checkpoints, which it would damage; another directory works" "$tmp/list"
"$train" export "$tmp/one" "$tmp/one" >"$tmp/list" 2>&1
ok "and so is among them" test $? = 2 -a ! -e "$tmp/one/config.json"
ok "which stay good" list verify "$tmp/one"
ok "shards" ranks "0 0 0" 3 1 "$i" shard.strategy=full "checkpoint.dir=$tmp/three" "log.file=$tmp/m3" run.steps=2
"$train" export --dtype fp64 "$tmp/three" "$tmp/hf3" >"$tmp/list" 2>&1
ok "of three" test $? = 0
ok "whole tensors" test "$(stat -c %s "$tmp/hf3/model.safetensors")" -gt 8000
printf '\001' | dd of="$tmp/one/step-00000012/model.safetensors" bs=1 seek=3000 conv=notrunc 2>/dev/null
"$train" export "$tmp/one" "$tmp/abc" >"$tmp/list" 2>&1
ok "onto a file is 2" test $? = 2
ok "and why" grep -q 'abc is a file; a directory is made or filled$' "$tmp/list"
"$train" tokenize "$tmp/late.bin" "$tmp/abc" --tokenizer "$tmp/tokenizer.json" >"$tmp/list" 2>&1
ok "an option behind the files is 2" test $? = 2
ok "and why" grep -q "'--tokenizer' stands behind the files; options go before them" "$tmp/list"
ok "and writes nothing" test ! -e "$tmp/late.bin"
"$train" export "$tmp/one" "$tmp/no" >"$tmp/list" 2>&1
ok "a damaged one is 3" test $? = 3 -a ! -e "$tmp/no"
ok "and named" grep -q "model.safetensors" "$tmp/list"
plan
