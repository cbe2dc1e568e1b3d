# SPDX-License-Identifier: Apache-2.0
# types.bats - two types of GPU in one cluster: 4 nodes of one GPU each, n1 and n2
# a100, n3 and n4 v100, which their features tell
# shellcheck disable=SC2154 # bats' run sets status, output, stderr

load run

setup_file() {
    local name
    sandbox_up --nodes 4 --gpus 4 --cpus 2 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    for name in slurmctld n1 n2 n3 n4; do
        kill "$(daemon "$name")"
        wait_for 60 gone "$(daemon "$name")"
    done
    sed -i -E '/^NodeName=n[12] /s/$/ Feature=a100/
        /^NodeName=n[34] /s/gpu:a100:/gpu:v100:/
        /^NodeName=n[34] /s/$/ Feature=v100/' "$SANDBOX/slurm.conf"
    sed -i -E '/^NodeName=n[34] /s/Type=a100/Type=v100/' "$SANDBOX/gres.conf"
    rm -rf "$SANDBOX"/state/*
    for name in slurmctld n1 n2 n3 n4; do restart "$name"; done
    wait_for 60 nodes_idle
}

# where ARG... - the nodes that the ranks of rv run ARG... ran on, in order
where() {
    separate "$RV" run -f "$@" -- sh -c 'echo "$SLURMD_NODENAME"'
    [ "$status" = 0 ] || return 1
    nodes=$(sort <<<"$output" | tr '\n' ' ')
}

teardown() {
    [ -z "${RVT_SKIP:-}" ] || return 0
    squeue -h -o %i | xargs -r scancel
    wait_for 60 all_idle
}

waits() {
    squeue -h -t PD -n both -o %i | grep -q .
}

@test "one job for both types: every node of it has the same, and the log says which" {
    # one of each type is taken, so it has to wait, and may wait for both
    for node in n1 n3; do
        sbatch --parsable -w "$node" --gres=gpu:1 -o /dev/null --wrap 'sleep 300' >"$node"
        wait_job "$(cat "$node")" RUNNING
    done
    separate "$RV" run --dry-run --json -g 2 true
    [ "$(jq -c '[.plan.nodes, .plan.gpu_type, .forecast.strategies[0].gpu_types]' <<<"$output")" = '[2,null,["a100","v100"]]' ]
    [[ $output == *'"--constraint=[a100|v100]"'* ]]
    [[ $output == *'"--gres=gpu:1"'* ]]
    (where -g 2 --name both && echo "$nodes" >both) 3>&- &
    wait_for 60 waits
    scancel "$(cat n3)"
    wait $!
    [ "$(cat both)" = "n3 n4 " ]
    grep -h v100 "$STATE"/logs/both-*.batch.err
    scancel "$(cat n1)"
    wait_for 60 all_idle
    where -g 2
    [[ $nodes == "n1 n2 " || $nodes == "n3 n4 " ]]
}

@test "a type that is named; more than one type has; a slip in its name" {
    where -g 2 -t V100
    [ "$nodes" = "n3 n4 " ]
    separate "$RV" run -g 4 true
    [ "$status" = 5 ]
    [ "$stderr" = "rv: cannot run 'true': no job can have 4 GPUs: there is a100 (2 in all, 1 a node), v100 (2 in all, 1 a node); -g 2 would work" ]
    separate "$RV" run -g 1 -t v10 true
    [ "$status" = 5 ]
    [[ $stderr == *"there is no GPU type 'v10'; there is a100 (2 in all, 1 a node), v100 (2 in all, 1 a node)" ]]
}

@test "processes a node that the command fixes" {
    local words
    # -g 2 of one a node are two nodes, however it is spelled
    for words in --nproc_per_node=1 --nproc-per-node=1 '--nproc_per_node 1' '--nproc-per-node 1'; do
        # shellcheck disable=SC2086 # words
        separate "$RV" run --dry-run --json -g 2 -- torchrun $words x.py
        [ "$(jq -r '.plan | "\(.nodes) \(.gpus_per_node) \(.tasks)"' <<<"$output")" = "2 1 2" ]
    done
    separate "$RV" run --dry-run -g 3 -- torchrun --nproc_per_node=2 x.py
    [ "$status" = 5 ]
    [ "$stderr" = "rv: cannot run 'x': the command starts 2 processes a node, which does not divide 3 GPUs; ask for a multiple of 2" ]
    # the word of the launcher that leaves it to the node
    separate "$RV" run --dry-run --json -g 1 -- torchrun --nproc_per_node=gpu x.py
    [ "$(jq -r '.plan | "\(.nodes) \(.gpus_per_node)"' <<<"$output")" = "1 1" ]
}

@test "no Slurm command in PATH: it works here and in the job" {
    mkdir bin
    ln -s "$(command -v mkdir)" "$(command -v sh)" bin/
    separate env PATH="$PWD/bin" "$RV" run -f -g 1 -- sh -c 'command -v srun || echo none'
    [ "$status" = 0 ]
    [ "$output" = none ]
    wait_for 60 all_idle
}

@test "-g 0 is one task without a GPU; an option behind the command is pointed out" {
    separate "$RV" run -f -g 0 -- sh -c 'echo "${CUDA_VISIBLE_DEVICES-none} $WORLD_SIZE"'
    [ "$status" = 0 ]
    [[ $output =~ ^(none|)\ 1$ ]]
    separate "$RV" run --dry-run true --gpus 2
    [[ $stderr == "rv: --gpus behind 'true' is that command's own; options of rv run stand before it"* ]]
}
