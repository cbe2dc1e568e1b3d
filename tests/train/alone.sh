#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# alone.sh - what goes wrong on one rank alone: the others end soon and name it, and
# what was saved is good; a file of metrics that is full ends no run
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

i=$tmp/a.ini
small "$i"
"$train" tokenize "$tmp/good.bin" "$text" >"$tmp/out"
# A token of the seventh step that rank 2 of 4 reads: row 5 of 8, of 32 tokens of 2
# bytes behind 64 bytes (train/tokens.h).
cp "$tmp/good.bin" "$tmp/bad.bin"
printf '\377\177' | dd of="$tmp/bad.bin" bs=1 seek=$((64 + 2 * (32 * (6 * 8 + 5) + 5))) conv=notrunc 2>/dev/null
c=("$i" model.vocab=257 data.shuffle=off checkpoint.every=2 log.every=1 run.steps=10 optim.schedule=constant)

# named - do all but rank 2 name it, by a line each?
named ()
{
    local r
    for r in 0 1 3; do
        [ "$(grep -Ec "^rv-train\[rank $r on .*rank 2 (left|did not)" "$tmp/out.$r")" = 1 ] || return 1
    done
}
for strategy in no_shard ddp full; do
    ck=$tmp/ck.$strategy
    d=("${c[@]}" "shard.strategy=$strategy" "checkpoint.dir=$ck" "log.file=$ck.m")
    begin=$SECONDS
    ok "data that is bad on rank 2 alone ends all, $strategy" ranks "4 4 3 4" 4 2 "${d[@]}" "data.files=$tmp/bad.bin"
    ok "within seconds" test $((SECONDS - begin)) -lt 30
    ok "rank 2 says what is wrong" grep -q '^rv-train\[rank 2 on .*bad.bin: token 1701 is 32767, and its vocabulary 257' "$tmp/out.2"
    ok "the others name it" named
    ok "what was saved is good" run ckpt verify "$ck"
    ok "step 6 is there" test -d "$ck/step-00000006"
    # The text that a checkpoint goes on with is known by its sum, which the header has.
    ok "the run goes on with good data" ranks "0 0 0 0" 4 2 "${d[@]}" "data.files=$tmp/good.bin"
    ok "from there" grep -q '^resumed at step 6 from' "$tmp/out.0"
    ok "as one that never stopped" ranks "0 0 0 0" 4 2 "${d[@]}" "data.files=$tmp/good.bin" "checkpoint.dir=$ck.w" "log.file=$ck.n"
    ok "the same losses" cmp <(losses "$ck.m") <(losses "$ck.n")
done

# What goes wrong before the first step has the rank and its words as well.
: >"$tmp/file"
ok "a folder that rank 0 cannot make" ranks "3 3 3" 3 1 "${c[@]}" "data.files=$tmp/good.bin" "checkpoint.dir=$tmp/file/ck"
ok "is named by the others" \
    test "$(grep -El '^rv-train\[rank [12] on .*another rank failed: rank 0: .*/file' "$tmp"/out.[12] | wc -l)" = 2

# A file of metrics that takes nothing, and one that takes a part for a while.
m=("${c[@]}" "data.files=$tmp/good.bin")
ok "no room for metrics ends with 3" ranks "3 0" 2 1 "${m[@]}" log.file=/dev/full "checkpoint.dir=$tmp/full"
ok "is said once" test "$(grep -c '^rv-train: /dev/full: No space left on device; the run goes on' "$tmp/out.0")" = 1
ok "all steps are made" grep -q '^done: step 10, ' "$tmp/out.0"
ok "and saved" run ckpt verify "$tmp/full/step-00000010"
ranks "3 0" 2 1 "${m[@]}" log.file=/dev/full checkpoint.every=0
ok "what is lost is counted" grep -q ': /dev/full: No space left on device; 10 of its lines are lost; all steps are made$' "$tmp/out.0"
(ulimit -S -f 1 && exec "$train" "${m[@]}" run.steps=3000 log.every=1000 "log.file=$tmp/m" checkpoint.every=0) >"$tmp/out" 2>&1 &
pid=$!
started+=("$pid")
for ((n = 0; n < 6000; n++)); do
    grep -q 'keeps its lines' "$tmp/out" && break
    sleep 0.01
done
ok "a file at its limit ends no run" test "$(stat -c %s "$tmp/m")" = 1024
kill -STOP "$pid"
prlimit --pid "$pid" --fsize=unlimited
kill -CONT "$pid"
wait "$pid"
ok "where there is room again it ends well" test $? = 0
ok "says so" grep -q "^rv-train: $tmp/m: the lines that were kept are written\$" "$tmp/out"
ok "and has every line" awk -F '[:,]' '$2 != NR || !/^[{].*[}]$/ { bad = 1 } END { exit bad || NR != 3000 }' "$tmp/m"
plan
