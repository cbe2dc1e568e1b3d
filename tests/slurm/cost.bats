# SPDX-License-Identifier: Apache-2.0
# cost.bats - the plugin's own time, by a clock around every callback
#
# spank_clock.so stands in the plugin's place and loads it. A busy machine makes
# a single call as slow as it likes, so the median of many is held to the limit.
# run.sh: alone

load lib

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 8 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    export CLOCK=$RVT/clock
    mkdir "$CLOCK"
    ${CC:-cc} -shared -fPIC -o "$RVT/spank_clock.so" \
        "$BATS_TEST_DIRNAME/spank_clock.c"
    cp "$SANDBOX/plugstack.conf" "$RVT/plugstack.saved"
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    rm -f "$CLOCK"/*
}

# clocked [WORD...] - the plugin with the clock around it
clocked() {
    echo "required $RVT/spank_clock.so $CLOCK $RV_BUILD/spank_rv.so $*" \
        >"$SANDBOX/plugstack.conf"
}

# sums CONTEXT - microseconds of each process of CONTEXT, sorted
sums() {
    awk -v want="$1" '
        $1 == want { sum[FILENAME] += $3 }
        END { for (f in sum) printf "%d\n", sum[f] / 1000 }' "$CLOCK"/* |
        sort -n
}

# at_least COUNT CONTEXT - so many of its processes have ended or begun tasks
at_least() {
    [ "$(sums "$2" | wc -l)" -ge "$1" ]
}

# quick CONTEXT - the median of its processes is within 1 ms
quick() {
    local all
    mapfile -t all < <(sums "$1")
    echo "$1: ${#all[@]} processes, least ${all[0]} us," \
        "median ${all[$((${#all[@]} / 2))]} us, most ${all[-1]} us"
    [ "${all[$((${#all[@]} / 2))]}" -le 1000 ]
}

# measured COUNT CONTEXT COUNT CONTEXT COMMAND... - the limit holds in one of
# three rounds of eight, each of which brings so many processes
measured() {
    local n1=$1 c1=$2 n2=$3 c2=$4 round i
    shift 4
    for round in 1 2 3; do
        rm -f "$CLOCK"/*
        for i in 1 2 3 4 5 6 7 8; do
            run_cmd "$@"
            [ "$status" = 0 ] || return 1
        done
        wait_for 30 at_least "$n1" "$c1" || return 1
        wait_for 30 at_least "$n2" "$c2" || return 1
        echo "round $round:"
        if quick "$c1" && quick "$c2"; then
            return 0
        fi
    done
    return 1
}

@test "without an rv option: at most 1 ms in srun, and 1 ms a step and node" {
    clocked
    measured 8 local 16 remote srun -N2 -n2 true
    # The clock has seen the callbacks that there are.
    grep -qh '^local slurm_spank_local_user_init ' "$CLOCK"/*
    grep -qh '^remote slurm_spank_init ' "$CLOCK"/*
    [ "$(cat "$CLOCK"/* | grep -c '^remote slurm_spank_task_init ')" -ge 16 ]
}

@test "the same with a GPU, and with eight tasks a node" {
    clocked
    measured 8 local 8 remote srun -n1 --gres=gpu:1 true
    measured 8 local 8 remote srun -N1 -n8 true
    [ "$(cat "$CLOCK"/* | grep -c '^remote slurm_spank_task_init ')" -ge 64 ]
}

@test "the same for sbatch with 500 #SBATCH lines, and its batch step" {
    local i
    clocked
    { echo '#!/bin/sh'; for ((i = 0; i < 500; i++)); do echo "#SBATCH -n1"; done; } >"$RVT/long"
    measured 8 allocator 8 remote sbatch -o /dev/null "$RVT/long"
}
