# SPDX-License-Identifier: Apache-2.0
# faults.bats - Slurm's own parts fail under a job: the job's end is told, its
# processes end, no node is lost
# shellcheck disable=SC2016,SC2030,SC2031,SC2086 # programs of tasks stand in
# single quotes; the "full" sandbox is one test's own; ids are words

load lib

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 2
    [ -z "${RVT_SKIP:-}" ] || return 0
    # What does not end by itself is killed after two seconds, not thirty; a
    # controller that has just started looks for jobs each second.
    sed -i 's/^ReturnToService=.*/&\nKillWait=2/; s/^SchedulerParameters=.*/&,sched_interval=1,bf_interval=1/' \
        "$SLURM_CONF"
    scontrol reconfigure
    export RV_EXEC=$RV_BUILD/rv-exec XDG_STATE_HOME=$RVT/state
}

teardown_file() {
    sandbox_down
}

setup() {
    skip_without_slurm
    cd "$RVT" || return 1
    rm -f up.* go out pid.*
}

teardown() {
    [ ! -e "${RVT:-/nowhere}/full" ] || "$RV" sandbox down --dir "$RVT/full"
    [ ! -e "${RVT:-/nowhere}/u/s" ] || with_conf 65534 : rv sandbox down --dir "$RVT/u/s"
}

# A rank that says that it is up, with its process id, and waits for leave.
rank='echo $$ >pid.$RANK; touch up.$RANK; until [ -e go ]; do sleep 0.05; done; '

# begin N COMMAND... - in the background, output and status in ./out; returns
# when N ranks are up
begin() {
    local n=$1
    shift
    (
        s=0
        timeout -k 5 120 "$@" </dev/null >out 2>&1 || s=$?
        echo "status $s at $(date +%s%N)" >>out
    ) 3>&- &
    BEGUN=$!
    wait_for 60 ranks_up "$n"
}

ranks_up() {
    [ "$(find . -maxdepth 1 -name 'up.*' | wc -l)" = "$1" ]
}

# finish - wait for what begin started; prints its output; sets STATUS and TOOK,
# milliseconds since NOW
finish() {
    wait "$BEGUN"
    cat out
    STATUS=$(sed -n 's/^status \([0-9]*\) at .*/\1/p' out)
    TOOK=$((($(sed -n 's/^status .* at //p' out) - NOW) / 1000000))
    echo "took $TOOK ms"
}

mark() {
    NOW=$(date +%s%N)
}

all_idle() {
    nodes_idle && [ -z "$(squeue -h)" ]
}

# well - everything is idle again, and the next job on both nodes is served
well() {
    wait_for 90 all_idle
    run_srun -Q -N2 --rv-gpu=4 sh -c 'echo $RANK $SLURMD_NODENAME'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0 n1
1 n1
2 n2
3 n2" ]
    wait_for 60 all_idle
}

# stepd_of PID - the slurmstepd above a rank
stepd_of() {
    local pid=$1
    until grep -q '^slurmstepd' "/proc/$pid/comm"; do
        pid=$(awk '{print $4}' <(sed 's/([^)]*)//' "/proc/$pid/stat" | awk '{print $1, "x", $2, $3}'))
        [ "$pid" -gt 1 ] || return 1
    done
    echo "$pid"
}

# ---- slurmd ----

@test "slurmd killed under a job: the job does not notice" {
    begin 4 srun -N2 --rv-gpu=4 "$RV_EXEC" sh -c "$rank echo rank \$RANK"
    kill -9 "$(daemon n1)"
    wait_for 60 gone "$(daemon n1)"
    touch go
    mark
    finish
    [ "$STATUS" = 0 ]
    [ "$(grep '^rank' out | sort | tr '\n' ' ')" = "rank 0 rank 1 rank 2 rank 3 " ]
    restart n1
    well
}

@test "slurmd killed and a rank fails: named once, its status, nothing stays" {
    begin 4 srun -N2 --rv-gpu=4 "$RV_EXEC" sh -c \
        "$rank [ \$RANK != 2 ] || exit 7; exec sleep 600"
    kill -9 "$(daemon n1)"
    wait_for 60 gone "$(daemon n1)"
    touch go
    mark
    finish
    # Slurm cannot signal n1's ranks now; srun gives up KillWait later.
    [ "$STATUS" = 7 ]
    [ "$(grep -c "^rv.*ended with exit status 7" out)" = 1 ]
    grep -q "^rv\[rank 2 on n2\]" out
    [ "$TOOK" -lt "$(loaded 30000)" ]
    restart n1
    for r in 0 1 2 3; do wait_for 60 gone "$(cat pid.$r)"; done
    well
}

# ---- slurmctld ----

@test "slurmctld stopped and started under rv run -f and logs -f: followed to its end (NVIDIA/cloudai#973, fls-bioinformatics-core/auto_process_ngs#1182)" {
    begin 4 "$RV" run -f -g 4 -- sh -c "$rank echo rank; [ \$RANK != 1 ] || exit 7; exec sleep 600"
    "$RV" logs -f --no-label </dev/null >logs.out 2>logs.err 3>&- &
    logs=$!
    kill "$(daemon slurmctld)"
    wait_for 60 gone "$(daemon slurmctld)"
    run_cmd "$RV" ps
    [ "$status" = 3 ]
    wait_for 60 grep -q "still following" out
    wait_for 60 grep -q "still following" logs.err
    restart slurmctld
    running() { "$RV" ps | grep -q RUNNING; }
    wait_for 60 running
    touch go
    mark
    finish
    [ "$STATUS" = 7 ]
    grep -q "rank 1 on n1 .* status 7" out
    [ "$TOOK" -lt "$(loaded 30000)" ]
    wait_for 30 gone "$logs"
    wait "$logs"
    [ "$(cat logs.out)" = "$(printf 'rank\n%.0s' 1 2 3 4)" ]
    ! cat out logs.err | grep "not known" || false
    well
}

@test "slurmctld killed, its state saved: srun's job goes on" {
    touch begun
    begin 4 srun -N2 --rv-gpu=4 "$RV_EXEC" sh -c "$rank [ \$RANK != 3 ] || exit 9; exec sleep 600"
    touch running
    saved() { [ "$SANDBOX/state/job_state" -nt running ]; }
    wait_for 60 saved
    kill -9 "$(daemon slurmctld)"
    wait_for 60 gone "$(daemon slurmctld)"
    touch go
    # The rank's end is told without a controller; the step's end needs one.
    wait_for 60 grep -q "rank 3 on n2.* status 9" out
    restart slurmctld
    mark
    finish
    [ "$STATUS" = 9 ]
    for r in 0 1 2 3; do wait_for 60 gone "$(cat pid.$r)"; done
    well
}

# ---- slurmstepd ----

@test "slurmstepd killed: no rank outlives it, the step ends, srun fails" {
    begin 4 srun -N2 --rv-gpu=4 "$RV_EXEC" sh -c \
        "$rank [ \$RANK -lt 2 ] || exec sleep 600; trap '' TERM; sleep 600; sleep 600"
    touch go
    victim=$(stepd_of "$(cat pid.0)")
    kill -9 "$victim"
    mark
    # Its own ranks, which ignore SIGTERM, and those of the other node.
    for r in 0 1 2 3; do wait_for 60 gone "$(cat pid.$r)"; done
    [ $((($(date +%s%N) - NOW) / 1000000)) -lt "$(loaded 15000)" ]
    finish
    [ "$STATUS" != 0 ]
    [ "$STATUS" != 124 ]
    well
}

@test "slurmstepd killed under rv run: rank, node and why" {
    begin 4 "$RV" run -f -g 4 -- sh -c "$rank exec sleep 600"
    touch go
    kill -9 "$(stepd_of "$(cat pid.0)")"
    mark
    for r in 0 1 2 3; do wait_for 60 gone "$(cat pid.$r)"; done
    finish
    [ "$STATUS" != 0 ]
    [ "$STATUS" != 124 ]
    grep -Eq "rank [01] on n1 .*slurmstepd ended under this rank" out
    well
}

@test "the batch step's slurmstepd killed: its ranks end with it" {
    begin 4 "$RV" run -g 4 -- sh -c "$rank exec sleep 600"
    finish
    touch go
    step=$(stepd_of "$(cat pid.0)")
    batch=$(for p in $(holders "$SANDBOX"); do
        [ "$p" = "$step" ] || tr '\0' ' ' <"/proc/$p/cmdline" | grep -q '^slurmstepd: .*batch' && echo "$p"
    done | grep -vx "$step")
    echo "step $step, batch $batch"
    kill -9 $batch
    for r in 0 1 2 3; do wait_for 60 gone "$(cat pid.$r)"; done
    "$RV" stop -a || true
    well
}

# ---- rv.conf ----

@test "rv.conf that others may write, or that is no file: refused, no node minds" {
    conf=$RVT/site.conf
    before=$(cat "$SANDBOX/plugstack.conf")
    echo "$before conf=$conf" >"$SANDBOX/plugstack.conf"
    printf '[gpu a100]\ngres = gpu:a100\n' >"$conf"
    chmod 644 "$conf"
    run_srun -Q -N1 --rv-gpu=a100:2 sh -c 'echo $RANK'
    [ "$(sort <<<"$output")" = "0
1" ]
    for bad in 'chmod 646 $conf' 'chmod 664 $conf' 'rm $conf; mkfifo $conf' 'rm $conf; mkdir $conf' \
        'rmdir $conf; ln -s /dev/zero $conf'; do
        eval "$bad"
        run_srun -Q -N1 --rv-gpu=a100:2 true
        [ "$status" = 1 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output == *"cannot read rv.conf: $conf: "* ]]
        # Who asks nothing of us is not stopped, and slurmstepd reads no such file.
        run_srun -Q -N2 --gres=gpu:1 true
        [ "$status" = 0 ]
    done
    rm -f "$conf"
    echo "$before" >"$SANDBOX/plugstack.conf"
    well
}

# with_conf UID CHANGE COMMAND... - run_cmd as that user, who sees, alone, a
# site's rv.conf that is well but for CHANGE
with_conf() {
    run_cmd unshare -m sh -ec 'mount --make-rprivate / 2>/dev/null || true
        mount -t tmpfs -o mode=755 none "$1"
        cd "$1"
        printf "[gpu a100]\ngres = gpu:a100\n" >rv.conf
        chmod 644 rv.conf
        eval "$2"
        cd "$3"
        uid=$4
        shift 4
        exec setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"' \
        sh "$SITE" "$2" "$RVT/u" "$1" env -u XDG_RUNTIME_DIR -u XDG_STATE_HOME \
        HOME="$RVT/u" PATH="$RVT/bin:/usr/bin:/bin" "${@:3}"
}

# conf_refused UID CHANGE WHY - all that need the file say one line and do
# nothing, and others do not need it
conf_refused() {
    local words
    for words in 'srun --rv-gpu=a100:2 true' 'sbatch --rv-gpu=a100:1 --wrap true' 'rv run -g 1 -- true'; do
        with_conf "$1" "$2" $words
        [ "$status" = 1 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output == "rv: cannot "*"$SITE/rv.conf: $3"* ]]
    done
    with_conf "$1" "$2" srun -Q --gres=gpu:1 true
    [ "$status" = 0 ]
    [ -z "$output" ]
}

@test "the site's rv.conf unreadable for a plain user, or not to be believed: one line" {
    [ "$(id -u)" = 0 ] || skip "becomes another user, needs root"
    unshare -m mount -t tmpfs none /mnt 2>/dev/null || skip "no mounts here"
    mkdir "$RVT/bin" "$RVT/u"
    chmod 755 "$RVT"
    cp -L "$RV" "$RV_EXEC" "$RV_BUILD/spank_rv.so" "$RVT/bin/"
    chown 65534:65534 "$RVT/u"
    SITE=$(grep -aom1 '/[^[:cntrl:]]*/rv/rv\.conf' "$RV")
    SITE=${SITE%/rv.conf}
    mkdir -p "$SITE"
    export SLURM_CONF=$RVT/u/s/slurm.conf
    with_conf 65534 : rv sandbox up --dir "$RVT/u/s"
    [ "$status" = 0 ]
    with_conf 65534 : srun -Q --rv-gpu=a100:2 sh -c 'echo $RANK'
    [ "$(sort <<<"$output")" = "0
1" ]
    with_conf 65534 : rv run -f -g 1 -- true
    [ "$status" = 0 ]
    jobs=$(scontrol show jobs -o | grep -c JobId=)
    conf_refused 65534 'chmod 600 rv.conf' 'permission denied; '
    conf_refused 65534 'chmod 700 .' 'permission denied; '
    conf_refused 65534 'chmod 646 rv.conf' 'writable by group or others; '
    conf_refused 65534 'chown 65533 rv.conf' 'owned by uid 65533; '
    with_conf 65534 'chmod 600 rv.conf' rv doctor
    [ "$status" = 1 ]
    grep -q "^FAIL *settings .*$SITE/rv.conf: permission denied; " <<<"$output"
    [ $(($(scontrol show jobs -o | grep -c JobId=) - jobs)) = 4 ]
    with_conf 65534 : rv sandbox down --dir "$RVT/u/s"
    [ "$status" = 0 ]
    # Root's own: what others may write, or another's, never.
    export SLURM_CONF=$SANDBOX/slurm.conf
    conf_refused 0 'chmod 646 rv.conf' 'writable by group or others; '
    conf_refused 0 'chown 65534 rv.conf' 'owned by uid 65534; '
    rmdir "$SITE" 2>/dev/null || true
}

# ---- full file systems ----

# fill FOLDER - of n1, to its last byte; only where it is a small one
fill() {
    local pid
    pid=$(daemon n1)
    mounted() { nsenter -t "$pid" -m stat -fc %T "$1" | grep -qx tmpfs; }
    wait_for 30 mounted "$1"
    wait_for 60 nodes_idle n1
    nsenter -t "$pid" -m sh -c 'head -c 32M /dev/zero >"$1/fill"; [ "$(df --output=avail "$1" | tail -n 1)" -eq 0 ]' sh "$1" 2>/dev/null
}

empty() {
    nsenter -t "$(daemon n1)" -m rm "$1/fill"
}

small_folders() {
    [ "$(id -u)" = 0 ] || skip "mounts a small file system, needs root"
    unshare -m mount -t tmpfs none /mnt 2>/dev/null || skip "no mounts here"
}

# Before those that give slurmd mounts of its own, and so not ours.
@test "a full state folder: the command's status is rv's all the same" {
    local s
    small_folders
    cat >"$RVT/in-little" <<'X'
#!/bin/sh
# in-little FOLDER STATUS - rv run in a state folder that its command fills
mount -t tmpfs -o size=600k,mode=755 none "$1" || exit
trap 'umount -l "$1"' EXIT
XDG_STATE_HOME=$1 "$RV" run -f -g 1 -- sh -c "head -c 5000000 /dev/zero | tr '\\0' '\\n'; exit $2" >/dev/null
X
    mkdir "$RVT/little"
    for s in 0 7; do
        run_cmd sh "$RVT/in-little" "$RVT/little" $s
        [ "$status" = $s ]
        [[ $output == *" ended with status $s, but could not note how: its folder is full, or was not there" ]]
    done
    well
}

@test "a full TmpFS: jobs run" {
    small_folders
    kill -9 "$(daemon n1)"
    wait_for 60 gone "$(daemon n1)"
    restart n1 "$SANDBOX/n1/tmp"
    fill "$SANDBOX/n1/tmp"
    # PMIx 5 keeps what slurmstepd tells its clients in files there: slurmstepd
    # dies of any step with PMIx, before a program of ours could help it.
    case $(srun --mpi=list 2>&1) in
    *pmix_v5*) mpi=none ;;
    *) mpi=pmix ;;
    esac
    run_srun -Q -N2 --rv-gpu=4 --mpi=$mpi "$RV_EXEC" sh -c 'echo $RANK $LOCAL_RANK'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output" | tr '\n' ,)" = "0 0,1 1,2 0,3 1," ]
    if [ $mpi = pmix ]; then
        run_cmd "$RV" run -f -g 4 -- sh -c 'exit $((8 * (RANK == 3)))'
        [ "$status" = 8 ]
    fi
    empty "$SANDBOX/n1/tmp"
    well
}

@test "a full spool: nothing hangs, and what Slurm drains is well once there is room" {
    small_folders
    # Slurm itself drains the node, so this is not the suite's sandbox.
    run_cmd "$RV" sandbox up --dir "$RVT/full" --nodes 2 --gpus 4 --cpus 2
    [ "$status" = 0 ]
    export SANDBOX=$RVT/full SLURM_CONF=$RVT/full/slurm.conf
    kill -9 "$(daemon n1)"
    wait_for 60 gone "$(daemon n1)"
    restart n1 "$SANDBOX/n1/spool"
    fill "$SANDBOX/n1/spool"
    # 22.05 has no room for the step, 24.11 has, but none for a batch script.
    RVT_TIMEOUT=120 run_srun -Q -N2 --rv-gpu=4 "$RV_EXEC" true
    [ "$status" != 124 ]
    if [ "$status" = 0 ]; then
        sbatch -o /dev/null -w n1 --wrap true
    fi
    drained() { sinfo -hN -n n1 -o '%T %E' | grep -q "drain.*SlurmdSpoolDir is full"; }
    wait_for 60 drained
    kill -0 "$(daemon n1)"
    empty "$SANDBOX/n1/spool"
    scancel -u "$(id -un)"
    scontrol update nodename=n1 state=resume
    well
    run_cmd "$RV" sandbox down --dir "$RVT/full"
    [ "$status" = 0 ]
}

# ---- many submissions ----

# numbers - of slurmctld and the slurmds: resident KiB, open files, threads; and
# what lies in the spools, temporary folders, the state folder and /tmp
numbers() {
    local name pid
    for name in slurmctld n1 n2; do
        pid=$(daemon $name)
        echo "$name rss_kib $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")" \
            "fds $(find "/proc/$pid/fd" -mindepth 1 | wc -l)" \
            "threads $(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l)"
    done
    echo "files spool $(find "$SANDBOX"/n?/spool | wc -l) temp $(find "$SANDBOX"/n?/tmp | wc -l)" \
        "state $(job_files | wc -l) system $(new_in_tmp | wc -l)"
}

job_files() {
    find "$SANDBOX/state" -path '*/hash.*' -type f
}

# Other suites may run beside this one.
new_in_tmp() {
    find /tmp /dev/shm -maxdepth 1 -newer "$RVT/many.begin" \
        -regextype posix-extended -regex '.*/(rv|spmix|pmix|slurm|ompi|spank)[^/]*' \
        ! -name 'rvt.*' ! -name 'rvbench.*' ! -name '*test*' ! -name 'rv-demo*'
}

# value FILE NAME WORD - the number behind WORD in the line of NAME
value() {
    sed -n "s/^$2 .*\<$3 \([0-9]*\).*/\1/p" "$1"
}

# submit I - the ways in, in turn
submit() {
    case $(($1 % 4)) in
    0) srun -Q -N2 --rv-gpu=4 "$RV_EXEC" true ;;
    1) srun -Q -N1 --rv-gpu=1 true ;;
    2) sbatch -Q -N1 --rv-gpu=1 -o /dev/null --wrap 'srun true' ;;
    3) "$RV" run -f -g 1 -- true ;;
    esac </dev/null >>many.log 2>&1
}

# stepd_fds OPTION - the least of five, without the connections, which come and go
stepd_fds() {
    for i in 1 2 3 4 5; do
        srun -Q -N1 -n1 "$1" sh -c 'ls -l /proc/$PPID/fd | grep -vc socket:'
    done | sort -n | head -n 1
}

@test "submissions in a row leak no file, descriptor or memory" {
    n=40
    [ -z "${RV_TEST_LONG:-}" ] || n=1000
    # Slurm forgets ended jobs soon, and their scripts with them.
    sed -i 's/^KillWait=.*/&\nMinJobAge=2/' "$SLURM_CONF"
    scontrol reconfigure
    touch many.begin
    rm -rf state
    plain=$(stepd_fds --gres=gpu:1)
    for ((i = 0; i < n; i++)); do
        submit "$i" || { tail many.log; false; }
        # Caches and arenas fill at first.
        [ "$i" != $((n / 5)) ] || numbers >first
        [ -z "${RV_TEST_LONG:-}" ] || [ $((i % 100)) != 0 ] || numbers | sed "s/^/# $i: /" >&3
    done
    ours=$(stepd_fds --rv-gpu=1)
    settled() {
        job_files
        all_idle && [ -z "$(job_files)" ] && return
        # slurmctld's thread that removes files can miss that there are some (seen
        # with 24.11.5): the next job that it forgets wakes it.
        [ -n "$(find nudge -newermt '30 seconds ago')" ] || { touch nudge && srun -Q -N1 true </dev/null; }
        return 1
    }
    touch nudge
    # slurmctld asks again for the end of a job whose last message was lost.
    wait_for 300 settled
    numbers >last
    paste -d'\n' first last | sed 's/^/# /' >&3
    echo "# slurmstepd's open files: $plain without an option of ours, $ours with" >&3
    [ "$ours" -le $((plain + 1)) ]
    for name in slurmctld n1 n2; do
        [ "$(value last $name fds)" -le $(($(value first $name fds) + 2)) ]
        [ "$(value last $name threads)" -le $(($(value first $name threads) + 2)) ]
    done
    for name in n1 n2; do
        [ "$(value last $name rss_kib)" -le $(($(value first $name rss_kib) + 1024)) ]
    done
    [ "$(value last files spool)" = "$(value first files spool)" ]
    [ "$(value last files temp)" = "$(value first files temp)" ]
    # Another suite's goes with its job.
    none_new() {
        new_in_tmp
        [ -z "$(new_in_tmp)" ]
    }
    wait_for 60 none_new
    # Each rv run leaves the same files, and no other.
    (cd state/rv/requests && for r in *; do
        find "$r" -type f | sed "s|^$r||; s|[0-9][0-9]*|N|g" | sort | tr '\n' ' '
        echo
    done) | sort | uniq -c | tee kinds
    [ "$(wc -l <kinds)" = 1 ]
    [ "$(awk '{print $1}' kinds)" = $((n / 4)) ]
}
