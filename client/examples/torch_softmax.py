#!/usr/bin/env python3
"""Swaps a tuned softmax into a PyTorch program and shows what it gains.

    pip install client/python           # or PYTHONPATH=/usr/local/share/tunerd/python
    tunectl sweep softmax --shape M=131072,N=2048 --dtype f16
    python3 torch_softmax.py            # or: torch_softmax.py 8192x8192:f32 128x131072:bf16

The program is an attention layer whose scores go through torch.softmax, or through tunerd's. Both must
give the same result within the type's rounding. Then the two softmaxes are timed on the layer's scores and
on the shapes ROWSxCOLUMNS:DTYPE given: by CUDA events, the L2 cache flushed before each launch, the two in
turns, medians. Without a tuned configuration for a shape the daemon serves the best it knows for another, or
the default; --sweep tunes them first.

A kernel of tunerd has no backward pass: this is for inference.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import tunerd

try:
    import torch
except ImportError as problem:
    sys.exit("this example needs PyTorch: %s" % problem)

#: what two correct softmaxes may differ by, relative to the value: several units of rounding
TOLERANCE = {"f32": 1e-5, "f16": 4e-3, "bf16": 4e-2}
DENORMAL = 6e-8  # a unit of f16 below 2^-14
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Attention(torch.nn.Module):
    """Attention over [batch][heads][length][width]; `softmax` takes scores [...][length] to weights."""

    def __init__(self, softmax):
        super().__init__()
        self.softmax = softmax

    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        return self.softmax(scores) @ value


def plain_softmax(x):
    return torch.softmax(x, dim=-1)


# --- measuring ------------------------------------------------------------------------------------


def medians_us(functions, flush, launches):
    """Of each function, called in turns; the L2 cache holds nothing of use before each call."""
    for function in functions * 3:
        function()
    times = [[] for _ in functions]
    for _ in range(launches):
        for number, function in enumerate(functions):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            begin.record()
            function()
            end.record()
            times[number].append((begin, end))
    torch.cuda.synchronize()
    return [statistics.median(1e3 * begin.elapsed_time(end) for begin, end in pairs)
            for pairs in times]


def host_us(function, calls=200):
    """What a call costs the calling thread; the GPU's queue stays shorter than it may get."""
    function()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        function()
    spent = time.perf_counter() - begun
    torch.cuda.synchronize()
    return 1e6 * spent / calls


def worst_ratio(y, x, dtype):
    """The largest error against double precision, as a part of what is allowed; rows in slices, since
    doubles of all would take much memory."""
    worst = 0.0
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1])
    step = max(1, (1 << 24) // x.shape[-1])
    for row in range(0, x.shape[0], step):
        exact = torch.softmax(x[row:row + step].double(), dim=-1)
        allowed = TOLERANCE[dtype] * exact + DENORMAL * (dtype == "f16")
        worst = max(worst, float(((y[row:row + step].double() - exact).abs() / allowed).max()))
    return worst


def compare(kernel, x, dtype, flush, launches):
    """A row of the table: both softmaxes of x."""
    x = x.reshape(-1, x.shape[-1])
    answer = kernel.answer(x)
    worst = worst_ratio(kernel(x), x, dtype)
    torch_us, tuned_us = medians_us([lambda: plain_softmax(x), lambda: kernel(x)], flush, launches)
    moved = 2 * x.numel() * x.element_size()
    return {"rows": x.shape[0], "columns": x.shape[1], "dtype": dtype, "origin": answer["origin"],
            "config": answer["config"], "torch_us": torch_us, "tuned_us": tuned_us,
            "torch_tb_per_s": moved / torch_us / 1e6, "tuned_tb_per_s": moved / tuned_us / 1e6,
            "gain": torch_us / tuned_us, "error_of_allowed": worst}


def print_row(row):
    print("%-20s %-11s %9.1f us %6.2f TB/s   torch %9.1f us %6.2f TB/s   gain %5.2f   %s"
          % ("%dx%d %s" % (row["rows"], row["columns"], row["dtype"]), row["origin"],
             row["tuned_us"], row["tuned_tb_per_s"], row["torch_us"], row["torch_tb_per_s"],
             row["gain"], "right" if row["error_of_allowed"] <= 1 else
             "WRONG: %.1f times the allowed error" % row["error_of_allowed"]), flush=True)


# --- the program ----------------------------------------------------------------------------------


def attention(kernel, sizes, dtype, flush, launches):
    """The layer both ways: that the results agree, and how long a forward pass takes."""
    batch, heads, length, width = sizes
    inputs = [torch.randn(batch, heads, length, width, device="cuda", dtype=TYPES[dtype])
              for _ in range(3)]
    plain, tuned = Attention(plain_softmax), Attention(kernel)
    expected, result = plain(*inputs), tuned(*inputs)
    difference = float((result.float() - expected.float()).norm() / expected.float().norm())
    torch_us, tuned_us = medians_us([lambda: plain(*inputs), lambda: tuned(*inputs)], flush, launches)
    print("attention %s %s: %.1f us, with torch.softmax %.1f us: %.2f x as fast; relative difference "
          "%.2g (allowed %.2g)" % ("x".join(map(str, sizes)), dtype, tuned_us, torch_us,
                                   torch_us / tuned_us, difference, TOLERANCE[dtype]), flush=True)
    return {"sizes": sizes, "dtype": dtype, "torch_us": torch_us, "tuned_us": tuned_us,
            "gain": torch_us / tuned_us, "difference": difference, "allowed": TOLERANCE[dtype]}


def sweep(client, rows, columns, dtype):
    for event in client.sweep("softmax", [{"M": rows, "N": columns}], dtype=dtype):
        done = event.get("total") and "%d of %d" % (event["done"], event["total"])
        print("\rtuning %dx%d %s: %s   " % (rows, columns, dtype, done or event["state"]), end="",
              file=sys.stderr, flush=True)
    print(file=sys.stderr)


def parse_shape(text):
    sizes, _, dtype = text.partition(":")
    rows, _, columns = sizes.partition("x")
    if not (rows.isdigit() and columns.isdigit() and dtype in TYPES):
        raise argparse.ArgumentTypeError("%s is not ROWSxCOLUMNS:DTYPE, such as 8192x8192:f16 (%s)"
                                         % (text, ", ".join(TYPES)))
    return int(rows), int(columns), dtype


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shapes", nargs="*", type=parse_shape, metavar="ROWSxCOLUMNS:DTYPE")
    parser.add_argument("--socket", help="the daemon's; else the usual one, and one is started")
    parser.add_argument("--sweep", action="store_true", help="tune the shapes first")
    parser.add_argument("--attention", default="4x16x2048x64", help="batch x heads x length x width")
    parser.add_argument("--dtype", default="f16", choices=list(TYPES), help="of the attention")
    parser.add_argument("--launches", type=int, default=50, help="timed, of each")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU that PyTorch can use")
    sizes = [int(size) for size in options.attention.split("x")]
    with tunerd.Client(options.socket, autostart=True) as client, torch.no_grad():
        scores = (sizes[0] * sizes[1] * sizes[2], sizes[2], options.dtype)
        shapes = options.shapes + [scores]
        if options.sweep:
            for shape in shapes:
                sweep(client, *shape)
        kernel = tunerd.Kernel(client, "softmax")
        # Twice 4 times the cache, and long enough that the host queues a call meanwhile.
        flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "attention": attention(kernel, sizes, options.dtype, flush, options.launches),
                  "softmax": []}
        for rows, columns, dtype in shapes:
            x = torch.randn(rows, columns, device="cuda", dtype=TYPES[dtype])
            result["softmax"].append(compare(kernel, x, dtype, flush, options.launches))
            print_row(result["softmax"][-1])
            del x
        x = torch.randn(64, 1024, device="cuda")
        result["host_us"] = {"torch": host_us(lambda: plain_softmax(x)),
                             "tuned": host_us(lambda: kernel(x))}
        print("a call costs the host %(tuned).1f us, torch.softmax %(torch).1f us" % result["host_us"])
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    is_right = (result["attention"]["difference"] <= result["attention"]["allowed"]
                and all(row["error_of_allowed"] <= 1 for row in result["softmax"]))
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    try:
        main()
    except tunerd.Error as error:
        sys.exit(str(error))
