# SPDX-License-Identifier: Apache-2.0
# run.bats - rv run on a private Slurm of 2 nodes x 2 GPUs
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

@test "argument vectors go through unchanged (charliemeyer2000/rivanna.dev 0.0.9)" {
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

@test "the command's exit status is rv's (charliemeyer2000/rivanna.dev 0.0.9)" {
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
    # n1 may be about to be free again
    [[ $output == *"rank 0 on n"[12]" ended with status 127: cannot run './no-such-program': No such file"* ]]
    separate "$RV" run -f -- ./plain
    [ "$status" = 126 ]
}

@test "kill -9 of one rank ends the job with 137 and names it once" {
    separate "$RV" run -f -g 4 -- sh -c \
        '[ "$RANK" = 2 ] && kill -9 $$; sleep 60'
    [ "$status" = 137 ]
    [ "$(grep -c '^rv: job .* failed: rank 2 on n2 was ended by signal 9' <<<"$stderr")" = 1 ]
    # Nobody else tells it again, in other words: srun, rv-exec, the log.
    [ "$(grep -cE 'failed|rank|tasks? |signal|n2$|\<137\>' <<<"$stderr")" = 1 ]
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

@test "exit 7 of one rank ends the job with 7 within seconds (pytorch/torchx#479)" {
    separate "$RV" run -f -g 4 -- sh -c \
        '[ "$RANK" = 1 ] && { echo bad thing >&2; date +%s%N >died; exit 7; }; sleep 60'
    now=$(date +%s%N)
    [ "$status" = 7 ]
    # From the rank's end to that of the step, the batch step and rv: 5 s.
    [ $(((now - $(cat died)) / 1000000)) -lt "$(loaded 5000)" ]
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
    ! grep -q '^rv: .*rank ' f.err || false
    valid "$STATE"/requests/*/failure.json
    grep -q '"kind":"time_limit"' "$STATE"/requests/*/failure.json
}

@test "-f ends promptly after the command" {
    separate "$RV" run -f -- sh -c 'date +%s%N'
    now=$(date +%s%N)
    [ "$status" = 0 ]
    # The step, the batch step and rv end after it.
    [ $(((now - output) / 1000000)) -lt "$(loaded 3000)" ]
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

@test "job.sh's variables reach the ranks of a job whose environment is NONE" {
    for name in SBATCH_EXPORT SLURM_EXPORT_ENV; do
        FOO=1 separate env $name=NONE "$RV" run -f -- sh -c 'echo "$RV_REQUEST_DIR $RV_SEGMENT ${PATH:+path}"'
        [ "$status" = 0 ]
        [[ $output == "$STATE/requests/"*" 0 path" ]]
    done
    separate "$RV" run -f --slurm=--export=NONE -- sh -c 'echo "$RV_OUTPUT_DIR"'
    [[ $output == "$STATE/outputs/"* ]]
}

@test "functions that bash exports, and names with dots, reach the ranks" {
    separate env foo.bar=1 bash -c 'module() { echo "module $*"; }
        export -f module
        exec "$RV" run -f -g 2 -- bash -c "module load; env | grep ^foo.bar"'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "foo.bar=1
foo.bar=1
module load
module load" ]
}

@test "what is exported for srun and sbatch neither labels, shortens nor refuses a job" {
    export SLURM_LABELIO=1 SLURM_MEM_PER_CPU=10 SLURM_TIMELIMIT=1 SLURM_MULTI_PROG=1
    separate "$RV" run -f --time 5 -- sh -c \
        'echo hi; scontrol show step "$SLURM_JOB_ID.0" | grep -o "TimeLimit=.*"'
    [ "$status" = 0 ]
    [ "${lines[0]}" = hi ]
    [ "${lines[1]}" != TimeLimit=00:01:00 ]
    # one job, and not waited for
    mkfifo gate
    SBATCH_WAIT=1 SBATCH_ARRAY_INX=1-2 submit -- sh -c "read x <$PWD/gate"
    [ -z "$(scontrol show job "$job" | grep ArrayTaskId)" ]
    wait_job "$job" RUNNING
    echo x >gate
}

@test "two runs of one name share no checkpoint folder (charliemeyer2000/rivanna.dev 0.0.4)" {
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

@test "twenty submissions at once lose none (charliemeyer2000/rivanna.dev 0.0.14)" {
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

@test "what sbatch says when it refuses is shown as it is, and nothing is left" {
    mkdir bin
    printf '#!/bin/sh\necho "sbatch: error: Batch job submission failed: a" >&2\necho "sbatch: error: b" >&2\nexit 1\n' >bin/sbatch
    chmod 755 bin/sbatch
    PATH=$PWD/bin:$PATH separate "$RV" run -- true
    [ "$status" = 1 ]
    [ "$stderr" = "sbatch: error: Batch job submission failed: a
sbatch: error: b
rv: cannot run 'true': sbatch refused it, for the reason above" ]
    [ -z "$(ls "$STATE/requests")" ]
}

@test "a state_dir that cannot be written is one clear error" {
    touch file
    XDG_STATE_HOME=$PWD/file separate "$RV" run -- true
    [ "$status" = 1 ]
    [ "$(wc -l <<<"$stderr")" = 1 ]
    [[ $stderr == *"$PWD/file"*state_dir* ]]
}

@test "a working folder that was removed is said to be it" {
    mkdir gone
    cd gone
    rmdir "$OLDPWD/gone"
    separate "$RV" run -- true
    [ "$status" = 1 ]
    [ "$stderr" = "rv: cannot run 'true': the working folder: No such file or directory; it was removed: cd to one that is there" ]
    [ ! -e "$STATE/requests" ] || [ -z "$(ls "$STATE/requests")" ]
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
    separate timeout 30 "$RV" run --dry-run -- true
    [ "$status" = 1 ]
    [[ $stderr == *"rv.conf: not a regular file"* ]]
}

@test "without a controller: status 3 within ten seconds, and what to do" {
    local i=0 k conf words
    sed 's/^SlurmctldPort=.*/SlurmctldPort=1/' "$SLURM_CONF" >dead.conf
    for conf in "$PWD/dead.conf" "$PWD/none.conf"; do
        for words in 'run true' 'run --dry-run true' 'run -f true' 'ps' 'stop 1' 'stop -a'; do
            # One asks again for five seconds, so all do at once.
            (
                status=0
                # shellcheck disable=SC2086 # the words
                SLURM_CONF=$conf timeout 30 "$RV" $words </dev/null >out.$i 2>err.$i || status=$?
                echo "$status" >status.$i
            ) 3>&- &
            i=$((i + 1))
        done
    done
    wait
    tail -n 3 err.*
    for ((k = 0; k < i; k++)); do
        [ "$(cat status.$k)" = 3 ]
        [ ! -s out.$k ]
        [ "$(grep -vc 'asking again for' err.$k)" = 1 ]
        grep -q "rv sandbox up" err.$k
    done
    [ "$(grep -l 'asking again for' err.* | wc -l)" = 6 ]
    [ ! -e "$STATE" ]
}

@test "slurmctld of another release, and a slurm.conf of one: said at once" {
    # each answer begins with a version that no release has
    /usr/bin/python3 - >port 3>&- <<'P' &
import socket, struct
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peers = []
while True:
    peer, _ = server.accept()
    size, = struct.unpack("!I", peer.recv(4, socket.MSG_WAITALL))
    peer.recv(size, socket.MSG_WAITALL)
    body = struct.pack("!HHHH", 0x7f00, 0, 0, 0) + bytes(64)
    peer.sendall(struct.pack("!I", len(body)) + body)
    peers.append(peer)  # libslurm takes an end before its answer for no answer
P
    fake=$!
    wait_for 30 test -s port
    sed "s/^SlurmctldPort=.*/SlurmctldPort=$(cat port)/" "$SLURM_CONF" >other.conf
    for words in 'run true' 'ps' 'stop 1' 'logs 1' 'status'; do
        # shellcheck disable=SC2086 # the words
        SLURM_CONF=$PWD/other.conf separate "$RV" $words
        [ "$status" = 3 ] || { kill "$fake"; false; }
        [[ $stderr == *"slurmctld is of another release of Slurm, and this rv was built for "* ]]
        [ "${#stderr_lines[@]}" = 1 ]
    done
    kill "$fake"
    (cat "$SLURM_CONF" && echo OfAnotherRelease=1) >other.conf
    SLURM_CONF=$PWD/other.conf separate "$RV" status
    [ "$status" = 1 ]
    [[ $stderr == *"OfAnotherRelease"* ]]
    # what is not in files is not said to be gone
    SLURM_CONF=$PWD/other.conf separate "$RV" logs 1
    [ "$status" = 3 ]
    [[ $stderr == "rv: cannot show logs: no request here has the id or name '1', and of other jobs nothing is known: "* ]]
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
        echo "$output" >"usage.${words//[ \/]/-}"
    done
    valid usage.*
}

@test "what ranks leave validates" {
    separate "$RV" run -f -g 4 -- sh -c '[ "$RANK" != 2 ] || exit 7; sleep 60'
    [ "$status" = 7 ]
    valid "$STATE"/requests/*/status.json "$STATE"/requests/*/rank-2.json \
        "$STATE"/requests/*/failure.json
}
