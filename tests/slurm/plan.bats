# SPDX-License-Identifier: Apache-2.0
# plan.bats - strategies of rv run on a real cluster: 2 nodes x 2 GPUs

load run

plan_of() { # ARG... - sets output to the JSON of a dry run
    separate "$RV" run --dry-run --json "$@"
    [ "$status" = 0 ]
}

ask() { # FILTER
    jq -r "$1" <<<"$output"
}

teardown() {
    [ -z "${RVT_SKIP:-}" ] || return 0
    scancel -u "$(id -u)" --hurry 2>/dev/null || scancel -u "$(id -u)" || true
    scontrol delete reservation=later 2>/dev/null || true
    scontrol delete partition=b 2>/dev/null || true
    wait_for 30 all_idle
}

@test "an idle cluster: one strategy, now, and no job id is used" {
    before=$(next_id)
    plan_of -g 2 true
    valid <<<"$output"
    [ "$(ask '.forecast.strategies | length')" = 1 ]
    [ "$(ask '.forecast.strategies[0] | [.start, .wait_s, .nodes, .why] | join(" ")')" = "at 0 1 free now" ]
    [ "$(ask '.forecast | [.jobs_running, .jobs_waiting] | join(" ")')" = "0 0" ]
    separate "$RV" run --dry-run -g 2 true
    grep -qE '^ +1  now +1 x 2 +a100 +gpu +02:59:00 +- +free now$' <<<"$output"
    [ "$(next_id)" = "$before" ]
}

@test "the start is the end of the job that holds what is needed" {
    job=$(sbatch --parsable -N2 --gres=gpu:a100:2 -t 47 --wrap 'sleep 600')
    wait_job "$job" RUNNING
    plan_of -g 2 true
    ends=$(date -d "$(scontrol show job "$job" | sed -n 's/.*EndTime=\([^ ]*\) .*/\1/p')" +%s)
    [ "$(date -d "$(ask '.forecast.strategies[0].start_at')" +%s)" = "$ends" ]
    [ "$(ask '.forecast.strategies[0].why')" = "when job $job ends at the latest" ]
    [ "$(ask '.forecast.now_if_time_s')" = null ]
    # One that waits goes first, and is as long.
    sbatch -N2 --gres=gpu:a100:2 -t 60 --wrap true >wait.out
    plan_of -g 2 true
    [ "$(date -d "$(ask '.forecast.strategies[0].start_at')" +%s)" = "$((ends + 3600))" ]
    [ "$(ask '.forecast.strategies[0].jobs_before')" = 1 ]
    # Three of four GPUs are busy on one node: fewer a node start sooner.
    scancel "$job" "$(tr -dc 0-9 <wait.out)"
    wait_for 30 all_idle
    job=$(sbatch --parsable -N2 --gres=gpu:a100:1 -t 47 --wrap 'sleep 600')
    wait_job "$job" RUNNING
    plan_of -g 2 true
    [ "$(ask '[.forecast.strategies[] | "\(.nodes)x\(.gpus_per_node) \(.wait_s == 0)"] | join(",")')" = "2x1 true,1x2 false" ]
}

@test "partitions that admit the same job are one job" {
    scontrol create partition=b nodes=n1,n2 state=up maxtime=UNLIMITED
    plan_of -g 2 true
    [ "$(ask '.plan.partition')" = gpu,b ]
    separate "$RV" run -f -g 2 -- sh -c 'echo $RANK'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0
1" ]
    # one whose limit is shorter would be refused, or would shorten the job
    scontrol update partitionname=b maxtime=60
    plan_of -g 2 true
    [ "$(ask '.plan.partition')" = gpu ]
    plan_of -g 2 --time 1h true
    [ "$(ask '.plan.partition')" = gpu,b ]
    # one that may refuse the account is for those who name it
    scontrol update partitionname=b allowaccounts=others
    plan_of -g 2 --time 1h true
    [ "$(ask '.plan.partition')" = gpu ]
    plan_of -g 2 --time 1h -p b true
    [ "$(ask '.plan.partition')" = b ]
    plan_of -g 2 --time 1h -A others true
    [ "$(ask '.plan.partition')" = gpu,b ]
}

@test "a limit that fits before a reservation starts now; --time-min asks for it" {
    scontrol create reservation=later starttime=now+31minutes duration=60 \
        users="$(id -un)" nodes=n1,n2
    plan_of -g 2 --time 2h true
    [ "$(ask '.forecast.strategies[0] | .wait_s > 5000')" = true ]
    [ "$(ask '.forecast.now_if_time_s == 1800 or .forecast.now_if_time_s == 1860')" = true ]
    plan_of -g 2 --time 2h --time-min 20 true
    valid <<<"$output"
    [ "$(ask '.forecast.strategies[0] | [.kind, .wait_s, .time_s, .time_min_s] | join(" ")')" = "backfill 0 7200 1200" ]
    [ "$(ask '.sbatch_argv | index("--time-min=00:20:00") != null')" = true ]
    separate "$RV" run --dry-run -g 2 --time 2h --time-min 20 true
    [[ $output == *" 00:20:00..02:00:00 "* ]]
    # a job of segments takes a short first one
    plan_of -g 2 --time 2h --checkpoint true
    valid <<<"$output"
    [ "$(ask '.forecast.strategies[0] | [.kind, .wait_s, .time_min_s] | join(" ")')" = "segments 0 1800" ]
    scontrol update partitionname=gpu maxtime=60
    plan_of -g 2 --time 9h --checkpoint=@20 -p gpu true
    [ "$(ask '.forecast.strategies[-1] | [.kind, .time_s] | join(" ")')" = "segments 3600" ]
    separate "$RV" run --dry-run -g 2 --time 9h true
    [ "$status" = 5 ]
    scontrol update partitionname=gpu maxtime=UNLIMITED
    separate "$RV" run --time 1h --time-min 2h true
    [ "$status" = 2 ]
    [[ $stderr == *"--time-min is longer than --time"* ]]
}

@test "options that no snapshot tells of make the start unknown" {
    plan_of -g 1 --dependency=singleton true
    valid <<<"$output"
    [ "$(ask '.forecast.strategies[0] | [.start, .start_at, .why] | map(tostring) | join(" ")')" = "unknown null --dependency decides" ]
    # excluded nodes are not counted on
    plan_of -g 2 -x n1 true
    [ "$(ask '[.forecast.strategies[].nodes] | join(" ")')" = 1 ]
    separate "$RV" run --dry-run -g 4 -x n1 true
    [ "$status" = 5 ]
    # a flexible reservation may give others
    scontrol create reservation=later starttime=now duration=60 nodes=n1 users=root flags=flex
    plan_of -g 1 --reservation=later true
    [ "$(ask '.forecast.strategies[0] | [.start, .why] | join(" ")')" = "unknown --reservation decides" ]
}

@test "-w is all of the list and no more; a reservation is its nodes while it lasts" {
    plan_of -g 4 -w 'n[1-2]' true
    [ "$(ask '.forecast.strategies[0] | [.start, .nodes, .gpus_per_node] | join(" ")')" = "at 2 2" ]
    job=$("$RV" run --json -g 2 -w n1,n2 -- true | jq .job_id)
    wait_job "$job" COMPLETED
    scontrol show job "$job" | grep -q ' NodeList=n\[1-2\]'
    separate "$RV" run -g 3 -w n1,n2 true
    [ "$status" = 5 ]
    [[ $stderr == "rv: cannot run 'true': --nodelist names 2 nodes, of which a job has all, and 3 GPUs do not go evenly on them; -g 4 would work" ]]
    # inside it starts now and must fit before its end
    wait_for 30 all_idle
    scontrol create reservation=later starttime=now duration=60 nodes=n2 users=root
    plan_of -g 2 --time 30m --reservation=later true
    [ "$(ask '.forecast.strategies[0] | [.start, .wait_s, .nodes] | join(" ")')" = "at 0 1" ]
    job=$("$RV" run --json -g 2 --time 30m --reservation=later -- true | jq .job_id)
    wait_job "$job" COMPLETED
    scontrol show job "$job" | grep -q ' NodeList=n2'
    plan_of -g 2 --time 90m --reservation=later true
    [ "$(ask '.forecast.strategies[0].start')" = never ]
    separate "$RV" run -g 4 --reservation=later true
    [ "$status" = 5 ]
    [[ $stderr == "rv: cannot run 'true': with --reservation: "* ]]
}

@test "PrivateData hides jobs: the start is unknown, and it is said" {
    [ "$(id -u)" = 0 ] || skip "only root can be somebody else"
    echo PrivateData=jobs >>"$SANDBOX/slurm.conf"
    scontrol reconfigure
    cp "$RV" "$RVT/rv"
    chmod a+x "$RVT"
    chmod a+rX "$SANDBOX" "$SANDBOX"/*.conf
    other=(setpriv --reuid=65534 --regid=65534 --clear-groups env
        HOME="$RVT/none" XDG_STATE_HOME="$RVT/none" "$RVT/rv" run --dry-run --json)
    job=$(sbatch --parsable -N2 --gres=gpu:a100:2 -t 47 --wrap 'sleep 600')
    wait_job "$job" RUNNING
    cd /
    separate "${other[@]}" -g 2 true
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(ask '.forecast.strategies[0] | [.start, .start_at, .fits_now, .why] | map(tostring) | join(" ")')" = \
        "unknown null false other users' jobs are hidden" ]
    [ "$(ask .forecast.jobs_running)" = null ]
    # root sees them all the same
    plan_of -g 2 true
    [ "$(ask '.forecast.strategies[0].start')" = at ]
    scancel "$job"
    wait_for 30 all_idle
    separate "${other[@]}" -g 2 true
    [ "$(ask '.forecast.strategies[0] | [.start, .fits_now] | map(tostring) | join(" ")')" = "unknown true" ]
    sed -i /PrivateData/d "$SANDBOX/slurm.conf"
    scontrol reconfigure
    chmod go-rx "$SANDBOX"
}
