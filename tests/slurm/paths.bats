# SPDX-License-Identifier: Apache-2.0
# paths.bats - every way into Slurm: what each rank has, and what it has not
#
# shellcheck disable=SC2086,SC2154 # words of a table's rules are words; paths.bash sets them

load paths

@test "srun" {
    way srun --rv-gpu=6 "$W" a
    ranks a <<<"$six"
    way srun --rv-gpu=1 --rv-nccl-timeout=30m "$W" b
    ranks b $T30 <<<'0/1 0/1 0 n1 0'
}

@test "srun, options abbreviated" {
    way srun --rv-g 2 --rv-n 30m "$W" a
    ranks a $T30 <<<'0/2 0/2 0 n1 0,1
1/2 1/2 0 n1 0,1'
    way srun -n2 -w n1 --rv-e=on "$W" b
    ranks b <<<"$two"
}

@test "srun, plugin required and optional" {
    local how
    for how in required optional; do
        sed -i "s/^[a-z]*/$how/" "$PLUGSTACK"
        way srun --rv-gpu=3 "$W" $how
        ranks $how <<<'0/3 0/2 0 n1 0,1
1/3 1/2 0 n1 0,1
2/3 0/1 1 n2 0'
    done
}

@test "srun --export=NONE and --export=VAR" {
    # srun's word on the address is not exported either: the node's name
    local named='-RV_HEAD_ADDR MASTER_ADDR=n1'
    way env RANK=7 srun --export=NONE --rv-gpu=2 --rv-nccl-timeout=30m "$W" a
    ranks a $T30 $named <<<'0/2 0/2 0 n1 0,1
1/2 1/2 0 n1 0,1'
    way env X=1 RANK=7 srun --export=X -n2 -w n1 --rv-env=on "$W" b
    ranks b $named <<<"$two"
    grep -qz '^X=1$' "$RVT"/env/b.0.*
    way env X=1 srun --export=ALL,X=2 -n2 -w n1 --rv-env=on "$W" c
    ranks c <<<"$two"
    way env RANK=7 srun --export=RANK,RV_NCCL_TIMEOUT=50 -n1 --rv-env=on "$W" d
    ranks d $named RV_NCCL_TIMEOUT=50 user=RV_NCCL_TIMEOUT RANK=7 task=0 <<<'7/1 0/1 0 n1 -'
}

@test "srun with the request in the environment alone" {
    way env "${OPT}_rv_gpu=2" "${OPT}_rv_nccl_timeout=30m" srun "$W" a
    ranks a $T30 opt:rv_gpu=2 opt:rv_nccl_timeout=30m <<<'0/2 0/2 0 n1 0,1
1/2 1/2 0 n1 0,1'
    way env RV_REQUEST_DIR=/r srun -n2 -w n1 "$W" b
    ranks b RV_REQUEST_DIR=/r <<<"$two"
}

@test "srun --overlap and --exact, in a job of three nodes" {
    job "srun --overlap -n3 -N3 '$W' overlap
srun --exact -n1 -N1 -c1 --gres=gpu:1 -w n2 '$W' exact1 &
srun --exact -n2 -N1 -c1 --gres=gpu:1 -w n1 '$W' exact2 &
wait
'$W' script" -N3 -n6 --exclusive --gres=gpu:2 --rv-nccl-timeout=30m
    local o="$T30 opt:rv_nccl_timeout=30m"
    ranks overlap $o <<<'0/3 0/1 0 n1 0,1
1/3 0/1 1 n2 0,1
2/3 0/1 2 n3 0,1'
    ranks exact1 $o <<<'0/1 0/1 0 n2 0'
    ranks exact2 $o <<<'0/2 0/2 0 n1 0
1/2 0/2 0 n1 0'
    none script 1 opt:rv_nccl_timeout=30m CUDA_VISIBLE_DEVICES=0,1
}

@test "tasks in blocks, planes, rows, by hosts and uneven" {
    local per='SLURM_NTASKS_PER_NODE=2' # srun's own word
    way srun -N3 --ntasks-per-node=2 --rv-env=on "$W" block
    ranks block $per <<<"${six//0,1/-}"
    way srun -N3 --ntasks-per-node=2 --rv-env=on -m cyclic "$W" cyclic
    ranks cyclic $per <<<'0/6 0/2 0 n1 -
1/6 0/2 1 n2 -
2/6 0/2 2 n3 -
3/6 1/2 0 n1 -
4/6 1/2 1 n2 -
5/6 1/2 2 n3 -'
    way srun -N3 -n8 --exclusive --rv-env=on -m plane=2 "$W" plane
    ranks plane <<<'0/8 0/4 0 n1 -
1/8 1/4 0 n1 -
2/8 0/2 1 n2 -
3/8 1/2 1 n2 -
4/8 0/2 2 n3 -
5/8 1/2 2 n3 -
6/8 2/4 0 n1 -
7/8 3/4 0 n1 -'
    printf '%s\n' n1 n1 n2 n3 n3 n3 >"$RVT/hosts"
    way env SLURM_HOSTFILE="$RVT/hosts" srun -n6 --rv-env=on -m arbitrary \
        "$W" uneven
    ranks uneven <<<'0/6 0/2 0 n1 -
1/6 1/2 0 n1 -
2/6 0/1 1 n2 -
3/6 0/3 2 n3 -
4/6 1/3 2 n3 -
5/6 2/3 2 n3 -'
}

@test "hosts that are listed: rank 0 need not be on the first" {
    printf '%s\n' n3 n1 n1 n2 >"$RVT/hosts"
    local n arbitrary='-n4 -m arbitrary --rv-env=on' pid
    # An address each. slurmd listens on the first alone, so they are in place
    # again when the step ends.
    for n in 2 3; do scontrol update nodename=n$n nodeaddr=127.0.0.$n; done
    SLURM_HOSTFILE=$RVT/hosts srun -Q $arbitrary sh -c \
        '"$W" a; until [ -e "$RVT/go" ]; do sleep 0.1; done' </dev/null 3>&- &
    pid=$!
    four_dumps() { [ "$(find "$RVT/env" -type f -size +0 | wc -l)" = 4 ]; }
    wait_for 60 four_dumps
    for n in 2 3; do scontrol update nodename=n$n nodeaddr=127.0.0.1; done
    : >"$RVT/go"
    wait "$pid"
    local table='0/4 0/1 2 n3 -
1/4 0/2 0 n1 -
2/4 1/2 0 n1 -
3/4 0/1 1 n2 -'
    ranks a MASTER_ADDR=127.0.0.3 RV_HEAD_ADDR=127.0.0.3 <<<"$table"
    # without srun's word nobody knows, and nobody is sent to the wrong node
    way env SLURM_HOSTFILE="$RVT/hosts" srun $arbitrary --export=NONE "$W" b
    ranks b -MASTER_ADDR -MASTER_PORT -RV_HEAD_ADDR <<<"$table"
}

@test "jobs without an option of ours" {
    way srun -N3 -n6 --gres=gpu:2 "$W" gpus
    none gpus 6 CUDA_VISIBLE_DEVICES=0,1
    way srun -n2 "$W" plain
    none plain 2
    job "'$W' script; srun '$W' step" -n2 -w n1 --gres=gpu:1
    none script 1 CUDA_VISIBLE_DEVICES=0
    none step 2 CUDA_VISIBLE_DEVICES=0
}

@test "sbatch: on the command line, on #SBATCH lines, beside --gres there" {
    local run="srun '$W' step; '$W' script" o
    o="opt:rv_gpu=6 opt:rv_nccl_timeout=30m SLURM_GPUS=6"
    local -x RANK # nobody's
    job "$run" --rv-gpu=6 --rv-nccl-timeout=30m -N3 -n6 --ntasks-per-node=2
    ranks step $T30 $o SLURM_NTASKS_PER_NODE=2 <<<"$six"
    none script 1 $o SLURM_NTASKS_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1
    rm "$RVT"/env/*
    job "#SBATCH --rv-gpu=6
#
#SBATCH --rv-nccl-t=30m -N3 -n6 --ntasks-per-node=2

$run"
    ranks step $T30 $o SLURM_NTASKS_PER_NODE=2 <<<"$six"
    none script 1 $o SLURM_NTASKS_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1
    rm "$RVT"/env/*
    # an option that allocates nothing goes with any --gres
    job "#SBATCH --gres=gpu:1
$run" -n2 -w n2 --rv-env=on
    ranks step opt:rv_env=on <<<'0/2 0/2 0 n2 0
1/2 0/2 0 n2 0'
    none script 1 opt:rv_env=on CUDA_VISIBLE_DEVICES=0
}

@test "sbatch --export=NONE and --export=VAR" {
    local run="srun '$W' step; '$W' script" o=opt:rv_nccl_timeout=30m
    X=1 RANK=7 job "$run" --export=NONE -n2 -w n1 --rv-nccl-timeout=30m
    # the job's steps export nothing either: the name of the node
    ranks step $T30 $o -RV_HEAD_ADDR MASTER_ADDR=n1 <<<"$two"
    none script 1 $o
    rm "$RVT"/env/*
    X=1 RANK=7 job "$run" --export=X -n2 -w n1 --rv-nccl-timeout=30m
    ranks step $T30 $o -RV_HEAD_ADDR MASTER_ADDR=n1 <<<"$two"
    none script 1 $o
    grep -qz '^X=1$' "$RVT"/env/step.0.*
}

@test "sbatch with the request in the environment alone (NVIDIA/pyxis#115)" {
    # as from a machine or a service that does not load the plugin
    local with=$SLURM_CONF
    SLURM_CONF=$NOPLUGIN job "export SLURM_CONF=$with
srun '$W' step; '$W' script" -n2 -w n1 --export="ALL,${OPT}_rv_nccl_timeout=30m"
    ranks step $T30 opt:rv_nccl_timeout=30m <<<"$two"
    none script 1 opt:rv_nccl_timeout=30m
    rm "$RVT"/env/*
    RV_REQUEST_DIR=/r job "srun '$W' step; '$W' script" -n2 -w n1
    ranks step RV_REQUEST_DIR=/r <<<"$two"
    none script 1 RV_REQUEST_DIR=/r
}

@test "sbatch inside a rank, and inside a job" {
    cat >"$RVT/inner" <<X
#!/bin/sh
srun '$W' step
'$W' script
X
    # asks nothing: nothing of the rank that submitted it
    job "srun -n1 sbatch -o /dev/null -n2 -w n2 '$RVT/inner'" -n1 -w n1 \
        --rv-gpu=1 --rv-nccl-timeout=30m --rv-differ=driver
    none step 2
    none script 1
    rm "$RVT"/env/*
    # of a job of rv likewise, and with the outer job's number taken away
    for env in '' '-u SLURM_JOB_ID'; do
        RV_REQUEST_DIR=/r job "srun -n1 env $env RV_MIG=1g.10gb sbatch -o /dev/null -n2 --gres=gpu:1 -w n2 '$RVT/inner'" \
            -n1 -w n1
        none step 2 CUDA_VISIBLE_DEVICES=0
        none script 1 CUDA_VISIBLE_DEVICES=0
        rm "$RVT"/env/*
    done
    # asks for itself
    job "sbatch -o /dev/null -n2 -w n2 --rv-env=on '$RVT/inner'" -n1 -w n1 \
        --rv-gpu=1 --rv-nccl-timeout=30m
    ranks step opt:rv_env=on <<<'0/2 0/2 0 n2 -
1/2 1/2 0 n2 -'
    none script 1 opt:rv_env=on
}

@test "srun inside a rank" {
    cat >"$RVT/outer" <<X
#!/bin/sh
srun --overlap -N1 -n2 -w n2 '$W' inner
srun --overlap -N1 -n1 -w n1 --rv-nccl-timeout=5m '$W' five
OMP_NUM_THREADS=3 srun --overlap -N1 -n1 -w n1 '$W' three
'$W' outer
X
    chmod +x "$RVT/outer"
    job "srun -N1 -n1 -w n3 '$RVT/outer'
srun -N1 -n1 -w n3 '$W' next
'$W' script" -N3 -n6 --exclusive --gres=gpu:2 --rv-nccl-timeout=30m
    local o="opt:rv_nccl_timeout=30m"
    # its own step's, and nothing of the step that started it
    ranks inner $T30 $o <<<'0/2 0/2 0 n2 0,1
1/2 1/2 0 n2 0,1'
    ranks five $o RV_NCCL_TIMEOUT=300 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480 \
        DEEPSPEED_TIMEOUT=5 <<<'0/1 0/1 0 n1 0,1'
    ranks three $T30 $o OMP_NUM_THREADS=3 user=OMP_NUM_THREADS \
        <<<'0/1 0/1 0 n1 0,1'
    ranks outer $T30 $o <<<'0/1 0/1 0 n3 0,1'
    ranks next $T30 $o <<<'0/1 0/1 0 n3 0,1'
    none script 1 $o CUDA_VISIBLE_DEVICES=0,1
}

@test "salloc with a command, and its shell" {
    way salloc --rv-gpu=6 -N3 -n6 --ntasks-per-node=2 sh -c \
        "'$W' before; srun '$W' step; '$W' after"
    local o='opt:rv_gpu=6 SLURM_GPUS=6 SLURM_NTASKS_PER_NODE=2'
    ranks step $o <<<"$six"
    none before 1 $o local:rv_gpu=6
    none after 1 $o local:rv_gpu=6
    rm "$RVT"/env/*
    # the user's shell, on the machine where salloc runs
    printf '%s shell\nexec srun %s step\n' "$W" "$W" >"$RVT/typed"
    way sh -c 'exec salloc -n2 -w n1 --rv-nccl-timeout=30m <"$RVT/typed"'
    ranks step $T30 opt:rv_nccl_timeout=30m <<<"$two"
    none shell 1 opt:rv_nccl_timeout=30m local:rv_nccl_timeout=30m
}

@test "salloc's interactive step" {
    printf '#!/bin/sh\n%s shell\nsrun -w n2 -N1 -n2 --overlap %s step\n' \
        "$W" "$W" >"$RVT/shell"
    chmod +x "$RVT/shell"
    sed 's/^MpiDefault=.*/&\nLaunchParameters=use_interactive_step/' \
        "$SLURM_CONF" >"$RVT/interactive.conf"
    printf 'InteractiveStepOptions="--interactive --preserve-env %s"\n' \
        "$RVT/shell" >>"$RVT/interactive.conf"
    way env SLURM_CONF="$RVT/interactive.conf" salloc -N2 -n4 -w n1,n2 \
        --exclusive --gres=gpu:2 --rv-nccl-timeout=30m
    none shell 1 opt:rv_nccl_timeout=30m CUDA_VISIBLE_DEVICES=0,1
    ranks step $T30 opt:rv_nccl_timeout=30m <<<'0/2 0/2 0 n2 0,1
1/2 1/2 0 n2 0,1'
}

@test "a job array" {
    job "srun '$W' step\$SLURM_ARRAY_TASK_ID; '$W' script" -a 1-2 -n2 \
        --rv-gpu=2
    local i o='opt:rv_gpu=2 SLURM_GPUS=2'
    for i in 1 2; do
        ranks step$i $o <<<"0/2 0/2 0 n$i 0,1
1/2 1/2 0 n$i 0,1"
    done
    none script 2 $o CUDA_VISIBLE_DEVICES=0,1
}

# het READY COMMAND... - a heterogeneous srun, its output in $RVT/het, until READY
# succeeds. On a busy machine srun of 22.05 at times waits on for ever when its
# step has ended, also without anything of ours in it; on 24.11 the ranks of one
# did not come together in PMIx. Such a job is ended and told of; another must do.
het() {
    local try pid ready=$1
    shift
    for try in 1 2; do
        wait_for 60 nodes_idle
        "$@" </dev/null >"$RVT/het" 2>&1 3>&- &
        pid=$!
        if wait_for 60 "$ready"; then
            wait_for 60 gone "$pid" && { wait "$pid"; return; }
            try=
        fi
        echo "# a heterogeneous srun hung ${try:+before its ranks were done}" >&3
        kill -9 "$pid"
        squeue -h -o %A | xargs scancel
        [ -n "$try" ] || return 0
    done
    cat "$RVT/het" && false
}

three_lines() {
    [ "$(wc -l <"$RVT/het")" = 3 ]
}

three_dumps() {
    [ "$(find "$RVT/env" -type f -size +0 | wc -l)" = 3 ]
}

@test "heterogeneous: srun and sbatch, counted over all components" {
    wait_for 60 no_jobs
    het three_dumps srun -n1 -w n2 --rv-nccl-timeout=30m "$W" a : -n2 -w n1 "$W" a
    local id
    id=$(sed -z -n 's/^SLURM_JOB_ID=//p' "$RVT"/env/a.0.* | tr -d '\0')
    # srun looks up one component's address, so all have the first's name
    local o="$T30 -RV_HEAD_ADDR MASTER_ADDR=n2 job=$id step=0"
    local table='0/3 0/1 0 n2 -
1/3 0/2 1 n1 -
2/3 1/2 1 n1 -'
    ranks a $o <<<"$table"
    job "#SBATCH -n1 -w n2 --rv-nccl-timeout=30m
#SBATCH hetjob
#SBATCH -n2 -w n1
srun '$W' one
srun --het-group=0,1 '$W' all
srun --het-group=1 '$W' other
'$W' script"
    o="opt:rv_nccl_timeout=30m job=$JOB"
    ranks one $T30 $o step=0 <<<'0/1 0/1 0 n2 -'
    ranks all $T30 $o step=1 -RV_HEAD_ADDR MASTER_ADDR=n2 <<<"$table"
    ranks other $T30 $o <<<'0/2 0/2 0 n1 -
1/2 1/2 0 n1 -'
    none script 1 opt:rv_nccl_timeout=30m
}

@test "heterogeneous: rv-exec, the nodes in any order (openpmix/openpmix#3098)" {
    local exec=$RV_BUILD/rv-exec mpi port
    local one='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $RV_BOOT $MASTER_PORT'
    for mpi in pmix none; do
        het three_lines srun -Q --mpi=$mpi -n1 -w n2 "$exec" sh -c "$one" : \
            -n2 -w n1 "$exec" sh -c "$one"
        cat "$RVT/het"
        port=$(head -n 1 "$RVT/het" | grep -o '[0-9]*$') # all have one
        [ "$(sort "$RVT/het")" = "$(sed "s/$/ ${mpi/none/slurm} $port/" <<<'0/3 0/1 0
1/3 0/2 1
2/3 1/2 1')" ]
    done
}

@test "requeue: the second run as the first (NVIDIA/pyxis#129)" {
    cat >"$RVT/script" <<X
#!/bin/sh
#SBATCH -n2 -w n1 --rv-gpu=2 --requeue
srun '$W' step\${SLURM_RESTART_COUNT:-0}
'$W' script\${SLURM_RESTART_COUNT:-0}
[ -n "\$SLURM_RESTART_COUNT" ] && exit
scontrol requeue \$SLURM_JOB_ID
exec sleep 60
X
    JOB=$(sbatch --parsable -o "$RVT/out-%j" "$RVT/script")
    restarted() { scontrol show job "$JOB" | grep -q Restarts=1; }
    wait_for 60 restarted
    # Slurm lets it wait for two minutes. slurmd refuses what was allocated in
    # the second in which it killed the first run.
    wait_job "$JOB" PENDING
    scontrol update JobId="$JOB" StartTime=now+2
    # a submission wakes the scheduler
    nudged() { srun -w n3 true && job_is "$JOB" COMPLETED; }
    wait_for 60 nudged || { cat "$RVT/out-$JOB"; false; }
    local i o='opt:rv_gpu=2 SLURM_GPUS=2'
    for i in 0 1; do
        ranks step$i $o <<<'0/2 0/2 0 n1 0,1
1/2 1/2 0 n1 0,1'
        none script$i 1 $o CUDA_VISIBLE_DEVICES=0,1
    done
}

@test "env=gpu and --rv-env" {
    sed -i 's/$/ env=gpu/' "$PLUGSTACK"
    way srun -N3 --ntasks-per-node=2 --gres=gpu:2 "$W" a
    ranks a SLURM_NTASKS_PER_NODE=2 <<<"$six"
    way srun -n2 "$W" b # no GPUs
    none b 2
    way srun -n1 --gres=gpu:1 --rv-env=off "$W" c
    none c 1 CUDA_VISIBLE_DEVICES=0
    job "srun '$W' step; '$W' script; srun --rv-env=off '$W' off" \
        -n2 -w n2 --gres=gpu:2
    ranks step <<<'0/2 0/2 0 n2 0,1
1/2 1/2 0 n2 0,1'
    none script 1 CUDA_VISIBLE_DEVICES=0,1
    none off 2 CUDA_VISIBLE_DEVICES=0,1
    cp "$RVT/plugstack.saved" "$PLUGSTACK"
    way srun --rv-gpu=2 --rv-nccl-timeout=30m --rv-env=off "$W" d
    none d 2 CUDA_VISIBLE_DEVICES=0,1
}

# What a variable of ours is called, envtable.py knows; this finds any other.
@test "without an option the plugin changes no variable at all" {
    local how
    for how in with without; do
        [ $how = with ] || cp "$RVT/none" "$PLUGSTACK"
        way srun -N2 --ntasks-per-node=2 --gres=gpu:2 "$W" $how
        cat "$RVT"/env/$how.* | tr '\0' '\n' | cut -d= -f1 | sort >"$RVT/$how"
    done
    [ -s "$RVT/with" ]
    diff "$RVT/with" "$RVT/without"
}

@test "the extern step" {
    # It is no rank and runs no program of the user's; its process waits.
    sed 's/^MpiDefault=.*/&\nPrologFlags=contain/' -i "$SLURM_CONF"
    scontrol reconfigure
    local job
    job=$(sbatch --parsable -o /dev/null -n1 --rv-gpu=1 --rv-nccl-timeout=30m \
        --wrap "'$W' script; exec sleep 60")
    wait_for 60 extern_env "$job" "$RVT/env/extern.0"
    wait_for 60 test -s "$RVT"/env/script.*
    scancel "$job"
    # the extern step ends by the rule under which it began
    wait_for 60 nodes_idle
    sed '/^PrologFlags/d' -i "$SLURM_CONF"
    scontrol reconfigure
    none extern 1
    none script 1 opt:rv_gpu=1 opt:rv_nccl_timeout=30m SLURM_GPUS=1 \
        CUDA_VISIBLE_DEVICES=0
}

# extern_env JOB FILE - copy the environment of the process of JOB's extern step
extern_env() {
    local p parent
    for p in /proc/[0-9]*; do
        grep -qsz "^slurmstepd: \[$1.extern\]" "$p/cmdline" || continue
        parent=${p#/proc/}
        p=$(grep -ls "^PPid:[[:space:]]*$parent$" /proc/[0-9]*/status | head -n 1)
        [ -n "$p" ] && cp "${p%/status}/environ" "$2" && [ -s "$2" ]
        return
    done
    false
}

@test "the plugin is not on the login node (Azure/az-hop#1023)" {
    run_cmd env SLURM_CONF="$NOPLUGIN" srun --rv-gpu=2 true
    [ "$status" != 0 ]
    [[ $output = *"unrecognized option '--rv-gpu=2'"* ]]
    # rv asks Slurm with Slurm's own words
    way env SLURM_CONF="$NOPLUGIN" "$RV" run -f -g 2 -- "$W" a
    [ "$(cat "$RVT"/env/a.* | tr '\0' '\n' | grep -E '^(LOCAL_)?RANK=' | sort)" = \
        'LOCAL_RANK=0
LOCAL_RANK=1
RANK=0
RANK=1' ]
}

@test "the plugin is on no compute node: Slurm runs the job, rv-exec says it (NVIDIA/pyxis#84)" {
    local with=$RVT/with.conf exec=$RV_BUILD/rv-exec
    sed "s,^PlugStackConfig=.*,PlugStackConfig=$RVT/plugstack.saved," \
        "$SLURM_CONF" >"$with"
    cp "$RVT/none" "$PLUGSTACK"
    said() { grep -c "^rv\[rank $1 on $2\]: spank_rv.so did not run on $2, " \
        <<<"$output"; }
    # once a node, and the ranks have their variables
    way env SLURM_CONF="$with" srun -w n1,n2 --ntasks-per-node=2 \
        --rv-gpu=4 "$exec" "$W" a
    [ "$(said 0 n1)$(said 2 n2)" = 11 ]
    [ "$(grep -c spank_rv.so <<<"$output")" = 2 ]
    [ "$(cat "$RVT"/env/a.* | tr '\0' '\n' | grep -c '^WORLD_SIZE=4$')" = 4 ]
    # a job's options: no srun of its nodes knows the plugin either
    local without=$SLURM_CONF
    SLURM_CONF=$with way sbatch --parsable -o "$RVT/out-%j" -n1 \
        --rv-nccl-timeout=30m --wrap "SLURM_CONF=$without srun $exec true"
    wait_job "$output" COMPLETED
    [ "$(grep -c 'spank_rv.so did not run on n1' "$RVT/out-$output")" = 1 ]
    # bare srun cannot tell
    way env SLURM_CONF="$with" srun -n1 --rv-env=on "$W" b
    none b 1 RV_HEAD_ADDR=127.0.0.1
    # nobody asked for it: nothing is missed
    way srun -n1 "$exec" true
    [ -z "$output" ]
    way env RV_REQUEST_DIR=/r srun -n1 "$exec" true
    [ -z "$output" ]
}

@test "rv-exec misses no plugin that did run, or was switched off" {
    local exec=$RV_BUILD/rv-exec
    way srun -N2 --rv-gpu=4 "$exec" true
    [ -z "$output" ]
    way srun -n1 --rv-gpu=1 --rv-env=off "$exec" true
    [ -z "$output" ]
    job "srun $exec $W on; srun --rv-env=off $exec $W off" -n1 \
        --rv-nccl-timeout=30m
    [ "$(grep -c spank_rv "$RVT/out-$JOB")" = 0 ]
    grep -qz '^RV_NCCL_TIMEOUT=1800$' "$RVT"/env/on.0.*
    grep -qz '^RV_NCCL_TIMEOUT=600$' "$RVT"/env/off.0.*
}
