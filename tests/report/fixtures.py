"""Models as `tunectl report` puts them into its page (client/tunectl/report.h), made up here, the
same at every run: ordinary ones, many configurations, few, none with a time, and hostile texts."""

import itertools
import math
import random

OUTCOMES = ["ok", "invalid", "compile_failed", "over_limits", "launch_failed", "wrong_result"]
REASONS = {
    "invalid": "BM must be a multiple of TM",
    "over_limits": "needs 98,304 bytes of shared memory, 49,152 allowed",
    "compile_failed": 'gemm.cu(88): error: static assertion failed with "BK must be a multiple of '
                      'VEC"',
    "wrong_result": "17 of 4,194,304 values differ, the worst by 0.31 at index 1029",
    "launch_failed": "too many resources requested for launch"}
SPACE = {"VARIANT": [0, 1, 2, 3], "BM": [16, 32, 64, 128, 256], "BN": [16, 32, 64, 128, 256],
         "BK": [8, 16, 32, 64], "TM": [1, 2, 4, 8], "TN": [1, 2, 4, 8], "PAD": [0, 1, 4],
         "VEC": [1, 2, 4], "STAGES": [1, 2, 3], "UNROLL": [1, 4, 16], "MIN_BLOCKS": [1, 2]}
MEANINGS = {"VARIANT": "which kernel", "BM": "rows of C per block", "BN": "columns of C per block",
            "BK": "depth of a tile", "TM": "rows of C per thread", "TN": "columns of C per thread"}
VARIANTS = {"0": "naive", "1": "tiled", "2": "double buffered", "3": "tensor"}
SIZES = [(1024, 1024, 1024), (4096, 4096, 4096), (1, 4096, 4096), (8192, 512, 64)]
BEGAN_MS = 1796083200000
COLUMNS = ["shape", "config", "outcome", "median_ns", "lo_ns", "hi_ns", "requested_bytes",
           "time_ms", "run", "confirmed", "registers", "spill_bytes", "shared_bytes", "detail",
           "stands"]


def cost_ns(names, config, flops, noise):
    """A landscape with a few parameters that matter, one valley, and noise."""
    at = dict(zip(names, config))
    slow = 1.0 + 2.5 * (at["VARIANT"] == 0) + 0.4 * (at["VARIANT"] == 1)
    slow *= 1 + 0.12 * (math.log2(at["BM"]) - 6.3) ** 2 + 0.08 * (math.log2(at["BN"]) - 7) ** 2
    slow *= 1 + 0.5 * (at["TM"] == 1) + 0.2 * (at["TN"] == 1) + 0.05 * abs(at["STAGES"] - 2)
    return 5000 + flops / 38e3 * slow * math.exp(noise.gauss(0, 0.06))


def add_row(rows, noise, shape, config, outcome, ns, run, confirmed, time_ms):
    is_ok = outcome == 0
    cells = [shape, config, outcome, ns if is_ok else None, ns * 0.99 if is_ok else None,
             ns * 1.012 if is_ok else None, noise.randrange(1, 64) * 1e7, time_ms, run, confirmed,
             noise.randrange(24, 200), noise.choice([0, 0, 0, 16]), noise.randrange(0, 49) * 1024,
             REASONS.get(OUTCOMES[outcome], ""), 0]
    for name, cell in zip(COLUMNS, cells):
        rows[name].append(cell)


def sweep(names, configs, sizes, noise):
    """The rows of one search and one confirmation per shape."""
    rows = {name: [] for name in COLUMNS}
    shapes, time_ms = [], 0
    for index, (m, n, k) in enumerate(sizes):
        flops, times = 2.0 * m * n * k, {}
        for config in noise.sample(range(len(configs)), len(configs)):
            outcome = noise.choices(range(6), [84, 3, 4, 6, 1, 2])[0]
            time_ms += noise.randrange(40, 900)
            ns = cost_ns(names, configs[config], flops, noise)
            add_row(rows, noise, index, config, outcome, ns, 2 * index, False, time_ms)
            if outcome == 0:
                times[config] = ns
        finalists = sorted(times, key=times.get)[:6]
        default = max(times, key=times.get)
        for config in [*finalists, default]:
            time_ms += 400
            add_row(rows, noise, index, config, 0, times[config], 2 * index + 1, True, time_ms)
        shapes.append({"shape": {"M": m, "N": n, "K": k}, "label": f"M={m} N={n} K={k}",
                       "flops": flops, "bytes": 4.0 * (m * k + k * n + m * n),
                       "best": finalists[0], "default": default, "ties": finalists[1:4],
                       "method": "event"})
    mark_standing(rows)
    return rows, shapes


def mark_standing(rows):
    """The last row of each configuration of a shape stands: here, the confirmed one."""
    last = {}
    for i, ns in enumerate(rows["median_ns"]):
        if ns is not None:
            last[rows["shape"][i], rows["config"][i]] = i
    for i in last.values():
        rows["stands"][i] = 1


def loss_of(rows, shapes):
    times = {}
    for shape, config, ns in zip(rows["shape"], rows["config"], rows["median_ns"]):
        if ns is not None:
            times[shape, config] = ns
    chosen = sorted({shape[role] for shape in shapes for role in ("best", "default")})
    matrix = [[times[i, c] / times[i, s["best"]] - 1 if (i, c) in times else None
               for i, s in enumerate(shapes)] for c in chosen]
    worst = [max((x for x in line if x is not None), default=0.0) for line in matrix]
    order = sorted(range(len(chosen)), key=lambda k: worst[k])
    mean = [math.exp(sum(math.log(1 + x) for x in line if x is not None)
                     / max(1, sum(x is not None for x in line))) - 1 for line in matrix]
    return {"configs": [chosen[k] for k in order], "matrix": [matrix[k] for k in order],
            "worst": [worst[k] for k in order], "mean": [mean[k] for k in order]}


def group(kernel="gemm", count=300, sizes=tuple(SIZES), seed=1, limits="measured", dtype="f32"):
    noise = random.Random(seed)
    names = list(SPACE)
    total = math.prod(len(values) for values in SPACE.values())
    every = itertools.product(*SPACE.values())
    wanted = set(noise.sample(range(total), count))
    configs = [list(config) for i, config in enumerate(every) if i in wanted]
    rows, shapes = sweep(names, configs, sizes, noise)
    shares = [0.41, 0.22, 0.09, 0.01, 0.06, 0.02, 0.0, 0.0, 0.004, 0.0, 0.0]
    importance = [{"shape": i, "rows": count, "shares": shares, "rest": 0.186}
                  for i in [None, *range(len(shapes))]]
    params = [{"name": name, "meaning": MEANINGS.get(name),
               "names": VARIANTS if name == "VARIANT" else {}} for name in names]
    known = {"dram_bytes_per_s": 4.1e12, "flops": 5.2e13, "from": limits} if limits else None
    count_ok = sum(ns is not None for ns in rows["median_ns"])
    return {"kernel": kernel, "dtype": dtype, "arch": "sm_90", "device": "NVIDIA H200",
            "mode": "cold", "fingerprint": f"{seed:032x}", "summary": "C = A B, row-major",
            "params": params, "limits": known, "shapes": shapes, "configs": configs, "rows": rows,
            "outcomes": OUTCOMES, "importance": importance, "loss": loss_of(rows, shapes),
            "runs": [f"j-{i:02x}/{part}" for i in range(len(shapes))
                     for part in ("search", "confirm")],
            "provenance": {"drivers": ["580.95"], "nvrtc": ["13.0"], "hosts": ["lab-1", "lab-2"],
                           "uuids": ["GPU-00000000-1111-2222-3333-444444444444"],
                           "first_unix_ms": BEGAN_MS,
                           "last_unix_ms": BEGAN_MS + rows["time_ms"][-1],
                           "rows": len(rows["shape"]), "ok": count_ok, "throttled": 3,
                           "set_aside": 12}}


def report(*groups):
    return {"tunerd": "1.0.0", "created_unix_ms": BEGAN_MS + 86400000, "from": "daemon",
            "groups": list(groups)}


def ordinary():
    """Three groups: one with everything, one without arithmetic, one without limits."""
    copy = group(kernel="transpose", count=60, sizes=[(4096, 4096, 1), (1000, 7000, 1)], seed=2)
    for shape in copy["shapes"]:
        shape["flops"] = 0
        shape["bytes"] = 1e7
    return report(group(), copy, group(kernel="softmax", count=80, seed=3, limits=None))


def many(count=20000):
    return report(group(count=count, sizes=[(4096, 4096, 4096)], seed=4))


def failures_only():
    made = group(count=20, sizes=[(64, 64, 64)], seed=5)
    rows = made["rows"]
    rows["outcome"] = [2] * len(rows["shape"])
    rows["median_ns"] = rows["lo_ns"] = rows["hi_ns"] = [None] * len(rows["shape"])
    made["shapes"][0].update(best=None, default=None, ties=[])
    made.update(importance=[], limits=None,
                loss={"configs": [], "matrix": [], "worst": [], "mean": []})
    made["provenance"]["ok"] = 0
    return report(made)


def one_row():
    """A single measurement of a single parameter, and as little known about it as may be."""
    made = group(count=9, sizes=[(64, 64, 64)], seed=6)
    at = made["rows"]["median_ns"].index(made["rows"]["median_ns"][-1])
    config = made["rows"]["config"][at]
    made["rows"] = {name: [column[at]] for name, column in made["rows"].items()}
    made["rows"].update(config=[0], stands=[1], lo_ns=[None], hi_ns=[None],
                        requested_bytes=[None], run=[0], registers=[None], spill_bytes=[None], shared_bytes=[None])
    made.update(configs=[made["configs"][config][:1]], params=made["params"][:1], importance=[],
                limits=None, summary=None)
    made["params"][0].update(meaning=None, names={})
    made["shapes"][0].update(best=0, default=None, ties=[], flops=0, bytes=0)
    made["rows"]["time_ms"] = [None]
    made["provenance"].update(first_unix_ms=None, last_unix_ms=None)
    made["loss"] = {"configs": [0], "matrix": [[0.0]], "worst": [0.0], "mean": [0.0]}
    return report(made)


HOSTILE = ['</script><script>window.broken = 1</script>', '<img src=x onerror="window.broken = 1">',
           '"><svg onload="window.broken=1">', "{b|rich} {a} {c} \u202eleft", "<!-- <script>"]


def hostile():
    """Foreign texts wherever there are texts."""
    made = group(count=40, seed=7)
    text = itertools.cycle(HOSTILE)
    for key in ("kernel", "dtype", "arch", "device", "mode", "fingerprint", "summary"):
        made[key] = next(text)
    for param in made["params"]:
        param.update(name=next(text), meaning=next(text), names={"1": next(text)})
    for shape in made["shapes"]:
        shape.update(label=next(text), method=next(text))
    made["rows"]["detail"] = [next(text) for _ in made["rows"]["shape"]]
    made["runs"] = [next(text) for _ in made["runs"]]
    made["outcomes"] = ["ok", *[next(text) for _ in OUTCOMES[1:]]]
    for key in ("drivers", "nvrtc", "hosts", "uuids"):
        made["provenance"][key] = [next(text), next(text)]
    made["limits"]["from"] = next(text)
    return dict(report(made), **{"tunerd": HOSTILE[0], "from": HOSTILE})
