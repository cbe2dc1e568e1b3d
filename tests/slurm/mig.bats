# SPDX-License-Identifier: Apache-2.0
# mig.bats - MIG slices: --rv-mig, refusals, the slice of each task
#
# Two nodes, each with one whole GPU and two slices.

load lib

setup_file() {
    sandbox_up --nodes 2 --gpus 2 --mig 4 --cpus 8 --type a100 || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
}

teardown_file() {
    sandbox_down
}

@test "slices are shared by the nodes beside the GPUs" {
    run_cmd sinfo -hN -o '%N %G'
    [ "$status" = 0 ]
    [ "${lines[0]}" = "n1 gpu:a100:1,gpu:1g.10gb:2" ]
    [ "${lines[1]}" = "n2 gpu:a100:1,gpu:1g.10gb:2" ]
    run_cmd "$RV" sandbox status --dir "$SANDBOX" --json
    [[ $output == *'"mig":4,'* ]]
    grep -q "NodeName=n2 Name=gpu Type=1g.10gb MultipleFiles=$SANDBOX/n2/dev/\
nvidia1,$SANDBOX/n2/dev/nvidia-caps/nvidia-cap201,$SANDBOX/n2/dev/nvidia-caps/\
nvidia-cap202" "$SANDBOX/gres.conf"
}
