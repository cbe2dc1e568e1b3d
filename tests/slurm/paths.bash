# SPDX-License-Identifier: Apache-2.0
# paths.bash - what the suites of the ways into Slurm share
#
# Three nodes of two GPUs. Each program of a way writes its whole environment
# to a file, and envtable.py compares all of them with a table made from the
# rules of rv-spank(8). Reading a table: RANK/WORLD_SIZE, LOCAL_RANK/
# LOCAL_WORLD_SIZE, NODE_RANK, node, CUDA_VISIBLE_DEVICES.
#
# shellcheck shell=bash disable=SC2034,SC2154 # tests read the tables; bats' run sets status

load "${BASH_SOURCE[0]%/*}/lib"

setup_file() {
    sandbox_up --nodes 3 --gpus 6 --cpus 12 --type a100 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS MASTER_ADDR MASTER_PORT
    RV_VERSION=$("$RV" --version | awk '{print $2; exit}')
    export RV_VERSION PLUGSTACK=$SANDBOX/plugstack.conf W=$RVT/who
    export NOPLUGIN=$RVT/noplugin.conf OPT=SLURM_SPANK__SLURM_SPANK_OPTION_rv
    cp "$PLUGSTACK" "$RVT/plugstack.saved"
    # who TAG - the environment as it is, to a file of its own
    cat >"$W" <<X
#!/bin/sh
exec /bin/cat /proc/self/environ >"$RVT/env/\$1.\${SLURM_PROCID-x}.\$\$"
X
    chmod +x "$W"
    # A client of a machine whose plugstack does not know us.
    sed "s,^PlugStackConfig=.*,PlugStackConfig=$RVT/none," "$SLURM_CONF" \
        >"$NOPLUGIN"
    : >"$RVT/none"
    # Only the backfill scheduler starts heterogeneous jobs of sbatch.
    sed -i 's/^SchedulerParameters=.*/&,bf_interval=1/' "$SLURM_CONF"
    scontrol reconfigure
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    cp "$RVT/plugstack.saved" "$PLUGSTACK"
    rm -rf "$RVT/env" "$RVT"/out-*
    mkdir "$RVT/env"
    # The tables say on which nodes: a job that is completing takes one away.
    wait_for 60 nodes_idle
}

# way COMMAND... - it must succeed
way() {
    wait_for 60 nodes_idle
    run_cmd "$@"
    [ "$status" = 0 ]
}

# job COMMANDS [SBATCH ARG...] - submit a script, JOB; wait until it and all
# that it submitted have ended well. sbatch -W looks every 2 to 10 s only.
job() {
    printf '#!/bin/sh\n%s\n' "$1" >"$RVT/script"
    shift
    JOB=$(sbatch --parsable -o "$RVT/out-%j" "$@" "$RVT/script")
    wait_for 60 no_jobs
    cat "$RVT"/out-*
    ! scontrol show job -o "$JOB" | grep -v JobState=COMPLETED
}

no_jobs() {
    [ -z "$(squeue -h)" ]
}

# ranks TAG [WORD...] <<TABLE, none TAG N [WORD...]: see envtable.py
ranks() {
    /usr/bin/python3 "$BATS_TEST_DIRNAME/envtable.py" "$RVT/env" "$@"
}

none() {
    local tag=$1 n=$2
    shift 2
    ranks "$tag" "none=$n" "$@" </dev/null
}

T30='RV_NCCL_TIMEOUT=1800 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800
DEEPSPEED_TIMEOUT=30'
# Two ranks on a node, without GPUs
two='0/2 0/2 0 n1 -
1/2 1/2 0 n1 -'
# Six ranks, one a GPU
six='0/6 0/2 0 n1 0,1
1/6 1/2 0 n1 0,1
2/6 0/2 1 n2 0,1
3/6 1/2 1 n2 0,1
4/6 0/2 2 n3 0,1
5/6 1/2 2 n3 0,1'
