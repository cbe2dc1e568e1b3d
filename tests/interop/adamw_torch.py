#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# adamw_torch.py - whole training: rv-train's curve against PyTorch's.
"""adamw_torch.py BUILD; last line: N passed, N failed, N skipped

rv-train takes one step and writes a checkpoint; from there it goes on for the
other steps, and so does PyTorch: weights and moments of the checkpoint into
torch.optim.AdamW, the decoder of decoder_torch.py, torch's own cross entropy
and clip_grad_norm_, the same bytes. Losses, gradient norms, rates, weights and
moments are compared; the files are read by the package safetensors."""
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

from decoder_torch import error, forward

TEXT = os.path.join (os.path.dirname (os.path.abspath (__file__)), "../../LICENSE")
STEPS, WARMUP, LR, MIN_LR, DECAY, CLIP = 24, 6, 1e-2, 1e-3, 0.3, 0.7
SEQ, BATCH = 32, 6
MODEL = {"layers": 2, "dim": 32, "heads": 4, "kv_heads": 2, "ffn": 56}
# Largest difference of a loss, and norm-wise relative error of the others.
# fp32: rounding grows through AdamW's division by the root of small moments.
BOUND = {"fp32": (1e-5, 3e-4), "fp64": (1e-13, 1e-12)}


def settings (folder, dtype, tie):
    keys = {"data.files": TEXT, "data.seq": SEQ, "data.batch": BATCH,
            "data.micro_batch": 3, "data.shuffle": "off", "run.steps": STEPS,
            "optim.lr": LR, "optim.min_lr": MIN_LR, "optim.warmup": WARMUP,
            "optim.weight_decay": DECAY, "optim.clip": CLIP,
            "precision.param": dtype, "model.tie": "on" if tie else "off",
            "checkpoint.dir": folder + "/ck", "log.file": folder + "/m",
            "checkpoint.every": 1, "checkpoint.keep": STEPS}
    keys.update ({"model." + k: v for k, v in MODEL.items ()})
    return [f"{k}={v}" for k, v in keys.items ()]


def ours (build, folder, dtype, tie):
    """Metrics, and the checkpoints of the first and the last step."""
    path = os.path.join (folder, "empty.ini")
    with open (path, "w", encoding="ascii"):
        pass
    subprocess.run ([os.path.join (build, "rv-train"), path,
                     *settings (folder, dtype, tie)],
                    check=True, stdout=subprocess.DEVNULL)
    with open (folder + "/m", encoding="ascii") as f:
        metrics = [json.loads (line) for line in f]

    def checkpoint (step):
        at = f"{folder}/ck/step-{step:08}/"
        return load_file (at + "model.safetensors"), load_file (at + "optim.safetensors")

    return metrics, checkpoint (1), checkpoint (STEPS)


def rate (step):
    """Of step 0, 1, ...: linear warmup, then half a cosine."""
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    turn = math.pi * (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + (LR - MIN_LR) * (1 + math.cos (turn)) / 2


def batch (step):
    """Rows of the step: windows of the text one behind the other, round."""
    with open (TEXT, "rb") as f:
        text = torch.tensor (list (f.read ()), dtype=torch.int64)
    n = (len (text) - 1) // SEQ
    starts = [(step * BATCH + i) % n * SEQ for i in range (BATCH)]
    rows = torch.stack ([text[s:s + SEQ + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


def optimizer (w, moments):
    groups = [{"params": [t for t in w.values () if t.dim () == 2], "weight_decay": DECAY},
              {"params": [t for t in w.values () if t.dim () == 1], "weight_decay": 0.0}]
    opt = torch.optim.AdamW (groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    for name, t in w.items ():
        opt.state[t] = {"step": torch.tensor (1.0), "exp_avg": moments["m." + name],
                        "exp_avg_sq": moments["v." + name]}
    return opt


def theirs (first, tie):
    """(loss, norm) of the steps behind the first; weights and moments then."""
    w = {k: v.clone ().requires_grad_ () for k, v in first[0].items ()}
    opt = optimizer (w, first[1])
    config = {**MODEL, "vocab": 256, "tie": tie}
    curve = []
    for step in range (1, STEPS):
        tokens, targets = batch (step)
        for group in opt.param_groups:
            group["lr"] = rate (step)
        opt.zero_grad ()
        logits = forward (w, tokens, torch.zeros_like (tokens), config)
        loss = torch.nn.functional.cross_entropy (logits.reshape (-1, 256),
                                                  targets.reshape (-1))
        loss.backward ()
        norm = torch.nn.utils.clip_grad_norm_ (w.values (), CLIP)
        opt.step ()
        curve.append ((loss.item (), norm.item ()))
    moments = {}
    for name, t in w.items ():
        moments["m." + name] = opt.state[t]["exp_avg"]
        moments["v." + name] = opt.state[t]["exp_avg_sq"]
    return curve, {k: v.detach () for k, v in w.items ()}, moments


def compare (build, folder, dtype, tie):
    """(name, difference, bound) of one training."""
    metrics, first, last = ours (build, folder, dtype, tie)
    curve, w, moments = theirs (first, tie)
    most_loss, most = BOUND[dtype]
    out = [("steps", abs (len (metrics) - STEPS), 0.5),
           ("names", len (set (w) ^ set (last[0])) + len (set (moments) ^ set (last[1])), 0.5)]
    for m, (loss, norm) in zip (metrics[1:], curve):
        out.append ((f"loss of step {m['step']}", abs (m["loss"] - loss), most_loss))
        out.append ((f"norm of step {m['step']}", abs (m["grad_norm"] / norm - 1), most))
    for m in metrics:
        out.append ((f"rate of step {m['step']}",
                     abs (m["lr"] / rate (m["step"] - 1) - 1), 1e-14))
    out += [(k, error (last[0][k], t), most) for k, t in w.items ()]
    out += [(k, error (last[1][k], t), most) for k, t in moments.items ()]
    # A bound proves nothing where nothing moves or is clipped.
    out.append (("loss falls", float (curve[-1][0] > curve[0][0] - 1), 0.5))
    out.append (("some step is clipped", float (max (c[1] for c in curve) < CLIP), 0.5))
    return out


def main (build):
    passed = failed = 0
    for dtype in BOUND:
        for tie in (True, False):
            with tempfile.TemporaryDirectory () as folder:
                rows = compare (build, folder, dtype, tie)
            bad = [r for r in rows if not r[1] < r[2]]
            passed, failed = passed + len (rows) - len (bad), failed + len (bad)

            def worst (word):
                return max (r[1] for r in rows if r[0].startswith (word))

            print (f"{dtype} {'tied' if tie else 'untied':<6} {STEPS} steps: "
                   f"loss {worst ('loss of'):.1e}, norm {worst ('norm of'):.1e}, "
                   f"weights {max (worst ('model.'), 0 if tie else worst ('lm_head')):.1e}, "
                   f"m {worst ('m.'):.1e}, v {worst ('v.'):.1e}")
            for name, e, bound in bad:
                print (f"  FAILED {name}: {e:.2e}, bound {bound:.0e}")
    print (f"{passed} passed, {failed} failed, 0 skipped")
    return failed == 0 and passed > 0


if __name__ == "__main__":
    torch.set_num_threads (1)
    if len (sys.argv) != 2:
        sys.exit ("usage: adamw_torch.py BUILD")
    sys.exit (0 if main (sys.argv[1]) else 1)
