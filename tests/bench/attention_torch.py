#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_torch.py - PyTorch's causal attention beside ours.

  attention_torch.py time             one line a shape and backend: median of 15 of
                                      forward and forward + backward, TFLOP/s
  attention_torch.py check DIR        for every case that `attention_bench write
                                      DIR` left there: the errors of PyTorch's
                                      backends and of ours against f64, of y, dq, dk
                                      and dv; ours may be 1.1 of the better of
                                      PyTorch's; exit status 1 where it is more

TFLOP/s count the causal half: 2 B H T T D forward, 5 B H T T D backward.
"""

import json
import pathlib
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
SHAPES = [(8, 2048, 32, 8, 128), (8, 2048, 32, 8, 64), (32, 1024, 12, 12, 64), (8, 2048, 16, 16, 64),
          (16, 512, 16, 16, 64), (1, 512, 32, 8, 64), (1, 2048, 32, 8, 64), (64, 256, 12, 12, 64),
          (2, 8192, 32, 8, 64)]


def attend(qkv, H, G, D):
    """y (B,T,H,D) of packed qkv (B,T,H+2G,D)."""
    q, k, v = (x.transpose(1, 2) for x in qkv.split([H, G, G], dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != G)
    return y.transpose(1, 2)


def measure(run):
    times = []
    for i in range(-5, 15):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        if i >= 0:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def time_one(B, T, H, G, D):
    for name, backend in BACKENDS.items():
        # three inputs, as a model has them: no gradient of a split is timed
        q, k, v = (torch.randn(B, T, n, D, device="cuda", dtype=torch.bfloat16)
                   .transpose(1, 2).requires_grad_() for n in (H, G, G))
        dy = torch.randn(B, T, H, D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != G)

        def both():
            torch.autograd.grad(forward(), (q, k, v), dy)

        try:
            with sdpa_kernel(backend):
                with torch.no_grad():
                    fwd = measure(forward)
                all_ms = measure(both)
        except RuntimeError as e:
            print(f"torch {name} {B}x{H}x{T}x{D} G {G}: {str(e).splitlines()[0]}")
            continue
        flop = 2 * B * H * T * T * D
        print(f"torch {name} {B}x{H}x{T}x{D} G {G}: fwd {fwd:.4f} ms {flop / fwd / 1e9:.1f} TFLOP/s, "
              f"fwd+bwd {all_ms:.4f} ms {3.5 * flop / all_ms / 1e9:.1f} TFLOP/s", flush=True)


def exact(qkv, dy, H, G, D):
    """y and dqkv in f64, by the formula."""
    x = qkv.double().requires_grad_()
    q, k, v = (t.transpose(1, 2) for t in x.split([H, G, G], dim=2))
    k, v = (t.repeat_interleave(H // G, dim=1) for t in (k, v))
    s = q @ k.transpose(2, 3) / D ** 0.5
    T = s.shape[-1]
    s = s.masked_fill(torch.ones(T, T, device=s.device, dtype=torch.bool).triu(1), -torch.inf)
    y = (s.softmax(-1) @ v).transpose(1, 2)
    (dqkv,) = torch.autograd.grad(y, x, dy.double())
    return y.detach(), dqkv


def errors(y, dqkv, want, H, G):
    def norm(a, b):
        return ((a.double() - b).norm() / b.norm()).item()

    parts = zip(dqkv.split([H, G, G], dim=2), want[1].split([H, G, G], dim=2))
    return [norm(y, want[0])] + [norm(a, b) for a, b in parts]


def check(folder):
    bad = 0
    for meta in sorted(pathlib.Path(folder).glob("*.json")):
        m = json.loads(meta.read_text())
        B, T, H, G, D = (m[x] for x in "BTHGD")
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[m["dtype"]]

        def read(name, heads):
            raw = bytearray(meta.with_suffix("." + name).read_bytes())
            return torch.frombuffer(raw, dtype=dtype).view(B, T, heads, D).cuda()

        qkv, dy = read("qkv", H + 2 * G), read("dy", H)
        want = exact(qkv, dy, H, G, D)
        theirs = {}
        for name, backend in BACKENDS.items():
            x = qkv.clone().requires_grad_()
            try:
                with sdpa_kernel(backend):
                    y = attend(x, H, G, D)
                    (dqkv,) = torch.autograd.grad(y, x, dy)
                theirs[name] = errors(y, dqkv, want, H, G)
            except RuntimeError as e:
                print(f"# {name}: {str(e).splitlines()[0]}")
        ours = errors(read("y", H), read("dqkv", H + 2 * G), want, H, G)
        for name, e in theirs.items():
            print(f"#   torch {name}: " + " ".join(f"{x:.3e}" for x in e))
        print("#   ours: " + " ".join(f"{x:.3e}" for x in ours))
        ratio = float("nan")
        if theirs:
            ratio = max(o / min(t[i] for t in theirs.values()) for i, o in enumerate(ours))
        good = ratio <= 1.1
        bad += not good
        print(f"{'ok' if good else 'not ok'} - {meta.stem}: worst of y, dq, dk, dv is "
              f"{ratio:.3f} of the better of PyTorch's", flush=True)
    return bad


def main():
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        return 1 if check(sys.argv[2]) else 0
    if sys.argv[1:] != ["time"]:
        print(__doc__, file=sys.stderr)
        return 2
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name()}")
    for shape in SHAPES:
        time_one(*shape)
    return 0


if __name__ == "__main__":
    sys.exit(main())
