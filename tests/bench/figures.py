#!/usr/bin/env python3
"""The figures tunerd is held to, measured in one go: figures.py PREFIX OUT_FOLDER [part ...]

PREFIX is an installed tree (cmake --install). Each part has a daemon, a socket and a database of its own, in a
temporary folder; NVRTC's disk cache is off. Prints a table and writes OUT_FOLDER/figures.json. Parts:
    cold     270 gemm configurations at 1024^3, the daemon started a moment before
    warm     the same with workers started and NVRTC loaded; then 1024x1024x512 with cached cubins
    gemm     gemm f32 at 4096^3      transpose   f32 at 8192^2      reduce   f32 sum of 2^28
    race     52 evaluations against all 270
    large    the same, and where the time of a large space goes
    gpus     one GPU against all equal ones
    faults   planted faults: what each costs, and when the next candidate was measured
"""
import json
import os
import sys
import tempfile
import time

from daemon import Daemon

HERE = os.path.dirname(os.path.abspath(__file__))
SPACE_270 = ["--strategy", "exhaustive"] + [
    word
    for text in ("BM=32,64,128", "BN=32,64,128", "BK=8,16,32", "TM=4,8", "TN=4,8", "PAD=0,1,4",
                 "VARIANT=tiled", "SWIZZLE=none", "VEC=1", "STAGES=1", "SPLIT_K=1", "UNROLL=8",
                 "MIN_BLOCKS=1")
    for word in ("--param", text)
]


RACE_SEEDS = ("1", "2", "3", "4", "5")


def plain_gemm(prefix, folder=[]):
    """A folder with gemm whose default is one of the 270: a kernel as its author first writes it. The shipped
    default is the best of all by far and lies outside of the 270; nothing would be left to find."""
    if not folder:
        folder.append(tempfile.TemporaryDirectory(prefix="tunerd-plain-"))
        with open(prefix + "/share/tunerd/plugins/gemm/gemm.json") as file:
            manifest = json.load(file)
        manifest["default"] = {"VARIANT": "tiled", "BM": 64, "BN": 64, "BK": 8, "TM": 4, "TN": 4, "PAD": 0,
                               "SWIZZLE": "none", "VEC": 1, "STAGES": 1, "SPLIT_K": 1, "UNROLL": 8, "MIN_BLOCKS": 1}
        os.makedirs(folder[0].name + "/gemm")
        with open(folder[0].name + "/gemm/gemm.json", "w") as file:
            json.dump(manifest, file)
    return folder[0].name


def line(what, value, target=""):
    print(f"{what:<58} {value:>24}   {target}", flush=True)


def tell_sweep(what, result, target=""):
    counts = {k: v for k, v in result["counts"].items() if v}
    timing = {k: round(v, 2) for k, v in result["timing"].items()}
    line(what, f"{result['client_wall_s']:.2f} s", f"{target}  {counts} {timing}")


def part_cold(prefix):
    with Daemon(prefix, plugins=plain_gemm(prefix)) as daemon:
        result = daemon.sweep("gemm", "--shape", "M=1024,N=1024,K=1024", *SPACE_270)
    tell_sweep("270 gemm configurations, daemon cold", result)
    return result


def part_warm(prefix):
    with Daemon(prefix, plugins=plain_gemm(prefix)) as daemon:
        daemon.sweep("reduce", "--shape", "N=1000003", "--strategy", "random", "--budget", "evals=64",
                     "--seed", "1")
        first = daemon.sweep("gemm", "--shape", "M=1024,N=1024,K=1024", *SPACE_270)
        second = daemon.sweep("gemm", "--shape", "M=1024,N=1024,K=512", *SPACE_270)
        log = open(daemon.log).read()
    tell_sweep("270 gemm configurations, daemon warm", first, "<= 10 s")
    line("  best", f"{first['best']['median_ns'] / 1e3:.1f} us", json.dumps(first["best"]["config"]))
    tell_sweep("then 1024x1024x512, cubins cached", second, "<= 2 s")
    return {"first": first, "second": second, "log": log[-3000:]}


def part_gemm(prefix):
    with Daemon(prefix) as daemon:
        result = daemon.sweep("gemm", "--shape", "M=4096,N=4096,K=4096", "--strategy", "random",
                              "--budget", "evals=1000,seconds=90", "--seed", "1")
    tell_sweep("gemm f32 4096^3 sweep", result)
    line("  best", f"{result['tflops']:.1f} TFLOP/s", ">= 38  " + json.dumps(result["best"]["config"]))
    return result


def part_transpose(prefix):
    with Daemon(prefix) as daemon:
        result = daemon.sweep("transpose", "--shape", "M=8192,N=8192")
    tell_sweep("transpose f32 8192^2 sweep", result)
    line("  best", f"{result['gbs'] / 1e3:.2f} TB/s", ">= 3.6  " + json.dumps(result["best"]["config"]))
    return result


def part_reduce(prefix):
    with Daemon(prefix) as daemon:
        result = daemon.sweep("reduce", "--shape", f"N={2 ** 28}")
    tell_sweep("reduce f32 sum of 2^28 sweep", result)
    line("  best", f"{result['gbs'] / 1e3:.2f} TB/s", ">= 4.2  " + json.dumps(result["best"]["config"]))
    return result


def race(prefix, with_large):
    """How soon the default strategy is within 3 % of the best of the 270, and how a large space keeps the GPU busy."""
    fixed = [word for word in SPACE_270 if word not in ("--strategy", "exhaustive")]
    shape = ["gemm", "--shape", "M=1024,N=1024,K=1024"]
    large = ["--param", "VARIANT=tiled", "--param", "STAGES=2", "--param", "SPLIT_K=1"]
    out = {}
    with Daemon(prefix, plugins=plain_gemm(prefix)) as daemon:
        daemon.devices()
        daemon.sweep("reduce", "--shape", "N=1000003", "--strategy", "random", "--budget", "evals=64",
                     "--seed", "1")
        for seed in RACE_SEEDS:
            with Daemon(prefix, plugins=plain_gemm(prefix)) as fresh:
                fresh.devices()
                fresh.sweep("transpose", "--shape", "M=64,N=64", "--budget", "evals=48")
                out["quick" + seed] = fresh.sweep(*shape, *fixed, "--budget", "evals=52", "--seed", seed)
        out["all"] = daemon.sweep(*shape, *SPACE_270)
        if with_large:
            out["large"] = daemon.sweep(*shape, *large, "--strategy", "exhaustive", "--budget", "evals=5000")
    best = out["all"]["best"]["median_ns"]
    for seed in RACE_SEEDS:
        result = out["quick" + seed]
        line(f"gemm 270, {result['strategy']}, 52 evaluations, seed {seed}", f"{result['client_wall_s']:.2f} s",
             f"<= 2 s  {result['best']['median_ns'] / best - 1:+.1%} of the exhaustive best (<= 3 %)")
    for name in ("all", "large") if with_large else ("all",):
        result, timing = out[name], out[name]["timing"]
        workers = os.cpu_count() - 1
        line(f"{result['evaluations']} of {result['space']} gemm configurations",
             f"{result['client_wall_s']:.1f} s",
             f"GPU busy {timing['bench_s'] / timing['search_s']:.0%}, "
             f"compilers busy {timing['compile_s'] / timing['search_s'] / workers:.0%}")
    return out


def part_race(prefix):
    return race(prefix, with_large=False)


def part_large(prefix):
    return race(prefix, with_large=True)


def part_gpus(prefix):
    """A bench-bound space (cubins cached) on one GPU and on all equal ones."""
    shape = ["gemm", "--shape", "M=2048,N=2048,K=2048", *SPACE_270]
    with Daemon(prefix, plugins=plain_gemm(prefix)) as daemon:
        count = len(daemon.devices())
        if count < 2:
            line("several GPUs", "skipped", "needs 2")
            return None
        daemon.sweep(*shape, "--budget", "evals=270")
        one = daemon.sweep(*shape, "--device", "0")
        all_of_them = daemon.sweep(*shape)
    rates = [r["evaluations"] / r["timing"]["search_s"] for r in (one, all_of_them)]
    line(f"270 gemm configurations at 2048^3, 1 and {count} GPUs",
         f"{rates[0]:.1f}, {rates[1]:.1f} /s", f"{rates[1] / rates[0]:.2f} x")
    return {"one": one, "all": all_of_them}


def part_faults(prefix):
    deadline_ms = 1000
    with Daemon(prefix, plugins=HERE + "/../gpu/plugins") as daemon:
        result = daemon.sweep("faults", "--strategy", "exhaustive", "--deadline-ms", str(deadline_ms))
        rows = daemon.ctl("records", "faults", "--limit", "1000")
    tell_sweep("planted faults", result)
    rows = sorted((r for r in rows if r["run"].endswith("/search")), key=lambda r: r["time"])
    gaps = {}
    for before, row in zip(rows, rows[1:]):
        if row["outcome"] in ("crashed", "timeout"):
            gaps.setdefault(row["outcome"] + " itself", []).append(row["time"] - before["time"])
        if before["outcome"] in ("crashed", "timeout") and row["outcome"] in ("ok", "wrong_result"):
            gaps.setdefault("next after " + before["outcome"], []).append(row["time"] - before["time"])
    for name, values in sorted(gaps.items()):
        target = {"timeout itself": f"<= {deadline_ms + 1000} ms", "next after crashed": "<= 1000 ms"}
        line(f"  {name}", f"{max(values)} ms at most", target.get(name, ""))
    return {"result": result, "gaps_ms": gaps}


PARTS = {name[5:]: function for name, function in list(globals().items()) if name.startswith("part_")}


def main():
    prefix, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    wanted = sys.argv[3:] or [name for name in PARTS if name not in ("large", "gpus")]
    os.makedirs(out, exist_ok=True)
    figures = {"date": time.strftime("%Y-%m-%d"), "parts": {}}
    with Daemon(prefix) as daemon:
        figures["devices"] = daemon.devices()
    for device in figures["devices"]:
        line(device["name"], device["arch"], f"driver {device['driver']}")
    for name in wanted:
        try:
            figures["parts"][name] = PARTS[name](prefix)
        except SystemExit as failure:
            print(f"{name} FAILED: {failure}")
        with open(out + "/figures.json", "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
