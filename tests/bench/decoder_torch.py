#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# decoder_torch.py - the step of decoder_bench in PyTorch, eager, on the CPU.
"""decoder_torch.py THREADS [key=value...]: keys and output as decoder_bench's:
one JSON line, median step after two that warm up."""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F


class Block (torch.nn.Module):
    def __init__ (self, c):
        super ().__init__ ()
        dim, ffn, size = c["dim"], c["ffn"], c["dim"] // c["heads"]
        self.c, self.size = c, size
        self.norm1 = torch.nn.Parameter (torch.ones (dim))
        self.norm2 = torch.nn.Parameter (torch.ones (dim))
        self.qkv = torch.nn.Linear (dim, dim + 2 * size * c["kv_heads"], bias=False)
        self.out = torch.nn.Linear (dim, dim, bias=False)
        self.gate_up = torch.nn.Linear (dim, 2 * ffn, bias=False)
        self.down = torch.nn.Linear (ffn, dim, bias=False)

    @staticmethod
    def norm (x, w):
        return x * torch.rsqrt (x.pow (2).mean (-1, keepdim=True) + 1e-5) * w

    @staticmethod
    def rotate (x, cosine, sine):
        a, b = x.chunk (2, -1)
        return x * cosine + torch.cat ((-b, a), -1) * sine

    def forward (self, x, cosine, sine, later):
        batch, seq, dim = x.shape
        heads, groups = self.c["heads"], self.c["kv_heads"]
        y = self.qkv (self.norm (x, self.norm1)).view (batch, seq, -1, self.size)
        q, k, v = y.transpose (1, 2).split ((heads, groups, groups), 1)
        q, k = self.rotate (q, cosine, sine), self.rotate (k, cosine, sine)
        k = k.repeat_interleave (heads // groups, 1)
        v = v.repeat_interleave (heads // groups, 1)
        p = (q @ k.transpose (2, 3) * self.size**-0.5 + later).softmax (-1)
        x = x + self.out ((p @ v).transpose (1, 2).reshape (batch, seq, dim))
        gate, up = self.gate_up (self.norm (x, self.norm2)).chunk (2, -1)
        return x + self.down (F.silu (gate) * up)


class Decoder (torch.nn.Module):
    def __init__ (self, c):
        super ().__init__ ()
        size, seq = c["dim"] // c["heads"], c["seq"]
        self.embed = torch.nn.Embedding (c["vocab"], c["dim"])
        self.blocks = torch.nn.ModuleList (Block (c) for _ in range (c["layers"]))
        self.norm = torch.nn.Parameter (torch.ones (c["dim"]))
        rate = 10000.0 ** (-torch.arange (0, size, 2) / size)
        angle = (torch.arange (seq)[:, None] * rate).repeat (1, 2)
        self.cosine, self.sine = angle.cos (), angle.sin ()
        self.later = torch.full ((seq, seq), -torch.inf).triu (1)

    def forward (self, tokens, targets):
        x = self.embed (tokens)
        for block in self.blocks:
            x = block (x, self.cosine, self.sine, self.later)
        logits = F.linear (Block.norm (x, self.norm), self.embed.weight)
        return F.cross_entropy (logits.flatten (0, 1), targets.flatten ())


def main (threads, words):
    c = dict (layers=4, dim=128, heads=4, kv_heads=2, ffn=352, vocab=256, seq=128,
              batch=16, seconds=5)
    c.update ({k: int (v) for k, v in (w.split ("=") for w in words)})
    torch.set_num_threads (threads)
    model = Decoder (c)
    optim = torch.optim.AdamW (model.parameters (), lr=1e-3, betas=(0.9, 0.95),
                               weight_decay=0.1, foreach=True)
    tokens = torch.randint (0, c["vocab"], (c["batch"], c["seq"]))
    times, end = [], time.perf_counter () + c["seconds"]
    while len (times) < 5 or time.perf_counter () < end:
        t = time.perf_counter ()
        optim.zero_grad (set_to_none=True)
        model (tokens, tokens).backward ()
        torch.nn.utils.clip_grad_norm_ (model.parameters (), 1.0)
        optim.step ()
        times.append (time.perf_counter () - t)
    step = statistics.median (times[2:])
    print (json.dumps ({"tok_per_s": round (c["batch"] * c["seq"] / step),
                        "step_s": round (step, 6), "steps": len (times) - 2,
                        "params": sum (p.numel () for p in model.parameters ())}))


main (int (sys.argv[1]), sys.argv[2:])
