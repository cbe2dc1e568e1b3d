# SPDX-License-Identifier: Apache-2.0
"""group_gloo.py - all-reduce of the group backend host beside PyTorch's gloo,
on this machine, interleaved; prints a table in Markdown.

usage: group_gloo.py BUILD_FOLDER [RANKS...]       (default: 2 4)"""
import os
import socket
import subprocess
import sys
import time

SIZES = [4, 4096, 65536, 1 << 20, 1 << 24, 1 << 26]
ROUNDS = 15


def gloo_rank():
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in SIZES:
        t = torch.zeros(max(size // 4, 1))
        inner = 20 if size < 65536 else 1
        us = []
        for i in range(-2, ROUNDS):
            dist.barrier()
            start = time.monotonic()
            for _ in range(inner):
                dist.all_reduce(t)
            if i >= 0:
                us.append((time.monotonic() - start) / inner * 1e6)
        us.sort()
        if dist.get_rank() == 0:
            print(size, f"{us[ROUNDS // 2]:.1f}",
                  f"{size / us[ROUNDS // 2] / 1e3:.3f}", flush=True)
    dist.barrier()


def run(command, ranks, nodes=1):
    """[(bytes, us, GB/s)] of one run."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    local = ranks // nodes
    children = []
    for r in range(ranks):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(ranks),
                   LOCAL_RANK=str(r % local), LOCAL_WORLD_SIZE=str(local),
                   NODE_RANK=str(r // local), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
                   OMP_NUM_THREADS="1")
        env.pop("RV_STEP", None)
        children.append(subprocess.Popen(
            command, env=env, text=True,
            stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL))
    out = children[0].communicate()[0]
    if any([c.wait() for c in children]):
        sys.exit(f"{command[0]} failed")
    return [tuple(float(x) for x in line.split()) for line in out.splitlines()]


def main():
    bench = os.path.join(sys.argv[1], "tests", "bench", "group_bench")
    print("| ranks | bytes | ours us | two nodes us | gloo us | ours GB/s |"
          " gloo GB/s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for ranks in [int(a) for a in sys.argv[2:]] or [2, 4]:
        sizes = [str(s) for s in SIZES]
        ours = run([bench, *sizes], ranks)
        gloo = run([sys.executable, __file__, "--gloo"], ranks)
        two = run([bench, *sizes], ranks, 2)
        for o, t, g in zip(ours, two, gloo):
            print(f"| {ranks} | {o[0]:.0f} | {o[1]:.0f} | {t[1]:.0f} |"
                  f" {g[1]:.0f} | {o[2]:.3f} | {g[2]:.3f} |"
                  f" {g[1] / o[1]:.1f} |")


if __name__ == "__main__":
    gloo_rank() if sys.argv[1] == "--gloo" else main()
