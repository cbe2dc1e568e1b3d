#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# decoder_torch.py - libtrain's decoder against one written from the papers.
"""Repeats steps that decoder_dump wrote: logits, loss and every gradient, by
PyTorch and its automatic differentiation; nothing is shared but the weights.

  decoder_torch.py BUILD          compare; last line: N passed, N failed, N skipped
  decoder_torch.py --golden FILE  write a step for tests/unit/test_decoder_golden

Root mean square norm: Zhang and Sennrich 2019. Rotary embedding as complex
numbers: Su et al. 2021, section 3.4, pairs (j, j + D/2). Grouped queries:
Ainslie et al. 2023. SwiGLU: Shazeer 2020."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

KEYS = "layers dim heads kv_heads ffn vocab tie batch seq".split()
TYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
# Norm-wise relative error. fp32: two orders of summation of some 1e3 terms of
# 6e-8; fp64: the same of 1e-16.
BOUND = {"fp32": 1e-5, "fp64": 1e-12}
#          layers dim heads kv ffn vocab tie batch seq
CONFIGS = [
    (2, 64, 4, 4, 96, 256, 1, 2, 64),  # every head its own keys, tied
    (2, 64, 4, 2, 96, 256, 0, 2, 65),  # groups of 2, untied, one past a block
    (3, 48, 6, 1, 67, 101, 1, 3, 33),  # one group, odd widths
    (1, 8, 2, 1, 5, 7, 0, 1, 1),  # one position
    (4, 128, 4, 2, 352, 256, 1, 2, 128),  # the quickstart's
]
# Rows of several documents.
# Adapters of rank 4 and alpha 6 beside every product.
LORA = [(2, 64, 4, 2, 96, 256, 1, 2, 65), (3, 48, 6, 1, 67, 101, 0, 3, 33)]
PACKED = [(2, 64, 4, 2, 96, 256, 1, 2, 130), (3, 48, 6, 1, 67, 101, 0, 3, 33)]


def read (path):
    """Tensors and metadata of a .safetensors file."""
    with open (path, "rb") as f:
        size = int.from_bytes (f.read (8), "little")
        header = json.loads (f.read (size))
        data = f.read ()
    meta = header.pop ("__metadata__", {})
    out = {}
    for name, t in header.items ():
        lo, hi = t["data_offsets"]
        flat = np.frombuffer (data[lo:hi], TYPES[t["dtype"]])
        out[name] = torch.from_numpy (flat.reshape (t["shape"]).copy ())
    return out, {k: int (v) for k, v in meta.items ()}


def write (path, tensors, meta):
    """Wide types first, as the format wants its data aligned."""
    names = {np.dtype (v): k for k, v in TYPES.items ()}
    arrays = {k: v.detach ().numpy () for k, v in tensors.items ()}
    order = sorted (arrays, key=lambda k: (-arrays[k].itemsize, k))
    header, at = {"__metadata__": {k: str (v) for k, v in meta.items ()}}, 0
    for k in order:
        a = arrays[k]
        header[k] = {"dtype": names[a.dtype], "shape": list (a.shape),
                     "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps (header, separators=(",", ":")).encode ()
    text += b" " * (-len (text) % 8)
    with open (path, "wb") as f:
        f.write (len (text).to_bytes (8, "little") + text)
        for k in order:
            f.write (np.ascontiguousarray (arrays[k]).tobytes ())


def norm (x, weight):
    return weight * x / torch.sqrt ((x * x).mean (-1, keepdim=True) + 1e-5)


def rotate (x, starts, buffer=False):
    """x (B,heads,T,D): pair j of position t of a document turns by
    t * 10000^(-2j/D). buffer: cosines and sines are rounded to bf16."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange (half, dtype=torch.float64) / half)
    place = torch.arange (x.shape[2], dtype=torch.float64) - starts
    angle = place[:, None, :, None] * rate
    turn = torch.polar (torch.ones_like (angle), angle)
    if buffer:
        turn = torch.complex (*(x.bfloat16 ().double () for x in (turn.real, turn.imag)))
    turn = turn.to (torch.complex64 if x.dtype == torch.float32 else torch.complex128)
    z = torch.complex (x[..., :half], x[..., half:]) * turn
    return torch.cat ((z.real, z.imag), -1)


def attention (x, w, name, heads, groups, starts, buffer):
    batch, seq, width = x.shape
    size = width // heads

    def split (kind, n):
        y = x @ w[f"{name}.{kind}_proj.weight"].T
        return y.view (batch, seq, n, size).transpose (1, 2)

    q = rotate (split ("q", heads), starts, buffer)
    k = rotate (split ("k", groups), starts, buffer).repeat_interleave (heads // groups, 1)
    v = split ("v", groups).repeat_interleave (heads // groups, 1)
    later = torch.ones (seq, seq, dtype=torch.bool).triu (1)
    other = starts[:, None, :, None] != starts[:, None, None, :]
    logits = (q @ k.transpose (2, 3) / size**0.5).masked_fill (later | other, -torch.inf)
    y = (logits.softmax (-1) @ v).transpose (1, 2).reshape (batch, seq, width)
    return y @ w[f"{name}.o_proj.weight"].T


def forward (w, tokens, starts, c):
    x = w["model.embed_tokens.weight"][tokens.long ()]
    for i in range (c["layers"]):
        p = f"model.layers.{i}"
        x = x + attention (norm (x, w[f"{p}.input_layernorm.weight"]), w,
                           f"{p}.self_attn", c["heads"], c["kv_heads"], starts,
                           c.get ("buffer", False))
        h = norm (x, w[f"{p}.post_attention_layernorm.weight"])
        gate = h @ w[f"{p}.mlp.gate_proj.weight"].T
        up = h @ w[f"{p}.mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid (gate) * up) @ w[f"{p}.mlp.down_proj.weight"].T
    head = w["model.embed_tokens.weight" if c["tie"] else "lm_head.weight"]
    return norm (x, w["model.norm.weight"]) @ head.T


def merge (w):
    """Weights with what adapters add: alpha / rank B A (Hu et al. 2021)."""
    out = {k: v for k, v in w.items () if ".lora_" not in k}
    for k, b in w.items ():
        if ".lora_B." in k:
            name = k.replace (".lora_B.", ".")
            out[name] = out[name] + 6 / 4 * b @ w[k.replace (".lora_B.", ".lora_A.")]
    return out


def step (w, tokens, targets, starts, c):
    """logits, loss sum, gradients of the mean loss."""
    w = {k: v.clone ().requires_grad_ () for k, v in w.items ()}
    logits = forward (merge (w), tokens, starts, c)
    counted = targets >= 0
    picked = logits[counted].gather (1, targets[counted].long ()[:, None])[:, 0]
    loss = (logits[counted].logsumexp (1) - picked).double ().sum ()
    (loss / counted.sum ()).backward ()
    return logits.detach (), loss.detach (), {k: v.grad for k, v in w.items ()}


def error (ours, theirs):
    ours, theirs = ours.double (), theirs.double ()
    scale = theirs.norm ().item ()
    return (ours - theirs).norm ().item () / (scale if scale > 0 else 1.0)


def compare (build, folder, config, dtype, packed):
    """(name, error) of every tensor of one configuration."""
    path = os.path.join (folder, "step.safetensors")
    dump = os.path.join (build, "tests/interop/decoder_dump")
    subprocess.run ([dump, path, *map (str, config), dtype, *packed], check=True)
    t, c = read (path)
    c["buffer"] = "buffer" in packed
    w = {k[2:]: v for k, v in t.items () if k.startswith ("w.")}
    logits, loss, grads = step (w, t["tokens"], t["targets"], t["starts"], c)
    out = [("logits", error (t["logits"], logits)),
           ("loss", error (t["loss_sum"], loss))]
    # At one position the softmax is 1 and its logits have no gradient: both
    # sides hold rounding of zero there.
    still = ("q_proj", "k_proj") if c["seq"] == 1 else ()
    adapters = any (".lora_" in k for k in grads)
    for k, g in grads.items ():
        if adapters and ".lora_" not in k:
            continue  # they are frozen, and have none
        if any (s in k for s in still):
            out.append ((k, max (t["g." + k].norm ().item (), g.norm ().item ())))
        else:
            out.append ((k, error (t["g." + k], g)))
    return out


def main (build):
    passed = failed = 0
    print (f"{'configuration ' + ' '.join (KEYS):<68} {'type':<5} tensors "
           f"{'logits':>8} {'loss':>8} {'gradients, worst':>16}")
    with tempfile.TemporaryDirectory () as folder:
        cases = [(c, ()) for c in CONFIGS] + [(c, ("packed",)) for c in PACKED]
        cases += [(c, ("lora",)) for c in LORA]
        cases += [(CONFIGS[1], ("buffer",)), (PACKED[1], ("packed", "buffer"))]
        for config, packed in cases:
            for dtype, bound in BOUND.items ():
                rows = compare (build, folder, config, dtype, packed)
                bad = [r for r in rows if not r[1] < bound]
                passed, failed = passed + len (rows) - len (bad), failed + len (bad)
                name, worst = max (rows[2:], key=lambda r: r[1])
                print (f"{' '.join (map (str, config + packed)):<68} {dtype:<5} {len (rows):7} "
                       f"{rows[0][1]:8.1e} {rows[1][1]:8.1e} {worst:8.1e} {name}")
                for name, e in bad:
                    print (f"  FAILED {name}: error {e:.2e}, bound {bound:.0e}")
    print (f"{passed} passed, {failed} failed, 0 skipped")
    return failed == 0 and passed > 0


def golden (path):
    """One untied step of its own weights, all in fp64."""
    c = dict (zip (KEYS, (2, 8, 4, 2, 6, 13, 0, 2, 7)))
    size = c["dim"] // c["heads"]
    kv = size * c["kv_heads"]
    torch.manual_seed (5)

    def draw (*shape):
        return torch.randn (*shape, dtype=torch.float64) * 0.3

    w = {"model.embed_tokens.weight": draw (c["vocab"], c["dim"]),
         "model.norm.weight": 1 + draw (c["dim"]),
         "lm_head.weight": draw (c["vocab"], c["dim"])}
    for i in range (c["layers"]):
        p = f"model.layers.{i}."
        for name, rows, cols in (
                ("self_attn.q_proj", c["dim"], c["dim"]),
                ("self_attn.k_proj", kv, c["dim"]),
                ("self_attn.v_proj", kv, c["dim"]),
                ("self_attn.o_proj", c["dim"], c["dim"]),
                ("mlp.gate_proj", c["ffn"], c["dim"]),
                ("mlp.up_proj", c["ffn"], c["dim"]),
                ("mlp.down_proj", c["dim"], c["ffn"])):
            w[f"{p}{name}.weight"] = draw (rows, cols)
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"{p}{name}.weight"] = 1 + draw (c["dim"])
    shape = (c["batch"], c["seq"])
    tokens = torch.randint (0, c["vocab"], shape, dtype=torch.int32)
    targets = torch.randint (-1, c["vocab"], shape, dtype=torch.int32)
    logits, loss, grads = step (w, tokens, targets, torch.zeros_like (tokens), c)
    t = {"tokens": tokens, "targets": targets, "logits": logits, "loss_sum": loss}
    t.update ({"w." + k: v for k, v in w.items ()})
    t.update ({"g." + k: v for k, v in grads.items ()})
    write (path, t, c)


if __name__ == "__main__":
    torch.set_num_threads (1)
    if len (sys.argv) == 3 and sys.argv[1] == "--golden":
        golden (sys.argv[2])
    elif len (sys.argv) == 2:
        sys.exit (0 if main (sys.argv[1]) else 1)
    else:
        sys.exit ("usage: decoder_torch.py BUILD | --golden FILE")
