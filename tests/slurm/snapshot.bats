# SPDX-License-Identifier: Apache-2.0
# snapshot.bats - rv run --snapshot and --output, on a private Slurm of 2 nodes
# x 2 GPUs: jobs are held, the working tree is changed, and they are let go
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 8
    [ -z "${RVT_SKIP:-}" ] || return 0
    cat >>"$SANDBOX/slurm.conf" <<'C'
KillWait=15
C
    scontrol reconfigure
}

# A working tree with a submodule's place in it, and work/ as the current folder.
setup() {
    skip_without_slurm
    export XDG_STATE_HOME=$BATS_TEST_TMPDIR/state GIT_CONFIG_GLOBAL=/dev/null
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
    STATE=$XDG_STATE_HOME/rv
    TREE="$BATS_TEST_TMPDIR/my tree"
    git init -q "$TREE"
    mkdir "$TREE/work" "$TREE/lib"
    cd "$TREE/work" || return 1
    printf 'cat ../lib/value data\n' >run.sh
    chmod +x run.sh
    echo one >data
    echo one >../lib/value
    git add -A ..
    git commit -qm x
}

# let_go JOB... - of what was submitted with --slurm=--hold
let_go() {
    local j
    for j; do scontrol release "$j"; done
}

snapshot_of() {
    printf '%s' "$STATE"/requests/*/snapshot
}

out_of() {
    cat "$STATE"/logs/*-"$1".r*.out
}

@test "what is edited while the job waits does not change it, on all nodes" {
    echo two >data # not committed, and it counts
    submit -g 4 --nodes 2 --snapshot --slurm=--hold -- sh -c './run.sh; pwd; echo $PWD'
    held=$job
    valid "$STATE"/requests/*/request.json
    echo in-place >>data
    sed -i s/one/three/ ../lib/value
    printf 'echo wrong\n' >run.sh
    mv ../lib ../lib2
    let_go "$held"
    wait_job "$held" COMPLETED
    here=$(snapshot_of)/work
    [ "$(out_of "$held" | sort)" = "$(for _ in 1 2 3 4; do printf '%s\n' one two "$here" "$here"; done | sort)" ]
    # The edits stand, and nothing came back unasked.
    [ "$(cat data)" = "two
in-place" ]
    [ "$(git status --porcelain .. | wc -l)" = 4 ]
    jq -e '.snapshot.cwd == "work" and .snapshot.files == 3 and (.snapshot.commit | length) == 40
        and .outputs == []' "$STATE"/requests/*/request.json
}

@test "what is left out is told, and what cannot be is refused before submission" {
    echo x >new.txt
    echo '*.o' >../.gitignore
    touch a.o
    separate "$RV" run --dry-run --json --snapshot --output=a,b/c* -- sh new.txt "$TREE/work/run.sh"
    [ "$status" = 0 ]
    valid <<<"$output"
    jq -e '.snapshot.dir == null and .snapshot.untracked == 2 and .outputs == ["a", "b/c*"]' <<<"$output"
    [[ $stderr == *"leaves out 2 files"* ]]
    [[ $stderr == *"'new.txt' is not in the snapshot"* ]]
    [[ $stderr == *"run.sh' names the working tree itself"* ]]
    separate "$RV" run --dry-run --snapshot --output=a true
    [[ $output == *"snapshot   3 files "*"untracked stay out"*"output     a"* ]]
    separate "$RV" run --snapshot -- ./new.txt
    [ "$status" = 5 ]
    [[ $stderr == *"'./new.txt' is not among the files that git tracks"*"git add"* ]]
    separate "$RV" run --output=a true
    [ "$status" = 2 ]
    [[ $stderr == *"add --snapshot"* ]]
    separate "$RV" run --snapshot --output=../a true
    [ "$status" = 2 ]
    [[ $stderr == *"leads out of the working folder"* ]]
    separate "$RV" run --snapshot --slurm=--chdir=/ true
    [ "$status" = 2 ]
    separate "$RV" up --snapshot
    [ "$status" = 2 ]
    cd "$BATS_TEST_TMPDIR"
    GIT_CEILING_DIRECTORIES=/ separate "$RV" run --snapshot --json true
    [ "$status" = 5 ]
    valid <<<"$output"
    [[ $output == *"not a git repository"*"without --snapshot"* ]]
    [ ! -e "$STATE" ]
}

@test "results come back, whole and after a bad end too; what was changed here stays" {
    submit --snapshot --slurm=--hold --output=res,*.csv --output=data,none -- sh -c '
        mkdir -p res/deep; echo r >res/deep/r; ln -s r res/deep/l; echo csv >a.csv
        echo csv >b.csv; echo job >data; echo n >not-asked; exit 3'
    a=$job
    echo mine >b.csv
    let_go "$a"
    wait_job "$a" FAILED
    wait_for 30 all_idle
    [ "$(cat res/deep/r) $(readlink res/deep/l) $(cat a.csv) $(cat data)" = "r r csv job" ]
    [ "$(cat b.csv) $(cat "b.csv.rv-$a")" = "mine csv" ]
    [ ! -e not-asked ]
    [ -z "$(find . -name '*.tmp')" ]
    log=$(cat "$STATE"/logs/*-"$a".batch.err)
    [[ $log == *"b.csv: it was changed since the submission"* ]]
    [[ $log == *"none: the job left nothing of that name"* ]]
    # A folder that has gone, or is a link, is no way to anywhere else.
    rm -rf res
    mkdir "$BATS_TEST_TMPDIR/away"
    ln -s "$BATS_TEST_TMPDIR/away" res
    separate "$RV" run -f --snapshot --output=. -- sh -c 'mkdir res; echo x >res/x; echo y >y'
    [ "$status" = 0 ]
    [ "$(cat y)" = y ]
    [ -z "$(ls "$BATS_TEST_TMPDIR/away")" ]
    [[ $stderr == *"res/x: a folder on its way is a link"* ]]
    [[ $stderr == *"not all results were brought back; the others are in "* ]]
    submit --snapshot --slurm=--hold --output=. -- sh -c 'echo z >z; exit 4'
    rm res
    cd "$BATS_TEST_TMPDIR"
    mv "$TREE" elsewhere
    let_go "$job"
    wait_job "$job" FAILED
    wait_for 30 all_idle
    grep -q "cannot bring results back: $TREE/work: No such file" "$STATE"/logs/*-"$job".batch.err
    [ "$(cat "$STATE"/requests/*/snapshot/work/z)" = z ]
    jq -e '.exit_status == 4' "$STATE"/requests/"$(basename "$(dirname "$(grep -l "\"job_id\":$job," "$STATE"/requests/*/status.json)")")"/status.json
}

@test "tasks of an array and segments of a job share one copy; each end brings" {
    submit --snapshot --array=0-1 --slurm=--hold --output=t* -- sh -c 'cat data; echo x >t$SLURM_ARRAY_TASK_ID'
    echo edited >data
    let_go "$job"
    wait_for 60 test -s t0
    wait_for 60 test -s t1
    wait_for 60 all_idle
    [ "$(cat "$STATE"/logs/*.r0.out)" = "one
one" ]
    # A gone copy is no reason to run anywhere else.
    submit --snapshot --slurm=--hold -- sh -c 'pwd >"$RV_OUTPUT_DIR/ran"'
    rm -rf "$STATE"/requests/*/snapshot
    let_go "$job"
    wait_job "$job" FAILED
    grep -q "cannot enter the snapshot" "$STATE"/logs/*-"$job".batch.err
    [ -z "$(ls "$STATE"/outputs/*-"$job")" ]
    # Put back, it finds what it left, and what is here is its own to replace.
    git checkout -q data
    submit --snapshot --checkpoint=USR1@31 --time 2m --output=count --name seg -- sh -c '
        trap "exit 75" USR1
        echo x >>count; cat data
        [ "$RV_SEGMENT" = 0 ] || exit 0
        echo up; while :; do sleep 0.1; done'
    echo edited >data
    wait_for 30 grep -q up "$STATE/logs/seg-$job.r0.out"
    scancel --batch --signal=USR1 "$job"
    wait_for 30 test -s count
    [ "$(cat count)" = x ]
    wait_for 30 grep -ql '"state": *"waiting"' "$STATE"/requests/*/status.json
    wait_for 30 all_idle
    wait_job "$job" PENDING
    sleep 1 # Slurm refuses a start within the second of the end
    scontrol update jobid="$job" starttime=now
    wait_job "$job" COMPLETED
    wait_for 30 all_idle
    [ "$(cat count)" = "x
x" ]
    [ "$(cat "$STATE/logs/seg-$job.r0.out")" = "one
up
one" ]
}
