# SPDX-License-Identifier: Apache-2.0
# scrontab.bats - the way into Slurm that waits for the next minute

load paths

@test "scrontab: our options are refused there, its job's steps know them" {
    command -v scrontab >/dev/null || skip "this Slurm has no scrontab"
    echo 'ScronParameters=enable' >>"$SLURM_CONF"
    scontrol reconfigure
    echo '#SCRON --rv-gpu=a100:2
* * * * * true' >"$RVT/cron"
    run_cmd scrontab "$RVT/cron"
    [ "$status" = 1 ]
    [[ $output == *"rv: cannot allocate 'a100:2': --rv-gpu is an option of srun, \
sbatch and salloc; use --gpus"* ]]
    printf '#SCRON --gres=gpu:2 -n 2 -w n2 -o %s\n* * * * * %s batch; %s\n' "$RVT/out-cron" \
        "$W" "SLURM_CONF=$SLURM_CONF srun -n2 --rv-env=on $W step" >"$RVT/cron"
    scrontab "$RVT/cron"
    both() { [ "$(find "$RVT/env" -type f | wc -l)" = 3 ]; }
    # It begins with the next minute, and is looked for every 30 s.
    wait_for 150 both
    scrontab -r
    wait_for 60 nodes_idle
    cat "$RVT"/out-cron
    none batch 1 CUDA_VISIBLE_DEVICES=0,1
    ranks step <<<'0/2 0/2 0 n2 0,1
1/2 1/2 0 n2 0,1'
}
