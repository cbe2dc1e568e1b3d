# SPDX-License-Identifier: Apache-2.0
# fanout.bats - several jobs of one request on a real cluster: two partitions of
# a node each, whose limits differ, so that no job can say both
# shellcheck disable=SC2016,SC2154 # programs of tasks stand in single quotes; run.bash and bats set the rest

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
    [ -z "${RVT_SKIP:-}" ] || return 0
    # In the file, so that a slurmctld that starts anew knows them.
    printf 'PartitionName=p1 Nodes=n1 MaxTime=60\nPartitionName=p2 Nodes=n2 MaxTime=UNLIMITED\n' >>"$SANDBOX/slurm.conf"
    scontrol reconfigure
    wait_for 60 nodes_idle
    # A site that says where its requests are; else a job must have run before.
    export XDG_CONFIG_HOME=$RVT/config
    mkdir -p "$XDG_CONFIG_HOME/rv"
}

setup() {
    skip_without_slurm
    STATE=$RVT/requests.$BATS_TEST_NUMBER
    printf '[defaults]\nstate_dir = %s\npartition = p1,p2\nfanout = on\n' "$STATE" >"$XDG_CONFIG_HOME/rv/rv.conf"
    cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
    [ -z "${RVT_SKIP:-}" ] || return 0
    "$RV" stop -a >/dev/null 2>&1 || true
    scancel -u "$(id -u)" || true
    wait_for 60 all_idle
}

# gates - both nodes are taken, n1 for half an hour, n2 for one; sets g1, g2
gates() {
    g1=$(sbatch --parsable -w n1 -p p1 --exclusive -t 30 -o /dev/null --wrap 'echo $$ >pid.1; exec sleep 900')
    g2=$(sbatch --parsable -w n2 -p p2 --exclusive -t 60 -o /dev/null --wrap 'sleep 900')
    wait_job "$g1" RUNNING
    wait_job "$g2" RUNNING
}

# jobs_of - sets jobs, the ids that the only request has noted, and request
jobs_of() {
    request=$(echo "$STATE"/requests/*)
    mapfile -t jobs < <(cd "$request/jobs" && printf '%s\n' *.json | sed 's/\.json$//' | sort -n)
}

is_over() {
    [[ $(job_state "$1") == C[AO]* ]]
}

done_with() {
    [ "$(jq -r 'select(.state == "done") | .exit_status' "$request/status.json" 2>/dev/null)" = "$1" ]
}

# one_ran N - the command ran on node N and nowhere else, and no job is left
one_ran() {
    wait_for 60 done_with 0
    for job in "${jobs[@]}"; do
        wait_for 60 is_over "$job"
    done
    [ "$(cat ran)" = "$1" ]
}

# sbatch_is SCRIPT - in the place of sbatch, with its words; $real is sbatch
sbatch_is() {
    mkdir -p bin
    printf '#!/bin/bash\nreal=%s\n%s\nexec "$real" "$@"\n' "$(command -v sbatch)" "$1" >bin/sbatch
    chmod +x bin/sbatch
}

with_bin() {
    PATH=$PWD/bin:$PATH run --separate-stderr timeout 60 "$@" </dev/null
    printf 'status %s\n%s\n%s\n' "$status" "$output" "$stderr"
}

# shellcheck disable=SC2034 # run.bash reads it
command=(sh -c 'echo $SLURMD_NODENAME >>ran')

@test "the second starts first: it alone runs, and the other is cancelled" {
    gates
    separate "$RV" run --dry-run --json -g 1 true
    valid <<<"$output"
    [ "$(jq -c '[.forecast.strategies[].submit, .forecast.no_fanout]' <<<"$output")" = '[true,true,null]' ]
    separate "$RV" run --dry-run -g 1 true
    [[ $output == *"fan-out    2 jobs"* ]]
    [ "$(grep -c '^submit ' <<<"$output")" = 2 ]
    separate "$RV" run --dry-run --no-fanout -g 1 true
    [[ $output == *"fan-out    none: fanout is off"* ]]
    separate "$RV" run --dry-run --array=1-2 -g 1 true
    [[ $output == *"fan-out    none: the tasks of --array are jobs already"* ]]
    follow_in_background f -g 1 --name two -- "${command[@]}"
    wait_for 60 submitted 2
    jobs_of
    # one line, of the request
    "$RV" ps --json >ps.json
    valid ps.json
    [ "$(jq -c '[.jobs[] | select(.name == "two") | .jobs]' ps.json)" = "[[${jobs[0]},${jobs[1]}]]" ]
    "$RV" ps | grep -q 'two .*first of 2 candidates'
    scancel "$g2"
    one_ran n2
    wait "$follower"
    grep -q "job ${jobs[1]} is the first to start" f.err
    job_is "${jobs[0]}" CANCELLED
    scontrol show job "${jobs[0]}" | grep -q "Comment=job ${jobs[1]} of this request runs the command"
    # what is asked for later is the winner's
    "$RV" ps -a --json | jq -e ".jobs[] | select(.name == \"two\") | .job_id == ${jobs[1]} and .exit_status == 0"
    [ "$("$RV" ps -a | grep -c ' two ')" = 1 ]
    [ -e "$STATE/logs/two-${jobs[1]}.r0.out" ]
    for file in "$request"/request.json "$request"/request-2.json "$request"/jobs/*.json; do
        valid "$file"
    done
}

submitted() {
    [ "$(find "$STATE"/requests/*/jobs -name '*.json' | wc -l)" = "$1" ]
}

@test "two start in the same second: one runs, whichever" {
    rounds=1
    [ -z "${RV_TEST_LONG:-}" ] || rounds=20
    for _ in $(seq "$rounds"); do
        rm -rf "$STATE" ran
        gates
        submit -g 1 --name both -- "${command[@]}"
        jobs_of
        [ "${#jobs[@]}" = 2 ]
        scancel "$g1" "$g2"
        winner=$(wait_for 60 done_with 0 && jq .job_id "$request/status.json")
        [[ " ${jobs[*]} " == *" $winner "* ]]
        node=$(scontrol show job "$winner" | sed -n 's/ *NodeList=\(n[12]\)$/\1/p')
        one_ran "$node"
    done
}

@test "rv stop ends all jobs of a request, by any of their numbers" {
    gates
    submit -g 1 --name gone -- "${command[@]}"
    jobs_of
    run_cmd "$RV" stop --json "${jobs[1]}"
    [ "$status" = 0 ]
    [ "$(jq -c '[.jobs[].job_id] | sort' <<<"$output")" = "[${jobs[0]},${jobs[1]}]" ]
    job_is "${jobs[0]}" CANCELLED
    job_is "${jobs[1]}" CANCELLED
    [ ! -e ran ]
}

@test "a refused submission is not the end; a limit of jobs is; all refused is an error" {
    gates
    sbatch_is 'case "$*" in *--partition=p1*) echo "sbatch: error: not in p1" >&2; exit 1 ;; esac'
    with_bin "$RV" run -g 1 --name some -- "${command[@]}"
    [ "$status" = 0 ]
    [[ $stderr == "rv: strategy 1 (p1) was not submitted: sbatch: not in p1" ]]
    jobs_of
    [ "${#jobs[@]}" = 1 ]
    scontrol show job "${jobs[0]}" | grep -q 'Partition=p2'
    # the plan is the second's, for everybody
    [ "$(jq .candidate "$request/jobs/${jobs[0]}.json")" = 2 ]
    "$RV" stop some
    sbatch_is 'case "$*" in *--partition=p2*) printf "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n" >&2; exit 1 ;; esac'
    with_bin "$RV" run -g 1 --name limited --json -- "${command[@]}"
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq '.jobs | length' <<<"$output")" = 1 ]
    [[ $stderr == *"QOSMaxSubmitJobPerUserLimit"* ]]
    "$RV" stop limited
    sbatch_is 'echo "sbatch: error: no ${3#*=}" >&2; exit 1'
    before=$(find "$STATE/requests" -mindepth 1 -maxdepth 1 | wc -l)
    with_bin "$RV" run -g 1 --name none -- "${command[@]}"
    [ "$status" = 1 ]
    [[ $stderr == "rv: cannot run 'none': strategy 1: sbatch: no p1; strategy 2: sbatch: no p2" ]]
    [ "$(find "$STATE/requests" -mindepth 1 -maxdepth 1 | wc -l)" = "$before" ]
}

@test "rv killed between submission and note: the winner ends what it finds" {
    gates
    sbatch_is 'case "$*" in *--partition=p2*) "$real" "$@" >second; kill -9 $PPID; exit 1 ;; esac'
    with_bin "$RV" run -g 1 --name killed -- "${command[@]}"
    [ "$status" != 0 ]
    jobs_of
    [ "${#jobs[@]}" = 1 ]
    jobs+=("$(tr -dc 0-9 <second)")
    scancel "$g1"
    one_ran n1
    job_is "${jobs[1]}" CANCELLED
    scontrol show job "${jobs[1]}" | grep -q "Comment=job ${jobs[0]} of this request"
}

@test "the loser is one that nobody noted: it ends by itself, and so does the winner" {
    gates
    sbatch_is 'case "$*" in *--partition=p2*) "$real" "$@" >second; kill -9 $PPID; exit 1 ;; esac'
    with_bin "$RV" run -g 1 --name lost -- "${command[@]}"
    jobs_of
    jobs+=("$(tr -dc 0-9 <second)")
    scancel "$g2"
    one_ran n2
    "$RV" ps -a --json | jq -e ".jobs[] | select(.name == \"lost\") | .job_id == ${jobs[1]}"
}

@test "no answer from slurmctld: the loser waits, and never takes over" {
    gates
    submit -g 1 --name calm -- "${command[@]}"
    jobs_of
    # Somebody holds the claim and has not begun: a gate, which lives.
    printf 'job %u restart 0 first %u\n' "$g1" "$g1" >"$request/claim"
    scancel "$g2"
    wait_job "${jobs[1]}" RUNNING
    kill -STOP "$(daemon slurmctld)"
    wait_for 60 grep -q "cannot ask for job $g1" "$STATE/logs/calm-${jobs[1]}.batch.err" || bad=1
    [ ! -e "$request/claim.1" ] || bad=1
    kill -CONT "$(daemon slurmctld)"
    [ -z "${bad:-}" ]
    [ ! -e ran ]
    touch "$request/started"
    wait_job "${jobs[1]}" COMPLETED
    scontrol show job "${jobs[1]}" | grep -q "Comment=job $g1 of this request runs the command"
    [ ! -e ran ]
    [ ! -e "$request/claim.1" ]
    "$RV" stop "${jobs[0]}" || true
}

ctld_down() {
    local pid
    pid=$(daemon slurmctld)
    kill "$pid"
    wait_for 60 gone "$pid"
}

# ctld_up - slurmctld is back, and its nodes are asked to register at once
ctld_up() {
    restart slurmctld
    wait_for 60 scontrol ping
    scontrol reconfigure
}

@test "slurmctld goes between claim and start: the winner starts when it is back" {
    gates
    # srun of the job waits before it asks, and gives up soon. The second waits
    # too: where it asks before the nodes have registered it gets no step for two
    # minutes.
    sed -i 's/^MessageTimeout=.*/MessageTimeout=5/' "$SANDBOX/slurm.conf"
    mkdir -p bin
    cat >bin/srun <<S
#!/bin/sh
case "\$*" in *--task*) touch '$PWD/asks'; until [ -e '$PWD/go' ]; do sleep 0.1; done
mkdir '$PWD/went' 2>/dev/null || until [ -e '$PWD/again' ]; do sleep 0.1; done ;; esac
exec $(command -v srun) "\$@"
S
    chmod +x bin/srun
    PATH=$PWD/bin:$PATH submit -g 1 --name late -- "${command[@]}"
    jobs_of
    scancel "$g2"
    wait_for 60 test -e asks
    grep -q "^job ${jobs[1]} " "$request/claim"
    ctld_down
    touch go
    wait_for 60 grep -q "slurmctld does not answer, so that the command cannot start" "$STATE/logs/late-${jobs[1]}.batch.err" || bad=1
    [ ! -e ran ] || bad=1
    sed -i 's/^MessageTimeout=.*/MessageTimeout=30/' "$SANDBOX/slurm.conf"
    ctld_up
    [ -z "${bad:-}" ]
    sleep 1
    touch again
    one_ran n2
    job_is "${jobs[0]}" CANCELLED
    [ "$(jq .exit_status "$request/status.json")" = 0 ]
}

@test "the claimant ends while slurmctld is away: taken over when that says so, not before" {
    gates
    submit -g 1 --name heir -- "${command[@]}"
    jobs_of
    printf 'job %u restart 0 first %u\n' "$g1" "$g1" >"$request/claim"
    scancel "$g2"
    wait_job "${jobs[1]}" RUNNING
    wait_for 60 test -s pid.1
    ctld_down
    kill "$(cat pid.1)"
    wait_for 60 grep -q "cannot ask for job $g1" "$STATE/logs/heir-${jobs[1]}.batch.err" || bad=1
    [ ! -e "$request/claim.1" ] || bad=1
    [ ! -e ran ] || bad=1
    ctld_up
    [ -z "${bad:-}" ]
    # The other one may start now too: one of the two runs the command.
    wait_for 60 done_with 0
    winner=$(jq .job_id "$request/status.json")
    grep -q "^job $winner " "$request/claim.1"
    one_ran "$(cat ran)"
    [ "$(wc -l <ran)" = 1 ]
}

@test "slurmctld goes when the command starts: the other jobs are ended when it is back" {
    gates
    pid=$(daemon slurmctld)
    submit -g 1 --name busy -- sh -c "kill -STOP $pid"' && touch stopped && until [ -e go ]; do sleep 0.1; done; echo $SLURMD_NODENAME >>ran'
    jobs_of
    scancel "$g2"
    wait_for 60 test -e stopped || bad=1
    # unless it was faster than the command
    wait_for 40 grep -q "cannot end the other jobs of the request, trying again" "$STATE/logs/busy-${jobs[1]}.batch.err" || true
    kill -CONT "$pid"
    [ -z "${bad:-}" ]
    wait_job "${jobs[0]}" CANCELLED
    touch go
    one_ran n2
}
