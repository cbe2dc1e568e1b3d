# SPDX-License-Identifier: Apache-2.0
"""gpus_torch.py LOOP ARG... - PyTorch's training loop LOOP with one more preset

LOOP has a dictionary PRESETS: layers, dim, heads, heads of keys and values, ffn.
8b is Llama 3's. LOOP's names are those of the module __main__, in which
torch.compile looks for them."""
import sys

with open(sys.argv[1]) as f:
    text = f.read()
mark = "PRESETS = {"
if text.count(mark) != 1:
    sys.exit(f"gpus_torch.py: {sys.argv[1]} has no PRESETS to add 8b to")
text = text.replace(mark, mark + '"8b": (32, 4096, 32, 8, 14336),')
del sys.argv[0]
__file__ = sys.argv[0]
exec(compile(text, __file__, "exec"))
