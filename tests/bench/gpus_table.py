# SPDX-License-Identifier: Apache-2.0
"""gpus_table.py - the table of gpus.py, of the rows that it kept"""


def size_of(n):
    for unit, b in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= b * 0.99:
            return f"{n / b:.0f} {unit}"
    return f"{n} B"


def shares(row):
    if not row:
        return ""
    return ", ".join(f"{k} {100 * row[k]:.0f} %" for k in ("kernel", "link", "launch", "host")
                     if row[k] >= 0.005)


def find(rows, **want):
    """The last row that has all this: a run again replaces what was before."""
    got = None
    for r in rows:
        if all(r.get(k) == v for k, v in want.items()):
            got = r
    return got


def keys(rows, part, op, *more):
    """(through, world, ...) in the order in which they came."""
    seen = []
    for r in rows:
        if r.get("part") == part and r.get("op") in op and r.get("who") == "libtrain":
            k = (r["through"], r["world"]) + tuple(r.get(m) for m in more)
            if k not in seen:
                seen.append(k)
    return seen


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def groups(rows):
    out = []
    for through, world, op, size in keys(rows, "groups", COLLECTIVES, "op", "bytes"):
        want = dict(part="groups", op=op, bytes=size, world=world)
        r = find(rows, through=through, who="libtrain", **want)
        t = find(rows, who="PyTorch", **want)
        raw = r.get("raw_us")
        beside = [f"NCCL from C {raw:.1f} us"] if raw else []
        beside += [f"PyTorch {t['us']:.1f} us (calls not waited for)"] if t else []
        bus = f", {r['gb_s']:.0f} GB/s" if r.get("gb_s") else ""
        step = f"; learnt {r['step_us']:.1f} us" if "step_us" in r else ""
        out.append((f"{op} {size_of(size)}", world, through, f"{r['us']:.1f} us{bus}{step}",
                    "; ".join(beside), f"{raw / r['us']:.2f}" if raw else "", "", ""))
    return out


# Of one GPU's rate, for each GPU.
AIMS = {("weak-1b", 2): 0.95, ("weak-1b", 4): 0.95, ("weak-1b", 8): 0.93, ("grpo", 8): 7 / 8}
AIM_8B = 1.1  # times PyTorch's tokens a second


def met(share, aim):
    return f"; aim {'met' if share >= aim else 'MISSED'}"


def scaling(rows, part, r, key, strong):
    """Of the fewest GPUs that were measured: how much of their rate is left."""
    same = [q for q in rows if q.get("part") == part and q.get("through") == r["through"]
            and q.get("op") == r["op"] and q.get("who") == r["who"]
            and not q.get("offload") and q["world"] < r["world"]]
    if not same:
        return ""
    one = min(same, key=lambda q: q["world"])
    times = r[key] / one[key]
    share = 100 * times * one["world"] / r["world"]
    aim = AIMS.get((part, r["world"])) if one["world"] == 1 else None
    return (f"{times:.2f} times {one['world']} ({share:.0f} %)"
            f"{' of one batch' if strong else ''}{met(share / 100, aim) if aim else ''}")


def train(rows, part):
    out = []
    for through, world in keys(rows, part, ("train",)):
        want = dict(part=part, op="train", world=world)
        r = find(rows, through=through, who="libtrain", **want)
        t = find(rows, who="PyTorch", **want)
        beside = ratio = ""
        if t:
            beside = f"PyTorch {t['ms']:.1f} ms, {t['tok_s']:,} tok/s, {t['peak_gib']:.1f} GiB"
            ratio = f"{r['tok_s'] / t['tok_s']:.2f}"
            if part == "8b":
                ratio += met(r["tok_s"] / t["tok_s"], AIM_8B)
        if through != "direct":
            d = find(rows, through="direct", who="libtrain", **want)
            beside = f"direct {d['ms']:.1f} ms" if d else ""
            ratio = f"{d['ms'] / r['ms']:.2f}" if d else ""
        seen = find(rows, part=part, op="trace", world=world) if through == "direct" else None
        where = ", state in the host's memory" if r.get("offload") else ""
        if r["preset"] not in part:
            where += f", {r['preset']} for it"
        out.append((f"{part}, {r['batch']} x {r['seq']} a GPU{where}", world, through,
                    f"{r['ms']:.1f} ms, {r['tok_s']:,.0f} tok/s, {r['gib']:.1f} GiB", beside,
                    ratio, scaling(rows, part, r, "tok_s", part.startswith("strong")),
                    shares(seen)))
    return out


def grpo(rows):
    out = []
    for through, world in keys(rows, "grpo", ("grpo",)):
        r = find(rows, part="grpo", op="grpo", world=world, through=through, who="libtrain")
        t = find(rows, part="grpo", op="grpo_step", world=world, who="PyTorch")
        seen = find(rows, part="grpo", op="trace", world=world) if through == "direct" else None
        d = find(rows, part="grpo", op="grpo", world=world, through="direct", who="libtrain")
        beside = ratio = ""
        if d and through != "direct":
            beside = f"direct {d['step_s']:.2f} s"
            ratio = f"{d['step_s'] / r['step_s']:.2f}"
        if t and through == "direct":
            rate = t["completions"] / t["step_s"]
            beside = f"PyTorch {rate:.1f} a second, {t['step_s']:.2f} s"
            ratio = f"{r['completions_s'] / rate:.2f}"
        out.append((f"grpo, {r['completions']} completions", world, through,
                    f"{r['completions_s']:.1f} a second, {r['step_s']:.2f} s (rollout "
                    f"{r['rollout_s']:.2f}, update {r['update_s']:.2f})", beside, ratio,
                    scaling(rows, "grpo", r, "completions_s", False), shares(seen)))
    return out


def copies(rows):
    out = []
    for through, world in keys(rows, "copies", ("copy_pair", "copies_at_once")):
        here = [r for r in rows if r.get("part") == "copies" and r["through"] == through
                and r["world"] == world]
        pairs = [r for r in here if r["op"] == "copy_pair"]
        probed = [r for r in here if r["op"] == "probe"]
        good = sum(r.get("verdict") == "good" for r in probed)
        if pairs:
            rate = sorted(r["gb_s"] for r in pairs)
            ratio = sorted(r["raw_ms"] / r["ms"] for r in pairs)
            raw = sorted(r["raw_ms"] for r in pairs)
            out.append((f"copy 256 MiB, {len(pairs)} ordered pairs, {good} of {len(probed)} "
                        "probed good", world, through,
                        f"{rate[0]:.0f} to {rate[-1]:.0f} GB/s, sums at both ends",
                        f"cudaMemcpyPeerAsync {raw[0]:.2f} to {raw[-1]:.2f} ms",
                        f"{ratio[0]:.2f} at least", "", ""))
        raw = find(here, op="copies_at_once", way="raw peer")
        for way in ("peer", "staged"):
            r = find(here, op="copies_at_once", way=way)
            if not r:
                continue
            beside = f"cudaMemcpyPeerAsync {raw['ms']:.2f} ms" if raw and way == "peer" else ""
            out.append((f"each GPU to the next at once, {way}", world, through,
                        f"{r['ms']:.2f} ms, {r['gb_s']:.0f} GB/s together", beside,
                        f"{raw['ms'] / r['ms']:.2f}" if beside else "",
                        f"one alone {r['one_ms']:.2f} ms", ""))
    for r in rows:
        if r.get("part") == "copies" and r.get("who") == "PyTorch" and "ms" in r:
            out.append((f"PyTorch: {r['op']}", r["world"], r["through"], "",
                        f"{r['ms']:.2f} ms, {r['gbps']:.1f} GB/s" if "gbps" in r else
                        f"{r['ms']:.2f} ms", "", "", ""))
    return out


def failures(rows):
    out = []
    for r in rows:
        if r.get("op") != "failed":
            continue
        what = dict(part=r["part"], through=r["through"], world=r["world"], who=r["who"])
        if not any(q.get("op") != "failed" and all(q.get(k) == v for k, v in what.items())
                   for q in rows):
            out.append(f"failed: {r['part']}, {r['world']} ranks, {r['through']}, {r['who']}: "
                       f"{r['why']}")
    return out


HEAD = ("what", "GPUs", "through", "ours", "beside, same run", "ratio", "scaling", "limits")


def table(rows):
    """Markdown; below it what failed and was not measured by another run."""
    host = find(rows, op="host")
    lines = groups(rows)
    for part in ("weak-1b", "weak-3b", "strong-350m", "8b"):
        lines += train(rows, part)
    lines += grpo(rows) + copies(rows)
    text = [""]
    if host:
        text.append(f"{host['date']}, {host['gpus']} x {host['card']}")
        text.append("")
    text.append("| " + " | ".join(HEAD) + " |")
    text.append("|" + "---|" * len(HEAD))
    for line in lines:
        text.append("| " + " | ".join(str(c) for c in line) + " |")
    if not lines:
        text.append("nothing was measured")
    return "\n".join(text + failures(rows))
