# SPDX-License-Identifier: Apache-2.0
# agree.bats - before the program starts the ranks compare what must be equal

load lib

setup_file() {
    sandbox_up --nodes 2 --cpus 8
    export RV_EXEC=$RV_BUILD/rv-exec XDG_CONFIG_HOME=$RVT/config
    mkdir -p "$XDG_CONFIG_HOME/rv"
}

teardown_file() {
    sandbox_down
}

# each_mpi FUNCTION: with PMIx and without
each_mpi() {
    local mpi
    for mpi in pmix none; do "$1" "$mpi" || return 1; done
}

# ranks MPI SCRIPT - four ranks, two a node, each runs SCRIPT, which ends in
# "exec rv-exec ..."; with what the plugin does for a step without PMIx
ranks() {
    SLURM_KILL_BAD_EXIT=1 run_srun -Q --mpi="$1" -N2 --ntasks-per-node=2 \
        sh -c "$2"
}

# refused LINE - rank 0 says it, once; status 125; no program ran
refused() {
    [ "$status" = 125 ] || return 1
    [ "$(grep -c 'rv\[' <<<"$output")" = 1 ] || return 1
    ! grep -q '^ran' <<<"$output" || return 1
    [ "$(grep 'rv\[' <<<"$output")" = "rv[rank 0 on n1]: cannot start $1" ]
}

ran() {
    [ "$status" = 0 ] && [ "$output" = "$(printf 'ran\nran\nran\nran')" ]
}

@test "ranks that are alike start without a word" {
    check() {
        ranks "$1" 'NCCL_DEBUG=WARN exec $RV_EXEC echo ran'
        ran
    }
    each_mpi check
}

@test "a variable of NCCL differs between the nodes" {
    check() {
        ranks "$1" 'NCCL_ALGO=$SLURM_NODEID exec $RV_EXEC echo ran'
        refused "'echo': ranks differ in NCCL_ALGO: '0' on ranks 0-1, '1' on ranks 2-3; make them equal, or allow it by RV_DIFFER=NCCL_ALGO"
    }
    each_mpi check
}

@test "a variable that one rank alone has, and a second one" {
    ranks pmix '[ $SLURM_PROCID != 2 ] || export TORCH_NCCL_X=1 NCCL_Y=2
        exec $RV_EXEC echo ran'
    refused "'echo': ranks differ in NCCL_Y: unset on ranks 0-1,3, '2' on rank 2; also in TORCH_NCCL_X; make them equal, or allow it by RV_DIFFER=NCCL_Y,TORCH_NCCL_X"
    # this one is there to differ
    ranks pmix 'NCCL_HOSTID=$SLURMD_NODENAME exec $RV_EXEC echo ran'
    ran
}

@test "what may differ: RV_DIFFER and rv.conf, by name and by beginning" {
    ranks pmix 'RV_DIFFER=nccl,NCCL_* NCCL_ALGO=$SLURM_NODEID NCCL_X=$SLURM_PROCID exec $RV_EXEC echo ran'
    ran
    ranks pmix 'RV_DIFFER=NCCL_X NCCL_ALGO=$SLURM_NODEID NCCL_X=$SLURM_PROCID exec $RV_EXEC echo ran'
    refused "'echo': ranks differ in NCCL_ALGO: '0' on ranks 0-1, '1' on ranks 2-3; make them equal, or allow it by RV_DIFFER=NCCL_ALGO"
    printf '[differ]\nallow = NCCL_ALGO, driver\n' >"$XDG_CONFIG_HOME/rv/rv.conf"
    ranks none 'RV_DIFFER=NCCL_X NCCL_ALGO=$SLURM_NODEID NCCL_X=$SLURM_PROCID exec $RV_EXEC echo ran'
    ran
    rm "$XDG_CONFIG_HOME/rv/rv.conf"
}

@test "what may differ: --rv-differ of srun and of the job's submission" {
    run_srun -Q --mpi=pmix --rv-differ=NCCL_ALGO -N2 --ntasks-per-node=2 sh -c \
        'NCCL_ALGO=$SLURM_NODEID exec $RV_EXEC echo ran'
    ran
    run_srun -Q --mpi=none --rv-differ=driver -N2 --ntasks-per-node=2 sh -c \
        'NCCL_ALGO=$SLURM_NODEID exec $RV_EXEC echo ran'
    [ "$status" = 125 ]
    grep -q 'cannot start .echo.: ranks differ in NCCL_ALGO' <<<"$output"
    run_cmd sbatch -Q -W --rv-differ=NCCL_ALGO -N2 -n4 -o "$RVT/d.out" --wrap \
        'srun -Q --mpi=pmix sh -c "NCCL_ALGO=\$SLURM_NODEID exec $RV_EXEC sh -c \"echo ran \\\$RV_DIFFER\""'
    [ "$(sort -u "$RVT/d.out")" = "ran NCCL_ALGO" ]
    # it does not leak into the batch script, nor past an unknown name
    run_cmd sbatch -Q -W --rv-differ=NCCL_ALGO -o "$RVT/d.out" --wrap 'echo "${RV_DIFFER-unset}"'
    [ "$(cat "$RVT/d.out")" = unset ]
    for client in "srun true" "sbatch --wrap true" "salloc true"; do
        # shellcheck disable=SC2086
        run_cmd ${client%% *} --rv-differ=gpus ${client#* }
        [ "$status" = 1 ]
        [[ $output == "rv: cannot set --rv-differ to 'gpus': 'gpus' is nothing that ranks are compared in; "* ]]
        [ "${#lines[@]}" = 1 ]
    done
}

@test "an unknown name in the list is refused" {
    check() {
        ranks "$1" 'RV_DIFFER=program,gpus exec $RV_EXEC echo ran'
        refused "'echo': RV_DIFFER: 'gpus' is nothing that ranks are compared in; there are program, driver, nccl, timeout, ranks and variables that begin with NCCL_ or TORCH_NCCL_"
    }
    each_mpi check
    printf '[differ]\nallow = gpus\n' >"$XDG_CONFIG_HOME/rv/rv.conf"
    ranks pmix 'NCCL_ALGO=$SLURM_NODEID exec $RV_EXEC echo ran'
    rm "$XDG_CONFIG_HOME/rv/rv.conf"
    [ "$status" = 125 ]
    grep -q "rv.conf: \\[differ\\] allow: .gpus. is nothing that ranks are compared in" <<<"$output"
}

# copies NAME TEXT0 TEXT1 - an executable of that text in a folder for each node
copies() {
    local i
    for i in 0 1; do
        mkdir -p "$RVT/on$i"
        shift
        printf '#!/bin/sh\n%s\n' "$1" >"$RVT/on$i/prog"
        chmod +x "$RVT/on$i/prog"
    done
}

@test "the program: content counts, neither path nor inode" {
    check() {
        copies x 'echo ran' 'echo ran'
        ranks "$1" 'exec $RV_EXEC $RVT/on$SLURM_NODEID/prog'
        ran
        copies x 'echo ran' 'echo ran # newer'
        ranks "$1" 'PATH=$RVT/on$SLURM_NODEID:$PATH exec $RV_EXEC prog'
        [ "$status" = 125 ]
        grep -Eq "^rv\[rank 0 on n1\]: cannot start 'prog': ranks differ in program: '[0-9a-f]{16} $RVT/on0/prog' on ranks 0-1, '[0-9a-f]{16} $RVT/on1/prog' on ranks 2-3; make" <<<"$output"
        ! grep -q '^ran' <<<"$output" || return 1
        # two files of one node, alike and not
        copies x 'echo ran' 'echo ran'
        ranks "$1" 'exec $RV_EXEC $RVT/on$((SLURM_PROCID % 2))/prog'
        ran
        copies x 'echo ran' 'echo ran # newer'
        ranks "$1" 'exec $RV_EXEC $RVT/on$((SLURM_PROCID % 2))/prog'
        grep -q "ranks differ in program: .* on ranks 0,2, .* on ranks 1,3; make" <<<"$output"
        ranks "$1" 'RV_DIFFER=program exec $RV_EXEC $RVT/on$SLURM_NODEID/prog'
        ran
    }
    each_mpi check
}

@test "the script of an interpreter counts too" {
    copies x 'echo ran' 'echo ran # newer'
    ranks pmix 'exec $RV_EXEC env A=1 sh $RVT/on$SLURM_NODEID/prog'
    [ "$status" = 125 ]
    grep -q "ranks differ in program: .*on0/prog' on ranks 0-1" <<<"$output"
    echo 'print("ran")' >"$RVT/on0/x.py"
    echo 'print ("ran")' >"$RVT/on1/x.py"
    ranks none 'cd $RVT/on$SLURM_NODEID && exec $RV_EXEC python3 -u x.py'
    [ "$status" = 125 ]
    grep -q "ranks differ in program: .*x.py' on ranks 0-1" <<<"$output"
}

@test "a program that one node has not" {
    copies x 'echo ran' 'echo ran'
    rm "$RVT/on1/prog"
    ranks pmix 'exec $RV_EXEC $RVT/on$SLURM_NODEID/prog'
    [ "$status" = 125 ]
    grep -q "ranks differ in program: .*on0/prog' on ranks 0-1, '$RVT/on1/prog: not found' on ranks 2-3" <<<"$output"
}

@test "deadlines differ" {
    ranks none 'RV_NCCL_TIMEOUT=$((60 + SLURM_NODEID)) exec $RV_EXEC echo ran'
    refused "'echo': ranks differ in timeout: '60 s' on ranks 0-1, '61 s' on ranks 2-3; make them equal, or allow it by RV_DIFFER=timeout"
    ranks pmix 'DEEPSPEED_TIMEOUT=$((60 + SLURM_NODEID)) exec $RV_EXEC echo ran'
    refused "'echo': ranks differ in DEEPSPEED_TIMEOUT: '60' on ranks 0-1, '61' on ranks 2-3; make them equal, or allow it by RV_DIFFER=DEEPSPEED_TIMEOUT"
}

# library VERSION - $RVT/nccl.VERSION with a libnccl.so.2 that says so
library() {
    mkdir -p "$RVT/nccl.$1"
    echo "const char *v (void) { return \"NCCL version $1+cuda13.0\"; }" |
        ${CC:-cc} -x c -shared -fPIC -o "$RVT/nccl.$1/libnccl.so.2" -
}

@test "the NCCL library that the loader would pick" {
    library 2.28.9
    library 2.27.3
    ranks pmix 'LD_LIBRARY_PATH=$RVT/nccl.2.28.9 exec $RV_EXEC echo ran'
    ran
    ranks pmix '[ $SLURM_NODEID = 0 ] && v=2.28.9 || v=2.27.3
        LD_LIBRARY_PATH=/no:$RVT/nccl.$v exec $RV_EXEC echo ran'
    refused "'echo': ranks differ in nccl: '2.28.9 ($RVT/nccl.2.28.9/libnccl.so.2)' on ranks 0-1, '2.27.3 ($RVT/nccl.2.27.3/libnccl.so.2)' on ranks 2-3; make them equal, or allow it by RV_DIFFER=nccl"
    # the same release in another folder
    cp -r "$RVT/nccl.2.28.9" "$RVT/other"
    ranks pmix '[ $SLURM_NODEID = 0 ] && d=other || d=nccl.2.28.9
        LD_LIBRARY_PATH=$RVT/$d exec $RV_EXEC echo ran'
    ran
}

@test "the driver, where one node has another" {
    unshare -m true 2>/dev/null || skip "unshare -m is not permitted here"
    # a /proc/driver of each task's own
    ranks pmix 'exec unshare -m sh -c "
        mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia &&
        echo \"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.$SLURM_NODEID.1  now\" >/proc/driver/nvidia/version
        exec \$RV_EXEC echo ran"'
    refused "'echo': ranks differ in driver: '580.0.1' on ranks 0-1, '580.1.1' on ranks 2-3; make them equal, or allow it by RV_DIFFER=driver"
    ranks pmix 'exec unshare -m sh -c "
        mount -t tmpfs none /proc/driver
        [ $SLURM_NODEID = 0 ] || exec \$RV_EXEC echo ran
        mkdir /proc/driver/nvidia
        echo \"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1  now\" >/proc/driver/nvidia/version
        exec \$RV_EXEC echo ran"'
    refused "'echo': ranks differ in driver: '580.1' on ranks 0-1, 'none' on ranks 2-3; make them equal, or allow it by RV_DIFFER=driver"
}

@test "a user's own NCCL_TIMEOUT gets one line (pytorch/pytorch#135352, #104506, #88000)" {
    check() {
        ranks "$1" 'NCCL_TIMEOUT=77 exec $RV_EXEC sh -c "echo \$NCCL_TIMEOUT \${RV_NCCL_TIMEOUT-unset}"'
        [ "$status" = 0 ]
        [ "$(grep -c '^77 unset$' <<<"$output")" = 4 ]
        [ "$(grep -v '^77' <<<"$output")" = "rv[rank 0 on n1]: NCCL_TIMEOUT='77' is read by libtrain and librvjob alone, in seconds; NCCL and PyTorch have no such variable: give init_process_group its timeout" ]
    }
    each_mpi check
    ranks pmix 'exec $RV_EXEC sh -c "echo \${NCCL_TIMEOUT-unset} \$RV_NCCL_TIMEOUT"'
    [ "$(sort -u <<<"$output")" = "unset 600" ]
}
