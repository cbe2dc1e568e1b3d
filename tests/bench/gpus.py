#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpus.py - what the GPUs of one host do together: 1, 2, 4 or 8 of them

    gpus.py [--build DIR] [--anchors DIR] [--only PART,...] [--counts N,...]
            [--through WAY,...] [--out FILE] [--minutes M] [--short]
    gpus.py --from FILE
    gpus.py --list

One command measures ours and PyTorch's side by side, and prints a table last.
Parts:

    groups       all-reduce, all-gather, reduce-scatter of 8 KiB to 1 GiB, calls
                 compared between ranks, beside NCCL called from C
    weak-1b      a FULL_SHARD step of 8 x 2048 tokens a GPU
    weak-3b      the same of 4 x 2048, blocks made again
    strong-350m  a FULL_SHARD step of 32 x 1024 tokens of all GPUs together
    8b           Llama 3's 8b, FULL_SHARD, blocks made again, 1 x 4096 a GPU; on
                 one GPU with moments and masters in the host's memory
    grpo         completions a second: 64 of 256 tokens a GPU, model 1b
    copies       each ordered pair probed and copied; each GPU to the next at once

Ways: "direct" starts a process a GPU; "node" and "nodes" are `rv run` on a
private Slurm of one node with all GPUs, and of two with half each, at the largest
of the counts. What limits a step comes from a trace of its own, by cupti_trace.so
of the build folder where that was made: shares of the time in which a kernel ran
(kernel), only NCCL or a copy (link), nothing but it was launched (launch),
nothing was launched (host).

--anchors names a folder with PyTorch's twins: train_torch.py, grpo_torch.py,
collectives_torch.py, transfer_torch.py; those that are not there are left out.
--device host tries all this on the CPUs with tiny models. --out gets each row as
a line of JSON at once, so what was measured before an end is kept; --from prints
the table of such a file. Every run has a limit; after --minutes no other begins.

Make first, in the build folder: rv-train tests/bench/copy_pairs
tests/bench/grpo_bench tests/bench/nccl_bench tests/bench/shard_bench, and
tests/bench/cupti_trace.so where CUPTI is. Status 1 where a run failed."""
import argparse
import json
import os
import signal
import sys
import tempfile
import time

from gpus_run import (Direct, Failed, Slurm, Torch, count_gpus, group_bench_rows, has_torch,
                      object_of, python_libs, rows_of)
from gpus_table import table

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("top_builddir") or os.path.join(HERE, "..", "..", "build")
PARTS = ("groups", "weak-1b", "weak-3b", "strong-350m", "8b", "grpo", "copies")
WAYS = ("direct", "node", "nodes")
STEPS = {"weak-1b": (12, 6), "weak-3b": (9, 5), "strong-350m": (20, 8), "8b": (6, 4)}


def refuse(text):
    print(f"gpus.py: {text}", file=sys.stderr)
    sys.exit(2)


def words(text, allowed, what):
    got = [w for w in text.split(",") if w]
    for w in got:
        if w not in allowed:
            refuse(f"no {what} '{w}'; there are {', '.join(allowed)}")
    return got


def train_args(part, world, host, steps):
    """shard_bench's, and train_torch.py's where it can."""
    if host:
        return ["full", "tiny", "2", "16", "4", "host"], None
    sizes = {"weak-1b": ("1b", 8, 2048, []), "weak-3b": ("3b", 4, 2048, ["blocks"]),
             "strong-350m": ("350m", 32 // world, 1024, []), "8b": ("8b", 1, 4096, ["blocks"])}
    preset, batch, seq, more = sizes[part]
    ours = ["full", preset, str(batch), str(seq), str(steps)] + more
    torch = ["--strategy", "full" if world > 1 else "single", "--preset", preset, "--batch",
             str(batch), "--seq", str(seq), "--steps", str(steps), "--compile"]
    if part == "8b":
        ours += ["offload"] if world == 1 else []
        torch += ["--vocab", "128256"]
    if more:
        torch.append("--ckpt")
    return ours, None if part == "8b" and world == 1 else torch


class Bench:
    def __init__(self, o, gpus):
        self.o = o
        self.host = o.device == "host"
        self.most = gpus
        self.rows = []
        self.failed = 0
        self.out = open(o.out, "a", buffering=1) if o.out else None
        self.end = time.monotonic() + 60 * o.minutes
        env = {k: v for k, v in os.environ.items() if not k.startswith("RV_")}
        env.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", PYTHONUNBUFFERED="1")
        self.torch = Torch(o.python, dict(env))
        libs = [] if self.host else python_libs(o.python)
        env["LD_LIBRARY_PATH"] = ":".join([p for p in [env.get("LD_LIBRARY_PATH")] if p] + libs)
        if self.host:
            env["OMP_NUM_THREADS"] = "1"
        self.env = env
        self.way = Direct(env)
        self.trace = os.path.join(o.build, "tests/bench/cupti_trace.so")

    def keep(self, rows):
        for row in rows:
            self.rows.append(row)
            if self.out:
                self.out.write(json.dumps(row) + "\n")

    def program(self, name):
        path = os.path.join(self.o.build, name)
        if not os.access(path, os.X_OK):
            raise Failed(f"{path} is not there: make {name}")
        return path

    def attempt(self, part, world, who, fn):
        """What [fn] gives, marked with what it is of; or why there is nothing."""
        mark = {"part": part, "through": self.way.name, "world": world}
        begin = time.monotonic()
        print(f"# {part}, {world}, {self.way.name}, {who} ...", end=" ", flush=True)
        rows, why = [], ""
        if begin > self.end:
            why = f"the {self.o.minutes:g} minutes were over"
        else:
            try:
                rows = fn()
                if not rows:
                    why = "it printed no figures"
            except Failed as e:
                why = str(e)
        took = time.monotonic() - begin
        print(f"{took:.1f} s{': ' + why if why else ''}", flush=True)
        rows = [dict(r, **mark) if "world" not in r else dict(mark, **r) for r in rows]
        if why:
            self.failed += 1
            rows.append(dict(mark, op="failed", who=who, why=why))
        self.keep(rows)
        return rows if not why else []

    def anchor(self, name):
        path = os.path.join(self.o.anchors, name) if self.o.anchors else ""
        return path if path and os.path.exists(path) and self.way.name == "direct" else None

    def by_torch(self, part, world, script, argv, limit):
        def run():
            rows = rows_of(self.torch.run(script + argv, world, limit))
            return [dict(r, who="PyTorch", world=world) for r in rows]
        self.attempt(part, world, "PyTorch", run)

    def groups(self, part, world):
        def ours():
            if self.host:
                argv = [self.program("tests/bench/group_bench"), "8192", "65536"]
                return group_bench_rows(self.way.run(argv, world, 30), world)
            return rows_of(self.way.run([self.program("tests/bench/nccl_bench"), "ops"], world, 90))
        if world == 1:
            print(f"# {part}: two ranks at least; 1 is left out")
            return
        self.attempt(part, world, "libtrain", ours)
        script = self.anchor("collectives_torch.py")
        if script:
            self.by_torch(part, world, [script], [], 90)

    def train(self, part, world):
        steps = STEPS[part][self.o.short]
        args, torch = train_args(part, world, self.host, steps)
        limit = 300 if part == "8b" else 120

        def ours():
            return rows_of(self.way.run([self.program("tests/bench/shard_bench")] + args, world,
                                        limit))
        rows = self.attempt(part, world, "libtrain", ours)
        if rows and self.way.name == "direct":
            self.look(part, world, "tests/bench/shard_bench", args, 3 * rows[0]["ms"], limit)
        script = self.anchor("train_torch.py")
        if script and torch:
            wrap = [os.path.join(HERE, "gpus_torch.py")] if part == "8b" else []
            self.by_torch(part, world, wrap + [script], torch, 2 * limit)

    def grpo(self, part, world):
        args = ["tiny", "3", "host"] if self.host else ["1b", str(3 if self.o.short else 4)]

        def ours():
            return rows_of(self.way.run([self.program("tests/bench/grpo_bench")] + args, world,
                                        120))
        rows = self.attempt(part, world, "libtrain", ours)
        if rows and self.way.name == "direct":
            self.look(part, world, "tests/bench/grpo_bench", args, 1e3 * rows[0]["step_s"], 180)
        script = self.anchor("grpo_torch.py")
        if script and world == 1:
            def run():
                got = rows_of(self.torch.run([script, "--static"], 1, 180))
                return [dict(r, who="PyTorch") for r in got]
            self.attempt(part, world, "PyTorch", run)

    def copies(self, part, world):
        if self.host or world < 2 or world != self.most or self.way.name == "nodes":
            if world == self.most:
                print(f"# {part}: two GPUs of one node at least; left out")
            return

        def probe():
            text = self.way.run_one([self.program("rv-train"), "probe", "--json"], world, 120)
            found = object_of(text)
            return [dict(r, op="probe", who="libtrain") for r in found.get("pairs", [])]

        def ours():
            argv = [self.program("tests/bench/copy_pairs")]
            return [dict(r, who="libtrain") for r in rows_of(self.way.run_one(argv, world, 120))]
        self.attempt(part, world, "probe", probe)
        self.attempt(part, world, "libtrain", ours)
        script = self.anchor("transfer_torch.py")
        if script:
            def run():
                got = rows_of(self.torch.run([script], 1, 120))
                return [dict(r, who="PyTorch", world=2) for r in got]
            self.attempt(part, world, "PyTorch", run)

    def look(self, part, world, program, args, ms, limit):
        """The same once more, with CUPTI watching its last steps."""
        if self.host or self.o.no_trace or not os.path.exists(self.trace):
            return
        with tempfile.TemporaryDirectory() as d:
            more = {"CUDA_INJECTION64_PATH": os.path.abspath(self.trace), "TRACE_OUT": d + "/t",
                    "TRACE_MS": f"{ms:.1f}"}

            def run():
                self.way.run([self.program(program)] + args, world, limit, more)
                if not os.path.exists(d + "/t"):
                    return []
                with open(d + "/t") as f:
                    return [dict(r, who="trace") for r in rows_of(f.read())]
            self.attempt(part, world, "trace", run)

    def one(self, part, world):
        calls = {"groups": self.groups, "grpo": self.grpo, "copies": self.copies}
        calls.get(part, self.train)(part, world)

    def through(self, name, parts, counts):
        most = self.most = max(counts)
        if name == "nodes" and most % 2:
            print(f"# nodes: two nodes need an even number of ranks, not {most}")
            return
        if name != "direct":
            nodes = 2 if name == "nodes" else 1
            try:
                self.way = Slurm(name, self.program("rv"), nodes, most, self.host, self.env)
            except Failed as e:
                print(f"# {name}: no private Slurm: {e}")
                self.failed += 1
                self.keep([{"op": "failed", "part": "all", "through": name, "world": most,
                            "who": "rv", "why": str(e)}])
                return
            counts = [most]
        try:
            for part in parts:
                for world in counts:
                    self.one(part, world)
        finally:
            if name != "direct":
                self.way.down()
                self.way = Direct(self.env)


def read_options():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip(),
                                description="\n\n".join(__doc__.split("\n\n")[2:]),
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=BUILD)
    p.add_argument("--anchors")
    p.add_argument("--only", default=",".join(PARTS))
    p.add_argument("--counts")
    p.add_argument("--through", default=",".join(WAYS))
    p.add_argument("--device", choices=("cuda", "host"), default="cuda")
    p.add_argument("--python", default="python3")
    p.add_argument("--out")
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--short", action="store_true")
    p.add_argument("--no-trace", action="store_true")
    p.add_argument("--from", dest="source")
    p.add_argument("--list", action="store_true")
    return p.parse_args()


def choose_counts(o, gpus):
    if not o.counts:
        return [n for n in (1, 2, 4, 8) if n <= gpus]
    counts = []
    for w in o.counts.split(","):
        if not w.isdigit() or not 1 <= int(w) <= 64:
            refuse(f"--counts: '{w}' is no number of GPUs")
        if int(w) > gpus:
            refuse(f"--counts: {w} GPUs are asked for, and here {'is' if gpus == 1 else 'are'} {gpus}")
        counts.append(int(w))
    return sorted(set(counts))


def stop(number, frame):
    raise KeyboardInterrupt


def main():
    o = read_options()
    if o.list:
        print("\n".join(PARTS))
        return 0
    if o.source:
        with open(o.source) as f:
            print(table(rows_of(f.read())))
        return 0
    parts = words(o.only, PARTS, "part")
    ways = words(o.through, WAYS, "way")
    o.build = os.path.abspath(o.build)
    names = ["CPU"] * 2 if o.device == "host" else count_gpus()
    if not names:
        refuse("nvidia-smi lists no GPU here; --device host tries this on the CPUs")
    if o.anchors and not os.path.isdir(o.anchors):
        refuse(f"--anchors: {o.anchors} is not a folder")
    if o.anchors and not has_torch(o.python):
        refuse(f"--anchors: {o.python} has no PyTorch")
    counts = choose_counts(o, len(names))
    if not o.anchors:
        print("# no --anchors: PyTorch's twins are not run")
    b = Bench(o, len(names))
    signal.signal(signal.SIGTERM, stop)
    b.keep([{"op": "host", "who": "gpus.py", "gpus": len(names), "card": names[0],
             "date": time.strftime("%Y-%m-%d")}])
    try:
        for way in ways:
            b.through(way, parts, counts)
    except KeyboardInterrupt:
        print("# stopped")
        b.failed += 1
    print(table(b.rows))
    return 1 if b.failed else 0


if __name__ == "__main__":
    sys.exit(main())
