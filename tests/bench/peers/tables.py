#!/usr/bin/env python3
"""Puts results into the catalogue: tables.py PEERS.json RUNGS.json

Writes the section "On the H200" of each page in doc/catalogue anew, from what peers.py and rungs.py have
found. What a page says below its tables, from the line "What limits it" on, is left as it is.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PAGES = os.path.join(HERE, "..", "..", "..", "doc", "catalogue")
KERNELS = {
    "transpose": ["transpose"], "reduce": ["reduce"], "scan": ["scan", "segmented_scan", "compact"],
    "histogram": ["histogram"], "convolution": ["conv1d", "conv2d", "conv_separable", "conv_channels"],
    "stencil": ["stencil2d", "stencil3d"], "softmax": ["softmax"], "layernorm": ["layernorm"],
    "sort": ["merge", "radix_sort"], "spmv": ["spmv"], "bfs": ["bfs"], "elementwise": ["add", "saxpy", "rgb_to_grey", "aos_to_soa"],
}
NAMES = {"cublas": "cuBLAS", "cub": "CUB", "cudnn": "cuDNN", "torch": "PyTorch", "cusparse": "cuSPARSE",
         "cusparse_alg2": "cuSPARSE (CSR_ALG2)", "push": "push only", "copy": "device copy"}
HEADING = "## On the H200"
KEPT = "What limits it"


def power(value):
    """A large power of 2 as such."""
    number = int(value) if str(value).isdigit() else 0
    return "2^%d" % (number.bit_length() - 1) if number >= 1 << 20 and number & (number - 1) == 0 else str(value)


def shape_of(dims):
    return ", ".join("%s %s" % (name, power(value)) for name, value in dims.items())


def peer_line(row):
    vendor = min((name for name in row["ratio"] if name != "copy"), key=row["us"].get, default=None)
    cells = [row["kernel"], shape_of(row["dims"]), row["dtype"], "%.1f" % row["us"]["ours"],
             "%.0f" % (row["bytes"] / row["us"]["ours"] * 1e-3)]
    for name in (vendor, "copy"):
        if name is None:
            cells.append("")
            continue
        ratio = row["ratio"][name]
        cells.append("%s%.1f: %.3f (%.3f to %.3f)" % (
            NAMES[name] + " " if name != "copy" else "", row["us"][name], ratio["median"], *ratio["interval"]))
    cells.append("; ".join("%s%s" % (goal["text"], "" if goal["reached"] else " **missed**") for goal in row["goals"]))
    return "| " + " | ".join(cells) + " |"


def config_of(config):
    return " ".join("%s=%s" % item for item in config.items() if item[0] != "VARIANT") if config else ""


def rung_shape(text):
    """Dims, or the text of an input."""
    return text if ":" in text else shape_of(dict(part.split("=") for part in text.split(",")))


def rung_lines(rungs):
    first = {}
    for rung in rungs:
        key = (rung["kernel"], rung["dtype"], rung["shape"])
        first.setdefault(key, rung["us"])
        gain = "%.2f" % (first[key] / rung["us"]) if rung["us"] and first[key] else ""
        yield "| %s | %s | %s | %s | %s | %s |" % (
            rung["kernel"], rung_shape(rung["shape"]),
            rung["rung"].replace("VARIANT=", ""), "%.1f" % rung["us"] if rung["us"] else rung["error"], gain,
            config_of(rung["config"]))


def section(kernels, peers, rungs):
    rows = [row for row in peers["rows"] if row["kernel"] in kernels]
    climbed = [rung for rung in rungs["rows"] if rung["kernel"] in kernels]
    lines = [
        HEADING, "",
        "One %s, %s, CUDA %s, PyTorch %s, by `tests/bench/peers` ([how](README.md))." % (
            peers["gpu"], peers["date"], peers["cuda"], peers["torch"].partition("+")[0]), "",
        "| kernel | shape | type | µs | GB/s | vendor µs: × ours (95 %) | copy µs: × ours (95 %) | wanted |",
        "|---|---|---|---|---|---|---|---|", *map(peer_line, rows), ""]
    if climbed:
        lines += ["What each rung gains, each swept by itself for %g s:" % rungs["seconds"], "",
                  "| kernel | shape | rung | µs | × the first | its best configuration |", "|---|---|---|---|---|---|",
                  *rung_lines(climbed), ""]
    return "\n".join(lines)


def main():
    with open(sys.argv[1]) as file:
        peers = json.load(file)
    with open(sys.argv[2]) as file:
        rungs = json.load(file)
    for page, kernels in KERNELS.items():
        path = os.path.join(PAGES, page + ".md")
        with open(path) as file:
            before, _, after = file.read().partition(HEADING)
        kept = after[after.index(KEPT):] if KEPT in after else KEPT + ": not looked into.\n"
        with open(path, "w") as file:
            file.write(before + section(kernels, peers, rungs) + "\n" + kept)


main()
