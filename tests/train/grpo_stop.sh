#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# grpo_stop.sh - told to stop while a reward's program hangs, task = grpo stops at
# once, and goes on to where a run comes that nobody stopped.
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"
# shellcheck source=tests/train/grpo.bash
. "$top_srcdir/tests/train/grpo.bash"
grpo_files "$tmp"

# A program that stops replying to what $tmp/hang says, once there is that file.
cat >"$tmp/judge" <<'EOF'
#!/bin/bash
dir=${0%/*}
while IFS= read -r line; do
    if [ -f "$dir/hang" ] && [[ $line == *"$(<"$dir/hang")"* && $RANK == *"$(<"$dir/only")" ]]; then
        : >"$dir/hangs"
        sleep 300
    fi
    [[ $line =~ \"id\":\ ?([0-9]+) ]] || exit 4
    said=${line#*\"completion\":} # the number of a request is not that of a text
    echo "{\"id\": ${BASH_REMATCH[1]}, \"reward\": $((${#said} % 7))}"
done
EOF
chmod +x "$tmp/judge"
sed -i 's/}$/, "held": 1}/' "$tmp/held.jsonl"
sed -e '/^\[reward/,$d' "$tmp/small.ini" >"$tmp/judge.ini"
printf '%s\n' '[reward judge]' 'kind = program' "program = $tmp/judge" 'processes = 2' \
    'timeout = 100s' '[eval]' 'every = 4' 'samples = 8' "files = $tmp/held.jsonl" >>"$tmp/judge.ini"

# stops N WHAT ARG... - N ranks are told to stop, once the judge hangs at requests
# with WHAT, or the first [told] of them: statuses of 75 soon (0.6 s; a busy machine's are many), though a reply
# has 100 s.
stops ()
{
    local n=$1 what=$2 at i
    shift 2
    rm -f "$tmp/hang" "$tmp/hangs" "$tmp"/out.*
    echo "${only:-}" >"$tmp/only"
    start_ranks "$n" 1 "$tmp/judge.ini" run.steps=4000 "$@"
    for ((i = 0; i < 600; i++)); do
        [ "$(grep -c . "$tmp/log" 2>/dev/null)" -gt 4 ] 2>/dev/null && break
        sleep 0.1
    done
    echo "$what" >"$tmp/hang"
    for ((i = 0; i < 600; i++)); do
        [ -f "$tmp/hangs" ] && break
        sleep 0.1
    done
    sleep 0.5
    at=${EPOCHREALTIME/./}
    kill -TERM "${pids[@]:0:told}"
    for ((i = 0; i < 300; i++)); do # they are not waited for without an end
        kill -0 "${pids[@]}" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "${pids[@]}" 2>/dev/null
    wait_ranks
    rm "$tmp/hang"
    at=$(((${EPOCHREALTIME/./} - at) / 1000))
    echo "# statuses $statuses after $at ms" | tee -a "$tmp/out"
    [[ $statuses =~ ^75( 75)*$ ]] && [ $at -lt 20000 ] && grep -q '^stopped on request after step' "$tmp/out"
}

# goes_on N ARG... - to where a run comes that was never stopped, bit for bit
goes_on ()
{
    local n=$1 steps
    shift
    steps=$(($(grep -c . "$tmp/log") + 5))
    rm -f "$tmp"/out.* "$tmp/whole"
    ranks "${zeros:0:2 * n - 1}" "$n" 1 "$tmp/judge.ini" run.steps=$steps "$@" || return
    ranks "${zeros:0:2 * n - 1}" "$n" 1 "$tmp/judge.ini" run.steps=$steps log.file="$tmp/whole" || return
    [ "$(losses "$tmp/log" step)" = "$(seq "$steps")" ] || return
    diff <(bare "$tmp/log") <(bare "$tmp/whole") >"$tmp/out"
}
zeros="0 0 0 0"

# bare FILE - without seconds, memory, and the number that a stopped evaluation lacks
bare ()
{
    sed -E 's/"(mem_bytes|[a-z]+_s|eval_reward)":[^,}]*//g' "$1"
}

told=9
k=(log.file="$tmp/log" checkpoint.dir="$tmp/ck")
ok "told to stop while a reward hangs, it stops" stops 1 completion "${k[@]}"
ok "and says where" grep -q "checkpoint in $tmp/ck" "$tmp/out"
ok "it goes on, bit for bit" goes_on 1 "${k[@]}"

rm -rf "$tmp/ck" "$tmp/log"
ok "so do two ranks" stops 2 completion "${k[@]}"
ok "which go on" goes_on 2 "${k[@]}"

rm -rf "$tmp/ck" "$tmp/log"
ok "told so while it hangs in an evaluation" stops 2 '"held"' "${k[@]}"
ok "it says so" grep -q '^rv-train: step [0-9]*[02468]: its evaluation was ended on request$' "$tmp/out"
ok "the step counts" grep -q "\"step\":$(sed -nE 's/^stopped on request after step ([0-9]+);.*/\1/p' "$tmp/out"),.*\"eval_reward\":null" \
    <(tail -n 1 "$tmp/log")
ok "and it goes on" goes_on 2 "${k[@]}"

# The judge of rank 1 hangs alone; the first of the processes, which waits for it in a
# collective, is told.
for what in completion '"held"'; do
    rm -rf "$tmp/ck" "$tmp/log"
    told=1 only=1
    ok "one of two is told so while the other waits for $what" stops 2 "$what" "${k[@]}"
    told=9 only=
    ok "and both go on" goes_on 2 "${k[@]}"
done
plan
