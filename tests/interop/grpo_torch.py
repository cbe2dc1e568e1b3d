#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# grpo_torch.py - every policy loss and advantage by PyTorch's own derivatives.
"""grpo_torch.py BUILD; last line: N passed, N failed, N skipped

The losses of train/grpo.h written down once more from their papers, a line each, in
double; what is not differentiated is detached, and autograd makes the gradient over
log-probabilities. Beside trl_check.py these are the variants that TRL has not: dual
clip, verl's cispo, k1, k2, k3 with the gradient of the KL, differences of over 20,
leave-one-out. tests/interop/grpo_tool does the same by libtrain."""
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy
import torch

from trl_cases import B, CAP, CORRECT, EOS, HIGH, LONGEST, LOW, T, TAU, V, draw_set, write

KIND = ["grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "cispo_clip", "sapo"]
FAR = 20.0


def ratio(d):
    """exp, which stands still beyond exp(20)."""
    return d.clamp(-FAR, FAR).exp()


def row_mean(x, m):
    return (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True).clamp(min=1)


def policy(c, r, A, lp):
    """A token's loss, not yet weighed."""
    sat = r.detach()
    if c["loss_type"] == "cispo":
        return -sat.clamp(max=CAP) * A * lp
    if c["loss_type"] == "cispo_clip":
        return -sat.clamp(1 - LOW, 1 + HIGH) * A * lp
    if c["loss_type"] == "sapo":
        tau = torch.where(A > 0, TAU[0], TAU[1])
        return -A * 4 / tau * torch.sigmoid(tau * (r - 1))
    first = r.clamp(max=c["delta"]) if c["delta"] else r
    loss = -torch.minimum(first * A, r.clamp(1 - LOW, 1 + HIGH) * A)
    if c["dual"]:
        loss = torch.where(A < 0, torch.minimum(loss, -c["dual"] * A), loss)
    return loss


def penalty(c, lp, ref):
    d = ref - lp
    far = d.clamp(max=FAR)
    value = {0: far.exp() - far - 1, 1: d * d / 2, 2: -d}[c["kl"]]
    if c["kl_gradient"]:
        square = d * d / 2
        value = value.detach() + square - square.detach()
    return value


def weights(c, old, sampled, m):
    """What the sampler's arithmetic changed."""
    if not c["correct"]:
        return torch.ones_like(m)
    d = (old - sampled).nan_to_num() * m
    if c["correct"] >= CORRECT["sequence_truncate"]:
        d = d.sum(1, keepdim=True).expand_as(m)
    w, least, most = ratio(d), c["least"] or 0, c["most"]
    if c["correct"] in (CORRECT["token_truncate"], CORRECT["sequence_truncate"]):
        return w.clamp(least, most)
    return torch.where((w < least) | (w > most), 0.0, w)


def mean(c, x, m):
    if c["loss_type"] in ("grpo", "gspo", "sapo"):
        return row_mean(x, m).mean()
    by = B * LONGEST if c["loss_type"] == "dr_grpo" else m.sum().clamp(min=1)
    return (x * m).sum() / by


def run_loss(c, s):
    m = s["mask"].double()
    lp = torch.log_softmax(s["logits"].double() / c["temperature"], -1)
    lp = lp.gather(-1, s["ids"].long()[..., None])[..., 0].detach().requires_grad_()
    A = s["adv"].double()[:, None].expand_as(m)
    old = s["old"].double() if c["old"] else lp.detach()
    sampled = s["sampled"].double() if c["sampled"] else old
    d = (lp - old) * m
    if c["sequence"] or c["loss_type"] == "gspo":
        d = row_mean(d, m).expand_as(m)
    r = ratio(d)
    loss = policy(c, r, A, lp) * weights(c, old, sampled, m)
    if c["off_policy"] is not None:
        drifted = row_mean((sampled - lp.detach()).nan_to_num(), m)
        loss = torch.where((A < 0) & (drifted > c["off_policy"]), 0.0, loss)
    kl = penalty(c, lp, s["ref"].double())
    if c["beta"]:
        loss = loss + c["beta"] * kl
    loss = mean(c, loss, m)
    loss.backward()
    n = m.sum().clamp(min=1)
    high = r > (CAP if c["loss_type"] == "cispo" else 1 + HIGH)
    shares = [((r < 1 - LOW) & (A < 0)) * m, (high & (A > 0)) * m]
    if c["loss_type"] in ("cispo", "sapo"):
        shares[0] = 0 * m
    if c["loss_type"] == "sapo":
        shares[1] = 0 * m
    said = [loss.item(), (kl * m).sum().item() / n.item() if c["beta"] else math.nan]
    said += [x.sum().item() / n.item() for x in shares]
    return torch.cat([torch.tensor(said, dtype=torch.float64), lp.grad.flatten()])


def case(loss_type, **k):
    c = {"loss_type": loss_type, "set": 1, "sequence": False, "beta": 0.0, "kl": 0, "kl_gradient": False,
         "delta": 0.0, "dual": 0.0, "off_policy": None, "old": True, "sampled": False, "correct": 0,
         "least": None, "most": 1.5, "temperature": 1.0} | k
    c["sampled"] = c["sampled"] or c["correct"] > 0
    c["kind"] = KIND.index(loss_type)
    c["name"] = " ".join([loss_type] + [f"{n}={v}" for n, v in sorted(k.items())])
    return c


def loss_cases():
    for kind, sequence in itertools.product(KIND, (False, True)):
        for old, chosen in itertools.product((False, True), (0, 1, 2, 3)):
            yield case(kind, sequence=sequence, old=old, set=chosen)
        for kl, gradient, chosen in itertools.product((0, 1, 2), (False, True), (1, 3)):
            yield case(kind, sequence=sequence, beta=0.3, kl=kl, kl_gradient=gradient, set=chosen)
        for mode, least in itertools.product(range(1, 5), (None, 0.6)):
            yield case(kind, sequence=sequence, correct=mode, least=least, beta=0.1)
        for sampled in (False, True):
            yield case(kind, sequence=sequence, off_policy=0.05, sampled=sampled)
        if kind in KIND[:5]:
            for dual, delta, chosen in itertools.product((1.1, 1.6), (0.0, 1.4), (0, 1, 3)):
                yield case(kind, sequence=sequence, dual=dual, delta=delta, set=chosen)


def far_apart(s):
    """Some tokens far less, or more, likely than before and than by the reference."""
    for name, by in (("old", 30), ("ref", 40)):
        s[name][0, 1] += by
        s[name][1, 0] -= by
        s[name][2, 0] += by
    return s


def run_rewards(c, rewards):
    """Leave-one-out, over the deviation of the group, the batch, or nothing."""
    w = torch.tensor(c["weights"], dtype=torch.float64)
    r = rewards.double()
    some = ~r.isnan().all(1)
    r = torch.where(some, (r.nan_to_num() * w).sum(1), math.nan).view(-1, c["group"])
    adv, flat = torch.zeros_like(r), torch.zeros_like(r)
    spread = r[~r.isnan()].std().item()
    for g in range(len(r)):
        there = [i for i in range(c["group"]) if not math.isnan(r[g, i])]
        own = r[g, there].std().item() if len(there) > 1 else 0
        over = {"group": own + 1e-4, "batch": spread + 1e-4, "none": 1}[c["scale"]]
        flat[g] = (spread if c["scale"] == "batch" else own) <= 1e-8 and len(there) != 1
        for i in there if own > 0 else []:
            others = [r[g, k].item() for k in there if k != i]
            adv[g, i] = (r[g, i] - sum(others) / len(others)) / over
    return adv.flatten(), flat.flatten().to(torch.uint8)


def reward_cases():
    for scale, group, last in itertools.product(("group", "batch", "none"), (2, 4, 8), (1.0, -2.0)):
        yield {"name": f"others.{scale}.{group}.{last}", "base": "others", "combine": "sum_then_normalize",
               "scale": scale, "weights": [0.25, last], "group": group}


def make(seed):
    g = torch.Generator().manual_seed(seed)
    sets = [draw_set(g, 0.15, 0), draw_set(g, 0.5, 1), draw_set(g, 0.5, 2), far_apart(draw_set(g, 0.3, 0))]
    out = {f"set{i}.{k}": v for i, s in enumerate(sets) for k, v in s.items()}
    cases, rewards = list(loss_cases()), list(reward_cases())
    for c in cases:
        out[c["name"]] = run_loss(c, sets[c["set"]])
    out["rewards"] = torch.randint(0, 4, (16, 2), generator=g).float() / 4
    out["rewards"][1, 0] = out["rewards"][5, 1] = out["rewards"][6] = math.nan
    out["rewards"][8:12] = 0.25
    for c in rewards:
        out[c["name"] + ".adv"], out[c["name"] + ".zero"] = run_rewards(c, out["rewards"])
    ids = torch.randint(V, (12, T), generator=g).int()
    lengths = torch.randint(0, T + 1, (12,), generator=g).int()
    kept, dropped = torch.zeros(12, T, dtype=torch.uint8), torch.zeros(12, T, dtype=torch.uint8)
    for row, said in enumerate(ids.tolist()):
        said = said[:lengths[row]]
        n = said.index(EOS) + 1 if EOS in said else len(said)
        kept[row, :n], dropped[row, :n] = 1, EOS in said
    out.update({"mask.ids": ids, "mask.lengths": lengths, "mask.kept": kept, "mask.dropped": dropped})
    meta = {"cases": json.dumps(cases), "rewards": json.dumps(rewards), "low": str(LOW), "high": str(HIGH),
            "cap": str(CAP), "longest": str(LONGEST), "end": str(EOS)}
    return {k: numpy.ascontiguousarray(v.numpy()) for k, v in out.items()}, meta


def main():
    tool = os.path.join(sys.argv[1], "tests", "interop", "grpo_tool")
    lines, rc = [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases.safetensors")
        for seed in (1, 2, 3):
            write(path, *make(seed))
            out = subprocess.run([tool, path], capture_output=True, text=True)
            lines += out.stdout.splitlines()
            rc = rc or out.returncode
            sys.stdout.write(out.stderr)
    bad = [x for x in lines if x.startswith("not ok")]
    print("\n".join(bad))
    failed = len(bad) or rc != 0 or not lines
    print(f"{len(lines) - len(bad)} passed, {int(failed)} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
