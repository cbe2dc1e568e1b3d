# SPDX-License-Identifier: Apache-2.0
# lib.bash - TAP for the scripts beside it, and a small run of rv-train.
# shellcheck shell=bash
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
export LC_ALL=C
unset "${!RV_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset "${!SLURM_@}" "${!PMIX_@}"
export OMP_NUM_THREADS=1 # ranks of a test share few CPUs

train=$top_builddir/rv-train
text=$top_srcdir/LICENSE
tmp=$(mktemp -d "${TMPDIR:-/tmp}/rv-train-test.XXXXXX") || exit 1
count=0
started=() # processes of this script alone

clean_up ()
{
    local pid
    for pid in "${started[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$tmp"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
# shellcheck source=tests/train/metrics.bash
. "$top_srcdir/tests/train/metrics.bash"

# ok NAME CMD... - a test that passes when CMD does; shows $tmp/out when not.
ok ()
{
    local name=$1
    shift
    count=$((count + 1))
    if "$@"; then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        [ -f "$tmp/out" ] && tail -n 20 "$tmp/out" | sed 's/^/# /'
    fi
}

plan ()
{
    echo "1..$count"
}

# small FILE [LINE...] - an INI file of a model that takes milliseconds a step.
small ()
{
    local file=$1
    shift
    cat >"$file" <<EOF
[run]
device = cpu
steps = 12
[model]
layers = 1
dim = 16
heads = 2
kv_heads = 1
ffn = 32
[data]
files = $text
seq = 32
batch = 8
[optim]
lr = 1e-2
warmup = 2
EOF
    [ $# -eq 0 ] || printf '%s\n' "$@" >>"$file"
}

# small_tokenizer FILE - a tokenizer.json: ASCII, three merges, two tokens that may
# end a text.
small_tokenizer ()
{
    awk 'BEGIN {
        printf "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
        printf "\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"</s>\":0,\"<s>\":1,\"\\n\":2"
        for (i = 32; i < 127; i++) {
            c = sprintf ("%c", i)
            printf ",\"%s\":%d", (c == "\"" || c == "\\" ? "\\" : "") c, i - 29
        }
        printf ",\"th\":98,\"the\":99,\"in\":100},\"merges\":[\"t h\",\"th e\",\"i n\"]}}"
    }' >"$1"
}

# run ARG... - rv-train with its output in $tmp/out; returns its exit status.
run ()
{
    timeout 300 "$train" "$@" >"$tmp/out" 2>&1
}

# gpus_seen - how many GPUs programs see here.
gpus_seen ()
{
    if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
        tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .
    else
        nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | wc -l
    fi
}

# free_port - a TCP port that nothing listens on now.
free_port ()
{
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        grep -qi ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 2>/dev/null || break
    done
    echo $port
}

# start_ranks N NODES ARG... - N processes, as someone without Slurm starts
# them, each in ${ranks_cd}.RANK where that is set; their output in $tmp/out.RANK,
# their ids in pids.
start_ranks ()
{
    local n=$1 per=$(($1 / $2)) port rank
    shift 2
    port=$(free_port)
    pids=()
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$((rank % per)) LOCAL_WORLD_SIZE=$per \
            NODE_RANK=$((rank / per)) MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            RV_NCCL_TIMEOUT=60 env -C "${ranks_cd:-$PWD}${ranks_cd:+.$rank}" "$train" "$@" >"$tmp/out.$rank" 2>&1 &
        pids+=($!)
        started+=($!)
    done
}

# wait_ranks - their exit statuses, "0 0 0 0", in statuses.
wait_ranks ()
{
    local pid
    statuses=
    for pid in "${pids[@]}"; do
        wait "$pid"
        statuses+=" $?"
    done
    statuses=${statuses# }
    cat "$tmp"/out.[0-9]* >"$tmp/out"
}

# ranks STATUSES N NODES ARG... - do N ranks end with these statuses?
ranks ()
{
    local want=$1
    shift
    rm -f "$tmp"/out.*
    start_ranks "$@"
    wait_ranks
    [ "$statuses" = "$want" ] || { echo "statuses $statuses" >>"$tmp/out"; return 1; }
}
