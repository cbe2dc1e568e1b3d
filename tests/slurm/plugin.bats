# SPDX-License-Identifier: Apache-2.0
# plugin.bats - spank_rv.so: allocation, refusals, rank variables, leaks
#
# Two nodes of two GPUs. The last test looks at the nodes: nothing above may
# have drained one.

load lib

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 8 --type a100 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS MASTER_ADDR MASTER_PORT
    export PLUGSTACK=$SANDBOX/plugstack.conf RANKS=$RVT/ranks OURS=$RVT/ours
    cp "$PLUGSTACK" "$RVT/plugstack.saved"
    # One line a rank: who it is, where, what it sees.
    cat >"$RANKS" <<'X'
#!/bin/sh
echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK$GROUP_RANK" \
    "$SLURMD_NODENAME [$CUDA_VISIBLE_DEVICES]"
X
    # All that the plugin may have put into an environment.
    cat >"$OURS" <<'X'
#!/bin/sh
env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK)=|'\
'^(GROUP_RANK|OMP_NUM_THREADS|MASTER_ADDR|MASTER_PORT)=|'\
'^(RV_STEP|RV_SET|RV_PLUGIN|RV_NCCL_TIMEOUT|RV_HEAD_ADDR|TORCH_[A-Z_]*)=|'\
'^(DEEPSPEED_TIMEOUT|SLURM_KILL_BAD_EXIT|SLURM_CPUS_PER_GPU)=|'\
'^(SLURM_GPUS|SLURM_NTASKS_PER_NODE|SBATCH_GPUS|SALLOC_GPUS)=|'\
'SPANK' | sort
X
    chmod +x "$RANKS" "$OURS"
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    cp "$RVT/plugstack.saved" "$PLUGSTACK"
}

job_ended() {
    case $(job_state "$1") in
    COMPLETED | FAILED | CANCELLED | TIMEOUT) ;;
    *) false ;;
    esac
}

# batch [SBATCH ARG...] - submit, wait for the end, print its output
batch() {
    local id
    id=$(sbatch --parsable -o "$RVT/out-%j" "$@") || return
    wait_for 60 job_ended "$id" || return
    cat "$RVT/out-$id"
}

n_jobs() {
    scontrol show jobs -o | grep -c JobId=
}

# try COMMAND... - run_cmd, also for a function, which has its own deadlines
try() {
    # A job that still completes would move this one to another node.
    wait_for 30 none_completing
    if [ "$(type -t "$1")" = function ]; then
        run "$@"
        printf '$ %s\nstatus %s\n%s\n' "$*" "$status" "$output"
    else
        run_cmd "$@"
    fi
}

# refused LINE COMMAND... - exit status 1, that line alone, no job
refused() {
    local line=$1 before
    shift
    before=$(n_jobs)
    run_cmd "$@"
    [ "$status" = 1 ]
    [ "$output" = "$line" ]
    [ "$(n_jobs)" = "$before" ]
}

four='0/4 0/2 00 n1 [0,1]
1/4 1/2 00 n1 [0,1]
2/4 0/2 11 n2 [0,1]
3/4 1/2 11 n2 [0,1]'
two='0/2 0/2 00 n1 [0,1]
1/2 1/2 00 n1 [0,1]'

# as TABLE COMMAND... - the ranks' lines, in their order
as() {
    local table=$1
    shift
    try "$@"
    [ "$status" = 0 ]
    [ "$(grep '^[0-9]*/' <<<"$output" | sort -n)" = "$table" ]
}

@test "srun --rv-gpu=4 starts four tasks, two a node" {
    as "$four" srun --rv-gpu=4 "$RANKS"
    as "$four" srun --rv-gpu=a100:4 "$RANKS"
    as "$four" srun --rv-gpu=A100:4 "$RANKS"
}

@test "three GPUs give two tasks and one" {
    as '0/3 0/2 00 n1 [0,1]
1/3 1/2 00 n1 [0,1]
2/3 0/1 11 n2 [0]' srun --rv-gpu=3 "$RANKS"
}

@test "one GPU, and one on each of two nodes: LOCAL_RANK 0" {
    as '0/1 0/1 00 n1 [0]' srun --rv-gpu=1 "$RANKS"
    as '0/2 0/1 00 n1 [0]
1/2 0/1 11 n2 [0]' srun --rv-gpu=2 -N2 "$RANKS"
}

@test "-n, -c, -N and tasks a node are the user's" {
    as "$four" srun --rv-gpu=4 -n4 "$RANKS"
    as "$four" srun --rv-gpu=4 -c2 "$RANKS"
    as "$four" srun --rv-gpu=4 -n4 -c2 "$RANKS"
    as "$four" srun --rv-gpu=4 --cpus-per-gpu=2 "$RANKS"
    as "$four" srun --rv-gpu=4 --ntasks-per-node=2 "$RANKS"
    as "$four" env SLURM_NTASKS=4 SRUN_CPUS_PER_TASK=2 srun --rv-gpu=4 "$RANKS"
    as '0/2 0/1 00 n1 [0,1]
1/2 0/1 11 n2 [0,1]' srun --rv-gpu=4 -n2 "$RANKS"
    as '0/2 0/1 00 n1 [0,1]
1/2 0/1 11 n2 [0,1]' srun --rv-gpu=4 --ntasks-per-node=1 "$RANKS"
    run_srun --rv-gpu=4 -n8 "$RANKS"
    [ "$status" = 1 ]
    [[ $output == *"rv: cannot start the task: n1 has 4 tasks of this step for \
2 GPUs (0,1), one each is needed; start at most 2 there"* ]]
}

@test "CPUs a GPU are the partition's default" {
    scontrol update partition=gpu JobDefaults=DefCpuPerGPU=3
    run_srun --rv-gpu=2 sh -c 'echo $SLURM_CPUS_ON_NODE'
    scontrol update partition=gpu JobDefaults=
    [ "$output" = '6
6' ]
    run_srun --rv-gpu=2 sh -c 'echo $SLURM_CPUS_ON_NODE'
    [ "$output" = '2
2' ]
}

@test "the option is seen wherever srun sees it" {
    as "$two" srun --rv-gpu 2 "$RANKS"
    as "$two" srun --rv-g=2 "$RANKS"
    as "$two" srun --rv-gp 2 "$RANKS"
    as "$two" srun -p gpu --rv-gpu=2 "$RANKS"
    as "$two" srun -pgpu --rv-gpu=2 "$RANKS"
    as "$two" srun --part gpu -vJ x --rv-gpu=2 -- "$RANKS"
    as "$two" srun --rv-gpu=4 --rv-gpu=2 "$RANKS"
    # behind the command it is the command's
    run_srun -n1 echo --rv-gpu=2
    [ "$output" = --rv-gpu=2 ]
}

@test "an option that the scan cannot see is refused" {
    # "--no-such-option x" may be any option of a later release; the second
    # plugin here has one that takes a value in the next word.
    cat >"$RVT/other.c" <<'X'
#include <slurm/spank.h>
SPANK_PLUGIN (other, 1)
static char name[] = "other", arg[] = "value", usage[] = "test";
static int cb (int v, const char *o, int r) { (void)v; (void)o; (void)r; return 0; }
static struct spank_option opt = {name, arg, usage, 1, 0, cb};
int slurm_spank_init (spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    return spank_option_register (sp, &opt);
}
X
    ${CC:-cc} -shared -fPIC -o "$RVT/other.so" "$RVT/other.c"
    echo "required $RVT/other.so" >>"$PLUGSTACK"
    refused "rv: cannot allocate '2': --rv-gpu stands behind a word that rv \
does not know; put it before the other options" \
        srun --other x --rv-gpu=2 true
    refused "rv: cannot allocate '2': --rv-gpu stands behind a word that rv \
does not know; put it before the other options" \
        sbatch --other x --rv-gpu=2 --wrap true
    as "$two" srun --rv-gpu=2 --other x "$RANKS"
    as "$two" srun --other=x --rv-gpu=2 "$RANKS"
}

refusals() {
    local both='asks for GPUs too; keep one of the two'
    local count="the count is no number from 1 to 1000000; write 4 or a100:4"
    local g="rv: cannot allocate" c
    refused "$g 'h100:2': no GPUs of type 'h100'; the cluster has a100" \
        srun --rv-gpu=h100:2 true
    refused "$g '99': 99 GPUs are more than there are; the cluster has 4" \
        srun --rv-gpu=99 true
    refused "$g 'a100:5': 5 GPUs of type a100 are more than there are; the \
cluster has 4" sbatch --rv-gpu=a100:5 --wrap true
    for c in 0 -1 ''; do
        refused "$g '$c': '$c' is not a GPU request: $count" \
            srun --rv-gpu="$c" true
    done
    run_srun --rv-gpu=2x true
    [ "$status" = 1 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output = "$g '2x': "* ]]
    for c in --gres=gpu:1 --gpus=1 --gpus-per-node=1 --gpus-per-task=1 \
        --ntasks-per-gpu=1; do
        refused "$g '2': ${c%=*} $both" srun $c --rv-gpu=2 true
        refused "$g '2': ${c%=*} $both" sbatch --rv-gpu=2 $c --wrap true
    done
    refused "$g '2': --gpus $both" srun -G1 --rv-gpu=2 true
    refused "$g '2': SLURM_GPUS $both" env SLURM_GPUS=1 srun --rv-gpu=2 true
    refused "$g '2': SBATCH_GRES $both" env SBATCH_GRES=gpu:1 \
        sbatch --rv-gpu=2 --wrap true
    refused "$g '1': --rv-gpu does not go with heterogeneous jobs; give each \
component --gpus" srun -n1 --rv-gpu=1 : -n1 true
    refused "rv: cannot set --rv-nccl-timeout to '30': duration '30' has no \
unit; write 500ms, 90s, 30m, 2h, 1.5h or 3d" srun --rv-nccl-timeout=30 true
    refused "rv: cannot set --rv-nccl-timeout to '5ms': less than a second; \
write 90s or 30m" sbatch --rv-nccl-timeout=5ms --wrap true
    refused "rv: cannot allocate '--rv-mig': the cluster has no MIG slices; ask \
for whole GPUs instead" srun --rv-mig true
    # ambiguous: Slurm's own line
    run_srun --rv-=2 true
    [ "$status" != 0 ]
    # in the task: a value that no client has looked at
    run_cmd env _SLURM_SPANK_OPTION_rv_rv_nccl_timeout=30 srun -n1 echo ran
    [ "$status" = 1 ]
    # srun's own line may come first
    [ "$(grep -c "^rv: cannot set --rv-nccl-timeout to '30': " <<<"$output")" = 1 ]
    ! grep -qx ran <<<"$output"
}

@test "refusals, required" {
    sed -i 's/^[a-z]*/required/' "$PLUGSTACK"
    refusals
}

@test "refusals, optional" {
    sed -i 's/^[a-z]*/optional/' "$PLUGSTACK"
    refusals
}

@test "a plugstack.conf that names the plugin twice: the first line counts" {
    mkdir "$RVT/twice.d"
    sed 's,$, env=gpu,' "$RVT/plugstack.saved" >"$RVT/twice.d/rv.conf"
    echo "include $RVT/twice.d/*" >>"$PLUGSTACK"
    as "$four" srun --rv-gpu=4 "$RANKS"
    as "$four" batch --rv-gpu=4 -N2 -n4 --ntasks-per-node=2 --wrap "srun '$RANKS'"
    [[ $output != *'provided by both'* ]]
    # env=gpu of the second line is not read
    run_srun --gres=gpu:1 "$OURS"
    [ "$status" = 0 ]
    [ -z "$output" ]
    refused "rv: cannot allocate '2': --rv-gpu does not go with heterogeneous jobs; give each component --gpus" \
        srun --rv-gpu=2 true : --rv-nccl-timeout=30m true
}

@test "a bad plugstack word ends clients and no step" {
    sed "s,^PlugStackConfig=.*,PlugStackConfig=$RVT/none," "$SLURM_CONF" \
        >"$RVT/slurm.conf"
    : >"$RVT/none"
    local w
    for w in verbose env=on nvml=x health=on conf=rv.conf; do
        sed "s,\$, $w," "$RVT/plugstack.saved" >"$PLUGSTACK"
        run_srun -n1 true
        [ "$status" = 1 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output = "rv: cannot read plugstack.conf: "*"${w%%=*}"* ]]
        # a client that does not load the plugin: the step runs without it
        run_cmd env SLURM_CONF="$RVT/slurm.conf" RV_REQUEST_DIR=/x \
            srun -n1 "$OURS"
        [ "$status" = 0 ]
        [ -z "$(grep -v '^srun:' <<<"$output")" ]
    done
    grep -q 'rv: cannot read plugstack.conf' "$SANDBOX"/log/*
}

@test "timeouts: seconds, the two others, the user's own, the default" {
    local show='echo $RV_NCCL_TIMEOUT ${TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC-no} ${DEEPSPEED_TIMEOUT-no}'
    run_srun -n1 --rv-nccl-timeout=90s sh -c "$show"
    [ "$output" = '90 480 2' ]
    run_srun -n1 --rv-nccl-timeout 1500ms sh -c "$show"
    [ "$output" = '2 480 1' ]
    run_srun -n1 --rv-nccl-timeout=2h sh -c "$show"
    [ "$output" = '7200 7200 120' ]
    run_srun --rv-gpu=1 sh -c "$show"
    [ "$output" = '600 no no' ]
    run_cmd env DEEPSPEED_TIMEOUT=7 RV_NCCL_TIMEOUT=50 \
        srun -n1 --rv-nccl-timeout=1h sh -c "$show"
    [ "$output" = '3600 3600 7' ]
    run_cmd env RV_NCCL_TIMEOUT=50 srun --rv-gpu=1 sh -c "$show"
    [ "$output" = '50 no no' ]
}

@test "a job that asks nothing of rv has nothing of ours" {
    run_srun -N2 -n4 --gres=gpu:2 "$OURS"
    [ "$status" = 0 ]
    [ -z "$output" ]
    try batch -n2 --gres=gpu:2 --wrap "'$OURS'; srun -n2 '$OURS'"
    [ "$status" = 0 ]
    [ "$output" = SLURM_GPUS= ] || [ -z "$output" ]
}

@test "RV_REQUEST_DIR and env=gpu switch the rank variables on" {
    as '0/2 0/1 00 n1 []
1/2 0/1 11 n2 []' env RV_REQUEST_DIR=/x srun -N2 -n2 "$RANKS"
    sed -i 's/$/ env=gpu/' "$PLUGSTACK"
    as "$four" srun -N2 -n4 --ntasks-per-node=2 --gres=gpu:2 "$RANKS"
    run_srun -n1 --gres=gpu:1 sh -c 'echo $MASTER_ADDR $RV_HEAD_ADDR'
    [ "$output" = '127.0.0.1 127.0.0.1' ]
    run_srun -n2 "$OURS"
    [ "$status" = 0 ]
    [ -z "$output" ]
}

@test "--rv-env=on and off" {
    as '0/2 0/2 00 n1 []
1/2 1/2 00 n1 []' srun -n2 -w n1 --rv-env=on "$RANKS"
    run_srun --rv-gpu=2 --rv-nccl-timeout=5m --rv-env=off "$OURS"
    [ "$status" = 0 ]
    [ -z "$output" ]
    refused "rv: cannot set --rv-env to 'yes': it is on or off" \
        srun --rv-env=yes true
    # off for the job, on for a step
    try batch -n2 --rv-env=off --wrap \
        "srun -n1 '$OURS' | grep -v SPANK; srun -Q -n2 --rv-env=on '$RANKS'"
    [ "$(sort -n <<<"$output")" = '0/2 0/2 00 n1 []
1/2 1/2 00 n1 []' ]
}

@test "the user's own rank stays, an outer step's does not" {
    run_cmd env RANK=7 MASTER_ADDR=10.1.2.3 srun --rv-gpu=1 \
        sh -c 'echo $RANK $MASTER_ADDR'
    [ "$output" = '7 10.1.2.3' ]
    run_cmd env RANK=7 MASTER_ADDR=10.1.2.3 RV_STEP=1.0 RV_HEAD_ADDR=10.9.9.9 \
        srun --rv-gpu=1 sh -c 'echo $RANK $MASTER_ADDR'
    [ "$output" = '0 127.0.0.1' ]
    run_cmd env OMP_NUM_THREADS=17 srun --rv-gpu=1 sh -c 'echo $OMP_NUM_THREADS'
    [ "$output" = 17 ]
}

@test "sbatch: the command line and #SBATCH lines allocate, steps have ranks" {
    cat >"$RVT/job" <<X
#!/bin/sh
#SBATCH -N2 -n4 --ntasks-per-node=2
#SBATCH --rv-nccl-timeout=30m
'$OURS'
srun '$RANKS'
srun -l /bin/sh -c 'echo \$RV_NCCL_TIMEOUT \$RV_STEP'
X
    sed '2s/$/ --rv-gpu=4/' "$RVT/job" >"$RVT/job4"
    # All at once: each begins as the one before ends.
    local how id ids=()
    for how in "--rv-gpu=4 $RVT/job" "-p gpu --rv-gpu a100:4 $RVT/job" \
        "--rv-g=4 $RVT/job" "$RVT/job4" "$RVT/job4 --rv-gpu=3" \
        "--export=NONE $RVT/job4"; do
        # shellcheck disable=SC2086 # words
        ids+=("$(sbatch --parsable -o "$RVT/out-%j" $how)")
    done
    [ "${#ids[@]}" = 6 ]
    for id in "${ids[@]}"; do
        wait_for 60 job_ended "$id"
        as "$four" cat "$RVT/out-$id"
        # nothing per rank in the batch script, and Slurm's own SLURM_GPUS
        [ -z "$(grep -E '^(RANK|RV_|MASTER|OMP|WORLD|SBATCH_GPUS)' <<<"$output")" ]
        [ "$(grep '^SLURM_GPUS=' <<<"$output" | cut -d: -f2)" = SLURM_GPUS=4 ] ||
            [ "$(grep '^SLURM_GPUS=' <<<"$output")" = SLURM_GPUS=a100:4 ]
        [ "$(grep -cE '^[0-3]: 1800 [0-9]+\.1$' <<<"$output")" = 4 ]
    done
    # the command line's count comes before the script's
    try batch --rv-gpu=2 "$RVT/job4"
    [[ $output == *"has 2 tasks of this step for 1 GPU (0), one each is needed"* ]]
}

@test "sbatch: a script from a pipe" {
    printf '#!/bin/sh\n#SBATCH -n2 --rv-gpu=2\nsrun %q\n' "$RANKS" >"$RVT/piped"
    id=$(cat "$RVT/piped" | sbatch --parsable -o "$RVT/out-%j")
    wait_for 60 job_ended "$id"
    [ "$(sort -n "$RVT/out-$id")" = "$two" ]
    id=$(sbatch --parsable -o "$RVT/out-%j" <"$RVT/piped")
    wait_for 60 job_ended "$id"
    [ "$(sort -n "$RVT/out-$id")" = "$two" ]
}

@test "sbatch: what a script asks for is refused as well" {
    printf '#!/bin/sh\n#SBATCH --rv-gpu=9\ntrue\n' >"$RVT/nine"
    refused "rv: cannot allocate '9': 9 GPUs are more than there are; the \
cluster has 4" sbatch "$RVT/nine"
    printf '#!/bin/sh\n#SBATCH --rv-gpu=2\n#SBATCH --gres=gpu:1\n' >"$RVT/both"
    refused "rv: cannot allocate '2': --gres asks for GPUs too; keep one of \
the two" sbatch "$RVT/both"
    printf '#!/bin/sh\n#SBATCH --gpus=1\n' >"$RVT/gpus"
    refused "rv: cannot allocate '2': --gpus asks for GPUs too; keep one of \
the two" sbatch --rv-gpu=2 "$RVT/gpus"
    refused "rv: cannot allocate '2': --gres asks for GPUs too; keep one of \
the two" sbatch --gres=gpu:1 --rv-gpu=2 "$RVT/nine"
}

@test "salloc allocates, its steps have ranks" {
    run_cmd salloc --rv-gpu=4 -N2 -n4 --ntasks-per-node=2 sh -c \
        "env | grep -c SALLOC_GPUS; srun '$RANKS'"
    [ "$status" = 0 ]
    [ "$(grep '^[0-9]*/' <<<"$output" | sort -n)" = "$four" ]
    grep -qx 0 <<<"$output"
    refused "rv: cannot allocate '99': 99 GPUs are more than there are; the \
cluster has 4" salloc --rv-gpu=99 true
}

@test "sbatch and salloc by the names that wrappers of a site give them" {
    ln -s "$(command -v sbatch)" "$RVT/sbatch.real"
    ln -s "$(command -v salloc)" "$RVT/salloc-orig"
    as "$two" "$RVT/salloc-orig" --rv-gpu=2 -n2 srun "$RANKS"
    run_cmd "$RVT/sbatch.real" -W -o "$RVT/real" --rv-gpu=2 -n2 --wrap "srun '$RANKS'"
    [ "$status" = 0 ]
    [ "$(sort "$RVT/real")" = "$two" ]
}

@test "nothing leaks into nested commands" {
    # an srun in a task: a step of the job, with ranks of its own
    run_srun --rv-gpu=2 -n1 sh -c \
        "srun --overlap -n1 sh -c 'echo \$RV_STEP; env | grep -c ^SLURM_GPUS= || true'"
    [ "$(grep -v '^srun:' <<<"$output" | sed 's/.*\.//' | xargs)" = '1 0' ]
    # an sbatch in a rank: a job of its own, which asks nothing of rv
    cat >"$RVT/inner" <<X
#!/bin/sh
'$OURS' | grep -v ^SLURM_GPUS
srun -n1 '$OURS' | grep -v ^SLURM_GPUS
echo end
X
    try batch -n1 --rv-gpu=1 --rv-nccl-timeout=9m --wrap \
        "srun -n1 sbatch --parsable -o '$RVT/out-%j' -n1 '$RVT/inner'"
    [ "$status" = 0 ]
    wait_for 60 job_ended "$output"
    cat "$RVT/out-$output"
    [ "$(cat "$RVT/out-$output")" = end ]
    # a value that the user had exported is there afterwards
    run_cmd env SLURM_CPUS_PER_GPU=2 srun --rv-gpu=2 \
        sh -c 'echo $SLURM_CPUS_PER_GPU'
    [ "$output" = '2
2' ]
}

@test "in a job the options allocate nothing" {
    try batch -n2 --gres=gpu:2 --wrap \
        "srun -Q --rv-gpu=99 -n2 '$RANKS'; srun -Q --rv-gpu=1 --gres=gpu:2 -n2 '$RANKS'"
    [ "$(sort -n <<<"$output")" = "$(printf '%s\n%s\n' "$two" "$two" | sort -n)" ]
    try batch -n1 --wrap "srun --rv-gpu=2x true; echo \$?"
    [ "${lines[1]}" = 1 ]
    [[ ${lines[0]} = "rv: cannot allocate '2x': "* ]]
}

@test "srun --export=NONE has ranks, and the node's name as MASTER_ADDR" {
    run_srun --export=NONE --rv-gpu=2 --rv-nccl-timeout=5m \
        /bin/sh -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR $RV_NCCL_TIMEOUT'
    [ "$(sort <<<"$output")" = '0 2 n1 300
1 2 n1 300' ]
}

@test "without PMIx a dead rank ends the step, unless the user says otherwise (pytorch/torchx#479)" {
    local prog='[ $SLURM_PROCID = 1 ] && exit 3; sleep 3; echo survived'
    run_srun --mpi=none -n2 --rv-nccl-timeout=5m sh -c \
        '[ $SLURM_PROCID = 1 ] && exit 3; sleep 300'
    [ "$status" != 124 ]
    [ "$status" != 0 ]
    run_srun --mpi=none -K0 -n2 --rv-nccl-timeout=5m sh -c "$prog"
    [[ $output = *survived* ]]
    run_srun --mpi=none -n2 sh -c "$prog" # no step of ours
    [[ $output = *survived* ]]
    if srun --mpi=list 2>&1 | grep -q pmix; then
        run_srun --mpi=pmix -n2 --rv-nccl-timeout=5m sh -c "$prog"
        [[ $output = *survived* ]]
    fi
    run_srun --mpi=none -n1 --rv-nccl-timeout=5m "$OURS"
    [[ $output != *KILL_BAD_EXIT* ]]
}

@test "no node is drained or down" {
    run_cmd sinfo -h -N -o '%N %t'
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 2 ]
    run grep -E 'drain|drng|down|fail' <<<"$output"
    [ "$status" = 1 ]
}
