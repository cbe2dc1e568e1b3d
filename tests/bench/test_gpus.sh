#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_gpus.sh - gpus.py without a GPU: what it starts, keeps, refuses and prints,
# on the host with tiny models, and its table of rows that are given
: "${top_srcdir:?}" "${top_builddir:?}"
unset "${!SLURM_@}" "${!PMIX_@}" "${!RV_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
if ! python=$(command -v /usr/bin/python3 || command -v python3); then
    echo "1..0 # SKIP no python3"
    exit
fi
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gpus-test.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
count=0

# gpus ARG... - its output in $tmp/out; its status
gpus ()
{
    PYTHONDONTWRITEBYTECODE=1 timeout 60 "$python" "$top_srcdir/tests/bench/gpus.py" \
        --build "$top_builddir" "$@" >"$tmp/out" 2>&1
}

# ok NAME CMD... - a test that passes when CMD does
ok ()
{
    local name=$1
    shift
    count=$((count + 1))
    if "$@"; then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        sed 's/^/# /' "$tmp/out"
    fi
}

# says TEXT... - each is a part of a line of the output
says ()
{
    local text
    for text; do
        grep -qF -- "$text" "$tmp/out" || return 1
    done
}

refused ()
{
    local text=$1
    shift
    gpus "$@"
    [ $? = 2 ] && says "$text"
}

host ()
{
    gpus --device host --through direct --only groups,weak-1b,grpo --out "$tmp/rows"
}

# A row of JSON of each run that the host has: two, and one of one rank.
kept ()
{
    local op n=0
    for op in '"world": 2, "op": "all_reduce", "who": "libtrain", "bytes": 8192' \
        '"world": 1, "op": "train"' '"world": 2, "op": "train"' \
        '"world": 1, "op": "grpo"' '"world": 2, "op": "grpo"'; do
        ! grep -qF "$op" "$tmp/rows" || n=$((n + 1))
    done
    sed 's/^/# /' "$tmp/rows" >>"$tmp/out"
    [ $n = 5 ] && ! grep -q '"op": "failed"' "$tmp/rows"
}

missing ()
{
    ! gpus --build "$tmp" --device host --through direct --only grpo --counts 1 --out "$tmp/none" &&
        says "failed: grpo, 1 ranks, direct, libtrain: $tmp/tests/bench/grpo_bench is not there" &&
        grep -q '"op": "failed"' "$tmp/none"
}

over ()
{
    ! gpus --device host --through direct --only grpo --minutes 0 && says "the 0 minutes were over"
}

ok "on the host: every run gives figures" host
ok "and a table at the end" says '| weak-1b, 2 x 16 a GPU, tiny for it | 2 | direct |' \
    '| all_reduce 8 KiB | 2 | direct |' '| grpo, 16 completions | 2 | direct |'
ok "what was measured is kept as lines of JSON" kept
ok "the table is made again of those" gpus --from "$tmp/rows"
ok "with the same rows" says '| weak-1b, 2 x 16 a GPU, tiny for it | 1 | direct |' '| grpo, 8 completions | 1 |'
ok "a program that is not there is named, in the rows too" missing
single ()
{
    gpus --device host --through direct --only groups,copies --counts 1 &&
        says "groups: two ranks at least; 1 is left out" "copies: two GPUs of one node at least" \
            "nothing was measured"
}

# Ended in the middle of a run that takes long: the table, and no process stays.
stopped ()
{
    local pid sleeper=$tmp/b/tests/bench
    mkdir -p "$sleeper"
    printf '#!/bin/sh\necho $$ >"%s"\nexec sleep 100\n' "$tmp/pid" >"$sleeper/grpo_bench"
    chmod +x "$sleeper/grpo_bench"
    PYTHONDONTWRITEBYTECODE=1 "$python" "$top_srcdir/tests/bench/gpus.py" --build "$tmp/b" --device host --through direct \
        --only grpo --counts 1 >"$tmp/out" 2>&1 &
    pid=$!
    for _ in {1..600}; do # Python may begin late beside compilers
        [ -s "$tmp/pid" ] && break
        sleep 0.1
    done
    kill -TERM $pid
    ! wait $pid && says "# stopped" "nothing was measured" && ! kill -0 "$(cat "$tmp/pid")" 2>/dev/null
}

ok "ended early: the table, and no process of it stays" stopped
# By the first thing that the run does, while Python may still be starting it.
at_once ()
{
    local bench=$tmp/b/tests/bench/grpo_bench
    printf '#!/bin/sh\necho $$ >"%s"\nkill -TERM $PPID\nexec sleep 100\n' "$tmp/pid" >"$bench"
    for _ in {1..15}; do
        ! gpus --device host --through direct --only grpo --counts 1 --build "$tmp/b" || return 1
        ! kill -0 "$(cat "$tmp/pid")" 2>/dev/null || return 1
    done
}
ok "ended as a run begins: no process stays" at_once
# A folder with one twin, and a Python that has a PyTorch and runs that.
twin ()
{
    local row='{"op": "all_reduce", "bytes": 8192, "us": 21.5, "busbw_gbps": 0.4}'
    mkdir -p "$tmp/anchors" && : >"$tmp/anchors/collectives_torch.py"
    printf '#!/bin/sh\ncase "$*" in\n*--nproc_per_node=2*collectives_torch.py) echo '"'%s'"' ;;\nesac\n' \
        "$row" >"$tmp/python"
    chmod +x "$tmp/python"
    gpus --device host --through direct --only groups,weak-1b --anchors "$tmp/anchors" \
        --python "$tmp/python" && says "PyTorch 21.5 us (calls not waited for)"
}

# A rank's error, not what PyTorch's launcher says behind it.
own_error ()
{
    printf '#!/bin/sh\ncase "$*" in\n*--nproc_per_node=2*)\n' >"$tmp/python"
    printf 'echo "%s"\n' '[rank1]: torch.OutOfMemoryError: CUDA out of memory.' \
        'torch.distributed.elastic.multiprocessing.errors.ChildFailedError:' \
        '  traceback : To enable traceback see: https://pytorch.org/errors.html' >>"$tmp/python"
    printf 'exit 1 ;;\nesac\n' >>"$tmp/python"
    ! gpus --device host --through direct --only groups --anchors "$tmp/anchors" \
        --python "$tmp/python" && says "PyTorch: rank 0: status 1: [rank1]: torch.OutOfMemoryError: CUDA"
}

# The loop with a preset more, and its own arguments.
preset ()
{
    printf 'import sys\nPRESETS = {"1b": (16,)}\nprint(PRESETS["8b"], sys.argv[1:], vars(sys.modules["__main__"]) is globals())\n' >"$tmp/loop.py"
    "$python" "$top_srcdir/tests/bench/gpus_torch.py" "$tmp/loop.py" --preset 8b >"$tmp/out" 2>&1 &&
        says "(32, 4096, 32, 8, 14336) ['--preset', '8b'] True"
}

no_preset ()
{
    echo 'OTHERS = {}' >"$tmp/loop.py"
    ! "$python" "$top_srcdir/tests/bench/gpus_torch.py" "$tmp/loop.py" >"$tmp/out" 2>&1 &&
        says "has no PRESETS to add 8b to"
}

ok "a twin of PyTorch is run where it is, beside ours" twin
ok "where it fails, by what the rank said" own_error
ok "its loop gets the preset 8b" preset
ok "one without presets is refused" no_preset
ok "what one GPU cannot show is said" single
ok "after its minutes nothing begins" over
ok "a part that is none is refused" refused "no part 'weak-2b'; there are groups, weak-1b" --only weak-2b
ok "so is a way" refused "no way 'node2'" --through node2
ok "more GPUs than there are" refused "8 GPUs are asked for, and here are 2" --device host --counts 8
ok "a folder of anchors that is none" refused "/nonexistent is not a folder" --device host --anchors /nonexistent
ok "rows of four GPUs" gpus --from "$top_srcdir/tests/bench/gpus_rows.json"
ok "collectives stand beside NCCL and PyTorch" says \
    '| all_reduce 64 MiB | 4 | direct | 500.0 us, 201 GB/s; learnt 410.0 us | NCCL from C 400.0 us; PyTorch 420.5 us (calls not waited for) | 0.80 |'
ok "a step beside PyTorch, with what is left of one GPU's rate and its limits" says \
    '| PyTorch 312.5 ms, 209,715 tok/s, 26.8 GiB | 1.25 | 3.20 times 1 (80 %); aim MISSED | kernel 90 %, link 6 %, host 4 % |'
ok "a step through rv run beside the direct one" says \
    '| 4 | nodes | 500.0 ms, 131,072 tok/s, 21.5 GiB | direct 250.0 ms | 0.50 |'
ok "completions a second" says '| PyTorch 32.0 a second, 2.00 s | 2.00 |' '| 3.64 times 1 (91 %) |'
ok "copies: pairs, all at once, and staged" says '2 ordered pairs, 1 of 2 probed good' '268 to 336 GB/s' '| 0.70 at least |' \
    '| each GPU to the next at once, peer | 4 | direct | 0.90 ms, 1193 GB/s together | cudaMemcpyPeerAsync 0.72 ms | 0.80 |' \
    'staged | 4 | direct | 10.40 ms'
ok "what failed and nothing replaced" says 'failed: 8b, 4 ranks, direct, libtrain: out of memory'
ok "but not what was measured after all" bash -c '! grep -q "a first try" "$0"' "$tmp/out"
echo "1..$count"
