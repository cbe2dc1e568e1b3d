# SPDX-License-Identifier: Apache-2.0
"""ckpt_check.py - the Python package safetensors reads a checkpoint of several
ranks: every element of every tensor is where checkpoint.json says. And the
shares of train/sampler.h are those of PyTorch's DistributedSampler.

usage: ckpt_check.py BUILD_FOLDER"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file
from torch.utils.data import DistributedSampler

TOOL = os.path.join(sys.argv[1], "tests", "interop", "ckpt_tool")
counts = {"passed": 0, "failed": 0}


def check(name, good, detail=""):
    counts["passed" if good else "failed"] += 1
    print(("ok - " if good else "not ok - ") + name
          + ("" if good else " # " + str(detail)))


def tool(*args):
    return subprocess.run([TOOL, *map(str, args)], capture_output=True,
                          text=True, check=True).stdout


TYPES = {"F32": numpy.float32, "I32": numpy.int32, "U8": numpy.uint8}


def checkpoint(world):
    """The tool fills element i of tensor t with 1000 t + i (of a byte: the low
    bits)."""
    with tempfile.TemporaryDirectory() as tmp:
        tool("save", tmp, world)
        folder = os.path.join(tmp, "step-00000005")
        with open(os.path.join(folder, "checkpoint.json")) as f:
            manifest = json.load(f)
        files = {name: load_file(os.path.join(folder, name))
                 for name in manifest["files"] if name.endswith(".safetensors")}
        for name, tensor in manifest["tensors"].items():
            number = int(name[1:])
            size = int(numpy.prod(tensor["shape"], dtype=int))
            got = numpy.zeros(size, TYPES[tensor["dtype"]])
            seen = numpy.zeros(size, int)
            for piece in tensor["pieces"]:
                at = slice(piece["first"], piece["first"] + piece["count"])
                got[at] = files[piece["file"]][piece["as"]].reshape(-1)
                seen[at] += 1
            want = (1000 * number + numpy.arange(size)).astype(
                TYPES[tensor["dtype"]])
            check(f"{world} ranks, {name}: each element once",
                  (seen == 1).all(), seen)
            check(f"{world} ranks, {name}: its elements",
                  (got == want).all(), got)
        check(f"{world} ranks: the manifest", manifest["step"] == 5
              and manifest["world"] == world and len(manifest["tensors"]) == 3,
              manifest)


def sampler():
    bad = []
    for n in (0, 1, 2, 3, 5, 7, 8, 10, 17, 23):
        for ranks in range(1, 9):
            for drop in (False, True):
                for rank in range(ranks):
                    if n == 0 and not drop:
                        continue  # PyTorch divides by zero
                    theirs = list(DistributedSampler(
                        range(n), ranks, rank, shuffle=False, drop_last=drop))
                    ours = list(map(int, tool("sampler", n, ranks, rank,
                                              int(drop)).split()))
                    if ours != theirs:
                        bad.append((n, ranks, rank, drop, ours, theirs))
    check("shares of ten numbers of samples by 1 to 8 ranks, as PyTorch's", not bad,
          bad[:3])


for w in (1, 2, 3, 5):
    checkpoint(w)
sampler()
print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
sys.exit(counts["failed"] > 0)
