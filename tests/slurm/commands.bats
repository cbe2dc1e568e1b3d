# SPDX-License-Identifier: Apache-2.0
# commands.bats - rv env and its secrets in jobs, on a private Slurm of 2 nodes
# x 2 GPUs
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

# A value that a shell, INI or --export would break; its sum as printed by a rank.
hard_value() {
    printf 'line 1\nline 2, "q" '\''s'\'' $(touch pwned) `x` \\n ${y} =; # \xff end\n\n'
}

own_config() {
    export XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/config
}

secret_files() {
    find "$STATE" -name secrets
}

no_secret_file() {
    [ -z "$(secret_files)" ]
}

ranks_run() {
    pgrep -f "rv-exec --task $STATE"
}

@test "env: set, list, rm, import; what is refused; no value is ever shown" {
    own_config
    separate "$RV" env list --json
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(jq -c .variables <<<"$output")" = '[]' ]
    hard_value | "$RV" env set HARD
    [ "$(stat -c %a config/rv/env) $(stat -c %a config/rv)" = '600 700' ]
    printf '# mine\nexport A="1"\nB='\''hush\nhush'\''\n' | (umask 0 && "$RV" env import -)
    [ "$(stat -c %a config/rv/env)" = 600 ]
    separate "$RV" env list
    [ "$output" = 'HARD=********
A=********
B=********' ]
    separate "$RV" --json env rm A
    valid <<<"$output"
    [ "$(jq -c '[.changed, [.variables[].name]]' <<<"$output")" = '[["A"],["HARD","B"]]' ]
    # Nothing goes when one of the names is wrong, or a line of the file.
    separate "$RV" env rm HARD NONE
    [ "$status" = 1 ]
    printf 'C=1\nD=a b # c\n' >bad.env
    separate "$RV" env import bad.env
    [ "$status" = 1 ]
    [[ $stderr == *"bad.env:2: "* && $stderr != *D=* ]]
    separate "$RV" env set TOKEN=hush
    [ "$status" = 2 ]
    [[ $stderr != *hush* ]]
    separate "$RV" env set RANK
    [ "$status" = 2 ]
    separate "$RV" env list
    [ "$output" = 'HARD=********
B=********' ]
    chmod 640 config/rv/env
    separate "$RV" env list --json
    [ "$status" = 1 ]
    valid <<<"$output"
    [[ $output == *"others may read it"* ]]
    separate "$RV" run --dry-run true
    [ "$status" = 1 ]
    ! grep -q hush <<<"$output$stderr"
}

@test "env: a value is asked for on a terminal that does not show it" {
    own_config
    cat >typist.py <<'P'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(os.environ["RV"], ["rv", "env", "set", "TOKEN"])
seen = b""
while b"(not shown): " not in seen:
    seen += os.read(fd, 1000)
os.write(fd, b"hush hush\n")
try:
    while True:
        data = os.read(fd, 1000)
        if not data:
            break
        seen += data
except OSError:
    pass
assert os.waitpid(pid, 0)[1] == 0
assert b"hush" not in seen, seen
P
    run_cmd /usr/bin/python3 typist.py
    [ "$status" = 0 ]
    grep -qx 'TOKEN="hush hush"' config/rv/env
}

@test "env: two hundred changes at once lose none" {
    own_config
    for i in $(seq 10); do
        (for j in $(seq 20); do echo "$i" | "$RV" env set "V${i}_$j" >/dev/null; done) 3>&- &
    done
    wait
    [ "$("$RV" env list | wc -l)" = 200 ]
}

@test "secrets arrive unchanged in every rank, and stand nowhere else" {
    own_config
    hard_value | "$RV" env set --raw HARD
    echo hush-hush-hush | "$RV" env set TOKEN
    want=$(hard_value | sha256sum)
    TOKEN=other follow_in_background f -g 4 -- sh -c \
        'while [ ! -e gate ]; do sleep 0.05; done; printenv HARD | head -c -1 | sha256sum; echo "$TOKEN" | md5sum'
    wait_for 30 grep -q '^rv: job.*submitted' f.err
    job=$(sed -n 's/^rv: job \([0-9]*\) .*submitted.*/\1/p' f.err)
    wait_job "$job" RUNNING
    [ "$(stat -c %a "$(secret_files)")" = 600 ]
    wait_for 30 ranks_run
    # Of the user's files, its copy in the request alone has it.
    [ "$(grep -rl hush-hush "$STATE" config "$SANDBOX" 2>/dev/null | sort)" = "$(printf '%s\n' config/rv/env "$(secret_files)" | sort)" ]
    ! scontrol show job "$job" | grep hush
    ! scontrol write batch_script "$job" - | grep hush
    # no command line of any process
    ! cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep hush-hush
    touch gate
    wait_for 30 ended "$follower"
    wait "$follower"
    [ "$(grep -c "^${want% *}" f.out)" = 4 ]
    [ "$(grep -c "^$(echo hush-hush-hush | md5sum)" f.out)" = 4 ]
    [ ! -e pwned ]
    no_secret_file
    valid "$STATE"/requests/*/request.json
}

@test "secrets go with a job that is cancelled, and stay with one that is put back" {
    own_config
    echo hush | "$RV" env set TOKEN
    submit -g 4 --name one -- sleep 60
    one=$job
    submit -g 4 --name two -- true
    two=$job
    wait_job "$one" RUNNING
    "$RV" stop two
    [ "$(secret_files | wc -l)" = 1 ]
    scontrol requeue "$one"
    wait_job "$one" PENDING
    wait_for 30 all_idle
    [ "$(secret_files | wc -l)" = 1 ]
    scontrol update jobid="$one" starttime=now
    wait_job "$one" RUNNING
    wait_for 30 ranks_run
    scancel "$one"
    wait_for 30 no_secret_file
    # one that was never started, and cancelled behind rv's back
    submit -g 4 --name hold -- sleep 60
    submit -g 4 --name three -- true
    scancel "$job"
    "$RV" ps >/dev/null
    [ "$(secret_files | wc -l)" = 1 ]
}

@test "a rank whose secrets are gone, or not its user's alone, does not start" {
    own_config
    echo hush | "$RV" env set TOKEN
    submit -g 4 --name before -- sleep 60
    follow_in_background f -g 1 -- echo ran
    wait_for 30 grep -q 'is waiting' f.err
    req=$(dirname "$(grep -l echo "$STATE"/requests/*/argv)")
    chmod 644 "$req/secrets"
    "$RV" stop before
    wait_for 30 ended "$follower"
    status=0; wait "$follower" || status=$?
    [ "$status" = 125 ]
    [ ! -s f.out ]
    grep -q 'others may read it' f.err
}

@test "help and version; what stands on the wrong side of the command's name" {
    separate "$RV" version --json
    valid <<<"$output"
    [ "$(jq -r .version <<<"$output")" = "$("$RV" --version | awk '{ print $2 }')" ]
    separate "$RV" version
    [ "$output" = "$("$RV" --version)" ]
    separate "$RV" help --json
    valid <<<"$output"
    for c in $(jq -r '.commands[].name' <<<"$output"); do
        [ "$("$RV" help "$c")" = "$("$RV" "$c" --help)" ]
        [ -n "$("$RV" help "$c")" ]
    done
    separate "$RV" help pss
    [ "$status" = 2 ]
    [[ $stderr == *"did you mean 'ps'"* ]]
    separate "$RV" -g 4 run true
    [ "$status" = 2 ]
    [[ $stderr == *"'-g' before the command"* ]]
    separate "$RV" ps --sandbox
    [ "$status" = 2 ]
    [[ $stderr == *"'--sandbox' stands before the command: rv --sandbox ps;"* ]]
}
