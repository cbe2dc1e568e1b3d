# SPDX-License-Identifier: Apache-2.0
"""safetensors_load.py - load a file to the host, every byte touched, by libtrain
and by the Python package safetensors, in turns, page cache warm.

usage: BUILD_FOLDER/venv/bin/python3 safetensors_load.py BUILD_FOLDER [MIB [ROUNDS]]
The package is in the venv that `make check-interop` makes.

The touching is the same for all: numpy's sum of each tensor as 64-bit words.
"mapped" is safetensors.torch.load_file and train_safetensors_open, which map;
"read" is safetensors.numpy.load_file, which copies. Medians; the last line is
libtrain's time over the package's faster way."""
import ctypes
import os
import statistics
import sys
import tempfile
import time

import numpy
from safetensors.numpy import load_file as load_read
from safetensors.numpy import save_file
from safetensors.torch import load_file as load_mapped

BUILD = sys.argv[1]
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 512
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 11


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int),
                ("ndim", ctypes.c_int), ("shape", ctypes.c_int64 * 8),
                ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t),
                ("type", ctypes.c_int)]


lib = ctypes.CDLL(os.path.join(BUILD, ".libs", "libtrain.so"))
lib.train_safetensors_open.argtypes = [ctypes.c_char_p,
                                       ctypes.POINTER(ctypes.c_void_p),
                                       ctypes.c_void_p]
lib.train_safetensors_count.argtypes = [ctypes.c_void_p]
lib.train_safetensors_count.restype = ctypes.c_size_t
lib.train_safetensors_entry.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
lib.train_safetensors_entry.restype = ctypes.POINTER(Entry)
lib.train_safetensors_close.argtypes = [ctypes.c_void_p]


def words(a):
    return int(a.view(numpy.uint64).sum())


def ours(path):
    handle = ctypes.c_void_p()
    if lib.train_safetensors_open(path.encode(), ctypes.byref(handle), None):
        sys.exit("libtrain cannot open " + path)
    total = 0
    for i in range(lib.train_safetensors_count(handle)):
        e = lib.train_safetensors_entry(handle, i).contents
        raw = (ctypes.c_uint8 * e.bytes).from_address(e.data)
        total += words(numpy.frombuffer(raw, numpy.uint8))
    lib.train_safetensors_close(handle)
    return total % 2**64


def mapped(path):
    return sum(words(t.numpy().reshape(-1)) for t in
               load_mapped(path).values()) % 2**64


def read(path):
    return sum(words(a.reshape(-1)) for a in load_read(path).values()) % 2**64


ways = {"libtrain": ours, "package, mapped": mapped, "package, read": read}
with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as tmp:
    path = os.path.join(tmp, "x.safetensors")
    rng = numpy.random.default_rng(1)
    n = 32
    save_file({f"layer.{i}": rng.standard_normal((MIB << 20) // n // 4,
                                                 dtype=numpy.float32)
               for i in range(n)}, path)
    times = {name: [] for name in ways}
    sums = {name: way(path) for name, way in ways.items()}  # warms the cache
    if len(set(sums.values())) != 1:
        sys.exit(f"different bytes: {sums}")
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begin = time.perf_counter()
            way(path)
            times[name].append(time.perf_counter() - begin)
best = {name: statistics.median(t) for name, t in times.items()}
for name, t in best.items():
    print(f"{name}: {t * 1e3:.1f} ms, {MIB / 1024 / t:.2f} GiB/s "
          f"(best {min(times[name]) * 1e3:.1f} ms)")
ratio = best["libtrain"] / min(best["package, mapped"], best["package, read"])
print(f"libtrain over the package: {ratio:.3f} (aim: at most 1)")
