#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tsan.sh - the unit tests of code that has threads, under gcc's ThreadSanitizer
#
# Builds those alone, in $top_builddir/tsan. Last line: the sum.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
src=${top_srcdir:-$here} build=${top_builddir:-$here/build}/tsan
programs=()
for name in probe trace share share_gpu copy copy_faults copy_reports frames \
    job deadline exec group_idle group_work comm_nccl safetensors_load refserver; do
    [ ! -e "$src/tests/unit/test_$name.c" ] || programs+=("tests/unit/test_$name")
done
mkdir -p "$build" && cd "$build" || exit 1
{
    [ -e Makefile ] || "$src/configure" --without-slurm --without-pmix \
        --without-cuda --without-mpi --without-cblas --disable-shared \
        CC="${CC:-gcc}" CXX="${CXX:-g++}" \
        CFLAGS='-g -O1 -fsanitize=thread' CXXFLAGS='-g -O1 -fsanitize=thread'
} >tsan.log 2>&1
if ! make -s -j"$(nproc)" "${programs[@]}" >>tsan.log 2>&1; then
    tail -n 30 tsan.log
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
# Threads of a child of fork are test_deadline's subject.
export TSAN_OPTIONS=exitcode=66:die_after_fork=0
passed=0 failed=0
for program in "${programs[@]}"; do
    if timeout -k 5 300 "$program" >out 2>&1 && ! grep -q ThreadSanitizer: out; then
        echo "ok - $program"
        passed=$((passed + 1))
    else
        echo "not ok - $program"
        tail -n 60 out
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
