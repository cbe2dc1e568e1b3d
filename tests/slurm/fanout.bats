# SPDX-License-Identifier: Apache-2.0
# fanout.bats - several jobs of one request on a real cluster: two partitions of
# a node each, whose limits differ, so that no job can say both
# shellcheck disable=SC2016 # programs of tasks stand in single quotes

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
    [ -z "${RVT_SKIP:-}" ] || return 0
    scontrol create partition=p1 nodes=n1 state=up maxtime=60
    scontrol create partition=p2 nodes=n2 state=up maxtime=UNLIMITED
    # A site that says where its requests are; else a job must have run before.
    export XDG_CONFIG_HOME=$RVT/config
    mkdir -p "$XDG_CONFIG_HOME/rv"
}

setup() {
    skip_without_slurm
    STATE=$RVT/requests.$BATS_TEST_NUMBER
    printf '[defaults]\nstate_dir = %s\npartition = p1,p2\nfanout = on\n' "$STATE" >"$XDG_CONFIG_HOME/rv/rv.conf"
    cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
    [ -z "${RVT_SKIP:-}" ] || return 0
    "$RV" stop -a >/dev/null 2>&1 || true
    scancel -u "$(id -u)" || true
    wait_for 60 all_idle
}

# gates - both nodes are taken, n1 for half an hour, n2 for one; sets g1, g2
gates() {
    g1=$(sbatch --parsable -w n1 -p p1 --exclusive -t 30 -o /dev/null --wrap 'sleep 900')
    g2=$(sbatch --parsable -w n2 -p p2 --exclusive -t 60 -o /dev/null --wrap 'sleep 900')
    wait_job "$g1" RUNNING
    wait_job "$g2" RUNNING
}

# jobs_of - sets jobs, the ids that the only request has noted, and request
jobs_of() {
    request=$(echo "$STATE"/requests/*)
    mapfile -t jobs < <(cd "$request/jobs" && printf '%s\n' *.json | sed 's/\.json$//' | sort -n)
}

is_over() {
    [[ $(job_state "$1") == C[AO]* ]]
}

done_with() {
    [ "$(jq -r 'select(.state == "done") | .exit_status' "$request/status.json" 2>/dev/null)" = "$1" ]
}

@test "the second starts first: it alone runs, and the other is cancelled" {
    gates
    submit -g 1 --name two -- sh -c 'echo ran on $(hostname) $SLURMD_NODENAME >>ran'
    jobs_of
    [ "${#jobs[@]}" = 2 ]
    scancel "$g2"
    wait_for 60 done_with 0
    wait_for 30 is_over "${jobs[0]}"
    job_is "${jobs[0]}" CANCELLED
    scontrol show job "${jobs[0]}" | grep -q "Comment=job ${jobs[1]} of this request runs the command"
    [ "$(wc -l <ran)" = 1 ]
    grep -q ' n2$' ran
}
