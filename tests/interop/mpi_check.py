# SPDX-License-Identifier: Apache-2.0
"""mpi_check.py - groups with backend mpi under Open MPI's mpirun, beside the
backend host: bit for bit, and the errors that ranks are to have.

usage: mpi_check.py BUILD_FOLDER
Each case is a run of group_mpi, whose ranks print a line each."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(sys.argv[1], "tests", "interop", "group_mpi")
SLOW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_server.c")
# mode, ranks, what the line of each rank says
CASES = [
    ("same", 1, r"ok"),
    ("same", 4, r"ok"),
    ("own", 3, r"ok"),
    ("level", 2, r"ENOTSUP: .*it needs MPI_THREAD_MULTIPLE"),
    ("mismatch", 4, r"EMISMATCH: .*ranks 0,2-3 called .*100 F32.*"
                    r"rank 1 called .*99 F32"),
    ("late", 4, r"ETIMEDOUT: rank 3 did not come to all_reduce .*within 8\.0 s"),
    ("depart", 4, r"EMISMATCH: .*rank 1 called all_reduce \(sum of 7 F32\)"),
    ("after", 2, r"ESTATE: .*before other groups"),
    ("many", 3, r"ok"),
]
counts = {"passed": 0, "failed": 0}


def check(name, good, detail=""):
    counts["passed" if good else "failed"] += 1
    print(f"{'ok' if good else 'not ok'} - {name}" + ("" if good else f": {detail}"))


def run(command, **env):
    """Its lines; a rank that hangs is a failure, not a wait."""
    try:
        p = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT, timeout=300,
                           env={**os.environ, **env})
        return p.stdout
    except subprocess.TimeoutExpired as e:
        return f"no end within 300 s: {e.stdout}"


def mpirun(mode, ranks, **env):
    return run(["mpirun", "--oversubscribe", "-n", str(ranks), "env",
                "-uLD_PRELOAD", PROGRAM, mode], OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **env)


def stopped(ranks):
    """The last rank by SIGSTOP while MPI moves data: the others name it within
    the deadline and 2 s. It goes on when they have, and may say what it will."""
    text = mpirun("stopped", ranks)
    lines = dict(re.findall(r"^rank (\d+): (.*)$", text, re.M))
    want = rf"ETIMEDOUT: .*rank {ranks - 1} did not .*; in time$"
    good = all(re.match(want, lines.get(str(r), "")) for r in range(ranks - 1))
    check(f"stopped, {ranks} ranks", good and len(lines) == ranks, text)


def many():
    """Group after group of a process, under an mpirun whose main thread lags
    behind that of its PMIx server: ranks that leave PMIx are gone before it has
    noted it, and who joined again would not be known."""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC",
                        "-o", f"{d}/slow.so", SLOW, "-ldl"], check=True)
        text = mpirun("many", 3, LD_PRELOAD=f"{d}/slow.so")
    lines = re.findall(r"^rank \S+: (.*)$", text, re.M)
    check("many, slow server", lines == ["ok"] * 3, text)


def alone():
    """A program that nothing started."""
    clean = [k for k in os.environ if k.startswith(("PMIX_", "PMI_", "OMPI_"))]
    out = run(["env"] + [f"-u{k}" for k in clean] + [PROGRAM, "mismatch"])
    check("alone", "ENOTSUP" in out and "start it with mpirun or srun" in out, out)


built = subprocess.run([PROGRAM, "built"], check=False).returncode == 0
if not built or not shutil.which("mpirun"):
    print("# built without MPI, or no mpirun (Debian: libopenmpi-dev openmpi-bin)")
    failed = "interop" in os.environ.get("RV_REQUIRE", "").split(",")
    print("0 passed, 1 failed, 0 skipped" if failed else "0 passed, 0 failed, 1 skipped")
    sys.exit(failed)
for mode, ranks, want in CASES:
    text = mpirun(mode, ranks)
    lines = re.findall(r"^rank \S+: (.*)$", text, re.M)
    check(f"{mode}, {ranks} ranks",
          len(lines) == ranks and all(re.match(want, s) for s in lines), text)
stopped(2)
stopped(4)
many()
alone()
print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
sys.exit(1 if counts["failed"] else 0)
