#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - all suites on a private Slurm; the last line is their sum
#
# run.sh [FILE.bats...]; RV_BUILD, RV_REQUIRE as in lib.bash.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here"/*.bats "$here"/issues/*.bats
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
passed=0 failed=0 skipped=0
for file; do
    tap=$(mktemp)
    echo "# ${file##*/}"
    # The deadline is for a file that hangs, far from what one takes.
    timeout -k 30 1200 bats --tap --timing "$file" </dev/null 2>&1 | tee "$tap"
    status=${PIPESTATUS[0]}
    s=$(grep -c '^ok .*# skip' "$tap")
    p=$(($(grep -c '^ok ' "$tap") - s))
    f=$(grep -c '^not ok ' "$tap")
    # A file that ends badly without a failed test is one failure.
    [ "$status" = 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    rm -f "$tap"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
