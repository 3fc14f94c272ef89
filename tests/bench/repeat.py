#!/usr/bin/env python3
"""Does a sweep agree with itself? repeat.py PREFIX OUT_FOLDER

Sweeps each key five times (same candidates, other inputs) and counts, over all pairs of an earlier and a later
sweep, how often the later winner lies in the earlier one's tie set (its winner and what cannot be told apart
from it). Prints a line per key and writes OUT_FOLDER/repeat.json.
"""
import json
import os
import sys

from daemon import Daemon
from figures import SPACE_270

KEYS = [("gemm", shape, SPACE_270) for shape in (
    "M=1024,N=1024,K=1024", "M=2048,N=2048,K=2048", "M=1000,N=1000,K=1000", "M=128,N=4096,K=4096",
    "M=4096,N=4096,K=64", "M=64,N=64,K=16384")]
KEYS += [("transpose", shape, ["--strategy", "exhaustive"]) for shape in (
    "M=1024,N=1024", "M=4096,N=4096", "M=8192,N=8192")]
KEYS += [("reduce", shape, ["--strategy", "random", "--budget", "evals=200"]) for shape in (
    "N=1048576", "N=16777216", "N=268435456")]
ROUNDS = 5


def main():
    prefix, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    report, hits, pairs = [], 0, 0
    with Daemon(prefix) as daemon:
        daemon.devices()
        for kernel, shape, words in KEYS:
            sets, winners, times = [], [], []
            for _ in range(ROUNDS):
                result = daemon.sweep(kernel, "--shape", shape, "--seed", "1", *words)
                best = result["best"]
                winners.append(json.dumps(best["config"], sort_keys=True))
                sets.append({winners[-1]} | {json.dumps(t["config"], sort_keys=True) for t in best["ties"]})
                times.append(best["median_ns"])
            inside = [winners[j] in sets[i] for i in range(ROUNDS) for j in range(i + 1, ROUNDS)]
            hits, pairs = hits + sum(inside), pairs + len(inside)
            spread = max(times) / min(times) - 1
            print(f"{kernel:<10} {shape:<24} {sum(inside):>2} of {len(inside)}  ties "
                  f"{[len(s) - 1 for s in sets]}  best {min(times) / 1e3:.1f} us, spread {spread:.2%}", flush=True)
            report.append({"kernel": kernel, "shape": shape, "inside": sum(inside), "pairs": len(inside),
                           "tie_sizes": [len(s) - 1 for s in sets], "medians_ns": times})
    print(f"{hits} of {pairs} = {hits / pairs:.1%} inside the earlier tie set (>= 95 %)")
    os.makedirs(out, exist_ok=True)
    with open(out + "/repeat.json", "w") as file:
        json.dump({"keys": report, "hits": hits, "pairs": pairs}, file, indent=1)


if __name__ == "__main__":
    main()
