#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scale.sh - rv status, rv run --dry-run and rv ps on a real slurmctld with
# 2,000 nodes and 5,000 waiting jobs, beside Slurm's own answers
#
# scale.sh [-k] [-p] [JOBS [NODES...]]: by default 5000, and 100, 500 and 2000
# nodes; with -p JOBS is that of the last NODES, and fewer in proportion of others.
# slurmctld takes the nodes for present (State=IDLE), and one slurmd, whose port
# is the port of all, answers its pings for them. A tenth of the nodes are drained, some
# reserved, some idle, most MIXED or full by allocations as of salloc
# --no-shell; the waiting jobs fit nowhere now, and all are this user's, each
# with the folder of a request as rv run leaves it, which is rv ps' worst case.
# Ours is rv, less scale_ask, which makes the same calls of libslurm and no
# more: processor time, both in turns, the least of ROUNDS (9). "first ps" is rv ps
# where the index of requests, which rv run keeps, was removed. Status 1 where ours, but for that, is
# 200 ms or more, a process of rv grows past 50 MiB, or the time grows
# faster than nodes and jobs do. -k keeps the last cluster, and prints its
# folder.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
build=${RV_BUILD:-${top_builddir:-$here/build}}
rv=$build/rv keep='' proportion=0
while getopts kp word; do
    case $word in
        k) keep=1 ;;
        p) proportion=1 ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
all=${1:-5000}
shift $(($# > 0))
[ $# -gt 0 ] || set -- 100 500 2000
bats_require_minimum_version() { :; }
. "$here/tests/slurm/lib.bash"
dir=$(mktemp -d /tmp/rvbench.XXXXXX)
SANDBOX=$dir/s
export XDG_STATE_HOME=$dir/state
bring_down() {
    [ ! -e "$SANDBOX/sandbox.json" ] || "$rv" sandbox down --dir "$SANDBOX" >&2
    rm -rf "$dir"
}
trap bring_down EXIT
unset "${!SLURM_@}" "${!SBATCH_@}"

# describe NODES - slurm.conf of the cluster, from the sandbox's own
describe() {
    local at
    at=$(sed -n 's/^NodeName=n1 .*\(Port=[0-9]*\).*/NodeHostname=localhost NodeAddr=127.0.0.1 \1/p' "$SANDBOX/slurm.conf")
    sed -i '/^PartitionName/d; /^SchedulerParameters/d' "$SANDBOX/slurm.conf"
    cat >>"$SANDBOX/slurm.conf" <<C
SlurmdTimeout=0
MaxJobCount=20000
SchedulerParameters=batch_sched_delay=30,bf_interval=600
NodeName=DEFAULT CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=512000 State=IDLE
NodeName=a[1-$a] $at Gres=gpu:a100:8 Feature=a100,ib
NodeName=h[1-$h] $at Gres=gpu:h100:8 Feature=h100,ib
NodeName=v[1-$v] $at Gres=gpu:v100:4 Feature=v100
PartitionName=gpu Nodes=a[1-$a],h[1-$h],v[1-$v] Default=YES MaxTime=3-0 State=UP
PartitionName=long Nodes=a[1-$a] MaxTime=INFINITE State=UP
PartitionName=half Nodes=a[1-$((a / 2))],h[1-$((h / 2))] MaxTime=1-0 State=UP
PartitionName=prio Nodes=a[1-$a],h[1-$h],v[1-$v] MaxTime=12:00:00 PriorityTier=2 State=UP
C
}

# cluster NODES - bring it up, full and without waiting jobs
cluster() {
    local n=$1 pid
    a=$((n / 2)) h=$((n / 4)) v=$((n - n / 2 - n / 4))
    "$rv" sandbox up --dir "$SANDBOX" --nodes 1 --gpus 1 --made-up >&2
    eval "$("$rv" sandbox env --dir "$SANDBOX")"
    for pid in "$(daemon n1)" "$(daemon slurmctld)"; do
        kill "$pid"
        wait_for 30 gone "$pid"
    done
    describe
    rm -rf "$SANDBOX"/state/*
    restart slurmctld
    restart n1
    wait_for 60 scontrol ping
    scontrol update nodename="a[1-$((a / 10))],v[1-$((v / 10))]" state=drain reason=bench
    scontrol create reservation=bench starttime=now duration=10:00:00 \
        users="$(id -un)" nodes="h[1-$((h / 4))]" flags=ignore_jobs >/dev/null
    allocations | "$build/tests/bench/scale_jobs" >&2
}

# Jobs of 60 to 2,880 minutes: two a node on most, and some that leave two GPUs
# of their nodes, less than any waiting job wants.
allocations() {
    awk -v a=$((a - a / 10)) -v h=$((h - h / 4)) -v v=$((v - v / 10)) '
        function job(gres, nodes) {
            print "alloc", "other" ++n, "gpu", gres, nodes, 8, 100000, 60 + n * 37 % 2820, "- -"
        }
        BEGIN {
            for (i = 0; i < int(a / 3); i++) job("gpu:a100:6", 1)
            for (i = 0; i < 2 * (a - int(a / 3)); i++) job("gpu:a100:4", 1)
            for (i = 0; i < h - 1; i += 2) job("gpu:h100:8", 2)
            for (i = 0; i < v; i++) job("gpu:v100:2", 1)
        }'
}

# Waiting jobs, of which one in ten wants several nodes.
waiting() {
    awk -v jobs="$jobs" -v top="$XDG_STATE_HOME/rv/requests" '
        BEGIN {
            split("gpu long gpu,long half prio", part)
            srand(1)
            for (i = 0; i < jobs; i++) {
                type = i % 3 ? "a100" : "h100"
                p = part[1 + int(rand() * 5)]
                if (p ~ /long/) type = "a100"
                gpus = 3 + int(rand() * 6)
                print "batch", "train" i, p, "gpu:" (i % 7 ? type ":" : "") gpus, \
                    rand() < .1 ? 2 + int(rand() * 4) : 1, 1 + int(rand() * 4), \
                    1000 * int(1 + rand() * 50), 10 + int(rand() * 700), \
                    i % 7 ? "-" : p ~ /long/ ? "a100" : "a100|h100", \
                    top "/" sprintf("20260101-000000-%08x", i) "/job.sh"
            }
        }'
}

# The folders of the waiting jobs' requests, as rv run leaves them; an hour old.
folders() {
    "$rv" run -g 8 --slurm=--hold --name template --checkpoint=USR1@60 -- python3 train.py >&2
    squeue -h -t PD -o '%i %j %o' | /usr/bin/python3 -c '
import json, os, shutil, sys, time
rows = [line.split() for line in sys.stdin]
made = next(os.path.dirname(script) for _, name, script in rows if name == "template")
job, = os.listdir(made + "/jobs")
request, noted = json.load(open(made + "/request.json")), json.load(open(f"{made}/jobs/{job}"))
for number, name, script in rows:
    d = os.path.dirname(script)
    if name != "template":
        os.makedirs(d + "/jobs")
        for file in "argv", "job.sh":
            shutil.copy(f"{made}/{file}", d)
        json.dump(request | {"id": os.path.basename(d), "name": name}, open(d + "/request.json", "w"), indent=1)
        json.dump(noted | {"job_id": int(number)}, open(f"{d}/jobs/{number}.json", "w"), indent=1)
        for folder in d + "/jobs", d:
            os.utime(folder, (time.time() - 3600,) * 2)
'
    "$rv" stop template >&2
}

# compare COMMAND... - rv COMMAND beside scale_ask: a line of figures, and ours
# in ms into ours; "first ps" is one that finds no index
compare() {
    local out
    out=$(/usr/bin/python3 - "${ROUNDS:-9}" "$rv" "$build/tests/bench/scale_ask" "$@" <<'P'
import glob, os, subprocess, sys, time
rounds, rv, ask, *words = sys.argv[1:]
first = words[0] == "first"
words = words[first:]
def once(argv):
    t = time.monotonic()
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, use = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"{argv}: status {status}")
    return (use.ru_utime + use.ru_stime) * 1e3, (time.monotonic() - t) * 1e3, use.ru_maxrss / 1024
a, b = [], []
for _ in range(int(rounds)):
    for index in glob.glob(os.environ["XDG_STATE_HOME"] + "/rv/requests/.index") if first else ():
        os.unlink(index)
    a.append(once([rv] + words))
    b.append(once([ask, words[0]]))
least = lambda rows, i: min(r[i] for r in rows)
print("%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f" % (
    least(a, 0) - least(b, 0), least(a, 1) - least(b, 1), least(a, 0), least(b, 0), least(a, 1), least(b, 1),
    max(r[2] for r in a), max(r[2] for r in b)))
P
    )
    read -r ours wall cpu1 cpu2 wall1 wall2 mib mib2 <<<"$out"
    printf '%5s nodes, %5s waiting  rv %-10s ours %4s ms (wall %4s)   rv %4s (%4s)   Slurm %4s (%4s)   %3s MiB (Slurm %s)\n' \
        "$nodes" "$jobs" "${1/first/first ps}" "$ours" "$wall" "$cpu1" "$wall1" "$cpu2" "$wall2" "$mib" "$mib2"
    [ "$1" = first ] || [ "$ours" -lt 200 ] || failed=1
    [ "$mib" -le 50 ] || failed=1
}

failed=0
declare -A first
for nodes; do
    jobs=$((proportion ? all * nodes / ${!#} : all))
    cluster "$nodes"
    waiting | "$build/tests/bench/scale_jobs" >&2
    folders
    echo "# $(sinfo -ho '%D %T' | sort | tr '\n' ' '); $(squeue -ht R | wc -l) run, $(squeue -ht PD | wc -l) wait"
    for what in status 'run --dry-run -g 16 -- true' 'first ps' ps; do
        # shellcheck disable=SC2086 # words
        compare $what
        # A fixed part, and 5 ms that the clock may err.
        [ -z "${first[$what]:-}" ] ||
            [ "$ours" -le $((${first[$what]} * 3 * nodes / first_nodes / 2 + 5)) ] || failed=1
        # Less than 5 ms is not told from none.
        : "${first[$what]:=$((ours < 5 ? 5 : ours))}" "${first_nodes:=$nodes}"
    done
    if [ -n "$keep" ] && [ "$nodes" = "${!#}" ]; then
        trap - EXIT
        echo "kept: XDG_STATE_HOME=$XDG_STATE_HOME SLURM_CONF=$SANDBOX/slurm.conf; rv sandbox down --dir $SANDBOX"
    else
        "$rv" sandbox down --dir "$SANDBOX" >&2
        rm -rf "$XDG_STATE_HOME"
    fi
done
[ "$failed" = 0 ] && echo "scale: ok" || { echo "scale: too slow, or too large"; exit 1; }
