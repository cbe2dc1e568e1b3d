# SPDX-License-Identifier: Apache-2.0
"""group_step.py - a rank of group_step.sh: all-reduce of the host group and of
PyTorch's gloo in turns, in one process, on the same data

usage: group_step.py BUILD_FOLDER [BYTES...]       in a step, under rv-exec"""
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))

import torch
import torch.distributed as dist

from group_torch import OPS, Group

ROUNDS = 15


def timed(barrier, call, inner):
    """Microseconds of one call."""
    barrier()
    start = time.monotonic()
    for _ in range(inner):
        call()
    return (time.monotonic() - start) / inner * 1e6


def main():
    sizes = [int(a) for a in sys.argv[2:]] or [8 << 10, 1 << 20, 64 << 20]
    torch.set_num_threads(1)
    group = Group(sys.argv[1])
    os.environ["USE_LIBUV"] = "0"
    dist.init_process_group("gloo")

    def barrier():
        if group.call("barrier"):
            sys.exit(group.err.text.decode())

    for size in sizes:
        a, b = torch.zeros(size // 4), torch.zeros(size // 4)
        view, times = group.view(a), ([], [])

        def ours():
            if group.call("all_reduce", view, OPS["sum"]):
                sys.exit(group.err.text.decode())

        for i in range(-2, ROUNDS):
            inner = 20 if size < 65536 else 1
            o = timed(barrier, ours, inner)
            g = timed(barrier, lambda: dist.all_reduce(b), inner)
            if i >= 0:
                times[0].append(o)
                times[1].append(g)
        if dist.get_rank() == 0:
            o, g = (statistics.median(t) for t in times)
            print(f"| {size:,} | {o:,.0f} | {g:,.0f} | {g / o:.1f} |"
                  f" {min(times[0]):,.0f} | {min(times[1]):,.0f} |", flush=True)
    dist.barrier()
    group.end()


main()
