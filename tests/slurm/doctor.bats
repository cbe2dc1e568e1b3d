# SPDX-License-Identifier: Apache-2.0
# doctor.bats - rv doctor on a private Slurm: as it should be, and with nodes
# that lack the plugin, the state folder or rv-exec (NVIDIA/pyxis#84)
# shellcheck disable=SC2154 # bats' run sets status and output

load lib

setup_file() {
    sandbox_up --nodes 2 --gpus 2 --cpus 4
}

teardown_file() {
    if [ -n "${SANDBOX:-}" ] && [ -s "$SANDBOX/other.pid" ]; then
        kill "$(cat "$SANDBOX/other.pid")" 2>/dev/null || true
        wait_for 60 gone "$(cat "$SANDBOX/other.pid")"
        # Else slurmctld may have seen by now that nobody answers there.
        restart n2
    fi
    sandbox_down
}

check() { # NAME - its state
    jq -r --arg n "$1" '.checks[] | select (.name == $n) | .state' <<<"$output"
}

node() { # NAME KEY
    jq -r --arg n "$1" --arg k "$2" '.nodes[] | select (.name == $n) | .[$k]' <<<"$output"
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

registered() { # started after the log had LINES lines, and idle
    tail -n +"$(($1 + 1))" "$SANDBOX/log/n2.log" | grep -q 'slurmd started' &&
        [ "$(sinfo -h -n n2 -o %t)" = idle ]
}

# other_n2 CONF COMMAND... - COMMAND in the place of n2's slurmd, which reads
# CONF. Ends the one that is there.
other_n2() {
    local pid lines
    pid=$(cat "$SANDBOX/other.pid" 2>/dev/null || jq '.daemons[] | select (.name == "n2").pid' "$SANDBOX/sandbox.json")
    kill "$pid"
    wait_for 60 gone "$pid"
    lines=$(wc -l <"$SANDBOX/log/n2.log")
    SLURM_CONF=$1 "${@:2}" /usr/sbin/slurmd -D -N n2 -f "$1" >/dev/null 2>&1 </dev/null 3>&- &
    echo $! >"$SANDBOX/other.pid"
    wait_for 30 registered "$lines"
}

@test "all is well: status 0, every node answers" {
    run_cmd "$RV" doctor --nodes
    [ "$status" = 0 ]
    [ "$(grep -c '^ok ' <<<"$output")" = 11 ]
    [ "$(grep -c '^ok  *node n[12] .*plugin' <<<"$output")" = 2 ]
    run_cmd "$RV" doctor --json
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c '[.status, (.nodes | length), ([.checks[].state] | unique)]' <<<"$output")" = '[0,0,["ok"]]' ]
}

@test "it leaves no job, and nothing in the state folder" {
    run_cmd "$RV" doctor --nodes=n2 --json
    [ "$status" = 0 ]
    [ "$(jq -r '.nodes[].name' <<<"$output")" = n2 ]
    [ -z "$(squeue -h -t PENDING,RUNNING)" ]
    [ -z "$(ls -A "$XDG_STATE_HOME/rv")" ]
    [ "$(stat -c %a "$XDG_STATE_HOME/rv")" = 700 ]
}

@test "nodes that are busy are not waited for" {
    local job
    job=$(sbatch --parsable -w n1 --exclusive -o /dev/null --wrap 'sleep 60')
    wait_job "$job" RUNNING
    run_cmd "$RV" doctor --nodes --json
    scancel "$job"
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(node n1 state) $(node n1 message)" = "unknown not asked: it is allocated" ]
    [ "$(node n2 state)" = ok ]
    [ "$(check nodes)" = warn ]
    over() { [ -z "$(squeue -h -j "$job" 2>/dev/null)" ]; }
    wait_for 30 over
}

@test "a state folder that others can enter fails" {
    mkdir -p "$BATS_TEST_TMPDIR/s/rv"
    chmod 755 "$BATS_TEST_TMPDIR/s/rv"
    XDG_STATE_HOME=$BATS_TEST_TMPDIR/s run_cmd "$RV" doctor --json
    [ "$status" = 1 ]
    valid <<<"$output"
    [ "$(check state_dir)" = fail ]
}

@test "rv.conf that names what is not there" {
    mkdir -p "$BATS_TEST_TMPDIR/c/rv"
    printf '[defaults]\npartition = old\ntype = h100\n' >"$BATS_TEST_TMPDIR/c/rv/rv.conf"
    XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/c run_cmd "$RV" doctor --json
    [ "$status" = 1 ]
    valid <<<"$output"
    [ "$(check settings) $(check rv_conf)" = "ok fail" ]
    [[ $output == *"'old'"*"'h100'"* ]]
}

@test "a plugstack without the plugin, or with a bad word" {
    cp "$SANDBOX/plugstack.conf" "$RVT/plugstack.saved"
    echo '# none' >"$SANDBOX/plugstack.conf"
    run_cmd "$RV" doctor --nodes --json
    [ "$status" = 0 ]
    [ "$(check plugin)" = warn ]
    [[ $(node n1 message) == "no plugin, as here, rv-exec and the state folder are there"* ]]
    sed 's/$/ nonsense/' "$RVT/plugstack.saved" >"$SANDBOX/plugstack.conf"
    run_cmd "$RV" doctor --json
    cp "$RVT/plugstack.saved" "$SANDBOX/plugstack.conf"
    [ "$status" = 1 ]
    [ "$(check plugin)" = fail ]
    [[ $(jq -r '.checks[] | select (.name == "plugin").message' <<<"$output") = *nonsense* ]]
}

@test "GPUs of gres against NVML: fewer fail, more warn, one that hangs does not keep it" {
    # NVML is fake_nvml.c, found before any other; each node has one GPU by gres.
    mkdir -p "$RVT/nvml"
    ${CC:-cc} -shared -fPIC -DFAKE_STATE="\"$RVT/nvml/cards\"" \
        -o "$RVT/nvml/libnvidia-ml.so.1" "$BATS_TEST_DIRNAME/fake_nvml.c"
    local cards status_wanted state text t0
    while IFS='|' read -r cards status_wanted state text; do
        echo "$cards" >"$RVT/nvml/cards"
        t0=$SECONDS
        LD_LIBRARY_PATH=$RVT/nvml run_cmd "$RV" doctor --nodes --json
        [ "$status" = "$status_wanted" ]
        valid <<<"$output"
        [ "$(node n1 state) $(node n2 state)" = "$state $state" ]
        [[ $(node n1 message) == *"$text"* ]]
        [ "$((SECONDS - t0))" -lt 90 ]
    done <<'T'
gpu|0|ok|1 GPUs by gres and by NVML
gpu gpu|0|warn|gres says 1 GPUs, NVML 2
fail=999|1|fail|NVML there hangs or fails, and gres says 1 GPUs
hang|1|fail|NVML there hangs or fails, and gres says 1 GPUs
T
    [ "$(node n1 gpus_slurm) $(node n1 gpus_driver) $(check nodes)" = "1 null fail" ]
    [ -z "$(squeue -h -t PENDING,RUNNING)" ]
}

@test "usage, unknown nodes, no controller" {
    run_cmd "$RV" doctor --nodes=n9 --json
    [ "$status" = 5 ]
    [ "$(jq -r .schema <<<"$output")" = rv.error/1 ]
    run_cmd "$RV" doctor n1
    [ "$status" = 2 ]
    SLURM_CONF=$BATS_TEST_TMPDIR/none run_cmd "$RV" doctor --nodes --json
    [ "$status" = 3 ]
    valid <<<"$output"
    [ "$(check controller) $(jq -c .nodes <<<"$output")" = 'fail []' ]
}

@test "a controller that hangs is given up soon, and the rest is looked at" {
    local pid t0=$SECONDS
    pid=$(daemon slurmctld)
    kill -STOP "$pid"
    RVT_TIMEOUT=90 run_cmd "$RV" doctor --nodes
    kill -CONT "$pid"
    [ "$status" = 3 ]
    grep -q '^FAIL  controller ' <<<"$output"
    grep -q '^ok    state_dir ' <<<"$output"
    [ "$((SECONDS - t0))" -lt 60 ]
}

@test "a node without the plugin is found (NVIDIA/pyxis#84)" {
    echo '# none' >"$SANDBOX/plug2.conf"
    sed "s,^PlugStackConfig=.*,PlugStackConfig=$SANDBOX/plug2.conf," "$SANDBOX/slurm.conf" >"$SANDBOX/slurm2.conf"
    other_n2 "$SANDBOX/slurm2.conf" env
    run_cmd "$RV" doctor --nodes --json
    [ "$status" = 1 ]
    valid <<<"$output"
    [ "$(check plugin) $(check nodes)" = "ok fail" ]
    [ "$(node n1 state) $(node n1 plugin)" != "ok null" ]
    [ "$(node n1 state)" = ok ]
    [ "$(node n2 state) $(node n2 plugin) $(node n2 state_dir)" = "fail null true" ]
    [[ $(node n2 message) = "the plugin is not loaded there"* ]]
}

@test "NVIDIA/pyxis#84: an option of ours, and the plugin on one of two nodes" {
    # n2 is still as above. The ranks run; what only one of them was told stops
    # them with a reason.
    local without='^rv\[rank 1 on n2\]: spank_rv.so did not run on n2, and an --rv option was given'
    run_srun -Q -N2 --rv-gpu=2 "$RV_BUILD/rv-exec" sh -c 'echo $RANK/$WORLD_SIZE'
    [ "$status" = 0 ]
    [ "$(grep -c "$without" <<<"$output")" = 1 ]
    [ "$(grep -v '^rv\[' <<<"$output" | sort)" = '0/2
1/2' ]
    run_srun -Q -N2 --rv-gpu=2 --rv-nccl-timeout=30m \
        "$RV_BUILD/rv-exec" echo ran
    [ "$status" = 125 ]
    [ "$(grep -c "$without" <<<"$output")" = 1 ]
    grep -q "^rv\[rank 0 on n1\]: cannot start 'echo': ranks differ in " <<<"$output"
    [ "$(grep -c '^ran' <<<"$output")" = 0 ]
}

@test "a node that does not see the state folder, or rv-exec, is found" {
    unshare -m true 2>/dev/null || skip "needs a mount namespace: root"
    # A folder of the same name is no proof: its token is.
    # shellcheck disable=SC2016
    other_n2 "$SLURM_CONF" unshare -m sh -c \
        'mount -t tmpfs none "$XDG_STATE_HOME" && mkdir -m 700 "$XDG_STATE_HOME/rv" &&
            mount --bind /dev/null "$RV_BUILD/rv-exec" && exec "$@"' sh
    run_cmd "$RV" doctor --nodes --json
    [ "$status" = 1 ]
    [ "$(node n1 state)" = ok ]
    [ "$(node n2 state) $(node n2 rv_exec) $(node n2 state_dir)" = "fail null false" ]
    [ "$(node n2 plugin)" = "$(node n1 plugin)" ]
    [[ $(node n2 message) = "rv-exec does not run there; the state folder is not"* ]]
}

@test "a slurmd that is gone is told and not waited for long" {
    kill "$(cat "$SANDBOX/other.pid")"
    wait_for 60 gone "$(cat "$SANDBOX/other.pid")"
    run_cmd "$RV" doctor --nodes --json
    valid <<<"$output"
    [ "$(node n1 state) $(node n2 state)" = "ok unknown" ]
    [ -z "$(squeue -h -t PENDING,RUNNING)" ]
}
