# SPDX-License-Identifier: Apache-2.0
"""safetensors_gpu.py - load a file to a GPU by train_safetensors_load, by the
Python package, and copy as many bytes from pinned memory, in turns, page cache
warm.

usage: python3 safetensors_gpu.py LIBTRAIN.so [MIB [ROUNDS]]   (torch with CUDA)

Ours allocates its tensors by torch, as the package does; all times end with a
synchronised device. Bytes are compared on the device. RV_BENCH_TUNE=1 goes
through numbers of readers and sizes of chunks too. Best and median of the
rounds; the last lines are the aim: 0.8 of the pinned copy's rate."""
import ctypes
import os
import statistics
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 7
N = 300
V, S, P = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 256)]


class CopierOptions(ctypes.Structure):
    _fields_ = [("size", S), ("device", ctypes.c_char_p),
                ("transfer", ctypes.c_char_p), ("ring_bytes", S),
                ("chunk_bytes", S), ("log", V), ("log_arg", V),
                ("trace", ctypes.c_char_p), ("probe", ctypes.c_char_p)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", S), ("verify", ctypes.c_int), ("readers", ctypes.c_int)]


class Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", V), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", P(ctypes.c_int64)),
                ("strides", P(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


lib = ctypes.CDLL(os.path.abspath(sys.argv[1]))
lib.train_safetensors_load.argtypes = [V, V, V, V, V, S, V, V, V]
lib.train_copier_destroy.argtypes = lib.train_safetensors_close.argtypes = [V]
error = Error()


def must(status):
    if status:
        sys.exit(f"safetensors_gpu: {error.text.decode()}")


def copier(chunk=0, ring=0):
    out = V()
    o = CopierOptions(ctypes.sizeof(CopierOptions), b"cuda", None, ring, chunk,
                      None, None, None, b"")
    must(lib.train_copier_create(ctypes.byref(o), ctypes.byref(out),
                                 ctypes.byref(error)))
    return out


def ours(path, made, verify, readers=0):
    out = {k: torch.empty(shape, dtype=torch.bfloat16, device="cuda")
           for k, shape in shapes.items()}
    file = V()
    must(lib.train_safetensors_open(path.encode(), ctypes.byref(file),
                                    ctypes.byref(error)))
    n = len(out)
    views, to, names = (Tensor * n)(), (V * n)(), (ctypes.c_char_p * n)()
    for i, (k, t) in enumerate(out.items()):
        shape = (ctypes.c_int64 * t.dim())(*t.shape)
        views[i] = Tensor(t.data_ptr(), 2, 0, t.dim(), 4, 16, 1, shape, None, 0)
        to[i] = ctypes.addressof(views[i])
        names[i] = k.encode()
    o = LoadOptions(ctypes.sizeof(LoadOptions), verify, readers)
    must(lib.train_safetensors_load(made, to, 1, file, names, n,
                                    ctypes.byref(o), None, ctypes.byref(error)))
    lib.train_safetensors_close(file)
    torch.cuda.synchronize()
    return out


def package(path):
    out = load_file(path, device="cuda")
    torch.cuda.synchronize()
    return out


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rounds(ways, n):
    times = {name: [] for name in ways}
    for name, work in ways.items():
        work()
    for _ in range(n):
        for name, work in ways.items():
            times[name].append(timed(work))
    for name, t in times.items():
        rate = MIB * 1048576 / 1e9
        print(f"{name}: median {statistics.median(t) * 1e3:.1f} ms, "
              f"{rate / statistics.median(t):.2f} GB/s; best "
              f"{min(t) * 1e3:.1f} ms, {rate / min(t):.2f} GB/s", flush=True)
    return {name: statistics.median(t) for name, t in times.items()}


print(torch.cuda.get_device_name(0), "torch", torch.__version__, "CPUs",
      len(os.sched_getaffinity(0)), flush=True)
rows = (MIB << 20) // 2 // N // 1024
shapes = {f"model.layers.{i}.w": (rows + (i % 7 - 3) * (i < 294), 1024)
          for i in range(N)}  # sizes that differ, and chunks that are cut
MIB = sum(a * b * 2 for a, b in shapes.values()) / 1048576
host = torch.empty(256 << 20, dtype=torch.uint8).pin_memory()
device = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")


def pinned():  # as many bytes, the last piece cut
    left = int(MIB * 1048576)
    while left > 0:
        k = min(left, len(host))
        device[:k].copy_(host[:k], non_blocking=True)
        left -= k
    torch.cuda.synchronize()


with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as tmp:
    path = os.path.join(tmp, "x.safetensors")
    g = torch.Generator(device="cuda").manual_seed(1)
    save_file({k: torch.randint(-2**15, 2**15, s, generator=g, device="cuda",
                                dtype=torch.int16).view(torch.bfloat16).cpu()
               for k, s in shapes.items()}, path)
    made = copier()
    got, want = ours(path, made, 3), package(path)
    same = all((got[k].view(torch.int16) == want[k].view(torch.int16)).all()
               for k in want)
    print("bytes are the package's:", bool(same and len(want) == N), flush=True)
    if not same:
        sys.exit(1)
    del got, want
    best = rounds({"pinned copy": pinned,
                   "libtrain, verified": lambda: ours(path, made, 3),
                   "libtrain, not verified": lambda: ours(path, made, 1),
                   "package, load_file": lambda: package(path)}, ROUNDS)
    if os.environ.get("RV_BENCH_TUNE"):
        for chunk, ring in ((2, 64), (4, 128)):
            one = copier(chunk << 20, ring << 20)
            rounds({f"chunk {chunk} ring {ring} readers {readers} verify {v}":
                    lambda r=readers, v=v: ours(path, one, v, r)
                    for readers in (8, 10, 12, 14, 16) for v in (1, 3)}, 3)
            lib.train_copier_destroy(one)
    lib.train_copier_destroy(made)
raw = best["pinned copy"]
for name in ("libtrain, verified", "libtrain, not verified"):
    ratio = raw / best[name]
    print(f"{'met ' if ratio >= 0.8 else 'MISSED'} {name}: {ratio:.3f} of the "
          f"pinned copy (aim: 0.80), {best['package, load_file'] / best[name]:.2f} "
          "times the package's rate")
