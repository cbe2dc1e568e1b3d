# SPDX-License-Identifier: Apache-2.0
"""export_check.py - what rv-train export writes holds the checkpoint's numbers,
rounded as PyTorch rounds, from one rank and from three shards; and rv-train
tokenize writes the ids that the Python package tokenizers gives. Where
transformers is installed, it loads the directory as well.

usage: export_check.py BUILD_FOLDER"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TRAIN = os.path.abspath(os.path.join(sys.argv[1], "rv-train"))
TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                    "LICENSE")
counts = {"passed": 0, "failed": 0}


def check(name, good, detail=""):
    counts["passed" if good else "failed"] += 1
    print(("ok - " if good else "not ok - ") + name
          + ("" if good else " # " + str(detail)))


def rv(*args, wait=True, **env):
    keep = {k: v for k, v in os.environ.items()
            if not k.startswith(("SLURM_", "PMIX_", "RV_", "RANK", "WORLD_"))}
    p = subprocess.Popen([TRAIN, *args], env={**keep, **env}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if not wait:
        return p
    out = p.communicate(timeout=60)[0]
    if p.returncode:
        raise RuntimeError(out)
    return out


def train(folder, world, port):
    args = ["run.ini", f"data.files={TEXT}", f"checkpoint.dir={folder}"]
    args += ["shard.strategy=full"] if world > 1 else []
    ranks = [rv(*args, wait=False, RANK=str(r), WORLD_SIZE=str(world),
                LOCAL_RANK=str(r), LOCAL_WORLD_SIZE=str(world), NODE_RANK="0",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                OMP_NUM_THREADS="1") for r in range(world)]
    for p in ranks:
        out = p.communicate(timeout=60)[0]
        if p.returncode:
            raise RuntimeError(out)


def whole(folder):
    """The weights, put together by what checkpoint.json says."""
    step = os.path.join(folder, "step-00000003")
    with open(os.path.join(step, "checkpoint.json")) as f:
        manifest = json.load(f)
    files, out = {}, {}
    for name, t in manifest["tensors"].items():
        if name[:2] in ("m.", "v."):
            continue
        flat = torch.zeros(int(numpy.prod(t["shape"], dtype=int)))
        for p in t["pieces"]:
            if p["file"] not in files:
                files[p["file"]] = load_file(os.path.join(step, p["file"]))
            flat[p["first"]:p["first"] + p["count"]] = \
                files[p["file"]][p["as"]].reshape(-1)
        out[name] = flat.reshape(t["shape"])
    return out


def exported(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            out.update(load_file(os.path.join(folder, name)))
    return out


def export(world, port):
    folder = f"ck{world}"
    train(folder, world, port)
    want = whole(folder)
    for dtype, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16),
                        ("fp16", torch.float16), ("fp64", torch.float64)):
        to = f"hf{world}-{dtype}"
        rv("export", "--dtype", dtype, "--max-bytes", "20000", folder, to)
        got = exported(to)
        check(f"{world} ranks, {dtype}: the same tensors",
              sorted(got) == sorted(want), (sorted(got), sorted(want)))
        check(f"{world} ranks, {dtype}: rounded as PyTorch rounds",
              all(torch.equal(got[n], want[n].to(kind)) for n in want))
        check(f"{world} ranks, {dtype}: several files and an index",
              os.path.exists(os.path.join(to, "model.safetensors.index.json")))
        loads(to, want)


def loads(folder, want):
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        return
    model = AutoModelForCausalLM.from_pretrained(folder).float()
    state = model.state_dict()
    check(f"{folder}: transformers loads it",
          all(torch.allclose(state[n], want[n], atol=1e-2) for n in want))


def tokenize():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train([TEXT], trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<end>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.save("tokenizer.json")
    with open("more.txt", "w", encoding="utf-8") as f:
        f.write("Zwölf Boxkämpfer\tjagen  Viktor\r\nüber 3,14159 \u4e16\u754c 🙂\n")
    rv("tokenize", "--tokenizer", "tokenizer.json", "--end", "<end>", "t.bin",
       TEXT, "more.txt")
    want = []
    for path in (TEXT, "more.txt"):
        with open(path, encoding="utf-8", newline="") as f:
            want += tok.encode(f.read(), add_special_tokens=False).ids
        want.append(tok.token_to_id("<end>"))
    with open("t.bin", "rb") as f:
        data = f.read()
    count, = struct.unpack_from("<Q", data, 16)
    check("tokenize: the ids of tokenizers",
          count == len(want)
          and numpy.frombuffer(data, "<u2", offset=64).tolist() == want,
          (count, len(want)))


os.environ["TOKENIZERS_PARALLELISM"] = "false"
with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    with open("run.ini", "w") as f:
        f.write("[run]\ndevice = cpu\nsteps = 3\n[model]\nlayers = 2\ndim = 32\nheads = 4\n"
                "kv_heads = 2\n[data]\nseq = 32\nbatch = 6\n[optim]\nwarmup = 1\n")
    export(1, 20000 + os.getpid() % 12000)
    export(3, 20001 + os.getpid() % 12000)
    tokenize()
    os.chdir("/")
print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
sys.exit(counts["failed"] > 0)
