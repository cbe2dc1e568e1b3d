#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# refserver.sh - rv-train refserver: its answers are those of the model in this
# process, it can be killed in mid-run, and refuses what it must
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

tool=$top_builddir/tests/train/ref_tool
server="" url="" host="" port=""

# serve ARG... - start it, and read where it listens.
serve ()
{
    local i
    : >"$tmp/server" # what the last one said is not to be read
    "$train" refserver "$@" >"$tmp/server" 2>&1 &
    server=$!
    started+=("$server")
    for ((i = 0; i < 300; i++)); do
        url=$(sed -nE 's/^refserver: (http[^ ]*) .*/\1/p' "$tmp/server")
        [ -z "$url" ] || break
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    port=${url##*:} host=${url#http://} host=${host%:*}
    [ -n "$url" ] || { cat "$tmp/server" >"$tmp/out"; return 1; }
}

# ended STATUS - the server ends with it
ended ()
{
    wait "$server"
    [ $? = "$1" ]
}

stopped ()
{
    kill -TERM "$server" && ended 0
}

# refused STATUS PATTERN ARG... - it does not start, and one line says why
refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    timeout 20 "$train" refserver "$@" >"$tmp/out" 2>&1
    rc=$?
    [ $rc = "$want" ] && [ "$(wc -l <"$tmp/out")" = 1 ] && grep -Eq -- "$pattern" "$tmp/out"
}

# raw - stdin to the server, its answer to $tmp/out; ends when it closes
raw ()
{
    : >"$tmp/out" # the last answer is not this one's
    { exec 9<>"/dev/tcp/$host/$port"; } 2>/dev/null || return 1
    cat >&9
    timeout 20 cat <&9 >"$tmp/out"
    exec 9<&-
}

# says STATUS PATTERN METHOD PATH BODY [HEADER...] - one request and its answer
says ()
{
    local status=$1 pattern=$2 method=$3 path=$4 body=$5
    shift 5
    {
        printf '%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n' "$method" "$path" "${#body}"
        [ $# = 0 ] || printf '%s\r\n' "$@"
        printf '\r\n%s' "$body"
    } | raw
    head -n 1 "$tmp/out" | grep -q "^HTTP/1.1 $status " && grep -Eq -- "$pattern" "$tmp/out"
}

asks ()
{
    timeout 100 "$tool" "$@" >"$tmp/out" 2>&1
}

# body KIND STATUS PATTERN PATH [HEADER...] - the answer to a POST whose body is no
# good: chunks N of 64 KiB, part (3 bytes of 500), more (than its length), none, gzip.
# All is sent before the answer is read; the server closes then.
body ()
{
    local status=$2 pattern=$3
    set -- "$1" "${@:4}"
    python3 - "$host" "$port" "$@" >"$tmp/out" 2>&1 <<'EOF' || return
import socket, sys
host, port, kind, path, *more = sys.argv[1:]
head = {"part": "Content-Length: 500", "more": "Content-Length: 3",
    "none": "X: y", "gzip": "Transfer-Encoding: gzip"}.get (kind, "Transfer-Encoding: chunked")
s = socket.create_connection ((host, int (port)))
s.settimeout (20)
s.sendall ("\r\n".join ([f"POST {path} HTTP/1.1", "Host: x", head, *more, "", ""]).encode ())
if kind.startswith ("chunks"):
    for i in range (int (kind.split ()[1])):
        s.sendall (b"10000\r\n" + b"x" * 65536 + b"\r\n")
    s.sendall (b"0\r\n\r\n")
elif kind != "gzip":
    s.sendall (b"abc" if kind != "more" else b"abcdef\r\n\r\n")
got = b""
while more := s.recv (65536):
    got += more
print (got.decode ())
EOF
    head -n 1 "$tmp/out" | grep -q "^HTTP/1.1 $status " && grep -Eq -- "$pattern" "$tmp/out"
}

# busy CODE - does the client ask again a server that answers so?
busy ()
{
    python3 - "$1" >"$tmp/busy" <<'EOF' &
import socket, sys
s = socket.create_server (("127.0.0.1", 0))
print (s.getsockname ()[1], flush=True)
while True:
    c = s.accept ()[0]
    c.recv (65536)
    c.sendall (f"HTTP/1.1 {sys.argv[1]} x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode ())
    c.close ()
EOF
    started+=($!)
    until [ -s "$tmp/busy" ]; do sleep 0.05; done
    asked_in_vain 'within 1 s and [0-9]+ tries: ' ask "http://127.0.0.1:$(<"$tmp/busy")" - 256 1
}

# asked_in_vain PATTERN ARG...
asked_in_vain ()
{
    local pattern=$1
    shift
    ! asks "$@" && grep -Eq -- "$pattern" "$tmp/out"
}

small "$tmp/g.ini" '[checkpoint]' "dir = $tmp/ckpt" 'every = 12'
ok "a model" run "$tmp/g.ini"
if ! serve --port 0 "$tmp/ckpt" && grep -q 'built without libmicrohttpd' "$tmp/server"; then
    ok "without libmicrohttpd the error says so" grep -q -- --with-microhttpd "$tmp/server"
    plan
    exit 0
fi
ok "it listens at a free port of this machine" test "$host" = 127.0.0.1
ok "health has version, model and vocabulary" says 200 '"api":1,"version":"[0-9.]+","model":"[0-9a-f]{16}","vocabulary":256' GET /health ''
ok "another path is not there" says 404 '/v1/logps' POST /v2/logps x
ok "another method is refused" says 405 'Allow: POST' GET /v1/logps ''
ok "garbage is 400 with a JSON error" says 400 '^\{"error":"[^"]+"\}$' POST /v1/logps 'no safetensors at all'
ok "so is nothing" says 400 '"error"' POST /v1/logps ''
# The error names a tensor whose name it cuts within a character.
odd_name ()
{
    local name head
    printf -v name 'x%030d' 0
    head="{\"${name//0/$'\303\251'}\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}"
    {
        printf 'POST /v1/logps HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' $((12 + ${#head}))
        printf '%b' "\\x$(printf %02x ${#head})"
        printf '\0\0\0\0\0\0\0%s\0\0\0\0' "$head"
    } | raw
    head -n 1 "$tmp/out" | grep -q '^HTTP/1.1 400 ' && grep -q 'none of ids, prompt_len' "$tmp/out"
}
ok "so is a tensor of another name, in any script" odd_name
printf '\r\n\r\n\0\1\2garbage\r\n\r\n' | raw
ok "so is a body that goes on behind its length" body more 400 '"error"' /v1/logps
ok "one without a length is 411" body none 411 'Connection: close' /v1/logps
other_coding () # libmicrohttpd 1 refuses it by itself
{
    body gzip 501 'chunked alone' /v1/logps || grep -q '^HTTP/1.1 400 ' "$tmp/out"
}
ok "one of another coding is refused" other_coding
ok "what is no HTTP leaves it up" says 200 ok GET /health ''
if ! asks ask "$url" - 256 5 && grep -q 'built without libcurl' "$tmp/out"; then
    ok "without libcurl the error says so" grep -q -- --with-curl "$tmp/out"
    ok "it stops" stopped
    plan
    exit 0
fi
ok "answers have the bits of the model here" asks same "$tmp/ckpt" "$url" - 12 20
ok "another vocabulary is refused" asked_in_vain 'EMISMATCH .*has 256 tokens, the one that is trained 257' ask "$url" - 257 5

# Killed without a goodbye, and back a while later at the same port.
killed ()
{
    local asker
    timeout 100 "$tool" same "$tmp/ckpt" "$url" - 400 60 >"$tmp/out" 2>&1 &
    asker=$!
    started+=("$asker")
    until grep -q '^batch 40:' "$tmp/out"; do kill -0 $asker 2>/dev/null || return 1; sleep 0.01; done
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    sleep 0.3
    serve --port "$port" "$tmp/ckpt" || return 1
    wait $asker && [ "$(grep -c ': same,' "$tmp/out")" = 400 ]
}
ok "killed and started again in mid-run, no step is lost" killed

other ()
{
    local asker
    timeout 100 "$tool" same "$tmp/ckpt" "$url" - 4000 60 >"$tmp/out" 2>&1 &
    asker=$!
    started+=("$asker")
    until grep -q '^batch 10:' "$tmp/out"; do kill -0 $asker 2>/dev/null || return 1; sleep 0.01; done
    stopped || return 1
    serve --port "$port" "$tmp/other" || return 1
    ! wait $asker && grep -q 'EMISMATCH .*its model was [0-9a-f]* and is [0-9a-f]* now' "$tmp/out"
}
run "$tmp/g.ini" checkpoint.dir="$tmp/other" run.seed=2
ok "back with other weights is an error" other
ok "told to end, it ends" stopped
ok "a server that is gone is an error at the deadline" asked_in_vain 'ETIMEDOUT .*within 1 s and [0-9]+ tries: ' ask "$url" - 256 1

umask 077
echo 0123456789abcdef0123 >"$tmp/token"
echo 0123456789abcdef0124 >"$tmp/wrong"
ok "it starts with a token" serve --port 0 --token-file "$tmp/token" --max-tokens 64 "$tmp/ckpt"
ok "without one it is 401" says 401 'WWW-Authenticate: Bearer' GET /health ''
ok "with another it is 401" says 401 'not the server' GET /health '' 'Authorization: Bearer 0123456789abcdef0124'
ok "with its own it is 200" says 200 ok GET /health '' 'Authorization: Bearer 0123456789abcdef0123'
ok "the client is told of a wrong one" asked_in_vain 'EIO .*HTTP 401' ask "$url" "$tmp/wrong" 256 5
# 3 rows of up to 24 tokens go in parts of 64.
ok "more tokens than it takes are asked for in parts" asks ask "$url" "$tmp/token" 256 5
long=$(printf '%0140000d' 0)
ok "so is a body that cannot be right" says 413 'a body may have' POST /v1/logps "$long" 'Authorization: Bearer 0123456789abcdef0123'
printf 'POST /v1/logps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef0123\r\nContent-Length: 99999999999\r\n\r\n' | raw
ok "and one of a hundred gigabytes, before it comes" grep -q '^HTTP/1.1 413' "$tmp/out"
auth='Authorization: Bearer 0123456789abcdef0123'
ok "in chunks, too" body "chunks 2" 413 'a body may have' /v1/logps "$auth" 'Connection: close'
ok "in many chunks, while they come" body "chunks 256" 413 '^\{"error":"a body may have' /v1/logps "$auth"
ok "as another path is told" body "chunks 256" 404 'there is POST' /nowhere "$auth"
ok "and who has no token" body "chunks 256" 401 'WWW-Authenticate: Bearer' /v1/logps
# libmicrohttpd refuses it before it asks us, in words (and HTML) of its own.
printf 'POST /v1/logps HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 1x\r\n\r\n' "$auth" | raw
ok "a length that is no number is 400" grep -q '^HTTP/1.1 400' "$tmp/out"
ok "it goes on" says 200 '"status":"ok"' GET /health '' "$auth"
chmod 0640 "$tmp/wrong"
ok "the client refuses a token file that others can read" asked_in_vain 'EFORMAT .*chmod 0600' ask "$url" "$tmp/wrong" 256 5
ok "it stops" stopped
ok "so does the server" refused 3 'mode 0640 lets others at it' --token-file "$tmp/wrong" "$tmp/ckpt"
ok "other machines may reach it with a token alone" refused 2 'needs --token-file' --address 0.0.0.0 --port 0 "$tmp/ckpt"
ok "an address is a number" refused 2 'must be a number' --address localhost --port 0 "$tmp/ckpt"
ok "a model must be there" refused 3 nowhere --port 0 "$tmp/nowhere"
ok "an option must be one" refused 2 'is no option' --prot 0 "$tmp/ckpt"

# Parts are of other rows, whose products' sums the host makes in another order.
in_parts ()
{
    asks same "$tmp/ckpt" "$url" - 8 20
    awk '/^batch/ { n++; if ($NF > 2e-6) bad = 1 } END { exit bad || n != 8 }' "$tmp/out" &&
        says 200 '"answered":(1[6-9]|2[0-9])' GET /health ''
}
# It is back with less than it said at first.
smaller ()
{
    local asker
    timeout 100 "$tool" same "$tmp/ckpt" "$url" - 400 60 >"$tmp/out" 2>&1 &
    asker=$!
    started+=("$asker")
    until grep -q '^batch 40:' "$tmp/out"; do kill -0 $asker 2>/dev/null || return 1; sleep 0.01; done
    stopped || return 1
    serve --port "$port" --max-tokens 24 "$tmp/ckpt" || return 1
    wait $asker
    awk '/^batch/ { n++; if ($NF > 2e-6) bad = 1 } END { exit bad || n != 400 }' "$tmp/out"
}
ok "it starts with room for a row of 24 tokens" serve --port 0 --max-tokens 24 "$tmp/ckpt"
ok "3 rows of up to 24 are asked for in parts" in_parts
ok "it stops" stopped
ok "it starts with room for all" serve --port 0 "$tmp/ckpt"
ok "in parts from when it takes less" smaller
ok "it stops" stopped
ok "it starts with room for less than a row" serve --port 0 --max-tokens 6 "$tmp/ckpt"
ok "which says the limit, and the option" asked_in_vain 'EINVAL .*HTTP 413: 1 rows of [0-9]+ are [0-9]+ tokens; a request may have 6; one text has [0-9]+, and rv-train refserver --max-tokens' ask "$url" - 256 5
ok "it stops" stopped

# A head that never ends, a byte now and then: such connections are not kept.
slow ()
{
    local i
    { exec 8<>"/dev/tcp/$host/$port"; } 2>/dev/null || return 1
    printf 'GET /health HTTP/1.1\r\nX-Slow: ' >&8
    for ((i = 0; i < 300; i++)); do
        (printf x >&8) 2>/dev/null || break
        sleep 0.1
    done
    exec 8>&-
    [ $i -lt 300 ]
}
ok "it starts with little time for a request" serve --port 0 --timeout 1 "$tmp/ckpt"
ok "a head that never ends is not waited for" slow
ok "nor a body, which is told" body part 408 'no more of the body came' /v1/logps
ok "a client that is told so asks again" busy 408
ok "while a request is served" says 200 ok GET /health ''
ok "it stops" stopped

# Requests that wait are few, and the clients many.
ok "it starts with a short queue" serve --port 0 --queue 1 "$tmp/ckpt"
turned_away ()
{
    local i
    for i in 1 2 3 4 5; do # on a busy machine they may happen to come in turn
        asks load "$url" - 6 12 512 && grep -q '"errors":0' "$tmp/out" || return 1
        says 200 '"refused":[1-9]' GET /health '' && return
    done
    return 1
}
ok "a full queue turns clients away, who come again" turned_away
ok "it stops" stopped

# Small requests together: the sums of products are made in another order.
together ()
{
    local i
    serve --port 0 --batch-tokens 4096 "$tmp/ckpt" || return 1
    asks same "$tmp/ckpt" "$url" - 8 20
    awk '/^batch/ { n++; if ($NF > 2e-6) bad = 1 } END { exit bad || n != 8 }' "$tmp/out" || return 1
    for i in 1 2 3; do
        asks load "$url" - 16 100 16 || return 1
        says 200 "\"answered\":$((8 + 100 * i)),\"passes\":[0-9]+" GET /health '' || return 1
        sed -nE 's/.*"answered":([0-9]+),"passes":([0-9]+).*/\1 \2/p' "$tmp/out" |
            awk '{ exit !($2 < $1) }' && return
    done
    return 1
}
ok "small requests go through the model together" together
ok "it stops" stopped

requests=50
[ -z "${RV_TEST_LONG:-}" ] || requests=1000
ok "it starts" serve --port 0 "$tmp/ckpt"
loaded ()
{
    local i
    for i in 1 2 3; do # a busy machine may hold up one request, of so few the last
        asks load "$url" - 64 $requests 512 && grep -q '"errors":0,' "$tmp/out" || return 1
        sed 's/^/# /' "$tmp/out"
        sed -nE 's/.*"median":([0-9.]+),"p99":([0-9.]+).*/\1 \2/p' "$tmp/out" |
            awk '{ n++; if (!($2 < 5 * $1)) bad = 1 } END { exit bad || n != 1 }' && return
    done
    return 1
}
ok "64 clients, $requests requests of 512 tokens: p99 is under 5 medians" loaded
ok "it stops" stopped

# task = grpo with it: the losses of a copy in its own process, to the bit.
for ((i = 10; i < 42; i++)); do
    printf '{"prompt":"%d+%d:","answer":"%d"}\n' "$i" "$i" $((2 * i))
done >"$tmp/sums.jsonl"
small "$tmp/sft.ini" '[checkpoint]' "dir = $tmp/sft" 'every = 10'
cat >"$tmp/grpo.ini" <<EOF
[run]
task = grpo
device = cpu
steps = 30
[model]
dir = $tmp/sft
[data]
files = $tmp/sums.jsonl
batch = 32
[grpo]
num_generations = 4
max_completion_length = 8
beta = 0.04
[optim]
lr = 1e-3
[reward vowel]
kind = regex
pattern = [aeiou]
EOF
ok "a policy" run "$tmp/sft.ini" run.task=sft data.files="$tmp/sums.jsonl" model.vocab=257 run.steps=10
ok "grpo beside a copy of its own" run "$tmp/grpo.ini" log.file="$tmp/own"
ok "a server of the same model" serve --port 0 "$tmp/sft"
# await TEXT - until the output has it
await ()
{
    local i
    for ((i = 0; i < 600; i++)); do
        grep -q "$1" "$tmp/out" && return
        sleep 0.1
    done
    return 1
}

# said_wait N - it said N times that it waits for the server, with its URL, and N
# times that there is an answer
said_wait ()
{
    [ "$(grep -c "^rv-train: reference $url does not answer (.*); waiting for it, up to [56][0-9][0-9] s$" "$tmp/out")" = "$1" ] &&
        [ "$(grep -cE "^rv-train: reference $url answers, after [0-9.]+ s$" "$tmp/out")" = "$1" ]
}

kept ()
{
    local asker
    timeout 100 "$train" "$tmp/grpo.ini" log.file="$tmp/http" reference.url="$url" >"$tmp/out" 2>&1 &
    asker=$!
    started+=("$asker")
    until [ -f "$tmp/http" ] && [ "$(wc -l <"$tmp/http")" -ge 3 ]; do
        kill -0 $asker 2>/dev/null || return 1
        sleep 0.01
    done
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    await 'does not answer' || return 1
    serve --port "$port" "$tmp/sft" || return 1
    wait $asker && [ "$(wc -l <"$tmp/own")" = 30 ] && cmp <(losses "$tmp/own") <(losses "$tmp/http") >>"$tmp/out" 2>&1
}
ok "grpo beside the server, killed in mid-run, has the same losses" kept
ok "it says once that it waits, and once that it need not" said_wait 1

# A server that is not there yet: it is said before it is waited for.
late ()
{
    local asker
    kill -KILL "$server"
    wait "$server" 2>/dev/null
    : >"$tmp/out" # what the last run said is not to be read
    timeout 100 "$train" "$tmp/grpo.ini" log.file="$tmp/http" reference.url="$url" >"$tmp/out" 2>&1 &
    asker=$!
    started+=("$asker")
    await 'does not answer' || return 1
    serve --port "$port" "$tmp/sft" && wait $asker
}
ok "grpo waits for a server that comes later" late
ok "which is said, too" said_wait 1

# Told to stop while it waits: for a server that is gone, or for an answer.
# waits SIGNAL HOW NAME - the status is 75 within a second, with a checkpoint
waits ()
{
    local asker guard at signal=$1 how=$2 name=$3 rc
    rm -f "$tmp/http"
    "$train" "$tmp/grpo.ini" log.file="$tmp/http" reference.url="$url" \
        checkpoint.dir="$tmp/$name" checkpoint.every=100 >"$tmp/out" 2>&1 &
    asker=$!
    started+=("$asker")
    until [ -f "$tmp/http" ] && [ "$(wc -l <"$tmp/http")" -ge 3 ]; do
        kill -0 $asker 2>/dev/null || return 1
        sleep 0.01
    done
    kill "-$how" "$server"
    sleep 0.5
    at=${EPOCHREALTIME/./}
    kill "-$signal" $asker
    (sleep 20 && kill -KILL $asker) 2>/dev/null & # it is not waited for without an end
    guard=$!
    wait $asker
    rc=$?
    kill $guard
    echo "# status $rc after $(((${EPOCHREALTIME/./} - at) / 1000)) ms" | tee -a "$tmp/out"
    [ "$how" = KILL ] || kill -CONT "$server"
    [ $rc = 75 ] && [ $((${EPOCHREALTIME/./} - at)) -lt 1500000 ] && grep -q '^stopped on request after step' "$tmp/out"
}
ok "told to stop while it waits for an answer" waits TERM STOP kept1
ok "it goes on from there" run "$tmp/grpo.ini" log.file="$tmp/http" reference.url="$url" checkpoint.dir="$tmp/kept1"
ok "to the same losses" cmp <(losses "$tmp/own") <(losses "$tmp/http")
ok "told to stop while the server is gone" waits USR1 KILL kept2
ok "it serves again" serve --port "$port" "$tmp/sft"
ok "it stops" stopped
plan
