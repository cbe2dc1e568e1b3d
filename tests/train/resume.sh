#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# resume.sh - stopped and gone on is the run that never stopped, bit for bit
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# same_run A B STEP - losses, weights and moments of two folders are equal.
same_run ()
{
    cmp <(losses "$1/m") <(losses "$2/m") &&
        cmp "$1/ck/step-$3/model.safetensors" "$2/ck/step-$3/model.safetensors" &&
        cmp "$1/ck/step-$3/optim.safetensors" "$2/ck/step-$3/optim.safetensors"
}

# go FOLDER ARG... - a run whose files are in FOLDER.
go ()
{
    local folder=$1
    shift
    run "$tmp/r.ini" "checkpoint.dir=$folder/ck" "log.file=$folder/m" "$@"
}

small "$tmp/r.ini" '[checkpoint]' 'keep = 1'
for param in fp32 fp64; do
    a=$tmp/a-$param b=$tmp/b-$param
    ok "straight run, $param" go "$a" precision.param=$param
    # The first half ends by a limit of steps; its rates are the whole run's
    # because they are constant.
    ok "half" go "$b" precision.param=$param run.steps=6 optim.schedule=constant
    ok "whole" go "$b" precision.param=$param run.steps=12 optim.schedule=constant
    ok "says where it goes on" grep -q "^resumed at step 6 from $b/ck" "$tmp/out"
    ok "straight, constant" go "$a-c" precision.param=$param optim.schedule=constant
    ok "same bits" same_run "$a-c" "$b" 00000012
done
# Dropout, in passes of 3 of 8 samples, and the same masks for three ranks.
p=$tmp/p q=$tmp/q
drop=(model.dropout=0.2 data.micro_batch=3 optim.schedule=constant precision.param=fp64)
ok "straight, dropout" go "$p" "${drop[@]}"
ok "half" go "$q" "${drop[@]}" run.steps=6
ok "whole" go "$q" "${drop[@]}"
ok "same bits" same_run "$p" "$q" 00000012
ok "three ranks" ranks "0 0 0" 3 1 "$tmp/r.ini" "${drop[@]}" data.micro_batch=2 \
    shard.strategy=full "log.file=$tmp/p3"
ok "have one's losses" near "$p/m" "$tmp/p3" 1e-12 12
ok "which are others than without" test "$(losses "$p/m")" != "$(losses "$tmp/a-fp64-c/m")"
run "$tmp/r.ini" model.dropout=1
ok "a rate of 1 is 2" test $? = 2
# bf16 rounded by chance: the same from the masters, once more.
p=$tmp/s q=$tmp/t
chance=(precision.param=bf16 precision.stochastic_rounding=on optim.schedule=constant)
ok "straight, stochastic rounding" go "$p" "${chance[@]}"
ok "half" go "$q" "${chance[@]}" run.steps=6
ok "whole" go "$q" "${chance[@]}"
ok "same bits" same_run "$p" "$q" 00000012
ok "to nearest" go "$tmp/u" precision.param=bf16 optim.schedule=constant
ok "is another run" test "$(losses "$p/m")" != "$(losses "$tmp/u/m")"
ok "two ranks, sharded" ranks "0 0" 2 1 "$tmp/r.ini" "${chance[@]}" shard.strategy=full "log.file=$tmp/s2"
ok "begin at the same weights" near <(head -n 1 "$p/m") <(head -n 1 "$tmp/s2") 1e-6 1
ok "and stay near" near "$p/m" "$tmp/s2" 2e-2 12
mkdir "$tmp/taken" && : >"$tmp/taken/file"
run "$tmp/r.ini" checkpoint.dir="$tmp/taken/file" log.file="$tmp/none"
ok "a file in place of [checkpoint] dir is 3" test $? = 3
ok "names the key" grep -q "checkpoint.dir=$tmp/taken/file: $tmp/taken/file" "$tmp/out"
ok "before anything ran" test ! -e "$tmp/none"
ok "a finished run has nothing to do" go "$tmp/a-fp32"
ok "and says so" grep -q '^nothing to do: the checkpoint has 12 steps' "$tmp/out"
ok "and keeps its metrics" test "$(wc -l <"$tmp/a-fp32/m")" = 12

# stop_at FOLDER SIGNAL LINES ARG... - start, wait for LINES lines of metrics,
# send the signal, give the exit status.
stop_at ()
{
    local folder=$1 signal=$2 lines=$3 pid n
    shift 3
    "$train" "$tmp/r.ini" "checkpoint.dir=$folder/ck" \
        "log.file=$folder/m" "$@" >"$tmp/out" 2>&1 &
    pid=$!
    started+=("$pid")
    for ((n = 0; n < 6000; n++)); do
        [ -f "$folder/m" ] && [ "$(wc -l <"$folder/m")" -ge "$lines" ] && break
        sleep 0.01
    done
    kill -"$signal" "$pid"
    wait "$pid"
}

# Two stops, each by one signal, and then to the end: as if it never stopped.
c=$tmp/c d=$tmp/d long=(run.steps=1500 log.every=100)
for signal in TERM USR1; do
    stop_at "$c" $signal $((10 + $(cat "$c/m" 2>/dev/null | wc -l))) "${long[@]}"
    ok "SIG$signal ends it with 75" test $? = 75
    ok "and a line" grep -Eq '^stopped on request after step [0-9]+; checkpoint in' "$tmp/out"
    step=$(sed -nE 's/^stopped on request after step ([0-9]+);.*/\1/p' "$tmp/out")
    ok "metrics end at the checkpoint" test "$(wc -l <"$c/m")" = "$step"
done
ok "the rest" go "$c" "${long[@]}"
ok "straight" go "$d" "${long[@]}"
ok "same bits" same_run "$c" "$d" 00001500

# Lines behind the checkpoint, and a torn one: written again, once.
e=$tmp/e
ok "six steps, saved at four" go "$e" run.steps=6 checkpoint.every=4 \
    checkpoint.keep=2 optim.schedule=constant
rm -r "$e/ck/step-00000006"
echo step-00000004 >"$e/ck/latest"
printf '{"step":7,"lo' >>"$e/m"
ok "goes on from four" go "$e" run.steps=12 optim.schedule=constant
ok "same bits" same_run "$tmp/a-fp32-c" "$e" 00000012
ok "steps are 1 to 12, once each" \
    cmp <(sed -E 's/.*"step":([0-9]+),.*/\1/' "$e/m") <(seq 12)

go "$e" checkpoint.resume=off
ok "resume = off does not write among another run's checkpoints" test $? = 2
ok "and says what would work" grep -q 'resume=off: .*resume = auto' "$tmp/out"
ok "resume = PATH" run "$tmp/r.ini" "checkpoint.resume=$e/ck/step-00000012" run.steps=13
go "$e" checkpoint.resume=/none/there
ok "resume from nowhere is 3" test $? = 3
go "$e" model.dim=20 run.steps=13
ok "another model is 2" test $? = 2
ok "and is named" grep -q 'dim is 16 there and 20 here' "$tmp/out"
ok "with what would work" grep -q '; the settings of the checkpoint go on from it, and another \[checkpoint\] dir begins anew$' "$tmp/out"
go "$e" run.seed=9 data.batch=4 run.steps=13
ok "another seed and batch are 2" test $? = 2
ok "and are named" grep -q 'batch is 8 there and 4 here, seed is 1 there and 9 here' "$tmp/out"
printf '\001' | dd of="$e/ck/step-00000012/model.safetensors" bs=1 seek=3000 conv=notrunc 2>/dev/null
go "$e" checkpoint.resume="$e/ck/step-00000012" run.steps=13
ok "a byte that changed is 3" test $? = 3
ok "and is named" grep -Eq "step-00000012/model.safetensors: tensor '.*' does not match its checksum" "$tmp/out"
ok "nothing was cut from the metrics" test "$(wc -l <"$e/m")" = 12
h=$tmp/h keep=(checkpoint.every=6 checkpoint.keep=2 optim.schedule=constant)
ok "saved at six and twelve" go "$h" "${keep[@]}"
printf '\001' | dd of="$h/ck/step-00000012/model.safetensors" bs=1 seek=3000 conv=notrunc 2>/dev/null
ok "a damaged latest: the one before is taken" go "$h" "${keep[@]}"
ok "and both are named" grep -Eq 'step-00000006 taken, for the latest is damaged: .*step-00000012/model.safetensors: tensor' "$tmp/out"
ok "same bits again" same_run "$tmp/a-fp32-c" "$h" 00000012

# The file that names the latest is gone, or says nothing that is there.
n=$tmp/n
ok "half" go "$n" run.steps=6 optim.schedule=constant
cp -r "$n" "$tmp/o"
rm "$n/ck/latest"
go "$n" checkpoint.resume=off
ok "without a file latest resume = off is refused too" test $? = 2
ok "auto goes on" go "$n" optim.schedule=constant
ok "same bits" same_run "$tmp/a-fp32-c" "$n" 00000012
: >"$tmp/o/ck/latest"
ok "from an empty one auto goes on, too" go "$tmp/o" optim.schedule=constant
ok "and names it" grep -q "step-00000006 taken, for the latest is damaged: $tmp/o/ck/latest says ''" "$tmp/out"
ok "same bits" same_run "$tmp/a-fp32-c" "$tmp/o" 00000012

RV_CHECKPOINT_DIR=$tmp/f/ck RV_OUTPUT_DIR=$tmp/f run "$tmp/r.ini"
ok "RV_CHECKPOINT_DIR and RV_OUTPUT_DIR are defaults" \
    test -s "$tmp/f/ck/latest" -a -s "$tmp/f/metrics.jsonl"
stop_no_dir ()
{
    "$train" "$tmp/r.ini" run.steps=100000 "log.file=$tmp/g" >"$tmp/out" 2>&1 &
    local pid=$! n
    started+=("$pid")
    for ((n = 0; n < 6000; n++)); do
        [ -s "$tmp/g" ] && break
        sleep 0.01
    done
    kill -TERM "$pid"
    wait "$pid"
}
stop_no_dir
ok "stopped without a folder is 1" test $? = 1
ok "and says that nothing is saved" grep -q 'nothing is saved; \[checkpoint\] dir' "$tmp/out"
plan
