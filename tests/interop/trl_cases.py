# SPDX-License-Identifier: Apache-2.0
"""trl_cases.py - what TRL's own code makes of random logits, rewards and masks.

trl/trainer/grpo_trainer.py is read out of TRL's wheel, never imported (TRL wants
transformers, accelerate and more): _compute_loss and get_off_policy_mask are cut
out of it whole, the importance correction, the normalisation of rewards and the
mask of truncated completions are the statements of
_generate_and_score_completions that make them. They run on torch alone, in
double, on numbers that fp32 holds."""
import ast
import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from types import SimpleNamespace

import numpy
import torch
import torch.nn.functional as F

VERSION = "1.16.0"
B, T, V, EOS, PAD = 6, 7, 11, 3, 4
LONGEST = 9
LOW, HIGH, CAP, TAU = 0.2, 0.28, 1.4, (1.0, 1.05)
CORRECT = {"none": 0, "token_truncate": 1, "token_mask": 2, "sequence_truncate": 3, "sequence_mask": 4}
KIND = {"grpo": 0, "bnpo": 1, "dr_grpo": 2, "dapo": 3, "cispo": 5, "sapo": 7}


def wheel():
    """The wheel's path, fetched by pip from where pip fetches."""
    folder = tempfile.mkdtemp(prefix="rv-trl")
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                    "-d", folder, f"trl=={VERSION}"], check=True)
    return glob.glob(os.path.join(folder, "trl-*.whl"))[0]


def is_if(node, test):
    return isinstance(node, ast.If) and ast.unparse(node.test) == test


def is_set(node, name):
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


class Cut:
    """Functions of a wheel, and spans of one of them as functions of their own."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as z:
            trainer = ast.parse(z.read("trl/trainer/grpo_trainer.py"))
            utils = ast.parse(z.read("trl/trainer/utils.py"))
        self.space = {"torch": torch, "F": F, "math": math, "is_triton_available": lambda: False}
        for name in ("nanstd", "nanmin", "nanmax", "selective_log_softmax", "entropy_from_logits"):
            self.run(self.one(utils, name))
        self.loss = self.run(self.one(trainer, "_compute_loss"))
        self.off_policy = self.run(self.one(trainer, "get_off_policy_mask"))
        whole = self.one(trainer, "_generate_and_score_completions")
        self.correct = self.span(whole, "correct", "self, inputs",
                                 lambda n: is_if(n, "self.use_vllm and self.vllm_importance_sampling_correction")
                                 and any(is_set(x, "per_token_logps_diff") for x in n.body), None,
                                 "vllm_importance_sampling_ratio",
                                 "old_per_token_logps, sampling_per_token_logps, completion_mask, tool_mask = inputs")
        self.rewards = self.span(whole, "rewards", "self, rewards_per_func, num_generations",
                                 lambda n: is_set(n, "unscorable_mask"), lambda n: is_set(n, "advantages"),
                                 "advantages, is_std_zero", "device = 'cpu'")
        self.cut_off = self.span(whole, "cut_off", "self, completion_ids_list, completion_mask",
                                 lambda n: is_if(n, "self.mask_truncated_completions"), None,
                                 "completion_mask", "device, tool_mask = 'cpu', None")

    @staticmethod
    def one(tree, name):
        found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
        assert len(found) == 1, f"TRL has {len(found)} of {name}"
        return found[0]

    def run(self, node):
        node.decorator_list = []
        exec(compile(ast.fix_missing_locations(ast.Module([node], [])), "trl", "exec"), self.space)
        return self.space[node.name]

    def span(self, whole, name, args, first, last, gives, before):
        """The statements from [first] to [last] after it, wherever they stand."""
        for node in ast.walk(whole):
            body = getattr(node, "body", None)
            at = [i for i, n in enumerate(body) if first(n)] if isinstance(body, list) else []
            if not at:
                continue
            end = next((i for i in range(at[0], len(body)) if last(body[i])), None) if last else at[0]
            assert end is not None, f"TRL's {name} has no end"
            made = ast.parse(f"def {name}({args}):\n    {before}\n    return {gives}").body[0]
            made.body[1:1] = body[at[0]:end + 1]
            return self.run(made)
        raise AssertionError(f"TRL has no {name}")


def trainer(cut, c, logits):
    """What the methods read of a GRPOTrainer."""
    t = SimpleNamespace(
        loss_type=c["loss_type"], importance_sampling_level="sequence" if c["sequence"] else "token",
        beta=c["beta"], epsilon_low=LOW, epsilon_high=CAP if c["loss_type"] == "cispo" else HIGH,
        off_policy_mask_threshold=c["off_policy"], top_entropy_quantile=1.0, aux_loss_enabled=False,
        use_vllm=c["correct"] != "none", vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode=c["correct"], vllm_importance_sampling_clip_min=c["least"],
        vllm_importance_sampling_clip_max=c["most"], max_completion_length=LONGEST,
        current_gradient_accumulation_steps=c["micro"], _entropy_bonus_enabled=False,
        model=SimpleNamespace(training=True), _metrics=defaultdict(lambda: defaultdict(list)),
        args=SimpleNamespace(use_bias_correction_kl=False, delta=c["delta"], sapo_temperature_pos=TAU[0],
                             sapo_temperature_neg=TAU[1], steps_per_generation=c["micro"]),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x))
    t.get_off_policy_mask = cut.off_policy

    def logps(model, ids, attention, keep, **_):
        ids = ids[:, -keep:].long()
        return (cut.space["selective_log_softmax"](logits, ids, temperature=c["temperature"]),
                cut.space["entropy_from_logits"](logits.detach() / c["temperature"]), None)

    t._get_per_token_logps_and_entropies = logps
    return t


def run_loss(cut, c, s):
    """Loss and its gradients over log-probs and logits, of all micro-batches."""
    out = {"loss": 0.0, "grad": [], "dlogits": []}
    for part in torch.arange(B).chunk(c["micro"]):
        logits = s["logits"][part].double().requires_grad_()
        t = trainer(cut, c, logits)
        kept = []
        inner = t._get_per_token_logps_and_entropies

        def watch(*a, inner=inner, kept=kept, **k):
            got = inner(*a, **k)
            got[0].retain_grad()
            kept.append(got[0])
            return got

        t._get_per_token_logps_and_entropies = watch
        mask = s["mask"][part].double()
        old, sampled = s["old"][part].double(), s["sampled"][part].double()
        inputs = {"prompt_ids": torch.zeros(len(part), 2), "prompt_mask": torch.ones(len(part), 2),
                  "completion_ids": s["ids"][part], "completion_mask": mask, "advantages": s["adv"][part].double(),
                  "num_items_in_batch": s["mask"].double().sum(), "ref_per_token_logps": s["ref"][part].double()}
        if c["old"]:
            inputs["old_per_token_logps"] = old
        if c["sampled"]:
            inputs["sampling_per_token_logps"] = sampled
        if t.use_vllm:
            inputs["importance_sampling_ratio"] = cut.correct(t, (old, sampled, mask, None))
        loss = cut.loss(t, None, inputs)
        loss.backward()
        out["loss"] += loss.item()
        out["grad"].append(kept[0].grad)
        out["dlogits"].append(logits.grad)
    out["grad"], out["dlogits"] = torch.cat(out["grad"]), torch.cat(out["dlogits"])
    m = t._metrics["train"]
    if c["micro"] == 1 and c["beta"]:
        out["kl"] = m["kl"][0]
    if c["micro"] == 1 and not c["sequence"] and "clip_ratio/low_mean" in m:
        out["low"], out["high"] = m["clip_ratio/low_mean"][0], m["clip_ratio/high_mean"][0]
    if c["micro"] == 1 and not c["sequence"] and "cispo_clip_ratio" in m:
        out["low"], out["high"] = 0, m["cispo_clip_ratio"][0]
    return out


def case(loss_type, **k):
    c = {"loss_type": loss_type, "set": 0, "sequence": False, "beta": 0.0, "delta": None, "off_policy": None,
         "old": True, "sampled": False, "correct": "none", "least": None, "most": 1.5, "micro": 1,
         "temperature": 0.7} | k
    if c["correct"] != "none":
        c["sampled"] = True
    c["name"] = " ".join([loss_type] + [f"{n}={k[n]:g}" if isinstance(k[n], float) else f"{n}={k[n]}"
                                        for n in sorted(k)])
    c["kind"] = KIND[loss_type]
    return c


def loss_cases():
    for kind in KIND:
        for sequence in (False, True):
            for beta in (0.0, 0.04):
                for old in (False, True):
                    for s in (0, 1):
                        yield case(kind, sequence=sequence, beta=beta, old=old, set=s)
            for off in (0.0, 0.05):
                for sampled in (False, True):
                    yield case(kind, sequence=sequence, off_policy=off, sampled=sampled, set=1)
            for mode in list(CORRECT)[1:]:
                for least in (None, 0.6):
                    yield case(kind, sequence=sequence, correct=mode, least=least, beta=0.04, set=1)
            yield case(kind, sequence=sequence, micro=2, beta=0.04)
            yield case(kind, sequence=sequence, temperature=1.6)
        yield case(kind, set=2)
    for kind in ("grpo", "bnpo", "dr_grpo", "dapo"):
        for sequence in (False, True):
            yield case(kind, sequence=sequence, delta=1.5, set=1)


def reward_cases():
    for combine in ("sum_then_normalize", "normalize_then_sum"):
        for scale in ("group", "batch", "none"):
            for weights in ([1.0, 1.0], [0.25, -2.0]):
                for group in (2, 4):
                    yield {"name": f"{combine}.{scale}.{weights[1]:g}.{group}", "combine": combine, "scale": scale,
                           "weights": weights, "group": group}


def run_rewards(cut, c, rewards):
    t = SimpleNamespace(multi_objective_aggregation=c["combine"], scale_rewards=c["scale"],
                        reward_weights=torch.tensor(c["weights"], dtype=torch.float64), reward_funcs=[None] * 2)
    adv, zero = cut.rewards(t, rewards.double(), c["group"])
    return adv, zero


def fp32(x):
    return torch.as_tensor(x, dtype=torch.float32)


def draw_set(g, wide, empty):
    def normal(*shape):
        return fp32(torch.randn(*shape, generator=g))

    s = {"logits": 2 * normal(B, T, V), "ids": torch.randint(V, (B, T), generator=g).int(), "adv": normal(B)}
    logp = F.log_softmax(s["logits"].double() / 0.7, -1).gather(-1, s["ids"].long()[..., None])[..., 0]
    for name, by in (("old", wide), ("ref", 0.8), ("sampled", wide)):
        s[name] = fp32(logp + by * normal(B, T))
    s["sampled"][1, 2] = float("nan")
    lengths = torch.randint(1, T + 1, (B,), generator=g)
    lengths[0] = T
    s["mask"] = (torch.arange(T) < lengths[:, None]).to(torch.uint8)
    if empty:
        s["mask"][3] = 0
        s["adv"][4] = 0
    if empty > 1:
        s["mask"][:] = 0
    return s


def draw_rewards(g):
    r = fp32(torch.randint(0, 4, (16, 2), generator=g)) / 4
    r[1, 0] = r[5, 1] = float("nan")
    r[6] = float("nan")
    r[8:12] = 0.25
    return r


def draw_masks(g):
    """Completions as a sampler gives them: nothing behind the first end."""
    ids, lengths = torch.randint(V, (12, T), generator=g).int(), []
    ids[ids == PAD] = 5
    for row in ids:
        ends = (row == EOS).nonzero()
        lengths.append(int(ends[0]) + 1 if len(ends) else int(torch.randint(1, T + 1, (1,), generator=g)))
        row[lengths[-1]:] = PAD
    return ids, torch.tensor(lengths)


def make(path, seed):
    """Tensors of inputs and of what TRL makes of them, and the metadata."""
    cut, g = Cut(path), torch.Generator().manual_seed(seed)
    sets = [draw_set(g, 0.15, 0), draw_set(g, 0.5, 1), draw_set(g, 0.5, 2)]
    out = {f"set{i}.{k}": v for i, s in enumerate(sets) for k, v in s.items()}
    cases = list(loss_cases())
    for c in cases:
        got = run_loss(cut, c, sets[c["set"]])
        said = [got.get(k, math.nan) for k in ("loss", "kl", "low", "high")]
        out[c["name"]] = torch.cat([torch.tensor(said, dtype=torch.float64), got["grad"].flatten()])
        if c["temperature"] > 1:
            out[c["name"] + ".dlogits"] = got["dlogits"]
    out["rewards"] = draw_rewards(g)
    rewards = list(reward_cases())
    for c in rewards:
        out[c["name"] + ".adv"], zero = run_rewards(cut, c, out["rewards"])
        out[c["name"] + ".zero"] = zero.to(torch.uint8)
    out["mask.ids"], lengths = draw_masks(g)
    out["mask.lengths"] = lengths.int()
    mask = (torch.arange(T) < lengths[:, None]).int()
    t = SimpleNamespace(mask_truncated_completions=True, eos_token_ids=[EOS],
                        _tokenizer=SimpleNamespace(pad_token_id=PAD))
    rows = [row[:n].tolist() for row, n in zip(out["mask.ids"], lengths)]
    out["mask.kept"] = mask.to(torch.uint8)
    out["mask.dropped"] = cut.cut_off(t, rows, mask).to(torch.uint8)
    for c in cases:
        c["correct"] = CORRECT[c["correct"]]
    meta = {"cases": json.dumps(cases), "rewards": json.dumps(rewards), "trl": VERSION, "torch": torch.__version__,
            "low": str(LOW), "high": str(HIGH), "cap": str(CAP), "longest": str(LONGEST), "end": str(EOS)}
    return {k: numpy.ascontiguousarray(v.numpy()) for k, v in out.items()}, meta


def write(path, tensors, meta):
    """A safetensors file, without the package."""
    names = {"float64": "F64", "float32": "F32", "int32": "I32", "uint8": "U8"}
    order = sorted(tensors, key=lambda n: (-tensors[n].itemsize, n))
    head, at = {"__metadata__": meta}, 0
    for n in order:
        x = tensors[n]
        head[n] = {"dtype": names[str(x.dtype)], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for n in order:
            f.write(tensors[n].tobytes())
