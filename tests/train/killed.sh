#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# killed.sh - kill -9 while checkpoints are written, and a full disk: the last
# good one verifies, and the run that goes on has the bits of one left alone
#
# 10 rounds; RV_TEST_LONG=1: 200.
: "${top_srcdir:?}"
long=${RV_TEST_LONG:-0} # lib.bash clears RV_*
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/k.ini
small "$i"
rounds=10
[ "$long" = 1 ] && rounds=200
c=("$i" optim.schedule=constant run.steps=100000 checkpoint.every=1 log.every=0)
d=("checkpoint.dir=$tmp/ck" "log.file=$tmp/m")

# first_there - wait for the first checkpoint: a busy machine takes its time
first_there ()
{
    local n
    for ((n = 0; n < 2000; n++)); do
        [ ! -e "$tmp/ck/latest" ] || return 0
        sleep 0.01
    done
}

# Does each round end with a checkpoint that verifies, never an older one?
rounds_of_kills ()
{
    local n pid step last=0
    for ((n = 0; n < rounds; n++)); do
        "$train" "${c[@]}" "${d[@]}" >"$tmp/out" 2>&1 &
        pid=$!
        started+=("$pid")
        first_there
        sleep "0.$(printf %03d $((60 + n * 37 % 120)))"
        kill -KILL "$pid" && wait "$pid" 2>/dev/null
        "$train" ckpt show "$tmp/ck" >"$tmp/out" 2>&1 || return 1
        step=$(sed -nE 's/^  step = ([0-9]+)$/\1/p' "$tmp/out")
        "$train" ckpt verify "$tmp/ck" >"$tmp/out" 2>&1 || return 1
        [ "$step" -ge "$last" ] || { echo "step $step behind $last" >>"$tmp/out"; return 1; }
        last=$step
    done
    echo "# $rounds kills, step $last"
    [ "$last" -gt 0 ]
}
ok "killed in $rounds rounds" rounds_of_kills
end=$(($(sed -nE 's/^step-0*([0-9]+)$/\1/p' "$tmp/ck/latest") + 3))
ok "goes on to its end" run "${c[@]}" "${d[@]}" run.steps=$end
ok "left alone" run "${c[@]}" run.steps=$end checkpoint.every=0 "checkpoint.dir=$tmp/one" "log.file=$tmp/one.m"
ok "the same losses, once each" cmp <(losses "$tmp/m") <(losses "$tmp/one.m")
name=step-$(printf %08d $end)
ok "the same weights" cmp "$tmp/ck/$name/model.safetensors" "$tmp/one/$name/model.safetensors"
ok "and moments" cmp "$tmp/ck/$name/optim.safetensors" "$tmp/one/$name/optim.safetensors"

# A limit on the size of files is a disk that is full for optim.safetensors.
full=$(($(stat -c %s "$tmp/ck/$name/optim.safetensors") / 1024 - 4))
(
    trap '' XFSZ
    ulimit -f $full
    run "${c[@]}" "checkpoint.dir=$tmp/ck" "log.file=$tmp/full.m" run.steps=$((end + 4))
)
ok "no room is 3" test $? = 3
ok "and names the file" grep -Eq "optim\.safetensors: .*File too large" "$tmp/out"
ok "the last one stays" test "$(cat "$tmp/ck/latest")" = "$name"
"$train" ckpt verify "$tmp/ck" >"$tmp/out" 2>&1
ok "and is good" test $? = 0
plan
