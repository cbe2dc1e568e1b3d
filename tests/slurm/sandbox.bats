# SPDX-License-Identifier: Apache-2.0
# sandbox.bats - rv sandbox: what it is, up, down, side by side, plain user
# shellcheck disable=SC2016 # programs of tasks stand in single quotes

load lib

setup_file() {
    t0=$(date +%s%N)
    sandbox_up --nodes 2 --gpus 4 --cpus 2
    t1=$(date +%s%N)
    export UP_MS=$(((t1 - t0) / 1000000))
}

teardown_file() {
    sandbox_down
}

json() {
    /usr/bin/python3 -c "import json, sys; d = json.load(sys.stdin); print(($1))"
}

# ---- what one is ----

@test "up takes well under ten seconds" {
    echo "# rv sandbox up and env took $UP_MS ms" >&3
    # A busy machine gets a second try.
    if [ "$UP_MS" -ge 10000 ]; then
        UP_MS=$(date +%s%N)
        "$RV" sandbox up --dir "$RVT/again" --nodes 2 --gpus 4 --cpus 2
        UP_MS=$((($(date +%s%N) - UP_MS) / 1000000))
        "$RV" sandbox down --dir "$RVT/again"
    fi
    [ "$UP_MS" -lt 10000 ]
}

@test "srun -N2 -n4 places two tasks a node" {
    run_srun -N2 -n4 sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0 n1
1 n1
2 n2
3 n2" ]
}

@test "PMIx is the default where Slurm has it" {
    srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no PMIx plugin"
    run_srun -N2 -n2 sh -c 'echo $PMIX_RANK'
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "0
1" ]
}

@test "gres sets CUDA_VISIBLE_DEVICES on every node" {
    run_srun -N2 --ntasks-per-node=1 --gres=gpu:a100:2 \
        sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'
    [ "$(sort <<<"$output")" = "n1 0,1
n2 0,1" ]
    run_srun -N1 --gres=gpu:1 sh -c 'echo $CUDA_VISIBLE_DEVICES'
    [ "$output" = 0 ]
}

@test "two jobs on a node get different GPUs" {
    # The first holds its GPU until the second has told.
    srun -w n1 -c1 --gres=gpu:1 sh -c \
        "echo \$CUDA_VISIBLE_DEVICES >$RVT/a; until [ -e $RVT/b ]; do sleep 0.05; done" \
        </dev/null 3>&- &
    first=$!
    wait_for 60 test -s "$RVT/a"
    run_srun -w n1 -c1 --gres=gpu:1 sh -c 'echo $CUDA_VISIBLE_DEVICES'
    second=$output
    touch "$RVT/b"
    wait "$first"
    [ "$(cat "$RVT/a")" = 0 ]
    [ "$second" = 1 ]
}

@test "an unknown GPU type is refused" {
    run_srun -N1 --gres=gpu:h100:1 true
    [ "$status" != 0 ]
}

@test "the folder is the owner's alone" {
    [ "$(stat -c %a "$SANDBOX")" = 700 ]
    [ "$(stat -c %u "$SANDBOX")" = "$(id -u)" ]
    [ "$(stat -c %a "$SANDBOX/munge.key")" = 400 ]
}

# listening PID... - local addresses, as /proc/net/tcp has them, that these
# processes listen on
listening() {
    /usr/bin/python3 - "$@" <<'X'
import os
import sys

inodes = set()
for pid in sys.argv[1:]:
    for n in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{n}"))
        except OSError:
            pass
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in list(open(table))[1:] if os.path.exists(table) else ():
        word = line.split()
        if word[3] == "0A" and f"socket:[{word[9]}]" in inodes:
            print(word[1])
X
}

@test "everything listens on loopback alone" {
    srun -N2 -n2 sh -c "touch $RVT/up\$SLURM_PROCID; until [ -e $RVT/done ]; do sleep 0.05; done" \
        </dev/null 3>&- &
    client=$!
    wait_for 60 test -e "$RVT/up0" -a -e "$RVT/up1"
    # shellcheck disable=SC2046 # ids are words
    found=$(listening $(holders "$SANDBOX"))
    own=$(listening "$client")
    touch "$RVT/done"
    wait "$client"
    echo "daemons and steps: $found; srun: $own"
    # slurmctld, two slurmd, two steps at least; 0100007F is 127.0.0.1
    [ "$(wc -l <<<"$found")" -ge 5 ]
    [ -n "$own" ]
    for address in $found $own; do
        [[ $address == 0100007F:* ]]
    done
}

@test "status tells, with --json too" {
    run_cmd "$RV" sandbox status --dir "$SANDBOX"
    [ "$status" = 0 ]
    [[ $output == *": up"* ]]
    run_cmd "$RV" sandbox status --dir "$SANDBOX" --json
    [ "$(json 'd["schema"], d["state"], d["nodes"], d["gpus"], d["gpu_type"],
        [x["name"] for x in d["daemons"]], all(x["alive"] for x in d["daemons"])' \
        <<<"$output")" = \
        "('rv.sandbox/1', 'up', 2, 4, 'a100', ['munged', 'slurmctld', 'n1', 'n2'], True)" ]
}

@test "env is what a shell takes, and finds rv" {
    run_cmd "$RV" sandbox env --dir "$SANDBOX"
    [ "${#lines[@]}" = 1 ]
    (
        unset SLURM_CONF
        PATH=/usr/bin:/bin
        eval "$output"
        [ "$SLURM_CONF" = "$SANDBOX/slurm.conf" ]
        [ "$(command -v rv)" = "$RV" ]
    )
    # A second eval does not make PATH longer.
    eval "$output"
    run_cmd "$RV" sandbox env --dir "$SANDBOX"
    [ "${PATH#"$RV_BUILD:$RV_BUILD"}" = "$PATH" ]
}

@test "up a second time changes nothing and succeeds" {
    before=$(cat "$SANDBOX/sandbox.json")
    run_cmd "$RV" sandbox up --dir "$SANDBOX"
    [ "$status" = 0 ]
    [[ $output == *"was up already"* ]]
    run_cmd "$RV" sandbox up --dir "$SANDBOX" --nodes 2 --gpus 4 --type a100
    [ "$status" = 0 ]
    [ "$before" = "$(cat "$SANDBOX/sandbox.json")" ]
    run_cmd "$RV" sandbox up --dir "$SANDBOX" --nodes 3
    [ "$status" = 5 ]
    [[ $output == *"another shape"*"'rv sandbox down --dir $SANDBOX'"* ]]
    [ "$before" = "$(cat "$SANDBOX/sandbox.json")" ]
}

@test "a job cannot take its own sandbox down" {
    run_srun -N1 "$RV" sandbox down --dir "$SANDBOX"
    [ "$status" = 1 ]
    [[ $output == *"one of its own jobs"* ]]
    run_srun -N1 true
    [ "$status" = 0 ]
}

# ---- words ----

@test "wrong options are refused with one line" {
    while IFS='|' read -r want options; do
        # shellcheck disable=SC2086 # words on purpose
        run_cmd "$RV" sandbox $options --dir "$RVT/x"
        [ "$status" = "$want" ]
        [ "${#lines[@]}" = 1 ]
        [[ ${lines[0]} == "rv: "* ]]
        [ ! -e "$RVT/x" ]
    done <<'X'
2|
2|ip
2|up down
2|up --nodes
2|up --nodes 0
2|up --nodes 2x
2|up --nodes 65
2|up --gpus -1
2|up --gpus 1.5
2|up --type a:b
2|up --type
2|up --frob
2|down --nodes 2
2|env --gpus 4
2|up --mig x
X
    run_cmd "$RV" sandbox status --dir "$RVT/no/such"
    [ "$status" = 1 ]
    run_cmd "$RV" sandbox up --dir "/tmp/$(printf '%080d' 1)"
    [ "$status" = 1 ]
    [[ $output == *"longer than"* ]]
    run_cmd "$RV" sandbox up --dir "$RVT/a b"
    [ "$status" = 1 ]
    [ ! -e "$RVT/a b" ]
}

@test "an unknown command names the nearest and those there are" {
    run_cmd "$RV" snadbox
    [ "$status" = 2 ]
    [[ $output == *"did you mean 'sandbox'?"* ]]
    run_cmd "$RV" frobnicate
    [ "$status" = 2 ]
    [[ $output == *"this version has: "*sandbox* ]]
    run_cmd "$RV"
    [ "$status" = 2 ]
    run_cmd "$RV" --frob sandbox
    [ "$status" = 2 ]
    run_cmd "$RV" --json nothing
    [ "$status" = 2 ]
    [ "$(json 'd["schema"], d["status"]' <<<"$output")" = "('rv.error/1', 2)" ]
    run_cmd "$RV" --version
    [ "$status" = 0 ]
    [[ $output == *"rv "*"slurm "*"pmix "*"cuda "*"nccl "* ]]
}

@test "where none is up: status 3, env 3, --sandbox 3, down is content" {
    run_cmd "$RV" sandbox status --dir "$RVT/none"
    [ "$status" = 3 ]
    run_cmd "$RV" sandbox status --dir "$RVT/none" --json
    [ "$status" = 3 ]
    [ "$(json 'd["state"], d["nodes"], d["daemons"]' <<<"$output")" = "('down', None, [])" ]
    run_cmd "$RV" sandbox env --dir "$RVT/none"
    [ "$status" = 3 ]
    [[ $output == *"'rv sandbox up --dir $RVT/none'"* ]]
    run_cmd "$RV" --sandbox="$RVT/none" sandbox status
    [ "$status" = 3 ]
    [[ $output == *"'rv sandbox up --dir $RVT/none'"* ]]
    run_cmd "$RV" sandbox down --dir "$RVT/none"
    [ "$status" = 0 ]
    [ ! -e "$RVT/none" ]
}

@test "a folder with other files in it is left alone" {
    mkdir "$RVT/mine"
    echo precious >"$RVT/mine/file"
    for verb in up down env; do
        run_cmd "$RV" sandbox $verb --dir "$RVT/mine"
        [ "$status" != 0 ]
        [[ $output == *"holds other files"* ]]
        [ "$(ls -A "$RVT/mine")" = file ]
    done
}

@test "no plugin is an error, unless it is not wanted" {
    mkdir "$RVT/bin"
    cp "$RV" "$RVT/bin/rv"
    run_cmd "$RVT/bin/rv" sandbox up --dir "$RVT/x"
    if [ "$status" = 0 ]; then
        "$RV" sandbox down --dir "$RVT/x"
        skip "a plugin is installed"
    fi
    [[ $output == *spank_rv.so* ]]
    [ ! -e "$RVT/x" ]
    run_cmd "$RVT/bin/rv" sandbox up --dir "$RVT/x" --no-plugin --nodes 1 --gpus 0
    [ "$status" = 0 ]
    SLURM_CONF=$RVT/x/slurm.conf run_srun sh -c 'echo "<$CUDA_VISIBLE_DEVICES>"'
    run_cmd "$RVT/bin/rv" sandbox down --dir "$RVT/x"
    [ "$status" = 0 ]
}

@test "a missing daemon is named with its package" {
    [ "$(id -u)" = 0 ] || skip "hides a file by a mount, needs root"
    unshare -m true 2>/dev/null || skip "no mount namespaces here"
    while read -r program package; do
        path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$program")
        run_cmd unshare -m sh -c 'mount --bind /dev/null "$1" && exec "$2" sandbox up --dir "$3"' \
            sh "$(readlink -f "$path")" "$RV" "$RVT/x"
        [ "$status" = 1 ]
        [[ $output == *"$program is not installed"*"apt install $package"* ]]
        [ ! -e "$RVT/x" ]
    done <<'X'
munged munge
slurmctld slurmctld
slurmd slurmd
srun slurm-client
X
}

# ---- side by side ----

@test "two sandboxes do not meet" {
    other=$RVT/o
    run_cmd "$RV" sandbox up --dir "$other" --nodes 3 --gpus 5 --type h100
    [ "$status" = 0 ]
    [ -z "$(grep -ho 'Port=[0-9]*' "$SANDBOX/slurm.conf" "$other/slurm.conf" | sort | uniq -d)" ]
    run_srun -N2 true
    [ "$status" = 0 ]
    SLURM_CONF=$other/slurm.conf run_srun -N3 --ntasks-per-node=1 --gres=gpu:h100:1 \
        sh -c 'echo $SLURMD_NODENAME'
    [ "$(sort <<<"$output" | tr '\n' ' ')" = "n1 n2 n3 " ]
    # Credentials of one are worth nothing to the other.
    sed "s|AuthInfo=.*|AuthInfo=socket=$SANDBOX/munge.socket|" "$other/slurm.conf" >"$RVT/crossed.conf"
    SLURM_CONF=$RVT/crossed.conf run_srun -N1 true
    [ "$status" != 0 ]
    run_cmd "$RV" sandbox down --dir "$other"
    [ "$status" = 0 ]
    [ -z "$(holders "$other")" ]
    run_srun -N2 true
    [ "$status" = 0 ]
}

# bg NAME ARG... - rv sandbox ARG... of $both in the background; its output in
# RVT/NAME, its status as a last line behind it
bg() {
    (
        s=0
        "$RV" sandbox "${@:2}" --dir "$both" >"$RVT/$1" 2>&1 || s=$?
        echo "status $s" >>"$RVT/$1"
    ) 3>&- &
}

@test "ups, downs and looks at one folder at once all get their answer" {
    both=$RVT/both
    rounds=5
    [ -z "${RV_TEST_LONG:-}" ] || rounds=100
    for ((i = 0; i < rounds; i++)); do
        # One starts it, both succeed; who looks meanwhile is told the truth.
        bg up1 up --nodes 1
        bg status1 status
        bg env1 env
        bg up2 up --nodes 1
        bg status2 status --json
        wait
        (cd "$RVT" && tail -n +1 up1 up2 status1 status2 env1)
        [ "$(tail -qn 1 "$RVT/up1" "$RVT/up2" | sort -u)" = "status 0" ]
        [ "$(cat "$RVT/up1" "$RVT/up2" | grep -c "was up already")" = 1 ]
        grep -Eqx "sandbox in $both: (up|down|busy, an 'up' or 'down' is at work)" "$RVT/status1"
        grep -Eq '"state":"(up|down|busy)"' "$RVT/status2"
        grep -Eq "^export|none is up|is at work" "$RVT/env1"
        # An end and a beginning: either order is fine, an error is not.
        bg down1 down
        bg up1 up --nodes 1
        bg status1 status
        bg down2 down
        wait
        (cd "$RVT" && tail -n +1 up1 down1 down2 status1)
        [ "$(tail -qn 1 "$RVT/up1" "$RVT/down1" "$RVT/down2" | sort -u)" = "status 0" ]
        grep -Eq "^sandbox in $both: (up|down|busy)" "$RVT/status1"
        run_cmd "$RV" sandbox down --dir "$both"
        [ "$status" = 0 ]
        [ ! -e "$both" ]
    done
    [ -z "$(holders "$both")" ]
}

# ---- a plain user ----

@test "a plain user gets one too" {
    [ "$(id -u)" = 0 ] || skip "becomes another user, needs root"
    chmod 755 "$RVT"
    mkdir -p "$RVT/bin"
    cp -L "$RV" "$RV_BUILD/spank_rv.so" "$RVT/bin/"
    mkdir "$RVT/u"
    chown 65534:65534 "$RVT/u"
    as_user() {
        run_cmd setpriv --reuid=65534 --regid=65534 --clear-groups \
            env -u XDG_RUNTIME_DIR HOME="$RVT/u" PATH="$RVT/bin:/usr/bin:/bin" "$@"
    }
    cd "$RVT/u"
    as_user rv sandbox up --dir "$RVT/u/s"
    [ "$status" = 0 ]
    as_user env SLURM_CONF="$RVT/u/s/slurm.conf" srun -N2 --ntasks-per-node=1 --gres=gpu:2 \
        sh -c 'echo $(id -u) $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME'
    [ "$(sort <<<"$output")" = "65534 0,1 n1
65534 0,1 n2" ]
    as_user rv sandbox down --dir "$RVT/u/s"
    [ "$status" = 0 ]
    [ -z "$(ls -A "$RVT/u")" ]
    # Another's folder is not his.
    as_user rv sandbox down --dir "$SANDBOX"
    [ "$status" = 1 ]
}

@test "every --json object is what its schema says" {
    /usr/bin/python3 -c 'import jsonschema' 2>/dev/null ||
        skip "python3-jsonschema is not installed"
    for words in "up --dir $SANDBOX" "status --dir $SANDBOX" "env --dir $SANDBOX" \
        "status --dir $RVT/none" "down --dir $RVT/none" "env --dir $RVT/none"; do
        # shellcheck disable=SC2086 # words on purpose
        run_cmd "$RV" sandbox $words --json
        /usr/bin/python3 "$RV_SRC/tests/slurm/validate.py" "$RV_SRC/etc/schema" <<<"$output"
    done
}
