# SPDX-License-Identifier: Apache-2.0
# grpo.bats - rv-train learns from rewards under rv run, 2 nodes x 2 ranks: SFT, then
# GRPO, with the marks of tests/train/grpo.sh; stopped, gone on, a rank killed
#
# RV_TEST_LONG=1 compares a whole run of one rank and of four.
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run
# shellcheck source=tests/train/grpo.bash
. "$RV_SRC/tests/train/grpo.bash"
# shellcheck source=tests/train/metrics.bash
. "$RV_SRC/tests/train/metrics.bash"

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
    [ -z "${RVT_SKIP:-}" ] || return 0
    export OMP_NUM_THREADS=1 # ranks of a test share few CPUs
    export TRAIN=$RV_BUILD/rv-train
    grpo_files "$RVT"
}

# train RANKS ARG... - to its end
train() {
    RVT_TIMEOUT=120 separate "$RV" run -f -g "$1" -- "$TRAIN" "${@:2}"
    [ "$status" = 0 ] && grep -qE "^rv-train .*: $1 ranks? \(" <<<"$output"
}

# on_two_nodes - the last request's four ranks were two on each
on_two_nodes() {
    local dir
    dir=$(ls -td "$STATE"/requests/*/ | head -n 1)
    [ "$(jq -r .node "$dir"/rank-[0-3].json | sort | xargs)" = "n1 n1 n2 n2" ]
}

# steps N FILE - it has so many lines at least
steps() {
    [ -e "$2" ] && [ "$(wc -l <"$2")" -ge "$1" ]
}

# learn RANKS SEED - from less than half in brackets to four in five; not so where
# advantages are shuffled
learn() {
    local g=("$RVT/grpo.ini" run.seed="$2" model.dir="$PWD/sft.$2.$1")
    train "$1" "$RVT/sft.ini" run.seed="$2" checkpoint.dir="$PWD/sft.$2.$1"
    train "$1" "${g[@]}" log.file="$PWD/learnt"
    [ "$1" = 1 ] || on_two_nodes
    at_least 0.5 "$(losses learnt reward | head -n 1)"
    at_least "$(held learnt)" 0.8
    rm learnt
    [ "$2" = 1 ] || return 0 # grpo.sh has the controls of the others
    train "$1" "${g[@]}" log.file="$PWD/mixed" grpo.shuffle_advantages=on
    at_least 0.5 "$(held mixed)"
    rm mixed
}

@test "SFT, then GRPO: four in five that are held out are in brackets; of shuffled advantages less than half" {
    learn 4 1
    learn 4 2
    learn 4 3
    learn 1 1
}

@test "four ranks have the losses of one within 1e-6" {
    train 1 "$RVT/small.ini" log.file="$PWD/one"
    train 4 "$RVT/small.ini" log.file="$PWD/four"
    on_two_nodes
    near one four 1e-6 8
    near one four 1e-6 8 grad_norm
    near one four 1e-9 8 reward
    [ -n "${RV_TEST_LONG:-}" ] || return 0
    # All of a run that learns, from one model
    local g=("$RVT/grpo.ini" run.steps=40 eval.every=40 precision.param=fp64 model.dir="$PWD/sft")
    train 4 "$RVT/sft.ini" checkpoint.dir="$PWD/sft"
    train 1 "${g[@]}" log.file="$PWD/one.40"
    train 4 "${g[@]}" log.file="$PWD/four.40"
    near one.40 four.40 1e-6 40
    near one.40 four.40 1e-9 40 reward
    [ "$(held one.40)" = "$(held four.40)" ]
}

@test "stopped before its limit it goes on from the checkpoint, bit for bit" {
    local n name
    sed 's/^steps = .*/steps = 1000000/' "$RVT/small.ini" >go.ini
    submit -g 4 --checkpoint=USR1@31 --time 2m --name went -- \
        "$TRAIN" "$PWD/go.ini" log.file="$PWD/went"
    wait_for 30 steps 3 went
    limit
    wait_for 30 put_back
    [ "$(causes)" = limit ]
    on_two_nodes
    # In mid-cycle, of two steps, or between cycles
    n=$(($(wc -l <went) + 2))
    sed -i "s/^steps = .*/steps = $n/" go.ini
    let_go
    wait_for 60 done_with 0
    [ "$(causes)" = "limit command" ]
    grep -qF "resumed at step $((n - 2)) from $STATE/checkpoints/went-" "$STATE"/logs/went-*.r0.out
    [ "$(wc -l <went)" = "$n" ]
    # One that never stopped
    RVT_TIMEOUT=120 separate "$RV" run -f -g 4 --name whole -- \
        "$TRAIN" "$PWD/go.ini" log.file="$PWD/whole"
    [ "$status" = 0 ]
    alike went whole
    name=step-$(printf %08d "$n")
    for f in model optim; do
        cmp "$STATE"/checkpoints/{went,whole}-*/"$name/$f.safetensors"
    done
}

@test "a rank that is killed is named, and no other" {
    local pid
    follow_in_background f -g 4 -- sh -c 'echo $$ >"pid.$RANK"; exec "$0" "$@"' \
        "$TRAIN" "$RVT/small.ini" run.steps=1000000 log.file="$PWD/m"
    wait_for 30 steps 3 m
    pid=$(cat pid.2)
    kill -KILL "$pid"
    wait_for 60 ended "$follower"
    status=0
    wait "$follower" || status=$?
    cat f.err
    [ "$status" = 137 ]
    [ "$(grep -c '^rv: job .* failed: rank 2 on n2 was ended by signal 9' f.err)" = 1 ]
    [ "$(grep -c 'failed: rank' f.err)" = 1 ]
}
