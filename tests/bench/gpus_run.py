# SPDX-License-Identifier: Apache-2.0
"""gpus_run.py - how gpus.py starts programs: by itself, by torchrun, by rv run

A run is a list of words; what it prints is read for lines with a JSON object.
Every run has a limit, and no process of it outlives that."""
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time


class Failed(Exception):
    """A run that gave no figures; the text says why."""


def rows_of(text):
    """The JSON objects of lines, behind what may stand before them."""
    rows = []
    for line in text.splitlines():
        at = line.find("{")
        if at < 0:
            continue
        try:
            row = json.loads(line[at:])
        except ValueError:
            continue
        if isinstance(row, dict) and "op" in row:
            rows.append(row)
    return rows


def group_bench_rows(text, world):
    """group_bench's lines: bytes, us, GB/s, us in a learnt step."""
    rows = []
    for line in text.splitlines():
        m = re.match(r"^(?:.*: )?(\d+) ([\d.]+) ([\d.]+) ([\d.]+)$", line)
        if m:
            rows.append({"op": "all_reduce", "who": "libtrain", "world": world,
                         "bytes": int(m[1]), "us": float(m[2]),
                         "step_us": float(m[4])})
    return rows


def object_of(text):
    """The JSON object in a text, whatever stands around it."""
    try:
        return json.JSONDecoder().raw_decode(text, text.index("{"))[0]
    except ValueError as e:
        raise Failed(f"no JSON: {last_words(text)}") from e


def lent():
    """The GPUs that CUDA_VISIBLE_DEVICES names; empty where it says nothing."""
    return [w for w in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if w]


def count_gpus():
    """The names of the GPUs that are lent, by nvidia-smi."""
    try:
        out = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                             capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return out.stdout.splitlines()[:len(lent()) or None]


def python_libs(python):
    """Folders of NCCL, cuDNN and cuBLAS that came with Python's packages."""
    code = ("import importlib.util as u; s = u.find_spec('nvidia');"
            "print('\\n'.join(s.submodule_search_locations if s else []))")
    try:
        out = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return sorted(d for p in out.stdout.splitlines() for d in glob.glob(p + "/*/lib"))


def has_torch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True,
                              timeout=120).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def last_words(text):
    """The line that says most of a failure: PyTorch's launcher puts a report of its
    own behind a rank's error."""
    lines = [s.strip() for s in text.splitlines() if s.strip() and not s.lstrip().startswith("{")]
    for s in reversed(lines):
        if re.match(r"\[rank\d+\]: [\w.]*(Error|Exception)\b", s):
            return s[:200]
    for s in reversed(lines):
        if re.search(r"error|fail|memory|cannot|no GPU|refused|needs", s, re.I):
            return s[-200:]
    return lines[-1][-200:] if lines else "it said nothing"


def kill(procs):
    """Them and what they started."""
    for p in procs:
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()


def wait(procs, limit):
    """Until all have ended, or the limit; returns whether that was it."""
    end = time.monotonic() + limit
    try:
        for p in procs:
            p.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


def read(f):
    f.seek(0)
    text = f.read()
    f.close()
    return text


def spawn(argv, env, procs, files):
    """One more of [procs]. What ends this program waits until it is one: a process
    that nobody knows would stay."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        f = tempfile.TemporaryFile("w+", errors="replace")
        files.append(f)
        procs.append(subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, held)))
    except OSError as e:
        raise Failed(f"{argv[0]}: {e.strerror}") from e
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def together(runs, limit):
    """Each of [runs], (argv, env), at once; the text of the first."""
    procs, files = [], []
    try:
        for argv, env in runs:
            spawn(argv, env, procs, files)
        late = wait(procs, limit)
    finally:  # whatever else ended the wait, too
        kill(procs)
    codes = [p.returncode for p in procs]
    texts = [read(f) for f in files]
    if late:
        raise Failed(f"not done in {limit:.0f} s: {last_words(''.join(texts))}")
    bad = [i for i, c in enumerate(codes) if c != 0]
    if bad:
        raise Failed(f"rank {bad[0]}: status {codes[bad[0]]}: {last_words(texts[bad[0]])}")
    return "".join(texts)


class Direct:
    """One process a rank, with the variables of env://."""
    name = "direct"

    def __init__(self, env):
        self.env = env

    def run(self, argv, world, limit, more=None):
        port = str(random.randrange(20000, 30000))
        runs = []
        for r in range(world):
            env = dict(self.env, RANK=str(r), WORLD_SIZE=str(world), LOCAL_RANK=str(r),
                       LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=port, **(more or {}))
            runs.append((argv, env))
        return together(runs, limit)

    def run_one(self, argv, world, limit):
        see = ",".join(lent()[:world] or [str(i) for i in range(world)])
        return together([(argv, dict(self.env, CUDA_VISIBLE_DEVICES=see))], limit)


class Torch:
    """PyTorch's launcher, of one host."""

    def __init__(self, python, env):
        self.python = python
        self.env = env

    def run(self, argv, world, limit):
        head = [self.python]
        if world > 1:
            head += ["-m", "torch.distributed.run", "--standalone",
                     f"--nproc_per_node={world}"]
        return together([(head + argv, self.env)], limit)


class Slurm:
    """rv run on a private Slurm of [nodes] nodes that share this host's GPUs."""

    def __init__(self, name, rv, nodes, gpus, made_up, env):
        self.name = name
        self.rv = rv
        self.nodes = nodes
        self.gpus = gpus
        self.dir = tempfile.mkdtemp(prefix="rvg.", dir="/tmp")
        self.env = {k: v for k, v in env.items()
                    if not k.startswith(("SLURM_", "SBATCH_", "SRUN_", "PMIX_"))}
        self.env["XDG_STATE_HOME"] = os.path.join(self.dir, "state")
        self.env["SLURM_CONF"] = self.dir + "/s/slurm.conf"
        up = [rv, "sandbox", "up", "--dir", self.dir + "/s", "--nodes", str(nodes),
              "--gpus", str(gpus)] + (["--made-up"] if made_up else [])
        try:
            together([(up, self.env)], 90)
        except BaseException:  # an end that was asked for, too
            self.down()
            raise

    def run(self, argv, world, limit, more=None):
        env = dict(self.env, **(more or {}))
        cmd = [self.rv, "run", "-f", "-g", str(world), f"--nodes={self.nodes}", "--time",
               str(max(1, int(limit // 60 + 1))), "--"] + argv
        return together([(cmd, env)], limit + 30)

    def run_one(self, argv, world, limit):
        """A program that takes all GPUs: rv run has a task for each."""
        cmd = ["srun", "-Q", "-N1", "-n1", f"--gres=gpu:{world}"] + argv
        return together([(cmd, self.env)], limit + 30)

    def down(self):
        try:
            subprocess.run([self.rv, "sandbox", "down", "--dir", self.dir + "/s"], env=self.env,
                           capture_output=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as e:
            print(f"# rv sandbox down: {e}")
            return  # its folder says what runs
        shutil.rmtree(self.dir, ignore_errors=True)
