#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""queue_wait.py - how long jobs wait: a guess, one folded job, and fan-out

    queue_wait.py run [--way WAY] [--seed S] [--jobs 500] [--out FILE]
    queue_wait.py all [--seeds 1,2,3] [--ways guess,looked,folded,fanout]
                 [--jobs 500] [--at-once 1] [--dir DIR]
    queue_wait.py table FILE...

`run` starts a Slurm of its own with `rv sandbox`, gives it two types of GPU
and three partitions, and replays a workload: jobs of seven users, of which each
has a limit longer than the job takes, in an order and with sizes that the seed
alone decides. Every tenth is a probe, submitted in one of these ways:

    guess   one partition and type, as likely as it has GPUs
    looked  the one with room now, else with the fewest GPUs asked for by those
            that wait: what squeue and sinfo tell a person
    folded  rv run, one job
    fanout  rv run, several jobs where one cannot say all; the first that
            starts runs the command

A minute here stands for an hour, as limits are whole minutes to Slurm; its
backfill looks at seconds. slurmctld decides all starts; waits are its own
start less its own submit time. FILE gets a line of JSON a job; `table` prints
medians and quartiles, the other users' too, and what was forecast.

RV_BUILD names the build folder. Exit status 1 when a job was lost or a probe's
command did not run exactly once."""
import argparse
import calendar
import concurrent.futures as futures
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = (os.environ.get("RV_BUILD") or os.environ.get("top_builddir")
         or os.path.join(HERE, "..", "..", "build"))
RV = os.path.join(os.path.abspath(BUILD), "rv")
WAYS = ("guess", "looked", "folded", "fanout")
PER_NODE = 4          # GPUs, and CPUs
SHORT = 2             # minutes, the limit of partition "short"
PROBE_EVERY = 10


# ---- the workload: pure, of the seed alone ----

USERS = (("ada", "proj1", 4), ("ben", "proj1", 1), ("cleo", "proj2", 3),
         ("dan", "proj2", 2), ("eve", "proj3", 5), ("finn", "proj3", 2))


def weighted(rng, pairs):
    return rng.choices([p[0] for p in pairs], [p[1] for p in pairs])[0]


def duration(rng, limit):
    """Seconds: some crash early, most overestimate, some are near the limit."""
    part = weighted(rng, (((0.03, 0.2), 25), ((0.2, 0.7), 50),
                          ((0.7, 0.95), 25)))
    return round(limit * 60 * rng.uniform(*part), 1)


def workload(seed, count, nodes, load):
    """A list of jobs, each a dict, by arrival (seconds from the start)."""
    rng = random.Random(seed)
    n_a = types_of(nodes)
    jobs = []
    while len(jobs) < count:
        user = weighted(rng, [(u, u[2]) for u in USERS])
        gpus = weighted(rng, ((1, 45), (2, 25), (4, 22), (8, 8)))
        limit = weighted(rng, ((1, 50), (2, 25), (3, 15), (4, 10)))
        at = rng.random()
        batch = 1 if rng.random() < 0.7 else rng.randint(2, 8)
        gtype = weighted(rng, (("a100", n_a), ("v100", nodes - n_a)))
        where = "short" if limit <= SHORT and rng.random() < 0.3 else gtype
        for k in range(min(batch, count - len(jobs))):
            jobs.append({"user": user[0], "account": user[1], "gpus": gpus,
                         "limit": limit, "sleep": duration(rng, limit),
                         "type": gtype, "part": where,
                         "at": at + k * 0.0005})
    jobs.sort(key=lambda j: j["at"])
    for i, job in enumerate(jobs):
        job["n"] = i
        job["probe"] = i % PROBE_EVERY == PROBE_EVERY - 1
        if job["probe"]:
            # Of a user who asks for GPUs of any type.
            job.update(user="pat", account="proj4",
                       gpus=weighted(rng, ((1, 25), (2, 25), (4, 35),
                                           (8, 15))),
                       type=weighted(rng, (("a100", n_a),
                                           ("v100", nodes - n_a))))
            job["part"] = job["type"]
            job["sleep"] = duration(rng, job["limit"])
    work = sum(j["gpus"] * (j["sleep"] + 1) for j in jobs)
    span = work / (nodes * PER_NODE * load)
    for job in jobs:
        job["at"] = round(job["at"] * span, 2)
    return jobs


def types_of(nodes):
    """How many of the nodes have a100; the others have v100."""
    return max(1, round(nodes * 0.6))


# ---- the cluster ----

def quiet(argv, env, **more):
    return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, **more)


class Cluster:
    """A sandbox whose daemons were started again with two types of GPU."""

    def __init__(self, nodes):
        self.base = tempfile.mkdtemp(prefix="rvq.", dir="/tmp")
        self.dir = os.path.join(self.base, "s")
        self.nodes = nodes
        self.daemons = []
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("SLURM_", "SBATCH_", "RV_"))}
        self.env["XDG_STATE_HOME"] = os.path.join(self.base, "state")
        self.env["XDG_CONFIG_HOME"] = os.path.join(self.base, "config")

    def must(self, argv):
        run = quiet(argv, self.env)
        if run.returncode:
            raise RuntimeError(f"{argv[0]}: {run.stderr.strip()}")
        return run.stdout

    def say_state(self):
        """Fan-out needs to know that jobs see the requests' folder."""
        folder = os.path.join(self.env["XDG_CONFIG_HOME"], "rv")
        os.makedirs(folder)
        with open(os.path.join(folder, "rv.conf"), "w",
                  encoding="ascii") as f:
            f.write("[defaults]\nstate_dir = "
                    f"{self.env['XDG_STATE_HOME']}/rv\n")

    def up(self):
        self.say_state()
        self.must([RV, "sandbox", "up", "--dir", self.dir, "--made-up",
                   "--nodes", str(self.nodes), "--cpus", str(PER_NODE),
                   "--gpus", str(self.nodes * PER_NODE)])
        told = json.loads(self.must([RV, "sandbox", "status", "--json",
                                     "--dir", self.dir]))
        self.env.update(told["env"])
        self.edit()
        self.restart()

    def edit(self):
        """Two types, three partitions, and a scheduler at sixty times the
        usual pace: backfill every second, in steps of a second."""
        n_a, dot = types_of(self.nodes), os.path.join(self.dir, "slurm.conf")
        for name in ("slurm.conf", "gres.conf"):
            path = os.path.join(self.dir, name)
            lines = []
            with open(path, encoding="ascii") as f:
                for line in f:
                    node = re.match(r"NodeName=n(\d+) ", line)
                    if node and int(node.group(1)) > n_a:
                        line = line.replace("a100", "v100")
                    if not line.startswith(("PartitionName",
                                            "SchedulerParameters")):
                        lines.append(line)
            with open(path, "w", encoding="ascii") as f:
                f.writelines(lines)
        with open(dot, "a", encoding="ascii") as f:
            f.write("SchedulerParameters=batch_sched_delay=0,"
                    "sched_min_interval=0,sched_interval=1,bf_interval=1,"
                    "bf_resolution=1,bf_continue,bf_max_job_test=1000,"
                    "default_queue_depth=1000\n"
                    # Records stay until they are read at the end.
                    "MinJobAge=14400\n"
                    f"PartitionName=a100 Nodes=n[1-{n_a}] Default=YES "
                    "MaxTime=10 State=UP\n"
                    f"PartitionName=v100 Nodes=n[{n_a + 1}-{self.nodes}] "
                    "MaxTime=10 State=UP\n"
                    f"PartitionName=short Nodes=n[1-{self.nodes}] "
                    f"MaxTime={SHORT} State=UP\n")

    def restart(self):
        """slurmctld takes another type of a node only when started anew."""
        with open(os.path.join(self.dir, "sandbox.json"),
                  encoding="utf-8") as f:
            old = [d for d in json.load(f)["daemons"]
                   if d["name"] != "munged"]
        for daemon in old:
            os.kill(daemon["pid"], signal.SIGTERM)
        wait_for(30, lambda: not any(alive(d["pid"]) for d in old))
        shutil.rmtree(os.path.join(self.dir, "state"))
        os.mkdir(os.path.join(self.dir, "state"))
        for daemon in old:
            self.daemons.append(subprocess.Popen(
                daemon["argv"], env=self.env, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/"))
        wait_for(60, self.all_idle)

    def all_idle(self):
        states = quiet(["sinfo", "-h", "-N", "-p", "short", "-o", "%t"],
                       self.env).stdout.split()
        return len(states) == self.nodes and set(states) == {"idle"}

    def down(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        quiet([RV, "sandbox", "down", "--dir", self.dir], self.env)
        shutil.rmtree(self.base, ignore_errors=True)


def alive(pid):
    """A zombie is of the sandbox's starter, who is gone: init reaps it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(seconds, done):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s in vain")
        time.sleep(0.1)


# ---- submission ----

def shape(gpus):
    """Nodes, and GPUs a node, of one who thinks of full nodes."""
    return max(1, gpus // PER_NODE), min(gpus, PER_NODE)


def look(cluster, job):
    """The type that squeue and sinfo would let a person choose."""
    free, asked = {}, {}
    for gtype in ("a100", "v100"):
        out = quiet(["sinfo", "-h", "-N", "-p", gtype, "-O",
                     "Gres:40,GresUsed:60"], cluster.env).stdout
        room = [PER_NODE - int(re.search(r"gpu:\w+:(\d+)\(", line).group(1))
                for line in out.splitlines() if "(" in line]
        nodes, each = shape(job["gpus"])
        free[gtype] = sum(r >= each for r in room) >= nodes
        out = quiet(["squeue", "-h", "-t", "PD", "-p", gtype, "-O",
                     "NumNodes:10,tres-per-node:60"], cluster.env).stdout
        wanted = 0
        for line in out.splitlines():
            n = re.match(r"(\d+).*gpu(?::\w+)?:(\d+)", line)
            wanted += int(n.group(1)) * int(n.group(2)) if n else 0
        size = types_of(cluster.nodes)
        size = size if gtype == "a100" else cluster.nodes - size
        asked[gtype] = wanted / size
    best = [t for t in free if free[t] and not asked[t]]
    return best[0] if best else min(asked, key=asked.get)


def rv_argv(cluster, job, way):
    nodes, _ = shape(job["gpus"])
    argv = [RV, "run", "--json", "--name", f"probe{job['n']}", "-A",
            job["account"], "-g", str(job["gpus"]), "--time",
            str(job["limit"])]
    if way in ("guess", "looked"):
        gtype = look(cluster, job) if way == "looked" else job["type"]
        argv += ["-p", gtype, "-t", gtype, "--nodes", str(nodes)]
    elif way == "folded":
        argv += ["--fanout", "1"] if HAS_FANOUT else []
    else:
        argv += ["--fanout", "4"]
    mark = os.path.join(cluster.base, f"ran{job['n']}")
    return argv + ["--", "sh", "-c", f'[ "$RANK" != 0 ] || echo x >>{mark}; '
                   f"exec sleep {job['sleep']}"]


HAS_FANOUT = False


def submit_probe(cluster, job, way):
    run = quiet(rv_argv(cluster, job, way), cluster.env, cwd=cluster.base)
    if run.returncode:
        job["error"] = (run.stderr or run.stdout).strip()
        return
    told = json.loads(run.stdout)
    first = told["forecast"]["strategies"][0]
    job["forecast_wait"] = first["wait_s"]
    job["request"] = told["request_id"]
    folder = os.path.join(cluster.env["XDG_STATE_HOME"], "rv", "requests",
                          told["request_id"], "jobs")
    job["ids"] = sorted(int(n[:-5]) for n in os.listdir(folder)
                        if n.endswith(".json"))


def submit_other(cluster, job):
    nodes, each = shape(job["gpus"])
    run = quiet(["sbatch", "--parsable", "-J", f"{job['user']}{job['n']}",
                 "-A", job["account"], "-p", job["part"], "-N", str(nodes),
                 "--ntasks-per-node=1", "-c", str(each),
                 f"--gres=gpu:{job['type']}:{each}", "-t", str(job["limit"]),
                 "-o", "/dev/null", "--wrap", f"exec sleep {job['sleep']}"],
                cluster.env, cwd=cluster.base)
    if run.returncode:
        job["error"] = run.stderr.strip()
    else:
        job["ids"] = [int(run.stdout)]


class Watch(threading.Thread):
    """What slurmctld itself expects of waiting jobs, every three seconds."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.expected = cluster, {}
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(3):
            out = quiet(["squeue", "-h", "-t", "PD", "-o", "%i %S"],
                        self.cluster.env).stdout
            for line in out.splitlines():
                job, at = line.split()
                if at != "N/A":
                    self.expected.setdefault(int(job), unix(at))


def unix(text):
    """slurmctld runs in UTC here, see Cluster.env."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def replay(cluster, jobs, way):
    begin = time.monotonic()
    with futures.ThreadPoolExecutor(8) as pool:
        for job in jobs:
            time.sleep(max(0, begin + job["at"] - time.monotonic()))
            if job["probe"]:
                pool.submit(submit_probe, cluster, job, way)
            else:
                pool.submit(submit_other, cluster, job)


def records(cluster):
    out = cluster.must(["scontrol", "show", "job", "-o"])
    ret = {}
    for line in out.splitlines():
        word = dict(w.split("=", 1) for w in line.split() if "=" in w)
        if "JobId" in word:
            ret[int(word["JobId"])] = word
    return ret


def settle(cluster, job, way, seed, record, expected):
    """The job's line of the results."""
    line = {k: job.get(k) for k in ("n", "probe", "user", "account", "gpus",
                                    "limit", "sleep", "at", "ids", "error",
                                    "forecast_wait")}
    line.update(way=way, seed=seed, submit=None, start=None, end=None,
                where=None, nodes=None, slurm_wait=None, runs=None)
    mine = [record[i] for i in job.get("ids", ()) if i in record]
    # One that is cancelled while it waits has a start time, and no nodes.
    ran = [r for r in mine if r["NodeList"] != "(null)"]
    if ran:
        first = min(ran, key=lambda r: unix(r["StartTime"]))
        line.update(submit=min(unix(r["SubmitTime"]) for r in mine),
                    start=unix(first["StartTime"]),
                    end=unix(first["EndTime"]), where=first["Partition"],
                    nodes=int(first["NumNodes"].split("-")[0]))
        told = [expected[i] for i in job["ids"] if i in expected]
        if told:
            line["slurm_wait"] = max(0, min(told) - line["submit"])
    if job["probe"]:
        try:
            with open(os.path.join(cluster.base, f"ran{job['n']}"),
                      encoding="ascii") as f:
                line["runs"] = len(f.readlines())
        except OSError:
            line["runs"] = 0
    return line


def one_run(args):
    global HAS_FANOUT
    HAS_FANOUT = "--fanout" in quiet([RV, "run", "--help"],
                                     os.environ).stdout
    if args.way == "fanout" and not HAS_FANOUT:
        raise RuntimeError("this rv has no --fanout")
    os.environ["TZ"] = "UTC"
    nodes = args.nodes or max(6, round(32 * args.jobs / 500))
    jobs = workload(args.seed, args.jobs, nodes, args.load)
    cluster = Cluster(nodes)
    try:
        cluster.up()
        watch = Watch(cluster)
        watch.start()
        replay(cluster, jobs, args.way)
        wait_for(1800, lambda: not cluster.must(["squeue", "-h", "-o", "%i"]))
        watch.over.set()
        watch.join()
        record = records(cluster)
        lines = [settle(cluster, j, args.way, args.seed, record,
                        watch.expected) for j in jobs]
    finally:
        cluster.down()
    with open(args.out, "w", encoding="ascii") as f:
        for line in lines:
            f.write(json.dumps(line) + "\n")
    return lines


# ---- the table ----

def waits(lines):
    return [x["start"] - x["submit"] for x in lines if x["start"] is not None]


def quantiles(v):
    if len(v) < 2:
        return v * 3 if v else [float("nan")] * 3
    return statistics.quantiles(v, n=4, method="inclusive")


def bad(lines):
    """Texts about jobs that were lost or ran otherwise than once."""
    ret = []
    for x in lines:
        if x["start"] is None:
            ret.append(f"{x['way']} seed {x['seed']}: job {x['n']} never "
                       f"ran: {x['error']}")
        elif x["probe"] and x["runs"] != 1:
            ret.append(f"{x['way']} seed {x['seed']}: probe {x['n']} ran "
                       f"{x['runs']} times")
    return ret


def print_row(name, lines):
    probe = [x for x in lines if x["probe"]]
    other = waits([x for x in lines if not x["probe"]])
    low, mid, high = quantiles(waits(probe))
    mean = statistics.fmean(waits(probe)) if waits(probe) else float("nan")
    print(f"{name:<14} {len(probe):6} {mid:7.1f} {low:6.1f} {high:6.1f} "
          f"{mean:6.1f} | {statistics.median(other):7.1f} "
          f"{statistics.fmean(other):6.1f}")


def print_forecast(name, lines):
    """Error of what was told: seconds that it was later than the truth."""
    ours, theirs, apart = [], [], []
    for x in lines:
        if not x["probe"] or x["start"] is None \
                or x["forecast_wait"] is None:
            continue
        true = x["start"] - x["submit"]
        if true <= 2 and x["forecast_wait"] == 0:
            continue        # free now, and so it was
        ours.append(x["forecast_wait"] - true)
        if x["slurm_wait"] is not None:
            theirs.append(x["slurm_wait"] - true)
            apart.append(x["forecast_wait"] - x["slurm_wait"])
    if len(ours) > 1:
        print(f"{name:<14} {len(ours):6} {statistics.median(ours):8.1f} "
              f"{statistics.median(map(abs, ours)):8.1f}", end="")
        if len(theirs) > 1:
            print(f" {len(theirs):6} {statistics.median(theirs):8.1f} "
                  f"{statistics.median(map(abs, theirs)):8.1f} "
                  f"{statistics.median(apart):8.1f}", end="")
        print()


def table(files):
    lines = []
    for name in files:
        with open(name, encoding="ascii") as f:
            lines += [json.loads(text) for text in f]
    seeds = sorted({x["seed"] for x in lines})
    groups = [(w, [x for x in lines if x["way"] == w]) for w in WAYS]
    groups = [g for g in groups if g[1]]
    print("seconds of wait         probes                       |  others\n"
          "way                 n  median     q1     q3   mean |  median   mean")
    for way, mine in groups:
        for seed in seeds if len(seeds) > 1 else []:
            if part := [x for x in mine if x["seed"] == seed]:
                print_row(f"  {way} {seed}", part)
        print_row(way, mine)
    print("\nforecast less truth, s (rv: before submission; Slurm: its first "
          "own)\n"
          "way             rv: n   median |median| Sl.: n   median |median| "
          "rv - Slurm")
    for way, mine in groups:
        print_forecast(way, mine)
    wrong = bad(lines)
    for text in wrong:
        print(text)
    return 1 if wrong else 0


# ---- the command line ----

def all_runs(args):
    os.makedirs(args.dir, exist_ok=True)
    runs = [(w, int(s)) for s in args.seeds.split(",")
            for w in args.ways.split(",")]
    files = []

    def start(way, seed):
        out = os.path.join(args.dir, f"{way}-{seed}.jsonl")
        files.append(out)
        argv = [sys.executable, os.path.abspath(__file__), "run", "--way", way,
                "--seed", str(seed), "--jobs", str(args.jobs), "--load",
                str(args.load), "--out", out]
        argv += ["--nodes", str(args.nodes)] if args.nodes else []
        return subprocess.run(argv, stdout=subprocess.DEVNULL).returncode

    with futures.ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(lambda x: start(*x), runs))
    print(f"{args.jobs} jobs, {os.cpu_count()} CPUs, load now "
          f"{os.getloadavg()[1]:.1f}")
    return table([f for f in files if os.path.exists(f)])


def main():
    top = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    verbs = top.add_subparsers(dest="verb", required=True)
    for verb in ("run", "all"):
        p = verbs.add_parser(verb)
        p.add_argument("--jobs", type=int, default=500)
        p.add_argument("--nodes", type=int, default=0)
        p.add_argument("--load", type=float, default=1.2,
                       help="work that arrives, of what the GPUs can do")
        if verb == "run":
            p.add_argument("--way", choices=WAYS, default="folded")
            p.add_argument("--seed", type=int, default=1)
            p.add_argument("--out", default="queue.jsonl")
        else:
            p.add_argument("--seeds", default="1,2,3")
            p.add_argument("--ways", default=",".join(WAYS))
            p.add_argument("--at-once", type=int, default=1)
            p.add_argument("--dir", default="queue-results")
    verbs.add_parser("table").add_argument("file", nargs="+")
    args = top.parse_args()
    # The daemons are to end with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if args.verb == "table":
        return table(args.file)
    if args.verb == "all":
        return all_runs(args)
    one_run(args)
    return table([args.out])


if __name__ == "__main__":
    sys.exit(main())
