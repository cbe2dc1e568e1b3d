# SPDX-License-Identifier: Apache-2.0
# container.bats - beside a plugin that puts tasks into containers
#
# box_spank.c changes the root in task_init and gives all tasks of a node one
# task's environment, as pyxis does; it stands before ours in plugstack.conf,
# or behind. In the container there is a program that was linked statically,
# and by bind mount rv-exec with the libraries it is linked with: no libpmix, no
# slurm.conf, no /etc, no /proc.
#
# shellcheck disable=SC2086 # words of a table's rules are words

load lib

setup_file() {
    require_slurm || return 1
    if [ -z "${RVT_SKIP:-}" ] && ! unshare -m true && ! unshare -rm true; then
        export RVT_SKIP='this machine lets nobody have mounts of their own'
    fi
    sandbox_up --nodes 2 --gpus 4 --cpus 8 --type a100 --made-up || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS MASTER_ADDR MASTER_PORT
    RV_VERSION=$("$RV" --version | awk '{print $2; exit}')
    export RV_VERSION PLUGSTACK=$SANDBOX/plugstack.conf BOX=$RVT/root
    RVLINE=$(grep spank_rv "$PLUGSTACK")
    export RVLINE
    ${CC:-cc} -shared -fPIC -o "$RVT/box.so" "$BATS_TEST_DIRNAME/box_spank.c"
    # who - its environment on stdout; it opens nothing
    cat >"$RVT/who.c" <<'X'
#include <string.h>
#include <unistd.h>
extern char **environ;
int main (void)
{
    for (char **e = environ; *e; e++)
        if (write (1, *e, strlen (*e) + 1) < 0)
            return 1;
    return 0;
}
X
    mkdir "$BOX" "$RVT/env"
    ${CC:-cc} -static -o "$BOX/who" "$RVT/who.c"
    BINDS=$(bound)
    export BINDS
}

# bound - rv-exec and what it needs: mount points in the container, and the
# words for plugstack.conf
bound() {
    local f
    for f in "$RV_BUILD/rv-exec" $(ldd "$RV_BUILD/rv-exec" |
        grep -o '/[^ ]*'); do
        mkdir -p "$BOX${f%/*}"
        : >"$BOX$f"
        printf ' bind=%s' "$f"
    done
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    rm -f "$RVT"/env/* "$RVT"/err.*
}

# stack before|behind [WORD...] - where the box stands, seen from ours
stack() {
    local where=$1 line
    shift
    line="required $RVT/box.so root=$BOX$BINDS $*"
    case $where in
    before) printf '%s\n%s\n' "$line" "$RVLINE" ;;
    behind) printf '%s\n%s\n' "$RVLINE" "$line" ;;
    esac >"$PLUGSTACK"
}

# boxed TAG ARG... - in the container; each rank's environment to a file
boxed() {
    local tag=$1
    shift
    run_cmd srun -N2 --ntasks-per-node=2 --gres=gpu:2 --box \
        -o "$RVT/env/$tag.%t" -e "$RVT/err.$tag.%t" "$@"
    cat "$RVT"/err.*
    [ "$status" = 0 ]
}

ranks() {
    /usr/bin/python3 "$BATS_TEST_DIRNAME/envtable.py" "$RVT/env" "$@"
}

four='0/4 0/2 0 n1 0,1
1/4 1/2 0 n1 0,1
2/4 0/2 1 n2 0,1
3/4 1/2 1 n2 0,1'
T30='RV_NCCL_TIMEOUT=1800 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800
DEEPSPEED_TIMEOUT=30 SLURM_NTASKS_PER_NODE=2'

@test "behind the container's plugin ours opens no file and loads no library" {
    stack before trap
    boxed a --mpi=none --rv-nccl-timeout=30m /who
    ranks a $T30 <<<"$four"
    # the trap does spring
    ${CC:-cc} -static -o "$BOX/opens" -x c - <<<'
#include <fcntl.h>
int main (void) { return open ("/who", O_RDONLY) < 0; }'
    run_cmd srun -n1 --box --rv-nccl-timeout=30m /opens
    [ "$status" != 0 ]
    stack before
    way srun -n1 --box --rv-nccl-timeout=30m /opens
}

masters() { # TAG
    cat "$RVT/env/$1".* | tr '\0' '\n' | grep -E '^MASTER_(ADDR|PORT)=[0-9.]+$' |
        sort -u | wc -l
}

way() {
    run_cmd "$@"
    [ "$status" = 0 ]
}

@test "plain programs: ours behind the container's plugin" {
    stack before
    boxed a --rv-nccl-timeout=30m /who
    ranks a $T30 <<<"$four"
}

@test "rv-exec in the container, in both orders" {
    local where how
    for where in before behind; do
        for how in pmix none; do
            stack $where
            boxed $where$how --mpi=$how --rv-nccl-timeout=30m \
                "$RV_BUILD/rv-exec" -v /who
            ranks $where$how $T30 RV_BOOT=slurm 'MASTER_ADDR=*' \
                'MASTER_PORT=*' <<<"$four"
            # one address and one reserved port for all
            [ "$(masters $where$how)" = 2 ]
            # it says how it joined, and why not by PMIx
            grep -q '^rv\[rank 0 on n1\]: boot slurm, 4 ranks on 2 nodes; pmix: ' \
                "$RVT"/err.$where$how.0
            rm "$RVT"/err.*
        done
    done
}

@test "rv-exec in the container of an image of PyTorch, in both orders" {
    local where
    for where in before behind; do
        stack $where pytorch
        boxed $where --mpi=none --rv-nccl-timeout=30m "$RV_BUILD/rv-exec" /who
        # the image's port is a user's word
        ranks $where $T30 RV_BOOT=slurm 'MASTER_ADDR=*' MASTER_PORT=12345 <<<"$four"
    done
}
