#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# kernels_torch_layers.py - the rows of layer_bench.c in PyTorch, eager and
# compiled: median microseconds of 15 times 4 calls, behind a wait so that the
# GPU does not wait for Python.
import statistics
import sys

import torch
import torch.nn.functional as F

ROWS, WIDTH, FFN, HEADS, GROUPS, HEAD, T = 16384, 4096, 8192, 32, 8, 128, 2048
EMBED, VOCAB, ROUNDS, CALLS = 2048, 50304, 15, 4
only = sys.argv[1] if len(sys.argv) > 1 else ""


def tensor(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def micros(run):
    took = []
    for i in range(-3, ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(4_000_000)
        start.record()
        for _ in range(CALLS):
            run()
        end.record()
        end.synchronize()
        if i >= 0:
            took.append(start.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(took)


def row(name, make):
    if not name.startswith(only):
        return
    for way in ("eager", "compile"):
        torch._dynamo.reset()
        run = make(torch.compile if way == "compile" else lambda f: f)
        for _ in range(3):
            run()
        print(f"{name:24} {way:8} {micros(run):7.1f} us", flush=True)


def norm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-5)


def addnorm(x, t, w):
    mid = x + t
    return mid, norm(mid, w)


def swiglu(gu):
    gate, up = gu.chunk(2, -1)
    return F.silu(gate) * up


def rope(qkv, cos, sin):
    x = qkv.view(ROWS // T, T, HEADS + 2 * GROUPS, HEAD)
    qk = x[:, :, :HEADS + GROUPS]
    a, b = qk.chunk(2, -1)
    return (qk * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


def headnorm(qkv, wq, wk):
    x = qkv.view(ROWS, HEADS + 2 * GROUPS, HEAD)
    return norm(x[:, :HEADS], wq), norm(x[:, HEADS:HEADS + GROUPS], wk)


def backward(f, inputs, grads):
    """Forward once outside; a call is the backward alone, gradients fresh."""
    out = f(*inputs)
    out = out if isinstance(out, tuple) else (out,)
    wanted = [x for x in inputs if x.requires_grad]
    return lambda: torch.autograd.grad(out, wanted, grads, retain_graph=True)


def both(f, inputs, grads):
    wanted = [x for x in inputs if x.requires_grad]

    def run():
        out = f(*inputs)
        torch.autograd.grad(out, wanted, grads)
    return run


def tokens(words):
    seed, picks = 7, []
    for _ in range(ROWS):
        seed = (seed * 1664525 + 1013904223) % 2**32
        r = seed >> 8
        picks.append(int(2 ** (r * 15.6 / 2**24)) % VOCAB if words else r % VOCAB)
    return torch.tensor(picks, device="cuda")


def main():
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    big = tensor(ROWS, 2 * FFN)
    spare = torch.empty_like(big)
    us = micros(lambda: spare.copy_(big))
    print(f"copy of 512 MiB {us:.1f} us {2 * big.nbytes / us / 1e3:.0f} GB/s")
    x, t, dy, dmid = (tensor(ROWS, WIDTH).requires_grad_() for _ in range(4))
    w = tensor(WIDTH).requires_grad_()
    half = [v.detach().view(2 * ROWS, WIDTH // 2).requires_grad_() for v in (x, t, dy, dmid)]
    w2 = tensor(WIDTH // 2).requires_grad_()
    no = torch.no_grad
    first, second = big.view(2, -1)
    row("residual", lambda c: (lambda f=c(torch.add): f(first, second)))
    row("rmsnorm fwd", lambda c: no()(lambda f=c(norm): f(x, w)))
    row("rmsnorm bwd", lambda c: backward(c(norm), (x, w), (dy,)))
    row("rmsnorm fwd, bwd", lambda c: both(c(norm), (x, w), (dy,)))
    row("addnorm fwd", lambda c: no()(lambda f=c(addnorm): f(x, t, w)))
    row("addnorm bwd", lambda c: backward(c(addnorm), (x, t, w), (dmid, dy)))
    row("addnorm fwd, 2048", lambda c: no()(lambda f=c(addnorm): f(half[0], half[1], w2)))
    row("addnorm bwd, 2048", lambda c: backward(c(addnorm), (half[0], half[1], w2), (half[3], half[2])))
    gu, dact = big.requires_grad_(), tensor(ROWS, FFN)
    row("swiglu fwd", lambda c: no()(lambda f=c(swiglu): f(gu)))
    row("swiglu bwd", lambda c: backward(c(swiglu), (gu,), (dact,)))
    del gu, dact
    qkv = tensor(ROWS, (HEADS + 2 * GROUPS) * HEAD).requires_grad_()
    cos, sin = (torch.randn(T, 1, HEAD, device="cuda") for _ in range(2))
    row("rope", lambda c: no()(lambda f=c(rope): f(qkv, cos, sin)))
    wq, wk = (tensor(HEAD).requires_grad_() for _ in range(2))
    row("headnorm fwd", lambda c: no()(lambda f=c(headnorm): f(qkv, wq, wk)))
    dq, dk = tensor(ROWS, HEADS, HEAD), tensor(ROWS, GROUPS, HEAD)
    row("headnorm bwd", lambda c: backward(c(headnorm), (qkv, wq, wk), (dq, dk)))
    bias = tensor(qkv.shape[1])
    row("bias fwd", lambda c: no()(lambda f=c(lambda a, b: a.add_(b)): f(qkv, bias)))
    row("bias bwd", lambda c: no()(lambda f=c(lambda a: a.sum(0, dtype=torch.float32)): f(qkv)))
    table = tensor(VOCAB, EMBED).requires_grad_()
    demb = tensor(ROWS, EMBED)
    for words in (False, True):
        ids = tokens(words)
        if not words:
            row("embedding fwd", lambda c: no()(lambda f=c(F.embedding): f(ids, table)))
        row("embedding bwd, " + ("words" if words else "any"),
            lambda c: backward(c(lambda wt: F.embedding(ids, wt)), (table,), (demb,)))


main()
