# SPDX-License-Identifier: Apache-2.0
# output.bats - what every command of rv writes where: no escape codes into a
# pipe, no colours with NO_COLOR on a terminal, JSON that obeys its schema and
# stands alone on stdout; rv from inside jobs, and beside a node that hangs:
# 2 nodes x 2 GPUs
# shellcheck disable=SC2154 # bats' run sets status, output, stderr

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
    # Only the backfill scheduler starts heterogeneous jobs.
    sed -i 's/^SchedulerParameters=.*/&,bf_interval=1/' "$SLURM_CONF"
    scontrol reconfigure
}

# a job that has ended, and one that runs, for the commands to show
two_jobs() {
    "$RV" run -f -g 1 --name ended -- true >/dev/null 2>&1
    submit -g 1 --name runs -- sleep 600
    wait_job "$job" RUNNING
}

ESC=$'\033'

# need_script - a terminal for a command; that of bsdutils, a part of Debian
need_script() {
    command -v script >/dev/null && return 0
    [[ ,${RV_REQUIRE:-}, != *,slurm,* ]] || { echo "RV_REQUIRE=slurm, but script(1) is not installed"; return 1; }
    skip "script(1) is not installed"
}

# no_codes SECONDS ARG... - rv ARG..., ended after SECONDS, has no escape codes in
# a pipe, and with NO_COLOR no colours on a terminal that knows them
no_codes() {
    local seconds=$1
    shift
    timeout -k 5 "$seconds" "$RV" "$@" </dev/null >out 2>err || true
    if grep -q "$ESC" out err; then echo "escape codes in a pipe: rv $*"; return 1; fi
    NO_COLOR=1 TERM=xterm timeout -k 5 60 script -qec "timeout $seconds $RV $*" /dev/null </dev/null >screen 2>&1 || true
    if grep -qE "$ESC\[[0-9;]*m" screen; then echo "colours in spite of NO_COLOR: rv $*"; return 1; fi
}

@test "each command: clean in a pipe, no colour with NO_COLOR on a terminal" {
    need_script
    two_jobs
    while read -r line; do
        # shellcheck disable=SC2086 # words
        no_codes 20 $line
    done <<'L'
ps
ps -a
status
cost
doctor
env list
version
help
help run
logs ended
gpu runs
sandbox status
completion bash
run --dry-run -g 1 true
run -g 9000 true
ps --nosuch
nosuch
L
    no_codes 4 gpu -w runs # a live table
}

@test "each command's --json obeys its schema and stands alone on stdout" {
    two_jobs
    while read -r line; do
        # shellcheck disable=SC2086 # words
        timeout -k 5 60 "$RV" $line --json </dev/null >"out ${line// /-}" 2>err || true
        [ -s "out ${line// /-}" ] || { echo "rv $line --json: nothing on stdout"; cat err; false; }
    done <<'L'
ps
ps -a
status
cost
doctor
env list
version
help
gpu runs
stop nosuch
ps nosuch
status nosuch
stop runs
L
    for line in 'run --dry-run --json -g 1 true' 'run --json -g 9000 true' 'run --json --nosuch true'; do
        # shellcheck disable=SC2086 # words
        "$RV" $line </dev/null >"out ${line// /-}" 2>err || true
    done
    valid out\ *
    wait_for 60 all_idle
}

@test "rv run from inside a job and from a heterogeneous job asks for what it was told" {
    cat >inner <<S
#!/bin/sh
export SLURM_RV_TEST=1 PMIX_RANK=7 OMPI_COMM_WORLD_RANK=7
"$RV" run -f -g 1 --name inner -- sh -c 'echo "\$SLURM_JOB_ID \$SLURM_NTASKS \$WORLD_SIZE \$SLURM_JOB_NUM_NODES \${SLURM_HET_SIZE:-none} \${OMPI_COMM_WORLD_RANK:-none}"' >inner.out 2>inner.err
echo \$? >inner.status
S
    chmod +x inner
    run_cmd salloc -N1 -n2 -c1 --gres=gpu:1 -t 5 srun -n1 --overlap "$PWD/inner"
    [ "$(cat inner.status)" = 0 ] || { cat inner.err; false; }
    [[ $(cat inner.out) =~ ^[0-9]+\ 1\ 1\ 1\ none\  ]]
    rm inner.status
    run_cmd salloc -N1 -n1 -c1 -t 5 : -N1 -n1 -c1 srun --het-group=0 -n1 --overlap "$PWD/inner"
    [ "$(cat inner.status)" = 0 ] || { cat inner.err; false; }
    [[ $(cat inner.out) =~ ^[0-9]+\ 1\ 1\ 1\ none\  ]]
    wait_for 60 all_idle
}

@test "rv doctor beside a node that hangs: it ends in time, and says which" {
    local t0=$SECONDS pid
    pid=$(daemon n2)
    kill -STOP "$pid"
    RVT_TIMEOUT=120 separate "$RV" doctor --nodes --json
    kill -CONT "$pid"
    [ "$(((SECONDS - t0) * 1000))" -lt "$(loaded 90000)" ]
    valid <<<"$output"
    jq -e '[.. | strings | select(test("n2"))] | length > 0' <<<"$output"
    wait_for 60 all_idle
}
