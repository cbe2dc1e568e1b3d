# SPDX-License-Identifier: Apache-2.0
# job.bats - librvjob on a cluster: who am I, values, deadlines, abort

load lib

setup_file() {
    sandbox_up --nodes 2 --cpus 8
    ${CC:-cc} -I"$RV_SRC/launcher" -o "$RVT/probe" \
        "$BATS_TEST_DIRNAME/job_probe.c" -L"$RV_BUILD/.libs" -lrvjob -pthread \
        -Wl,-rpath,"$RV_BUILD/.libs"
    export PROBE=$RVT/probe
}

teardown_file() {
    sandbox_down
}

# table BOOT TASKS...: what "facts" prints, TASKS of each node in block order
table() {
    local boot=$1 rank=0 node=0 size=0 n i
    shift
    for n; do size=$((size + n)); done
    for n; do
        for ((i = 0; i < n; i++)); do
            echo "rank=$rank size=$size local=$i/$n node=$node/$# boot=$boot timeout=600000"
            rank=$((rank + 1))
        done
        node=$((node + 1))
    done
}

boot_of() {
    case $1 in pmix) echo pmix ;; none) echo slurm ;; esac
}

# each_mpi FUNCTION: with PMIx and without
each_mpi() {
    local mpi
    for mpi in pmix none; do "$1" "$mpi" || return 1; done
}

@test "facts: 2 nodes x 3 tasks, exact table" {
    check() {
        run_srun -Q --mpi="$1" -N2 --ntasks-per-node=3 "$PROBE" facts
        [ "$status" = 0 ]
        [ "$(sort <<<"$output")" = "$(table "$(boot_of "$1")" 3 3)" ]
    }
    each_mpi check
}

@test "facts: uneven split 3+1, exact table" {
    check() {
        run_srun -Q --mpi="$1" -N2 -n4 -m plane=3 "$PROBE" facts
        [ "$status" = 0 ]
        [ "$(sort <<<"$output")" = "$(table "$(boot_of "$1")" 3 1)" ]
    }
    each_mpi check
}

@test "facts: cyclic placement, ranks alternate between the nodes" {
    check() {
        run_srun -Q --mpi="$1" -N2 --ntasks-per-node=2 -m cyclic "$PROBE" facts
        [ "$status" = 0 ]
        [ "$(sed -n 's/rank=\(.\) .*node=\(.\).*/\1\2/p' <<<"$output" |
            sort | tr '\n' ' ')" = "00 11 20 31 " ]
    }
    each_mpi check
}

@test "facts: a task alone, a batch script, no job at all" {
    run_srun -Q --mpi=none -n1 "$PROBE" facts
    [ "$output" = "$(table slurm 1)" ]
    run_cmd "$PROBE" facts
    [ "$output" = "$(table single 1)" ]
    # SLURM_PROCID is set in a batch script, SLURM_NTASKS is 4: still alone
    run_cmd sbatch -W -N2 -n4 -o "$RVT/b.out" --wrap "$PROBE facts"
    [ "$status" = 0 ]
    [ "$(cat "$RVT/b.out")" = "$(table single 1)" ]
}

@test "facts: a boot that is asked for and cannot serve is an error" {
    RV_BOOT=pmix run_srun -Q --mpi=none -n1 "$PROBE" facts
    [ "$status" = 1 ]
    [[ $output == *"boot 'pmix' cannot serve: no PMIx in this step"* ]]
    # left over from another step it asks for nothing
    RV_BOOT=pmix RV_STEP=1.1 run_srun -Q --mpi=none -n1 "$PROBE" facts
    [ "$output" = "$(table slurm 1)" ]
}

@test "values: every rank reads every rank's, new ones replace old ones" {
    check() {
        run_srun -Q --mpi="$1" -N2 -n5 "$PROBE" values
        [ "$status" = 0 ]
        [ "$(sort <<<"$output" | uniq -c | tr -s ' ')" = " 5 values ok" ]
    }
    each_mpi check
}

@test "values: somebody sits on the first two ports and keeps silent" {
    cat >"$RVT/squat.sh" <<'X'
p=$((20000 + (31 * SLURM_JOB_ID + SLURM_STEP_ID) % 12000))
q=$((20000 + (31 * SLURM_JOB_ID + SLURM_STEP_ID + 997) % 12000))
if [ "$SLURM_PROCID" = 0 ]; then
    "$PROBE" squat $p "$RVT/sq1" & a=$!
    "$PROBE" squat $q "$RVT/sq2" & b=$!
fi
until [ -e "$RVT/sq1" ] && [ -e "$RVT/sq2" ]; do sleep 0.05; done
"$PROBE" values
s=$?
[ -z "${a:-}" ] || kill $a $b
exit $s
X
    run_srun -Q --mpi=none -N2 -n4 sh "$RVT/squat.sh"
    [ "$status" = 0 ]
    [ "$(grep -c '^values ok$' <<<"$output")" = 4 ]
}

@test "values: two jobs on the same nodes do not meet" {
    run_cmd bash -c 'for i in 1 2; do
        srun -Q --mpi=none -s -N2 -n4 "$PROBE" values & done; wait'
    [ "$(grep -c '^values ok$' <<<"$output")" = 8 ]
}

@test "deadline: a rank late at the fence makes ETIMEDOUT, with PMIx too" {
    local t0=$SECONDS without
    # Meanwhile the other way.
    srun -Q --mpi=none -N2 -n4 "$PROBE" late 3 12000 5000 \
        </dev/null >"$RVT/late" 2>&1 3>&- &
    without=$!
    run_srun -Q --mpi=pmix -N2 -n4 "$PROBE" late 3 4000 1000
    for r in 0 1 2; do
        grep -q "^rank $r: 11 PMIx_Fence: not all 4 ranks came" <<<"$output"
    done
    [ $(((SECONDS - t0) * 1000)) -lt "$(loaded 30000)" ]
    wait "$without" || true
    cat "$RVT/late"
    grep -q "^rank 0: 11 1 of 4 ranks did not come in time: 3" "$RVT/late"
    grep -q "^rank 1: 11 rank 0 says: 1 of 4 ranks" "$RVT/late"
}

@test "deadline: a rank that left is named without PMIx" {
    run_srun -Q --mpi=none -N2 -n4 "$PROBE" leave 2
    [ "$status" = 0 ]
    grep -q "^rank 0: 9 rank 2 left" <<<"$output"
    grep -q "^rank 3: 9 rank 0 says: rank 2 left" <<<"$output"
}

@test "abort: the step ends with the rank's status, its text appears once" {
    run_srun -Q --mpi=pmix -N2 --ntasks-per-node=2 "$PROBE" abort 2 9
    [ "$status" = 9 ]
    [ "$(grep -c 'rv\[rank 2 on n2\]: on purpose' <<<"$output")" = 1 ]
}

@test "barrier: nobody leaves before the last has come" {
    check() {
        run_srun -Q --mpi="$1" -N2 -n4 "$PROBE" barrier
        [ "$status" = 0 ]
        [ "$(sort <<<"$output" | uniq -c | tr -s ' ')" = " 4 barrier ok" ]
    }
    each_mpi check
    run_cmd "$PROBE" barrier
    [ "$output" = "barrier ok" ]
}

@test "from a thread other than the first" {
    check() {
        run_srun -Q --mpi="$1" -N2 -n4 "$PROBE" thread
        [ "$status" = 0 ]
        [ "$(grep -c '^values ok$' <<<"$output")" = 4 ]
    }
    each_mpi check
}

@test "under mpirun: facts, values, barrier, abort" {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    run=(mpirun --allow-run-as-root --oversubscribe -n 3)
    run_cmd "${run[@]}" "$PROBE" facts
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "$(table pmix 3)" ]
    run_cmd "${run[@]}" "$PROBE" values
    [ "$(grep -c '^values ok$' <<<"$output")" = 3 ]
    run_cmd "${run[@]}" "$PROBE" barrier
    [ "$(grep -c '^barrier ok$' <<<"$output")" = 3 ]
    run_cmd "${run[@]}" "$PROBE" abort 2 9
    [ "$status" = 9 ]
    grep -q '^rv\[rank 2 on .*\]: on purpose' <<<"$output"
    # and rv-exec, whose program joins anew
    run_cmd "${run[@]}" "$RV_BUILD/rv-exec" sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $RV_BOOT $MASTER_ADDR'
    [ "$(sort <<<"$output")" = "0/3 0 pmix 127.0.0.1
1/3 1 pmix 127.0.0.1
2/3 2 pmix 127.0.0.1" ]
    run_cmd "${run[@]}" "$RV_BUILD/rv-exec" "$PROBE" values
    [ "$(grep -c '^values ok$' <<<"$output")" = 3 ]
}

@test "no PMIx: plain, pmi2, and the note that says so (NVIDIA-NeMo/NeMo#14829)" {
    for mpi in none pmi2; do
        run_srun -Q --mpi=$mpi -N2 -n4 "$RV_BUILD/rv-exec" -v "$PROBE" values
        [ "$status" = 0 ]
        [ "$(grep -c '^values ok$' <<<"$output")" = 4 ]
        grep -q '^rv\[rank 0 on n1\]: boot slurm, 4 ranks on 2 nodes; pmix: no PMIx in this step' <<<"$output"
    done
}

@test "a PMIx that hangs in init: another boot within 10 s (openpmix/openpmix#3645, open-mpi/ompi#6095)" {
    mkdir -p "$RVT/hang"
    ${CC:-cc} -shared -fPIC -o "$RVT/hang/libpmix.so.2" \
        "$BATS_TEST_DIRNAME/pmix_hang.c"
    run_srun -Q --mpi=pmix -N2 -n4 sh -c 'a=$(date +%s%N)
        LD_LIBRARY_PATH=$RVT/hang "$RV_BUILD/rv-exec" -v sh -c "
            echo \$((\$(date +%s%N) / 1000000 - $a / 1000000)) \$RV_BOOT"'
    [ "$status" = 0 ]
    grep -q '; pmix: PMIx_Init: the server did not answer in time$' <<<"$output"
    [ "$(grep -c ' slurm$' <<<"$output")" = 4 ]
    for ms in $(sed -n 's/ slurm$//p' <<<"$output"); do [ "$ms" -lt "$(loaded 10000)" ]; done
    # asked for by name it is an error
    run_srun -Q --mpi=pmix -n1 sh -c \
        'LD_LIBRARY_PATH=$RVT/hang RV_BOOT=pmix exec "$PROBE" facts'
    [ "$status" = 1 ]
    [[ $output == *": 11 boot 'pmix' cannot serve: PMIx_Init: the server did not answer in time"* ]]
}

@test "a container without PMIx's security plugin, or with no PMIx: another boot (openpmix/openpmix#3839)" {
    for way in PMIX_MCA_psec=munge LD_LIBRARY_PATH="$RVT/empty"; do
        mkdir -p "$RVT/empty"
        : >"$RVT/empty/libpmix.so.2"
        run_srun -Q --mpi=pmix -N2 -n4 env "$way" MUNGE_SOCKET=/no \
            "$RV_BUILD/rv-exec" -v "$PROBE" values
        [ "$status" = 0 ]
        [ "$(grep -c '^values ok$' <<<"$output")" = 4 ]
        grep -q '^rv\[rank 0 on n1\]: boot slurm, 4 ranks on 2 nodes; pmix: ' <<<"$output"
    done
}

@test "a reserved port refuses others and admits the program" {
    run_srun -Q --mpi=none -N2 -n4 "$PROBE" port
    [ "$status" = 0 ]
    [ "$(grep -c '^port ok$' <<<"$output")" = 4 ]
}
