#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torchrun_nccl.sh - PyTorch's launcher and NCCL under rv-exec on real GPUs
#
# usage: torchrun_nccl.sh BUILD NODES GPUS_PER_NODE [srun option...]
# In a shell whose srun reaches a cluster with GPUs; the options ask for them,
# as --gres=gpu:h100:1. Prints TAP. Not part of a suite: it needs a Slurm.
set -u
build=$(cd "$1" && pwd) nodes=$2 per=$3
shift 3
size=$((nodes * per)) n=0 bad=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export NCCL_NVLS_ENABLE=0 PYTHONUNBUFFERED=1

cat >"$dir/sum.py" <<'Y'
import datetime
import os
import time

import torch
import torch.distributed as dist

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
timeout = datetime.timedelta(seconds=int(os.environ["RV_NCCL_TIMEOUT"]))
dist.init_process_group("nccl", timeout=timeout)
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.full((16 << 20,), float(rank + 1), device="cuda")
dist.all_reduce(x)
good = bool((x == size * (size + 1) / 2).all())
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(20):
    dist.all_reduce(x)
torch.cuda.synchronize()
each = (time.perf_counter() - start) / 20
gbs = x.numel() * 4 / each * 2 * (size - 1) / size / 1e9
uuid = torch.cuda.get_device_properties(local).uuid
os.write(1, f"sum {good} rank {rank}/{size} local {local} gpu {uuid}\n".encode())
if rank == 0:
    version = ".".join(map(str, torch.cuda.nccl.version()))
    os.write(1, f"# torch {torch.__version__}, NCCL {version}: {gbs:.1f} GB/s of "
             f"bus at 64 MiB, {torch.cuda.get_device_name()}\n".encode())
dist.destroy_process_group()
Y

# check TEXT TASKS_PER_NODE COMMAND... - each rank has the sum, on a GPU of its own
check() {
    local text=$1 tasks=$2 out status
    shift 2
    out=$(timeout 240 srun -Q --mpi=pmix -N"$nodes" --ntasks-per-node="$tasks" \
        "${options[@]}" "$build/rv-exec" "$@" 2>&1 </dev/null)
    status=$?
    n=$((n + 1))
    grep '^#' <<<"$out"
    if [ $status = 0 ] && [ "$(grep -c '^sum True' <<<"$out")" = "$size" ] &&
        [ "$(sed -n 's/^sum.*gpu //p' <<<"$out" | sort -u | wc -l)" = "$size" ]; then
        echo "ok $n - $text"
    else
        echo "not ok $n - $text: status $status"
        sed 's/^/# /' <<<"$out"
        bad=1
    fi
}

options=("$@")
check "torchrun, static rendezvous" 1 torchrun "$dir/sum.py"
check "torchrun, c10d rendezvous" 1 torchrun --rdzv-backend=c10d "$dir/sum.py"
check "python with env://, one task a GPU" "$per" python3 "$dir/sum.py"
echo "1..$n"
exit $bad
