# SPDX-License-Identifier: Apache-2.0
# edges.bats - what rv's commands have in common: schemas, pages, one cluster,
# whose jobs they touch; and what a terminal and another user see of them: 2
# nodes x 2 GPUs
# shellcheck disable=SC2154,SC2016 # bats' run sets status, output, stderr

load run

setup_file() {
    sandbox_up --nodes 2 --gpus 4 --cpus 4
    [ -z "${RVT_SKIP:-}" ] || return 0
    # Backfill tells when a job should start, and looks twice a minute; told
    # otherwise, it sleeps its first half minute all the same.
    sed -i 's/^SchedulerParameters=.*/&,bf_interval=1,sched_interval=1/' "$SLURM_CONF"
    kill "$(daemon slurmctld)"
    wait_for 30 gone "$(daemon slurmctld)"
    restart slurmctld
    wait_for 30 nodes_idle
}

# Nothing of a test that failed is in the way of the next.
teardown() {
    [ -z "${RVT_SKIP:-}" ] || return 0
    scancel --me >/dev/null 2>&1 || true
}

# lacks ARG... - grep finds nothing; a plain "!" would not fail a test
lacks() {
    if grep "$@"; then return 1; fi
}

commands() {
    "$RV" help --json | jq -r '.commands[].name'
}

@test "each command has a page with its statuses, --json and a schema that names its members" {
    local c page schema
    for c in $(commands); do
        page=$RV_SRC/launcher/rv-$c.1
        for word in '^\.SH EXIT STATUS' '\\-\\-json' '^\.SH EXAMPLES'; do
            grep -q -- "$word" "$page" || { echo "rv-$c.1 has no '$word'"; false; }
        done
        "$RV" help "$c" | grep -q -- --json || { echo "rv help $c tells no --json"; false; }
        schema=$(grep -o 'rv\.[a-z]*/1' "$page" | head -n 1)
        [ -n "$schema" ] || { echo "rv-$c.1 names no schema"; false; }
        jq -e --arg s "$schema" '.title == $s and .additionalProperties == false and (.required | length) > 1' \
            "$RV_SRC/etc/schema/${schema%/1}-1.json"
        # a wrong word is an error object, too, and says what it is about
        separate "$RV" "$c" --json --nosuch
        [ "$status" = 2 ]
        echo "$output" >"wrong.$c"
    done
    valid wrong.*
    [ "$(cat wrong.* | jq -r .schema | sort -u)" = rv.error/1 ]
    # and no schema lies there of which no page, nor header, speaks
    for schema in $(jq -r .title "$RV_SRC"/etc/schema/*.json); do
        grep -rqF -- "$schema" "$RV_SRC"/launcher "$RV_SRC"/libtrain --include='*.1' --include='*.h' --include='*.c' ||
            { echo "$schema: nobody writes it"; false; }
    done
}

@test "another cluster is refused in one sentence by all commands that ask Slurm" {
    local c words before
    before=$(next_id)
    for c in $(commands); do
        case $c in
        env | sandbox | completion | help | version) continue ;; # of this machine
        run | forward) words=80 ;;
        *) words= ;;
        esac
        for clusters in "-M other" -Mother --clusters=other --cluster=other; do
            # shellcheck disable=SC2086 # words
            separate "$RV" "$c" $clusters $words
            [ "$status" = 5 ]
            [ -z "$output" ]
            [ "${#stderr_lines[@]}" = 1 ]
            [[ $stderr == "rv: "*"rv works with one cluster, the one of SLURM_CONF"* ]]
        done
        for v in SLURM_CLUSTERS SBATCH_CLUSTERS; do
            # shellcheck disable=SC2086 # words
            separate env $v=other "$RV" "$c" $words
            [ "$status" = 5 ]
            [ "$stderr" = "rv: rv works with one cluster, the one of SLURM_CONF, and $v names 'other'; unset it" ]
        done
    done
    [ "$(next_id)" = "$before" ]
}

@test "names: ambiguous ones, slips and tasks of an array stop nothing else" {
    local gate array a b
    gate=$(sbatch --parsable -N2 --exclusive -o /dev/null --wrap 'sleep 300')
    wait_job "$gate" RUNNING
    array=$(sbatch --parsable --array=1-3 -J sweep -o /dev/null --wrap true)
    submit --name train-a -g 1 -- true
    a=$job
    submit --name train-b -g 1 -- true
    b=$job
    for word in train a- "${a%?}" "${a}0" '' "${array}_4" "${array}_" 1; do
        separate "$RV" stop "$word"
        [ "$status" = 4 ]
        [ "${#stderr_lines[@]}" = 1 ]
    done
    separate "$RV" stop train
    [[ $stderr == "rv: cannot stop 'train': 'train' names several jobs: $b train-b, $a train-a" ]]
    # one slip, and nothing is ended
    separate "$RV" stop train-a train-c
    [ "$status" = 4 ]
    job_is "$a" PENDING
    separate "$RV" stop "${array}_2"
    [ "$output" = "stopped job ${array}_2 (sweep)" ]
    [ "$(squeue -h -r -j "$array" -t PD -o %K | sort | tr '\n' ' ')" = "1 3 " ]
    # -a tells what it ends, and ends what rv run has submitted alone
    separate "$RV" stop -a
    [ "$status" = 0 ]
    [ "$(sort <<<"$output")" = "stopped job $a (train-a)
stopped job $b (train-b)" ]
    [ "$(squeue -h -r -j "$array" -t PD -o %K | wc -l)" = 2 ]
    job_is "$gate" RUNNING
    # what ends already is as good as stopped
    submit --name slow -g 0 -x "$(scontrol show job "$gate" -o | sed -n 's/.* BatchHost=\([^ ]*\) .*/\1/p')" -- true
    separate "$RV" stop --all --json
    [ "$status" = 0 ]
    valid <<<"$output"
    separate "$RV" stop -a
    [ "$status" = 0 ]
    [ "$stderr" = 'rv: no job of rv run is waiting or running' ]
    scancel "$gate" "$array"
    wait_for 60 all_idle
}

# waits NAME WORDS - rv ps says so
waits() {
    "$RV" ps | grep -qE "^[0-9]+ +$1 +PENDING .*$2"
}

@test "ps and run -f say in words why a job waits: resources, others, a job, a node, a partition" {
    scontrol create partitionname=other nodes=n1 state=down
    submit -g 4 --name full --time 30m -- sleep 600
    wait_job "$job" RUNNING
    follow_in_background f -g 4 --name next --time 20m -- true
    wait_for 60 waits next 'what it asks for is in use .Resources.; expected at [0-9:]{5}, in [0-9]+ min'
    submit -g 4 --name behind --time 30m -- true
    wait_for 60 waits behind 'jobs before it are served first .Priority.'
    submit -g 1 --name after --dependency=afterany:"$job" -- true
    wait_for 60 waits after 'a job it depends on has not ended .Dependency.'
    closed=$(sbatch --parsable -J closed -p other -o /dev/null --wrap true)
    wait_for 60 waits closed 'the partition is down .PartitionDown.'
    wait_for 30 grep -q '^rv: job [0-9]* is waiting: what it asks for is in use (Resources)$' f.err
    scancel "$closed"
    "$RV" stop -a >/dev/null
    wait_for 60 all_idle
    scontrol update nodename=n2 state=down reason='a look'
    submit -g 1 -w n2 --name there -- true
    wait_for 60 waits there '(a node it needs is down, drained or reserved .ReqNodeNotAvail|Nodes required for job are DOWN)'
    scontrol update nodename=n2 state=resume
    "$RV" stop there
    scontrol delete partitionname=other
    wait_for 60 all_idle
}

@test "attach --json: a command's end in one object; gpu of a job without one" {
    submit -g 0 --name cpu -- sleep 600
    wait_job "$job" RUNNING
    separate "$RV" gpu cpu
    [ "$status" = 5 ]
    [[ $stderr == "rv: cannot look at the GPUs of job $job (cpu): it has none" ]]
    separate "$RV" attach --json cpu -- sh -c 'cat; printf "a\0b\n"; echo no >&2; exit 3'
    [ "$status" = 3 ]
    valid <<<"$output"
    jq -e '.stdout == "a?b\n" and (.stderr | contains("no\n")) and .exit_status == 3 and .node == "n1" and .name == "cpu"' <<<"$output"
    separate "$RV" attach --json cpu
    [ "$status" = 2 ]
    valid <<<"$output"
}

@test "gpu -w on a terminal: cut to its width, ^C leaves it as it was" {
    mkdir bin
    cat >bin/nvidia-smi <<'X'
#!/bin/sh
echo "0, NVIDIA A100-SXM4-40GB, 97, 20480, 40960, 61, 310.25, 400.00"
X
    chmod 755 bin/nvidia-smi
    cat >watch.py <<'P'
import fcntl, os, pty, re, select, signal, struct, sys, termios, time

def size(fd, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

pid, fd = pty.fork()
if pid == 0:
    os.execv(os.environ["RV"], ["rv", "gpu", "-w", "busy"])
size(fd, 120)
before = termios.tcgetattr(fd)
seen = b""

def until(what, seconds=60):
    global seen
    end = time.monotonic() + seconds
    while not what(seen):
        assert time.monotonic() < end, seen
        if select.select([fd], [], [], 1)[0]:
            seen += os.read(fd, 65536)

until(lambda s: b"310W" in s)

def table(columns):
    global seen
    size(fd, columns)
    os.kill(pid, signal.SIGWINCH)
    seen = b""
    # the next whole one
    until(lambda s: s.count(b"\033[H\033[2J") >= 2)
    text = seen.split(b"\033[H\033[2J")[1].decode()
    return [re.sub(r"\033\[[0-9;]*m", "", line).rstrip("\r\n") for line in text.splitlines()]

# a usual terminal shows all columns
lines = table(80)
assert len(lines) == 2 and lines[1].endswith(" 310W") and len(lines[1]) == 79, lines
lines = table(40)
assert len(lines) == 2 and re.match("n[12] ", lines[1]), lines
assert max(map(len, lines)) == 39, lines
os.write(fd, b"\x03")
try:
    until(lambda s: False, 20)
except OSError:
    pass
status = os.waitpid(pid, 0)[1]
assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 130, status
# no other screen, no hidden cursor, no colour that stays, no other mode
assert not re.search(rb"\033\[\?", seen), seen
assert seen.rstrip().endswith(b"\033[0m") or b"\033" not in seen.rsplit(b"\n", 1)[-1], seen
P
    submit -g 1 --name busy -- sleep 600
    wait_job "$job" RUNNING
    run_cmd env PATH="$PWD/bin:$PATH" TERM=xterm /usr/bin/python3 watch.py
    [ "$status" = 0 ]
}

# a log of rank 0 of the job, once it is there
first_log() {
    ls "$STATE/logs/"*"-$job.r0.out"
}

@test "logs -f over copytruncate and rotation, with what is unfinished and what is junk" {
    local log p
    submit -g 1 --name grows -- sh -c 'until [ -e finish ]; do sleep 0.1; done'
    wait_for 30 first_log
    log=$(first_log)
    "$RV" logs -f --out --no-label grows </dev/null >seen 2>seen.err 3>&- &
    p=$!
    printf 'one\npar' >>"$log"
    wait_for 30 grep -q one seen
    : >"$log"
    printf 'two: as long, or longer\n' >>"$log"
    wait_for 30 grep -q longer seen
    mv "$log" "$log.1"
    printf 'three\n' >"$log"
    wait_for 30 grep -q three seen
    head -c 100000 /dev/urandom >>"$log"
    printf '\nlast\n' >>"$log"
    wait_for 30 grep -qax last seen
    touch finish
    wait_for 60 ended "$p"
    wait "$p"
    [ "$(head -n 4 seen)" = 'one
par
two: as long, or longer
three' ]
    # of junk what is text: no byte that would change a terminal
    if LC_ALL=C grep -qaP '[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]' seen; then false; fi
    cmp "$log" <("$RV" logs --raw --out grows)
    "$RV" logs --json grows >objects
    jq -es 'all (.schema == "rv.log/1") and .[-1].text == "last"' objects
    head -n 1 objects | valid
}

# as UID COMMAND... - run_cmd as that user, with a home of its own and the
# programs that $RVT/bin has
as() {
    run_cmd setpriv --reuid="$1" --regid="$1" --clear-groups env -u XDG_STATE_HOME -u XDG_RUNTIME_DIR \
        HOME="$RVT/u$1" PATH="$RVT/bin:/usr/bin:/bin" "${@:2}"
}

# two_users - uid 1 and 65534 may use this sandbox, and nothing else of the test
two_users() {
    local u
    mkdir "$RVT/bin"
    cp -L "$RV" "$RV_BUILD/rv-exec" "$RV_BUILD/spank_rv.so" "$RVT/bin/"
    cp "$SANDBOX/plugstack.conf" "$RVT/plugstack.saved"
    sed -i "s, [^ ]*spank_rv.so, $RVT/bin/spank_rv.so," "$SANDBOX/plugstack.conf"
    chmod 755 "$RVT" "$SANDBOX" "$SANDBOX"/n? "$SANDBOX"/n?/*
    for u in 1 65534; do
        mkdir -p "$RVT/u$u"
        chown "$u:$u" "$RVT/u$u"
    done
}

# holders_of WORD UID... - processes that have the word in their arguments, or,
# but for those of these users, in their environment; of all that root can see.
# It is handed on without its first letter, m, not to be found here.
holders_of() {
    /usr/bin/python3 - "${1#m}" "${@:2}" <<'P'
import os, sys
word = b"m" + sys.argv[1].encode()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        for name in "cmdline", "environ":
            text = open(f"/proc/{pid}/{name}", "rb").read()
            if word in text and (name == "cmdline" or str(uid) not in sys.argv[2:]):
                print(pid, uid, name, text[:200])
    except OSError:
        pass
P
}

@test "secrets: another user who looks while the job runs finds none, and ends nothing" {
    [ "$(id -u)" = 0 ] || skip "only root can be somebody else"
    local word=mum$RANDOM$RANDOM$RANDOM # other suites run beside this one
    two_users
    cd "$RVT/u1"
    printf '%s 1, "q" $(touch pwned) `x`\n%s 2 =;\n' "$word" "$word" >value
    chown 1:1 value
    as 1 sh -c 'umask 0; rv env set HARD <value; rm value; stat -c %a .config/rv/env .config/rv'
    [ "$output" = 'set HARD
600
700' ]
    as 1 sh -c 'umask 0; exec rv run -g 2 --name quiet -- sh -c '\''(umask 077; printenv HARD >got); touch ready; until [ -e finish ]; do sleep 0.1; done'\'''
    [ "$status" = 0 ]
    job=$(awk '$1 == "job" { print $2 }' <<<"$output")
    wait_for 60 test -e ready
    # every process of the machine, as root: the ranks of its owner alone have it
    [ -z "$(holders_of "$word" 1)" ]
    [ -n "$(holders_of "$word")" ]
    # the other one: what Slurm tells, and what files and processes say to him
    as 65534 sh -c 'scontrol -dd show job "$1"; scontrol write batch_script "$1" -; squeue -a -o %all
        cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr "\0" "\n" | grep "$3"
        grep -ral "$3" "$2"; ls "$2/u1/.config/rv" "$2/u1/.local/state/rv"; true' sh "$job" "$RVT" "[m]${word#m}"
    [[ $output == *"JobId=$job "* ]]
    lacks "[m]${word#m}" <<<"$output"
    lacks -x "$RVT/.*" <<<"$output" # no file has it, of those that he can read
    [ "$(grep -c '^ls: cannot .*: Permission denied$' <<<"$output")" = 2 ]
    # daemons' logs and state, as root
    lacks -ral "[m]${word#m}" "$SANDBOX"
    # root may end it, but not by a slip of rv: it is not root's
    for u in 0 65534; do
        as "$u" rv stop "$job"
        [ "$status" = 4 ]
        as "$u" rv stop quiet
        [ "$status" = 4 ]
        as "$u" rv stop -a
        [ "$status" = 0 ]
        as "$u" rv ps -a
        lacks "$job" <<<"$output"
        as "$u" rv attach "$job" -- true
        [ "$status" = 4 ]
    done
    job_is "$job" RUNNING
    touch finish
    wait_job "$job" COMPLETED
    [ "$(cat got)" = "$(printf '%s 1, "q" $(touch pwned) `x`\n%s 2 =;\n' "$word" "$word")" ]
    [ ! -e pwned ]
    cp "$RVT/plugstack.saved" "$SANDBOX/plugstack.conf"
}
