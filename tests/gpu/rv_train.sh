#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rv_train.sh - rv-train itself on a GPU: losses fall, and a run that was killed
# goes on with the bits of one that was not. run.sh runs it.
: "${top_srcdir:?}"
required=${RV_REQUIRE:-}
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

steps=300 every=40

cat >"$tmp/g.ini" <<EOF
[run]
device = cuda
steps = $steps
[model]
layers = 4
dim = 256
heads = 4
kv_heads = 2
[data]
files = $text
seq = 256
batch = 16
micro_batch = 8
[optim]
lr = 1e-3
warmup = 20
[checkpoint]
every = $every
keep = 2
[log]
every = 100
EOF

# go FOLDER ARG... - a run whose files are in FOLDER.
go ()
{
    local folder=$1
    shift
    run "$tmp/g.ini" "checkpoint.dir=$folder/ck" "log.file=$folder/m" "$@"
}

# kill_at LINES FOLDER ARG... - the same, killed when it has made LINES steps;
# fails where it ended before.
kill_at ()
{
    local lines=$1 folder=$2 pid
    shift 2
    "$train" "$tmp/g.ini" "checkpoint.dir=$folder/ck" "log.file=$folder/m" "$@" \
        >"$tmp/out" 2>&1 &
    pid=$!
    started+=("$pid")
    while kill -0 "$pid" 2>/dev/null; do
        [ -f "$folder/m" ] && [ "$(wc -l <"$folder/m")" -ge "$lines" ] && break
        sleep 0.02
    done
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [ $? = 137 ]
}

same_run ()
{
    local step
    step=$(printf %08d "$steps")
    cmp <(losses "$1/m") <(losses "$2/m") &&
        cmp "$1/ck/step-$step/model.safetensors" "$2/ck/step-$step/model.safetensors" &&
        cmp "$1/ck/step-$step/optim.safetensors" "$2/ck/step-$step/optim.safetensors"
}

falls ()
{
    losses "$1" | awk -v n="$steps" 'NR == 1 { a = $1 } { b = $1 }
        END { printf "# loss %.3f to %.3f\n", a, b; exit !(NR == n && a > 5 && b < 0.6 * a && b > 0) }'
}

short=(optim.warmup=0 checkpoint.every=0)
if ! run "$tmp/g.ini" run.steps=1 "${short[@]}" && grep -q 'device cuda: ' "$tmp/out"; then
    echo "1..0 # SKIP $(sed -n 's/.*device cuda: //p' "$tmp/out")"
    [[ ",$required," != *,gpu,* ]]
    exit
fi
for param in fp32 bf16 fp16; do
    a=$tmp/a-$param b=$tmp/b-$param
    words=("precision.param=$param")
    [ $param != fp16 ] || words+=(precision.scaler=on)
    ok "$param: trains" go "$a" "${words[@]}"
    sed -n '1,3p; $p' "$tmp/out" | sed 's/^/# /'
    ok "$param: the loss falls" falls "$a/m"
    ok "$param: killed in the middle" kill_at 130 "$b" "${words[@]}"
    ok "$param: goes on" go "$b" "${words[@]}"
    ok "$param: says where" grep -Eq '^resumed at step [1-9][0-9]* from ' "$tmp/out"
    ok "$param: nothing is another than it was" bash -c '! grep -q "^rv-train: " "$0"' "$tmp/out"
    ok "$param: same bits" same_run "$a" "$b"
    ok "$param: the checkpoint is whole" run ckpt verify "$a/ck"
done
run "$tmp/g.ini" run.device=cpu run.steps=10 "${short[@]}" "log.file=$tmp/cpu"
run "$tmp/g.ini" run.steps=10 "${short[@]}" "log.file=$tmp/gpu"
ok "ten steps as on the host, within 1e-4" near "$tmp/cpu" "$tmp/gpu" 1e-4 10
run "$tmp/g.ini" run.device=cpu run.steps=$((steps + 2)) checkpoint.every=0 \
    "checkpoint.dir=$tmp/a-bf16/ck" "log.file=$tmp/on"
ok "the host goes on with what bf16 wrote on the GPU" grep -q "^resumed at step $steps " "$tmp/out"
ok "and says that it is another device" grep -Eq '^rv-train: .*device .* there and cpu here' "$tmp/out"
plan
