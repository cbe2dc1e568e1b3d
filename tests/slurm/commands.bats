# SPDX-License-Identifier: Apache-2.0
# commands.bats - rv env and its secrets in jobs, on a private Slurm of 2 nodes
# x 2 GPUs
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

# A value that a shell, INI or --export would break; its sum as printed by a rank.
hard_value() {
    printf 'line 1\nline 2, "q" '\''s'\'' $(touch pwned) `x` \\n ${y} =; # \xff end\n\n'
}

own_config() {
    export XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/config
}

# lacks ARG... - grep finds nothing; a plain "!" would not fail a test
lacks() {
    if grep "$@"; then return 1; fi
}

secret_files() {
    find "$STATE" -name secrets
}

no_secret_file() {
    [ -z "$(secret_files)" ]
}

ranks_run() {
    pgrep -f "rv-exec --task $STATE"
}

@test "env: set, list, rm, import; what is refused; no value is ever shown" {
    own_config
    separate "$RV" env list --json
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c .variables <<<"$output")" = '[]' ]
    hard_value | "$RV" env set HARD
    [ "$(stat -c %a config/rv/env) $(stat -c %a config/rv)" = '600 700' ]
    printf '# mine\nexport A="1"\nB='\''hush\nhush'\''\n' | (umask 0 && "$RV" env import -)
    [ "$(stat -c %a config/rv/env)" = 600 ]
    separate "$RV" env list
    [ "$output" = 'HARD=********
A=********
B=********' ]
    separate "$RV" --json env rm A
    valid <<<"$output"
    [ "$(jq -c '[.changed, [.variables[].name]]' <<<"$output")" = '[["A"],["HARD","B"]]' ]
    # Nothing goes when one of the names is wrong, or a line of the file.
    separate "$RV" env rm HARD NONE
    [ "$status" = 1 ]
    printf 'C=1\nD=a b # c\n' >bad.env
    separate "$RV" env import bad.env
    [ "$status" = 1 ]
    [[ $stderr == *"bad.env:2: "* && $stderr != *D=* ]]
    separate "$RV" env set TOKEN=hush
    [ "$status" = 2 ]
    [[ $stderr != *hush* ]]
    separate "$RV" env set RANK
    [ "$status" = 2 ]
    separate "$RV" env list
    [ "$output" = 'HARD=********
B=********' ]
    chmod 640 config/rv/env
    separate "$RV" env list --json
    [ "$status" = 1 ]
    valid <<<"$output"
    [[ $output == *"others may read it"* ]]
    separate "$RV" run --dry-run true
    [ "$status" = 1 ]
    lacks -q hush <<<"$output$stderr"
}

@test "env: a value is asked for on a terminal that does not show it" {
    own_config
    cat >typist.py <<'P'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(os.environ["RV"], ["rv", "env", "set", "TOKEN"])
seen = b""
while b"(not shown): " not in seen:
    seen += os.read(fd, 1000)
os.write(fd, b"hush hush\n")
try:
    while True:
        data = os.read(fd, 1000)
        if not data:
            break
        seen += data
except OSError:
    pass
assert os.waitpid(pid, 0)[1] == 0
assert b"hush" not in seen, seen
P
    run_cmd /usr/bin/python3 typist.py
    [ "$status" = 0 ]
    grep -qx 'TOKEN="hush hush"' config/rv/env
}

@test "env: fifty changes at once lose none" {
    own_config
    for i in $(seq 5); do
        (for j in $(seq 10); do echo "$i" | "$RV" env set "V${i}_$j" >/dev/null; done) 3>&- &
    done
    wait
    [ "$("$RV" env list | wc -l)" = 50 ]
}

@test "secrets arrive unchanged in every rank, and stand nowhere else" {
    own_config
    hard_value | "$RV" env set --raw HARD
    echo hush-hush-hush | "$RV" env set TOKEN
    want=$(hard_value | sha256sum)
    TOKEN=other follow_in_background f -g 4 -- sh -c \
        'while [ ! -e gate ]; do sleep 0.05; done; printenv HARD | head -c -1 | sha256sum; echo "$TOKEN" | md5sum'
    wait_for 30 grep -q '^rv: job.*submitted' f.err
    job=$(sed -n 's/^rv: job \([0-9]*\) .*submitted.*/\1/p' f.err)
    wait_job "$job" RUNNING
    [ "$(stat -c %a "$(secret_files)")" = 600 ]
    wait_for 30 ranks_run
    # Of the user's files, its copy in the request alone has it.
    [ "$(grep -rl hush-hush "$STATE" config "$SANDBOX" 2>/dev/null | sort)" = "$(printf '%s\n' config/rv/env "$(secret_files)" | sort)" ]
    [ -z "$(scontrol show job "$job" | grep hush)" ]
    [ -z "$(scontrol write batch_script "$job" - | grep hush)" ]
    # no command line of any process
    [ -z "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep 'hush-hush-[h]ush')" ]
    touch gate
    wait_for 30 ended "$follower"
    wait "$follower"
    [ "$(grep -c "^${want% *}" f.out)" = 4 ]
    [ "$(grep -c "^$(echo hush-hush-hush | md5sum)" f.out)" = 4 ]
    [ ! -e pwned ]
    no_secret_file
    valid "$STATE"/requests/*/request.json
}

@test "secrets go with a job that is cancelled, and stay with one that is put back" {
    own_config
    echo hush | "$RV" env set TOKEN
    submit -g 4 --name one -- sleep 60
    one=$job
    submit -g 4 --name two -- true
    wait_job "$one" RUNNING
    "$RV" stop two
    [ "$(secret_files | wc -l)" = 1 ]
    scontrol requeue "$one"
    wait_job "$one" PENDING
    wait_for 30 all_idle
    [ "$(secret_files | wc -l)" = 1 ]
    # It waits for two minutes now; to start it at once costs half of one.
    scancel "$one"
    "$RV" ps >/dev/null
    no_secret_file
    submit -g 4 --name four -- sh -c ": $STATE; sleep 60; :"
    wait_job "$job" RUNNING
    # A step that is cancelled while it begins keeps srun for KillWait.
    all_run() { [ "$(pgrep -fc "^sh -c : $STATE")" -ge 4 ]; }
    wait_for 30 all_run
    # The batch step does it, with no look at jobs.
    scancel "$job"
    wait_for 60 no_secret_file
    # one that was never started, and cancelled behind rv's back
    submit -g 4 --name hold -- sleep 60
    submit -g 4 --name three -- true
    scancel "$job"
    "$RV" ps >/dev/null
    [ "$(secret_files | wc -l)" = 1 ]
}

@test "secrets of an array go with its last task, with no look at jobs" {
    own_config
    echo hush | "$RV" env set TOKEN
    # shellcheck disable=SC2016 # for the tasks
    submit -g 1 --name arr --array 0-2%1 -- sh -c 'printenv TOKEN >>said; [ "$SLURM_ARRAY_TASK_ID" != 1 ]'
    wait_for 60 no_secret_file
    [ "$(sort -u said)" = hush ]
    [ "$(wc -l <said)" = 3 ]
}

@test "a rank whose secrets are gone, or not its user's alone, does not start" {
    own_config
    echo hush | "$RV" env set TOKEN
    submit -g 4 --name before -- sleep 60
    follow_in_background f -g 1 -- echo ran
    wait_for 30 grep -q 'is waiting' f.err
    req=$(dirname "$(grep -l echo "$STATE"/requests/*/argv)")
    chmod 644 "$req/secrets"
    "$RV" stop before
    wait_for 30 ended "$follower"
    status=0; wait "$follower" || status=$?
    [ "$status" = 125 ]
    [ ! -s f.out ]
    grep -q 'others may read it' f.err
}

@test "help and version; what stands on the wrong side of the command's name" {
    separate "$RV" version --json
    valid <<<"$output"
    [ "$(jq -r .version <<<"$output")" = "$("$RV" --version | awk '{ print $2 }')" ]
    separate "$RV" version
    [ "$output" = "$("$RV" --version)" ]
    separate "$RV" completion --json fish
    valid <<<"$output"
    cmp <(jq -j .text <<<"$output") "$RV_SRC/etc/completions/rv.fish"
    separate "$RV" help --json
    valid <<<"$output"
    for c in $(jq -r '.commands[].name' <<<"$output"); do
        [ "$("$RV" help "$c")" = "$("$RV" "$c" --help)" ]
        [ -n "$("$RV" help "$c")" ]
    done
    separate "$RV" help pss
    [ "$status" = 2 ]
    [[ $stderr == *"did you mean 'ps'"* ]]
    separate "$RV" -g 4 run true
    [ "$status" = 2 ]
    [[ $stderr == *"'-g' before the command"* ]]
    separate "$RV" ps --sandbox
    [ "$status" = 2 ]
    [[ $stderr == *"'--sandbox' stands before the command: rv --sandbox ps;"* ]]
}

# sbatch_words ARG... - the words that rv run would give sbatch, one a line
sbatch_words() {
    "$RV" run --dry-run --json "$@" | jq -r '.sbatch_argv[]'
}

@test "run hands Slurm's own options on" {
    words=$(sbatch_words -A acc --qos q --reservation=r -x n1 -w n2 \
        --dependency=after:1 --array=0-3%2 --mail-type=END --mail-user=me \
        --exclusive=user --slurm=--nice=7 --slurm -H true)
    for w in --account=acc --qos=q --reservation=r --exclude=n1 --nodelist=n2 \
        --dependency=after:1 --array=0-3%2 --mail-type=END \
        --mail-user=me --exclusive=user --nice=7 -H; do
        grep -qxF -- "$w" <<<"$words"
    done
    submit --name away -g 1 -x n1 --slurm=--nice=7 --slurm=--comment='two words' -- \
        sh -c 'echo $SLURM_JOB_NODELIST $CUDA_VISIBLE_DEVICES'
    scontrol show job "$job" -o | grep -E 'ExcNodeList=n1 .*Comment=two words|Comment=two words.*ExcNodeList=n1'
    scontrol show job "$job" -o | grep -q 'Nice=7'
    submit --name behind -g 0 --dependency="afterok:$job" -- sh -c 'echo gpus=$CUDA_VISIBLE_DEVICES $WORLD_SIZE'
    wait_job "$job" COMPLETED
    [ "$("$RV" logs away)" = "n2 0" ]
    [ "$("$RV" logs behind)" = "gpus= 1" ]
}

@test "run refuses what it decides itself, other clusters and absent containers" {
    separate "$RV" run --slurm=--nodes=2 true
    [ "$status" = 2 ]
    [[ $stderr == *"use --nodes;"* ]]
    separate "$RV" run -M other true
    [ "$status" = 5 ]
    [[ $stderr == *"one cluster"* ]]
    for v in SLURM_CLUSTERS SBATCH_CLUSTERS; do
        run_cmd env $v=other "$RV" ps
        [ "$status" = 5 ]
        [[ $output == "rv: rv works with one cluster, the one of SLURM_CONF, and $v names 'other'; unset it" ]]
        run_cmd env $v=other "$RV" version
        [ "$status" = 0 ]
    done
    separate "$RV" run --container-image=x true
    [ "$status" = 5 ]
    [[ $stderr == *"srun here has no --container-image"* ]]
    separate "$RV" run -f -g 0 echo --gpus 2
    [ "$status" = 0 ]
    [ "$output" = '--gpus 2' ]
    grep -q "^rv: --gpus behind 'echo' is that command's own" <<<"$stderr"
    separate "$RV" run -f -g 0 -- echo --gpus 2
    lacks -q "command's own" <<<"$stderr"
}

@test "what a filter of the site says is shown as it is" {
    mkdir etc
    sed 's/^include /&/' "$SANDBOX/slurm.conf" >etc/slurm.conf
    echo 'CliFilterPlugins=lua' >>etc/slurm.conf
    for f in gres.conf plugstack.conf cgroup.conf; do
        [ ! -e "$SANDBOX/$f" ] || cp "$SANDBOX/$f" etc/
    done
    cat >etc/cli_filter.lua <<'L'
function slurm_cli_setup_defaults (options, early) return slurm.SUCCESS end
function slurm_cli_post_submit (offset, id, step) return slurm.SUCCESS end
function slurm_cli_pre_submit (options, offset)
    if options["comment"] == nil then return slurm.SUCCESS end
    slurm.log_error ("this site wants %s", options["comment"])
    if options["comment"] == "more" then slurm.log_error ("  ask   the desk") end
    return slurm.ERROR
end
L
    SLURM_CONF=$PWD/etc/slurm.conf separate "$RV" run true
    [ "$status" = 0 ]
    SLURM_CONF=$PWD/etc/slurm.conf separate "$RV" run --slurm=--comment=less true
    [ "$status" = 1 ]
    grep -q 'this site wants less$' <<<"$stderr"
    [ "$(tail -n 1 <<<"$stderr")" = "rv: cannot run 'true': sbatch refused it, for the reason above" ]
    separate "$RV" run --reservation=none true
    [ "$status" = 1 ]
    [ "$stderr" = "rv: cannot run 'true': sbatch: Batch job submission failed: Requested reservation is invalid" ]
    SLURM_CONF=$PWD/etc/slurm.conf separate "$RV" run --slurm=--comment=more true
    [ "$status" = 1 ]
    grep -q '  ask   the desk$' <<<"$stderr"
    [ -z "$(ls "$STATE/requests" | tail -n +2)" ]
}

@test "what a site's own sbatch prints beside the id, and its status, lose no job" {
    local real says
    real=$(command -v sbatch)
    mkdir bin
    for says in 'echo "Welcome to 3 clusters"; echo 17 of them; "$real" "$@"' \
        '"$real" "$@"; echo; echo "Bye."' '"$real" "$@"; exit 3' \
        '"$real" "$@" >/dev/null; echo "Submitted, thank you"'; do
        printf '#!/bin/sh\nreal=%s\n%s\n' "$real" "$says" >bin/sbatch
        chmod +x bin/sbatch
        PATH=$PWD/bin:$PATH separate "$RV" run -f --name guest -- echo hi
        [ "$status" = 0 ]
        [ "$output" = hi ]
    done
    # no id and no job: nothing is left
    printf '#!/bin/sh\necho later\n' >bin/sbatch
    PATH=$PWD/bin:$PATH separate "$RV" run -f --name guest -- echo hi
    [ "$status" = 1 ]
    [ "$stderr" = "rv: cannot run 'guest': sbatch printed no job id but 'later?'" ]
    [ "$(find "$STATE/requests" -mindepth 1 -maxdepth 1 -name "2*" | wc -l)" = 4 ]
}

@test "status: what is free, used and down, and who waits" {
    # GPUs of the partition's type: free used down total, jobs: running pending their GPUs
    numbers() {
        "$RV" status --json >status.json && valid status.json &&
            jq -rj '.partitions[0] | (.gpus[0] | .free, " ", .used, " ", .down, " ", .total), " ", .running_jobs, " ", .pending_jobs, " ", .pending_gpus' status.json
    }
    shows() { [ "$(numbers)" = "$1" ]; }
    wait_for 60 shows '4 0 0 4 0 0 0'
    submit --name one -g 1 -w n1 -- sleep 60
    wait_job "$job" RUNNING
    submit --name four -g 4 -- sleep 60
    scontrol update nodename=n1 state=fail reason='bad fan'
    run_cmd "$RV" status
    [ "$status" = 0 ]
    [[ ${lines[1]} == "gpu*  "*"a100  "*" 2     1     1      4  1 job runs, 1 waits for 4 GPUs" ]]
    [ "${lines[2]}" = "n1 is failing: bad fan" ]
    shows '2 1 1 4 1 1 4'
    [ "$(jq -c .down_nodes status.json)" = '[{"name":"n1","state":"is failing","reason":"bad fan"}]' ]
    scontrol update nodename=n1 state=resume
    SLURM_CONF=$RVT/nowhere separate "$RV" status --json
    [ "$status" = 3 ]
    valid <<<"$output"
    SLURM_CONF=$RVT separate "$RV" status
    [ "$status" = 3 ]
    [[ $stderr == "rv: cannot "*": SLURM_CONF names the folder $RVT; it must name a file, as $RVT/slurm.conf;"* ]]
}

@test "cost: GPU hours from the requests' own files, without a controller too" {
    separate "$RV" cost --json
    valid <<<"$output"
    jq -e '.gpu_hours == 0 and .requests == []' <<<"$output"
    separate "$RV" run -f -g 4 --name paid -- sleep 1.2
    submit -g 1 --name runs -- sleep 60
    wait_job "$job" RUNNING
    wait_for 30 ranks_run
    separate "$RV" cost --json
    valid <<<"$output"
    jq -e '.requests[] | select(.name == "paid") | .gpus == 4 and .elapsed_s >= 1 and .elapsed_s < 30 and (.gpu_hours * 3600 - 4 * .elapsed_s | fabs) < 0.001 and .cost == null and (.running | not) and .gpu_type == "a100"' <<<"$output"
    jq -e '.requests[] | select(.name == "runs") | .running' <<<"$output"
    SLURM_CONF=$RVT/nowhere separate "$RV" cost
    [ "$status" = 0 ]
    grep -qE '^[0-9]+ +paid +a100 +4 +00:00:[0-9]+ +0\.0' <<<"$output"
    separate "$RV" cost --since 5
    [ "$status" = 2 ]
}

@test "up: a shell's command on the GPUs, with the secrets, in an allocation that ends" {
    own_config
    echo hush-hush-up | "$RV" env set TOKEN
    separate "$RV" up -g 4 -- sh -c \
        'echo $SLURM_JOB_ID $SLURM_NTASKS $TOKEN $CUDA_VISIBLE_DEVICES; srun sh -c "echo \$SLURM_PROCID"; grep -l hush-hush[-]up -r '"$SANDBOX"' ; exit 7'
    [ "$status" = 7 ]
    [[ ${lines[0]} == [0-9]*" 4 hush-hush-up 0,1" ]]
    lacks -i warning <<<"$stderr"
    # srun in the shell: one task a GPU, on all nodes; nothing of Slurm's has the secret
    [ "$(sed 1d <<<"$output" | sort | tr '\n' ' ')" = "0 1 2 3 " ]
    wait_for 30 job_gone "${lines[0]%% *}"
    separate "$RV" up --dry-run --json -g 2 --slurm=--nice=3
    valid <<<"$output"
    jq -e '.sbatch_argv | .[0] == "salloc" and index("--nice=3") and index("srun") and (index("--parsable") | not)' <<<"$output"
    separate "$RV" up -f
    [ "$status" = 2 ]
}

job_gone() {
    [ -z "$(squeue -h -j "$1" -o %i 2>/dev/null)" ]
}

@test "attach: a command in the job, on the node that was asked for" {
    separate "$RV" attach nothing
    [ "$status" = 4 ]
    submit -g 4 --name both -- sleep 60
    wait_job "$job" RUNNING
    separate "$RV" attach both -- sh -c 'echo $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; cat; exit 3'
    [ "$status" = 3 ]
    [ "$output" = "$job n1 0,1" ]
    [ "$(echo in | "$RV" attach --node=n2 -- sh -c 'echo $SLURMD_NODENAME; cat')" = "n2
in" ]
    separate "$RV" attach both --node n3
    [ "$status" = 5 ]
    [[ $stderr == *"it has no node 'n3'"* ]]
    submit -g 4 --name queued -- true
    separate "$RV" attach queued
    [ "$status" = 5 ]
    [[ $stderr == *"it is PENDING"* ]]
}

@test "forward: bytes go both ways, several at once, until the job ends" {
    cat >serve.py <<'P'
import socketserver, sys
class H(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while True:
            part = self.request.recv(65536)
            if not part:
                break
            data += part
        self.request.sendall(data[::-1])
class S(socketserver.ThreadingTCPServer):
    daemon_threads = True
s = S(("127.0.0.1", 0), H)
open("port", "w").write(str(s.server_address[1]))
s.serve_forever()
P
    cat >ask.py <<'P'
import os, socket, sys, threading
bad = []
def ask(i):
    data = os.urandom(300000 + i)
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    got = b""
    while True:
        part = s.recv(65536)
        if not part:
            break
        got += part
    if got != data[::-1]:
        bad.append((i, len(got)))
threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not bad, bad
P
    submit -g 1 --name server -- /usr/bin/python3 serve.py
    wait_for 30 test -s port
    "$RV" forward "0:$(cat port)" server --json </dev/null >f.json 2>f.err 3>&- &
    p=$!
    wait_for 30 test -s f.json
    valid f.json
    run_cmd /usr/bin/python3 ask.py "$(jq .local_port f.json)"
    [ "$status" = 0 ]
    # a second time the port is taken, and another one leads there too
    separate "$RV" forward "$(jq .local_port f.json):$(cat port)" server
    [ "$status" = 1 ]
    [[ $stderr == "rv: cannot forward: port $(jq .local_port f.json) of this machine: Address already in use; "* ]]
    timeout -k 5 60 "$RV" forward "0:$(cat port)" server --node 0 --json </dev/null >f2.json 2>/dev/null 3>&- &
    p2=$!
    wait_for 30 test -s f2.json
    run_cmd /usr/bin/python3 ask.py "$(jq .local_port f2.json)"
    [ "$status" = 0 ]
    "$RV" stop server
    wait_for 40 ended $p2
    wait_for 40 ended $p
    wait $p
    grep -q 'server) has ended$' f.err
    separate "$RV" forward 0
    [ "$status" = 2 ]
}

@test "gpu: what nvidia-smi says on each node of the job" {
    mkdir bin
    cat >bin/nvidia-smi <<'X'
#!/bin/sh
[ "$1 $2" = "-i 0,1" ] || exit 9
echo "1, NVIDIA A100-SXM4-40GB, 97, 20480, 40960, 61, 310.25, 400.00"
echo "0, NVIDIA A100-SXM4-40GB, [N/A], 0, 40960, 31, 60.00, 400.00"
X
    chmod 755 bin/nvidia-smi
    submit -g 4 --name busy -- sleep 60
    wait_job "$job" RUNNING
    separate env PATH="$PWD/bin:$PATH" "$RV" gpu --json
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c '[.gpus[] | [.node, .index, .utilization == 97, .memory_used_bytes]]' <<<"$output")" = '[["n1",0,false,0],["n1",1,true,21474836480],["n2",0,false,0],["n2",1,true,21474836480]]' ]
    separate env PATH="$PWD/bin:$PATH" "$RV" gpu busy
    [[ ${lines[2]} == "n1 "*" 1 NVIDIA A100-SXM4-40GB "*"[##########]  97%  [#####-----]  20.0/ 40.0G   61C  310W" ]]
    # It watches until the job has ended, and that is no failure.
    env PATH="$PWD/bin:$PATH" "$RV" gpu -w busy >w.out 2>w.err </dev/null 3>&- &
    p=$!
    wait_for 30 grep -q '97%' w.out
    separate "$RV" gpu busy
    [ "$status" = 1 ]
    [[ $stderr == *"nvidia-smi"*"not found"* ]]
    scancel "$job"
    wait_for 90 ended $p
    wait $p
    [ "$(cat w.err)" = "rv: job $job (busy) does not run any more" ]
}
