#!/usr/bin/env python3
"""The Python client on a GPU: python_suite.py PREFIX OUT_FOLDER    exit status 77: no GPU or no PyTorch here

PREFIX is an installed tree. Starts a daemon, sweeps softmax for each shape and dtype through tunerd.Client,
runs the example that swaps it into a PyTorch program, checks special values against torch.softmax and
launches on CuPy arrays where CuPy is there. Prints a table and writes OUT_FOLDER/python.json. Two to three
minutes.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "client", "python"))
from daemon import Daemon  # noqa: E402
import tunerd  # noqa: E402

EXAMPLE = os.path.join(HERE, "..", "..", "client", "examples", "torch_softmax.py")
DTYPES = ("f32", "f16", "bf16")
SHAPES = ((4096, 1024), (8192, 8192), (65536, 128), (128, 131072))
SCORES = (131072, 2048)  # of the example's attention, in f16
BUDGET = {"evals": 120, "seconds": 8}  # of a shape

failures = []


def check(what, is_right, detail=""):
    print("%s %s %s" % ("ok    " if is_right else "FAILED", what, detail), flush=True)
    if not is_right:
        failures.append(what)


def sweep(client, dtype, shapes):
    """Sweeps the shapes of a dtype as one job; every candidate must be right."""
    begun = time.monotonic()
    progress = 0
    for event in client.sweep("softmax", [dict(zip("MN", shape)) for shape in shapes], dtype=dtype,
                              budget=BUDGET):
        progress += "results" not in event
    results = event.get("results") or []
    check("sweep of %d shapes in %s" % (len(shapes), dtype),
          event["state"] == "done" and len(results) == len(shapes) and progress > 0,
          "in %.0f s, %d notes of progress" % (time.monotonic() - begun, progress))
    for result in results:
        bad = {k: v for k, v in result["counts"].items() if v and k != "ok"}
        check("%s %s" % (dtype, result["shape"]), result["best"] is not None and not bad,
              "%s %s" % (result["counts"]["ok"], bad or "ok"))
    return results


def run_example(daemon, folder):
    words = ["%dx%d:%s" % (*shape, dtype) for dtype in DTYPES for shape in SHAPES]
    path = os.path.join(folder, "torch_softmax.json")
    run = subprocess.run([sys.executable, EXAMPLE, "--socket", daemon.socket, "--json", path, *words])
    check("torch_softmax.py", run.returncode == 0, "status %d" % run.returncode)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def special_values(client):
    """NaN, infinities and rows of -inf come out as torch.softmax has them, short rows and long."""
    import torch
    kernel = tunerd.Kernel(client, "softmax")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for columns in (1, 31, 1024, 5000, 40000):
            x = torch.randn(6, columns, device="cuda", dtype=dtype)
            x[0, columns // 2] = float("nan")
            x[1, 0] = float("inf")
            x[2, :columns // 2] = float("-inf")
            x[3] = float("-inf")
            x[4] *= 1000
            y, expected = kernel(x).float(), torch.softmax(x, dim=-1).float()
            check("special values, %s, rows of %d" % (str(dtype)[6:], columns),
                  torch.allclose(y, expected, rtol=2e-2, atol=1e-6, equal_nan=True))


def on_a_stream_and_in_a_graph(client):
    """A kernel runs on the current stream, and can be recorded into a CUDA graph."""
    import torch
    kernel = tunerd.Kernel(client, "softmax")
    x, y = torch.randn(64, 1000, device="cuda"), torch.empty(64, 1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kernel(x, out=y)
    stream.synchronize()
    check("on a stream of one's own", torch.allclose(y, torch.softmax(x, -1), rtol=1e-5))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, out=y)
    x.copy_(torch.randn(64, 1000, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    check("in a graph", torch.allclose(y, torch.softmax(x, -1), rtol=1e-5))


def on_cupy(client):
    try:
        import cupy
    except ImportError:
        print("skipped CuPy: it is not installed")
        return
    from tunerd.cupy import raw_module
    x = cupy.random.standard_normal((64, 1000)).astype(cupy.float32)
    expected = cupy.exp(x) / cupy.exp(x).sum(axis=1, keepdims=True)
    check("on CuPy arrays", bool(cupy.allclose(tunerd.Kernel(client, "softmax")(x), expected, rtol=1e-4)))
    answer = client.get("softmax", {"M": 64, "N": 1000}, cubin=True)
    (launch,), y = answer["launches"], cupy.empty_like(x)
    raw_module(answer).get_function(answer["names"][launch["entry"]])(
        tuple(launch["grid"]), tuple(launch["block"]),
        (x, y, cupy.uint64(0), cupy.int64(64), cupy.int64(1000)), shared_mem=launch["shared_bytes"])
    check("as a RawModule", bool(cupy.allclose(y, expected, rtol=1e-4)))


def print_table(figures):
    print("\n%-8s %-14s %12s %12s %8s" % ("dtype", "shape", "tuned TB/s", "torch TB/s", "ratio"))
    for row in figures["softmax"]:
        print("%-8s %-14s %12.2f %12.2f %8.2f   %s %s"
              % (row["dtype"], "%dx%d" % (row["rows"], row["columns"]), row["tuned_tb_per_s"],
                 row["torch_tb_per_s"], row["gain"], row["origin"],
                 " ".join("%s=%s" % item for item in row["config"].items())))
    print("attention: %(gain).2f x as fast" % figures["attention"])
    print("host, per call: tuned %(tuned).1f us, torch %(torch).1f us" % figures["host_us"])


def wait_until_ready(client):
    limit = time.monotonic() + 30
    while not client.request("ping")["ready"] and time.monotonic() < limit:
        time.sleep(0.05)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: python_suite.py PREFIX OUT_FOLDER")
    prefix, folder = map(os.path.abspath, sys.argv[1:])
    try:
        import torch
        is_there = torch.cuda.is_available()
    except ImportError:
        is_there = False
    if not is_there:
        print("skipped: there is no GPU, or no PyTorch that can use it")
        sys.exit(77)
    os.makedirs(folder, exist_ok=True)
    with Daemon(prefix) as daemon, tunerd.Client(daemon.socket) as client:
        wait_until_ready(client)
        results = {dtype: sweep(client, dtype, SHAPES + ((SCORES,) if dtype == "f16" else ()))
                   for dtype in DTYPES}
        figures = run_example(daemon, folder)
        special_values(client)
        on_a_stream_and_in_a_graph(client)
        on_cupy(client)
        rows = client.records(kernel="softmax", limit=20000)
        check("records", len(rows) > 0 and all(row["kernel"] == "softmax" for row in rows),
              "%d rows" % len(rows))
    with open(os.path.join(folder, "python.json"), "w") as file:
        json.dump({"sweeps": results, "example": figures, "failures": failures}, file, indent=1)
    if figures:
        print_table(figures)
    print("%d failed" % len(failures) + "".join("\n  " + f for f in failures))
    sys.exit(1 if failures else 0)


main()
