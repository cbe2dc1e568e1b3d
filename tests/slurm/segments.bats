# SPDX-License-Identifier: Apache-2.0
# segments.bats - --checkpoint: the signal before the limit, what goes on and
# what ends, on a private Slurm of 2 nodes x 2 GPUs
#
# Limits are whole minutes, and Slurm looks every 30 s for jobs whose signal is due
# before it looks again. The tests send the signal themselves: at 31 s before a limit
# of 2 minutes rv-exec takes it for the limit's from the start (up to 90 s early), and
# Slurm's own does not come in the first 59 s. Two tests wait for that one. Slurm holds
# a job that was put back for two minutes; StartTime=now ends that.
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 8
    [ -z "${RVT_SKIP:-}" ] || return 0
    cat >>"$SANDBOX/slurm.conf" <<'C'
KillWait=10
JobRequeue=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n[1-2] PriorityTier=1 PreemptMode=REQUEUE
PartitionName=cancel Nodes=n[1-2] PriorityTier=1 PreemptMode=CANCEL
PartitionName=grace Nodes=n[1-2] PriorityTier=1 PreemptMode=CANCEL GraceTime=60
PartitionName=high Nodes=n[1-2] PriorityTier=10 PreemptMode=OFF
C
    scontrol reconfigure
    # A trainer: says what it was told, saves when told to, and ends in its
    # third segment.
    cat >"$RVT/train.sh" <<'T'
trap 'echo "saved $RANK"; echo x >>"$RV_CHECKPOINT_DIR/saved.$RANK"; exit ${SAVED:-75}' "${SIG:-USR1}"
echo "segment $RV_SEGMENT rank $RANK"
echo x >>"$RV_OUTPUT_DIR/out.$RANK"
[ "$RV_SEGMENT" -lt "${LAST:-2}" ] || { echo "elapsed $RV_TOTAL_ELAPSED"; exit 0; }
while :; do sleep 0.1; done
T
}

# train ARG... - submit the trainer
train() {
    submit --checkpoint=USR1@31 --time 2m "$@" -- sh "$RVT/train.sh"
}

# says N TEXT - N lines of the ranks' output are TEXT
says() {
    [ "$(cat "$STATE"/logs/*-"${first:-$job}".r*.out 2>/dev/null | grep -c "$2")" = "$1" ]
}

says_any() {
    [ "$(cat "$STATE"/logs/*.r*.out 2>/dev/null | grep -c "$2")" = "$1" ]
}

array_idle() {
    [ -z "$(pgrep -f "rv-exec --task $STATE/.*/array/$1")" ] &&
        [ "$(pgrep -fc "rv-exec --batch $STATE")" = 1 ]
}

@test "the limit: all ranks save, the same job goes on, output and time stay (facebookincubator/submitit#1708, #1732)" {
    export LAST=1
    train -g 4 --nodes 2 --name on
    follow=$BATS_TEST_TMPDIR/follow
    "$RV" logs -f on </dev/null >"$follow" 2>&1 3>&- &
    follower=$!
    wait_for 30 says 4 "segment 0"
    sleep 1.1 # whole seconds are kept
    limit
    wait_for 30 says 4 "saved"
    wait_for 30 put_back
    separate "$RV" ps
    [[ $output == *"put back, Slurm holds it until "*:*:* ]]
    valid "$STATE"/requests/*/{segments,status,request}.json
    jq -e '.state == "waiting" and .first_cause == null' "$STATE"/requests/*/status.json
    let_go
    wait_for 30 done_with 0
    wait_for 30 ended "$follower"
    cat "$follow"
    says 4 "elapsed [1-9]"
    [ "$(causes)" = "limit command" ]
    [ "$(jq '[.segments[].job_id] | unique == ['"$job"']' "$STATE"/requests/*/segments.json)" = true ]
    [ "$(grep -c "^[0-3]: segment [01]" "$follow")" = 8 ]
    valid "$STATE"/requests/*/{segments,status}.json
    # both segments had the same two folders
    [ "$(cd "$STATE/checkpoints" && ls | wc -l)" = 1 ]
    [ "$(ls "$STATE"/checkpoints/*/saved.* | wc -l)" = 4 ]
    [ "$(cat "$STATE/outputs/on-$job"/out.[0-3] | wc -l)" = 8 ]
    [ "$(ls "$STATE/outputs")" = "on-$job" ]
}

@test "exit 0, a crash and a user's stop end it, also after the signal" {
    submit -g 1 --checkpoint --name well -- true
    a=$job
    submit -g 1 --checkpoint --name crash -- sh -c 'exit 7'
    b=$job
    train -g 1 --name stopped
    wait_for 30 says 1 "segment 0"
    "$RV" stop "$job"
    wait_job "$a" COMPLETED
    wait_job "$b" FAILED
    wait_job "$job" CANCELLED
    wait_for 30 all_idle
    # Requests of one second have no order.
    [ "$(causes | sort)" = "command
command
stopped" ]
    # Nor does the limit's signal save what the user stops.
    submit -g 1 --checkpoint=USR1@31 --time 2m --name late -- \
        sh -c 'trap "echo saved; sleep 1" USR1; while :; do sleep 0.1; done'
    wait_job "$job" RUNNING
    wait_for 30 pgrep -f 'trap "echo saved; sleep 1" USR1' >/dev/null
    limit
    wait_for 30 says 1 saved
    scancel "$job"
    wait_job "$job" CANCELLED
    wait_for 30 all_idle
    [ "$(causes | sort)" = "command
command
stopped
stopped" ]
}

@test "a signal that is not the limit's saves, and the job does not go on" {
    submit -g 1 --checkpoint=USR2@40 --time 2h --name early -- \
        env SIG=USR2 sh "$RVT/train.sh"
    wait_for 30 says 1 "segment 0"
    limit
    wait_for 30 done_with 75
    says 1 saved
    [ "$(causes)" = command ]
    grep -q 'not from the time limit' "$STATE"/logs/early-*.batch.err
}

@test "torchrun's own process is spared, its ranks are told (pytorch/pytorch#154849)" {
    cat >agent.py <<'A'
import os, signal, subprocess, sys
worker = "import os, signal, sys\nsignal.signal(signal.SIGUSR1, lambda *a: (os.write(1, b'worker saved\\n'), sys.exit(75)))\nos.write(1, b'worker up\\n')\nwhile True: signal.pause()"
kids = [subprocess.Popen([sys.executable, "-c", worker]) for _ in range(2)]
print("agent ends with", [k.wait() for k in kids], flush=True)
sys.exit(1)
A
    mkdir bin
    printf '#!/bin/sh\nexec /usr/bin/python3 "%s/agent.py"\n' "$PWD" >bin/torchrun
    chmod +x bin/torchrun
    submit -g 2 --checkpoint=USR1@31 --time 2m --name agent -- "$PWD/bin/torchrun" --nproc-per-node=2 x.py
    wait_for 30 says 2 "worker up"
    limit
    wait_for 30 put_back
    says 2 "worker saved"
    says 1 'agent ends with \[75, 75\]'
    [ "$(causes)" = limit ]
}

@test "what ignores the signal is killed just before the limit, and goes on" {
    # killed a fifth of the 31 s before the limit: 7 s from now
    submit -g 1 --checkpoint=USR1@31 --time 2m --name deaf -- sh -c \
        'trap "" USR1; echo "segment $RV_SEGMENT rank 0"; [ $RV_SEGMENT = 1 ] || exec sleep 600'
    wait_for 30 says 1 "segment 0"
    scontrol update jobid="$job" endtime="$(date -d '+13 seconds' +%Y-%m-%dT%H:%M:%S)"
    limit
    wait_for 30 put_back
    [ "$(causes)" = limit ]
    grep -q 'went on after its signal; it was killed' "$STATE"/logs/deaf-*.batch.err
    # Slurm had not ended it.
    run grep 'DUE TO TIME LIMIT' "$STATE"/logs/deaf-*
    [ "$status" = 1 ]
}

# array_causes TASK CAUSES
array_causes() {
    [ "$(jq -r '[.segments[].cause] | join(" ")' "$STATE"/requests/*/array/"$1"/segments.json)" = "$2" ]
}

@test "tasks of an array go on by themselves" {
    train -g 1 --array=3,5 --name whole
    array=$job
    wait_for 30 says_any 2 "segment 0"
    scancel --batch --signal=USR1 "${array}_3"
    wait_for 30 array_causes 3 limit
    wait_job "${array}_3" PENDING
    wait_job "${array}_5" RUNNING
    wait_for 30 array_idle 3
    sleep 1
    scontrol update jobid="${array}_3" starttime=now
    wait_for 30 says_any 1 "segment 1"
    scancel "${array}"
    wait_for 30 array_causes 3 "limit stopped"
    wait_for 30 array_causes 5 stopped
    [ "$(ls -d "$STATE"/checkpoints/whole-*-[35] | wc -l)" = 2 ]
}

@test "no requeue of a task: it goes on as a job of its own, the same task" {
    train -g 1 --array=3,5 --name tasks
    array=$job
    wait_for 30 says_any 2 "segment 0"
    scontrol update jobid="${array}_3" requeue=0
    scancel --batch --signal=USR1 "${array}_3"
    wait_for 60 says_any 1 "segment 1"
    jq -e '.segments[0].cause == "limit"' "$STATE"/requests/*/array/3/segments.json
    next=$(jq -r '.segments[-1].job_id' "$STATE"/requests/*/array/3/segments.json)
    [ "$next" -gt "$array" ]
    scontrol show job "$next" | grep -q 'ArrayTaskId=3'
    wait_job "${array}_5" RUNNING
    valid "$STATE"/requests/*/array/3/segments.json
    [ "$(find "$STATE"/requests/*/array/3 -name status.json | wc -l)" -le 1 ]
    scancel "$array" "$next"
    wait_for 60 all_idle
}

@test "no requeue: another job goes on, with the same logs and time" {
    train -g 2 --name chain
    first=$job
    scontrol update jobid="$job" requeue=0
    wait_for 30 says 2 "segment 0"
    "$RV" logs -f chain </dev/null >follow 2>&1 3>&- &
    follower=$!
    limit
    wait_for 60 says 2 "segment 2\|segment 1"
    job=$(jq -r '.segments[-1].job_id' "$STATE"/requests/*/segments.json)
    [ "$job" -gt "$first" ]
    scontrol update jobid="$job" requeue=0
    valid "$STATE"/requests/*/jobs/*.json "$STATE"/requests/*/segments.json
    limit
    wait_for 60 done_with 0
    wait_for 30 ended "$follower"
    cat follow
    says 2 "segment 2"
    [ "$(grep -c "^[01]: segment [012]" follow)" = 6 ]
    [ "$(causes)" = "limit limit command" ]
    [ "$(cat "$STATE/outputs/chain-$first/out.0" | wc -l)" = 3 ]
    [ "$(ls "$STATE/outputs")" = "chain-$first" ]
}

# preempted PARTITION [ARG...] - a trainer there, and another job that needs its place
preempted() {
    train -g 4 --nodes 2 -p "$@"
    wait_for 30 says 4 "segment 0"
    high=$(sbatch --parsable -p high -N2 --exclusive -o /dev/null --wrap 'sleep 0.1')
}

@test "preemption with REQUEUE goes on" {
    LAST=1 preempted low --name requeue
    wait_for 60 put_back
    [ "$(causes)" = preemption ]
    # no node is to blame
    scontrol show job "$job" | grep -q 'ExcNodeList=(null)'
    wait_job "$high" COMPLETED
}

@test "preemption with CANCEL goes on, a cancelled job does not" {
    LAST=1 preempted cancel --name cancel
    wait_for 60 put_back
    [ "$(causes)" = preemption ]
    "$RV" stop "$job"
    wait_job "$job" CANCELLED
}

@test "a broken GPU: not on that node again" {
    submit -g 1 --checkpoint --name broken -- sh -c \
        '[ $RV_SEGMENT = 1 ] && exec hostname; echo "RuntimeError: CUDA error: GPU has fallen off the bus" >&2; exit 1'
    wait_for 30 put_back
    [ "$(causes)" = hardware ]
    node=$(jq -r '.node' "$STATE"/requests/*/rank-0.json)
    scontrol show job "$job" | grep -q "ExcNodeList=$node"
    let_go
    wait_for 30 done_with 0
    [ "$(jq -r .node "$STATE"/requests/*/rank-0.json)" != "$node" ]
}

# siblings N ARG... - N jobs of one request, as several submissions leave them;
# sets jobs, in order, and request
siblings() {
    submit "${@:2}"
    request=$(echo "$STATE"/requests/*)
    mapfile -t words < <(jq -r '.sbatch_argv[1:][]' "$request/jobs/$job.json")
    jobs=("$job")
    while [ "${#jobs[@]}" -lt "$1" ]; do
        job=$(sbatch "${words[@]}")
        jq ".job_id = $job" "$request/jobs/${jobs[0]}.json" >"$request/jobs/$job.json"
        jobs+=("$job")
    done
}

@test "of four jobs of a request one runs the command, and ends the others" {
    # They wait for one job, and then start in the same second.
    gate=$(sbatch --parsable -N2 --exclusive -o /dev/null --wrap 'sleep 300')
    wait_job "$gate" RUNNING
    siblings 4 -g 1 --name one -- sh -c 'echo ran; sleep 1'
    scancel "$gate"
    wait_for 60 done_with 0
    [ "$(cat "$STATE"/logs/one-*.r0.out)" = ran ]
    winner=$(jq .job_id "$request/status.json")
    is_over() { [[ $(job_state "$1") == C[AO]* ]]; } # cancelled or completed
    for j in "${jobs[@]}"; do
        [ "$j" = "$winner" ] || wait_for 30 is_over "$j"
    done
    grep -q "^job $winner restart 0 first $winner$" "$request/claim"
    # One that begins when all is over ends, and says who ran it.
    job=$(sbatch "${words[@]}")
    wait_job "$job" COMPLETED
    scontrol show job "$job" | grep -q "Comment=job $winner of this request runs the command"
    [ "$(cat "$STATE"/logs/one-*.r0.out)" = ran ]
}

@test "a loser waits for the start, and takes over from a winner that died before" {
    siblings 1 -g 1 --name heir -- sh -c 'echo ran'
    wait_for 30 done_with 0
    # A claimant that never started: another request's folder as it leaves it.
    gate=$(sbatch --parsable -o /dev/null --wrap 'sleep 300')
    wait_job "$gate" RUNNING
    rm "$request"/{claim,started,status.json,segments.json}
    printf 'job %u restart 0 first %u\n' "$gate" "$gate" >"$request/claim"
    job=$(sbatch "${words[@]}")
    wait_job "$job" RUNNING
    sleep 1
    job_is "$job" RUNNING
    [ ! -e "$request/started" ]
    [ ! -e "$request/claim.1" ]
    scancel "$gate"
    wait_for 30 done_with 0
    grep -q "^job $job " "$request/claim.1"
    [ "$(cat "$STATE"/logs/heir-"$job".r0.out)" = ran ]
}

@test "slurmctld is asked again until it answers" {
    submit -g 1 --checkpoint=USR1@31 --time 2m --name silent -- \
        sh -c 'trap : USR1; echo "segment 0 rank 0"; until [ -e go ]; do sleep 0.1; done; exit 9'
    wait_for 30 says 1 "segment 0"
    limit
    sleep 1 # for the signal to be told apart
    pid=$(jq -r '.daemons[] | select(.name | test("slurmctld")) | .pid' "$SANDBOX/sandbox.json")
    kill -STOP "$pid"
    touch go
    wait_for 30 grep -q 'trying again' "$STATE"/logs/silent-"$job".batch.err || bad=1
    kill -CONT "$pid"
    [ -z "${bad:-}" ]
    wait_for 60 put_back
    [ "$(causes)" = limit ]
}

@test "a lost node: the job goes on, and no node is left out for it" {
    submit -g 4 --nodes 2 --checkpoint --time 2h --name lost -- \
        sh -c 'echo "segment $RV_SEGMENT rank $RANK"; exec sleep 600'
    wait_for 30 says 4 "segment 0"
    scontrol update nodename=n2 state=down reason=test
    wait_for 30 put_back
    scontrol update nodename=n2 state=resume || true # it may have come back by itself
    [ "$(causes)" = node_failure ]
    scontrol show job "$job" | grep -q 'ExcNodeList=(null)'
    scancel "$job"
    wait_for 60 all_idle
}

@test "within a preemption's grace time what was told to end goes on" {
    [ -n "${RV_TEST_LONG:-}" ] || skip "half a minute; RV_TEST_LONG=1 runs it"
    LAST=1 SIG=TERM preempted grace --name grace
    wait_for 120 put_back
    says 4 saved
    [ "$(causes)" = preemption ]
    wait_job "$high" COMPLETED
    let_go
    wait_for 60 done_with 0
    [ "$(causes)" = "preemption command" ]
}

@test "the signal is Slurm's own, before its own limit" {
    [ -n "${RV_TEST_LONG:-}" ] || skip "a minute; RV_TEST_LONG=1 runs it"
    train -g 4 --nodes 2 --checkpoint=USR1@40 --time 1m --name own
    wait_for 30 says 4 "segment 0"
    wait_for 90 put_back
    says 4 saved
    [ "$(causes)" = limit ]
}

@test "the limit alone, where the signal was lost, goes on too" {
    [ -n "${RV_TEST_LONG:-}" ] || skip "a minute; RV_TEST_LONG=1 runs it"
    train -g 1 --checkpoint=USR1@40 --time 1m --name alone
    wait_for 30 says 1 "segment 0"
    kill -STOP "$(pgrep -f "rv-exec --batch $STATE")"
    # Slurm's SIGTERM at the limit comes with SIGCONT.
    wait_for 110 put_back
    [ "$(causes)" = limit ]
}
