# SPDX-License-Identifier: Apache-2.0
# envtable.py - compare the environments that a step's tasks wrote with a table
#
# envtable.py DIR TAG [WORD...] <TABLE
#
# DIR/TAG.* are /proc/self/environ of one process each. A line of the table is
# one rank, in any order:
#
#   RANK/WORLD LOCAL/LOCAL_WORLD NODE HOST GPUS [WORD...]
#
# GPUS is CUDA_VISIBLE_DEVICES, "-" where that must be unset. What follows from
# the rules of rv-spank(8) alone is added to each line: RV_STEP, MASTER_*,
# RV_HEAD_ADDR, OMP_NUM_THREADS, RV_NCCL_TIMEOUT, RV_PLUGIN, RV_SET. A WORD changes
# that for its line, or for all:
#   NAME=VALUE   this value instead
#   NAME=*       some value
#   -NAME        not set
#   job=N step=N rows of this job and step; else as SLURM_JOB_ID, SLURM_STEP_ID
#   opt:NAME=V   the option as Slurm hands it from a job to its steps
#   local:NAME=V the same, as salloc leaves it in its own shell
#   user=NAME    this one is the user's own, and RV_SET does not have it
#   none=N       no table: N processes, each with the WORDs and nothing of ours
#
# Everything that is ours, or that the plugin sets for a client, must stand
# there exactly so; whatever else of that kind is found is an error. Other
# plugins' options are theirs: slurmstepd leaves them there since 23.11.
import collections
import os
import pathlib
import re
import sys

OURS = re.compile(
    r"(?!.*SPANK_OPTION_(?!rv_)).*SPANK.*"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK"
    r"|OMP_NUM_THREADS|MASTER_ADDR|MASTER_PORT|RV_.*|PET_.*"
    r"|(TORCH_)?NCCL_.*|DEEPSPEED_.*|(SBATCH|SALLOC|SRUN)_(?!DEBUG).*"
    r"|CUDA_VISIBLE_DEVICES|SLURM_(GPUS|GRES|KILL_BAD_EXIT)"
    r"|SLURM_(CPUS_PER_GPU|NTASKS_PER_NODE)"
)
# lib.bash's own, and what the suite is run with
HARNESS = {"RV_SRC", "RV_BUILD", "RV_REQUIRE", "RV_TEST_LONG", "RV_VERSION"}
OPTION = "SLURM_SPANK__SLURM_SPANK_OPTION_rv_"
LOCAL = "_SLURM_SPANK_OPTION_rv_"


def read(path):
    pairs = path.read_bytes().decode().split("\0")
    return dict(p.split("=", 1) for p in pairs if "=" in p)


def ours(env):
    return {
        k: v for k, v in env.items() if OURS.fullmatch(k) and k not in HARNESS
    }


def change(want, word):
    name, _, value = word.partition("=")
    if name.startswith("opt:"):
        want[OPTION + name[4:]] = value
    elif name.startswith("local:"):
        want[LOCAL + name[6:]] = value
    elif name.startswith("-"):
        want[name[1:]] = None
    else:
        want[name] = value


def row(line, words, cpus):
    """The host, and what a rank must have, from one line of the table."""
    ranks, locals_, node, host, gpus, *more = line.split()
    rank, world = ranks.split("/")
    local, local_world = locals_.split("/")
    want = {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": local_world,
        "NODE_RANK": node,
        "GROUP_RANK": node,
        "OMP_NUM_THREADS": str(max(1, cpus // int(local_world))),
        "MASTER_ADDR": "127.0.0.1",
        "RV_HEAD_ADDR": "127.0.0.1",
        "RV_NCCL_TIMEOUT": "600",
        "RV_PLUGIN": os.environ["RV_VERSION"],
    }
    if gpus != "-":
        want["CUDA_VISIBLE_DEVICES"] = gpus
    for word in [*words, *more]:
        change(want, word)
    return host, want


DEFAULTS = [
    "OMP_NUM_THREADS",
    "RV_NCCL_TIMEOUT",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "DEEPSPEED_TIMEOUT",
]


def finish(want, env):
    """The values that hang on others, or on the job and step."""
    theirs = want.pop("user", "").split(",")
    noted = [f"{n}={want[n]}" for n in DEFAULTS if n in want and n not in theirs]
    want.setdefault("RV_SET", " ".join([f"RANK={env['SLURM_PROCID']}", *noted]))
    job = int(want.pop("job", env["SLURM_JOB_ID"]))
    step = int(want.pop("step", env["SLURM_STEP_ID"]))
    want.setdefault("RV_STEP", f"{job}.{step}")
    want.setdefault("MASTER_PORT", str(20000 + (31 * job + step) % 12000))
    return want


def differences(where, want, have):
    for name in sorted(want.keys() | have.keys()):
        if want.get(name) == "*" and name in have:
            continue
        if name == "RV_SET" and name in want and name in have:
            # a set of words
            if sorted(want[name].split()) == sorted(have[name].split()):
                continue
        if want.get(name) != have.get(name):
            yield (
                f"{where}: {name}: want {want.get(name)},"
                f" have {have.get(name)}"
            )


def check_ranks(envs, words, lines):
    cpus = len(os.sched_getaffinity(0))
    left = collections.Counter()
    by_rank = {e.get("SLURM_PROCID"): e for e in envs}
    if not len(lines) == len(envs) == len(by_rank):
        yield f"{len(lines)} ranks wanted, {len(envs)} processes found"
    for line in lines:
        host, want = row(line, words, cpus)
        # which process it is Slurm tells: RANK is what is to be tested
        task = want.pop("task", line.split("/")[0])
        left[task] += 1
        env = by_rank.get(task)
        if env is None or left[task] > 1:
            yield f"rank {task}: no such process"
            continue
        if env["SLURMD_NODENAME"] != host:
            yield f"rank {task}: on {env['SLURMD_NODENAME']}, not {host}"
        yield from differences(f"rank {task}", finish(want, env), ours(env))


def check_none(envs, words):
    want = {}
    for word in words:
        change(want, word)
    count = int(want.pop("none"))
    if len(envs) != count:
        yield f"{count} processes wanted, {len(envs)} found"
    for i, env in enumerate(envs):
        yield from differences(f"process {i}", want, ours(env))


def main(folder, tag, *words):
    envs = [read(p) for p in sorted(pathlib.Path(folder).glob(f"{tag}.*"))]
    if any(w.startswith("none=") for w in words):
        found = list(check_none(envs, words))
    else:
        lines = [s for s in sys.stdin.read().splitlines() if s.strip()]
        found = list(check_ranks(envs, words, lines))
    for text in found:
        print(f"{tag}: {text}")
    return 1 if found or not envs else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
