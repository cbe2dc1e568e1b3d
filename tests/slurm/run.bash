# SPDX-License-Identifier: Apache-2.0
# run.bash - what the suites of rv's commands share: 2 nodes x 2 GPUs, a state
# folder for each test
# shellcheck shell=bash disable=SC2034,SC2154 # bats' run sets status, output, stderr

load "${BASH_SOURCE[0]%/*}/lib"

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    export XDG_STATE_HOME=$BATS_TEST_TMPDIR/state
    STATE=$XDG_STATE_HOME/rv
    cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
    [ -z "${RVT_SKIP:-}" ] || return 0
    "$RV" stop -a >/dev/null 2>&1 || true
}

# separate COMMAND... - run_cmd with stdout in $output and stderr in $stderr
separate() {
    run --separate-stderr timeout -k 5 "${RVT_TIMEOUT:-60}" "$@" </dev/null
    printf '$'
    printf ' %q' "$@"
    printf '\nstatus %s\n-- out\n%s\n-- err\n%s\n' "$status" "$output" "$stderr"
}

# submit ARG... - rv run, without waiting; sets job
submit() {
    run_cmd "$RV" run "$@"
    [ "$status" = 0 ] || return 1
    job=$(awk '$1 == "job" { print $2 }' <<<"$output")
    [ -n "$job" ]
}

# follow_in_background OUT ARG... - rv run -f ARG... ; sets follower, its pid
follow_in_background() {
    "$RV" run -f "${@:2}" </dev/null >"$1.out" 2>"$1.err" 3>&- &
    follower=$!
}

ended() {
    ! kill -0 "$1" 2>/dev/null
}

all_idle() {
    nodes_idle && [ -z "$(pgrep -f "rv-exec --batch $STATE")" ]
}

next_id() {
    scontrol show config | awk '/^NEXT_JOB_ID/ { print $3 }'
}

# limit - the signal before the limit, to the batch step of job; segments.bats has
# the limits for which rv-exec takes it for Slurm's own
limit() {
    scancel --batch --signal=USR1 "$job"
}

put_back() {
    ls "$STATE"/requests/*/segments.json >/dev/null && [ "$(job_state "$job")" = PENDING ] &&
        [ -z "$(pgrep -f "rv-exec --batch $STATE")" ]
}

# let_go - the next segment, now and not in two minutes
let_go() {
    wait_for 30 put_back
    sleep 1 # Slurm refuses a start within the second of the end
    scontrol update jobid="$job" starttime=now
}

done_with() {
    jq -e ".state == \"done\" and .exit_status == $1" "$STATE"/requests/*/status.json
}

causes() {
    jq -r '[.segments[].cause] | join(" ")' "$STATE"/requests/*/segments.json
}
