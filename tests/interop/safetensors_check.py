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
            rc, out = ours("load", src, dst)
            check(label + ", loaded",
                  rc == 0 and same(load_file(dst), tensors), out)
    np_save({"x": numpy.arange(6, dtype=numpy.int64)}, src)
    rc, out = ours("copy", src, dst)
    check("numpy", rc == 0 and (np_load(dst)["x"] == numpy.arange(6)).all(), out)


BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
        "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
        "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
        "U64": 64}


def by_hand(path, dtype, data):
    header = json.dumps({"x": t(dtype, [8, 2], 0, len(data))}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def every_type(tmp):
    """Each type of the format through the package, through ours, and through
    the package again, where the package knows the type; the bytes, every value
    of a byte among them, stay."""
    src, dst = os.path.join(tmp, "src"), os.path.join(tmp, "dst")
    known = 0
    for dtype, width in BITS.items():
        data = bytes((i * 37 + 128) % 256 for i in range(2 * width))
        if dtype == "BOOL":
            data = bytes(i % 2 for i in range(2 * width))
        by_hand(src, dtype, data)
        rc, out = ours("load", src, dst)
        with open(dst, "rb") as f:
            loaded = f.read()
        rc, out = (rc, out) if rc else ours("copy", src, dst)
        with open(dst, "rb") as f:
            raw = f.read()
        check("type " + dtype + ", loaded", rc == 0 and loaded == raw, out)
        try:
            got = dict(safetensors.deserialize(raw))["x"]
        except Exception as why:
            # a type that this version of the package has not: then it must
            # refuse the file that was made by hand too
            check("type " + dtype + ", which the package has not",
                  rc == 0 and theirs(src) is not None
                  and raw.endswith(data), (out, why))
            continue
        known += 1
        check("type " + dtype, rc == 0 and got["dtype"] == dtype
              and list(got["shape"]) == [8, 2] and bytes(got["data"]) == data,
              (out, got["dtype"], got["shape"]))
    check("the package knows at least 15 types", known >= 15, known)


def shards(tmp):
    """As a set: theirs by an index as huggingface_hub writes it, and ours."""
    g = torch.Generator().manual_seed(2)
    tensors = {f"layer.{i}.w": torch.randn(i + 1, 33, generator=g)
               for i in range(9)}
    theirs_dir, ours_dir = os.path.join(tmp, "a"), os.path.join(tmp, "b")
    os.mkdir(theirs_dir)
    os.mkdir(ours_dir)
    weight_map = {}
    for part in range(3):
        name = f"model-{part + 1:05}-of-00003.safetensors"
        some = {k: v for i, (k, v) in enumerate(tensors.items()) if i % 3 == part}
        save_file(some, os.path.join(theirs_dir, name), {"format": "pt"})
        weight_map.update({k: name for k in some})
    with open(os.path.join(theirs_dir, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 5940}, "weight_map": weight_map},
                  f, indent=2)
    one = os.path.join(tmp, "one")
    rc, out = ours("copy", theirs_dir, one)
    check("their set as one file", rc == 0 and same(load_file(one), tensors),
          out)
    rc, out = ours("load", theirs_dir, one)
    check("their set, loaded", rc == 0 and same(load_file(one), tensors), out)
    rc, out = ours("shard", theirs_dir, ours_dir, "2000")
    with open(os.path.join(ours_dir, "model.safetensors.index.json")) as f:
        index = json.load(f)
    got = {}
    for name in sorted(set(index["weight_map"].values())):
        part = load_file(os.path.join(ours_dir, name))
        check(f"{name}: at most 2000 bytes, as the index has it",
              (sum(v.numel() * 4 for v in part.values()) <= 2000
               or len(part) == 1)
              and all(index["weight_map"][k] == name for k in part))
        got.update(part)
    check("our set", rc == 0 and same(got, tensors)
          and index["metadata"]["total_size"] == 5940
          and len(os.listdir(ours_dir))
          == len(set(index["weight_map"].values())) + 1, out)


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
    every_type(tmp)
    shards(tmp)
    broken(tmp)
print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
sys.exit(1 if counts["failed"] else 0)
