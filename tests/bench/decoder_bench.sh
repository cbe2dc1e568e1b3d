#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# decoder_bench.sh - tokens/s of the decoder's step, beside PyTorch eager.
# decoder_bench.sh BUILD [key=value...] (keys of decoder_bench.c, dtype left out).
# Threads 1 and 2; three pairs each, taken in turns; the median of each side.
# Prints a row a thread count; "share" is of the matrix library's own rate.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: decoder_bench.sh BUILD [key=value...]}
shift

value () # value KEY - of one JSON line
{
    sed -nE "s/.*\"$1\": ([0-9.]+).*/\1/p"
}

median () # of three lines
{
    sort -g | sed -n 2p
}

[ -x "$build/tests/bench/decoder_bench" ] || {
    echo "decoder_bench.sh: no $build/tests/bench/decoder_bench; run make tests/bench/decoder_bench there" >&2
    exit 1
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
printf '%-8s %10s %10s %6s %8s %6s\n' threads ours torch ratio GFLOP/s share
for threads in 1 2; do
    export OPENBLAS_NUM_THREADS=$threads OMP_NUM_THREADS=$threads
    for _ in 1 2 3; do
        "$build/tests/bench/decoder_bench" "$@" >>"$tmp/ours$threads" || exit 1
        /usr/bin/python3 "$here/decoder_torch.py" "$threads" "$@" >>"$tmp/torch$threads" \
            || echo '{"tok_per_s": 0}' >>"$tmp/torch$threads"
    done
    ours=$(value tok_per_s <"$tmp/ours$threads" | median)
    torch=$(value tok_per_s <"$tmp/torch$threads" | median)
    rate=$(value gflop_per_s <"$tmp/ours$threads" | median)
    share=$(value share <"$tmp/ours$threads" | median)
    ratio=$(awk -v a="$ours" -v b="$torch" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "-" }')
    printf '%-8s %10s %10s %6s %8s %6s\n' $threads "$ours" "$torch" "$ratio" "$rate" "$share"
done
