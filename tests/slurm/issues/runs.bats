# SPDX-License-Identifier: Apache-2.0
# runs.bats - reports of jobs that ran twice, were lost or never ended
# shellcheck disable=SC2016,SC2154 # programs of ranks; bats' run sets output

load ../run

# put_back JOB... - requeue them, and let them start at once: Slurm would wait
# for two minutes. slurmd refuses what starts in the second of an earlier end.
put_back() {
    local job
    wait_for 30 all_idle
    for job; do scontrol requeue "$job"; done
    for job; do scontrol update JobId="$job" StartTime=now+2; done
}

# ended_again JOB... - each has been started twice; a submission wakes Slurm
ended_again() {
    local job
    srun -Q true
    for job; do
        scontrol show job -o "$job" | grep -q ' Restarts=1 ' || return 1
        [[ $(job_state "$job") = @(COMPLETED|FAILED) ]] || return 1
    done
}

# The first test: it submits until ids have come round.
@test "pytorch/torchx#1070, snakemake/snakemake-executor-plugin-slurm#38: no accounting, and Slurm has forgotten the job" {
    separate "$RV" run -f --name old -- sh -c 'echo mine; exit 3'
    old=$(basename "$STATE"/requests/*/jobs/*.json .json)
    wait_for 30 all_idle
    run_cmd sacct
    [ "$status" != 0 ]
    kill -9 "$(daemon slurmctld)"
    wait_for 60 gone "$(daemon slurmctld)"
    rm -f "$SANDBOX"/state/job_state* "$SANDBOX"/state/last_*
    restart slurmctld
    wait_for 60 sinfo
    ! scontrol show job "$old" || false
    separate "$RV" ps -a --json
    [ "$(jq -c '.jobs[] | [.job_id, .name, .state, .exit_status]' <<<"$output")" = "[$old,\"old\",\"FAILED\",3]" ]
    # facebookincubator/submitit#1660: ids begin anew, and this one is another's
    until [ "${job:-0}" -ge "$old" ]; do submit --name new -- true; done
    separate "$RV" ps -a --json
    [ "$(jq -c --argjson id "$old" '[.jobs[] | select(.job_id == $id) | [.name, .exit_status]] | sort' <<<"$output")" = \
        '[["new",null],["old",3]]' ]
    separate "$RV" logs old
    [ "$output" = mine ]
    # Its nodes have to register anew.
    wait_for 60 all_idle
}

@test "NVIDIA/TensorRT-LLM#17654: what has ended does not run again when it is requeued" {
    submit --name well -- sh -c 'echo x >>well.runs'
    well=$job
    submit --name badly -- sh -c 'echo x >>badly.runs; exit 3'
    wait_job "$well" COMPLETED
    wait_job "$job" FAILED
    put_back "$well" "$job"
    wait_for 60 ended_again "$well" "$job"
    job_is "$well" COMPLETED
    job_is "$job" FAILED
    # Both were started, and said why they did nothing.
    [ "$(cat "$STATE"/logs/*.batch.err | grep -c '^rv: job .* was requeued, but its command ended before, with status [03]; ')" = 2 ]
    [ "$(cat ./*.runs)" = "x
x" ]
    separate "$RV" ps -a --json
    [ "$(jq -c '[.jobs[] | select(.request_id) | .exit_status] | sort' <<<"$output")" = '[0,3]' ]
}

@test "NVIDIA-NeMo/NeMo#14829: a cluster without Slurm's PMIx plugin" {
    local plugins
    plugins=$(scontrol show config | awk '$1 == "PluginDir" { print $3 }')
    mkdir "$RVT/plugins"
    find "$plugins/" -name '*.so' ! -name '*pmix*' -exec ln -s -t "$RVT/plugins" {} +
    cp "$SLURM_CONF" "$SLURM_CONF.saved"
    # Clients and slurmd's helpers read the file anew, at any time: sed and mv
    # put another in its place, and what a job began with stays until its end.
    wait_for 30 all_idle
    sed -i "/^PluginDir/d; s,^MpiDefault=.*,MpiDefault=none\nPluginDir=$RVT/plugins," "$SLURM_CONF"
    srun --mpi=list >types 2>&1
    separate "$RV" run -f -g 4 -- sh -c 'echo $RANK/$WORLD_SIZE $RV_BOOT'
    wait_for 30 all_idle
    mv "$SLURM_CONF.saved" "$SLURM_CONF"
    ! grep pmix types || false
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0/4 slurm
1/4 slurm
2/4 slurm
3/4 slurm" ]
}

@test "snakemake/snakemake-executor-plugin-slurm#342, #373, ishandhanani/srt-slurm#125: exported layouts" {
    export SLURM_TRES_PER_TASK=cpu=1 SLURM_CPUS_PER_TASK=2 SLURM_NTASKS_PER_GPU=1
    separate "$RV" run -f -g 2 -- sh -c 'echo $RANK'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0
1" ]
    unset SLURM_TRES_PER_TASK SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_GPU
    # From a job whose own layout Slurm has exported
    id=$(sbatch --parsable --ntasks-per-gpu=1 -c1 --gres=gpu:1 -o "$PWD/nested" \
        --wrap "export SLURM_TRES_PER_TASK=cpu=1; '$RV' run -f -g 2 -- sh -c 'echo \$RANK'")
    wait_job "$id" COMPLETED
    [ "$(grep -x '[0-9]' nested | sort)" = "0
1" ]
}

@test "goodfire-ai/spd#552: ranks that do not mind SIGTERM end with the first that failed" {
    RVT_TIMEOUT=60 separate "$RV" run -f -g 4 -- sh -c 'trap "" TERM
        sleep 300 & echo "$$ $!" >pids.$RANK
        [ $RANK = 1 ] || { sleep 301; exit; }
        until [ -s pids.0 ] && [ -s pids.2 ] && [ -s pids.3 ]; do sleep 0.05; done
        date +%s%N >died; exit 5'
    [ "$status" = 5 ]
    [ $((($(date +%s%N) - $(cat died)) / 1000000)) -lt "$(loaded 20000)" ]
    [[ $stderr == *"rank 1 on n1 ended with status 5"* ]]
    for pid in $(cat pids.?); do wait_for 60 gone "$pid"; done
}

@test "charliemeyer2000/rivanna.dev 0.0.12: a job that waits has no nodes" {
    submit -g 4 --name first -- sleep 60
    wait_job "$job" RUNNING
    submit -g 4 --name PENDING -- true
    separate "$RV" ps --json
    valid <<<"$output"
    [ "$(jq -c '.jobs[] | select(.state == "PENDING") | [.name, .node_list, .started_at, .gpus]' <<<"$output")" = \
        '["PENDING",null,null,4]' ]
    separate "$RV" ps
    [ "$(wc -l <<<"$output")" = 3 ]
}
