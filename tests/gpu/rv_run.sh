#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rv_run.sh - a FULL_SHARD step of a 1b model under rv run, on a private Slurm whose
# gres are this host's GPUs: all of them on one node, and half each on two
#
# usage: top_srcdir=... top_builddir=... rv_run.sh; the library that NCCL is loaded
# from is on LD_LIBRARY_PATH. TAP; where there is no GPU or no Slurm it is skipped.
# STEPS (4) and MODEL ("16 2048 32 8 8192": layers, dim, heads, heads of keys and
# values, ffn) make it smaller.
: "${top_srcdir:?}"
required=${RV_REQUIRE:-}
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"
export NCCL_NVLS_ENABLE=0

rv=$(cd "$top_builddir" && pwd)/rv
train=$(cd "$top_builddir" && pwd)/rv-train
text=$(cd "$top_srcdir" && pwd)/LICENSE
steps=${STEPS:-4}
read -r layers dim heads kv_heads ffn <<<"${MODEL:-16 2048 32 8 8192}"
box=$(mktemp -d /tmp/rvg.XXXXXX) # sockets have short names
export XDG_STATE_HOME=$box/state

away ()
{
    "$rv" sandbox down --dir "$box/s" >/dev/null 2>&1
    rm -rf "$box"
    clean_up
}
trap away EXIT

skip ()
{
    echo "1..0 # SKIP $1"
    [[ ",$required," != *,"$2",* ]]
    exit
}

gpus=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | wc -l)
[ "$gpus" -gt 0 ] || skip "no GPU" gpu
[ "$(gpus_seen)" = "$gpus" ] || skip "a part of the GPUs is lent, and Slurm would take any" gpu
for p in munged slurmctld slurmd srun sbatch; do
    PATH=$PATH:/usr/sbin:/sbin command -v $p >/dev/null || skip "$p is not installed" slurm
done

cat >"$box/1b.ini" <<EOF
[run]
device = cuda
steps = $steps
[model]
vocab = 50304
layers = $layers
dim = $dim
heads = $heads
kv_heads = $kv_heads
ffn = $ffn
[precision]
param = bf16
[shard]
strategy = full
[data]
files = $text
seq = 512
batch = $((2 * gpus))
[optim]
lr = 3e-4
warmup = 2
EOF

# up NODES - a Slurm of so many
up ()
{
    "$rv" sandbox up --dir "$box/s" --nodes "$1" --gpus "$gpus" >"$tmp/out" 2>&1 &&
        eval "$("$rv" sandbox env --dir "$box/s")"
}

down ()
{
    "$rv" sandbox down --dir "$box/s" >"$tmp/out" 2>&1
}

# job ARG... - rv run, to its end; what the ranks print is in $tmp/out
job ()
{
    rm -f "$box/metrics"
    timeout -k 5 200 "$rv" run -f -g "$gpus" --time 5m "$@" -- "$train" "$box/1b.ini" \
        "log.file=$box/metrics" >"$tmp/out" 2>&1
}

# by_srun - the plugin's option for the GPUs, without rv run
by_srun ()
{
    rm -f "$box/metrics"
    timeout -k 5 200 srun -Q "--rv-gpu=$gpus" "$train" "$box/1b.ini" "log.file=$box/metrics" \
        >"$tmp/out" 2>&1
}

# Losses begin near ln (vocab) and fall, norms are numbers, all is counted.
sound ()
{
    [ "$(wc -l <"$box/metrics")" = "$steps" ] && losses "$box/metrics" | awk '
        NR == 1 { first = $1 } { last = $1 }
        END { exit !(first > 10 && first < 13 && last > 0 && last < first) }' &&
        ! grep -qi 'nan\|inf' "$box/metrics" && tail -n 1 "$box/metrics" | sed 's/^/# /'
}

of_nccl ()
{
    grep -E "^rv-train .*: $gpus ranks? \(nccl" "$tmp/out" | sed 's/^/# /' | grep .
}

# Each rank had a GPU of its own: rv's record of the last request names them.
apart ()
{
    local dir
    dir=$(ls -td "$XDG_STATE_HOME"/rv/requests/*/ | head -n 1)
    [ "$(cat "$dir"/rank-*.json | grep -o '"node": *"n[0-9]*"' | sort -u | wc -l)" = "$1" ]
}

for nodes in 1 2; do
    [ $((gpus % nodes)) = 0 ] || continue
    ok "a Slurm of $nodes nodes with $gpus GPUs" up "$nodes"
    ok "$nodes nodes: 1b, FULL_SHARD, $steps steps by rv run" job "--nodes=$nodes"
    ok "$nodes nodes: $gpus ranks of NCCL" of_nccl
    ok "$nodes nodes: the ranks are on all nodes" apart "$nodes"
    ok "$nodes nodes: metrics are sound" sound
    cp "$box/metrics" "$box/metrics.$nodes"
    [ $nodes = 2 ] && ok "the losses of one node" near "$box/metrics.1" "$box/metrics.2" 1e-2 "$steps"
    if [ $nodes = 1 ]; then
        ok "the same by srun --rv-gpu=$gpus" by_srun
        ok "with its losses" near "$box/metrics" "$box/metrics.1" 1e-2 "$steps"
    fi
    ok "it goes down" down
done
plan
