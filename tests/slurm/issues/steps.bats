# SPDX-License-Identifier: Apache-2.0
# steps.bats - reports of options, variables and steps that went wrong

load ../lib

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 8 --type a100 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS MASTER_ADDR MASTER_PORT
    export RV_EXEC=$RV_BUILD/rv-exec PLUGSTACK=$SANDBOX/plugstack.conf
    cp "$PLUGSTACK" "$RVT/plugstack.saved"
    cat >"$RVT/five" <<'X'
#!/bin/sh
echo "$RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR ${MASTER_PORT:+port}"
X
    chmod +x "$RVT/five"
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    cp "$RVT/plugstack.saved" "$PLUGSTACK"
}

# out [SBATCH ARG...] - submit, wait for the end, print what was said
out() {
    local id
    id=$(sbatch --parsable -o "$RVT/out-%j" "$@") || return
    wait_job "$id" COMPLETED || return
    sort -n "$RVT/out-$id"
}

two='0 2 0 127.0.0.1 port
1 2 1 127.0.0.1 port'

@test "NVIDIA/pyxis#95, #150, cea-hpc/auks#47: a plugin of another release is passed over" {
    cat >"$RVT/other.c" <<'X'
const char plugin_name[] = "other", plugin_type[] = "spank";
const unsigned plugin_version = 0x140b00, spank_plugin_version = 1;
X
    ${CC:-cc} -shared -fPIC -o "$RVT/other.so" "$RVT/other.c"
    echo "optional $RVT/other.so" >>"$PLUGSTACK"
    run_srun -n2 -w n1 --rv-env=on "$RVT/five"
    [ "$status" = 0 ]
    [ "$(grep -v '^srun:' <<<"$output" | sort -n)" = "$two" ]
}

@test "NVIDIA/pyxis#111: an #SBATCH option behind a blank line reaches the steps" {
    printf '#!/bin/sh\n\n#SBATCH -n2 -w n1\n\n#SBATCH --rv-env=on\nsrun %s\n' \
        "$RVT/five" >"$RVT/job"
    [ "$(out "$RVT/job")" = "$two" ]
}

@test "NVIDIA/pyxis#167: sbatch's steps have what srun's have" {
    local show='env | cut -d= -f1 | grep -E "^(RANK|WORLD|LOCAL|NODE_R|GROUP|MASTER|RV_|OMP|TORCH|DEEP)" | grep -v -e RV_BUILD -e RV_SRC -e RV_EXEC | sort -u'
    run_srun -n1 --rv-nccl-timeout=30m sh -c "$show"
    [ -n "$output" ]
    diff <(sort <<<"$output") <(out -n1 --rv-nccl-timeout=30m \
        --wrap "srun sh -c '$show'" | sort)
}

@test "CrayLabs/SmartSim#104, #257, #268: commas, quotes and newlines in a value" {
    run_cmd env V=$'a,b c="d"\ne' srun -n1 --rv-env=on "$RV_EXEC" \
        sh -c 'printf %s "$V"'
    [ "$output" = $'a,b c="d"\ne' ]
}

@test "Lightning-AI/pytorch-lightning#20391: WORLD_SIZE is that of the tasks, for fewer than GPUs too" {
    run_srun --rv-gpu=2 -n1 sh -c 'echo $RANK/$WORLD_SIZE $CUDA_VISIBLE_DEVICES'
    [ "$output" = '0/1 0,1' ]
    run_srun --rv-gpu=2 sh -c 'echo $RANK/$WORLD_SIZE $CUDA_VISIBLE_DEVICES'
    [ "$(sort <<<"$output")" = '0/2 0,1
1/2 0,1' ]
}

@test "Lightning-AI/pytorch-lightning#15022: a task of an array has its own job's step" {
    id=$(sbatch --parsable -a 1-2 -n1 --rv-env=on -o "$RVT/array-%a" --wrap \
        "srun sh -c 'echo \$RV_STEP \$SLURM_JOB_ID'; echo end")
    local i step job
    for i in 1 2; do
        wait_for 60 grep -qs end "$RVT/array-$i"
        read -r step job <"$RVT/array-$i"
        [ "$step" = "$job.0" ]
    done
    [ "$(sort -u <(head -qn 1 "$RVT"/array-?) | wc -l)" = 2 ]
}

@test "Lightning-AI/pytorch-lightning#13605, #16828: one device a task, LOCAL_RANK 0" {
    run_srun -n2 -w n1 --gpus-per-task=1 --rv-env=on sh -c \
        'echo $RANK/$WORLD_SIZE $LOCAL_RANK $SLURM_LOCALID'
    [ "$(sort <<<"$output")" = '0/2 0 0
1/2 0 1' ]
}

@test "NVIDIA/nccl#1066, huggingface/accelerate#3551: all GPUs of the node are visible, LOCAL_RANK tells which" {
    run_srun --rv-gpu=2 sh -c 'echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES'
    [ "$(sort <<<"$output")" = '0 0,1
1 0,1' ]
}

@test "deepspeedai/DeepSpeed#461, #3165: all five variables, so that mpi4py is not tried" {
    run_srun -n2 -w n1 --rv-env=on "$RVT/five"
    [ "$(sort -n <<<"$output")" = "$two" ]
}

@test "facebookincubator/submitit#1601, #1720, mlc-ai/pith-train#84: no Slurm command in the job's PATH, no accounting" {
    run_srun -n2 -w n1 --rv-env=on env PATH=/nowhere "$RV_EXEC" "$RVT/five"
    [ "$status" = 0 ]
    [ "$(sort -n <<<"$output")" = "$two" ]
    run_cmd "$RV" run -f -g 0 -- sh -c 'exit 3'
    [ "$status" = 3 ]
}

@test "skypilot-org/skypilot#10309: a step started in a step is not confined to it" {
    run_cmd salloc -N2 -n4 --ntasks-per-node=2 --exclusive --rv-env=on \
        srun -N1 -n1 "$RV_EXEC" srun --overlap -N2 -n4 "$RV_EXEC" "$RVT/five"
    [ "$status" = 0 ]
    [ "$(grep -E '^[0-3] 4 ' <<<"$output" | cut -d' ' -f1 | sort | xargs)" = \
        '0 1 2 3' ]
}

@test "LLNL/smith#688, LLNL/axom#637: a second step beside one that holds all" {
    out -n2 -w n1 --rv-env=on --wrap "srun -n2 sh -c 'until \
[ -e $RVT/go ]; do sleep 0.1; done' & srun --overlap --mem=0 -n2 $RVT/five; \
: >$RVT/go; wait" >"$RVT/overlap"
    cat "$RVT/overlap"
    [ "$(grep -E '^[01] ' "$RVT/overlap")" = "$two" ]
}

@test "pmodels/mpich#5653, NVIDIA-NeMo/Megatron-Bridge#3807: uneven tasks" {
    printf '%s\n' n1 n2 n2 >"$RVT/hosts"
    run_cmd env SLURM_HOSTFILE="$RVT/hosts" srun -Q -n3 -m arbitrary \
        --mpi=none "$RV_EXEC" sh -c 'echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE'
    [ "$(sort <<<"$output")" = '0 0/1
1 0/2
2 1/2' ]
}

@test "NVIDIA/nccl-tests#300: LOCAL_RANK fits what a task sees, bound to its GPU or not" {
    local per=--gpus-per-task=1
    ! srun --help | grep -q -- --tres-per-task || per=--tres-per-task=gres/gpu:1
    run_srun -n2 -w n1 $per --gpu-bind=per_task:1 --rv-env=on sh -c \
        'echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES'
    [ "$(sort <<<"$output")" = '0 0 0
1 0 1' ]
    # Unbound, a task sees all of the node's GPUs, by no variable or by one.
    run_srun -n2 -w n1 $per --gpu-bind=none --rv-env=on sh -c \
        'echo $RANK $LOCAL_RANK ${CUDA_VISIBLE_DEVICES:-0,1}'
    [ "$(sort <<<"$output")" = '0 0 0,1
1 1 0,1' ]
}

@test "vllm-project/vllm#41848: names of devices are no numbers" {
    local slice='MIG-41b36014-042c-5526-8b2b-7d0b6a7d9e3b'
    local see="env CUDA_VISIBLE_DEVICES=$slice,MIG-GPU-0/7/0 $RV_EXEC"
    run_srun -n2 -w n1 $see sh -c '[ $RANK = 0 ] ||
        { echo "$LOCAL_RANK $CUDA_VISIBLE_DEVICES"; exit 3; }; exec sleep 60'
    [ "$status" = 3 ]
    grep -qx "1 $slice,MIG-GPU-0/7/0" <<<"$output"
    grep -q '^rv:   after .*, on device MIG-GPU-0/7/0$' <<<"$output"
    run_srun -n2 -w n1 env CUDA_VISIBLE_DEVICES=$slice "$RV_EXEC" \
        sh -c 'echo $LOCAL_RANK'
    [ "$output" = '0
0' ]
    ln -sf /usr/bin/env "$RVT/torchrun"
    run_srun -n1 -w n1 $see "$RVT/torchrun"
    grep -qx PET_NPROC_PER_NODE=2 <<<"$output"
}

@test "huggingface/accelerate#1489, #1645: each node has its own rank, and a numeric address" {
    printf '#!/bin/sh\necho $PET_NNODES $PET_NODE_RANK $PET_NPROC_PER_NODE $PET_RDZV_ENDPOINT $PET_MASTER_ADDR:$PET_MASTER_PORT\n' \
        >"$RVT/accelerate"
    chmod +x "$RVT/accelerate"
    run_srun -Q -N2 --ntasks-per-node=1 --gres=gpu:2 "$RV_EXEC" \
        "$RVT/accelerate" launch --multi_gpu train.py
    [ "$status" = 0 ]
    local at=${lines[0]##* }
    [[ $at = 127.0.0.1:* ]]
    [ "$(sort <<<"$output")" = "2 0 2 $at $at
2 1 2 $at $at" ]
    # --machine_rank=$SLURM_PROCID of the batch script is 0 on every node
    run_srun -Q -N2 --ntasks-per-node=1 "$RV_EXEC" "$RVT/accelerate" launch \
        --num_machines 2 train.py
    [ "$status" = 125 ]
    [ "$(grep -c '^rv\[rank 0 on n1\]: .*--num_machines without --machine_rank' <<<"$output")" = 1 ]
}
