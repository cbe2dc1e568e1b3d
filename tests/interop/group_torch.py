# SPDX-License-Identifier: Apache-2.0
"""group_torch.py - collectives of libtrain's host group beside numpy's left
fold, bit for bit, and beside PyTorch's gloo on the same data.

usage: group_torch.py BUILD_FOLDER
Four ranks on two made-up nodes; each is a process that calls libtrain by
ctypes. bf16 and f16 are folded in float32 and rounded once, as group.h says."""
import ctypes
import json
import os
import socket
import subprocess
import sys

import numpy as np
import torch
import torch.distributed as dist

SIZE = 4
COUNTS = [0, 1, 1001, 150001]  # the last: several chunks
# our numbers of <train/tensor.h> and <train/group.h>
DTYPES = {"f32": 0, "f64": 1, "bf16": 2, "f16": 3, "i64": 4, "i32": 5}
OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "prod": 4}
TORCH = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
         "f16": torch.float16, "i64": torch.int64, "i32": torch.int32}
EPS = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-7, "f16": 2.0**-10}
EINVAL = 1


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 2048)]


class Group:
    """libtrain's group; tensors are torch's, on the host."""

    def __init__(self, build):
        self.lib = ctypes.CDLL(os.path.join(build, ".libs", "libtrain.so"))
        self.group = ctypes.c_void_p()
        self.err = Error()
        if self.lib.train_group_create(None, ctypes.byref(self.group),
                                       ctypes.byref(self.err)):
            sys.exit(self.err.text.decode())

    def view(self, t):
        """A train_tensor_t, which begins with its DLTensor."""
        name = [k for k, v in TORCH.items() if v == t.dtype][0]
        room = ctypes.create_string_buffer(1024)
        shape = (ctypes.c_int64 * 1)(t.numel())
        status = self.lib.train_tensor_view(
            room, ctypes.c_void_p(t.data_ptr()), DTYPES[name], 1, shape,
            ctypes.byref(self.err))
        if status:
            sys.exit(self.err.text.decode())
        return room

    def call(self, name, *args):
        """The status of train_<name> (group, args..., err)."""
        args = [self.view(a) if isinstance(a, torch.Tensor) else a for a in args]
        return getattr(self.lib, "train_" + name)(
            self.group, *args, ctypes.byref(self.err))

    def end(self):
        self.lib.train_group_destroy(self.group)


def made(name, n, op, rank):
    """What [rank] gives: no zeros, whose order in min and max is nobody's."""
    rng = np.random.default_rng([n, OPS[op], DTYPES[name], rank])
    if name in ("i32", "i64"):
        info = np.iinfo(np.int32 if name == "i32" else np.int64)
        return torch.from_numpy(rng.integers(info.min, info.max, n,
                                             dtype=info.dtype, endpoint=True))
    x = rng.standard_normal(n) * 2.0 ** rng.integers(-6, 7, n)
    x[x == 0] = 1
    if n > 100:
        x[50::97] = [np.inf, -np.inf, np.nan, 3][rank]
        x[60::97] = 65000  # sums of it have no f16
    return torch.from_numpy(x).to(TORCH[name])


def fold(list_, op):
    """((x0 + x1) + x2) + ... by numpy, rounded once to the type of x0."""
    half = list_[0].dtype in (torch.bfloat16, torch.float16)
    arrays = [(x.float() if half else x).numpy() for x in list_]
    do = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum,
          "prod": np.multiply}[op]
    acc = arrays[0]
    with np.errstate(all="ignore"):
        for x in arrays[1:]:
            acc = do(acc, x)
        if op == "avg":
            acc = acc / acc.dtype.type(len(arrays))
    return torch.from_numpy(np.asarray(acc)).to(list_[0].dtype)


def bits(t):
    """As integers; every NaN is one."""
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    b = t.contiguous().view(width).clone()
    if t.dtype.is_floating_point:
        b[torch.isnan(t)] = 1
    return b


def same(a, b):
    return a.shape == b.shape and bool(torch.equal(bits(a), bits(b)))


class Checks(dict):
    def add(self, name, good, detail=""):
        self[name] = [bool(good), detail]


def reductions(group, rank, checks):
    """Every type, operation and size, beside the fold."""
    for name in DTYPES:
        for op in OPS:
            if op == "avg" and name[0] == "i":
                t = torch.ones(4, dtype=TORCH[name])
                checks.add(f"all_reduce {name} avg is refused",
                           group.call("all_reduce", t, OPS[op]) == EINVAL)
                continue
            for n in COUNTS:
                given = [made(name, n, op, r) for r in range(SIZE)]
                t = given[rank].clone()
                status = group.call("all_reduce", t, OPS[op])
                checks.add(f"all_reduce {name} {op} of {n}: numpy's bits",
                           status == 0 and same(t, fold(given, op)), status)
            rooted(group, rank, checks, name, op)


def rooted(group, rank, checks, name, op):
    """reduce and reduce_scatter give the same bits."""
    n = 1001
    given = [made(name, SIZE * n, op, r) for r in range(SIZE)]
    want = fold(given, op)
    t, out = given[rank].clone(), torch.zeros(n, dtype=TORCH[name])
    status = group.call("reduce", t, OPS[op], 2)
    checks.add(f"reduce {name} {op}: numpy's bits, at the root alone",
               status == 0 and same(t, want if rank == 2 else given[rank]), status)
    status = group.call("reduce_scatter", given[rank], out, OPS[op])
    checks.add(f"reduce_scatter {name} {op}: numpy's bits",
               status == 0 and same(out, want[rank * n:(rank + 1) * n]), status)


def close(ours, theirs, given, name):
    """Both are sums of [given], in whatever order and rounding."""
    if name[0] == "i":
        return torch.equal(ours, theirs)
    room = sum(x.double().abs() for x in given) * EPS[name] * 2 * SIZE
    return bool(torch.all((ours.double() - theirs.double()).abs() <= room))


def finite(name, n, op, rank):
    x = made(name, n, op, rank)
    if x.dtype.is_floating_point:
        x = torch.nan_to_num(x.double(), 1, 2, -2).clamp(-100, 100).to(x.dtype)
    return x


def beside_gloo(group, rank, checks):
    theirs = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN,
              "max": dist.ReduceOp.MAX, "prod": dist.ReduceOp.PRODUCT}
    for name in ("f32", "f64", "f16", "i64", "i32"):
        for op, reduce_op in theirs.items():
            if op == "prod" and name[0] == "f":
                continue  # the order of a product is its result
            given = [finite(name, 5003, op, r) for r in range(SIZE)]
            a, b = given[rank].clone(), given[rank].clone()
            status = group.call("all_reduce", a, OPS[op])
            dist.all_reduce(b, reduce_op)
            checks.add(f"all_reduce {name} {op}: gloo's values",
                       status == 0 and close(a, b, given, name), status)
    for name in ("f32", "i64", "f16"):
        moves(group, rank, checks, name)


def moves(group, rank, checks, name):
    """What only moves bytes is the same to the bit."""
    n = 70001
    mine = finite(name, n, "sum", rank)
    a, b = mine.clone(), mine.clone()
    status = group.call("broadcast", a, 3)
    dist.broadcast(b, 3)
    checks.add(f"broadcast {name}: gloo's bits", status == 0 and same(a, b), status)
    a = torch.zeros(SIZE * n, dtype=mine.dtype)
    b = [torch.zeros_like(mine) for _ in range(SIZE)]
    status = group.call("all_gather", mine, a)
    dist.all_gather(b, mine)
    checks.add(f"all_gather {name}: gloo's bits",
               status == 0 and same(a, torch.cat(b)), status)
    mine = finite(name, SIZE * n, "sum", rank)
    a, b = torch.zeros_like(mine), torch.zeros_like(mine)
    status = group.call("all_to_all", mine, a)
    dist.all_to_all_single(b, mine)
    checks.add(f"all_to_all {name}: gloo's bits", status == 0 and same(a, b), status)
    given = [finite(name, SIZE * n, "sum", r) for r in range(SIZE)]
    a, b = torch.zeros(n, dtype=mine.dtype), torch.zeros(n, dtype=mine.dtype)
    status = group.call("reduce_scatter", mine, a, OPS["sum"])
    part = slice(rank * n, (rank + 1) * n)
    try:
        dist.reduce_scatter(b, list(given[rank].chunk(SIZE)))
    except (RuntimeError, ValueError):  # older gloo has no reduce_scatter
        whole = given[rank].clone()
        dist.all_reduce(whole)
        b = whole[part]
    checks.add(f"reduce_scatter {name}: gloo's values",
               status == 0 and close(a, b, [g[part] for g in given], name), status)


def rank_main(build):
    torch.set_num_threads(1)
    rank, checks = int(os.environ["RANK"]), Checks()
    group = Group(build)
    reductions(group, rank, checks)
    os.environ["MASTER_PORT"] = os.environ["GLOO_PORT"]
    dist.init_process_group("gloo")
    beside_gloo(group, rank, checks)
    dist.barrier()
    group.end()
    print(json.dumps(checks), flush=True)
    os._exit(0)  # gloo's threads may end the process while Python takes them down


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [str(s.getsockname()[1]) for s in held]
    for s in held:
        s.close()
    return ports


def main():
    port, gloo_port = free_ports(2)
    ranks = []
    for r in range(SIZE):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(SIZE),
                   LOCAL_RANK=str(r % 2), LOCAL_WORLD_SIZE="2",
                   NODE_RANK=str(r // 2), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=port, GLOO_PORT=gloo_port,
                   GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
                   USE_LIBUV="0")  # Debian 13 builds without it
        env["RV_NCCL_TIMEOUT"] = "120"
        env.pop("RV_STEP", None)
        ranks.append(subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--rank", sys.argv[1]],
            env=env, text=True, stdout=subprocess.PIPE))
    out = [p.communicate()[0] for p in ranks]
    if any(p.returncode for p in ranks):
        sys.exit("a rank failed")
    said = [json.loads(o) for o in out]
    passed = 0
    for name in said[0]:
        bad = [f"rank {r}: {c[name][1]}" for r, c in enumerate(said) if not c[name][0]]
        passed += not bad
        print(f"not ok - {name} # {bad}" if bad else f"ok - {name}")
    print(f"{passed} passed, {len(said[0]) - passed} failed, 0 skipped")
    return passed != len(said[0])


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank_main(sys.argv[2])
    else:
        sys.exit(main())
