# SPDX-License-Identifier: Apache-2.0
# health.bats - health=report|drain: cards, the kernel's log, slow libraries
#
# NVML is fake_nvml.c. The sandbox runs in a mount namespace of its own, where a
# file stands at /dev/kmsg and /run is empty: the plugin has no word for either,
# so that none can be set wrongly.

load lib

setup_file() {
    sandbox_folder || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    export KMSG=$RVT/kmsg
    : >"$KMSG"
    # shellcheck disable=SC2016 # for the inner shell
    sandbox_up_mounted 'mount -t tmpfs rv-test-run /run
        mount --bind "$KMSG" /dev/kmsg' --nodes 1 --gpus 2 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    LOG=$SANDBOX/log/n1.log
    export LOG
}

# Not sandbox_down, which asks that no node was ever drained.
teardown_file() {
    [ -n "${RVT:-}" ] || return 0
    "$RV" sandbox down --dir "$SANDBOX" >&2 || return 1
    rm -rf "$RVT"
}

setup() {
    skip_without_slurm
    scontrol update nodename=n1 state=resume 2>/dev/null || true
    wait_for 60 node_is idle
    mark=$(wc -c <"$LOG")
}

# cards WORD... - the state of two cards; words before the first "gpu" are of
# nvmlInit_v2
cards() {
    echo "$*" >"$CARDS"
}

health() { # report|drain|off
    echo "required $RV_BUILD/spank_rv.so health=$1 nvml=$NVML" \
        >"$SANDBOX/plugstack.conf"
}

record() { # SEQ TEXT - one more of the kernel's
    echo "4,$1,1,-;$2" >>"$KMSG"
}

# node_is idle|drain|drng - as sinfo calls it. Its own word is not asked: 24.11
# lets it stand at drng after the job's end while it is asked often.
node_is() {
    case $1,$(scontrol show node n1 -o | sed -n 's/.* State=\([^ ]*\) .*/\1/p') in
    idle,IDLE | drain,IDLE+DRAIN | drng,MIXED+DRAIN | drng,ALLOCATED+DRAIN) ;;
    *) return 1 ;;
    esac
}

reason() {
    scontrol show node n1 -o | sed -n 's/.* Reason=\(.*\) \[.*/\1/p'
}

log() { # of this test
    tail -c +$((mark + 1)) "$LOG"
}

# says TEXT - the log has it by and by: the epilog runs behind the job
says() {
    local end=$((SECONDS + 60))
    until log | grep -qF "$1"; do
        [ "$SECONDS" -lt "$end" ] || { log; return 1; }
        sleep 0.1
    done
}

job() { # a job with both cards runs, and its epilog has ended
    run_srun -n1 --gres=gpu:2 sh -c 'echo ran'
    [ "$status" = 0 ]
    [[ $output = *ran* ]]
    wait_for 30 no_completing
}

no_completing() {
    [ -z "$(squeue -h -t CG,R)" ]
}

@test "healthy cards and a log without a driver's word: nothing is said" {
    health drain
    cards gpu gpu
    record 1 "usb 1-1: new device"
    job
    wait_for 60 node_is idle
    [ "$(log | grep -c 'rv: ')" = 0 ]
}

@test "report logs and goes on" {
    health report
    cards gpu failed gpu ecc=3 pending
    job
    says "rv: health of n1: GPU 00000000:10:00.0: row remapping failed"
    says "rv: health of n1: GPU 00000000:11:00.0: 3 uncorrectable ECC errors"
    says "GPU 00000000:11:00.0: a row is remapped"
    wait_for 60 node_is idle
}

@test "a job without GPUs, and health=off, look at nothing" {
    health drain
    cards crash
    run_srun -n1 true
    [ "$status" = 0 ]
    health off
    job
    wait_for 60 node_is idle
    [ "$(log | grep -c 'rv: ')" = 0 ]
}

@test "drain drains with the reason, and the job runs" {
    health drain
    cards gpu gpu lost failed
    job
    wait_for 60 node_is drain
    [ "$(reason)" = "rv: GPU 1 has fallen off the bus" ]
}

@test "a reason that stands there stays" {
    health drain
    cards gpu reset gpu
    run sbatch --parsable -o /dev/null --gres=gpu:1 --wrap 'sleep 2'
    wait_for 60 node_is drng
    [ "$(reason)" = "rv: GPU 00000000:10:00.0 needs a reset" ]
    scontrol update nodename=n1 state=drain reason="Someone is on it"
    wait_for 30 node_is drain
    says "is drained already"
    [ "$(reason)" = "Someone is on it" ]
}

@test "what needs no drain gets none: a remapping that waits, MIG, root's process" {
    health drain
    cards gpu pending gpu pages
    job
    says "GPU 00000000:10:00.0: a row is remapped or a page retired"
    says "GPU 00000000:11:00.0: a row is remapped or a page retired"
    cards gpu pid=$$ gpu mig pid=1
    job
    wait_for 60 node_is idle
}

@test "processes that no job owns drain" {
    local pid
    health drain
    /usr/bin/python3 -c 'import os, time; os.setuid(65534); time.sleep(300)' 3>&- &
    pid=$!
    wait_for 60 sh -c "[ \$(stat -c %u /proc/$pid) = 65534 ]"
    cards gpu pid=$pid gpu mig pid=$pid
    job
    kill $pid
    wait_for 60 node_is drain
    [ "$(reason)" = "rv: GPU 00000000:10:00.0: 1 left-over processes, such as $pid of uid 65534" ]
}

@test "a process of which slurmd says nothing does not drain" {
    local pid
    health drain
    /usr/bin/python3 -c 'import os, time; os.setuid(65534); time.sleep(300)' 3>&- &
    pid=$!
    wait_for 60 sh -c "[ \$(stat -c %u /proc/$pid) = 65534 ]"
    cards nobody gpu pid=$pid gpu
    job
    says "rv: health of n1: cannot ask slurmd whether processes on its GPUs are of a job: "
    says "; they are not taken for left-over ones"
    kill $pid
    wait_for 60 node_is idle
}

@test "an Xid of the hardware drains once, a program's never" {
    health drain
    cards gpu gpu
    record 10 "NVRM: Xid (PCI:0000:10:00): 13, pid=7, name=a.out, Graphics SM Warp Exception"
    record 11 "NVRM: Xid (PCI:0000:10:00): 43, pid=7, name=a.out, Ch 00000010"
    # said by a program: /dev/kmsg lets root write, as a facility of its own
    echo "12,12,1,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus." >>"$KMSG"
    job
    wait_for 60 node_is idle
    record 13 "NVRM: Xid (PCI:0000:10:00): 79, pid=7, name=a.out, GPU has fallen off the bus."
    job
    wait_for 60 node_is drain
    [ "$(reason)" = "rv: GPU 0000:10:00: Xid 79, GPU has fallen off the bus" ]
    # Repaired: the line still stands in the log, and was dealt with.
    scontrol update nodename=n1 state=resume
    wait_for 60 node_is idle
    job
    wait_for 60 node_is idle
}

@test "what slurmctld did not hear of is found again" {
    local ctld
    health drain
    ctld=$(cat "$SANDBOX/slurmctld.pid")
    record 20 "NVRM: Xid (PCI:0000:11:00): 119, pid=7, Timeout after 6s of waiting"
    # The library stops it, and so the plugin finds nobody to tell.
    cards "stop=$ctld" gpu gpu
    sbatch -o /dev/null --gres=gpu:1 --wrap true
    says "draining it did not end within 5 s; going on" ||
        { kill -CONT "$ctld"; false; }
    cards gpu gpu
    kill -CONT "$ctld"
    wait_for 30 no_completing
    wait_for 30 node_is drain
    [[ "$(reason)" = "rv: GPU 0000:11:00: Xid 119,"* ]]
}

@test "NVML hangs: 2 s each, a line, nothing else" {
    local start
    health drain
    cards hang
    start=${EPOCHREALTIME/./}
    job
    echo "$(((${EPOCHREALTIME/./} - start) / 1000)) ms"
    [ $((${EPOCHREALTIME/./} - start)) -ge 2000000 ]
    [ $(((${EPOCHREALTIME/./} - start) / 1000)) -le "$(loaded 12000)" ]
    says "a look at its GPUs did not end within 2 s; going on"
    wait_for 60 node_is idle
}

@test "an Xid is acted on where NVML hangs" {
    health drain
    cards hang
    record 30 "NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus."
    job
    wait_for 60 node_is drain
}

@test "NVML crashes, fails, is missing: a line, nothing else" {
    health drain
    cards crash
    job
    says "a look at its GPUs crashed; going on"
    cards fail=9
    job
    says "NVML: Driver Not Loaded"
    mv "$NVML" "$NVML.away"
    job
    mv "$NVML.away" "$NVML"
    says "$NVML: No such file or directory"
    wait_for 60 node_is idle
}
