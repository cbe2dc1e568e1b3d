# SPDX-License-Identifier: Apache-2.0
"""safetensors_check.py - libtrain and the Python package safetensors read each
other's files and refuse the same broken ones.

usage: safetensors_check.py BUILD_FOLDER"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import safetensors
import torch
from safetensors.numpy import load_file as np_load
from safetensors.numpy import save_file as np_save
from safetensors.torch import load_file, save_file

TOOL = os.path.join(sys.argv[1], "tests", "interop", "st_tool")
counts = {"passed": 0, "failed": 0}


def check(name, good, detail=""):
    counts["passed" if good else "failed"] += 1
    print(("ok - " if good else "not ok - ") + name
          + ("" if good else " # " + str(detail)))


def ours(*args):
    run = subprocess.run([TOOL, *args], capture_output=True, text=True)
    return run.returncode, run.stdout.strip() + run.stderr.strip()


def theirs(path):
    """None, or why the package refuses the file."""
    try:
        with safetensors.safe_open(path, "np") as f:
            for key in f.keys():
                f.get_slice(key)
    except Exception as why:  # its own type, or a panic of its Rust part
        return str(why) or type(why).__name__
    return None


def same(a, b):
    """Same names, types, shapes and bytes (NaN included)."""
    if sorted(a) != sorted(b):
        return False
    return all(a[k].dtype == b[k].dtype and a[k].shape == b[k].shape
               and bits(a[k]) == bits(b[k]) for k in a)


def bits(t):
    t = t.contiguous().reshape(-1)
    return bytes(t.view(torch.uint8).numpy()) if t.numel() else b""


def round_trips(tmp):
    g = torch.Generator().manual_seed(1)
    nan = torch.tensor([0x7FC12345, -0x800000, 1], dtype=torch.int32)
    sets = {
        "no tensor": {},
        "every dtype": {
            "f32": torch.randn(3, 5, generator=g),
            "f64": torch.randn(7, generator=g, dtype=torch.float64),
            "bf16": torch.randn(9, 3, generator=g).to(torch.bfloat16),
            "f16": torch.randn(5, generator=g).to(torch.float16),
            "i64": torch.arange(4), "i32": torch.arange(3, dtype=torch.int32),
            "u8": torch.arange(7, dtype=torch.uint8)},
        "nan bits": {"nan": nan.view(torch.float32)},
        "scalar and empty": {"s": torch.tensor(2.5), "e": torch.zeros(0, 4)},
        "names": {"é\"\\ /": torch.ones(1), "": torch.zeros(2),
                  "a.b.c" * 50: torch.ones(3)},
        "8 dimensions": {"d": torch.arange(4.).reshape(1, 2, 1, 1, 2, 1, 1, 1)},
        "large": {"l": torch.randn(1 << 20, generator=g)},
    }
    for name, tensors in sets.items():
        for meta in ({"format": "pt", "step": "12 é"}, None):
            src, dst = os.path.join(tmp, "src"), os.path.join(tmp, "dst")
            save_file(tensors, src, meta)
            rc, out = ours("copy", src, dst)
            label = f"{name}, {'with' if meta else 'no'} metadata"
            if rc != 0:
                check(label, False, out)
                continue
            with safetensors.safe_open(dst, "pt") as f:
                got_meta = f.metadata()
            check(label, same(load_file(dst), tensors)
                  and (got_meta or None) == meta, got_meta)
    np_save({"x": numpy.arange(6, dtype=numpy.int64)}, src)
    rc, out = ours("copy", src, dst)
    check("numpy", rc == 0 and (np_load(dst)["x"] == numpy.arange(6)).all(), out)


def t(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def verdicts(tmp):
    """(name, header, data bytes, whether both refuse it)"""
    a = t("F32", [1], 0, 4)
    dup = '{"a":%s,"a":%s}' % (json.dumps(a), json.dumps(t("F32", [1], 4, 8)))
    return [
        ("sound", {"a": a}, 4, False),
        ("empty set", {}, 0, False),
        ("array", [], 0, True),
        ("not JSON", "{", 0, True),
        ("not UTF-8", b'{"a\xff":1}', 0, True),
        ("missing shape", {"a": {"dtype": "F32", "data_offsets": [0, 4]}}, 4,
         True),
        ("missing offsets", {"a": {"dtype": "F32", "shape": [1]}}, 4, True),
        ("negative offset", {"a": t("F32", [1], -4, 0)}, 4, True),
        ("float offset", {"a": t("F32", [1], 0, 4.0)}, 4, True),
        ("exponent", '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4e0]}}',
         4, True),
        ("overlap", {"a": a, "b": t("F32", [1], 2, 6)}, 6, True),
        ("same range", {"a": a, "b": a}, 4, True),
        ("hole", {"a": a, "b": t("F32", [1], 8, 12)}, 12, True),
        ("trailing byte", {"a": a}, 5, True),
        ("cut short", {"a": a}, 3, True),
        ("product overflow", {"a": t("F32", [1 << 32, 1 << 32], 0, 0)}, 0,
         True),
        ("wrong length", {"a": t("F32", [2], 0, 4)}, 4, True),
        ("unknown dtype", {"a": t("F33", [1], 0, 4)}, 4, True),
        ("integer metadata", {"__metadata__": {"k": 1}}, 0, True),
        ("tensor as metadata", {"__metadata__": a}, 4, True),
        ("duplicate key", dup, 8, True),
        ("deep nesting", '{"a":' + "[" * 10000, 0, True),
    ]


def broken(tmp):
    path = os.path.join(tmp, "broken")
    for name, header, n, refused in verdicts(tmp):
        if not isinstance(header, (str, bytes)):
            header = json.dumps(header)
        if isinstance(header, str):
            header = header.encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + bytes(n))
        rc, out = ours("check", path)
        them = theirs(path)
        check("verdict: " + name,
              (rc == 1) == refused and (them is not None) == refused,
              f"ours: {out}; theirs: {them}")
    for name, n in (("zero length", 0), ("too long", 17), ("huge", 1 << 63),
                    ("over the limit", 100000001)):
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", n) + b"{}      ")
        rc, out = ours("check", path)
        check("verdict: " + name, rc == 1 and theirs(path) is not None, out)


with tempfile.TemporaryDirectory() as tmp:
    round_trips(tmp)
    broken(tmp)
print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
sys.exit(1 if counts["failed"] else 0)
