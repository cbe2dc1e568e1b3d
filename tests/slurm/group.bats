# SPDX-License-Identifier: Apache-2.0
# group.bats - process groups of libtrain whose ranks die, stop, come late or
# disagree in the middle of a collective: 2 nodes x 2 ranks
#
# Every collective meets every fault on every rank with RV_TEST_LONG=1; else a
# twentieth of them, other ones each day (RV_TEST_ROUND=N: those of day N).

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
    [ -z "${RVT_SKIP:-}" ] || return 0
    ${CC:-cc} -O2 -I"$RV_SRC/libtrain" -o "$RVT/group_faults" \
        "$BATS_TEST_DIRNAME/group_faults.c" \
        "$BATS_TEST_DIRNAME/group_calls.c" \
        "$BATS_TEST_DIRNAME/group_place.c" -L"$RV_BUILD/.libs" -ltrain \
        -pthread -Wl,-rpath,"$RV_BUILD/.libs"
    export FAULTS=$RVT/group_faults
}

# deadlines - 4 s, up to 8 where much else runs; and 2 s more for a call to return
deadlines() {
    RV_NCCL_TIMEOUT=$(loaded 4)
    [ "$RV_NCCL_TIMEOUT" -le 8 ] || RV_NCCL_TIMEOUT=8
    GROUP_GRACE_MS=$(loaded 2000)
    export RV_NCCL_TIMEOUT GROUP_GRACE_MS
    echo "deadline $RV_NCCL_TIMEOUT s, and $GROUP_GRACE_MS ms"
}

collectives=(broadcast reduce all_reduce all_gather reduce_scatter all_to_all
    gather scatter send_recv barrier broadcast_object gather_object)

# cases - COLLECTIVE:FAULT:RANK, those that wait for the deadline together
cases() {
    local day c f r j
    day=$((10#${RV_TEST_ROUND:-$(date +%j)}))
    if [ -n "${RV_TEST_LONG:-}" ]; then
        for f in stop kill count slow; do
            for c in "${collectives[@]}"; do
                for r in 0 1 2 3; do echo "$c:$f:$r"; done
            done
        done
        return
    fi
    j=0
    for f in stop stop stop kill kill kill count count slow slow; do
        c=${collectives[(day * 5 + j * 7) % 12]}
        echo "$c:$f:$(((day + j + j / 4) % 4))"
        j=$((j + 1))
    done
}

# judged FAULTED... - the survivors of each case said so, and nobody else
judged() {
    local case want n
    if grep -q '^not ok' <<<"$output"; then return 1; fi
    for case; do
        want=4
        case $case in *:kill:* | *:stop:*) want=3 ;; esac
        n=$(grep -c "^ok $case rank " <<<"$output" || true)
        [ "$n" = "$want" ] || { echo "$case: $n ranks, not $want" && return 1; }
    done
}

# The ranks run as children of the tasks, so that one step can lose many.
@test "a rank is killed, stopped, of another opinion, late in a collective: rv run" {
    local all
    mapfile -t all < <(cases)
    echo "day ${RV_TEST_ROUND:-$(date +%j)}: ${all[*]}"
    deadlines
    RVT_TIMEOUT=1100 separate "$RV" run -f -g 4 -- "$FAULTS" drive 5 "${all[@]}"
    [ "$status" = 0 ]
    judged "${all[@]}"
}

# A task itself dies, and the step lives: the processes of the others go on,
# first in a step without PMIx, which librvjob boots by Slurm's variables.
@test "a task dies in an all-reduce: the other tasks of the step go on" {
    deadlines
    run_srun -Q --mpi=none -K0 -N2 \
        --ntasks-per-node=2 "$FAULTS" rank all_reduce:kill:2
    grep -q 'task 2: Killed' <<<"$output"
    judged all_reduce:kill:2
    [ "$(grep -c ': EPEER after .* ms: rank 2 ended during all_reduce' <<<"$output")" = 3 ]
}
