# SPDX-License-Identifier: Apache-2.0
# sandbox.bats - rv sandbox: up, what it is, down, crashes, side by side

load lib

setup_file() {
    t0=$(date +%s%N)
    sandbox_up --nodes 2 --gpus 4 --cpus 2
    t1=$(date +%s%N)
    export UP_MS=$(((t1 - t0) / 1000000))
}

teardown_file() {
    sandbox_down
}

@test "up takes well under ten seconds" {
    echo "up and env: $UP_MS ms" >&3
    [ "$UP_MS" -lt 10000 ]
}

@test "srun -N2 -n4 places two tasks a node" {
    run_srun -N2 -n4 sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0 n1
1 n1
2 n2
3 n2" ]
}
