# SPDX-License-Identifier: Apache-2.0
# exec.bats - rv-exec on a cluster: variables, arguments, signals, bad ends,
# the batch step

load lib

setup_file() {
    sandbox_up --nodes 2 --cpus 8
    export PROBE=$RVT/probe RV_EXEC=$RV_BUILD/rv-exec
    ${CC:-cc} -I"$RV_SRC/launcher" -o "$PROBE" \
        "$BATS_TEST_DIRNAME/job_probe.c" -L"$RV_BUILD/.libs" -lrvjob -pthread \
        -Wl,-rpath,"$RV_BUILD/.libs"
    export MPI_PROBE=
    if command -v mpicc >/dev/null; then
        MPI_PROBE=$RVT/mpi_probe
        mpicc -o "$MPI_PROBE" "$BATS_TEST_DIRNAME/mpi_probe.c"
    fi
    # The nodes are one host: Open MPI's shared memory files would collide.
    # Every node is this machine; its other interfaces are none of ours.
    export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
}

teardown_file() {
    sandbox_down
}

each_mpi() {
    local mpi
    for mpi in pmix none; do "$@" "$mpi" || return 1; done
}

# exec_srun MPI ARG... - four ranks, two a node, with what the plugin does for
# a step without PMIx
exec_srun() {
    local mpi=$1
    shift
    SLURM_KILL_BAD_EXIT=1 run_srun -Q --mpi="$mpi" -N2 --ntasks-per-node=2 \
        "$RV_EXEC" "$@"
}

# ends STATUS PATTERN - srun's status; one line of ours in all, and it names
# rank 2 on n2 and the cause; no more than 5 s after the end of rank 2, more where
# the machine has much to do; rank 2 wrote the time into $RVT/died.
ends() {
    local now
    now=$(date +%s%N)
    [ "$status" = "$1" ] || return 1
    [ "$(grep -c 'rv\[' <<<"$output")" = 1 ] || return 1
    grep -q "^rv\[rank 2 on n2\]: .*$2" <<<"$output" || return 1
    [ ! -e "$RVT/died" ] && return
    echo "$(((now - $(cat "$RVT/died")) / 1000000)) ms after its end"
    [ $(((now - $(cat "$RVT/died")) / 1000000)) -lt "$(loaded 5000)" ]
}

@test "variables: 2 nodes x 2 tasks, exact table" {
    check() {
        exec_srun "$1" sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $RV_BOOT $RV_NCCL_TIMEOUT ${OMP_NUM_THREADS:+omp} $MASTER_ADDR ${RV_STEP#*.}'
        [ "$status" = 0 ]
        boot=${1/none/slurm}
        [ "$(sort <<<"$output")" = "0/4 0/2 0 0 $boot 600 omp 127.0.0.1 0
1/4 1/2 0 0 $boot 600 omp 127.0.0.1 0
2/4 0/2 1 1 $boot 600 omp 127.0.0.1 0
3/4 1/2 1 1 $boot 600 omp 127.0.0.1 0" ]
    }
    each_mpi check
}

@test "variables: the user's stay, another step's are replaced" {
    RANK=9 MASTER_PORT=77 run_srun -Q --mpi=none -n1 "$RV_EXEC" \
        sh -c 'echo $RANK $MASTER_PORT'
    [ "$output" = "9 77" ]
    RV_STEP=1.1 RANK=9 MASTER_PORT=77 WORLD_SIZE=8 run_srun -Q --mpi=none -n1 \
        "$RV_EXEC" sh -c 'echo $RANK $WORLD_SIZE $MASTER_PORT'
    [[ $output == "0 1 "* ]]
    [[ $output != *" 77" ]]
}

@test "variables: alone, in no job at all" {
    run_cmd "$RV_EXEC" sh -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR $RV_BOOT'
    [ "$output" = "0 1 127.0.0.1 single" ]
}

@test "variables: a launcher of its own kind gets PET_* and its CPUs shared" {
    ln -sf /usr/bin/env "$RVT/torchrun"
    CUDA_VISIBLE_DEVICES=0,1 run_srun -Q --mpi=pmix -N2 --ntasks-per-node=1 -s \
        --export=ALL "$RV_EXEC" env CUDA_VISIBLE_DEVICES=0,1 "$RV_EXEC" \
        "$RVT/torchrun"
    [ "$status" = 0 ]
    [ "$(grep '^PET_NNODES\|^PET_NODE_RANK\|^PET_NPROC' <<<"$output" |
        sort | tr '\n' ' ')" = "PET_NNODES=2 PET_NNODES=2 PET_NODE_RANK=0 PET_NODE_RANK=1 PET_NPROC_PER_NODE=2 PET_NPROC_PER_NODE=2 " ]
    [ "$(grep -c '^PET_MASTER_ADDR=127.0.0.1$' <<<"$output")" = 2 ]
    [ "$(grep '^PET_MASTER_PORT=' <<<"$output" | sort -u | wc -l)" = 1 ]
}

@test "say how: -v names the boot and why others were passed over" {
    run_srun -Q --mpi=none -N2 -n2 "$RV_EXEC" -v true
    [ "$(grep -c '^rv\[rank 0 on n1\]: boot slurm, 2 ranks on 2 nodes; pmix: no PMIx in this step' <<<"$output")" = 1 ]
    run_srun -Q --mpi=none -N2 -n2 "$RV_EXEC" true
    [ "$output" = "" ]
}

@test "MASTER_PORT: the program of rank 0 listens there, the others reach it" {
    check() {
        exec_srun "$1" "$PROBE" master
        [ "$status" = 0 ]
        [ "$output" = "met 6" ]
    }
    each_mpi check
}

@test "MASTER_PORT: two steps on the same nodes do not meet" {
    run_cmd bash -c 'for i in 1 2 3; do
        srun -Q -s -N2 --ntasks-per-node=2 "$RV_EXEC" "$PROBE" master & done; wait'
    [ "$output" = "met 6
met 6
met 6" ]
}

@test "the program joins the job anew, by the same boot" {
    check() {
        exec_srun "$1" "$PROBE" values
        [ "$status" = 0 ]
        [ "$(grep -c '^values ok$' <<<"$output")" = 4 ]
        exec_srun "$1" "$PROBE" facts
        [ "$(grep -c "size=4 .*boot=${1/none/slurm} " <<<"$output")" = 4 ]
    }
    each_mpi check
}

@test "an MPI program works as second PMIx client (open-mpi/ompi#6095)" {
    [ -n "$MPI_PROBE" ] || skip "mpicc is not installed"
    exec_srun pmix "$MPI_PROBE" hello
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "rank 0 of 4 sum 6
rank 1 of 4 sum 6
rank 2 of 4 sum 6
rank 3 of 4 sum 6" ]
}

@test "arguments arrive byte for byte" {
    args=('' 'a b' "it's" '"q"' $'two\nlines\n' '$(id)' '`id`' '*' '\' 'ü…☃'
        $'\x01\xff' '--' '-v' ' ')
    want=$("$PROBE" argv "${args[@]}")
    run_srun -Q -N2 --ntasks-per-node=2 "$RV_EXEC" "$PROBE" argv "${args[@]}"
    [ "$status" = 0 ]
    [ "$output" = "$want
$want
$want
$want" ]
    run_cmd "$RV_EXEC" -- "$PROBE" argv "${args[@]}"
    [ "$output" = "$want" ]
}

@test "rank 2 ends with exit status 7" {
    check() {
        exec_srun "$1" sh -c \
            '[ $RANK = 2 ] || exec sleep 60; date +%s%N >$RVT/died; exit 7'
        ends 7 "exit status 7"
    }
    each_mpi check
}

@test "the block under bare srun: last words, who was well, advice, once" {
    check() {
        CUDA_VISIBLE_DEVICES=5,6 exec_srun "$1" sh -c '[ $RANK = 3 ] || exec sleep 60
            echo first >&2; echo "ModuleNotFoundError: No module named x" >&2; exit 1'
        [ "$status" = 1 ]
        [ "$(grep -c '^rv\[' <<<"$output")" = 1 ]
        grep -qE '^rv:   after [0-9.]+ s, on device 6$' <<<"$output"
        [ "$(grep '^rv: ' <<<"$output" | tail -n +2)" = "rv:   still well: 0-2
rv:   last lines of its stderr:
rv:   | first
rv:   | ModuleNotFoundError: No module named x
rv:   advice: activate the environment before submission, or name its python by a path that the nodes see" ]
        # The program's own words passed through, too.
        [ "$(grep -c '^first$' <<<"$output")" = 1 ]
    }
    each_mpi check
}

@test "kill -9 of the rv-exec of rank 2 under bare srun ends the step" {
    check() {
        rm -f "$RVT/pid" "$RVT/died"
        (
            wait_for 30 test -s "$RVT/pid"
            date +%s%N >"$RVT/died"
            kill -9 "$(cat "$RVT/pid")"
        ) 3>&- &
        exec_srun "$1" sh -c '[ $RANK = 2 ] && { echo $PPID >$RVT/pid.new; mv $RVT/pid.new $RVT/pid; }; exec sleep 60'
        now=$(date +%s%N)
        wait
        [ "$status" = 137 ]
        [ $(((now - $(cat "$RVT/died")) / 1000000)) -lt "$(loaded 5000)" ]
    }
    each_mpi check
}

@test "rank 2 dies of SEGV" {
    check() {
        exec_srun "$1" sh -c \
            '[ $RANK = 2 ] || exec sleep 60; date +%s%N >$RVT/died; kill -SEGV $$'
        ends 139 "signal 11 (SEGV)"
    }
    each_mpi check
}

@test "kill -9 of the child of rank 2, its peers fail because of it" {
    check() {
        rm -f "$RVT/pid" "$RVT/died"
        (
            wait_for 30 test -s "$RVT/pid"
            date +%s%N >"$RVT/died"
            kill -9 "$(cat "$RVT/pid")"
        ) &
        # The others look every 20 ms whether rank 2 is there, and give up.
        exec_srun "$1" sh -c 'if [ $RANK = 2 ]; then echo $$ >$RVT/pid.new; mv $RVT/pid.new $RVT/pid; exec sleep 60; fi
            until [ -s $RVT/pid ]; do sleep 0.02; done
            while kill -0 $(cat $RVT/pid) 2>/dev/null; do sleep 0.02; done
            exit 4'
        wait
        ends 137 "signal 9 (KILL)"
    }
    each_mpi check
}

@test "rank 2 of an MPI program ends badly, without MPI_Finalize" {
    [ -n "$MPI_PROBE" ] || skip "mpicc is not installed"
    rm -f "$RVT/died"
    exec_srun pmix "$MPI_PROBE" exit 2 7
    # Open MPI 5 ends the step by itself within milliseconds, with a status of
    # its own, and rv-exec with it; the batch step knows the cause all the same.
    if ompi_aborts; then
        [ "$status" = 14 ]
        return
    fi
    ends 7 "exit status 7"
    exec_srun pmix "$MPI_PROBE" signal 2 9
    ends 137 "signal 9 (KILL)"
    exec_srun pmix "$MPI_PROBE" signal 2 11
    ends 139 "signal 11 (SEGV)"
}

ompi_aborts() { [[ $(mpirun --version) != *" 4."* ]]; }

@test "what cannot be run: 127 and 126, said once" {
    check() {
        exec_srun "$1" /no/such/program
        [ "$status" = 127 ]
        [ "$(grep -c "rv\[.*cannot run '/no/such/program'" <<<"$output")" = 1 ]
        exec_srun "$1" /tmp
        [ "$status" = 126 ]
        [ "$(grep -c "rv\[.*cannot run '/tmp'" <<<"$output")" = 1 ]
    }
    each_mpi check
}

@test "signals reach the program once" {
    cat >"$RVT/count.sh" <<'X'
n=0
trap 'n=$((n+1))' USR1
: >$RVT/up.$SLURM_PROCID
until [ -e $RVT/stop ]; do sleep 0.05; done
echo "got $n"
X
    rm -f "$RVT"/up.* "$RVT/stop"
    (
        wait_for 30 test -e "$RVT/up.0" -a -e "$RVT/up.1"
        id=$(squeue -h -o %i -n count)
        scancel --signal=USR1 "$id"
        sleep 0.5
        scancel --signal=USR1 "$id"
        sleep 0.5
        : >"$RVT/stop"
    ) &
    run_srun -Q -J count -N2 --ntasks-per-node=1 "$RV_EXEC" sh "$RVT/count.sh"
    wait
    [ "$status" = 0 ]
    # (sleep, which has no trap, dies of it and the shell says so)
    [ "$(grep '^got' <<<"$output")" = "got 2
got 2" ]
}

@test "scancel of a step: nobody is blamed" {
    check() {
        rm -f "$RVT"/up.*
        (
            wait_for 30 test -e "$RVT/up.0" -a -e "$RVT/up.3"
            scancel -n told
        ) &
        exec_srun "$1" sh -c ': >$RVT/up.$RANK; exec sleep 60'
        wait
        [ "$status" != 0 ] || [ "$1" = none ]
        ! grep -q 'rv\[' <<<"$output"
    }
    SLURM_JOB_NAME=told each_mpi check
}

@test "usage errors are one line and 125" {
    for args in "" "--nonsense x" "--task" "--batch a b"; do
        # shellcheck disable=SC2086
        run_cmd "$RV_EXEC" $args
        [ "$status" = 125 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output == "rv: cannot run rv-exec: "* ]]
    done
    run_cmd "$RV_EXEC" --task /no/such
    [ "$status" = 125 ]
    [[ $output == "rv: cannot read the request: "* ]]
    run_cmd "$RV_EXEC" --version
    [[ $output == "rv-exec "* ]]
}

# request NAME SCRIPT - a folder as rv leaves it; REQ
request() {
    REQ=$RVT/$1
    mkdir -p "$REQ/logs"
    cat >"$REQ/request.json" <<X
{"schema":"rv.request/1","id":"$1","name":"n%t $1","created_at":"","cwd":"/",
 "gpus":0,"gpu_type":null,"nodes":2,"tasks_per_node":2,"tasks":4,
 "cpus_per_task":1,"mem_bytes":null,"time_s":60,"launch":"per_gpu",
 "nccl_timeout_s":null,"log_dir":"$REQ/logs","srun_options":[]}
X
    printf '%s\0' sh -c "$2" 'a b' '' $'x\ny' >"$REQ/argv"
    printf '#!/bin/sh\nexec "%s" --batch "%s"\n' "$RV_EXEC" "$REQ" >"$REQ/job.sh"
}

submit() {
    JOB=$(sbatch --parsable -J "${1:-b}" -N2 --ntasks-per-node=2 \
        -o "$REQ/batch.out" -e "$REQ/batch.err" "$REQ/job.sh")
}

is_done() { grep -q '"state":"done"' "$REQ/status.json"; }

# field FILE EXPRESSION over j
field() {
    /usr/bin/python3 -c 'import json,sys; j=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

@test "batch: logs a rank, reports, status" {
    request good 'echo "out $RANK$1"; echo "err $RANK" >&2'
    submit
    wait_for 60 is_done
    wait_job "$JOB" COMPLETED
    [ "$(field "$REQ/status.json" '[j[k] for k in ("schema","job_id","restart","exit_status","signal","first_cause","message")]')" = "['rv.status/1', $JOB, 0, 0, None, None, None]" ]
    for r in 0 1 2 3; do
        [ "$(cat "$REQ/logs/n%t good-$JOB.r$r.out")" = "out $r" ]
        [ "$(cat "$REQ/logs/n%t good-$JOB.r$r.err")" = "err $r" ]
        [ "$(field "$REQ/rank-$r.json" '[j[k] for k in ("rank","node","exit_status","stderr_tail")]')" = "[$r, 'n$((r / 2 + 1))', 0, ['err $r']]" ]
    done
}

@test "batch: a rank that fails is the first cause, and its status the job's" {
    request seven '[ $RANK = 2 ] || exec sleep 60; echo "bo\"om" >&2; exit 7'
    submit
    wait_for 60 is_done
    wait_job "$JOB" FAILED
    [ "$(field "$REQ/status.json" '[j["exit_status"],j["signal"],j["message"],j["first_cause"]["rank"],j["first_cause"]["stderr_tail"]]')" = "[7, None, 'rank 2 on n2 ended with exit status 7', 2, ['bo\"om']]" ]
    scontrol show job "$JOB" | grep -q 'ExitCode=7:0'
    [ "$(field "$REQ/failure.json" '[j[k] for k in ("message","kind","rank","node","exit_status","well","failed","silent","stderr_tail")]')" = "['rank 2 on n2 ended with exit status 7', None, 2, 'n2', 7, [0, 1, 3], [], [], ['bo\"om']]" ]
    [ "$(field "$REQ/failure.json" '0 <= j["after_s"] < 30')" = True ]
    grep -q '^rv:   still well: 0-1,3$' "$REQ/batch.err"
    # Said once, by the batch step.
    [ "$(cat "$REQ"/logs/*.err "$REQ"/batch.err | grep -E '^rv(: [^ ]|\[)')" = "rv: rank 2 on n2 ended with exit status 7: bo\"om" ]

    request kill '[ $RANK = 2 ] || exec sleep 60; kill -9 $$'
    submit
    wait_for 60 is_done
    [ "$(field "$REQ/status.json" '[j["exit_status"],j["signal"],j["first_cause"]["signal_name"]]')" = "[137, 9, 'KILL']" ]
}

# ended - how the batch step says it ended; a test that fails shows what the ranks said
ended() {
    field "$REQ/status.json" '[j["exit_status"],j["message"]]' | tee /dev/stderr
    cat "$REQ"/rank-*.json "$REQ/batch.err" >&2
}

# mpi_ends NAME HOW N - rank 2 of an MPI program does; again where it did not come
# to that: on a busy machine Open MPI 5 has crashed before
mpi_ends() {
    local try
    for try in 1 2 3; do
        request "$1$try" "exec $MPI_PROBE $2 2 $3"
        submit
        wait_for 60 is_done
        ! grep -qx ends "$REQ"/logs/*"-$JOB.r2.out" || return 0
    done
    ended
    false
}

@test "batch: rank 2 of an MPI program that ends badly is named" {
    [ -n "$MPI_PROBE" ] || skip "mpicc is not installed"
    mpi_ends mpi7 exit 7
    [ "$(ended)" = "[7, 'rank 2 on n2 ended with exit status 7']" ]
    mpi_ends mpi11 signal 11
    [ "$(ended)" = "[139, 'rank 2 on n2 was killed by signal 11 (SEGV)']" ]
}

@test "batch: scancel ends it cleanly" {
    request told ': >$RVT/running.$RANK; exec sleep 60'
    submit
    wait_for 60 test -e "$RVT/running.0" -a -e "$RVT/running.3"
    scancel "$JOB"
    wait_for 30 is_done
    [ "$(field "$REQ/status.json" '[j["exit_status"],j["signal"],j["first_cause"]]')" = "[143, 15, None]" ]
    ! cat "$REQ"/logs/*.err "$REQ"/batch.err | grep -E '^rv(:|\[)'
}

@test "batch: a rank whose rv-exec is killed is named, and its status is 137" {
    request silent 'echo $PPID >$RVT/parent.$RANK.new
        mv $RVT/parent.$RANK.new $RVT/parent.$RANK; exec sleep 60'
    submit
    wait_for 60 test -e "$RVT/parent.0" -a -e "$RVT/parent.1" \
        -a -e "$RVT/parent.2" -a -e "$RVT/parent.3"
    kill -9 "$(cat "$RVT/parent.2")"
    wait_for 30 is_done
    [ "$(field "$REQ/status.json" '[j["exit_status"],j["first_cause"],j["message"][:24]]')" = "[137, None, 'rank 2 on n2 left no rep']" ]
    [ "$(field "$REQ/failure.json" '[j[k] for k in ("rank","node","exit_status","well","failed","silent")]')" = "[2, 'n2', None, [0, 1, 3], [], []]" ]
    grep -q '^srun: error: n2: task 2: Killed' "$REQ/batch.err"
}

@test "batch: tasks that cannot start are said so, 125" {
    request none 'true'
    sed -i 's/"srun_options":\[\]/"srun_options":["--nodelist=n9"]/' "$REQ/request.json"
    submit
    wait_for 60 is_done
    [ "$(field "$REQ/status.json" '[j["exit_status"],j["message"][:16]]')" = "[125, 'no rank started:']" ]
}
