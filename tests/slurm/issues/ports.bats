# SPDX-License-Identifier: Apache-2.0
# ports.bats - reports of addresses and ports that went wrong, one a test

load ../lib

setup_file() {
    sandbox_up --nodes 2 --cpus 16
    export RV_EXEC=$RV_BUILD/rv-exec PROBE=$RVT/probe
    [ -z "${RVT:-}" ] || ${CC:-cc} -I"$RV_SRC/launcher" -o "$PROBE" \
        "$BATS_TEST_DIRNAME/../job_probe.c" -L"$RV_BUILD/.libs" -lrvjob \
        -pthread -Wl,-rpath,"$RV_BUILD/.libs"
    export NET0=rvt$$-0 NET1=rvt$$-1 HOSTS=
    if unshare -nm true 2>/dev/null && command -v ip >/dev/null; then
        two_hosts
    fi
}

teardown_file() {
    ip netns del "$NET0" 2>/dev/null
    ip netns del "$NET1" 2>/dev/null
    sandbox_down
}

# two_hosts - two networks of their own, joined by a wire: each node's tasks
# live in one of them, as on two hosts. 10.77.0.1 is n1's, 10.77.0.2 n2's.
two_hosts() {
    ip netns add "$NET0" && ip netns add "$NET1" || return 1
    ip -n "$NET0" link add wire type veth peer name wire netns "$NET1"
    local i
    for i in 0 1; do
        ip -n "rvt$$-$i" link set lo up
        ip -n "rvt$$-$i" link set wire up
        ip -n "rvt$$-$i" addr add 10.77.0.$((i + 1))/24 dev wire
    done
    # on PID's host with names of its own: exec on_host COMMAND...
    cat >"$RVT/on_host" <<'X'
#!/bin/sh
[ "$1" != --mounted ] ||
    { shift; mount --bind "$RVT/hosts.$SLURM_NODEID" /etc/hosts && exec "$@"; }
exec nsenter --net="/run/netns/${NET0%0}$SLURM_NODEID" \
    unshare -m "$0" --mounted "$@"
X
    chmod +x "$RVT/on_host"
    HOSTS=2
}

need_two_hosts() {
    [ -n "$HOSTS" ] || skip "network namespaces are not permitted here"
}

# names HOSTS0 HOSTS1 - what /etc/hosts says on n1 and n2
names() {
    printf '%b\n' "$1" >"$RVT/hosts.0"
    printf '%b\n' "$2" >"$RVT/hosts.1"
}

# over_the_wire COMMAND... - four ranks on two hosts, by Slurm's variables
# (PMIx talks over its host's loopback)
over_the_wire() {
    SLURM_KILL_BAD_EXIT=1 run_srun -Q --mpi=none -N2 --ntasks-per-node=2 \
        "$RVT/on_host" "$@"
}

# meets - the program of rank 0 listens at MASTER_ADDR:MASTER_PORT, the others
# reach it there; all were told 10.77.0.1
meets() {
    over_the_wire env RV_NCCL_TIMEOUT=40 "$@" "$RV_EXEC" sh -c \
        'echo $MASTER_ADDR; exec "$PROBE" master'
    [ "$status" = 0 ] || return 1
    [ "$(sort <<<"$output" | uniq -c | tr -s ' ')" = " 4 10.77.0.1
 1 met 6" ]
}

@test "two hosts whose names resolve as they should" {
    need_two_hosts
    names "10.77.0.1 n1\n10.77.0.2 n2" "10.77.0.1 n1\n10.77.0.2 n2"
    meets
}

@test "a host that calls itself 127.0.1.1, as Debian's installer has it (pytorch/pytorch#85300)" {
    need_two_hosts
    names "127.0.1.1 n1" "10.77.0.1 n1\n127.0.1.1 n2"
    meets
}

@test "names that resolve to IPv6 first, with no such route (pytorch/pytorch#131691, #52040)" {
    need_two_hosts
    names "fd00:77::1 n1\n10.77.0.1 n1" "fd00:77::1 n1\n10.77.0.1 n1"
    meets
    # with a route, and nobody there: a black hole
    ip -n "$NET1" -6 addr add fd00:77::2/64 dev wire nodad
    meets
    ip -n "$NET1" -6 addr del fd00:77::2/64 dev wire
}

@test "names that resolve nowhere, or to loopback everywhere (pytorch/pytorch#150532, UQ-RCC/hpc-docs#2)" {
    need_two_hosts
    # the plugin's word of srun, and without it Slurm's own of the node
    names "" ""
    meets RV_HEAD_ADDR=10.77.0.1 RV_PLUGIN=0
    mkdir -p "$RVT/bin"
    printf '#!/bin/sh\necho "NodeName=$4 Arch=x NodeAddr=10.77.0.1 NodeHostName=$4"\n' \
        >"$RVT/bin/scontrol"
    chmod +x "$RVT/bin/scontrol"
    meets PATH="$RVT/bin:$PATH"
    names "127.0.1.1 n1 n2" "127.0.1.1 n1 n2"
    meets PATH="$RVT/bin:$PATH"
}

@test "torchrun between hosts whose names nobody knows (pytorch/pytorch#150532, #85300)" {
    need_two_hosts
    /usr/bin/python3 -c 'import torch' 2>/dev/null ||
        skip "python3-torch is not installed"
    names "" ""
    cat >"$RVT/sum.py" <<'Y'
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
os.write(1, f"sum {int(x.item())} at {os.environ['MASTER_ADDR']}\n".encode())
Y
    torch_quirks
    RVT_TIMEOUT=120 run_srun -Q --mpi=none -N2 --ntasks-per-node=1 \
        "$RVT/on_host" env RV_HEAD_ADDR=10.77.0.1 RV_PLUGIN=0 GLOO_SOCKET_IFNAME=wire \
        OMP_NUM_THREADS=1 "$RV_EXEC" \
        /usr/bin/python3 -m torch.distributed.run --nproc_per_node=1 "$RVT/sum.py"
    [ "$status" = 0 ]
    # PyTorch 2.6 warns that it cannot learn the peer's name, and that the other
    # agent has left first.
    [ "$(grep '^sum' <<<"$output")" = "sum 2 at 10.77.0.1
sum 2 at 10.77.0.1" ]
}

@test "names do not matter under PMIx" {
    unshare -m true 2>/dev/null || skip "unshare -m is not permitted here"
    for hosts in "" "127.0.1.1 n1 n2" "::1 n1 n2 localhost"; do
        echo "$hosts" >"$RVT/hosts"
        run_srun -Q --mpi=pmix -N2 --ntasks-per-node=2 unshare -m sh -c \
            'mount --bind $RVT/hosts /etc/hosts && exec "$RV_EXEC" "$PROBE" master'
        [ "$status" = 0 ]
        [ "$output" = "met 6" ]
    done
}

# formula - MASTER_PORT of a step without rv-exec, in the step's shell
formula='$((20000 + (31 * SLURM_JOB_ID + SLURM_STEP_ID) % 12000))'

@test "somebody sits on the port that a formula gives (NVIDIA/enroot#243)" {
    for mpi in pmix none; do
        rm -f "$RVT/sits"
        run_srun -Q --mpi=$mpi --rv-env=on -N2 --ntasks-per-node=2 sh -c "
            if [ \$SLURM_PROCID = 0 ]; then
                \"\$PROBE\" squat $formula \$RVT/sits & squatter=\$!
            fi
            until [ -e \$RVT/sits ]; do sleep 0.05; done
            [ \$MASTER_PORT = $formula ] || echo formula
            \"\$RV_EXEC\" \"\$PROBE\" master
            status=\$?
            [ -z \"\${squatter:-}\" ] || kill \$squatter
            exit \$status"
        [ "$status" = 0 ]
        [ "$output" = "met 6" ]
    done
}

@test "many jobs on the same nodes at once do not meet (awslabs/awsome-distributed-ai#1172, NVIDIA/Megatron-LM#1371)" {
    run_cmd bash -c 'for i in 1 2 3 4 5 6; do
        srun -Q --mpi=$( ((i % 2)) && echo pmix || echo none) -s -N2 \
            --ntasks-per-node=2 "$RV_EXEC" sh -c "
                [ \$RANK != 0 ] || echo port \$MASTER_PORT
                exec \"\$PROBE\" master" & done; wait'
    [ "$(grep -c '^met 6$' <<<"$output")" = 6 ]
    [ "$(grep '^port' <<<"$output" | sort -u | wc -l)" = 6 ]
}

@test "nobody else gets MASTER_PORT while the program runs (NVIDIA/enroot#243)" {
    run_srun -Q --mpi=pmix -N1 -n1 "$RV_EXEC" /usr/bin/python3 -c '
import os, socket
port = int(os.environ["MASTER_PORT"])
for addr in ("127.0.0.1", "0.0.0.0"):
    s = socket.socket()
    try:
        s.bind((addr, port))
        print("taken by an exclusive bind to", addr)
    except OSError as e:
        print(e.errno == 98)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", port))
s.listen()
print("serves")'
    [ "$status" = 0 ]
    [ "$output" = "True
True
serves" ]
}
