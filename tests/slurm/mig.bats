# SPDX-License-Identifier: Apache-2.0
# mig.bats - MIG slices and a GPU for each task: refusals, devices, UUIDs
#
# Two nodes, each with one whole GPU and two slices of a card of its own. NVML
# is fake_nvml.c. The daemons run in a mount namespace where /proc/driver is a
# folder of the test's: mig-minors and the cards' information stand there, as
# NVIDIA's driver has them.

load lib

setup_file() {
    sandbox_folder || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    export DRIVER=$RVT/driver
    mkdir "$DRIVER"
    # shellcheck disable=SC2016 # for the inner shell
    sandbox_up_mounted 'mount --bind "$DRIVER" /proc/driver' \
        --nodes 2 --gpus 2 --mig 4 --cpus 8 --type a100 || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    export CONF=$RVT/rv.conf
    # One line a task: rank, node, local rank, devices.
    cat >"$RVT/seen" <<'X'
#!/bin/sh
echo "$RANK $SLURMD_NODENAME $LOCAL_RANK [$CUDA_VISIBLE_DEVICES]"
X
    chmod +x "$RVT/seen"
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    rm -rf "${DRIVER:?}"/* "$CARDS" "$CONF"
    plugstack
    # The login node's NCCL is not the tests'.
    export NCCL_MULTI_RANK_GPU_ENABLE=1
}

plugstack() { # [WORD...]
    echo "required $RV_BUILD/spank_rv.so $*" >"$SANDBOX/plugstack.conf"
}

# The driver's own files: both cards, and who has which minor of nvidia-caps.
driver() {
    local card gi
    mkdir -p "$DRIVER/nvidia-caps" "$DRIVER/nvidia/gpus"
    for card in 0 1; do
        mkdir "$DRIVER/nvidia/gpus/0000:0$card:00.0"
        printf 'Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-file-%s\nDevice Minor: \t %s\n' \
            $card $card >"$DRIVER/nvidia/gpus/0000:0$card:00.0/information"
        for gi in 7 8; do
            echo "gpu$card/gi$gi/access $((3 + 135 * card + 9 * gi))"
            echo "gpu$card/gi$gi/ci0/access $((4 + 135 * card + 9 * gi))"
        done
    done >"$DRIVER/nvidia-caps/mig-minors"
}

slices() { # what NVML does first
    echo "$* gpu slice=7 slice=8 gpu slice=7 slice=8" >"$CARDS"
}

queue_is_empty() {
    [ -z "$(squeue -h)" ]
}

none_queued() {
    wait_for 30 queue_is_empty
}

# seen EXPECTED COMMAND... - lines of all tasks, sorted. A job before that still
# completes would move this one to the other node.
# shellcheck disable=SC2154 # bats' run sets stderr
seen() {
    local want=$1 got
    shift
    none_queued
    run --separate-stderr timeout -k 5 60 "$@" </dev/null
    got=$(sort -n <<<"$output")
    printf 'status %s\nwant:\n%s\ngot:\n%s\n%s\n' "$status" "$want" "$got" \
        "$stderr"
    [ "$status" = 0 ] && [ "$got" = "$want" ]
}

refused() { # TEXT COMMAND...
    local want=$1
    shift
    run_cmd "$@"
    [ "$status" = 1 ] && [ "${#lines[@]}" = 1 ] && [[ $output == *"$want"* ]]
}

@test "slices are shared by the nodes beside the GPUs" {
    run_cmd sinfo -hN -o '%N %G'
    [ "${lines[0]}" = "n1 gpu:a100:1,gpu:1g.10gb:2" ]
    [ "${lines[1]}" = "n2 gpu:a100:1,gpu:1g.10gb:2" ]
    run_cmd "$RV" sandbox status --dir "$SANDBOX" --json
    [[ $output == *'"mig":4,'* ]]
}

@test "what cannot be met is refused before submission" {
    local p='rv: cannot allocate'
    refused "$p '2g.20gb': no slices of profile '2g.20gb'; the cluster has 1g.10gb" \
        srun --rv-mig=2g.20gb true
    refused "5 slices of type 1g.10gb are more than there are; the cluster has 4" \
        srun --rv-mig=1g.10gb:5 true
    refused "'4' is not a MIG profile; write 1g.10gb or 1g.10gb:4" \
        srun --rv-mig=4 true
    refused "2 slices for 1 task, and a process of CUDA uses one; start 2 tasks" \
        srun --rv-mig=1g.10gb:2 -n1 true
    refused "4 tasks for 2 slices" srun --rv-mig=1g.10gb:2 -n4 true
    refused "2 slices for 1 task" sbatch --rv-mig=1g.10gb:2 --wrap true
    refused "2 slices for 1 task" salloc --rv-mig=1g.10gb:2 true
    local o
    for o in --gres=gpu:1 --gpus=1 --gpus-per-node=1 --gpus-per-task=1; do
        refused "${o%%=*} asks for GPUs too; keep one of the two" \
            srun --rv-mig=1g.10gb:2 $o true
    done
    refused "--rv-gpu asks for whole GPUs too" srun --rv-mig --rv-gpu=1 true
    refused "'1g.10gb' is a MIG profile and no whole GPU; use --rv-mig=1g.10gb:2" \
        srun --rv-gpu=1g.10gb:2 true
    refused "--rv-mig does not go with heterogeneous jobs" \
        srun -n1 --rv-mig : -n1 true
    none_queued
}

@test "ranks on slices of one card need a NCCL that can (NVIDIA/nccl#1716, #418, #1241)" {
    unset NCCL_MULTI_RANK_GPU_ENABLE
    mkdir -p "$RVT/nccl"
    cp "$NVML" "$RVT/nccl/libnccl.so.2.28.9"
    ln -sf libnccl.so.2.28.9 "$RVT/nccl/libnccl.so.2"
    LD_LIBRARY_PATH=$RVT/nccl refused "NCCL 2.28.9 refuses two ranks there" \
        srun --rv-mig=1g.10gb:2 true
    mv "$RVT/nccl/libnccl.so.2.28.9" "$RVT/nccl/libnccl.so.2.30.1"
    ln -sf libnccl.so.2.30.1 "$RVT/nccl/libnccl.so.2"
    LD_LIBRARY_PATH=$RVT/nccl run_srun --rv-mig=1g.10gb:2 true
    [ "$status" = 0 ]
    [ "$output" = "rv: slices may lie on one card: ranks that use NCCL need \
NCCL_MULTI_RANK_GPU_ENABLE=1 then" ]
    LD_LIBRARY_PATH=$RVT/nccl run_srun --rv-mig true
    [ -z "$output" ]
}

@test "each task has its own slice, by NVML" {
    plugstack "nvml=$NVML"
    driver
    slices
    local four='0 n1 0 [MIG-fake-0-7]
1 n1 0 [MIG-fake-0-8]
2 n2 0 [MIG-fake-1-7]
3 n2 0 [MIG-fake-1-8]'
    seen "$four" srun --rv-mig=1g.10gb:4 "$RVT/seen"
    seen "$four" srun --rv-mig=a100_1G.10GB:4 "$RVT/seen"
    seen "$four" srun --rv-mig=nvidia_a100_1g.10gb:4 -n4 "$RVT/seen"
    seen '0 n1 0 [MIG-fake-0-7]' srun --rv-mig "$RVT/seen"
}

@test "steps of a batch job have the slices of its submission" {
    plugstack "nvml=$NVML"
    driver
    slices
    printf '#!/bin/sh\n#SBATCH -n2 -N1 --rv-mig=1g.10gb:2\n%s\n%s\n%s\n' \
        'echo "batch [$CUDA_VISIBLE_DEVICES] [$SBATCH_GPUS$RANK]"' \
        "srun -Q $RVT/seen | sort" "srun -Q -n1 --gpus=1 $RVT/seen" >"$RVT/job"
    run_cmd sbatch -W -o "$RVT/out" "$RVT/job"
    [ "$status" = 0 ]
    run_cmd cat "$RVT/out"
    [ "$output" = 'batch [1,2] []
0 n1 0 [MIG-fake-0-7]
1 n1 0 [MIG-fake-0-8]
0 n1 0 [MIG-fake-0-7]' ]
}

@test "without NVML the driver's files name a slice; without both Slurm does" {
    seen '0 n1 0 [1]
1 n1 0 [2]' srun --rv-mig=1g.10gb:2 -N1 "$RVT/seen"
    driver
    seen '0 n1 0 [MIG-GPU-file-0/7/0]
1 n1 0 [MIG-GPU-file-0/8/0]' srun --rv-mig=1g.10gb:2 -N1 "$RVT/seen"
}

@test "a NVML that hangs, crashes or fails ends within 2 s" {
    local mode start
    plugstack "nvml=$NVML"
    for mode in hang crash fail=9; do
        rm -rf "${DRIVER:?}"/*
        slices $mode
        start=$SECONDS
        run_srun -w n1 --rv-mig "$RVT/seen"
        [ "$status" = 1 ]
        [[ $output == *"rv: cannot start the task: rank 0 on n1: nothing tells \
CUDA's name of Slurm's MIG slice 1: NVML"* ]]
        [ $(((SECONDS - start) * 1000)) -lt "$(loaded 20000)" ]
        # The files of the driver do not hang.
        driver
        seen '0 n1 0 [MIG-GPU-file-0/7/0]' srun --rv-mig "$RVT/seen"
    done
    slices hang
    run_srun -n1 -w n1 "$RVT/seen"
    [ "$output" = " n1  []" ]
}

@test "of a plain user NVML is asked as that user, who cannot become root again" {
    [ "$(id -u)" = 0 ] || skip "only root can be somebody else"
    mkdir "$RVT/bin"
    cp -L "$RV_BUILD/spank_rv.so" "$RVT/bin/"
    echo "required $RVT/bin/spank_rv.so nvml=$NVML" >"$SANDBOX/plugstack.conf"
    chmod 755 "$RVT" "$SANDBOX" "$SANDBOX"/n? "$SANDBOX"/n?/*
    driver
    slices who
    install -o 1 /dev/null "$CARDS.who"
    cd "$RVT"
    seen '0 n1 0 [MIG-fake-0-7]' setpriv --reuid=1 --regid=1 --groups=1,100 \
        srun -w n1 --rv-mig "$RVT/seen"
    # 3 is its answer to slurmstepd, 4 the library's own
    [ "$(cat "$CARDS.who")" = 'uid 1 1 1
gid 1 1 1
groups 1
files 0 1 2 3 4
root never
traced never' ]
}

@test "--rv-isolate shows each task one GPU (flux-framework/flux-core#6239)" {
    plugstack "nvml=$NVML"
    driver
    slices
    seen '0 n1 0 [0]
1 n2 0 [0]' srun --rv-gpu=a100:2 --rv-isolate "$RVT/seen"
    # A job that asked with Slurm's own words.
    seen '0 n1 0 [MIG-fake-0-7]
1 n1 0 [MIG-fake-0-8]' srun --gres=gpu:1g.10gb:2 -N1 -n2 --rv-isolate "$RVT/seen"
    seen '0 n1 0 [1,2]
1 n1 1 [1,2]' srun --gres=gpu:1g.10gb:2 -N1 -n2 --rv-env=on "$RVT/seen"
}

@test "too few devices, or one for two tasks, is an error of the task (flux-framework/flux-core#4723, NVIDIA/nccl#1241)" {
    run_srun --gres=gpu:1g.10gb:1 -w n1 -n2 --rv-isolate true
    [ "$status" = 1 ]
    [[ $output == *"rv: cannot start the task: n1 has 2 tasks of this step for \
1 GPU (1), one each is needed; start at most 1 there"* ]]
    seen '0 n1 0 [1]
1 n1 0 [2]' srun --gres=gpu:1g.10gb:2 --gpu-bind=single:1 -N1 -n2 --rv-isolate \
        "$RVT/seen"
    run_srun --gres=gpu:1g.10gb:2 --gpu-bind=map_gpu:1,1 -w n1 -n2 --rv-isolate \
        true
    [ "$status" != 0 ]
    [[ $output == *"on n1 were both given GPU"* ]]
    run_srun -w n1 -n1 --rv-isolate true
    [ "$status" = 1 ]
    [[ $output == *"rank 0 on n1 sees no GPU"* ]]
}

@test "rv.conf: [gpu TYPE] has aliases, gres, limit and constraint" {
    plugstack "conf=$CONF"
    printf '[gpu big]\ngres = gpu:a100\nalias = huge\nmax_per_job = 1\n' >"$CONF"
    seen '0 n1 0 [0]' srun --rv-gpu=HUGE:1 "$RVT/seen"
    refused "'big:2': the site allows a job 1 GPUs of type big" \
        srun --rv-gpu=big:2 true
    printf '[gpu a100]\nconstraint = nowhere\n' >"$CONF"
    run_srun --rv-gpu=a100:1 true
    [[ $output == *"nvalid feature"* ]]
    printf '[gpu a100]\npartition = nowhere\n' >"$CONF"
    printf '#!/bin/sh\n#SBATCH --rv-gpu=a100:1 -p gpu\n%s\n' "srun $RVT/seen" \
        >"$RVT/job"
    run_cmd sbatch -W -o "$RVT/out" "$RVT/job"
    [ "$status" = 0 ]
    [ "$(cat "$RVT/out")" = '0 n1 0 [0]' ]
    run_srun --rv-gpu=a100:1 true
    [[ $output == *"nvalid partition"* ]]
}

@test "an option without a value is inherited as one" {
    printf '#!/bin/sh\n%s\n' "srun $RVT/seen" >"$RVT/job"
    run_cmd sbatch -W --rv-mig -o "$RVT/out" "$RVT/job"
    [ "$status" = 0 ]
    [ "$(cat "$RVT/out")" = '0 n1 0 [1]' ]
}

@test "rv.conf: default, limit, partition; a bad file is refused, never waited for" {
    plugstack "conf=$CONF"
    refused "rv: cannot read rv.conf: $CONF" srun --rv-mig true
    printf '[mig 1g.10gb]\nmax_per_job = 2\n' >"$CONF"
    refused "3 slices of type 1g.10gb are more than the 2 that the site allows" \
        srun --rv-mig=1g.10gb:3 true
    run_srun --rv-mig=1g.10gb:2 true
    [ "$status" = 0 ]
    printf '[mig 1g.10gb]\npartition = nowhere\n' >"$CONF"
    run_srun --rv-mig true
    [[ $output == *"nvalid partition"* ]]
    run_srun -p gpu --rv-mig true
    [ "$status" = 0 ]
    printf '[mig 1g.10gb]\nfrob = 1\n' >"$CONF"
    refused "rv.conf:2: " srun --rv-mig true
    printf '[defaults]\n' >"$CONF"
    chmod 666 "$CONF"
    refused "rv: cannot read rv.conf: $CONF" srun --rv-mig true
    rm "$CONF"
    mkfifo "$CONF"
    refused "rv: cannot read rv.conf: $CONF" srun --rv-mig true
    # Who asks for nothing of ours does not meet it.
    run_srun true
    [ "$status" = 0 ]
    [ -z "$output" ]
    none_queued
}

@test "rv run --mig and -t PROFILE: a slice each" {
    plugstack "nvml=$NVML"
    driver
    slices
    seen '0 n1 0 [MIG-fake-0-7]
1 n1 0 [MIG-fake-0-8]' "$RV" run -f -g 2 --mig --nodes 1 "$RVT/seen"
    seen '0 n1 0 [MIG-fake-0-7]' "$RV" run -f -g 1 -t A100_1g.10gb "$RVT/seen"
    run_cmd "$RV" run -g 2 --mig=2g.20gb true
    [ "$status" = 5 ]
    [[ $output == *"the cluster has 1g.10gb"* ]]
    none_queued
}
