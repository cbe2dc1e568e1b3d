#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh - what rv-train check foresees is what a run holds, within a tenth
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"
# shellcheck source=tests/train/grpo.bash
. "$top_srcdir/tests/train/grpo.bash"

# Some 100 MB: much beside what the program itself is.
i=$tmp/s.ini
small "$i" "[log]" "file = $tmp/m"
size=(run.steps=2 optim.warmup=1 model.layers=4 model.dim=128 model.heads=4 model.kv_heads=2 model.ffn=384
    data.seq=128 data.batch=16)

# foreseen RANKS ARG... - bytes of a rank
foreseen ()
{
    "$train" check --json --ranks "$@" 2>"$tmp/out" | sed -nE 's/^  "bytes": ([0-9]+),$/\1/p'
}

# The address sanitizer keeps freed memory, and reserves more than any limit.
tenths=1
(ulimit -v 600000 && exec "$train" --version) >/dev/null 2>&1 || tenths=3

# close RANKS ARG... - after a run of these: does rank 0 hold what was foreseen?
close ()
{
    local want got
    want=$(foreseen "$@")
    got=$(sed -nE '$s/.*"mem_bytes":([0-9]+).*/\1/p' "$tmp/m")
    echo "# foreseen $want, held $got" | tee -a "$tmp/out"
    [ -n "$want" ] && [ -n "$got" ] && [ $((got * 10)) -gt $((want * 9)) ] \
        && [ $((got * 10)) -lt $((want * (10 + tenths))) ]
}

for param in fp32 fp64 bf16; do
    wide=$param
    [ $param != bf16 ] || wide=fp32
    kind=("precision.param=$param" "precision.buffer=$param" "precision.reduce=$wide")
    ok "a run in $param" run "$i" "${size[@]}" "${kind[@]}"
    ok "within a tenth of what it holds" close 1 "$i" "${size[@]}" "${kind[@]}"
done
for strategy in ddp full; do
    ok "two ranks, $strategy" ranks "0 0" 2 1 "$i" "${size[@]}" shard.strategy=$strategy
    ok "within a tenth of what one holds" close 2 "$i" "${size[@]}" shard.strategy=$strategy
done
again=(precision.param=bf16 precision.buffer=bf16)
for recompute in nothing cheap blocks; do
    ok "a run, made again: $recompute" run "$i" "${size[@]}" "${again[@]}" model.recompute=$recompute
    ok "within a tenth of what it holds" close 1 "$i" "${size[@]}" "${again[@]}" model.recompute=$recompute
    mv "$tmp/m" "$tmp/again.$recompute"
    ok "with the losses of nothing" near "$tmp/again.nothing" "$tmp/again.$recompute" 0 2
done
ok "with checkpoints" run "$i" "${size[@]}" checkpoint.every=1 checkpoint.dir="$tmp/ck"
ok "within a tenth of what it holds" close 1 "$i" "${size[@]}" checkpoint.every=1 checkpoint.dir="$tmp/ck2"

# Passes of an evaluation have more rows than a step's come to.
eval=(data.batch=4 data.micro_batch=24 eval.every=1 eval.samples=24 eval.files="$text")
ok "evaluated in passes of 24" run "$i" "${size[@]}" "${eval[@]}"
ok "within a tenth of what it holds" close 1 "$i" "${size[@]}" "${eval[@]}"
ok "two ranks" ranks "0 0" 2 1 "$i" "${size[@]}" "${eval[@]}" shard.strategy=full
ok "within a tenth of what one holds" close 2 "$i" "${size[@]}" "${eval[@]}" shard.strategy=full

# What learns from rewards: completions of 64 tokens, of which few end earlier.
grpo_files "$tmp"
learns=("$tmp/small.ini" log.file="$tmp/m" run.steps=3 model.layers=3 model.dim=128 model.heads=4 model.kv_heads=2
    data.batch=24 grpo.max_completion_length=64 grpo.steps_per_generation=1 precision.param=fp32)
# learns_as NAME RANKS ARG... - is that what such a run holds?
learns_as ()
{
    local name=$1 ranks=$2 tenths=$tenths
    [ "$tenths" = 1 ] || tenths=20 # what each cycle gives back is kept as well
    shift 2
    if [ "$ranks" = 1 ]; then
        ok "grpo, $name" run "${learns[@]}" "$@"
    else
        ok "grpo, $name" ranks "0 0" 2 1 "${learns[@]}" "$@"
    fi
    ok "within a tenth of what it holds" close "$ranks" "${learns[@]}" "$@"
}
learns_as "a copy as reference" 1
learns_as "none, long ones, 16 at once" 1 grpo.beta=0 grpo.at_once=16 data.micro_batch=1 precision.param=fp64 data.batch=24 \
    grpo.max_completion_length=256
learns_as "bf16, two steps a cycle" 1 run.steps=5 grpo.steps_per_generation=2 precision.param=bf16
learns_as "adapters" 1 model.lora_rank=8 model.recompute=blocks
learns_as "two ranks of full" 2 precision.param=fp64 shard.strategy=full
parts ()
{
    "$train" check "$@" >"$tmp/out" 2>&1 && grep -Eq '^  writing of completions +[0-9.]+ s$' "$tmp/out" &&
        grep -Eq '^  rewards +not known' "$tmp/out" && grep -q 'reference: weights' "$tmp/out"
}
ok "its parts of time and memory" parts "${learns[@]}"

"$train" check "$i" "${size[@]}" >"$tmp/out" 2>&1
ok "text" grep -Eq '^  all +[0-9]+ bytes \(0\.[0-9]+ GiB\)$' "$tmp/out"
ok "time" grep -Eq '^time: [0-9.e+-]+ TFLOP a step at [0-9.]+ TFLOP/s a rank \(a guess\): ' "$tmp/out"
"$train" check --tflops 2 "$i" "${size[@]}" >"$tmp/out" 2>&1
ok "as told" grep -q 'at 2 TFLOP/s a rank (as told)' "$tmp/out"
if /usr/bin/python3 -c 'import jsonschema' 2>/dev/null; then
    "$train" check --json "$i" "${size[@]}" | tr -d '\n' >"$tmp/line.json"
    "$train" check --json --rewards "${learns[@]}" | tr -d '\n' >"$tmp/learns.json"
    ok "by its schema" /usr/bin/python3 "$top_srcdir/tests/slurm/validate.py" "$top_srcdir/etc/schema" \
        "$tmp/line.json" "$tmp/learns.json"
fi

# refused STATUS PATTERN ARG...
refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    "$train" check "$@" >"$tmp/list" 2>"$tmp/out"
    rc=$?
    [ $rc = "$want" ] && [ "$(wc -l <"$tmp/out")" = 1 ] && grep -Eq -- "$pattern" "$tmp/out"
}
ok "settings" refused 2 "model.heads=3: does not divide dim" "$i" model.heads=3
ok "no such data" refused 3 "nowhere" "$i" data.files="$tmp/nowhere"
ok "no such device" refused 2 "cpu, a100, h100 and h200 are known" --device tpu "$i"
ok "half a rank" refused 2 "a whole number" --ranks 1.5 "$i"
ok "no file" refused 2 "takes a file" --json

# Rewards: rows that lack what a rule needs, and programs.
ok "rewards of another task" refused 2 'task = grpo alone' --rewards "$i"
l=("$tmp/small.ini" "reward x.kind=exact")
ok "no row has the field" refused 2 "x.field=right|x.kind=exact: has nothing to say of any prompt, as that of $tmp/train.jsonl:1; it needs the field 'right', a text or a number$" "${l[@]}" "reward x.field=right"
{
    head -n 300 "$tmp/train.jsonl"
    echo '{"prompt": "hm", "answer": null}'
    echo '{"prompt": "ha"}'
} >"$tmp/part.jsonl"
# told LINES PATTERN ARG... - check is good, with lines like this on stderr
told ()
{
    "$train" check "${@:3}" >"$tmp/list" 2>"$tmp/out" && [ "$(grep -cE -- "$2" "$tmp/out")" = "$1" ] &&
        [ "$(wc -l <"$tmp/out")" = "$1" ]
}
ok "some rows lack it" told 1 "^rv-train: \[reward x\] has nothing to say of 2 of 302 prompts, as that of $tmp/part.jsonl:301; it needs the field 'answer'" \
    "${l[@]}" data.files="$tmp/part.jsonl"
ok "or what can be added up" told 1 '\[reward x\] has nothing .* 2 of 302 .*; it needs an expression .* in the prompt' \
    "${l[@]}" "reward x.kind=arithmetic" data.files="$tmp/part.jsonl"
ok "none lacks it" told 0 '' "${l[@]}"
cat >"$tmp/judge" <<'EOF'
#!/bin/bash
: >"${0%/*}/asked"
while IFS= read -r line; do
    [[ $line =~ \"id\":\ ?([0-9]+) ]] && [[ $line == *'"completion":"80"'* ]] || exit 4
    case ${1:-} in
        late) sleep 60 ;;
        long) printf '%02000000d' 0 ;;
        odd) echo hello ;;
        none) echo "{\"id\": ${BASH_REMATCH[1]}, \"reward\": null}" ;;
        *) echo "{\"id\": ${BASH_REMATCH[1]}, \"reward\": 0.25}" ;;
    esac
done
EOF
echo '{"prompt": "30+50:", "answer": 80}' >"$tmp/one.jsonl"
p=("$tmp/small.ini" data.files="$tmp/one.jsonl" "reward j.kind=program")
ok "a program that is no program" refused 3 "\[reward j\]: cannot start '$tmp/judge': Permission denied" "${p[@]}" "reward j.program=$tmp/judge"
chmod +x "$tmp/judge"
ok "one that is not there" refused 3 "\[reward j\]: cannot start 'no-such-judge': No such file" "${p[@]}" "reward j.program=no-such-judge"
ok "one that is" told 0 '' "${p[@]}" "reward j.program=$tmp/judge odd"
ok "is not started" test ! -e "$tmp/asked"
asked ()
{
    PATH=$tmp:$PATH told 0 '' --rewards "${p[@]}" "reward j.program=$1" && grep -Eq "^  j  +$2, after [0-9.e-]+ s$" "$tmp/list" \
        && grep -Eq '^  size  +1, after ' "$tmp/list"
}
ok "unless it is asked for" asked judge 0.25
ok "as it was" test -e "$tmp/asked"
ok "with nothing to say" asked "$tmp/judge none" none
for how in 'odd:is no JSON|JSON' 'late:did not reply within 0.4 s' 'long:a line past 1 MiB' ; do
    ok "what it does wrong, ${how%%:*}" refused 4 "\[reward j\]: $tmp/judge .*(${how#*:}).*, asked for the prompt of $tmp/one.jsonl:1 with its answer" \
        --rewards "${p[@]}" "reward j.program=$tmp/judge ${how%%:*}" "reward j.timeout=200ms" "reward j.start=$([ "${how%%:*}" = late ] && echo 200ms || echo 20s)"
done
ok "so it ends" refused 4 '\[reward j\]: false exited with status 1, asked for' --rewards "${p[@]}" "reward j.program=false"

if "$train" --version | grep -q 'cuda [0-9]'; then
    # What runs on an H200 held and took: rows of tests/bench/RESULTS.md, of ce83ca3,
    # less the 2174 MiB of attention's scratch that 29a9d16 spares in those of 2048.
    less=$((2174 << 20))
    gpu=(run.device=cuda precision.param=bf16 precision.buffer=bf16 model.tie=on model.vocab=50304 data.seq=2048
        data.batch=8 model.layers=16 model.dim=2048 model.heads=32 model.kv_heads=8 model.ffn=8192)
    base64 "$train" | head -c 200000 >"$tmp/long"
    # as_measured BYTES MS ARG...
    as_measured ()
    {
        "$train" check --json --device h200 "$i" data.files="$tmp/long" "${gpu[@]}" "${@:3}" 2>"$tmp/out" \
            | sed -nE 's/^  "(bytes|step_s)": ([0-9.e-]+),$/\2/p' | tr '\n' ' ' \
            | awk -v bytes="$1" -v ms="$2" '{ m = $1 / bytes; t = $2 * 1000 / ms; print "# bytes", m, "time", t }
                END { exit !(m > 0.9 && m < 1.1 && t > 0.9 && t < 1.1) }'
    }
    ok "1b as measured" as_measured $((38612350644 - less)) 206.3
    ok "its blocks made again" as_measured $((23244420788 - less)) 250.7 model.recompute=blocks
    foresee ()
    {
        "$train" check --json --device "$1" "$i" data.files="$tmp/long" "${gpu[@]}" model.layers=2 |
            sed -nE 's/^  "bytes": ([0-9]+),$/\1/p'
    }
    ok "an A100 keeps T x T of each head" test $(($(foresee a100) - $(foresee h100))) -gt $((2000 << 20))
    ok "of 1 x 512" as_measured 19488894644 17.9 data.batch=1 data.seq=512
    # Of RESULTS.md, 1e363d6: 8 prompts of 128 tokens, 8 completions of 256 of each;
    # rates were fitted to the first and the third.
    printf '{"prompt":"%0128d"}\n' 1 2 3 4 5 6 7 8 >"$tmp/prompts.jsonl"
    learn=("$tmp/small.ini" run.device=cuda data.files="$tmp/prompts.jsonl" precision.param=bf16 model.vocab=50304
        data.batch=64 data.micro_batch=16 grpo.max_completion_length=256 grpo.beta=0
        grpo.steps_per_generation=1)
    of_1b=(model.tie=on model.layers=16 model.dim=2048 model.heads=32 model.kv_heads=8 model.ffn=8192)
    of_124m=(model.tie=on model.layers=12 model.dim=768 model.heads=12 model.ffn=2048)
    # learn_as ROLLOUT_MS UPDATE_MS GIB ARG...
    learn_as ()
    {
        "$train" check --json --device h200 "${learn[@]}" "${@:4}" 2>"$tmp/out" |
            sed -nE 's/^(  "bytes|    "rollout_s|    "update_s)": ([0-9.e-]+),?$/\1 \2/p' |
            awk -v r="$1" -v u="$2" -v gib="$3" '/bytes/ { b = $2 / 2 ^ 30 / gib } /rollout/ { r = $2 * 1000 / r }
                /update/ { u = $2 * 1000 / u } END { print "# bytes", b, "rollout", r, "update", u
                exit !(b > 0.9 && b < 1.1 && r > 0.9 && r < 1.1 && u > 0.9 && u < 1.1) }'
    }
    ok "grpo of 1b as measured" learn_as 347 282 27.54 "${of_1b[@]}"
    ok "in passes of 64" learn_as 349 270 45.62 "${of_1b[@]}" data.micro_batch=64
    ok "of 124m" learn_as 185 42 5.10 "${of_124m[@]}"
    ok "its completions lie in the host's memory" bash -c \
        '"$0" check --device h200 "$@" | sed -n "/^and of the host/,\$p" | grep -q "^  completions "' "$train" "${learn[@]}"
    of_45b=(--ranks 8 --device h200 "${learn[@]}" data.micro_batch=1 shard.strategy=full model.recompute=blocks
        model.layers=64 model.dim=8192 model.heads=64 model.kv_heads=8 model.ffn=22016)
    ok "by units where the whole has no room" bash -c \
        '"$0" check "$@" | awk "/^time/ { t = 1 } /weights, gathered/ { w = 1 } END { exit !t || w }"' "$train" "${of_45b[@]}"
    # 90 GB a token, of which seven eighths come at 230 GB/s.
    ok "which take most of the time, a token" bash -c \
        '"$0" check --json "$@" | sed -nE "s/^    \"rollout_s\": ([0-9.e-]+),?$/\1/p" | awk "{ r = \$1 } END { exit !(r > 86 && r < 92) }"' "$train" "${of_45b[@]}"
    ok "unless it is to be whole" refused 1 "a rank needs .* GiB, h200 has 139" "${of_45b[@]}" grpo.gather=whole
    ok "a GPU" bash -c '"$0" check --device h200 "$1" | grep -q "CUDA and its libraries"' "$train" "$i"
    ok "too much for it" refused 1 "a rank needs .* GiB, h200 has 139" --device h200 "$i" model.dim=16384 model.heads=128 model.kv_heads=128 model.ffn=65536 model.layers=16
else
    ok "no GPU in this build" refused 1 "without CUDA" --device h200 "$i"
fi
plan
