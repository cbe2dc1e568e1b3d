#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# halves_torch.py - the rounding of a step in bf16 and fp16 beside PyTorch's.
"""The same step from the same weights three times: by libtrain in a half
(decoder_dump), by PyTorch in that half as transformers computes it (norms, softmax
and loss in fp32, all else rounded to the half), and by PyTorch in double. Against
double, libtrain's error of the logits and of every gradient, norm-wise and in the
mean of five draws of the weights, may be 1.1 times PyTorch's and no more.

  halves_torch.py BUILD [cuda]   last line: N passed, N failed, N skipped"""
import json
import os
import subprocess
import sys
import tempfile

import torch

import decoder_torch
from decoder_torch import error

HALVES = {"cpu": ["bf16"], "cuda": ["bf16", "fp16"]}  # older PyTorch: no fp16 there
SEEDS = (1, 2, 3, 4, 5)
MOST = 1.1
#          layers dim heads kv ffn vocab tie batch seq
CONFIGS = [(2, 64, 4, 4, 96, 256, 1, 2, 64), (3, 128, 4, 2, 352, 256, 0, 2, 128)]
LARGE = [(4, 512, 8, 2, 1408, 1024, 1, 2, 512)]  # of a GPU


def read (path):
    """Tensors and metadata, halves too, which numpy has not."""
    kinds = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32,
             "F64": torch.float64, "I32": torch.int32, "I64": torch.int64}
    with open (path, "rb") as f:
        header = json.loads (f.read (int.from_bytes (f.read (8), "little")))
        data = bytearray (f.read ())
    meta = header.pop ("__metadata__", {})
    out = {}
    for name, t in header.items ():
        lo, hi = t["data_offsets"]
        flat = torch.frombuffer (data[lo:hi], dtype=kinds[t["dtype"]])
        out[name] = flat.reshape (t["shape"]).clone ()
    return out, {k: int (v) for k, v in meta.items ()}


def norm (x, weight):
    y = x.float ()
    y = y * torch.rsqrt ((y * y).mean (-1, keepdim=True) + 1e-5)
    return weight * y.to (x.dtype)


def rotate (x):
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange (half, device=x.device).float () / half)
    angle = torch.arange (x.shape[2], device=x.device).float ()[:, None] * rate
    c = torch.cat ((angle.cos (),) * 2, -1).to (x.dtype)
    s = torch.cat ((angle.sin (),) * 2, -1).to (x.dtype)
    return x * c + torch.cat ((-x[..., half:], x[..., :half]), -1) * s


def attention (x, w, name, heads, groups):
    batch, seq, width = x.shape
    size = width // heads

    def split (kind, n):
        return (x @ w[f"{name}.{kind}_proj.weight"].T).view (batch, seq, n, size).transpose (1, 2)

    q, k = rotate (split ("q", heads)), rotate (split ("k", groups))
    k = k.repeat_interleave (heads // groups, 1)
    v = split ("v", groups).repeat_interleave (heads // groups, 1)
    if x.is_cuda:
        y = torch.nn.functional.scaled_dot_product_attention (q, k, v, is_causal=True)
    else:
        later = torch.ones (seq, seq, dtype=torch.bool).triu (1)
        logits = (q @ k.transpose (2, 3) / size**0.5).masked_fill (later, -torch.inf)
        y = logits.softmax (-1, dtype=torch.float32).to (x.dtype) @ v
    return y.transpose (1, 2).reshape (batch, seq, width) @ w[f"{name}.o_proj.weight"].T


def forward (w, tokens, c):
    x = w["model.embed_tokens.weight"][tokens.long ()]
    for i in range (c["layers"]):
        p = f"model.layers.{i}"
        x = x + attention (norm (x, w[f"{p}.input_layernorm.weight"]), w,
                           f"{p}.self_attn", c["heads"], c["kv_heads"])
        h = norm (x, w[f"{p}.post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu (h @ w[f"{p}.mlp.gate_proj.weight"].T)
        x = x + (gate * (h @ w[f"{p}.mlp.up_proj.weight"].T)) @ w[f"{p}.mlp.down_proj.weight"].T
    head = w["model.embed_tokens.weight" if c["tie"] else "lm_head.weight"]
    return norm (x, w["model.norm.weight"]) @ head.T


def half_step (w, tokens, targets, c, factor):
    """As decoder_torch.step; losses are multiplied for fp16's sake, and gradients
    divided again in double."""
    w = {k: v.clone ().requires_grad_ () for k, v in w.items ()}
    logits = forward (w, tokens, c)
    loss = torch.nn.functional.cross_entropy (
        logits.float ().flatten (0, 1), targets.flatten ().long (), ignore_index=-1,
        reduction="sum")
    (loss * (factor / (targets >= 0).sum ())).backward ()
    return (logits.detach (), loss.detach ().double (),
            {k: v.grad.double () / factor for k, v in w.items ()})


def errors (build, folder, config, half, seed, device):
    """{name: (ours, PyTorch's)} of one draw."""
    path = os.path.join (folder, "step.safetensors")
    dump = os.path.join (build, "tests/interop/decoder_dump")
    words = [half, f"seed={seed}"] + (["cuda"] if device == "cuda" else [])
    subprocess.run ([dump, path, *map (str, config), *words], check=True)
    t, c = read (path)
    w = {k[2:]: v for k, v in t.items () if k.startswith ("w.")}
    wide = {k: v.double () for k, v in w.items ()}
    logits, loss, grads = decoder_torch.step (wide, t["tokens"], t["targets"], t["starts"], c)
    there = {k: v.to (device) for k, v in w.items ()}
    theirs = half_step (there, t["tokens"].to (device), t["targets"].to (device), c,
                        1024.0 if half == "fp16" else 1.0)
    out = {"logits": (error (t["logits"], logits), error (theirs[0].cpu (), logits)),
           "loss": (error (t["loss_sum"], loss), error (theirs[1].cpu (), loss))}
    for k, g in grads.items ():
        out[k] = (error (t["g." + k], g), error (theirs[2][k].cpu (), g))
    return out


def main (build, device):
    passed = failed = 0
    with tempfile.TemporaryDirectory () as folder:
        for config in CONFIGS + (LARGE if device == "cuda" else []):
            for half in HALVES[device]:
                runs = [errors (build, folder, config, half, s, device) for s in SEEDS]
                mean = {k: [sum (r[k][i] for r in runs) / len (runs) for i in (0, 1)]
                        for k in runs[0]}
                # A loss is one number, near double's by chance: the mean of
                # five errors is no bound of itself.
                bad = {k: m for k, m in mean.items ()
                       if k != "loss" and not m[0] <= MOST * m[1]}
                passed, failed = passed + len (mean) - 1 - len (bad), failed + len (bad)
                name = max (mean, key=lambda k: (k != "loss") * mean[k][0] / mean[k][1])
                share = [mean[k][0] / mean[k][1] for k in mean if k != "loss"]
                print (f"{' '.join (map (str, config)):<32} {half} on {device}: logits "
                       f"{mean['logits'][0]:.2e} beside {mean['logits'][1]:.2e}, loss "
                       f"{mean['loss'][0]:.1e} beside {mean['loss'][1]:.1e}, of PyTorch's "
                       f"{sum (share) / len (share):.2f}, at most {max (share):.2f} ({name})")
                for k, m in bad.items ():
                    print (f"  FAILED {k}: {m[0]:.3e} beside {m[1]:.3e}")
    print (f"{passed} passed, {failed} failed, 0 skipped")
    return failed == 0 and passed > 0


if __name__ == "__main__":
    torch.set_num_threads (1)
    if len (sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["cuda"]):
        sys.exit ("usage: halves_torch.py BUILD [cuda]")
    sys.exit (0 if main (sys.argv[1], "cuda" if sys.argv[2:] else "cpu") else 1)
