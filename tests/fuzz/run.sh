#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - build the fuzz targets with libFuzzer, ASan and UBSan and run them
#
# Each target runs its seeds, then 10 seconds of inputs of its own making
# (RV_TEST_LONG=1: 600). Inputs that reach new code stay in the build folder,
# one that fails in its crashes/. RV_FUZZ_ONLY="conf gres" runs some targets.
# The last line is the sum; the exit status is the truth.
set -u
src=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${top_builddir:-$src/build}/fuzz
cc=${FUZZ_CC:-clang}
seconds=10
[ "${RV_TEST_LONG:-0}" = 1 ] && seconds=600
jobs=$(nproc)
passed=0 failed=0

end ()
{
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}

die ()
{
    echo "check-fuzz: $*"
    failed=$((failed + 1))
    end
}

show ()
{
    sed 's/^/    /' "$1" | tail -n "$2"
}

has_libfuzzer ()
{
    echo 'int LLVMFuzzerTestOneInput (const char *d, unsigned long n); int LLVMFuzzerTestOneInput (const char *d, unsigned long n) { return d && n > 9 ? 0 : 0; }' \
        | "$cc" -fsanitize=fuzzer,address -x c -o "$build/probe" - >"$build/probe.log" 2>&1
}

# A tree that was itself configured cannot be built from a second folder, so
# its sources, and nothing that was built, are copied.
sources ()
{
    [ -e "$src/config.status" ] || return 0
    rm -rf "$build/src" && mkdir -p "$build/src" || return 1
    tar -C "$src" -cf - --exclude=./build --exclude=./fuzz --exclude=./.git --exclude='*.o' --exclude='*.lo' --exclude='*.la' \
        --exclude=.libs --exclude=.deps --exclude=./config.status --exclude=./config.h --exclude=./stamp-h1 --exclude=./Makefile . \
        | tar -C "$build/src" -xf - || return 1
    src=$build/src
}

# Only what the targets need: without the optional parts, and no program.
configure ()
{
    [ -f "$build/Makefile" ] && [ ! "$src/configure" -nt "$build/config.status" ] && return 0
    (cd "$build" && "$src/configure" CC="$cc" CXX="$cc++" CFLAGS='-gline-tables-only -O1' --enable-fuzzing --enable-sanitizers \
        --without-slurm --without-pmix --without-cuda --without-nccl --without-mpi --without-cblas)
}

# bounded PROGRAM... - what its own limits do not end
bounded ()
{
    bash "$src/etc/build-aux/deadline" $((seconds + 300)) "$@"
}

# run_target NAME - seeds, then new inputs; the two results are its log's names
run_target ()
{
    local program=$build/tests/fuzz/$1 name=${1#fuzz_} seeds
    seeds=$src/tests/fuzz/seeds/$name
    rm -f "$build/$name".*.{ok,log}
    mkdir -p "$build/corpus/$name" "$build/crashes"
    bounded "$program" -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$build/crashes/$name-" "$seeds"/* \
        >"$build/$name.seeds.log" 2>&1 && touch "$build/$name.seeds.ok"
    bounded "$program" -max_total_time=$seconds -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/crashes/$name-" "$build/corpus/$name" "$seeds" \
        >"$build/$name.fuzz.log" 2>&1 && touch "$build/$name.fuzz.ok"
}

report ()
{
    local name=$1 part runs
    for part in seeds fuzz; do
        if [ -e "$build/$name.$part.ok" ]; then
            passed=$((passed + 1))
            runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.$part.log")
            echo "ok - $name $part${runs:+, $runs inputs in $seconds s}"
        else
            failed=$((failed + 1))
            echo "not ok - $name $part ($build/$name.$part.log)"
            show "$build/$name.$part.log" 40
        fi
    done
}

mkdir -p "$build" || die "cannot make $build"
command -v "$cc" >/dev/null || die "there is no $cc; install the package clang"
has_libfuzzer || die "$cc has no libFuzzer; install its compiler-rt (Debian 12: libclang-rt-14-dev)"
sources || die "cannot copy the sources to $build/src"
configure >"$build/configure.log" 2>&1 || { show "$build/configure.log" 20; die "configure failed in $build"; }
# Nothing else is compiled so: ccache, where that is used, need not preprocess to compare.
CCACHE_DEPEND=1 make -s -C "$build" -j"$jobs" fuzz-programs >"$build/make.log" 2>&1 || { show "$build/make.log" 40; die "the targets do not build"; }

targets=()
for program in $(make -s -C "$build" fuzz-list); do
    name=${program##*/fuzz_}
    case " ${RV_FUZZ_ONLY:-$name} " in
        *" $name "*) targets+=("$name") ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || die "no target is named ${RV_FUZZ_ONLY:-}"
echo "${#targets[@]} targets, $seconds s each, $jobs at a time"
for name in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_target "fuzz_$name" &
done
wait
for name in "${targets[@]}"; do report "$name"; done
end
