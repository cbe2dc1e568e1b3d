# SPDX-License-Identifier: Apache-2.0
# torch.bats - PyTorch's own launcher and env:// under rv-exec, with gloo

load lib

setup_file() {
    sandbox_up --nodes 2 --cpus 8 --gpus 4
    export RV_EXEC=$RV_BUILD/rv-exec PY=/usr/bin/python3
    # One interface for all; BLAS threads would only get in each other's way.
    export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 RVT_TIMEOUT=120
    [ -z "${RVT:-}" ] || torch_files
    # once: it takes seconds
    export TORCH=
    ! $PY -c 'import torch' 2>/dev/null || TORCH=1
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    if [ -z "$TORCH" ]; then
        case ,${RV_REQUIRE:-}, in
        *,slurm,*) echo "python3-torch is not installed" >&2 && return 1 ;;
        esac
        skip "python3-torch is not installed"
    fi
    PATH=$(dirname $PY):$PATH
}

torch_files() {
    torch_quirks
    cat >"$RVT/sum.py" <<'Y'
import datetime
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
dist.barrier()
line = "rank {RANK}/{WORLD_SIZE} local {LOCAL_RANK}".format(**os.environ)
os.write(1, f"{line} sum {int(x.item())}\n".encode())  # in one piece
Y
    export SUM=$RVT/sum.py
}

each_mpi() {
    local mpi
    for mpi in pmix none; do "$1" "$mpi" || return 1; done
}

four="rank 0/4 local 0 sum 10
rank 1/4 local 1 sum 10
rank 2/4 local 0 sum 10
rank 3/4 local 1 sum 10"

summed() {
    [ "$status" = 0 ] && [ "$(grep '^rank' <<<"$output" | sort)" = "$four" ]
}

@test "python with env://, PMIx and not" {
    check() {
        run_srun -Q --mpi="$1" -N2 --ntasks-per-node=2 "$RV_EXEC" $PY "$SUM"
        summed
    }
    each_mpi check
}

@test "all five variables that DeepSpeed looks for are there" {
    run_srun -Q -N2 --ntasks-per-node=2 "$RV_EXEC" $PY -c '
import os
# deepspeed/comm/comm.py goes to mpi4py where one of these is missing
print(all(os.environ.get(v) for v in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")))'
    [ "$output" = "True
True
True
True" ]
}

# torchrun_on MPI ARG... - one task a node
torchrun_on() {
    local mpi=$1
    shift
    run_srun -Q --mpi="$mpi" -N2 --ntasks-per-node=1 "$RV_EXEC" "$@"
}

@test "torchrun over two nodes" {
    torchrun_on pmix torchrun --nproc_per_node=2 "$SUM"
    summed
}

@test "torchrun with a c10d rendezvous, which elects no host" {
    torchrun_on none torchrun --nproc_per_node=2 --rdzv_backend=c10d "$SUM"
    summed
}

@test "torchrun by its module, behind wrappers, processes from visible devices" {
    run_srun -Q --mpi=pmix -N2 --ntasks-per-node=1 \
        env CUDA_VISIBLE_DEVICES=0,1 "$RV_EXEC" \
        env A=1 $PY -W ignore -m torch.distributed.run "$SUM"
    summed
}

@test "torchrun: the user's own arguments and variables win" {
    PET_NPROC_PER_NODE=2 torchrun_on none torchrun --nproc_per_node=1 "$SUM"
    [ "$status" = 0 ]
    [ "$(grep '^rank' <<<"$output" | sort)" = "rank 0/2 local 0 sum 3
rank 1/2 local 0 sum 3" ]
}

@test "two torchruns on the same nodes at once do not meet" {
    run_cmd bash -c 'for i in 1 2; do
        srun -Q -s --mpi=pmix -N2 --ntasks-per-node=1 "$RV_EXEC" \
            torchrun --nproc_per_node=1 "$SUM" & done; wait'
    [ "$(grep -c '^rank [01]/2 local 0 sum 3$' <<<"$output")" = 4 ]
}

@test "torchrun --standalone: on one node it runs, on two it is refused" {
    run_srun -Q -N1 -n1 "$RV_EXEC" torchrun --standalone --nproc_per_node=2 "$SUM"
    [ "$status" = 0 ]
    [ "$(grep -c '^rank [01]/2 local [01] sum 3$' <<<"$output")" = 2 ]
    check() {
        torchrun_on "$1" torchrun --standalone --nproc_per_node=2 "$SUM"
        [ "$status" = 125 ]
        [ "$(grep -v ^s <<<"$output")" = "rv[rank 0 on n1]: cannot start 'torchrun': --standalone stays on one node, and this step has 2; leave it out, or ask for one node (-N1)" ]
    }
    each_mpi check
}

@test "several tasks a node that each start a node's processes (NVIDIA/Megatron-LM#1371)" {
    check() {
        run_srun -Q --mpi="$1" -N2 --ntasks-per-node=2 "$RV_EXEC" torchrun "$SUM"
        [ "$status" = 125 ]
        [ "$(grep -v ^s <<<"$output")" = "rv[rank 0 on n1]: cannot start 'torchrun': torchrun starts the processes of a node itself, and this step has 4 tasks on 2 nodes; ask for one a node (srun --ntasks-per-node=1)" ]
    }
    each_mpi check
    # the user may count each task as a node; five seconds that CI can spare
    [ -n "${RV_TEST_LONG:-}" ] || return 0
    run_srun -Q -N2 --ntasks-per-node=2 "$RV_EXEC" torchrun --nnodes=4 \
        --nproc_per_node=1 "$SUM"
    [ "$status" = 0 ]
    [ "$(grep -c '^rank [0-3]/4 local 0 sum 10$' <<<"$output")" = 4 ]
}

@test "SIGUSR1 reaches the processes of torchrun, which goes on (pytorch/pytorch#154849)" {
    local torchrun
    cd "$BATS_TEST_TMPDIR"
    cat >count.py <<'Y'
import os
import signal
import time

n = 0


def count(*_):
    global n
    n += 1
    open(f"got.{os.environ['RANK']}.{n}", "w")


signal.signal(signal.SIGUSR1, count)
open(f"up.{os.environ['RANK']}", "w")
end = time.time() + 60
while not os.path.exists("stop") and time.time() < end:
    time.sleep(0.02)
Y
    srun -Q -J count -n1 sh -c 'echo $$ >pid; exec "$@"' sh "$RV_EXEC" \
        torchrun --monitor_interval=0.2 --nproc_per_node=2 count.py \
        </dev/null >out 2>&1 3>&- &
    torchrun=$!
    wait_for 60 test -e up.0 -a -e up.1
    # Slurm signals all processes of the task, or with control groups rv-exec.
    scancel --signal=USR1 -n count
    wait_for 60 test -e got.0.1 -a -e got.1.1
    kill -USR1 "$(cat pid)"
    wait_for 60 test -e got.0.2 -a -e got.1.2
    : >stop
    wait_for 60 gone "$torchrun"
    wait "$torchrun" || { cat out; false; }
    [ ! -e got.0.3 ] && [ ! -e got.1.3 ]
}

@test "rv run: one torchrun a node, as many processes as GPUs" {
    run_cmd "$RV" run -f -g 4 --nodes 2 --time 5m -- torchrun "$SUM"
    summed
}
