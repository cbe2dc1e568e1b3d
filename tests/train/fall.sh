#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fall.sh - one rank learns real text, and says so in lines and in metrics
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

small "$tmp/a.ini" '[log]' "file = $tmp/deep/er/m.jsonl" 'every = 5'
ok "trains" run "$tmp/a.ini" run.steps=60 model.dim=32
ok "first loss is that of 256 equal bytes" \
    awk 'NR == 1 { exit !($1 > 5.4 && $1 < 5.7) }' <(losses "$tmp/deep/er/m.jsonl")
ok "last loss is below 3.6" \
    awk 'END { exit !($1 > 1 && $1 < 3.6) }' <(losses "$tmp/deep/er/m.jsonl")
ok "a line of metrics for each step" \
    awk '{ if ($0 !~ "^[{]\"step\":" NR ",\"loss\":[0-9.]+,\"grad_norm\":[0-9.e+-]+,\"lr\":[0-9.e-]+,\"tok_per_s\":[0-9.]+,\"step_s\":[0-9.]+,\"tokens\":" NR * 256 ",\"skipped\":false,\"mem_bytes\":[0-9]+,\"loss_scale\":null,\"eval_loss\":null[}]$") bad = 1 } END { exit bad || NR != 60 }' "$tmp/deep/er/m.jsonl"
ok "every fifth step on stdout, and the first" \
    test "$(grep -c '^step ' "$tmp/out")" = 13
ok "the last line has both losses" \
    grep -Eq '^done: step 60, loss 5\.[0-9]+ -> [123]\.[0-9]+, [0-9.]+ s$' "$tmp/out"

losses "$tmp/deep/er/m.jsonl" >"$tmp/first"
ok "trains again" run "$tmp/a.ini" run.steps=60 model.dim=32
ok "with the same bits, in a file begun anew" \
    cmp -s "$tmp/first" <(losses "$tmp/deep/er/m.jsonl")
ok "trains in fp64" run "$tmp/a.ini" precision.param=fp64 "log.file=$tmp/one"
ok "trains in micro-batches" run "$tmp/a.ini" precision.param=fp64 \
    data.micro_batch=2 "log.file=$tmp/four"
ok "same losses within 1e-12" near "$tmp/one" "$tmp/four" 1e-12 12
ok "trains in fp16 with a loss scale" run "$tmp/a.ini" precision.param=fp16 \
    precision.scaler=on "log.file=$tmp/f16"
run "$tmp/a.ini" precision.param=fp32 "log.file=$tmp/f32"
ok "fp16's losses within 1 % of fp32's" near "$tmp/f32" "$tmp/f16" 1e-2 12
ok "trains with buffers in bf16" run "$tmp/a.ini" precision.buffer=bf16 "log.file=$tmp/buffer"
ok "losses within 0.1 % of fp32's" near "$tmp/f32" "$tmp/buffer" 1e-3 12
ok "and others" bash -c '! cmp -s "$0" "$1"' <(losses "$tmp/f32") <(losses "$tmp/buffer")
if run "$tmp/a.ini" run.device=cuda "log.file=$tmp/gpu" 2>"$tmp/why"; then
    ok "cuda's losses within 1e-4 of the host's" near "$tmp/f32" "$tmp/gpu" 1e-4 12
else
    ok "cuda where there is none is said" \
        grep -Eq 'run\.device=cuda \(device = cpu would work\): device cuda: ' "$tmp/why" "$tmp/out"
fi
# Of auto the first line says what it took, and of the host why.
ok "trains on what auto takes" run "$tmp/a.ini" run.device=auto run.steps=2 "log.file="
ok "and says so" grep -Eq '^rv-train [^ ]+: 1 rank \([a-z]+\), device (cpu \(auto: (libtrain was built without CUDA|no GPU is visible.*)\)|.+ \(auto\)), fp32$' "$tmp/out"
ok "fp64 by auto" run "$tmp/a.ini" run.device=auto run.steps=2 "log.file=" precision.param=fp64
ok "is the host's" grep -q ', device cpu (auto: fp64 is of the host), fp64$' "$tmp/out"
ok "another seed gives other losses" run "$tmp/a.ini" run.seed=2 "log.file=$tmp/other"
ok "seen" bash -c '! cmp -s "$0" "$1"' <(losses "$tmp/other") <(losses "$tmp/one")
# A terminal has a live line as well, cut to its width; what stays is the same.
tty ()
{
    script -qec "stty cols ${1:-200}; exec '$train' '$tmp/a.ini' run.steps=40 log.every=20 model.dim=32" /dev/null </dev/null >"$tmp/tty" 2>&1
}
if script -qec true /dev/null </dev/null >"$tmp/tty" 2>&1; then
    ok "trains on a terminal" env TERM=xterm bash -c "$(declare -f tty); train=$train tmp=$tmp; tty"
    ok "a live line with what is left and memory" \
        grep -aEq $'\rstep [0-9]+/40  loss .*  [0-9]+:[0-9]{2}:[0-9]{2} left  [0-9.]+ GiB\033\\[K' "$tmp/tty"
    ok "taken away before one that stays" grep -aEq $'\r\033\\[Kstep 20/40 .* ms\r?$' "$tmp/tty"
    ok "a narrow one" env TERM=xterm bash -c "$(declare -f tty); train=$train tmp=$tmp; tty 30"
    ok "is cut" grep -aEq $'\rstep [0-9]+/40  loss [0-9.]+ [^\033]{0,8}\033\\[K' "$tmp/tty"
    ok "a dumb one" env TERM=dumb bash -c "$(declare -f tty); train=$train tmp=$tmp; tty"
    ok "has plain lines" test "$(grep -ac $'\033' "$tmp/tty")" = 0
fi
echo 'not ours' >"$tmp/foreign"
run "$tmp/a.ini" "log.file=$tmp/foreign"
ok "a file that is no metrics is refused with 3" test $? = 3
ok "and left alone" test "$(cat "$tmp/foreign")" = 'not ours'
plan
