#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - all suites on a private Slurm; the last line is their sum
#
# run.sh [FILE.bats...]; RV_BUILD, RV_REQUIRE as in lib.bash. RV_TEST_JOBS files
# run at once (default 2: most of their time they wait), each in a sandbox of its
# own; a file with the line "# run.sh: alone" runs when no other does. What a file
# says is shown whole when it ends, and what failed once more at the very end.
#
# A file that failed runs a second time, alone, when all else is done: the first
# run shares the machine with compilers. The second counts; what failed in the first
# alone is named just above the sum. More than two such files are no accident.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then # wait -n -p
    echo "run.sh: needs bash 5.1 or later, this is $BASH_VERSION" >&2
    exit 2
fi
set -u
here=$(cd "$(dirname "$0")" && pwd)
jobs=${RV_TEST_JOBS:-2}
unset RV_TEST_JOBS # jobs would have it, and the suites look at all RV_ there
case $jobs in
'' | *[!0-9]* | 0*)
    echo "run.sh: RV_TEST_JOBS is '$jobs', not a number of files" >&2
    exit 2
    ;;
esac
# Far from what a file takes: for one that hangs.
deadline=${RV_TEST_DEADLINE:-1200}
# The longest begin first, so that none is left over at the end.
long=(
    faults
    plugin
    torch
    issues/ports
    segments
    paths
    scrontab
    job
    fanout
    exec
    preempt
    proof
    agree
)
if ! command -v bats >/dev/null; then
    echo "run.sh: bats is not installed (Debian: apt install bats)"
    case ,${RV_REQUIRE:-}, in
    *,slurm,*)
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
        ;;
    esac
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

# end_all - of what runs; deadline ends what its bats has started
end_all() {
    trap '' HUP INT TERM
    [ ${#running[@]} = 0 ] || kill "${!running[@]}" 2>/dev/null
    wait
    exit 1
}

# start FILE - in the background, what it says in a file of its own
start() {
    last=$((last + 1))
    bash "$here/../../etc/build-aux/deadline" "$deadline" bats --tap --timing "$1" \
        </dev/null >"$work/$last" 2>&1 &
    running[$!]=$last
    path[last]=$1
    name[last]=${1##*/}
    since[last]=$SECONDS
}

# end_one - wait for one of those that run, show it and add it to the sum
end_one() {
    local pid status=0 n p f s
    wait -n -p pid "${!running[@]}" || status=$?
    n=${running[$pid]}
    unset "running[$pid]"
    s=$(grep -c '^ok .*# skip' "$work/$n")
    p=$(($(grep -c '^ok ' "$work/$n") - s))
    f=$(grep -c '^not ok ' "$work/$n")
    # A file that ends badly without a failed test is one failure.
    if [ "$status" != 0 ] && [ "$f" = 0 ]; then
        f=1
        {
            echo "not ok ${name[n]} ended with status $status and no failed test"
            tail -n 40 "$work/$n" | sed 's/^/# /'
        } >"$work/bad"
        cat "$work/bad" >>"$work/$n"
    fi
    printf '# %s, %s s\n' "${name[n]}" $((SECONDS - since[n]))
    cat "$work/$n"
    if [ "$f" -gt 0 ] && [ -z "$second" ]; then
        # Not in the sum until it has run again.
        again+=("${path[n]}") counts+=("$p $f $s")
        failures "${name[n]}" "$work/$n" >"$work/first.${#again[@]}"
        return
    fi
    [ "$f" = 0 ] || failures "${name[n]}" "$work/$n" >>"$work/failures"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# failures NAME FILE - the tests of FILE that failed, with what they said
failures() {
    echo "# again, of $1:"
    awk '/^(not )?ok / { bad = /^not/ } bad' "$2"
}

# run_pool MOST FILE... - so many at once
run_pool() {
    local most=$1 file
    shift
    for file; do
        [ ${#running[@]} -lt "$most" ] || end_one
        start "$file"
    done
    while [ ${#running[@]} -gt 0 ]; do end_one; done
}

# run_again - what has failed, or where too much has, leave it at that
run_again() {
    local i p f s before
    second=yes
    for i in "${!again[@]}"; do
        before=$failed
        if [ ${#again[@]} -le 2 ]; then
            echo "# ${again[i]##*/} again, alone"
            run_pool 1 "${again[i]}"
        else
            read -r p f s <<<"${counts[i]}"
            passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        fi
        if [ "$failed" != "$before" ]; then
            cat "$work/first.$((i + 1))" >>"$work/failures"
        else
            sed "s/^not ok/# failed in the first run, passed in the second:/" \
                "$work/first.$((i + 1))" >>"$work/unsteady"
        fi
    done
}

if [ $# = 0 ]; then
    for file in "${long[@]}"; do
        [ -e "$here/$file.bats" ] || { echo "run.sh: no $file.bats"; exit 1; }
        set -- "$@" "$here/$file.bats"
    done
    for file in "$here"/*.bats "$here"/issues/*.bats; do
        case " $* " in *" $file "*) ;; *) set -- "$@" "$file" ;; esac
    done
fi
together=() alone=()
for file; do
    if grep -qx '# run.sh: alone' "$file"; then
        alone+=("$file")
    else
        together+=("$file")
    fi
done
passed=0 failed=0 skipped=0 last=0 second=
running=() path=() name=() since=() again=() counts=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap end_all HUP INT TERM
run_pool "$jobs" "${together[@]}"
run_pool 1 "${alone[@]}"
run_again
[ ! -e "$work/unsteady" ] || cat "$work/unsteady"
[ ! -e "$work/failures" ] || cat "$work/failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
