#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# cuts_golden.py - what transformers' processors of logits leave of rows of them,
# for tests/unit/test_cuts.c: python3 cuts_golden.py > tests/golden/cuts.json
#
# In the order of its generate: repetition, temperature, top k, top p, min p.
# Needs transformers (4.39 or later) and torch. Written with transformers 4.41.
import json

import torch
from transformers.generation import logits_process as lp

V = 24
CASES = [
    {}, {"temperature": 0.6}, {"top_k": 1}, {"top_k": 5}, {"top_k": 23}, {"top_p": 0.5}, {"top_p": 0.9},
    {"top_p": 1e-6}, {"min_p": 0.05}, {"min_p": 0.4}, {"repetition": 1.3}, {"repetition": 0.7},
    {"repetition": 1.8, "top_k": 6}, {"temperature": 1.7, "top_k": 9, "top_p": 0.8},
    {"temperature": 0.8, "top_p": 0.95, "min_p": 0.1}, {"top_k": 12, "top_p": 0.7, "min_p": 0.2},
    {"temperature": 1.2, "repetition": 1.4, "top_k": 15, "top_p": 0.85, "min_p": 0.02},
]


def processors(c):
    if "repetition" in c:
        yield lp.RepetitionPenaltyLogitsProcessor(c["repetition"])
    if "temperature" in c:
        yield lp.TemperatureLogitsWarper(c["temperature"])
    if "top_k" in c:
        yield lp.TopKLogitsWarper(c["top_k"])
    if "top_p" in c:
        yield lp.TopPLogitsWarper(c["top_p"])
    if "min_p" in c:
        yield lp.MinPLogitsWarper(c["min_p"])


def main():
    torch.manual_seed(7)
    rows = []
    for c in CASES:
        logits = 2 * torch.randn(1, V, dtype=torch.float64)
        before = torch.randint(0, V, (1, 6))
        scores = logits.clone()
        for p in processors(c):
            scores = p(before, scores)
        rows.append(dict(c, logits=logits[0].tolist(), before=before[0].tolist(),
                         chances=scores.softmax(-1)[0].tolist()))
    print(json.dumps(rows, indent=0))


main()
