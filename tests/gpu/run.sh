#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh PROGRAM... - run GPU tests; last line: N passed, N failed, N skipped.
# A program without a GPU counts as one skipped, or fails under RV_REQUIRE=gpu.
set -u
passed=0 failed=0 skipped=0
for program; do
    echo "# $program"
    case $program in /*) ;; *) program=./$program ;; esac
    out=$("$program" 2>&1)
    rc=$?
    echo "$out"
    p=$(grep -c '^ok ' <<<"$out") f=$(grep -c '^not ok ' <<<"$out")
    if grep -q '^1\.\.0 # SKIP' <<<"$out"; then
        skipped=$((skipped + 1))
    elif [ $rc != 0 ] && [ "$f" = 0 ]; then
        f=1
    fi
    passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
