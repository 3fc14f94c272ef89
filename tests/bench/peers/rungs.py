#!/usr/bin/env python3
"""What each rung of a kernel's ladder gains: rungs.py PREFIX OUT [KERNEL...]

PREFIX is an installed tree. For the shapes below each value of VARIANT (and of what else is a rung) is swept
by itself, SECONDS each, and the best of each is put beside the first. Prints a table and writes OUT/rungs.json.
"""
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from daemon import Daemon  # noqa: E402

SECONDS = 0.5
# A shape with a ':' in it names an input, from which the shape follows.
SHAPES = {
    "transpose": ("f32", "M=8192,N=8192"), "reduce": ("f32", "N=268435456"), "scan": ("f32", "N=268435456"),
    "segmented_scan": ("f32", "N=268435456"), "compact": ("f32", "N=268435456"),
    "histogram": ("u8", "N=1073741824,BINS=256"), "merge": ("u32", "A=67108864,B=67108864"),
    "radix_sort": ("u32", "N=268435456"), "conv1d": ("f32", "N=67108864,K=9"),
    "conv2d": ("f32", "H=4096,W=4096,K=17"), "conv_separable": ("f32", "H=4096,W=4096,K=17"),
    "conv_channels": ("f32", "C_IN=256,C_OUT=256,H=56,W=56,K=3"), "stencil2d": ("f32", "H=8192,W=8192,STEPS=4"),
    "stencil3d": ("f32", "D=512,H=512,W=512,POINTS=7,STEPS=1"), "softmax": ("f32", "M=16384,N=4096"),
    "layernorm": ("f32", "M=16384,N=4096"), "add": ("f32", "N=268435456"), "saxpy": ("f32", "N=268435456"),
    "rgb_to_grey": ("u8", "N=268435456"), "aos_to_soa": ("f32", "N=268435456,FIELDS=4"),
    "spmv": ("f32", "random:rows=1048576,per_row=32"), "bfs": ("i32", "rmat:scale=20,degree=16"),
}
# Rungs that are no value of VARIANT, or that another shape shows.
FURTHER = {
    "transpose": [("f32", "M=8192,N=8192", ["VARIANT=tiled", "LAYOUT=" + layout]) for layout in ("none", "pad", "xor")],
    "histogram": [("u8", "N=1073741824,BINS=256,INPUT=equal", None)],
    "stencil3d": [("f32", "D=512,H=512,W=512,POINTS=7,STEPS=4", None),
                  ("f32", "D=512,H=512,W=512,POINTS=25,STEPS=1", None)],
    "softmax": [("f32", "M=1024,N=65536", None)], "layernorm": [("f32", "M=1024,N=65536", None)],
    "bfs": [("i32", "grid:side=1024", None)],
}


def code_of(manifest, name, word):
    """A param's value as records have it."""
    values = next(p["values"] for p in manifest["params"] if p["name"] == name)
    return next(v["value"] if isinstance(v, dict) else v for v in values
                if word in (str(v), isinstance(v, dict) and v["name"]))


def sweep(daemon, manifest, dtype, shape, params):
    """The best of one rung. A sweep also measures the kernel's default, which need not stand on this rung: the
    rows tell."""
    kernel = manifest["name"]
    words = [word for param in params for word in ("--param", param)]
    what = "--input" if ":" in shape else "--shape"
    result = daemon.ctl("sweep", kernel, "--dtype", dtype, what, shape, *words, "--budget",
                        "evals=60,seconds=%g" % SECONDS, "--seed", "5", check=False)
    row = {"kernel": kernel, "dtype": dtype, "shape": shape, "rung": " ".join(params), "us": None, "config": None}
    if "counts" not in result:
        return {**row, "error": "not for this shape" if "no valid configuration" in str(result) else str(result)}
    wanted = {name: code_of(manifest, name, word) for name, word in (param.split("=") for param in params)}
    rows = [r for r in daemon.ctl("records", kernel) if r["outcome"] == "ok" and r["dtype"] == dtype
            and r["shape"] == result["shape"] and wanted.items() <= r["config"].items()]
    if not rows:
        return {**row, "error": "measured nothing"}
    best = min(rows, key=lambda r: r["median_ns"])
    return {**row, "us": best["median_ns"] / 1e3, "config": best["config"], "measured": len(rows), "error": None}


def rungs_of(manifest):
    values = next(p["values"] for p in manifest["params"] if p["name"] == "VARIANT")
    return [["VARIANT=%s" % (v["name"] if isinstance(v, dict) else v)] for v in values]


def main():
    prefix, out, kernels = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    rows = []
    with Daemon(prefix) as daemon:
        daemon.devices()
        for kernel, (dtype, shape) in SHAPES.items():
            if kernels and kernel not in kernels:
                continue
            manifest = daemon.ctl("describe", kernel)
            ladder = rungs_of(manifest)
            asked = [(dtype, shape, params) for params in ladder]
            for other_dtype, other_shape, params in FURTHER.get(kernel, []):
                asked += [(other_dtype, other_shape, p) for p in ([params] if params else ladder)]
            for row in asked:
                rows.append(sweep(daemon, manifest, *row))
                first = next(r for r in rows if (r["kernel"], r["shape"]) == (kernel, row[1]))
                gain = first["us"] / rows[-1]["us"] if first["us"] and rows[-1]["us"] else 0
                print("%-15s %-4s %-40s %-32s %10.1f us  x%.2f %s" % (
                    kernel, row[0], row[1], rows[-1]["rung"], rows[-1]["us"] or 0, gain,
                    rows[-1]["error"] or ""), flush=True)
        device = daemon.devices()[0]
    with open(out + "/rungs.json", "w") as file:
        json.dump({"gpu": device["name"], "date": time.strftime("%Y-%m-%d"), "seconds": SECONDS, "rows": rows}, file, indent=1)


main()
