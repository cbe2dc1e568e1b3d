#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# analyze.sh - gcc's -fanalyzer over the code that runs as root or is a user's
# command: spank/ and launcher/
#
# Without optimization, which merges branches that the analyzer then takes one
# at a time. Leaks are left to LeakSanitizer: gcc 12 takes memory that a
# parameter's member keeps for lost. libtrain and kernels are left out for the
# same release's false alarms about vectors and mapped files. RV_ANALYZE_CC
# names a gcc, RV_ANALYZE_FLAGS what the build compiles with. Last line: the sum.
set -u
src=${top_srcdir:?}
cc=${RV_ANALYZE_CC:-gcc}
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags=${RV_ANALYZE_FLAGS:-}
flags="$flags -I. -Ilauncher -Ilibtrain"
# shellcheck disable=SC2089 # the quotes are C's
for d in SYSCONFDIR LIBEXECDIR BINDIR RV_LIBDIR; do flags="$flags -D$d=\"/x\""; done

# What leaves no object ccache compiles twice, the second time without itself.
export CCACHE_DISABLE=1

# one FILE - its findings; fails when there are some, or when it does not compile
one ()
{
    local out seen
    out=$work/$(echo "$1" | tr / _)
    seen="-include tests/analyze.h -Wno-unused-value"
    case $1 in
        launcher/plan/error.c | launcher/job/job.c) seen= ;; # they define the calls
        launcher/job/*) seen="$seen -DANALYZE_JOB" ;;
    esac
    # shellcheck disable=SC2086,SC2090 # flags are words
    (cd "$src" && $cc $flags $seen -std=gnu11 -O0 -U_FORTIFY_SOURCE -fanalyzer -Wno-analyzer-malloc-leak -Werror -c -o /dev/null "$1") >"$out" 2>&1
}

if ! echo 'int main (void) { return 0; }' | "$cc" -fanalyzer -x c -c -o /dev/null - 2>/dev/null; then
    echo "not ok - $cc has no -fanalyzer"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
# What must be found: a gcc that sees nothing proves nothing.
printf '#include <stdlib.h>\nvoid f (char *p)\n{\n    free (p);\n    free (p);\n}\n' >"$work/seen.c"
if "$cc" -O0 -fanalyzer -Werror -c -o /dev/null "$work/seen.c" 2>/dev/null; then
    echo "not ok - $cc does not see a double free"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
# A build without an optional part has no header for it.
without=
for h in slurm/slurm.h slurm/spank.h pmix.h; do
    # shellcheck disable=SC2086,SC2090
    echo "#include <$h>" | "$cc" $flags -E -x c -o /dev/null - 2>/dev/null || without="$without|$h"
done
mapfile -t files < <(cd "$src" && find spank launcher -name '*.c' | sort)
[ -z "$without" ] || mapfile -t files < <(cd "$src" && grep -LE "include <(${without#|})>" "${files[@]}")
for f in "${files[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    { one "$f" && touch "$work/$(echo "$f" | tr / _).ok"; } &
done
wait
for f in "${files[@]}"; do
    name=$(echo "$f" | tr / _)
    if [ -e "$work/$name.ok" ]; then
        passed=$((passed + 1))
        echo "ok - $f"
    else
        failed=$((failed + 1))
        echo "not ok - $f"
        head -n 60 "$work/$name"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
