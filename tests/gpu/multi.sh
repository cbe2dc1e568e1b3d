#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# multi.sh [bench|step|test] - what needs two GPUs or more: tests of groups of
# backend nccl and of every sharding strategy, on one host and on two as NCCL
# sees it (NCCL_HOSTID), the figures of collectives and copies, and of training
# steps, at 2 GPUs and at 4 where there are so many
#
# usage: multi.sh [bench|step|test], in the build folder, or any with its
# tests/gpu, tests/bench and rv-train (beside test_probe, or where it is installed:
# that runs it; top_srcdir and top_builddir set: rv-train trains too); the library
# that NCCL is loaded from is on LD_LIBRARY_PATH. TRAIN_TORCH names PyTorch's
# training loop, whose rows then stand beside those of step; ROWS takes those rows
# alone whose name it fits. TAP, and after "#" what the programs print; last line:
# the sum. Some twelve minutes; no step takes more than its limit. NVLink multicast
# stays off.
set -u
what=${1:-all}
export NCCL_NVLS_ENABLE=0
passed=0 failed=0
gpus=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | wc -l)
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then # of those that are lent alone
    gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
fi

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
    if [ "$1" = ranks ]; then # which has limits of its own
        out=$("$@" 2>&1)
    else
        out=$(timeout -k 5 "$limit" "$@" 2>&1)
    fi
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

# ranks N LIMIT PROGRAM... - one process a GPU; what they print. With HOSTS=1
# each is on a host of its own, as NCCL and the group see it
ranks ()
{
    local n=$1 limit=$2 port=$((20000 + RANDOM % 10000)) pids=() rc=0 r place
    shift 2
    for ((r = 0; r < n; r++)); do
        place=("LOCAL_RANK=$r" "LOCAL_WORLD_SIZE=$n")
        [ -z "${HOSTS:-}" ] || place=(LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "NODE_RANK=$r"
            "NCCL_HOSTID=host$r" NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1)
        env RANK=$r WORLD_SIZE="$n" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${place[@]}" \
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

# row N STRATEGY PRESET BATCH SEQ STEPS [WORD...] - a training step of N GPUs, and
# PyTorch's where it is there
row ()
{
    local n=$1 torch=()
    shift
    [ "$gpus" -ge "$n" ] || return
    [[ "$n $*" =~ ${ROWS:-.} ]] || return
    figures "step, $n GPUs: $*" ranks "$n" 80 tests/bench/shard_bench "$@"
    [ -n "${TRAIN_TORCH:-}" ] && [ "$n" -gt 1 ] || return
    [[ " $* " != *" blocks "* ]] || torch=(--ckpt)
    [[ " $* " != *" offload "* ]] || torch=(--offload)
    figures "PyTorch, $n GPUs: $*" timeout -k 5 150 python3 -m torch.distributed.run \
        --standalone --nproc_per_node="$n" "$TRAIN_TORCH" --strategy "$1" --preset "$2" --batch "$3" --seq "$4" \
        --steps "$5" --compile "${torch[@]}"
}

if [ "$gpus" -lt 2 ]; then
    echo "# needs two GPUs, found $gpus"
    [[ ,${RV_REQUIRE:-}, == *,gpu,* ]] && echo "0 passed, 1 failed, 0 skipped" && exit 1
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed 's/^/# /' | sort | uniq -c
if [ "$what" = all ] || [ "$what" = bench ]; then
    for n in 4 2; do
        [ "$gpus" -ge $n ] || continue
        figures "collectives of a step, $n GPUs" ranks $n 60 tests/bench/nccl_bench step
    done
fi
if [ "$what" = all ] || [ "$what" = test ]; then
    for n in 2 4; do
        [ "$gpus" -ge $n ] || continue
        tests 0 ranks $n 100 tests/gpu/test_fsdp
        HOSTS=1 tests 0 ranks $n 100 tests/gpu/test_fsdp hosts
    done
    for program in test_group_nccl test_group_nccl_lists test_group_nccl_graph; do
        tests 100 "tests/gpu/$program"
        tests 100 "tests/gpu/$program" hosts
    done
    [ -z "${top_srcdir:-}" ] || tests 400 bash "$top_srcdir/tests/gpu/rv_train_ranks.sh"
    tests 150 tests/gpu/test_copy
    for program in test_probe test_share; do
        tests 60 "tests/gpu/$program"
    done
fi
if [ "$what" = all ] || [ "$what" = step ]; then
    for n in 2 4; do
        row $n full 1b 8 2048 12
        row $n full 1b 1 512 20
        row $n ddp 1b 8 2048 12
        row $n full 350m 8 1024 20
        row $n ddp 1b 1 512 20
        row $n full 3b 4 2048 9 blocks
        row $n full 1b 8 2048 12 offload
    done
    # the same batch a GPU on one: how much more two and four do
    row 1 full 1b 8 2048 12
fi
if [ "$what" = all ] || [ "$what" = bench ]; then
    for n in 2 4; do
        [ "$gpus" -ge $n ] || continue
        figures "all-reduce, $n GPUs" ranks $n 60 tests/bench/nccl_bench
    done
    figures "copies" timeout -k 5 60 tests/bench/copy_bench
    figures "copies beside work" timeout -k 5 60 tests/bench/copy_bench beside
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
