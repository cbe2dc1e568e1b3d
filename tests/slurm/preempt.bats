# SPDX-License-Identifier: Apache-2.0
# preempt.bats - jobs that Slurm preempts and nodes that it loses: what rv says
#
# All five jobs run at once, each on nodes of its own; a test waits for its job.
# shellcheck disable=SC2016 # programs of tasks stand in single quotes

load lib

setup_file() {
    sandbox_up --nodes 6 --gpus 6 --cpus 1 || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    # A preempted job is not looked for twice a minute, but each second.
    sed -i 's/^ReturnToService=.*/&\nKillWait=2\nSlurmdTimeout=5\nPreemptType=preempt\/partition_prio\nPreemptMode=REQUEUE/
        s/^SchedulerParameters=.*/&,sched_interval=1,bf_interval=1/' "$SLURM_CONF"
    cat >>"$SLURM_CONF" <<X
PartitionName=worker Nodes=n[1-2]
PartitionName=host Nodes=n3
PartitionName=back Nodes=n4 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=gone Nodes=n5 PriorityTier=1 PreemptMode=CANCEL
PartitionName=grace Nodes=n6 PriorityTier=1 PreemptMode=CANCEL GraceTime=60
PartitionName=high Nodes=n[4-6] PriorityTier=9 PreemptMode=OFF
X
    scontrol reconfigure
    cd "$RVT" || return 1
    export REQUESTS=$XDG_STATE_HOME/rv/requests
    SBATCH_NO_REQUEUE=1 start worker 2
    SBATCH_NO_REQUEUE=1 start gone 1
    SBATCH_NO_REQUEUE=1 start grace 1
    start back 1
    # rv run -f asks Slurm of a running job four times a minute only.
    SBATCH_NO_REQUEUE=1 "$RV" run --name host -p host -g 1 -- sh -c ': >"$0"; exec sleep 100' "$RVT/host.0" >host.out 2>&1
    wait_for 60 test -e worker.0 -a -e worker.1 -a -e host.0 -a -e back.0 -a -e gone.0 -a -e grace.0
    # Slurm tries a port that nobody listens on for ten seconds.
    kill -9 "$(daemon n2)"
    deaf n2
    end_node n3
    deaf n3
    sbatch -Q -p high -N3 --exclusive -o /dev/null --wrap true
}

teardown_file() {
    local pid
    if [ -e "${RVT:-/nowhere}/deaf" ]; then
        "$RV" stop -a >&2 || true
        while read -r pid; do kill "$pid"; done <"$RVT/deaf"
        restart n2
        restart n3
        wait_for 60 all_idle
    fi
    sandbox_down
}

all_idle() {
    nodes_idle && [ -z "$(squeue -h)" ]
}

# start NAME NODES - rv run -f of a job that waits, in partition NAME
start() {
    (
        s=0
        timeout -k 5 120 "$RV" run -f --name "$1" -p "$1" -g "$2" -- sh -c \
            'echo $$ >$0.$RANK; exec sleep 100' "$1" </dev/null >"$1.out" 2>"$1.err" || s=$?
        echo "$s" >"$1.status"
    ) 3>&- &
}

# deaf NODE - something in its slurmd's place that answers nobody
deaf() {
    wait_for 60 gone "$(daemon "$1")"
    /usr/bin/python3 -c 'import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(50)
while True: s.accept()[0].close()' "$(sed -n "s/^NodeName=$1 .* Port=\([0-9]*\) .*/\1/p" "$SLURM_CONF")" 3>&- &
    echo $! >>deaf
}

# end_node NODE - all that runs there, at once: the node has no power. What
# slurmd started writes to its log or has its name.
end_node() {
    /usr/bin/python3 - "$1" "$SLURM_CONF" "$SANDBOX/log/$1.log" <<'X'
import os
import signal
import sys

node, conf, log = sys.argv[1:]
want = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={conf}".encode()}


def there(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        if want <= set(f.read().split(b"\0")):
            return True
    fds = os.listdir(f"/proc/{pid}/fd")
    return log in [os.readlink(f"/proc/{pid}/fd/{n}") for n in fds]


pids = []
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    try:
        if there(pid):
            pids.append(pid)
    except OSError:
        pass
for number in signal.SIGSTOP, signal.SIGKILL:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
X
}

# ended NAME STATUS - with it; shows what rv said
ended() {
    wait_for 60 test -s "$RVT/$1.status"
    cat "$RVT/$1.err"
    [ "$(cat "$RVT/$1.status")" = "$2" ]
}

# said NAME REGEX - rv did, once
said() {
    [ "$(grep -cE "$2" "$RVT/$1.err")" = 1 ]
}

# failure NAME FILTER - what jq makes of its failure.json, which is as its schema says
failure() {
    local file
    file=$(grep -lE "\"name\": *\"$1\"" "$REQUESTS"/*/request.json)
    file=${file%/*}/failure.json
    valid "$file" >&2
    jq -c "$2" "$file"
}

@test "preempted and cancelled: said, no rank is to blame" {
    ended gone 143
    said gone '^rv: job [0-9]+ \(gone\) failed: the job was told to end \(SIGTERM\): preempted by another job$'
    said gone '^rv:   advice: write checkpoints'
    [ "$(failure gone '[.kind, .rank, .node, .well]')" = '["preemption",null,null,[0]]' ]
}

@test "preempted with a time of grace, of which Slurm says nothing: asked and said" {
    ended grace 143
    said grace '^rv: job [0-9]+ \(grace\) failed: the job was told to end \(SIGTERM\): preempted by another job$'
    said grace '^rv:   advice: write checkpoints'
    [ "$(failure grace '[.kind, .rank, .well]')" = '["preemption",null,[0]]' ]
}

@test "preempted and put back into the queue: said, with the reason" {
    wait_for 60 grep -q 'put back into the queue' "$RVT/back.err"
    cat "$RVT/back.err"
    said back '^rv: job [0-9]+ was put back into the queue'
    said back '^rv: the job was told to end \(SIGTERM\): preempted by another job$'
    [ "$(failure back '[.kind, .rank, .restart]')" = '["preemption",null,0]' ]
}

@test "a node of the job is lost: named, no rank is to blame" {
    ended worker 143
    said worker '^rv: job [0-9]+ \(worker\) failed: the job was told to end \(SIGTERM\): node n2 failed$'
    said worker "^rv:   advice: submit again; 'sinfo -R'"
    [ "$(failure worker '[.kind, .rank, .node, .well, .silent]')" = '["node_failure",null,"n2",[0],[1]]' ]
}

@test "the node of the batch step is lost: said in the last lines" {
    wait_job "$(awk '$1 == "job" { print $2 }' "$RVT/host.out")" NODE_FAIL
    run_cmd "$RV" logs -f host
    [ "$status" = 0 ]
    [[ ${lines[-2]} == "rv: job "*" was ended by Slurm: NODE_FAIL, NodeDown" ]]
    [[ ${lines[-1]} == "rv:   advice: submit again; 'sinfo -R'"* ]]
}
