#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# grpo.sh - task = grpo: a policy that mostly gives bare sums learns to put them
# in brackets, which prompts that are held out show; with shuffled advantages it
# does not. Ranks change nothing, a run that was stopped goes on bit for bit, and
# one whose reward's program fails at some completions says so and goes on.
: "${top_srcdir:?}"
seeds=${RV_TEST_SEEDS:-1 2 3} # fewer for builds that are slow
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# shellcheck source=tests/train/grpo.bash
. "$top_srcdir/tests/train/grpo.bash"
grpo_files "$tmp"

# lines N PATTERN FILE - has it so many lines like this?
lines ()
{
    [ "$(grep -cE -- "$2" "$3")" = "$1" ]
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

for seed in $seeds; do
    learn "$seed"
done
ok "without a reference there is no kl" lines 80 '"kl":null,' "$tmp/one-1"
ok "generate ends where an answer does" run generate --max 40 "$tmp/sft-1" "12+30:"
ok "which it has learnt" grep -qxE '(\[|=)?[0-9]+\]?' "$tmp/out"
ok "completions are lines of JSON" python3 - "$tmp/said-1" <<'EOF'
import json, re, sys
rows = [json.loads (line) for line in open (sys.argv[1])]
assert len (rows) == 80 * 8
for r in rows:
    assert r["rewards"]["form"] == bool (re.fullmatch (r"\[[0-9]+\]", r["completion"])), r
    assert re.fullmatch (r"[0-9]+\+[0-9]+:", r["prompt"])
EOF

# A model of nothing, so that fp64 and several ranks are quick.
f=("$tmp/small.ini")
ok "one rank" run "${f[@]}" log.file="$tmp/a"
ok "three ranks" ranks "0 0 0" 3 1 "${f[@]}" log.file="$tmp/b"
ok "have one's losses" near "$tmp/a" "$tmp/b" 1e-6 8
ok "four ranks on two nodes, in small passes" ranks "0 0 0 0" 4 2 "${f[@]}" log.file="$tmp/c" \
    data.micro_batch=2 shard.strategy=ddp
ok "have them, too" near "$tmp/a" "$tmp/c" 1e-6 8
for s in grad_op full; do
    ok "three ranks of $s" ranks "0 0 0" 3 1 "${f[@]}" log.file="$tmp/c" shard.strategy=$s
    ok "have them" near "$tmp/a" "$tmp/c" 1e-6 8
done
ok "the reference is in parts" grep -q 'reference a part a rank$' "$tmp/out"
ok "the policy is whole" grep -q '^gather: whole, once a cycle$' "$tmp/out"
ok "or comes by units" ranks "0 0 0" 3 1 "${f[@]}" log.file="$tmp/u" shard.strategy=full grpo.gather=unit
ok "as it says" grep -q '^gather: by units$' "$tmp/out"
ok "with the same losses" near "$tmp/c" "$tmp/u" 0 8
l=(model.lora_rank=2 optim.lr=0.02)
ok "adapters" run "${f[@]}" "${l[@]}" log.file="$tmp/m"
ok "have the policy itself as the reference" grep -q 'reference the policy without adapters$' "$tmp/out"
ok "which they leave" grep -q '"step":8,.*"kl":[0-9.]*[1-9]' "$tmp/m"
ok "a copy of it" run "${f[@]}" "${l[@]}" log.file="$tmp/c" reference.shard=off
ok "is the same" near "$tmp/m" "$tmp/c" 1e-6 8
ok "three ranks of full" ranks "0 0 0" 3 1 "${f[@]}" "${l[@]}" log.file="$tmp/c" shard.strategy=full
ok "have theirs" near "$tmp/m" "$tmp/c" 1e-6 8
ok "two, whose reference is in parts" ranks "0 0" 2 1 "${f[@]}" "${l[@]}" log.file="$tmp/c" reference.shard=on
ok "have theirs, too" near "$tmp/m" "$tmp/c" 1e-6 8
ok "so it is with a whole policy" ranks "0 0" 2 1 "${f[@]}" log.file="$tmp/c" reference.shard=on
ok "have them, as well" near "$tmp/a" "$tmp/c" 1e-6 8

# Three completions: two of five ranks write, score and train nothing, and take part.
e=("${f[@]}" run.steps=6 data.batch=3 grpo.num_generations=3)
ok "a step of one group" run "${e[@]}" log.file="$tmp/few"
for s in no_shard ddp grad_op full; do
    ok "on five ranks of $s" ranks "0 0 0 0 0" 5 1 "${e[@]}" log.file="$tmp/c" shard.strategy=$s
    ok "has its losses" near "$tmp/few" "$tmp/c" 1e-6 6
done
ok "and by units" ranks "0 0 0 0 0" 5 1 "${e[@]}" log.file="$tmp/c" shard.strategy=full grpo.gather=unit
ok "which has them, too" near "$tmp/few" "$tmp/c" 1e-6 6

same ()
{
    alike "$1" "$2" >"$tmp/out"
}

# Two ranks that end at each step of a cycle of four, and go on there
in_parts ()
{
    local k
    rm -rf "$tmp/ck"
    for k in 1 2 3 5 6 8 9; do
        ranks "0 0" 2 1 "$@" run.steps=$k checkpoint.dir="$tmp/ck" log.file="$tmp/r" || return
    done
    same "$tmp/w" "$tmp/r"
}
q=("${f[@]}" run.steps=9 grpo.num_iterations=2 grpo.correction=sequence_mask)
for s in no_shard full; do
    ok "a cycle of four steps by two ranks of $s" ranks "0 0" 2 1 "${q[@]}" shard.strategy=$s log.file="$tmp/w"
    ok "in seven parts has its bits" in_parts "${q[@]}" shard.strategy=$s
done
rm -rf "$tmp/ck"

# matters BASE SETTING - does a setting change what is learnt beside [base]?
matters ()
{
    run "${f[@]}" run.steps=3 log.file="$tmp/x" "$1" || return
    run "${f[@]}" run.steps=3 log.file="$tmp/y" "$1" "$2" || return
    ! same "$tmp/x" "$tmp/y"
}
ok "sapo_temperature_pos" matters grpo.loss_type=sapo grpo.sapo_temperature_pos=3
ok "sapo_temperature_neg" matters grpo.loss_type=sapo grpo.sapo_temperature_neg=3
ok "kl_gradient" matters grpo.kl=k1 grpo.kl_gradient=on
ok "off_policy_mask_threshold" matters optim.lr=0.05 grpo.off_policy_mask_threshold=0.01
ok "says how many it drops" grep -q '"dropped":[1-9]' "$tmp/y"

# What is sampled says how it ended; what is cut is not trained on.
s=("$tmp/grpo.ini" model.dir="$tmp/sft-1" run.steps=1 eval.samples=8
    grpo.completions_shown=999 grpo.mask_truncated_completions=on
    'grpo.stop=["=1", "]", "no"]' "grpo.stop_ids=57,52")
ok "texts and ids that stop" run "${s[@]}" log.file="$tmp/u" grpo.completions="$tmp/said-u"
ok "end completions there, which count" python3 - "$tmp/u" "$tmp/said-u" <<'EOF'
import json, re, sys
log = [json.loads (line) for line in open (sys.argv[1])]
rows = [json.loads (line) for line in open (sys.argv[2])]
tokens = texts = ids = 0
for r in rows:
    said, n = r["completion"], r["tokens"]
    text = re.search (r"=1|\]", said)
    assert not text or text.end () == len (said) == n and not r["cut"], r
    assert not re.search ("[49]", said), r
    assert text or r["cut"] == (n == 8 == len (said)), r
    tokens += 0 if r["cut"] else n
    texts += bool (text)
    ids += not text and not r["cut"]
assert len (rows) == 64 and texts >= 8 and ids >= 8, (texts, ids)
assert log[0]["tokens"] == tokens, (log, tokens)
EOF
ok "on two ranks, too" ranks "0 0" 2 1 "${s[@]}" log.file="$tmp/v" \
    grpo.completions="$tmp/said-v" grpo.batch_invariant=on
ok "the same completions" python3 - "$tmp/said-u" "$tmp/said-v" <<'EOF'
import json, sys
a, b = ([json.loads (line) for line in open (f)] for f in sys.argv[1:])
assert [r["completion"] for r in a] == [r["completion"] for r in b]
EOF
cp -r "$(echo "$tmp"/sft-1/step-*150)" "$tmp/eos"
echo '{"eos_token_id": [57, 52]}' >"$tmp/eos/generation_config.json"
ok "ids of the model's folder" run "${s[@]:0:1}" model.dir="$tmp/eos" "${s[@]:2:5}" \
    grpo.completions="$tmp/said-w"
ok "stop as well" cmp "$tmp/said-u" "$tmp/said-w"
checked ()
{
    run check "${s[@]}" "$@"
    [ $? = 2 ]
}
ok "rv-train check finds a stop that is none" checked 'grpo.stop=["a"'
ok "with its place" grep -q '^rv-train: .*grpo.stop=\["a": is neither' "$tmp/out"
ok "and a pattern" checked 'reward form.pattern=(['
ok "of that reward" grep -q "\[reward form\]: pattern '(\[': " "$tmp/out"
ok "else it tells" run check "${s[@]}"
ok "an override unsets a reward's key" run "${s[@]}" "reward form.pattern=" "reward form.kind=exact" log.file="$tmp/u"
ok "of two rewards, each by its group, the reward is their sum" run "${s[@]}" log.file="$tmp/gdpo" grpo.completions="$tmp/said-g" \
    "reward short.kind=length" "reward short.max=3" "reward short.weight=-0.5" grpo.multi_objective_aggregation=normalize_then_sum \
    grpo.mask_truncated_completions=off
ok "as it was given" python3 - "$tmp/gdpo" "$tmp/said-g" <<'EOF'
import json, statistics, sys
log = json.loads (open (sys.argv[1]).readline ())
rows = [r["rewards"] for r in map (json.loads, open (sys.argv[2]))]
sums = [r["form"] - r["short"] / 2 for r in rows]
for name in "form", "short":
    of = [r[name] for r in rows]
    assert statistics.stdev (of) > 0.1
    assert abs (log[f"rewards/{name}/mean"] - statistics.mean (of)) < 1e-6, log
    assert abs (log[f"rewards/{name}/std"] - statistics.stdev (of)) < 1e-6, log
assert len (sums) == 64 and statistics.stdev (sums) > 0.1
assert abs (log["reward"] - statistics.mean (sums)) < 1e-6, log
assert abs (log["reward_std"] - statistics.stdev (sums)) < 1e-6, log
EOF
for bad in 'stop=["a"' 'stop=[1]' 'stop=\n' 'stop="a' 'stop=""' 'stop_ids=x' stop_ids=70000 'stop_ids=1;2'; do
    run "${s[@]}" "grpo.$bad"
    ok "[grpo] $bad is refused" grep -q "grpo.*${bad%%=*}.*: [ih]a*s " "$tmp/out"
done

# A token that texts do not show, of a model without any other end: digits and it.
python3 - "$tmp/shy.json" <<'EOF'
import json, sys
signs = "0123456789+:"
json.dump ({"version": "1.0", "normalizer": None, "post_processor": None, "truncation": None,
    "padding": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
        "trim_offsets": True, "use_regex": False},
    "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
        "use_regex": False},
    "added_tokens": [{"id": len (signs), "content": "<|bye|>", "single_word": False,
        "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
    "model": {"type": "BPE", "dropout": None, "unk_token": None,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
        "byte_fallback": False, "ignore_merges": False,
        "vocab": {c: i for i, c in enumerate (signs)}, "merges": []}}, open (sys.argv[1], "w"))
EOF
t=("$tmp/small.ini" run.steps=2 data.tokenizer="$tmp/shy.json" model.vocab=13 grpo.completions_shown=999)
ends='nothing ends a completion but \[grpo\] max_completion_length'
ok "no end" run "${t[@]}" log.file="$tmp/x"
ok "is said" grep -q "^rv-train: $ends" "$tmp/out"
ok "and seen" lines 2 '"cut":(1\.0|0\.9999)' "$tmp/x"
ok "a special token as a stop text" run "${t[@]}" 'grpo.stop=["7", "<|bye|>"]' grpo.completions="$tmp/said-x"
ok "is one" bash -c '! grep -q "$0" "$1"' "$ends" "$tmp/out"
ok "which ends completions" python3 - "$tmp/said-x" <<'EOF'
import json, sys
rows = [json.loads (line) for line in open (sys.argv[1])]
shy = [r for r in rows if not r["cut"] and not r["completion"].endswith ("7")]
assert len (rows) == 48 and len (shy) >= 8, len (shy)
for r in rows:
    assert "7" not in r["completion"][:-1], r
    assert r["tokens"] == len (r["completion"]) + (r in shy), r
EOF
ok "by its id as well" run "${t[@]}" 'grpo.stop="7"' grpo.stop_ids=12 grpo.completions="$tmp/said-y"
ok "the same" cmp "$tmp/said-x" "$tmp/said-y"

# A program that ends at every sixth completion that it is asked about.
cat >"$tmp/fragile" <<'EOF'
#!/bin/bash
while IFS= read -r line; do
    [[ $line =~ \"id\":\ ?([0-9]+) ]] || exit 4
    id=${BASH_REMATCH[1]}
    ((id % 6 == 5)) && exit 3
    echo "{\"id\": $id, \"reward\": $((${#line} % 7))}"
done
EOF
chmod +x "$tmp/fragile"
sed -e '/^\[eval\]/,$d' -e '/^\[reward/,$d' "$tmp/grpo.ini" >"$tmp/fragile.ini"
printf '%s\n' '[reward fragile]' 'kind = program' "program = $tmp/fragile" >>"$tmp/fragile.ini"
p=("$tmp/fragile.ini" model.layers=1 model.dim=16 model.heads=2 model.vocab=257 run.steps=3
    data.batch=24 grpo.completions_shown=24)

why='\[reward fragile\]: N faults; the last: .*/fragile exited with status 3$'
ok "a program that ends at some completions: the run goes on" run "${p[@]}" log.file="$tmp/h" \
    grpo.completions="$tmp/said-h"
ok "it is said once a step" lines 3 "^rv-train: step [123]: ${why/N/4}" "$tmp/out"
ok "and in no other line" lines 3 'fault' "$tmp/out"
ok "it is counted" lines 3 \
    '"none":4,.*"reward_nothing":0,"reward_timeouts":0,"reward_crashes":4,"reward_garbage":0' "$tmp/h"
ok "they have no reward and are worth nothing" \
    lines 12 '"rewards":\{"fragile":null\},"advantage":0\.0\}' "$tmp/said-h"
ok "and the others have" lines 60 '"rewards":\{"fragile":[0-6]\.0\}' "$tmp/said-h"
ok "two ranks" ranks "0 0" 2 1 "${p[@]}" log.file="$tmp/i" grpo.completions="$tmp/said-i"
ok "each says what it saw" lines 6 \
    "^rv-train\[rank [01] on [^]]+\]: step [123]: ${why/N/2}" "$tmp/out"
ok "both are counted" lines 3 '"none":4,.*"reward_crashes":4,' "$tmp/i"
# Each process has numbers of its own: other completions lose theirs.
ok "what the reward is by itself leaves them out" python3 - "$tmp/h" "$tmp/said-h" "$tmp/i" "$tmp/said-i" <<'EOF'
import json, statistics, sys
for log, said in zip (sys.argv[1::2], sys.argv[2::2]):
    said = [json.loads (line) for line in open (said)]
    for m in map (json.loads, open (log)):
        of = [r["rewards"]["fragile"] for r in said if r["step"] == m["step"]]
        of = [x for x in of if x is not None]
        assert len (of) == 20
        assert abs (m["rewards/fragile/mean"] - statistics.mean (of)) < 1e-6, m
        assert abs (m["rewards/fragile/std"] - statistics.stdev (of)) < 1e-6, m
EOF
sed -i -e "s|^program = .*|program = false|" -e '$a max_faults = 5' "$tmp/fragile.ini"
run "${p[@]}"
ok "one that always ends is an error" test $? != 0
ok "of its name" lines 1 'ini: \[reward fragile\]: 5 faults in a row \(max_faults\); the last: false exited with status 1$' "$tmp/out"
sed -i -e "s|^max_faults = .*|max_faults = 1000|" "$tmp/fragile.ini"
ok "unless none is too many" run "${p[@]}" log.file="$tmp/n"
ok "no reward is null" lines 3 '"reward":null,"reward_std":null,.*"rewards/fragile/mean":null,"rewards/fragile/std":null' "$tmp/n"

# A full disk is said, with the file's name, and ends no step.
for file in log.file grpo.completions; do
    ok "no room for $file" ranks "3 0" 2 1 "${f[@]}" $file=/dev/full
    ok "is said once" lines 1 '^rv-train: /dev/full: No space left on device; the run goes on, ' "$tmp/out.0"
    ok "and what is lost" lines 1 '^rv-train.*: /dev/full: .*; [0-9]+ of its lines are lost; all steps are made$' "$tmp/out.0"
done

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
ok "it goes on" run "${f[@]}" run.steps=$((n + 3)) log.file="$tmp/e"
ok "to where one comes that never stopped" run "${f[@]}" run.steps=$((n + 3)) log.file="$tmp/g" \
    checkpoint.dir=
ok "bit for bit" same "$tmp/e" "$tmp/g"

run "${f[@]}" grpo.beta=0.1
ok "another beta does not go on" grep -q 'step-.*: the XXH3 of the prompts, of \[grpo\], .*weights differs; the settings of the checkpoint go on from it, and another \[checkpoint\] dir begins anew$' "$tmp/out"
# The model's positions: those of its 16 tokens.
ok "completions that may be longer than the model's positions" run "$tmp/grpo.ini" model.dir="$tmp/sft-1" run.steps=1 \
    eval.samples=1 grpo.max_completion_length=11 log.file="$tmp/long"
ok "are warned of" lines 1 '^rv-train: \[grpo\] max_completion_length makes texts of up to 17 tokens; .* knows 16 positions' "$tmp/out"
ok "others are not" run "$tmp/grpo.ini" model.dir="$tmp/sft-1" run.steps=1 eval.samples=1 grpo.max_completion_length=10 \
    log.file="$tmp/long"
ok "as is seen" lines 0 'positions' "$tmp/out"
{
    cat "$tmp/train.jsonl"
    echo '{"prompt": "1111+22222222222:", "answer": "0"}'
} >"$tmp/wide.jsonl"
run "$tmp/grpo.ini" model.dir="$tmp/sft-1" run.steps=1 data.files="$tmp/wide.jsonl"
ok "a prompt that leaves none is an error" test $? = 2
ok "with its row" grep -q 'data.files=.*: the prompt of row 401 has 17 tokens, and the model of .* 16 positions' "$tmp/out"
ok "config.json has room for the longest prompt and completion" \
    grep -q '"max_position_embeddings": 14\b' "$tmp"/ck/step-*/config.json

f+=(grpo.num_iterations=3)
ok "a cycle of six" run "${f[@]}" log.file="$tmp/j" checkpoint.dir=
for k in 1 4 5 8; do
    rm -rf "$tmp/ck"
    ok "its first $k steps" run "${f[@]}" run.steps="$k" checkpoint.every=3 log.file="$tmp/k"
    ok "and the rest" ranks "0 0" 2 1 "${f[@]}" log.file="$tmp/k"
    ok "are the whole" near "$tmp/j" "$tmp/k" 1e-6 8
    rm -rf "$tmp/ck"
    ok "$k by two ranks" ranks "0 0" 2 1 "${f[@]}" run.steps="$k" log.file="$tmp/l"
    ok "and the rest by one" run "${f[@]}" log.file="$tmp/l"
    ok "are the whole, too" near "$tmp/j" "$tmp/l" 1e-6 8
done

refused ()
{
    run "${f[@]}" "${@:2}"
    [ $? = 2 ] && grep -q "$1" "$tmp/out"
}
ok "a batch of no whole groups" refused 'no multiple of num_generations' data.batch=21
ok "units of a whole policy" refused 'grpo.gather.*are sharded' grpo.gather=unit
ok "parts of no reference" refused 'reference.shard.*in this process' grpo.beta=0 reference.shard=on
ok "offload of the host" refused "reference.offload.*a GPU's memory" reference.offload=on
ok "rows of samples" refused 'data.packed=on: is of task = sft alone' data.packed=on
ok "long ones" refused 'data.long=cut: is of task = sft alone' data.long=cut
ok "a length of samples" refused 'data.seq=64: is of tasks pretrain and sft alone' data.seq=64
ok "dropout" refused 'model.dropout=0.1: grpo trains what it wrote' model.dropout=0.1
ok "delta" refused 'grpo.delta=1.3: is not above 1 [+] epsilon_high' grpo.delta=1.3 grpo.epsilon_high=0.3
ok "dual_clip" refused 'grpo.dual_clip=1: is not above 1' grpo.dual_clip=1
ok "correction_min" refused 'grpo.correction_min=4: is above correction_max' grpo.correction_min=4 grpo.correction=token_mask
ok "a clip of nothing" refused 'grpo.epsilon=0: is not above 0' grpo.epsilon=0
# What would change nothing is not taken in silence: settings, the one refused first.
while read -r -a idle; do
    ok "refused as idle: ${idle[*]}" refused "^rv-train: .*settings: grpo.${idle[0]}: .*\(remove\|use\|set\|has\|takes\)" \
        "${idle[@]/#/grpo.}"
done <<'EOF'
epsilon_high=2 loss_type=cispo
epsilon=0.1 loss_type=sapo
delta=2 loss_type=sapo
dual_clip=3 loss_type=cispo_clip
cispo_cap=2
cispo_cap=2 loss_type=cispo_clip
sapo_temperature_pos=2
sapo_temperature_neg=2 loss_type=cispo
importance_sampling_level=token loss_type=gspo
kl=k1 beta=0
kl_gradient=on beta=0
correction_min=0.5
correction_max=2
correction=token_mask old_logps=sampler
scale_rewards=none multi_objective_aggregation=normalize_then_sum
baseline=others multi_objective_aggregation=normalize_then_sum
EOF
ok "what is not idle is taken" run "${f[@]}" run.steps=1 checkpoint.dir= grpo.loss_type=cispo grpo.cispo_cap=2 \
    grpo.correction=token_mask grpo.correction_max=2 grpo.importance_sampling_level=token grpo.kl=k2
ok "a template whose end is no token" refused "'<|eot_id|>', which ends a text of this template, is no token" \
    data.template=llama3 data.tokenizer="$tmp/shy.json" model.vocab=13
ok "an end that the vocabulary lacks" refused 'is below 257' model.vocab=256
sed -e '/^\[optim\]/,/^schedule/d' -e '/^\[eval\]/,$d' -e 's/^steps = .*/steps = 1/' "$tmp/grpo.ini" >"$tmp/unset.ini"
ok "a learning rate that nobody set" run "$tmp/unset.ini" model.dir="$tmp/sft-1"
ok "is said, too" grep -q '^rv-train: \[optim\] lr is not set, so 0.001' "$tmp/out"

# wrong SECTION KEY VALUE TEXT - status 2, of the file's line with that setting
wrong ()
{
    local n
    n=$(grep -nxF "[$1]" "$tmp/small.ini" | cut -d: -f1)
    sed "${n}a $2 = $3" "$tmp/small.ini" >"$tmp/wrong.ini"
    run "$tmp/wrong.ini"
    [ $? = 2 ] && [ "$(wc -l <"$tmp/out")" = 1 ] && grep -qF "wrong.ini:$((n + 1)): [$1] $2: $4" "$tmp/out"
}
printf '[reference]\n' >>"$tmp/small.ini"
ok "a template that is none" wrong data template nope "template 'nope' is none of"
ok "a system message of a plain model" wrong data system hi 'prompts: a system message needs a chat template'
ok "an end that is no token" wrong data end nope "prompts: end 'nope' is no token"
ok "no URL" wrong reference url 127.0.0.1:8077 'is not http://HOST:PORT'
nobody ()
{
    run check "$tmp/small.ini" reference.url=http://127.0.0.1:1 reference.token_file="$tmp/nobody"
    [ $? = 3 ] && grep -q "reference.token_file=$tmp/nobody: " "$tmp/out"
}
ok "no token, which rv-train check sees" nobody
plan
