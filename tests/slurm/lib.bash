# SPDX-License-Identifier: Apache-2.0
# lib.bash - what the suites on a real, private Slurm share
#
#   load lib                # its setup() skips where there is no Slurm
#   setup_file()    { sandbox_up --nodes 2 --gpus 4; }
#   teardown_file() { sandbox_down; }
#   @test "..."     { run_srun -N2 -n4 hostname; [ "${#lines[@]}" = 4 ]; }
#
# RV_BUILD is the build folder (default: top_builddir, else build/ beside
# tests/). RV_REQUIRE=slurm turns "no Slurm here" from a skip into a failure.
# Waits are on conditions with a deadline, never on a fixed time. A command in
# the background needs 3>&-: bats waits until everybody has closed that.

bats_require_minimum_version 1.5.0

RV_SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
RV_BUILD=$(cd "${RV_BUILD:-${top_builddir:-$RV_SRC/build}}" && pwd) || exit 1
export RV_SRC RV_BUILD
RV=$RV_BUILD/rv
export RV

# require_slurm - for setup_file (sandbox_up calls it): where a private Slurm
# cannot run, note the reason in RVT_SKIP, for which setup() skips every test
# of the file. bats 1.8 cannot skip from setup_file.
require_slurm() {
    local why='' p
    [ -x "$RV" ] || why="$RV is not built (configure found no Slurm)"
    for p in munged slurmctld slurmd srun sbatch; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$p" >/dev/null ||
            why="$p is not installed"
    done
    [ -n "$why" ] || return 0
    case ,${RV_REQUIRE:-}, in
    *,slurm,*)
        echo "RV_REQUIRE=slurm, but $why" >&2
        return 1
        ;;
    esac
    export RVT_SKIP=$why
}

# setup - bats calls it before each test. A file with a setup of its own calls
# skip_without_slurm first.
setup() {
    skip_without_slurm
}

skip_without_slurm() {
    [ -z "${RVT_SKIP:-}" ] || skip "$RVT_SKIP"
}

# short_dir - a new folder with a short name: sockets have 107 bytes.
short_dir() {
    mktemp -d /tmp/rvt.XXXXXX
}

# sandbox_folder - a folder for a file's sandbox, SANDBOX, in one for its own
# use, RVT, which sandbox_down removes; and a shell that knows no other Slurm.
sandbox_folder() {
    require_slurm || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    unset "${!SLURM_@}" "${!SBATCH_@}" "${!SRUN_@}" "${!PMIX_@}"
    RVT=$(short_dir)
    SANDBOX=$RVT/s
    export RVT SANDBOX XDG_STATE_HOME=$RVT/state
}

# sandbox_up [rv sandbox up's options] - bring a sandbox up for this file and
# point SLURM_CONF and PATH at it.
sandbox_up() {
    sandbox_folder || return 1
    [ -z "${RVT_SKIP:-}" ] || return 0
    "$RV" sandbox up --dir "$SANDBOX" "$@" >&2 || return 1
    eval "$("$RV" sandbox env --dir "$SANDBOX")"
}

# sandbox_up_mounted MOUNTS [rv sandbox up's options] - the same after
# sandbox_folder, in a mount namespace of its own in which MOUNTS, shell words,
# ran first. NVML is fake_nvml.c, which reads CARDS.
sandbox_up_mounted() {
    if ! unshare -m true 2>/dev/null; then
        export RVT_SKIP="no right to make a mount namespace"
        rm -rf "$RVT"
        unset RVT
        return 0
    fi
    export CARDS=$RVT/cards NVML=$RVT/libnvidia-ml.so.1
    ${CC:-cc} -shared -fPIC -DFAKE_STATE="\"$CARDS\"" -o "$NVML" \
        "$BATS_TEST_DIRNAME/fake_nvml.c"
    unshare -m sh -ec "mount --make-rprivate / 2>/dev/null || true
        $1
        shift
        exec \"\$RV\" sandbox up --dir \"\$SANDBOX\" \"\$@\"" sh "$@" >&2 || return 1
    eval "$("$RV" sandbox env --dir "$SANDBOX")"
}

# valid [FILE...] - does the JSON of each, or of stdin, obey its schema?
valid() {
    /usr/bin/python3 "$RV_SRC/tests/slurm/validate.py" "$RV_SRC/etc/schema" "$@"
}

# sandbox_down - end it, and others below RVT that a failed test has left. Fails
# when its nodes are not well. Safe when sandbox_up skipped or failed.
sandbox_down() {
    local well=0 other
    [ -n "${RVT:-}" ] || return 0
    [ ! -e "$SANDBOX/sandbox.json" ] || wait_for 60 nodes_well || well=1
    "$RV" sandbox down --dir "$SANDBOX" >&2 || return 1
    # Without its folder nothing could end one any more.
    for other in "$RVT"/*/sandbox.json; do
        [ ! -e "$other" ] || "$RV" sandbox down --dir "${other%/*}" >&2 || return 1
    done
    rm -rf "$RVT"
    return "$well"
}

# nodes_well - no node of the sandbox is drained, down or silent, and none
# was ever drained. What is wrong goes to stderr. Every suite ends by asking.
nodes_well() {
    local all bad
    all=$(SLURM_CONF=$SANDBOX/slurm.conf timeout 60 sinfo -hN -o '%N %T %E') || {
        echo "sinfo fails: $all" >&2
        return 1
    }
    bad=$(grep -iE '^[^ ]+ [a-z]*(drain|down|fail|err|unk|\*)' <<<"$all" || true)
    bad+=$(grep -i drain "$SANDBOX/log/slurmctld.log" || true)
    [ -z "$bad" ] || {
        echo "nodes are not well: $bad" >&2
        return 1
    }
}

# nodes_idle [NODE] - all nodes, or this one, by slurmctld's own word: sinfo of
# 24.11 lets a node stand at its last job while it is asked often
nodes_idle() {
    [ "$(scontrol show node -o "$@" | sed -n 's/.* State=\([^ ]*\) .*/\1/p' | sort -u)" = IDLE ]
}

none_completing() {
    [ -z "$(squeue -h -t CG)" ]
}

# alive PID - a process that is not a zombie; one look, for it may go between two
alive() {
    grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null
}

gone() {
    ! alive "$1"
}

# sandbox_logs - the daemons' logs on stderr, for a test that fails.
sandbox_logs() {
    tail -n 20 "${SANDBOX:?}"/log/*.log >&2 || true
}

# daemon NAME - its recorded process id
daemon() {
    /usr/bin/python3 -c 'import json, sys
for d in json.load(open(sys.argv[1]))["daemons"]:
    if d["name"] == sys.argv[2]: print(d["pid"])' "$SANDBOX/sandbox.json" "$1"
}

# restart NAME [FOLDER] - as rv sandbox started it; the record gets the new
# process, so that `down` and the next fault find it. With FOLDER it sees there,
# alone with what it starts, a file system of 16 MiB.
restart() {
    /usr/bin/python3 - "$SANDBOX/sandbox.json" "$1" "$SANDBOX/log/$1.out" "${2:-}" <<'Y' 3>&-
import json, os, subprocess, sys
path, name, log, folder = sys.argv[1:]
state = json.load(open(path))
small = ["unshare", "-m", "sh", "-c",
         'mount -t tmpfs -o size=16m,mode=755 none "$1" && shift && exec "$@"', "sh", folder]
for d in state["daemons"]:
    if d["name"] == name:
        out = open(log, "ab")
        p = subprocess.Popen(small * bool(folder) + d["argv"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                             start_new_session=True, cwd="/")
        d["pid"] = p.pid
        stat = open(f"/proc/{p.pid}/stat").read()
        d["start_time"] = int(stat.rsplit(")", 1)[1].split()[19])
json.dump(state, open(path + ".new", "w"))
os.rename(path + ".new", path)
Y
}

# holders DIR - ids of the processes that have a file of DIR open, stand in it,
# or were given a socket in it; zombies and this shell's own kin excepted.
holders() {
    /usr/bin/python3 - "$1" <<'X'
import os
import sys

top = sys.argv[1].rstrip("/") + "/"


def ours(pid):
    base = f"/proc/{pid}"
    names = [f"{base}/cwd"] + [f"{base}/fd/{n}" for n in os.listdir(f"{base}/fd")]
    for name in names:
        try:
            if os.readlink(name).startswith(top):
                return True
        except OSError:
            pass
    with open(f"{base}/cmdline", "rb") as f:
        return b"=" + top.encode() + b"munge" in f.read()


for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if int(pid) != os.getpid() and ours(pid):
            print(pid)
    except OSError:
        pass
X
}

# run_cmd COMMAND... - bats' run with a deadline of $RVT_TIMEOUT (60) seconds.
# Sets status, output and lines; prints all of it, which bats shows when the
# test fails. stdin is empty: srun would eat the test's.
# shellcheck disable=SC2154 # bats' run sets status and output
run_cmd() {
    run timeout -k 5 "${RVT_TIMEOUT:-60}" "$@" </dev/null
    printf '$'
    printf ' %q' "$@"
    printf '\nstatus %s\n%s\n' "$status" "$output"
}

# run_srun ARG... - run_cmd srun ARG..., and the daemons' logs where srun
# ended by the deadline. That it had to wait for what ran before is left out.
# shellcheck disable=SC2034 # tests read lines
run_srun() {
    # A job that still completes would move this one to another node.
    wait_for 30 none_completing 2>/dev/null || true
    run_cmd srun "$@"
    [ "$status" != 124 ] || sandbox_logs
    output=$(sed -E '/^srun: (job [0-9]+ (queued and waiting for|has been allocated) resources|Step created for )/d' <<<"$output")
    mapfile -t lines < <(grep . <<<"$output")
}

# what_runs - the cluster as it stands, for one who reads why a test waited
what_runs() {
    [ -n "${SANDBOX:-}" ] || return 0
    timeout 5 squeue -a -o '%i %j %T %r %N %M'
    timeout 5 scontrol show node -o | sed -n 's/^NodeName=\([^ ]*\) .* State=\([^ ]*\) .*/\1 \2/p'
    pgrep -af 'slurmstepd|rv-exec|srun' || true
}

# wait_for SECONDS COMMAND... - until COMMAND succeeds; fails after SECONDS,
# with COMMAND's last output. What takes long is looked at less often: several
# suites that ask scontrol twenty times a second leave nothing for the rest.
wait_for() {
    local end=$((SECONDS + $1)) out pause=105 # hundredths of a second, and 100
    shift
    until out=$("$@" 2>&1); do
        if [ "$SECONDS" -ge "$end" ]; then
            printf 'never true: %s\n%s\n' "$*" "$out" >&2
            what_runs >&2
            return 1
        fi
        sleep "0.${pause#1}"
        [ "$pause" -ge 125 ] || pause=$((pause + 1))
    done
}

# job_state ID - PENDING, RUNNING, COMPLETED ...
job_state() {
    scontrol show job "$1" -o | sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p'
}

job_is() {
    [ "$(job_state "$1")" = "$2" ]
}

# wait_job ID STATE [SECONDS]
wait_job() {
    wait_for "${3:-60}" job_is "$1" "$2"
}

# loaded MS - the limit of MS as this machine is just now: times what there is to
# do for each core, up to fourfold
loaded() {
    awk -v ms="$1" -v cores="$(nproc)" '{
        split($4, now, "/")
        f = ($1 > now[1] ? $1 : now[1]) / cores
        print int(ms * (f < 1 ? 1 : f > 4 ? 4 : f))
    }' /proc/loadavg
}

# torch_quirks - settings without which a Debian's own PyTorch cannot launch.
torch_quirks() {
    local PY=/usr/bin/python3
    # Python 3.11's enum makes "no redirection" nothing for PyTorch 1.13, whose
    # launcher then fails; a map for a process that is not there avoids it.
    if ! $PY -c 'from torch.distributed.elastic.multiprocessing import Std
assert Std.from_str("0") is not None' 2>/dev/null; then
        export PET_REDIRECTS=9:1 PET_TEE=9:1
    fi
    # Debian 13's PyTorch is built without libuv, which its launcher asks for.
    mkdir -p "$RVT/site"
    if $PY -c 'import torch.distributed as d
try: d.TCPStore("127.0.0.1", 0, 1, True, use_libuv=True)
except TypeError: raise SystemExit(1) # older: it knows of no libuv
except RuntimeError: pass
else: raise SystemExit(1)' 2>/dev/null; then
        cat >"$RVT/site/sitecustomize.py" <<'Y'
from torch.distributed import TCPStore

init = TCPStore.__init__


def without_libuv(*args, **kwargs):
    init(*args, **dict(kwargs, use_libuv=False))


TCPStore.__init__ = without_libuv
Y
        export PYTHONPATH=$RVT/site
    fi
}
