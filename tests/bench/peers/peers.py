#!/usr/bin/env python3
"""Served kernels beside the vendor's libraries: peers.py PREFIX OUT [--db FOLDER] [KERNEL...]

PREFIX is an installed tree; --db a database that has been swept (it is copied), else the shipped records
answer. In one process, under one timer: our package, asked from the daemon as any client asks, the vendor's
call (cuBLAS, CUB, cuSPARSE, PyTorch, cuDNN) and a device copy of the same bytes, in turns, 25 rounds. Each launch
begins with a cold L2: 512 MB are written before it, as often as the GPU needs to be busy until the host has
queued what is timed (rounds in which the host was late all the same are done again).

Prints a table and writes OUT/peers.json. A ratio is the vendor's time by ours, the median over the rounds,
with the interval of order statistics that holds it in 95 of 100 cases.
"""
import ctypes
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "client", "python"))
import torch  # noqa: E402

import rows  # noqa: E402
import tunerd  # noqa: E402
from daemon import Daemon, words_of  # noqa: E402

ROUNDS = 25
RANKS = (7, 17)  # of 25 sorted values, from 0: the median's 95 % interval
FLUSH_BYTES = 512 << 20


class Vendor:
    """cuBLAS, CUB and cuSPARSE through vendor.cu, built into OUT; `prefix` is for peers that are packages of
    ours."""

    def __init__(self, out, prefix):
        self.prefix = prefix
        library = out + "/libvendor.so"
        subprocess.run(["nvcc", "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC",
                        HERE + "/vendor.cu", "-o", library, "-lcublas", "-lcusparse"], check=True)
        self._call = ctypes.CDLL(library).vendor_call

    def prepare(self, op, arrays, sizes):
        """A function that calls `op`; its scratch is allocated here."""
        pointers = (ctypes.c_void_p * len(arrays))(*(a.data_ptr() for a in arrays))
        numbers = (ctypes.c_longlong * len(sizes))(*sizes)
        need = ctypes.c_size_t(0)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        name = op.encode()
        self._must(op, self._call(name, pointers, numbers, None, ctypes.byref(need), stream))
        scratch = torch.empty(need.value + 16, dtype=torch.uint8, device="cuda")
        place = ctypes.c_void_p(scratch.data_ptr())

        def run(keep=(scratch, arrays)):
            del keep
            self._must(op, self._call(name, pointers, numbers, place, ctypes.byref(need), stream))
        return run

    @staticmethod
    def _must(op, status):
        if status != 0:
            raise RuntimeError("%s: error %d of the vendor's library" % (op, status))


flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")


def time_once(function, flushes):
    """Microseconds on the GPU; None when the host was late."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(flushes):
        flush.zero_()
    begin.record()
    function()
    end.record()
    was_late = begin.query()
    end.synchronize()
    return None if was_late else 1e3 * begin.elapsed_time(end)


def flushes_for(functions):
    """How often the L2 is flushed before a launch so that the host is ahead of the GPU with all of them."""
    for flushes in (1, 2, 4, 8, 16, 32):
        if all(time_once(function, flushes) is not None for _ in range(3) for function in functions):
            return flushes
    raise RuntimeError("the host is always late: this machine is too busy to measure on")


def time_all(functions):
    """Microseconds by name, ROUNDS of each, in turns; how many rounds were done again."""
    for function in functions.values():
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    flushes = flushes_for(functions.values())
    times = {name: [] for name in functions}
    again = 0
    while len(next(iter(times.values()))) < ROUNDS:
        found = {name: time_once(function, flushes) for name, function in functions.items()}
        if None not in found.values():
            for name, value in found.items():
                times[name].append(value)
            continue
        again += 1
        if again == 10 * ROUNDS:
            raise RuntimeError("the host is late too often: this machine is too busy to measure on")
    return times, again


def median(values):
    return sorted(values)[len(values) // 2]


def interval(values):
    ordered = sorted(values)
    return [ordered[RANKS[0]], ordered[RANKS[1]]]


def ratios(ours, theirs):
    return [b / a for a, b in zip(ours, theirs)]


def copier(size):
    """A device copy that reads and writes `size` bytes in all."""
    source = torch.empty(size // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def package(client, row, tensors):
    """A function that launches what the daemon serves for a row, and the daemon's answer."""
    kernel = tunerd.Kernel(client, row.kernel, dtype=row.dtype)
    buffers = {b["name"]: b for b in client.describe(row.kernel)["buffers"]}
    inputs = [tensors[name] for name, b in buffers.items() if b["role"] in ("in", "inout")]
    out = {name: tensors[name] for name, b in buffers.items() if b["role"] == "out"}

    def ours():
        kernel(*inputs, out=out, dims=row.dims)
    return ours, kernel.answer(*inputs, dims=row.dims)


def measure(client, vendor, row):
    tensors = row.tensors()
    ours, answer = package(client, row, tensors)
    functions = {"ours": ours, "copy": copier(row.bytes)}
    for name, peer in row.peers(vendor, tensors).items():
        functions[name] = peer
    row.check(ours, functions, tensors)
    times, again = time_all(functions)
    result = {"kernel": row.kernel, "dims": row.dims, "dtype": row.dtype, "bytes": row.bytes,
              "origin": answer["origin"], "config": answer["config"], "rounds_again": again,
              "us": {name: median(values) for name, values in times.items()},
              "interval_us": {name: interval(values) for name, values in times.items()}, "ratio": {}}
    for name, values in times.items():
        if name != "ours":
            pairs = ratios(times["ours"], values)
            result["ratio"][name] = {"median": median(pairs), "interval": interval(pairs)}
    result["goals"] = [{"text": text, "wanted": wanted, "reached": reached}
                       for text, wanted, reached in row.goals(result)]
    return result


def line_of(result):
    shape = ",".join("%s=%s" % item for item in result["dims"].items())
    words = ["%-15s %-34s %-4s %9.1f us %6.0f GB/s" % (
        result["kernel"], shape, result["dtype"], result["us"]["ours"],
        result["bytes"] / result["us"]["ours"] * 1e-3)]
    for name, ratio in result["ratio"].items():
        words.append("%s %.1f us x%.3f [%.3f %.3f]" % (
            name, result["us"][name], ratio["median"], *ratio["interval"]))
    words += ["%s %s" % ("reached" if goal["reached"] else "MISSED", goal["text"]) for goal in result["goals"]]
    return "  ".join(words) + ("" if result["origin"] == "exact" else "  (%s)" % result["origin"])


def main():
    prefix, out, db, kernels = words_of(sys.argv[1:])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    vendor = Vendor(out, prefix)
    results, failed = [], 0
    begun = time.monotonic()
    with Daemon(prefix, db=db) as daemon:
        daemon.devices()
        client = tunerd.connect(daemon.socket)
        for row in rows.all_rows():
            if kernels and row.kernel not in kernels:
                continue
            try:
                results.append(measure(client, vendor, row))
                print(line_of(results[-1]), flush=True)
            except (RuntimeError, SystemExit, tunerd.Error) as error:  # a daemon's sweep ends with SystemExit
                failed += 1
                print("FAILED %s %s %s: %s" % (row.kernel, row.dims, row.dtype, error), flush=True)
            torch.cuda.empty_cache()
    report = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
              "date": time.strftime("%Y-%m-%d"), "rounds": ROUNDS, "flush_bytes": FLUSH_BYTES, "rows": results}
    with open(out + "/peers.json", "w") as file:
        json.dump(report, file, indent=1)
    missed = sum(not goal["reached"] for row in results for goal in row["goals"])
    print("%d rows in %.0f s, %d failed, %d goals missed" % (len(results), time.monotonic() - begun, failed, missed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
