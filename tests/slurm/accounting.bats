# SPDX-License-Identifier: Apache-2.0
# accounting.bats - with slurmdbd and its database: limits, costs, preemption by
# QOS, federations
#
# One sandbox for all; each test makes the limits that it needs.

load lib

setup_file() {
    if ! PATH=$PATH:/usr/sbin:/sbin command -v slurmdbd mariadbd >/dev/null; then
        case ,${RV_REQUIRE:-}, in
        *,slurm,*)
            echo "RV_REQUIRE=slurm, but slurmdbd or mariadbd is not installed" >&2
            return 1
            ;;
        esac
        export RVT_SKIP="slurmdbd or mariadbd is not installed"
        return 0
    fi
    sandbox_up --nodes 3 --gpus 12 --cpus 8 --made-up --accounting
}

teardown_file() {
    sandbox_down
}

# limit WORD... - sacctmgr's, without a question
limit() {
    sacctmgr -i -Q "$@"
}

# tcp_of PID - its sockets of TCP
tcp_of() {
    local n
    for n in $(ls -l "/proc/$1/fd" | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p'); do
        awk -v n="$n" '$10 == n { print $2 }' /proc/net/tcp /proc/net/tcp6
    done
}

@test "the sandbox has a cluster, an account and its user, and says so" {
    run_cmd "$RV" sandbox status --dir "$SANDBOX" --json
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c '[.accounting, (.daemons | map(.alive) | all), (.daemons | length)]' <<<"$output")" = '[true,true,7]' ]
    run_cmd sacctmgr -nP show assoc user="$(id -un)" account=main format=account,user
    [ "$output" = "main|$(id -un)" ]
    # Nobody can reach the database but by its socket.
    run_cmd "$RV" sandbox up --dir "$SANDBOX" --accounting
    [ "$status" = 0 ]
    [[ $output == *"was up already"* ]]
    # The look finds slurmdbd's port, so it would find another.
    [ -n "$(tcp_of "$(daemon slurmdbd)")" ]
    [ -z "$(tcp_of "$(daemon mariadb)")" ]
}

# forgotten - slurmctld begins without the jobs that it knew, and with new numbers
forgotten() {
    local pid
    wait_for 60 nodes_idle
    pid=$(daemon slurmctld)
    kill "$pid"
    wait_for 60 gone "$pid"
    rm "$SANDBOX"/state/job_state*
    sed -i "s/^FirstJobId=.*/FirstJobId=$(($(sed -n 's/^FirstJobId=//p' "$SLURM_CONF") + 1000))/" "$SLURM_CONF"
    restart slurmctld
    wait_for 60 nodes_idle
}

# recorded COUNT [OPTION...] - sacct tells of so many runs, all with an end
recorded() {
    local n=$1
    shift
    [ "$(sacct -nPXD -o end "$@" | grep -c '^20')" = "$n" ]
}

# by_sacct ID - "elapsed gpus state" of all its runs together, the last's state
by_sacct() {
    sacct -nPXD -j "$1" -o elapsedraw,alloctres,state | awk -F'[|]' '
        { sum += $1; split($3, s, " "); state = s[1]; gpus = 0 }
        match($2, /gres\/gpu=[0-9]+/) { gpus = substr($2, RSTART + 9, RLENGTH - 9) }
        { hours += $1 * gpus }
        END { print sum, gpus, hours, state }'
}

# same ID - what rv cost and rv ps -a say of it is what sacct says
same() {
    local sum gpus seconds state
    read -r sum gpus seconds state <<<"$(by_sacct "$1")"
    jq -e --argjson id "$1" --argjson sum "$sum" --argjson gpus "$gpus" --argjson s "$seconds" '.accounting and (.requests | map(select(.job_id == $id)) | length == 1 and (.[0] | .source == "slurmdbd" and .elapsed_s == $sum and .gpus == $gpus and (.gpu_hours * 3600 - $s | fabs) < 0.001 and (.running or .incomplete | not)))' "$RVT/cost.json"
    jq -e --argjson id "$1" --argjson gpus "$gpus" --arg state "$state" '.jobs | map(select(.job_id == $id)) | length == 1 and (.[0] | .state == $state and .gpus == $gpus and .partition == "gpu" and .node_list != null and .ended_at != null)' "$RVT/ps.json"
}

# let_go ID - a job that was put back runs again, now and not in two minutes
let_go() {
    wait_job "$1" PENDING
    wait_for 60 nodes_idle
    sleep 1 # Slurm refuses a start within the second of the end
    scontrol update jobid="$1" starttime=now
}

@test "what slurmctld has forgotten comes from slurmdbd, with sacct's numbers" {
    local bare back other id
    cd "$RVT"
    run_cmd "$RV" run -f -g 2 --name ours -- sleep 1
    [ "$status" = 0 ]
    read -r other < <(jq '.job_id' "$XDG_STATE_HOME"/rv/requests/*/jobs/*.json)
    bare=$(sbatch --parsable --gres=gpu:3 -J bare -o /dev/null --wrap 'sleep 2; exit 3')
    back=$(sbatch --parsable --gres=gpu:1 -J back -o /dev/null --wrap '[ -z "$SLURM_RESTART_COUNT" ] && sleep 100; sleep 1')
    wait_job "$back" RUNNING
    "$RV" ps -a --json >ps.json
    [ "$(jq --argjson id "$back" '.jobs | map(select(.job_id == $id)) | length' ps.json)" = 1 ]
    scontrol requeue "$back"
    let_go "$back"
    wait_for 60 job_is "$back" COMPLETED
    wait_for 60 recorded 4 -j "$other,$bare,$back"
    forgotten
    [ "$(scontrol show job "$back" 2>&1 | grep -c Invalid)" = 1 ]
    "$RV" cost --json >cost.json
    "$RV" ps -a --json >ps.json
    valid cost.json ps.json
    cat cost.json ps.json
    for id in "$other" "$bare" "$back"; do same "$id"; done
    # The last run's time is that of ps, and no other job is told of twice.
    [ "$(jq --argjson id "$back" '.jobs[] | select(.job_id == $id).elapsed_s' ps.json)" = "$(sacct -nPX -j "$back" -o elapsedraw)" ]
    [ "$(jq -c '[.jobs[] | select(.job_id | IN('"$other,$bare,$back"')) | .exit_status]' ps.json)" = '[0,3,0]' ]
    [ "$(jq -c '.requests | map(.request_id != null)' cost.json)" = '[true,false,false]' ]
    # Without the requests' files too.
    XDG_STATE_HOME=$RVT/none "$RV" cost --json >cost.json
    XDG_STATE_HOME=$RVT/none "$RV" ps -a --json >ps.json
    for id in "$other" "$bare" "$back"; do same "$id"; done
}

# plan WORD... - rv run --dry-run --json; what jq makes of it with the filter FILTER
plan() {
    run_cmd "$RV" run --dry-run --json "$@" -- true
}

# scontrol shows limits a user of a QOS whose user has used something alone
over_limit() {
    local rc=0
    "$RV" run --dry-run -g "${1:-4}" -- true || rc=$?
    [ "$rc" = 5 ]
}

@test "a QOS allows fewer GPUs a user: said, with what would work" {
    limit modify qos normal set maxtrespu=gres/gpu=2
    limit add qos big set maxtrespu=gres/gpu=8
    limit modify user "$(id -un)" set qos=normal,big
    wait_for 30 over_limit
    run_cmd "$RV" run -g 4 -- true
    [ "$status" = 5 ]
    [[ $output == *"qos normal allows 2 GPUs a user; 4 are asked: -g 2 would work, or --qos=big, which allows 8" ]]
    [ -z "$(squeue -h)" ]
    plan -g 4 --qos big
    [ "$status" = 0 ]
    plan -g 2
    [ "$(jq -r '.forecast.strategies[0].start' <<<"$output")" = at ]
}

@test "what is in use counts: the start is unknown, and why is said" {
    local id
    id=$(sbatch --parsable --gres=gpu:1 -o /dev/null --wrap 'sleep 100')
    wait_job "$id" RUNNING
    plan -g 2
    [ "$status" = 0 ]
    [ "$(jq -r '.forecast.strategies[0].start' <<<"$output")" = unknown ]
    [ "$(jq -r '.forecast.strategies[0].why' <<<"$output")" = "qos normal allows 2 GPUs a user, 1 are in use" ]
    scancel "$id"
    wait_for 60 nodes_idle
    limit modify qos normal set maxtrespu=gres/gpu=-1
}

@test "a limit on one type of GPU binds who gets that type" {
    local id
    limit modify qos normal set maxtrespu=gres/gpu:a100=2
    wait_for 30 over_limit 3
    run_cmd "$RV" run -g 3 -- true
    [ "$status" = 5 ]
    [[ $output == *"qos normal allows 2 a100 GPUs a user; 3 are asked: -g 2 would work" ]]
    id=$(sbatch --parsable --gres=gpu:a100:1 -o /dev/null --wrap 'sleep 100')
    wait_job "$id" RUNNING
    plan -g 2
    [ "$(jq -r '.forecast.strategies[0] | [.start, .why] | join(" ")' <<<"$output")" = "unknown qos normal allows 2 a100 GPUs a user, 1 are in use" ]
    # and so it is
    other=$(sbatch --parsable --gres=gpu:a100:2 -o /dev/null --wrap true)
    wait_for 60 waits_for "$other" QOSMaxGRESPerUser
    scancel "$id"
    wait_job "$other" COMPLETED
    wait_for 60 nodes_idle
    limit modify qos normal set maxtrespu=gres/gpu:a100=-1
}

# waits_for ID REASON
waits_for() {
    [ "$(squeue -h -j "$1" -o %r)" = "$2" ]
}

@test "a partition with a QOS of its own goes beyond the job's" {
    limit modify qos normal set maxtrespu=gres/gpu=2
    wait_for 30 over_limit
    scontrol create partition=own nodes=ALL qos=big
    # there alone, and where it is one of several
    plan -g 4 -p own
    [ "$status" = 0 ]
    [ "$(jq -r '.plan.partition' <<<"$output")" = own ]
    plan -g 4
    [ "$(jq -r '.plan.partition' <<<"$output")" = own ]
    plan -g 2
    [ "$(jq -r '.plan.partition' <<<"$output")" = gpu,own ]
    run_cmd "$RV" run -g 4 -p gpu -- true
    [ "$status" = 5 ]
    # Slurm thinks so too
    run_cmd "$RV" run -f -g 4 -- true
    [ "$status" = 0 ]
    wait_for 60 nodes_idle
    scontrol delete partition=own
    limit modify qos normal set maxtrespu=gres/gpu=-1
}

@test "a limit on time shortens what was not given, and refuses what was" {
    limit modify qos normal set maxwall=10
    wait_for 30 has_limit 'MaxWallPJ=10'
    plan -g 1
    [ "$(jq .plan.time_s <<<"$output")" = 600 ]
    run_cmd "$RV" run --time 1h -g 1 -- true
    [ "$status" = 5 ]
    [[ $output == *"qos normal allows at most 00:10:00 a job; give --time=00:10:00 or less" ]]
    limit modify qos normal set maxwall=-1
}

@test "no more jobs may be submitted: refused before sbatch" {
    local id
    limit modify qos normal set maxsubmitjobsperuser=1
    wait_for 30 has_limit 'MaxSubmitJobsPU=1'
    id=$(sbatch --parsable --hold -o /dev/null --wrap true)
    run_cmd "$RV" run -g 1 -- true
    [ "$status" = 5 ]
    [[ $output == *"qos normal allows 1 job a user to wait or run together, and 1 do; wait until one has ended" ]]
    scancel "$id"
    limit modify qos normal set maxsubmitjobsperuser=-1
}

# segmented NAME QOS [ARG...] - a trainer on a node; in its second segment it ends
segmented() {
    run_cmd "$RV" run --checkpoint=USR1@40 --time 10m --name "$1" --qos "$2" "${@:3}" -- sh "$RVT/train.sh"
    [ "$status" = 0 ]
    job=$(awk '$1 == "job" { print $2 }' <<<"$output")
}

# segment_files NAME - of the request, or of each task of its array
segment_files() {
    local dir
    dir=$(grep -lE "\"name\": *\"$1\"" "$XDG_STATE_HOME"/rv/requests/*/request.json)
    ls "${dir%/*}"/segments.json "${dir%/*}"/array/*/segments.json 2>/dev/null
}

# causes NAME CAUSES - each of them ended so
causes() {
    local files
    files=$(segment_files "$1")
    [ -n "$files" ] && [ "$(jq -r '[.segments[].cause] | join(" ")' $files | sort -u)" = "$2" ]
}

# in_segment NAME N COUNT - so many ranks have written that they are in it
in_segment() {
    [ "$(cat "$XDG_STATE_HOME/rv/logs/$1"-*.r*.out 2>/dev/null | grep -c "^segment $2")" = "$3" ]
}

# none_run - no batch step of this file's requests is left
none_run() {
    [ -z "$(pgrep -f "rv-exec --batch $XDG_STATE_HOME")" ]
}

# all_go - jobs that wait start; again, for those that are put back just now
all_go() {
    local id
    for id in $(squeue -rh -t PD -o %i); do
        scontrol update jobid="$id" starttime=now 2>/dev/null || true
    done
    "$@"
}

@test "preempted by QOS: REQUEUE, CANCEL and a time of grace, with and without a right to requeue" {
    local name high back gone tasks chained
    cd "$RVT"
    cat >train.sh <<'T'
trap 'echo "saved $RANK"; exit 75' USR1 TERM
echo "segment $RV_SEGMENT rank $RANK"
[ "$RV_SEGMENT" = 0 ] || exit 0
while :; do sleep 0.1; done
T
    sed -i 's/^ReturnToService=.*/&\nKillWait=5\nJobRequeue=0\nPreemptType=preempt\/qos\nPreemptMode=REQUEUE/
        s/^SchedulerParameters=.*/&,sched_interval=1,bf_interval=1/' "$SLURM_CONF"
    scontrol reconfigure
    limit add qos back set preemptmode=requeue
    limit add qos gone set preemptmode=cancel
    limit add qos grace set preemptmode=requeue gracetime=60
    limit add qos first set preempt=back,gone,grace
    limit modify user "$(id -un)" set qos=normal,back,gone,grace,first
    wait_for 30 knows_qos first
    segmented back back -g 2
    back=$job
    segmented chain back -g 2
    chained=$job
    segmented gone gone -g 4
    gone=$job
    segmented tasks grace -g 2 --array=0-1
    tasks=$job
    scontrol update jobid="$chained" requeue=0
    wait_for 60 in_segment back 0 2
    wait_for 60 in_segment chain 0 2
    wait_for 60 in_segment gone 0 4
    wait_for 60 in_segment tasks 0 4
    high=$(sbatch --parsable --qos first -N3 --exclusive -o /dev/null --wrap true)
    wait_job "$high" COMPLETED 120
    # What goes on in another job does so at once.
    for name in back gone tasks; do
        wait_for 60 causes "$name" preemption
    done
    wait_for 60 none_run
    # In the time of grace they saved.
    [ "$(cat "$XDG_STATE_HOME"/rv/logs/tasks-*.r*.out | grep -c '^saved')" = 4 ]
    sleep 1 # Slurm refuses a start within the second of the end
    for name in back chain gone tasks; do
        wait_for 120 all_go causes "$name" "preemption command"
    done
    # The same jobs, but for the one that may not be requeued.
    [ "$(cat $(segment_files back) $(segment_files gone) | jq -s -c '[.[].segments[].job_id] | unique')" = "[$back,$gone]" ]
    [ "$(cat $(segment_files chain) | jq -c '[.segments[].job_id] | [.[0] == '"$chained"', .[1] > '"$chained"']')" = '[true,true]' ]
    in_segment tasks 1 4
}

# knows_qos NAME - this user may have it
knows_qos() {
    sbatch --test-only --qos="$1" --wrap true
}

@test "a federation is refused in one sentence" {
    local cluster
    cluster=$(sed -n 's/^ClusterName=//p' "$SLURM_CONF")
    limit add federation rvfed clusters="$cluster"
    wait_for 60 in_federation
    run_cmd "$RV" run --dry-run -g 1 -- true
    [ "$status" = 5 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"in the federation 'rvfed'"* ]]
    limit delete federation rvfed
}

in_federation() {
    scontrol show federation | grep -q rvfed
}

# has_limit REGEX - slurmctld's own copy says so
has_limit() {
    scontrol show assoc_mgr flags=qos | tr '\n' ' ' | grep -oE "QOS=normal.*" | grep -q "$1"
}

no_federation() {
    scontrol show federation | grep -q 'No federation' || [ -z "$(scontrol show federation)" ]
}

# quickly FILE WORD... - rv's answer within 30 s, and its one line on stderr
quickly() {
    local begin=$SECONDS
    timeout -k 5 60 "$RV" "${@:2}" >"$1" 2>"$1.err" && [ $((SECONDS - begin)) -le 30 ]
}

@test "a slurmdbd that is silent or gone: one line, and rv's own files" {
    local word
    cd "$RVT"
    wait_for 60 no_federation
    kill -STOP "$(daemon slurmdbd)"
    quickly STOP.cost cost --json || touch slow
    quickly STOP.ps ps -a --json || touch slow
    kill -CONT "$(daemon slurmdbd)"
    kill -KILL "$(daemon slurmdbd)"
    wait_for 30 gone "$(daemon slurmdbd)"
    quickly KILL.cost cost --json
    quickly KILL.ps ps -a --json
    MYSQL_UNIX_PORT=$SANDBOX/mariadb.socket restart slurmdbd
    [ ! -e slow ]
    for word in STOP KILL; do
        cat "$word".*
        valid "$word.cost" "$word.ps"
        [ "$(jq -c '[.accounting, (.requests | map(select(.name == "ours").source)), (.requests | map(.source) | unique)]' "$word.cost")" = '[false,["files"],["files"]]' ]
        [ "$(jq -c '.jobs | map(select(.name == "ours") | [.state, .partition])' "$word.ps")" = '[["COMPLETED",null]]' ]
        [ "$(grep -c "^rv: cannot ask slurmdbd: .*; what slurmctld and rv's own files tell is shown$" "$word.cost.err")" = 1 ]
        [ "$(cat "$word.cost.err" "$word.ps.err" | wc -l)" = 2 ]
    done
    wait_for 60 sacctmgr -nP show qos normal
}
