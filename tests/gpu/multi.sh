#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# multi.sh [bench|test] - what needs two GPUs or more: tests of groups of backend
# nccl, on one host and on two as NCCL sees it (NCCL_HOSTID), and the figures of
# collectives and copies, at 2 GPUs and at 4 where there are so many
#
# usage: multi.sh [bench|test], in the build folder, or any with its tests/gpu and
# tests/bench; the library that NCCL is loaded from is on LD_LIBRARY_PATH. TAP,
# and after "#" what the programs print; last line: the sum. Some four minutes;
# no step takes more than its limit. NVLink multicast stays off.
set -u
what=${1:-all}
export NCCL_NVLS_ENABLE=0
passed=0 failed=0
gpus=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | wc -l)

# count NAME STATUS - one more of the sum
count ()
{
    local word=ok
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) word="not ok"
    fi
    echo "$word $((passed + failed)) - $1$([ "$2" = 0 ] || echo ": status $2")"
}

# tests LIMIT PROGRAM [ARGUMENT] - its tests, each counted
tests ()
{
    local limit=$1 out rc bad
    shift
    out=$(timeout -k 5 "$limit" "$@" 2>&1)
    rc=$?
    sed 's/^/# /' <<<"$out"
    bad=$(grep -c '^not ok ' <<<"$out")
    passed=$((passed + $(grep -c '^ok ' <<<"$out")))
    [ "$bad" = 0 ] || failed=$((failed + bad))
    # a program that ended before its plan, or skipped what it is run for
    if ! grep -q '^1\.\.[1-9]' <<<"$out" || { [ $rc != 0 ] && [ "$bad" = 0 ]; }; then
        count "$*" "$rc, skipped or cut short"
    fi
}

# ranks N LIMIT PROGRAM... - one process a GPU; what rank 0 prints
ranks ()
{
    local n=$1 limit=$2 port=$((20000 + RANDOM % 10000)) pids=() rc=0 r
    shift 2
    for ((r = 0; r < n; r++)); do
        RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 5 "$limit" "$@" 2>&1 &
        pids+=($!)
    done
    for r in "${pids[@]}"; do
        wait "$r" || rc=$?
    done
    return $rc
}

# figures NAME COMMAND... - rows of a benchmark, which has to end well
figures ()
{
    local name=$1
    shift
    echo "# $name"
    "$@" | sed 's/^/# /'
    count "$name" "${PIPESTATUS[0]}"
}

if [ "$gpus" -lt 2 ]; then
    echo "# needs two GPUs, found $gpus"
    [[ ,${RV_REQUIRE:-}, == *,gpu,* ]] && echo "0 passed, 1 failed, 0 skipped" && exit 1
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed 's/^/# /' | sort | uniq -c
if [ "$what" != bench ]; then
    for program in test_group_nccl test_group_nccl_lists test_group_nccl_graph; do
        tests 100 "tests/gpu/$program"
        tests 100 "tests/gpu/$program" hosts
    done
    for program in test_probe test_copy test_share; do
        tests 60 "tests/gpu/$program"
    done
fi
if [ "$what" != test ]; then
    for n in 2 4; do
        [ "$gpus" -ge $n ] || continue
        figures "all-reduce, $n GPUs" ranks $n 60 tests/bench/nccl_bench
        figures "collectives of a step, $n GPUs" ranks $n 60 tests/bench/nccl_bench step
    done
    figures "copies" timeout -k 5 60 tests/bench/copy_bench
    figures "copies beside work" timeout -k 5 60 tests/bench/copy_bench beside
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
