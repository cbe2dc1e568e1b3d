# SPDX-License-Identifier: Apache-2.0
# proof.bats - many rv at once, killed ones, and a slurmctld that comes and goes:
# 2 nodes x 2 GPUs
# shellcheck disable=SC2154 # bats' run sets status, output, stderr

load run

ctld_down() {
    local pid
    pid=$(daemon slurmctld)
    kill "$pid"
    wait_for 60 gone "$pid"
}

# none_submits - no sbatch of a request of this test lives
none_submits() {
    ! pgrep -f "^sbatch .*$STATE/requests/" >/dev/null
}

# ids - what Slurm has of this test's requests: "JOB FOLDER" a line
ids() {
    squeue -h -o '%i %o' | sed -n "s|^\([0-9]*\) $STATE/requests/\([^/]*\)/job.sh\$|\1 \2|p" | sort -n
}

# shown - the same as rv ps has them; fails where that fails
shown() {
    "$RV" ps --json >ps.json || return 1
    jq -r '.jobs[] | select(.request_id) | "\(.job_id) \(.request_id)"' ps.json | sort -n
}

cancel_all() {
    squeue -h -o %i | xargs -r scancel
    wait_for 60 nobody
}

nobody() {
    [ -z "$(squeue -h)" ]
}

@test "50 rv run at once: none is lost, and every file is whole" {
    for i in $(seq 50); do
        "$RV" run -g 0 --name "many$i" --slurm=--hold -- true >out.$i 2>&1 3>&- &
        pids+=($!)
    done
    for i in $(seq 0 49); do wait "${pids[i]}" || { cat "out.$((i + 1))"; false; }; done
    shown >shown
    [ "$(wc -l <shown)" = 50 ]
    diff <(ids) shown
    valid ps.json
    [ "$(jq -r '.jobs[].name' ps.json | sort -u | wc -l)" = 50 ]
    find "$STATE/requests" -name request.json -exec jq -e .id {} + >ids
    [ "$(wc -l <ids)" = 50 ]
    find "$STATE/requests" -path '*/jobs/*.json' -exec jq -e .job_id {} + >ids
    [ "$(wc -l <ids)" = 50 ]
    cancel_all
}

@test "rv run killed at any moment: its job is found, or there is none" {
    local rounds=25 took i
    [ -z "${RV_TEST_LONG:-}" ] || rounds=500
    took=${EPOCHREALTIME/./}
    "$RV" run -g 0 --name whole --slurm=--hold -- true
    took=$((${EPOCHREALTIME/./} - took))
    RANDOM=7
    for i in $(seq "$rounds"); do
        "$RV" run -g 0 --name "cut$i" --slurm=--hold -- true >/dev/null 2>&1 3>&- &
        sleep "$(printf '0.%06d' $((took * (RANDOM % 110) / 100 % 1000000)))"
        kill -9 $! 2>/dev/null || true
        wait $! 2>/dev/null || true
        "$RV" ps --json | jq -e '.jobs | length >= 1' >/dev/null
    done
    wait_for 60 none_submits
    shown >shown
    diff <(ids) shown
    valid ps.json
    # Some were killed before and some behind the submission, or this tells little.
    [ "$(wc -l <shown)" -gt 1 ]
    [ "$(wc -l <shown)" -le "$rounds" ]
    # Files that are there are whole.
    find "$STATE/requests" -path '*/jobs/*.json' -exec jq -e .job_id {} + >/dev/null
    echo "# $(wc -l <shown) of $((rounds + 1)) submitted, $(find "$STATE"/requests -path '*/jobs/*.json' | wc -l) noted, $(ls "$STATE/requests" | wc -l) folders"
    # An hour later what never became a job is gone, and nothing else.
    find "$STATE/requests" -name request.json -exec sed -i 's/"created_at": "20/"created_at": "19/' {} +
    find "$STATE/requests" -mindepth 1 -maxdepth 1 -exec touch -d '2 hours ago' {} +
    shown >/dev/null
    diff <(ids | cut -d' ' -f2 | sort) <(ls "$STATE/requests")
    # One that was found is named, and stopped, as any other.
    cut -d' ' -f1 shown | xargs "$RV" stop
    wait_for 60 nobody
}

@test "a job whose rv run was killed has run: it keeps its name, status and logs" {
    # sbatch ends after its rv run
    mkdir bin
    printf '#!/bin/sh\nid=$(%s "$@")\necho $$ >sbatch.pid\ntouch submitted\n[ ! -e slow ] || exec sleep 600\necho "$id"\n' "$(command -v sbatch)" >bin/sbatch
    chmod +x bin/sbatch
    touch slow
    PATH=$PWD/bin:$PATH "$RV" run -g 1 --name orphan -- sh -c 'echo mine; exit 3' >/dev/null 2>&1 3>&- &
    wait_for 60 test -e submitted
    kill -9 $!
    kill "$(cat sbatch.pid)"
    job=$(squeue -h -t all -n orphan -o %i)
    wait_job "$job" FAILED
    separate "$RV" ps -a --json
    valid <<<"$output"
    [ "$(jq -r '.jobs[] | select(.name == "orphan") | [.job_id, .name, .state, .exit_status, .gpus] | join(" ")' <<<"$output")" = "$job orphan FAILED 3 1" ]
    [ "$("$RV" logs orphan)" = mine ]
    # by its own files, when Slurm has forgotten it
    [ -z "$(ls "$STATE"/requests/*/jobs)" ]
    separate env SLURM_CONF=/nonexistent "$RV" logs "$job"
    [ "$output" = mine ]
}

@test "slurmctld restarted under rv ps, status and run: asked again, with a line" {
    ctld_down
    (sleep 1.5 && restart slurmctld) 3>&- &
    separate "$RV" ps
    [ "$status" = 0 ]
    [[ $stderr == "rv: slurmctld does not answer; asking again for 5 s"* ]]
    wait
    # it goes when rv run has its plan: sbatch cannot reach it
    mkdir bin
    cat >bin/sbatch <<S
#!/bin/sh
[ -e went ] || { touch went; kill -9 $(daemon slurmctld); }
exec $(command -v sbatch) "\$@"
S
    chmod +x bin/sbatch
    back() { [ -e went ] && gone "$(daemon slurmctld)"; }
    (wait_for 60 back && sleep 1 && restart slurmctld) 3>&- &
    PATH=$PWD/bin:$PATH separate "$RV" run -g 1 --name again --slurm=--hold -- true
    wait
    [ "$status" = 0 ]
    shown >shown
    diff <(ids) shown
    [ "$(wc -l <shown)" = 1 ]
    cancel_all
    # it goes when it has taken the job, before it said so: there is one job
    for words in "Socket timed out on send/recv operation" "Connection reset by peer"; do
        cat >bin/sbatch <<S
#!/bin/sh
$(command -v sbatch) "\$@" >/dev/null && touch taken
echo "sbatch: error: Batch job submission failed: $words" >&2
exit 1
S
        PATH=$PWD/bin:$PATH separate "$RV" run -g 1 --name taken --slurm=--hold -- true
        [ "$status" = 0 ]
        [ -e taken ]
        [[ $stderr == "rv: sbatch lost slurmctld; asking again until slurmctld answers" ]]
        shown >shown
        diff <(ids) shown
        [ "$(wc -l <shown)" = 1 ]
        cancel_all
        rm taken
    done
    wait_for 60 all_idle
}
