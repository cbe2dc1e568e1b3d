# SPDX-License-Identifier: Apache-2.0
# cgroup.bats - jobs confined by control groups: rv sandbox up --cgroup
#
# Skips where the machine cannot: no root, no control groups of version 1.
# RV_REQUIRE=cgroup turns that into a failure.
# shellcheck disable=SC2016 # programs of tasks stand in single quotes

load lib

setup_file() {
    require_slurm || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    require_cgroup || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    sandbox_up --nodes 2 --gpus 4 --cpus 2 --cgroup
}

teardown_file() {
    sandbox_down
}

# require_cgroup - RVT_SKIP with rv's own reason where it refuses
require_cgroup() {
    local dir out s=0
    dir=$(short_dir)
    out=$("$RV" sandbox up --dir "$dir/s" --cgroup --nodes 1 --gpus 0 2>&1) || s=$?
    "$RV" sandbox down --dir "$dir/s" >/dev/null && rmdir "$dir" || return 1
    [ "$s" != 0 ] || return 0
    case $s,$out,${RV_REQUIRE:-}, in
    *,cgroup,*) ;;
    5,*"--cgroup needs "*)
        export RVT_SKIP=${out#*: }
        return 0
        ;;
    esac
    echo "$out" >&2
    return 1
}

# groups [DIR] - the sandbox's groups in the machine's trees, and below them
groups() {
    local cluster
    cluster=$(sed -n 's/^ClusterName=//p' "${1:-$SANDBOX}/slurm.conf")
    awk '/ - cgroup /{print $5}' /proc/self/mountinfo | while read -r mount; do
        [ ! -e "$mount/$cluster" ] || find "$mount/$cluster" -type d
    done
}

# A program that tells which of its node's devices it can open: a device
# without a driver is "there" to who may open it.
devices='import errno, os
what = {errno.ENXIO: "mine", errno.EPERM: "denied"}
top = os.path.join(os.environ["SANDBOX"], os.environ["SLURMD_NODENAME"], "dev")
def look(name):
    try:
        os.close(os.open(os.path.join(top, name), os.O_RDWR))
    except OSError as e:
        return what.get(e.errno, str(e))
    return "opened"
print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("RANK"), os.environ.get("LOCAL_RANK"),
      os.environ.get("WORLD_SIZE"), *(look(n) for n in sorted(os.listdir(top)) if n.startswith("gpu")))'

# hold NAME SRUN-OPTION... - a job that stays until RVT/NAME.end is there
hold() {
    local name=$1
    shift
    srun "$@" sh -c "touch $RVT/$name.up; until [ -e $RVT/$name.end ]; do sleep 0.05; done" \
        </dev/null 3>&- &
    eval "pid_$name=$!"
    wait_for 60 test -e "$RVT/$name.up"
}

# let_go NAME
let_go() {
    touch "$RVT/$1.end"
    eval "wait \$pid_$1"
    rm "$RVT/$1".*
}

# ---- devices ----

@test "status and --json tell of it" {
    run_cmd "$RV" sandbox status --dir "$SANDBOX"
    [[ $output == *", control groups"* ]]
    run_cmd "$RV" sandbox status --dir "$SANDBOX" --json
    [[ $output == *'"cgroup":true'* ]]
    run_cmd "$RV" sandbox up --dir "$SANDBOX" --cgroup
    [ "$status" = 0 ]
}

@test "a job opens the GPUs that it has, and no other" {
    run_srun -Q -N1 -w n1 --gres=gpu:1 /usr/bin/python3 -c "$devices"
    [ "$output" = "0 None None None mine denied" ]
    run_srun -Q -N1 -w n1 --gres=gpu:2 /usr/bin/python3 -c "$devices"
    [ "$output" = "0,1 None None None mine mine" ]
    run_srun -Q -N1 -w n1 /usr/bin/python3 -c "$devices"
    [ "$output" = "None None None None denied denied" ]
    # What is no GPU stays open.
    run_srun -Q -N1 sh -c 'echo x >/dev/null && head -c1 /dev/zero | wc -c'
    [ "$output" = 1 ]
}

@test "a second job's device 0 is the physical second GPU, its ranks are right (flux-framework/flux-core#7790, #7807)" {
    hold first -N1 -n1 -c1 -w n1 --gres=gpu:1
    run_srun -Q -w n1 --rv-gpu=1 /usr/bin/python3 -c "$devices"
    second=$output
    let_go first
    [ "$second" = "0 0 0 1 denied mine" ]
}

@test "ranks over two nodes: all of the node's GPUs, LOCAL_RANK tells which" {
    run_srun -Q -N2 --rv-gpu=4 /usr/bin/python3 -c "$devices"
    [ "$status" = 0 ]
    [ "$(sort -k2n <<<"$output")" = "0,1 0 0 4 mine mine
0,1 1 1 4 mine mine
0,1 2 0 4 mine mine
0,1 3 1 4 mine mine" ]
    # One left on each node: rank 1 has the second of n2 alone.
    hold a -N1 -n1 -c1 -w n1 --gres=gpu:1
    hold b -N1 -n1 -c1 -w n2 --gres=gpu:1
    run_srun -Q -N2 --rv-gpu=2 /usr/bin/python3 -c "$devices"
    two=$output
    let_go a
    let_go b
    [ "$(sort -k2n <<<"$two")" = "0 0 0 2 denied mine
0 1 0 2 denied mine" ]
}

@test "rv run's ranks and a batch step are confined too" {
    cd "$RVT"
    # stderr apart: its lines come into the middle of the other's
    run_cmd sh -c 'exec "$@" 2>"$0"' "$RVT/run.err" "$RV" run -f -g 1 -- /usr/bin/python3 -c "$devices"
    cat "$RVT/run.err"
    [ "$status" = 0 ]
    [[ ${lines[*]} == *"0 0 0 1 mine denied"* ]]
    sbatch -W -N1 -w n2 --gres=gpu:1 -o "$RVT/batch.out" --wrap "exec /usr/bin/python3 -c '$devices'"
    [ "$(cat "$RVT/batch.out")" = "0 None None None mine denied" ]
}

# ---- memory ----

# grow MIB - a program that takes so much memory and touches it
grow() {
    echo "print(len(bytearray($1 << 20)) >> 20)"
}

@test "a task has the memory it asked for, and no more" {
    run_srun -Q -N1 --mem=64M /usr/bin/python3 -c "$(grow 20)"
    [ "$status" = 0 ]
    [ "$output" = 20 ]
    run_srun -N1 --mem=64M /usr/bin/python3 -c "$(grow 100)"
    [ "$status" != 0 ]
    [[ $output != *100* ]]
    [[ $output =~ oom.kill\ event ]] # with - or _, by release
    [[ $output == *"Out Of Memory"* ]]
    run_srun -N1 --mem=300M /usr/bin/python3 -c "$(grow 100)"
    [ "$status" = 0 ]
    wait_for 60 nodes_idle
}

@test "a batch script over its memory: Slurm calls the job OUT_OF_MEMORY" {
    job=$(sbatch --parsable -N1 -n1 --mem=64M -o "$RVT/oom.out" \
        --wrap "/usr/bin/python3 -c '$(grow 100)'")
    wait_job "$job" OUT_OF_MEMORY
    [[ $(cat "$RVT/oom.out") != *100* ]]
    wait_for 60 nodes_idle
}

@test "rv-exec tells that a rank was out of memory, from the group's events" {
    # The command, and not rv-exec, has the memory; Slurm's line says no rank.
    run_srun -N1 -n2 -c1 --mem=200M --mpi=none -K "$RV_BUILD/rv-exec" sh -c \
        '[ $RANK = 1 ] || exec sleep 60; exec /usr/bin/python3 -c "$0"' "$(grow 300)"
    [ "$status" != 0 ] # srun makes 1 of "Out Of Memory", whatever the task's
    [ "$(grep -c '^rv\[rank 1 on n' <<<"$output")" = 1 ]
    grep -qE '^rv:   after [0-9.]+ s.*, out of memory$' <<<"$output"
    grep -q '^rv:   advice: ask for more by --mem' <<<"$output"
    # An end of another kind in the same lane is not called so.
    run_srun -N1 -n1 --mem=200M --mpi=none "$RV_BUILD/rv-exec" sh -c 'kill -9 $$'
    [ "$status" = 137 ]
    [[ $output == *"rv:   advice: somebody or the kernel killed it"* ]]
    [[ $output != *"out of memory"* ]]
    wait_for 60 nodes_idle
}

# ---- processes ----

@test "no process outlives its step, wherever it ran to" {
    cat >"$RVT/run-away" <<'Y'
#!/bin/bash
trap '' TERM HUP
setsid -f env -i /bin/sleep 600
setsid -f sh -c 'setsid -f sleep 600'
Y
    chmod +x "$RVT/run-away"
    run_srun -Q -N1 -w n1 -n1 sh -c \
        '"$1"; sed -n "s/^.*:freezer:/&/p" /proc/self/cgroup; cat "$2"/cgroup/freezer/slurm_n1/uid_*/job_"$SLURM_JOB_ID"/step_0/cgroup.procs' \
        sh "$RVT/run-away" "$SANDBOX"
    [ "$status" = 0 ]
    [ "${#lines[@]}" -ge 3 ]
    for pid in "${lines[@]:1}"; do
        wait_for 30 test ! -e "/proc/$pid"
    done
    wait_for 60 nodes_idle
}

# ---- side by side, down ----

@test "two of them do not meet, and a job's groups go with it" {
    other=$RVT/o
    run_cmd "$RV" sandbox up --dir "$other" --cgroup --nodes 1 --gpus 2
    [ "$status" = 0 ]
    hold mine -N1 -n1 -c1 -w n1 --gres=gpu:1
    SLURM_CONF=$other/slurm.conf SANDBOX=$other run_srun -Q -w n1 --gres=gpu:1 /usr/bin/python3 -c "$devices"
    [ "$output" = "0 None None None mine denied" ]
    theirs=$(groups "$other")
    [ -n "$theirs" ]
    run_cmd "$RV" sandbox down --dir "$other"
    [ "$status" = 0 ]
    for group in $theirs; do [ ! -e "$group" ]; done
    groups | grep -q "/job_"
    let_go mine
    no_jobs() { ! groups | grep -q "/job_"; }
    wait_for 60 no_jobs
}

@test "down thaws a suspended job, ends it and leaves no group or device" {
    S=$RVT/down
    run_cmd "$RV" sandbox up --dir "$S" --cgroup --nodes 1 --gpus 1
    [ "$(find "$S" -type c | wc -l)" = 1 ]
    job=$(SLURM_CONF=$S/slurm.conf sbatch --parsable -o "$RVT/sleep.pid" --wrap 'echo $$; exec sleep 600')
    wait_for 60 test -s "$RVT/sleep.pid"
    SLURM_CONF=$S/slurm.conf scontrol suspend "$job"
    frozen() { grep -qx FROZEN "$S"/cgroup/freezer/slurm_n1/uid_*/job_*/step_batch/freezer.state; }
    wait_for 60 frozen
    all=$(groups "$S")
    [ -n "$all" ]
    run_cmd "$RV" sandbox down --dir "$S"
    [ "$status" = 0 ]
    wait_for 60 test ! -e "/proc/$(cat "$RVT/sleep.pid")" # but for its reaper
    for group in $all; do [ ! -e "$group" ]; done
    [ ! -e "$S" ]
}

@test "daemons killed, tasks frozen, record gone: down and up clean" {
    S=$RVT/crash
    for way in down up; do
        run_cmd "$RV" sandbox up --dir "$S" --cgroup --nodes 1 --gpus 1
        rm -f "$RVT/sleep.pid"
        job=$(SLURM_CONF=$S/slurm.conf sbatch --parsable -o "$RVT/sleep.pid" --wrap 'echo $$; exec sleep 600')
        wait_for 60 test -s "$RVT/sleep.pid"
        SLURM_CONF=$S/slurm.conf scontrol suspend "$job"
        all=$(groups "$S")
        [ -n "$all" ]
        /usr/bin/python3 -c 'import json, os, sys
for d in json.load(open(sys.argv[1]))["daemons"]: os.kill(d["pid"], 9)' "$S/sandbox.json"
        [ "$way" != down ] || rm "$S/sandbox.json"
        run_cmd "$RV" sandbox $way --dir "$S"
        [ "$status" = 0 ]
        wait_for 60 test ! -e "/proc/$(cat "$RVT/sleep.pid")" # but for its reaper
        for group in $all; do [ ! -e "$group" ]; done
        run_cmd "$RV" sandbox down --dir "$S"
        [ "$status" = 0 ]
    done
}

# ---- where it cannot be ----

@test "without the control groups, the plugins or root it says so in one line" {
    refused() {
        [ "$status" = 5 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output == "rv: cannot start the sandbox: --cgroup needs "*"$1"*"; without --cgroup jobs are not confined" ]]
        [ ! -e "$RVT/x" ]
    }
    mount=$(awk '/ - cgroup .*(^|[, ])devices(,|$)/{print $5}' /proc/self/mountinfo)
    run_cmd unshare -m sh -c 'umount -l "$1" && exec "$2" sandbox up --cgroup --dir "$3"' \
        sh "$mount" "$RV" "$RVT/x"
    refused devices
    run_cmd unshare -m sh -c 'mount -o remount,bind,ro "$1" && exec "$2" sandbox up --cgroup --dir "$3"' \
        sh "$mount" "$RV" "$RVT/x"
    refused "Read-only file system"
    plugin=$(find /usr/lib /usr/local/lib -name proctrack_cgroup.so | head -n 1)
    run_cmd unshare -m sh -c 'mount --bind "$1" "$2" && mount -t tmpfs none "$1" && exec "$3" sandbox up --cgroup --dir "$4"' \
        sh "$(dirname "$plugin")" "$(dirname "$plugin")" "$RV" "$RVT/x"
    refused proctrack_cgroup.so
    run_cmd setpriv --reuid=65534 --regid=65534 --clear-groups "$RV" sandbox up --cgroup --dir "/tmp/rvt-none.$$"
    [ "$status" = 5 ]
    [[ $output == *"--cgroup needs root"* ]]
    [ ! -e "/tmp/rvt-none.$$" ]
    # One that is up without them is another shape.
    run_cmd "$RV" sandbox up --dir "$RVT/plain" --nodes 1 --gpus 0
    run_cmd "$RV" sandbox up --dir "$RVT/plain" --cgroup
    [ "$status" = 5 ]
    [[ $output == *"no control groups"* ]]
    run_cmd "$RV" sandbox down --dir "$RVT/plain"
    [ "$status" = 0 ]
}

@test "no node is drained or down" {
    wait_for 60 nodes_idle
    nodes_well
}
