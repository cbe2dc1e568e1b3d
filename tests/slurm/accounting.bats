# SPDX-License-Identifier: Apache-2.0
# accounting.bats - with slurmdbd and its database: limits, costs, preemption by
# QOS, federations
#
# One sandbox for all; each test makes the limits that it needs.

load lib

setup_file() {
    if ! PATH=$PATH:/usr/sbin:/sbin command -v slurmdbd mariadbd >/dev/null; then
        case ,${RV_REQUIRE:-}, in
        *,slurm,*)
            echo "RV_REQUIRE=slurm, but slurmdbd or mariadbd is not installed" >&2
            return 1
            ;;
        esac
        export RVT_SKIP="slurmdbd or mariadbd is not installed"
        return 0
    fi
    sandbox_up --nodes 3 --gpus 12 --cpus 8 --made-up --accounting
}

teardown_file() {
    sandbox_down
}

# limit WORD... - sacctmgr's, without a question
limit() {
    sacctmgr -i -Q "$@"
}

# tcp_of PID - its sockets of TCP
tcp_of() {
    local n
    for n in $(ls -l "/proc/$1/fd" | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p'); do
        awk -v n="$n" '$10 == n { print $2 }' /proc/net/tcp /proc/net/tcp6
    done
}

@test "the sandbox has a cluster, an account and its user, and says so" {
    run_cmd "$RV" sandbox status --dir "$SANDBOX" --json
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c '[.accounting, (.daemons | map(.alive) | all), (.daemons | length)]' <<<"$output")" = '[true,true,7]' ]
    run_cmd sacctmgr -nP show assoc user="$(id -un)" account=main format=account,user
    [ "$output" = "main|$(id -un)" ]
    # Nobody can reach the database but by its socket.
    run_cmd "$RV" sandbox up --dir "$SANDBOX" --accounting
    [ "$status" = 0 ]
    [[ $output == *"was up already"* ]]
    # The look finds slurmdbd's port, so it would find another.
    [ -n "$(tcp_of "$(daemon slurmdbd)")" ]
    [ -z "$(tcp_of "$(daemon mariadb)")" ]
}
