# SPDX-License-Identifier: Apache-2.0
# jobs.bats - rv ps, logs and stop, and jobs that are stopped, put back or left
# while rv run -f follows, on a private Slurm of 2 nodes x 2 GPUs
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

@test "ps shows live jobs, -a ended ones too" {
    separate "$RV" run -f --name gone -- sh -c 'exit 3'
    submit -g 4 --name here -- sleep 60
    here=$job
    separate "$RV" ps
    [ "$status" = 0 ]
    grep -qE "^$here +here " <<<"$output"
    [[ $output != *gone* ]]
    separate "$RV" ps -a
    grep -qE "gone .*status 3" <<<"$output"
    # just what is named, ended or not
    separate "$RV" ps gone
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 2 ]
    [[ $output == *" gone "*"status 3" ]]
    separate "$RV" ps --json "$here" gone
    valid <<<"$output"
    [ "$(jq -r '[.jobs[].name] | join(" ")' <<<"$output")" = "gone here" ]
    separate "$RV" ps here nothing
    [ "$status" = 4 ]
    [ "$stderr" = "rv: cannot list jobs: no job has the id or name 'nothing'; 'rv ps -a' lists all" ]
    separate "$RV" stop -a
    [ "$output" = "stopped job $here (here)" ]
    wait_job "$here" CANCELLED
}

# told FILTER WANT - of the only job of rv ps --json
told() {
    [ "$("$RV" ps --json | jq -r ".jobs[0] | $1")" = "$2" ]
}

@test "ps says why a job waits, and when it should start" {
    submit -g 1 --name later --slurm=--begin=now+2hours -- true
    wait_for 30 told .reason BeginTime
    begins=$(date -d "$(scontrol show job "$job" | grep -o 'EligibleTime=[^ ]*' | cut -d= -f2)" +%s)
    separate "$RV" ps --json
    valid <<<"$output"
    [ "$(date -d "$(jq -r '.jobs[0].expected_at' <<<"$output")" +%s)" = "$begins" ]
    separate "$RV" ps
    [[ $output == *"it is not to start before its time (BeginTime); expected at $(date -d "@$begins" +%H:%M), in "* ]]
    scontrol uhold "$job"
    wait_for 30 told .reason JobHeldUser
    told .why "held by its user; 'scontrol release' lets it go (JobHeldUser)"
    scancel "$job"
    wait_job "$job" CANCELLED
    separate "$RV" ps -a --json
    [ "$(jq -r '.jobs[-1] | [.why, .expected_at] | map(tostring) | join(" ")' <<<"$output")" = "null null" ]
}

@test "logs: streams, ranks, tail, the newest by default" {
    separate "$RV" run -f -g 4 --name first -- sh -c \
        'for i in 1 2 3; do echo "o$RANK.$i"; done; echo "e$RANK" >&2'
    separate "$RV" run -f --name second -- sh -c 'echo only; echo bad >&2'
    separate "$RV" logs
    [ "$output" = only ]
    [ "$stderr" = bad ]
    separate "$RV" logs first --out
    [ "$(sort <<<"$output")" = "$(for r in 0 1 2 3; do for i in 1 2 3; do echo "$r: o$r.$i"; done; done)" ]
    [ -z "$stderr" ]
    separate "$RV" logs first --err --rank 2
    [ -z "$output" ]
    [ "$stderr" = e2 ]
    separate "$RV" logs --tail 1 --rank 3 first
    [ "$output" = o3.3 ]
    separate "$RV" logs first --rank 4
    [ "$status" = 2 ]
    [[ $stderr == *"ranks 0 to 3"* ]]
    separate "$RV" logs first --out --err
    [ "$status" = 2 ]
    separate "$RV" logs none
    [ "$status" = 4 ]
    # Logs are files: no controller is needed for them.
    SLURM_CONF=$PWD/none.conf separate "$RV" logs second
    [ "$output" = only ]
}

@test "logs: of a bar its end, the ranks of a node, bytes, objects; an emptied log" {
    mkfifo gate gate2
    # shellcheck disable=SC2016
    submit -g 4 --name bars -- sh -c '
        printf "\r 0%%|\r 50%%|#" >&2
        echo begun
        [ "$RANK" = 3 ] || exit 0
        read x <"$0/gate"
        printf "\r100%%|##\nafter\n" >&2
        read x <"$0/gate2"' "$PWD"
    log=$STATE/logs/bars-$job.r3.err
    wait_for 30 grep -q '50%' "$log"
    "$RV" logs -f --err --rank 3 </dev/null >f.out 2>f.err 3>&- &
    p=$!
    echo go >gate
    wait_for 30 grep -q after f.err
    : >"$log"
    echo new >>"$log"
    wait_for 30 grep -q new f.err
    echo go >gate2
    wait_for 30 ended $p
    [ "$(cat f.err)" = "100%|##
after
new" ]
    separate "$RV" logs bars --node n2
    [ "$(sort <<<"$output")" = "2: begun
3: begun" ]
    [ "$(sort <<<"$stderr")" = "2:  50%|#
3: new" ]
    separate "$RV" logs bars --node 0 --err
    [ "$(sort <<<"$stderr")" = "0:  50%|#
1:  50%|#" ]
    separate "$RV" logs bars --rank 0 --raw
    [ "$stderr" = $'\r 0%|\r 50%|#' ]
    separate "$RV" logs bars --node n3
    [ "$status" = 5 ]
    [[ $stderr == *"its nodes are n[1-2]"* ]]
    # The job tells its nodes: Slurm names fewer while it ends, and later none.
    SLURM_CONF=$PWD/none.conf separate "$RV" logs bars --node 1
    [ "$(sort <<<"$output")" = "2: begun
3: begun" ]
    "$RV" logs bars --json --node n1 >lines 2>err
    [ ! -s err ]
    [ "$(wc -l <lines)" = 4 ]
    while read -r line; do valid <<<"$line"; done <lines
    [ "$(jq -r 'select (.rank == 1) | "\(.job_id) \(.stream) \(.text)"' lines)" = "$job out begun
$job err  50%|#" ]
}

@test "logs of more ranks than a shell may have files open" {
    # 1,024 files are the logs of 500 ranks; here 12 are those of less than four
    run_cmd "$RV" run --name=wide -g 4 -f -- sh -c 'echo out; echo err >&2'
    [ "$status" = 0 ]
    for more in '' -f; do
        run_cmd bash -c 'ulimit -Sn 12; exec "$RV" logs $1 wide' - $more
        [ "$status" = 0 ]
        [ "$(grep -c ': out$' <<<"$output")" = 4 ]
        [ "$(grep -c ': err$' <<<"$output")" = 4 ]
    done
    # where no more may be had: what would work
    run_cmd bash -c 'ulimit -n 12; exec "$RV" logs wide'
    [ "$status" = 1 ]
    [[ $output == *"Too many open files; raise 'ulimit -n', or show fewer ranks"* ]]
    run_cmd bash -c 'ulimit -n 12; exec "$RV" logs --rank 1 wide'
    [ "$status" = 0 ]
}

@test "logs -f goes on until the job ends" {
    mkfifo gate
    submit --name slow -- sh -c "echo one; read x <$PWD/gate; echo two"
    "$RV" logs -f slow </dev/null >follow.out 2>follow.err 3>&- &
    p=$!
    wait_for 30 grep -q one follow.out
    echo go >gate
    wait_for 30 ended $p
    wait $p
    [ "$(cat follow.out)" = "one
two" ]
}

@test "a name, its beginning, and what is ambiguous" {
    submit -g 4 --name alpha -- sleep 60
    a=$job
    submit -g 4 --name alpine -- sleep 60
    b=$job
    submit -g 4 --name twin -- sleep 60
    c=$job
    submit -g 4 --name twin -- sleep 60
    d=$job
    separate "$RV" stop al
    [ "$status" = 4 ]
    [[ $stderr == *"$b alpine, $a alpha"* ]]
    separate "$RV" stop alph twin
    [ "$status" = 4 ]
    [[ $stderr == *"$d twin, $c twin"* ]]
    # A slip in one word ends no job at all.
    separate "$RV" ps --json
    [ "$(jq '.jobs | length' <<<"$output")" = 4 ]
    separate "$RV" stop alph "$c"
    [ "$status" = 0 ]
    separate "$RV" stop twin
    [ "$output" = "stopped job $d (twin)" ]
    separate "$RV" stop 999999
    [ "$status" = 4 ]
}

wrote() {
    cat "$STATE"/logs/"$1"-*.r*.out 2>/dev/null | grep -qx "$2"
}

@test "an array: its tasks by their own ids, all of it by its name" {
    submit -g 1 --array 0-3%2 --name many -- sh -c 'echo "task $SLURM_ARRAY_TASK_ID"; sleep 60'
    wait_job "${job}_0" RUNNING
    wait_job "${job}_1" RUNNING
    wait_for 30 wrote many 'task 1'
    separate "$RV" logs "${job}_1"
    [ "$output" = "task 1" ]
    separate "$RV" logs many
    [ "$status" = 4 ]
    [[ $stderr == *"${job}_1 many, ${job}_0 many"* ]]
    separate "$RV" ps
    grep -qE "^${job}_0 +many +RUNNING" <<<"$output"
    separate "$RV" stop "${job}_1"
    [ "$output" = "stopped job ${job}_1 (many)" ]
    wait_job "${job}_1" CANCELLED
    wait_job "${job}_2" RUNNING
    job_is "${job}_0" RUNNING
    separate "$RV" stop any
    [ "$output" = "stopped job $job (many)" ]
    wait_job "${job}_0" CANCELLED
    wait_job "${job}_2" CANCELLED
    wait_job "${job}_3" CANCELLED
}

@test "a job that is stopped while it waits ends -f with 125" {
    submit -g 4 --name blocker -- sleep 60
    follow_in_background f -g 4 --name waiter -- true
    wait_for 30 grep -q 'is waiting' f.err
    separate "$RV" stop waiter
    [ "$status" = 0 ]
    wait_for 60 ended $follower
    run wait $follower
    [ "$status" = 125 ]
    grep -q 'never started: CANCELLED' f.err
}

@test "a job that is stopped while it runs ends -f" {
    follow_in_background f --name runner -- sh -c 'echo up; sleep 60'
    wait_for 30 grep -q up f.out
    "$RV" stop runner
    wait_for 30 ended $follower
    run wait $follower
    [ "$status" -ge 125 ]
    grep -q 'rv: job' f.err
}

@test "a job that is put back into the queue is followed through" {
    follow_in_background f --name again -- sh -c \
        'echo start; [ -e "$RV_CHECKPOINT_DIR/x" ] && exit 5; : >"$RV_CHECKPOINT_DIR/x"; exec sleep 60'
    wait_for 30 grep -q start f.out
    job=$(basename "$STATE"/requests/*/jobs/*.json .json)
    scontrol requeue "$job"
    wait_for 30 grep -q 'put back into the queue' f.err
    # Slurm holds a requeued job for two minutes unless told otherwise. The
    # first start must be over, or its end is taken for that of the second; and
    # slurmd refuses what is started within the second of that end.
    wait_job "$job" PENDING
    wait_for 30 all_idle
    scontrol update jobid="$job" starttime=now+2
    wait_for 60 ended $follower
    run wait $follower
    echo "status $status"
    cat f.out f.err
    [ "$status" = 5 ]
    [ "$(cat f.out)" = "start
start" ]
}

@test "^C tells, a second one cancels; ^\\ leaves" {
    cat >keys.py <<'E'
import os, pty, signal, subprocess, sys, time
def until(path, text):
    end = time.time() + 30
    while text not in open(path).read():
        assert time.time() < end, (text, open(path).read())
        time.sleep(0.02)
def start(name):
    err = open(name + ".err", "w")
    p = subprocess.Popen([os.environ["RV"], "run", "-f", "--name", name, "--",
                          "sh", "-c", "echo up; exec sleep 60"],
                         stdin=subprocess.DEVNULL, stdout=open(name + ".out", "w"), stderr=err)
    until(name + ".out", "up")
    return p
p = start("leave")
p.send_signal(signal.SIGINT)
until("leave.err", "goes on")
p.send_signal(signal.SIGQUIT)
assert p.wait(10) == 131, p.returncode
p = start("cancel")
p.send_signal(signal.SIGINT)
until("cancel.err", "again within")
p.send_signal(signal.SIGINT)
assert p.wait(30) >= 125, p.returncode
until("cancel.err", "is being cancelled")
E
    run_cmd /usr/bin/python3 keys.py
    [ "$status" = 0 ]
    separate "$RV" ps --json
    [ "$(jq -r '[.jobs[] | select(.state == "RUNNING") | .name] | join(",")' <<<"$output")" = leave ]
}

@test "inside a job rv run submits a job of its own" {
    separate "$RV" run -f -g 2 -- env -u XDG_RUNTIME_DIR "$RV" run -f -g 2 -- \
        sh -c 'echo inner $SLURM_NTASKS $RANK'
    [ "$status" = 0 ]
    [ "$(grep -c '^inner 2 [01]$' <<<"$output")" = 4 ]
}

@test "bash completes commands, options and jobs" {
    submit -g 4 --name completed -- sleep 60
    cat >complete.sh <<'E'
. "$RV_SRC/etc/completions/rv"
try() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _rv
    echo "${COMPREPLY[*]}"
}
PATH=$RV_BUILD:$PATH
try rv sto
try rv run --na
try rv run -t a
try rv stop comp
try rv run -g 2 bash --dry-
E
    run_cmd bash complete.sh
    [ "$status" = 0 ]
    [ "${lines[0]}" = stop ]
    [ "${lines[1]}" = --name ]
    [ "${lines[2]}" = a100 ]
    [ "${lines[3]}" = completed ]
    # Behind the command, its options are its own.
    [ "${#lines[@]}" = 4 ]
}
