#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# sft_torch.py - the loss of task = sft against PyTorch.
"""rv-train trains three steps on rows of prompts and answers, saves, and makes a
fourth. Here the saved weights are read and the fourth batch is made again by
hand: the loss, the mean over the tokens of answers and their ends in the whole
batch, and the norm of its gradient by automatic differentiation must be those
of rv-train, for one rank and for passes of any size.

  sft_torch.py BUILD   last line: N passed, N failed, N skipped"""
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

import decoder_torch

END, SEQ, BATCH = 256, 24, 7
MODEL = dict (layers=2, dim=32, heads=4, kv_heads=2, ffn=64, vocab=257, tie=1)
INI = """[run]
task = sft
device = cpu
steps = 4
[model]
layers = 2
dim = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 257
[data]
files = {files}
seq = {seq}
batch = {batch}
shuffle = off
[optim]
lr = 0.01
clip = 0
[precision]
param = fp64
[checkpoint]
dir = {folder}/ck
every = 3
keep = 4
"""


def make_rows ():
    """Answers of 1 to 9 bytes: the batch's mean is not the mean of rows' means."""
    return [{"prompt": f"{a}*{a * 7 % 11}=", "answer": str (a * (a * 7 % 11)) * (1 + a % 3)}
            for a in range (1, 41)]


def batch (rows, step):
    """Tokens and targets of step [step], from 0."""
    tokens = torch.zeros (BATCH, SEQ, dtype=torch.int64)
    targets = torch.full ((BATCH, SEQ), -1, dtype=torch.int64)
    for i in range (BATCH):
        row = rows[(step * BATCH + i) % len (rows)]
        prompt, answer = row["prompt"].encode (), row["answer"].encode ()
        ids = torch.tensor (list (prompt + answer) + [END])
        tokens[i, :len (ids) - 1] = ids[:-1]
        tokens[i, len (ids) - 1] = END  # or anything: seen by nothing that is learnt
        targets[i, len (prompt) - 1:len (ids) - 1] = ids[len (prompt):]
    return tokens, targets


def theirs (weights, rows):
    tokens, targets = batch (rows, 3)
    w = {k: v.double ().requires_grad_ () for k, v in weights.items ()}
    starts = torch.zeros_like (tokens)
    logits = decoder_torch.forward (w, tokens, starts, MODEL)
    loss = torch.nn.functional.cross_entropy (
        logits.reshape (-1, logits.shape[-1]), targets.reshape (-1), ignore_index=-1)
    loss.backward ()
    return loss.item (), math.sqrt (sum ((p.grad ** 2).sum ().item () for p in w.values () if p.grad is not None))


def ours (build, folder, name, *more):
    path = os.path.join (folder, name)
    subprocess.run ([os.path.join (build, "rv-train"), os.path.join (folder, "s.ini"), "log.file=" + path,
                     *more], check=True, stdout=subprocess.DEVNULL)
    with open (path) as f:
        last = json.loads (f.readlines ()[-1])
    return last["loss"], last["grad_norm"], last["step"]


def main (build):
    passed = failed = 0
    rows = make_rows ()
    with tempfile.TemporaryDirectory () as folder:
        files = os.path.join (folder, "rows.jsonl")
        with open (files, "w") as f:
            f.writelines (json.dumps (r) + "\n" for r in rows)
        with open (os.path.join (folder, "s.ini"), "w") as f:
            f.write (INI.format (files=files, folder=folder, seq=SEQ, batch=BATCH))
        ours (build, folder, "m.jsonl", "run.steps=3", "optim.schedule=constant")
        subprocess.run ([os.path.join (build, "rv-train"), "export", "--dtype", "fp64",
                         os.path.join (folder, "ck"), os.path.join (folder, "hf")],
                        check=True, stdout=subprocess.DEVNULL)
        want = theirs (load_file (os.path.join (folder, "hf", "model.safetensors")), rows)
        for micro in (BATCH, 3, 1):
            got = ours (build, folder, f"m{micro}.jsonl", "optim.schedule=constant",
                        f"data.micro_batch={micro}", "checkpoint.every=0",
                        "checkpoint.resume=" + os.path.join (folder, "ck", "step-00000003"),
                        f"checkpoint.dir={folder}/other{micro}")
            error = max (abs (a / b - 1) for a, b in zip (got, want))
            good = error < 1e-9 and got[2] == 4
            print (f"{'ok' if good else 'not ok'} - passes of {micro}: loss {got[0]:.12g} {want[0]:.12g}, "
                   f"norm {got[1]:.12g} {want[1]:.12g}, error {error:.1e}")
            passed += good
            failed += not good
    print (f"{passed} passed, {failed} failed, 0 skipped")
    return failed == 0


if __name__ == "__main__":
    sys.exit (0 if main (sys.argv[1]) else 1)
