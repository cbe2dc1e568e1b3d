# SPDX-License-Identifier: Apache-2.0
# gpus.bats - tests/bench/gpus.py through rv run, on one node and on two, with made-up
# GPUs and tiny models on the CPUs
# shellcheck disable=SC2154 # bats' run sets status, output

load lib

setup_file() {
    require_slurm
}

@test "a step and GRPO of two ranks, on one node and on two" {
    cd "$BATS_TEST_TMPDIR"
    unset "${!SLURM_@}" "${!SBATCH_@}"
    export PYTHONDONTWRITEBYTECODE=1
    run timeout 100 /usr/bin/python3 "$RV_SRC/tests/bench/gpus.py" --build "$RV_BUILD" \
        --device host --through node,nodes --only weak-1b,grpo,groups --out rows </dev/null
    echo "$output"
    [ "$status" = 0 ]
    for way in node nodes; do
        for op in train grpo all_reduce; do
            grep '"op": "'$op'"' rows | grep -q '"through": "'$way'"'
        done
    done
    ! grep failed rows || false
    # no Slurm stays
    [ -z "$(pgrep -f "slurmctld.*/tmp/rvg\." || true)" ]
}
