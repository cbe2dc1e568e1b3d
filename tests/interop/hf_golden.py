#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# hf_golden.py - what transformers computes of small models, for the unit tests
"""hf_golden.py FOLDER writes FOLDER/hf-NAME.safetensors, one for each
architecture and each form of rotary embedding, for tests/unit/test_hf_golden.
Needs torch >= 2.6, transformers >= 5 and safetensors; nothing runs it unasked.

A file has the model's weights "w.NAME" (bf16, which fp32 holds exactly), the
gradients "g.NAME" of the mean loss, "tokens", "targets", "logits", "loss" (sum)
in fp32, "prompt" and its greedy continuation "greedy"; its metadata have the
model's config.json and the versions."""
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

KINDS = {"llama": (LlamaConfig, LlamaForCausalLM),
         "qwen2": (Qwen2Config, Qwen2ForCausalLM),
         "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
BASE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 44,
        "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1}
MODELS = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-6,
                             "num_key_value_heads": 4,
                             "rope_parameters": {"rope_type": "default",
                                                 "rope_theta": 500000.0}}),
    "qwen2": ("qwen2", {"rope_parameters": {"rope_type": "default",
                                            "rope_theta": 1e6}}),
    "qwen3": ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "linear": ("llama", WIDE | {"rope_parameters": {
        "rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}}),
    # sequences longer than the positions: the base grows
    "dynamic": ("llama", WIDE | {"max_position_embeddings": 16,
                                 "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}}),
    "llama3": ("llama", WIDE | {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}}),
    "yarn": ("qwen3", WIDE | {"head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 32}}),
    "yarn-mscale": ("llama", WIDE | {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 5000.0, "factor": 2.0,
        "beta_fast": 8.0, "beta_slow": 0.5, "mscale": 0.7,
        "mscale_all_dim": 1.3, "truncate": False,
        "original_max_position_embeddings": 32}}),
}
BATCH, SEQ = 2, 33


def shake (model):
    """Numbers of a size at which nothing is nearly linear."""
    for name, p in model.named_parameters ():
        x = torch.randn_like (p)
        p.data = 1 + 0.2 * x if "norm" in name else 0.2 * x
        p.data = p.data.bfloat16 ().float ()


def record (name, folder):
    kind, extra = MODELS[name]
    make_config, make_model = KINDS[kind]
    config = make_config (**(BASE | extra), architectures=[make_model.__name__])
    config._attn_implementation = "eager"
    torch.manual_seed (7)
    model = make_model (config).float ().eval ()
    shake (model)
    vocab = config.vocab_size
    tokens = torch.randint (0, vocab, (BATCH, SEQ))
    targets = torch.randint (0, vocab, (BATCH, SEQ))
    targets[0, 3] = targets[1, 20] = -100
    logits = model (input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy (
        logits.view (-1, vocab), targets.view (-1), reduction="sum")
    (loss / (targets >= 0).sum ()).backward ()
    t = {"tokens": tokens.int (), "targets": targets.clamp (min=-1).int (),
         "logits": logits.detach (), "loss": loss.detach ()}
    for k, p in model.named_parameters ():
        t["w." + k] = p.detach ().bfloat16 ()
        t["g." + k] = p.grad
    prompt = tokens[:1, :9]
    if name != "dynamic":  # whose cache keeps keys turned by former bases
        out = model.generate (prompt, do_sample=False, max_new_tokens=24,
                              attention_mask=torch.ones_like (prompt))
        t["prompt"], t["greedy"] = prompt.int (), out[:, 9:].int ()
    meta = {"config.json": config.to_json_string (), "kind": kind,
            "transformers": transformers.__version__, "torch": torch.__version__}
    path = os.path.join (folder, f"hf-{name}.safetensors")
    save_file ({k: v.contiguous () for k, v in t.items ()}, path, meta)
    print (path, os.path.getsize (path), float (loss))


if __name__ == "__main__":
    if len (sys.argv) != 2:
        sys.exit ("usage: hf_golden.py FOLDER")
    torch.set_num_threads (1)
    for model_name in MODELS:
        record (model_name, sys.argv[1])
