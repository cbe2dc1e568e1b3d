#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_deadline.sh - etc/build-aux/deadline: what it ends, what it leaves alone
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"
deadline=$top_srcdir/etc/build-aux/deadline
# What is left behind is waited for for a second, not a minute.
sed 's/^patience=60 /patience=1 /; s/^grace=30 /grace=2 /' "$deadline" >"$tmp/soon"

# ends STATUS SCRIPT SECONDS COMMAND... - with it, its output a pipe
ends ()
{
    local want=$1 script=$2
    shift 2
    bash "$script" "$@" 2>&1 | cat >"$tmp/out"
    [ "${PIPESTATUS[0]}" = "$want" ]
}

# gone - none of what wrote its number runs, though its parent may not know yet
gone ()
{
    local pid
    [ -s "$tmp/pids" ] || return 1
    while read -r pid; do
        ! grep -qsE '^State:[[:space:]]+[^ZX]' "/proc/$pid/status" || return 1
    done <"$tmp/pids"
    : >"$tmp/pids"
}

# Two whose output is one pipe, as of two tests under one tee.
together ()
{
    {
        (bash "$tmp/soon" 60 true; echo "first $?") &
        (bash "$tmp/soon" 60 sleep 4; echo "second $?") &
        wait
    } 2>&1 | sort >"$tmp/out"
    printf 'first 0\nsecond 0\n' | cmp -s - "$tmp/out"
}

cat >"$tmp/sleeps" <<'EOF'
echo $$ >>"$1"
exec sleep 300
EOF
# refuses SCRIPT NEEDS - an older bash hears one line and why, and nothing runs
refuses ()
{
    sed "s/BASH_VERSINFO\[1\] < $2/BASH_VERSINFO[1] < 9900/" "$1" >"$tmp/old"
    ends 2 "$tmp/old" 60 echo ran && [ "$(grep -c . "$tmp/out")" = 1 ] &&
        grep -qE ': needs bash [45]\.[14] or later, this is [0-9]+\.' "$tmp/out"
}

ok "an older bash is told" refuses "$deadline" 404
ok "by the suites on Slurm too" refuses "$top_srcdir/tests/slurm/run.sh" 501
ok "a status comes through" ends 7 "$deadline" 60 sh -c 'exit 7'
ok "so does a signal" ends 134 "$deadline" 60 sh -c 'kill -ABRT $$'
ok "what hangs is 124" ends 124 "$tmp/soon" 6 sh -c 'trap "" TERM; (setsid sh "$1" "$0" &)
    echo $$ >>"$0"; while :; do sleep 1; done' "$tmp/pids" "$tmp/sleeps"
ok "and named" grep -q '^not ok - ended within 6 s: sh -c ' "$tmp/out"
ok "with its processes" grep -q '^# process [0-9]*, child of [0-9]*: sleep 300' "$tmp/out"
ok "which are ended" gone
ok "what is left behind is 124" ends 124 "$tmp/soon" 60 sh -c '(setsid sh "$1" "$0" &); sleep 5' "$tmp/pids" "$tmp/sleeps"
ok "and named so" grep -q '^not ok - left nothing behind with its output open' "$tmp/out"
ok "and ended" gone
ok "beside another of the same output both are well" together
plan
