#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gemm_torch.py - PyTorch's times for what gemm_bench measures, line by line.

dw_f32_add has no such product in PyTorch: a bf16 product and an addition to an
f32 gradient, as accumulation in f32 does there. The head is F.cross_entropy of
h @ w.T through torch.compile, forward and backward."""
import torch
import torch.nn.functional as F

LAYERS = [("124m qkv", 32768, 768, 2304), ("124m o", 32768, 768, 768),
          ("124m gu", 32768, 768, 4096), ("124m down", 32768, 2048, 768),
          ("124m head", 32768, 768, 50304), ("1b qkv", 16384, 2048, 3072),
          ("1b o", 16384, 2048, 2048), ("1b gu", 16384, 2048, 16384),
          ("1b down", 16384, 8192, 2048), ("1b head", 16384, 2048, 50304)]


def numbers(*shape):
    return torch.rand(*shape, device="cuda").mul_(2).sub_(1).bfloat16()


def measure(run):
    ms, warm = [], 0
    while len(ms) < 11:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        if warm >= 250:
            ms.append(start.elapsed_time(end))
        warm += start.elapsed_time(end)
    return sorted(ms)[5]


def show(name, what, flops, ms):
    print(f"{name:12} {what:10} {ms:8.4f} ms {flops / ms / 1e9:7.1f} TFLOP/s", flush=True)


def layer(name, n, cin, cout):
    x, w, dy = numbers(n, cin), numbers(cout, cin), numbers(n, cout)
    flops = 2 * n * cin * cout
    dw = torch.zeros(cout, cin, device="cuda")
    show(name, "fwd", flops, measure(lambda: F.linear(x, w)))
    show(name, "dx", flops, measure(lambda: dy @ w))
    show(name, "dw_f32_add", flops, measure(lambda: dw.add_(dy.t() @ x)))
    show(name, "dw_bf16", flops, measure(lambda: dy.t() @ x))


def head(n, c, v):
    h, w = numbers(n, c).requires_grad_(), numbers(v, c).requires_grad_()
    t = torch.arange(n, device="cuda") * 977 % v
    loss_of = torch.compile(lambda h, w, t: F.cross_entropy((h @ w.t()).float(), t))

    def run():
        h.grad = w.grad = None
        loss_of(h, w, t).backward()
    run()
    torch.cuda.synchronize()
    h.grad = w.grad = None
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - base
    show(f"{n}x{c}x{v}", "linear+ce", 6 * n * c * v, measure(run))
    h.grad = w.grad = None
    print(f"  {peak / 2**30:.3f} GiB with dh and bf16 dw; mean loss {loss_of(h, w, t).item():.6f}")


print(torch.cuda.get_device_name(), torch.__version__, torch.backends.cuda.preferred_blas_library())
for args in LAYERS:
    layer(*args)
    torch.cuda.empty_cache()
head(8192, 2048, 151936)
torch.cuda.empty_cache()
head(32768, 768, 50304)
