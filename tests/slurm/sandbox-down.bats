# SPDX-License-Identifier: Apache-2.0
# sandbox-down.bats - rv sandbox: nothing stays behind, whatever happened
# shellcheck disable=SC2016 # programs of tasks stand in single quotes

load lib

setup_file() {
    require_slurm || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    unset "${!SLURM_@}" "${!SBATCH_@}" "${!SRUN_@}" "${!PMIX_@}"
    RVT=$(short_dir)
    export RVT S=$RVT/s
}

teardown_file() {
    [ -n "${RVT:-}" ] || return 0
    "$RV" sandbox down --dir "$S" && rm -rf "$RVT"
}

setup() {
    skip_without_slurm
}

teardown() {
    [ -z "${S:-}" ] || "$RV" sandbox down --dir "$S"
}

up() {
    run_cmd "$RV" sandbox up --dir "$S" --nodes 2 --gpus 4 --cpus 2
    [ "$status" = 0 ]
    export SLURM_CONF=$S/slurm.conf
}

down() {
    run_cmd "$RV" sandbox down --dir "$S"
    [ "$status" = 0 ]
    nothing_left
}

# pids - the recorded daemons' process ids
pids() {
    /usr/bin/python3 -c 'import json, sys
for d in json.load(open(sys.argv[1]))["daemons"]: print(d["pid"])' "$S/sandbox.json"
}

pid_of() {
    /usr/bin/python3 -c 'import json, sys
for d in json.load(open(sys.argv[1]))["daemons"]:
    if d["name"] == sys.argv[2]: print(d["pid"])' "$S/sandbox.json" "$1"
}

# nothing_left - no folder, and no process that holds on to it. What was found
# is printed.
nothing_left() {
    local left
    [ ! -e "$S" ] || { ls -laR "$S"; return 1; }
    left=$(holders "$S")
    # shellcheck disable=SC2086 # ids are words
    [ -z "$left" ] || { ps -o pid,stat,args $left; return 1; }
}

@test "down ends every daemon it recorded and removes the folder" {
    up
    all=$(pids)
    [ "$(wc -w <<<"$all")" = 4 ]
    for p in $all; do alive "$p"; done
    down
    for p in $all; do gone "$p"; done
    run_cmd "$RV" sandbox down --dir "$S"
    [ "$status" = 0 ]
}

@test "no device node is made" {
    up
    [ -z "$(find "$S" -type b -o -type c)" ]
    [ "$(find -L "$S"/n1/dev -type c | wc -l)" = 2 ]
    down
    [ -c /dev/null ]
}

@test "down ends running steps, stubborn tasks and those that ran away" {
    up
    # Ignores SIGTERM, in a session of its own, with an empty environment.
    cat >"$RVT/stubborn" <<'X'
#!/bin/bash
trap '' TERM INT HUP
setsid env -i /bin/sleep 600 &
echo $! >>"$1/pids"
setsid -f sh -c 'echo $$ >>"$1/pids"; exec sleep 600' sh "$1"
echo $$ >>"$1/pids"
touch "$1/up$SLURM_PROCID"
while :; do sleep 600; done
X
    chmod +x "$RVT/stubborn"
    srun -N2 -n2 "$RVT/stubborn" "$RVT" </dev/null >"$RVT/srun.log" 2>&1 3>&- &
    client=$!
    sbatch -N1 -n1 -o /dev/null --wrap 'sleep 600' </dev/null
    six() { [ "$(wc -l <"$RVT/pids")" = 6 ]; }
    wait_for 60 six
    steps=$(for p in $(holders "$S"); do
        ! grep -q '^slurmstepd' "/proc/$p/cmdline" || echo "$p"
    done)
    [ "$(wc -w <<<"$steps")" -ge 2 ]
    tasks=$(cat "$RVT/pids")
    for p in $tasks $steps; do alive "$p"; done
    down
    for p in $tasks $steps; do gone "$p"; done
    gone "$client"
}

@test "a shell that merely uses the sandbox survives down" {
    up
    (
        eval "$("$RV" sandbox env --dir "$S")"
        exec sleep 600
    ) 3>&- &
    shell=$!
    tail -f "$S/log/slurmctld.log" >/dev/null 3>&- &
    reader=$!
    run_cmd "$RV" sandbox down --dir "$S"
    [ "$status" = 0 ]
    alive "$shell"
    alive "$reader"
    kill "$shell" "$reader"
}

@test "slurmctld killed: status says broken, the next up cleans" {
    up
    all=$(pids)
    kill -9 "$(pid_of slurmctld)"
    wait_for 60 gone "$(pid_of slurmctld)"
    run_cmd "$RV" sandbox status --dir "$S"
    [ "$status" = 3 ]
    [[ $output == *"broken, 'rv sandbox up --dir $S' or 'down' cleans it"* ]]
    run_cmd "$RV" sandbox env --dir "$S"
    [ "$status" = 3 ]
    [[ $output == *slurmctld* ]]
    up
    for p in $all; do gone "$p"; done
    run_srun -N2 -n2 hostname
    [ "$status" = 0 ]
    down
}

@test "any daemon killed, jobs running: down cleans" {
    for name in munged n1 slurmctld; do
        up
        all=$(pids)
        rm -f "$RVT/task"
        srun -N1 sh -c "echo \$\$ >$RVT/task; exec sleep 600" </dev/null >/dev/null 2>&1 3>&- &
        client=$!
        wait_for 60 test -s "$RVT/task"
        kill -9 "$(pid_of $name)"
        down
        for p in $all $(cat "$RVT/task"); do gone "$p"; done
        gone "$client"
    done
}

@test "up killed at any moment: the next down or up cleans" {
    moments='3 10 20 40 80 150'
    [ -z "${RV_TEST_LONG:-}" ] || moments=$(seq 1 2 300)
    for ms in $moments; do
        "$RV" sandbox up --dir "$S" >/dev/null 2>&1 3>&- &
        victim=$!
        sleep "$(printf '0.%03d' $ms)"
        kill -9 "$victim" 2>/dev/null || true
        wait "$victim" || true
        if [ $((ms % 20)) = 0 ]; then
            up
            run_srun -N2 -n2 true
            [ "$status" = 0 ]
        fi
        # A folder without its mark is empty: nobody's, and left alone.
        if [ -d "$S" ] && [ -z "$(ls -A "$S")" ]; then rmdir "$S"; fi
        down
    done
}

@test "up stopped by a signal leaves nothing and says so" {
    for sig in INT TERM HUP; do
        # Where up was done before the signal came, it is tried again.
        for _ in 1 2 3 4 5 6 7 8; do
            # bash starts background jobs with SIGINT ignored: let python undo it
            /usr/bin/python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$RV" sandbox up --dir "$S" --nodes 8 >"$RVT/out" 2>&1 3>&- &
            victim=$!
            wait_for 60 test -s "$S/sandbox.json"
            kill -s $sig "$victim" 2>/dev/null || true
            s=0
            wait "$victim" || s=$?
            cat "$RVT/out"
            [ "$s" = 0 ] || break
            down
        done
        [ "$s" = 130 ]
        grep -q "stopped by" "$RVT/out"
        nothing_left
    done
}

@test "down killed half-way: the next down goes on" {
    for ms in 2 10 25; do
        up
        "$RV" sandbox down --dir "$S" >/dev/null 2>&1 3>&- &
        victim=$!
        sleep "$(printf '0.%03d' $ms)"
        kill -9 "$victim" 2>/dev/null || true
        wait "$victim" || true
        down
    done
}

@test "a recorded id that is another's now is not signalled" {
    up
    sleep 600 3>&- &
    innocent=$!
    # The id alone; then the id with its right start time.
    for start in keep right; do
        /usr/bin/python3 - "$S/sandbox.json" "$innocent" "$start" <<'X'
import json, os, sys
path, pid, start = sys.argv[1], int(sys.argv[2]), sys.argv[3]
d = json.load(open(path))
for daemon in d["daemons"]:
    daemon["pid"] = pid
    if start == "right":
        daemon["start_time"] = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
json.dump(d, open(path + ".new", "w"))
os.rename(path + ".new", path)
X
        run_cmd "$RV" sandbox status --dir "$S"
        [ "$status" = 3 ]
    done
    # The daemons are found by the files they have open all the same.
    down
    alive "$innocent"
    kill "$innocent"
}

@test "a damaged record: down still finds its processes" {
    up
    all=$(pids)
    echo '{' >"$S/sandbox.json"
    down
    for p in $all; do gone "$p"; done
    up
    all=$(pids)
    rm "$S/sandbox.json"
    down
    for p in $all; do gone "$p"; done
}

@test "up that cannot work leaves nothing and tells why" {
    [ "$(id -u)" = 0 ] || skip "hides a file by a mount, needs root"
    unshare -m true 2>/dev/null || skip "no mount namespaces here"
    printf '#!/bin/sh\necho "slurmd: fatal: no luck today" >&2\nexit 3\n' >"$RVT/slurmd"
    chmod +x "$RVT/slurmd"
    slurmd=$(readlink -f "$(PATH=$PATH:/usr/sbin command -v slurmd)")
    run_cmd unshare -m sh -c 'mount --bind "$1" "$2" && exec "$3" sandbox up --dir "$4"' \
        sh "$RVT/slurmd" "$slurmd" "$RV" "$S"
    [ "$status" = 1 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"status 3"*"no luck today"* ]]
    nothing_left
}
