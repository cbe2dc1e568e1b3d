#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# oom.sh - a run without memory says what it needed, and what needs less
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

# shellcheck source=tests/train/grpo.bash
. "$top_srcdir/tests/train/grpo.bash"

i=$tmp/o.ini
small "$i"

# limited KIB ARG... - rv-train with so much address space.
limited ()
{
    local kib=$1
    shift
    (ulimit -v "$kib" && exec timeout 60 "$train" "$@") >"$tmp/out" 2>&1
}

# Sanitizers reserve more than any limit.
if ! limited 600000 --version; then
    echo "1..0 # SKIP this build does not start with limited memory"
    exit 0
fi
big=(model.layers=8 model.dim=1024 model.heads=8 model.kv_heads=8 model.ffn=4096)
limited 600000 "$i" "${big[@]}"
ok "weights that do not fit are 1" test $? = 1
ok "an array that failed is named" grep -Eq '^rv-train: cannot train as .*(weights|gradients) of [0-9]+ parameters' "$tmp/out"
ok "the table has the weights" grep -Eq '^  weights +F32 +537989120 bytes$' "$tmp/out"
ok "and the moments, twice that" grep -Eq "^  AdamW's moments +F32 +1075978240 bytes\$" "$tmp/out"
ok "and the sum" grep -Eq '^  all +[0-9]+ bytes \([0-9.]+ GiB\)$' "$tmp/out"
ok "half the rows would need less" grep -q '^  data.micro_batch=4: activations of 4 rows, not 8$' "$tmp/out"
ok "bf16 would" grep -q '^  precision.param=bf16: ' "$tmp/out"
limited 600000 "$i" data.batch=4096 data.seq=256 precision.param=bf16
ok "activations that do not fit are 1" test $? = 1
ok "the table has them" grep -Eq '^  activations: kept by blocks +BF16 +[0-9]{9,} bytes$' "$tmp/out"
ok "and masters" grep -Eq '^  masters of the weights +F32 ' "$tmp/out"
ok "no hint of bf16" bash -c '! grep -q precision.param "$0"' "$tmp/out"
ok "no hint of what grpo has" bash -c '! grep -q grpo "$0"' "$tmp/out"
ok "nor of rounding a shard late" bash -c '! grep -q round_late "$0"' "$tmp/out"
limited 600000 "$i" data.batch=4096 data.seq=256 precision.param=bf16 shard.strategy=full
ok "of what is sharded it is named" grep -q '^  shard.round_late=on: no rounded weights beside masters$' "$tmp/out"
limited 600000 "$i" data.batch=4096 data.seq=256 precision.param=bf16 shard.strategy=full shard.round_late=on
ok "unless it is on" bash -c 'grep -q "what would need less" "$0" && ! grep -q round_late "$0"' "$tmp/out"
ok "nor of evaluations" bash -c '! grep -q evaluations "$0"' "$tmp/out"
limited 600000 "$i" data.batch=2 data.seq=256 data.micro_batch=4096 eval.every=1 eval.files="$text" eval.samples=40
ok "an evaluation in passes that do not fit is 1" test $? = 1
ok "smaller ones would need less" \
    grep -q '^  data.micro_batch=2: evaluations in passes of 2 rows, not 4096$' "$tmp/out"
# OpenBLAS takes room of its own, and waits for ever where there is none: some
# versions while they are loaded, before anything of a program runs.
waits=
for ((kib = 240000; kib >= 60000; kib -= 12000)); do
    (ulimit -v "$kib" && exec timeout -s KILL 10 "$train" --version) >/dev/null 2>&1 || break
    (ulimit -v "$kib" && exec timeout -s KILL 10 "$train" "$i" run.steps=2) >"$tmp/out" 2>&1
    [ $? -lt 128 ] || waits+=" $kib"
    grep -q 'MiB that OpenBLAS works in; a higher limit' "$tmp/out" && blas=$kib
done
ok "with however little memory, a run ends" test -z "$waits"
if ldd "$train" | grep -q libopenblas; then
    ok "where it is the products' that is said" test -n "${blas:-}"
fi
grpo_files "$tmp"
limited 600000 "$tmp/small.ini" "${big[@]}"
ok "grpo that does not fit is 1" test $? = 1
row=$(sed -nE 's/^  \(rows of ([0-9]+) tokens, the longest prompt and grpo.max_completion_length=([0-9]+); .*/\1 \2/p' "$tmp/out")
ok "its rows are prompts of 6 bytes and completions" test "${row% *}" = $((6 + ${row#* }))
ok "of which fewer tokens need less" grep -q '^  a smaller grpo.max_completion_length, shorter prompts or model$' "$tmp/out"
ok "data.seq is not said, which it has not" bash -c '! grep -q data.seq "$0"' "$tmp/out"
ok "what fits has no table" limited 600000 "$i"
ok "so" bash -c '! grep -q "what a rank holds" "$0"' "$tmp/out"
plan
