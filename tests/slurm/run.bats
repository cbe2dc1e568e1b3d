# SPDX-License-Identifier: Apache-2.0
# run.bats - rv run, ps, logs and stop on a private Slurm of 2 nodes x 2 GPUs
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load lib

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

valid() {
    python3 "$RV_SRC/tests/slurm/validate.py" "$RV_SRC/etc/schema" "$@"
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
    [ "$(sinfo -h -N -o %t | sort -u)" = idle ] && [ -z "$(pgrep -f "rv-exec --batch $STATE")" ]
}

next_id() {
    scontrol show config | awk '/^NEXT_JOB_ID/ { print $3 }'
}

@test "argument vectors go through unchanged" {
    cat >show.py <<'E'
import os, sys
for a in sys.argv[1:]:
    print(os.fsencode(a).hex())
E
    args=('' ' ' 'two words' '  ' "it's" '"q"' '$(touch pwned)' '`touch pwned`'
        '$HOME' '\' '\n' $'new\nline' $'tab\t' '*' '?' '~' '-n' '--' '-f' '#x'
        'a;b' 'a&&b' '|' '>x' 'é ü 漢字 🙂' $'\xff\xfe' '%j' '%%' 'a=b' '!' '{1,2}')
    want=$(/usr/bin/python3 show.py "${args[@]}")
    separate "$RV" run -f -g 1 -- /usr/bin/python3 show.py "${args[@]}"
    [ "$status" = 0 ]
    [ "$output" = "$want" ]
    [ ! -e pwned ]
}

@test "options of the command stay the command's" {
    separate "$RV" run -f -g 1 printf '%s|' -g 7 --json --dry-run -- -f
    [ "$status" = 0 ]
    [ "$output" = '-g|7|--json|--dry-run|--|-f|' ]
}

@test "-f: stdout on stdout, stderr on stderr, the last line without newline" {
    separate "$RV" run -f -- sh -c 'echo out; echo err >&2; printf tail'
    [ "$status" = 0 ]
    [ "$output" = "out
tail" ]
    grep -qx err <<<"$stderr"
    [[ $stderr != *out* ]]
}

@test "-f shows every rank's lines whole" {
    separate "$RV" run -f -g 4 -- sh -c \
        'i=0; while [ $i -lt 50 ]; do echo "rank $SLURM_PROCID line $i of it"; i=$((i+1)); done'
    [ "$status" = 0 ]
    [ "$(sort -u <<<"$output" | wc -l)" = 200 ]
    [ "$(grep -cvxE 'rank [0-3] line [0-9]+ of it' <<<"$output")" = 0 ]
}

@test "-f -l labels the lines" {
    separate "$RV" run -f -l -g 4 -- sh -c 'echo x; printf y'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "$(for r in 0 1 2 3; do echo "$r: x"; echo "$r: y"; done)" ]
}

@test "four ranks on two nodes of two GPUs" {
    separate "$RV" run -f -g 4 -- sh -c \
        'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $SLURMD_NODENAME'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0/4 0/2 n1
1/4 1/2 n1
2/4 0/2 n2
3/4 1/2 n2" ]
}

@test "the command's exit status is rv's" {
    cat >status.sh <<'E'
case $1 in
SEGV) kill -SEGV $$ ;;
*) exit "$1" ;;
esac
E
    touch plain
    for s in 0 7 255; do
        separate "$RV" run -f -- sh status.sh $s
        [ "$status" = "$s" ]
    done
    separate "$RV" run -f -- sh status.sh SEGV
    [ "$status" = 139 ]
    [[ $stderr == *"rank 0 on n"*"signal 11"* ]]
    # bats warns of 127 unless it is told to expect it.
    run -127 timeout 60 "$RV" run -f -- ./no-such-program </dev/null
    [ "$(grep -c no-such-program <<<"${output#*submitted}")" = 1 ]
    [[ $output == *"rank 0 on n1 ended with status 127: cannot run './no-such-program': No such file"* ]]
    separate "$RV" run -f -- ./plain
    [ "$status" = 126 ]
}

@test "kill -9 of one rank ends the job with 137 and names it once" {
    separate "$RV" run -f -g 4 -- sh -c \
        '[ "$RANK" = 2 ] && kill -9 $$; sleep 60'
    [ "$status" = 137 ]
    [ "$(grep -c '^rv: job .* failed: rank 2 on n2 was ended by signal 9' <<<"$stderr")" = 1 ]
    # Nobody else tells it again, in other words: srun, rv-exec, the log.
    [ "$(grep -cE 'failed|rank|tasks? |signal|n2$|137' <<<"$stderr")" = 1 ]
    # The logs keep every word.
    separate "$RV" logs
    [[ $stderr == *"rv: rank 2 on n2 was killed by signal 9 (KILL)"* ]]
    [[ $stderr == *"srun: error: n2: task"* ]]
}

@test "kill -9 of the batch step's rv-exec is said, and its status is 137" {
    follow_in_background f -g 4 -- sh -c '[ "$RANK" != 0 ] || >up; exec sleep 100'
    wait_for 30 test -e up
    kill -9 "$(pgrep -f "rv-exec --batch $STATE")"
    # rv asks Slurm of a running job four times a minute.
    wait_for 40 ended "$follower"
    status=0; wait "$follower" || status=$?
    [ "$status" = 137 ]
    grep -q '^rv: job .* failed: its batch step .* was killed by signal 9$' f.err
}

@test "exit 7 of one rank ends the job with 7 within seconds" {
    RVT_TIMEOUT=30 separate "$RV" run -f -g 4 -- sh -c \
        '[ "$RANK" = 1 ] && { echo bad thing >&2; date +%s%N >died; exit 7; }; sleep 60'
    now=$(date +%s%N)
    [ "$status" = 7 ]
    # From the rank's end to that of the step, the batch step and rv: 5 s.
    [ $(((now - $(cat died)) / 1000000)) -lt 5000 ]
    [[ $stderr == *"failed: rank 1 on n1 ended with status 7"*"bad thing"* ]]
    # The rest of the block once, below that line.
    [ "$(grep -c '^rv:   still well: 0,2-3$' <<<"$stderr")" = 1 ]
    [[ $stderr == *"failed: rank 1 on n1"*"rv:   still well: 0,2-3" ]]
    [ "$(grep -c 'bad thing' <<<"$stderr")" = 2 ]
}

@test "the time limit is named as the cause, no rank is, with advice" {
    follow_in_background f -g 4 --time 1m -- sh -c '[ "$RANK" != 0 ] || >up; exec sleep 300'
    wait_for 30 test -e up
    job=$(sed -n 's/^rv: job \([0-9]*\) .*submitted.*/\1/p' f.err)
    # Slurm looks at limits twice a minute, and ends what is past its limit.
    scontrol update JobId="$job" EndTime=now
    wait_for 60 ended "$follower"
    status=0; wait "$follower" || status=$?
    [ "$status" = 143 ]
    grep -q "^rv: job $job .*failed: .*the time limit was reached$" f.err
    [ "$(grep -c '^rv:   advice: ask for more by --time' f.err)" = 1 ]
    ! grep -q '^rv: .*rank ' f.err
    valid "$STATE"/requests/*/failure.json
    grep -q '"kind":"time_limit"' "$STATE"/requests/*/failure.json
}

@test "-f ends promptly after the command" {
    separate "$RV" run -f -- sh -c 'date +%s%N'
    now=$(date +%s%N)
    [ "$status" = 0 ]
    # The step, the batch step and rv end after it: 3 s on a loaded machine.
    [ $(((now - output) / 1000000)) -lt 3000 ]
}

@test "job.sh gives the job its variables" {
    unset PYTHONUNBUFFERED
    TOKENIZERS_PARALLELISM=true separate "$RV" run -f --name envy -- sh -c \
        'env | grep -E "^(RV_(REQUEST|OUTPUT|CHECKPOINT|SEGMENT|TOTAL)|PYTHONUNB|TOKENI)" | sort; [ -d "$RV_OUTPUT_DIR" ] && [ -d "$RV_CHECKPOINT_DIR" ]'
    [ "$status" = 0 ]
    id=$(basename "$STATE"/requests/*)
    job=$(basename "$STATE"/requests/*/jobs/*.json .json)
    [ "$output" = "PYTHONUNBUFFERED=1
RV_CHECKPOINT_DIR=$STATE/checkpoints/envy-$id
RV_OUTPUT_DIR=$STATE/outputs/envy-$job
RV_REQUEST_DIR=$STATE/requests/$id
RV_REQUEST_ID=$id
RV_SEGMENT=0
RV_TOTAL_ELAPSED=0
TOKENIZERS_PARALLELISM=true" ]
}

@test "two runs of one name share no checkpoint folder" {
    separate "$RV" run -f --name same -- sh -c 'echo $RV_CHECKPOINT_DIR'
    first=$output
    separate "$RV" run -f --name same -- sh -c 'echo $RV_CHECKPOINT_DIR'
    [ -n "$first" ]
    [ "$first" != "$output" ]
}

@test "nothing of a request is readable by others" {
    umask 022
    submit -- true
    [ -z "$(find "$STATE/requests" -perm /077)" ]
    [ "$(stat -c %a "$STATE")" = 700 ]
}

@test "a failure is not run again" {
    separate "$RV" run -f -- sh -c 'echo x >>"$RV_CHECKPOINT_DIR/runs"; exit 3'
    [ "$status" = 3 ]
    job=$(basename "$STATE"/requests/*/jobs/*.json .json)
    wait_job "$job" FAILED
    [ "$(cat "$STATE"/checkpoints/*/runs)" = x ]
    [ "$(ls "$STATE"/requests/*/jobs | wc -l)" = 1 ]
}

@test "twenty submissions at once lose none" {
    for _ in 1 2 3 4 5; do
        pids=
        for _ in 1 2 3 4; do
            "$RV" run -g 0 true </dev/null >/dev/null 3>&- &
            pids="$pids $!"
        done
        for p in $pids; do wait "$p"; done
    done
    run_cmd "$RV" ps -a --json
    [ "$status" = 0 ]
    [ "$(jq '[.jobs[] | select(.request_id)] | length' <<<"$output")" = 20 ]
    [ "$(jq '[.jobs[].request_id] | unique | map(select(.)) | length' <<<"$output")" = 20 ]
}

@test "--dry-run prints the sbatch line, submits nothing, burns no id" {
    before=$(next_id)
    separate "$RV" run --dry-run -g 4 -t A100 --time 90m --mem 1G --name x -- true
    [ "$status" = 0 ]
    [[ $output == *"2 x 2 GPUs"* ]]
    [[ $output == *"sbatch --parsable --job-name=x --partition=gpu --nodes=2 --ntasks-per-node=2 --cpus-per-task="*" --gres=gpu:a100:2 --mem=1024M --time=01:30:00 "* ]]
    [[ $output != *--rv-* ]]
    [ "$(next_id)" = "$before" ]
    [ ! -e "$STATE" ]
}

@test "launchers get one task a node" {
    separate "$RV" run --dry-run --json -g 4 -- torchrun --nproc_per_node=2 --nnodes=2 x.py
    [ "$status" = 0 ]
    [ "$(jq -c '.plan | [.launch, .nodes, .tasks, .gpus_per_node]' <<<"$output")" = '["per_node",2,2,2]' ]
    [ "$(jq -r .name <<<"$output")" = x ]
    separate "$RV" run --dry-run -g 4 -- torchrun --standalone x.py
    [ "$status" = 5 ] # a node has two
    separate "$RV" run --nodes 2 -g 4 -- torchrun --standalone x.py
    [ "$status" = 2 ]
    [[ $stderr == "rv: cannot run 'x': --standalone stays on one node; leave it out, or --nodes=2;"* ]]
    separate "$RV" run --dry-run --json -- torchrun --nproc_per_node=2 x.py
    [ "$(jq -c '.plan | [.gpus, .nodes, .tasks]' <<<"$output")" = '[2,1,1]' ]
    separate "$RV" run -g 3 -- torchrun --nproc_per_node=2 x.py
    [ "$status" = 5 ]
    [[ $stderr == *"does not divide 3"* ]]
}

@test "what cannot be met is refused with what would work" {
    before=$(next_id)
    refused() { # WORDS... -- TEXT
        local words=()
        while [ "$1" != @ ]; do words+=("$1"); shift; done
        separate "$RV" run "${words[@]}" true
        [ "$status" = 5 ] || return 1
        [ "$(wc -l <<<"$stderr")" = 1 ] || return 1
        [[ $stderr == "rv: cannot run"*"$2"* ]]
    }
    refused -g 5 @ '-g 4 would work'
    refused -g 3 @ '-g 2 would work'
    refused -t h100 @ 'there is a100 (4 in all, 2 a node)'
    refused -p none @ 'there is gpu'
    refused --mem 9000G @ '--mem='
    refused -g 2 --nodes 3 @ '--nodes=1 would work'
    refused --mig @ 'the cluster has no MIG slices'
    [ "$(next_id)" = "$before" ]
    [ ! -e "$STATE" ]
}

@test "bad words are usage errors" {
    for words in '' '-g' '-g 2x true' '--nope true' '-f --json true' '--name ../x true'; do
        # shellcheck disable=SC2086 # the words
        separate "$RV" run $words
        [ "$status" = 2 ]
        [ "$(wc -l <<<"$stderr")" = 1 ]
    done
}

@test "what sbatch refuses is one line and leaves nothing" {
    mkdir bin
    printf '#!/bin/sh\necho "sbatch: error: Batch job submission failed: a" >&2\necho "sbatch: error: b" >&2\nexit 1\n' >bin/sbatch
    chmod 755 bin/sbatch
    PATH=$PWD/bin:$PATH separate "$RV" run -- true
    [ "$status" = 1 ]
    [ "$stderr" = "rv: cannot run 'true': sbatch: Batch job submission failed: a; b" ]
    [ -z "$(ls "$STATE/requests")" ]
}

@test "a state_dir that cannot be written is one clear error" {
    touch file
    XDG_STATE_HOME=$PWD/file separate "$RV" run -- true
    [ "$status" = 1 ]
    [ "$(wc -l <<<"$stderr")" = 1 ]
    [[ $stderr == *"$PWD/file"*state_dir* ]]
}

@test "rv.conf gives defaults, options go before them" {
    mkdir -p conf/rv
    cat >conf/rv/rv.conf <<E
[defaults]
gpus = 2
time = 1h
mem = 2G
type = a100
partition = gpu
account = lab
state_dir = $PWD/elsewhere
nccl_timeout = 90s
[env]
SITE_VALUE = two words
E
    export XDG_CONFIG_HOME=$PWD/conf
    separate "$RV" run --dry-run -- true
    [ "$status" = 0 ]
    [[ $output == *" --gres=gpu:a100:2 --mem=2048M --time=01:00:00 --account=lab "*"$PWD/elsewhere/"* ]]
    separate "$RV" run --dry-run -g 1 --time 2h --mem 1G -A other -- true
    [[ $output == *" --gres=gpu:a100:1 --mem=1024M --time=02:00:00 --account=other "* ]]
    separate "$RV" run -f -- sh -c \
        'echo $RV_NCCL_TIMEOUT $DEEPSPEED_TIMEOUT $SITE_VALUE'
    [ "$status" = 0 ]
    [ "$output" = "90 2 two words
90 2 two words" ]
    [ -d elsewhere/requests ]
    sed -i 's/^gpus =.*/gpsu = 2/' conf/rv/rv.conf
    separate "$RV" run --dry-run -- true
    [ "$status" = 1 ]
    [[ $stderr == *"rv.conf:2: "*gpus* ]]
    # A FIFO would be waited for.
    rm conf/rv/rv.conf
    mkfifo conf/rv/rv.conf
    separate timeout 10 "$RV" run --dry-run -- true
    [ "$status" = 1 ]
    [[ $stderr == *"rv.conf: not a regular file"* ]]
}

@test "without a controller: status 3 within five seconds, and what to do" {
    sed 's/^SlurmctldPort=.*/SlurmctldPort=1/' "$SLURM_CONF" >dead.conf
    for conf in "$PWD/dead.conf" "$PWD/none.conf"; do
        for words in 'run true' 'run --dry-run true' 'run -f true' 'ps' 'stop 1' 'stop -a'; do
            # shellcheck disable=SC2086 # the words
            RVT_TIMEOUT=5 SLURM_CONF=$conf separate "$RV" $words
            [ "$status" = 3 ]
            [ "$(wc -l <<<"$stderr")" = 1 ]
            [[ $stderr == *"rv sandbox up"* ]]
        done
    done
    [ ! -e "$STATE" ]
}

@test "--json validates, and carries nothing else on stdout" {
    separate "$RV" run --dry-run --json -g 2 -- true
    [ "$status" = 0 ]
    valid <<<"$output"
    separate "$RV" run --json -g 2 --name js -- sleep 60
    [ "$status" = 0 ]
    valid <<<"$output"
    job=$(jq .job_id <<<"$output")
    dir=$(jq -r .request_dir <<<"$output")
    valid "$dir/request.json" "$dir/jobs/$job.json"
    wait_for 30 test -e "$dir/status.json"
    valid "$dir/status.json"
    separate "$RV" ps --json
    valid <<<"$output"
    [ "$(jq -c '.jobs[] | [.job_id, .name, .gpus, .gpu_type]' <<<"$output")" = "[$job,\"js\",2,\"a100\"]" ]
    # Named twice, it is stopped once.
    separate "$RV" stop --json js "$job"
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c '[.jobs[].job_id]' <<<"$output")" = "[$job]" ]
    separate "$RV" stop --json js
    [ "$status" = 4 ]
    valid <<<"$output"
    separate "$RV" run --json -g 99 -- true
    [ "$status" = 5 ]
    valid <<<"$output"
    for words in '--json run -g x -- true' 'run --nope --json true' \
        'ps --nope --json' 'sandbox up --nope --json' --json; do
        # shellcheck disable=SC2086 # words
        separate "$RV" $words
        [ "$status" = 2 ]
        [ -z "$stderr" ]
        valid <<<"$output"
    done
}

@test "what ranks leave validates" {
    separate "$RV" run -f -g 4 -- sh -c '[ "$RANK" != 2 ] || exit 7; sleep 60'
    [ "$status" = 7 ]
    valid "$STATE"/requests/*/status.json "$STATE"/requests/*/rank-2.json \
        "$STATE"/requests/*/failure.json
}

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
    separate "$RV" stop -a
    [ "$output" = "stopped job $here (here)" ]
    wait_job "$here" CANCELLED
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

@test "a job that is stopped while it waits ends -f with 125" {
    submit -g 4 --name blocker -- sleep 60
    follow_in_background f -g 4 --name waiter -- true
    wait_for 30 grep -q 'is waiting' f.err
    separate "$RV" stop waiter
    [ "$status" = 0 ]
    wait_for 20 ended $follower
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
    # first start must be over, or its end is taken for that of the second.
    wait_job "$job" PENDING
    wait_for 30 all_idle
    scontrol update jobid="$job" starttime=now
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
try rv st
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
