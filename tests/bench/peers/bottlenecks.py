#!/usr/bin/env python3
"""What limits the served kernels, read off the counters: bottlenecks.py PREFIX OUT [--db FOLDER] [KERNEL...]

Launches each of peers.py's rows once under Nsight Compute, with a cold L2. Prints a line for each launch: its time, how
much of the DRAM's, L2's and L1's bandwidth and of the schedulers' issue slots it used, the share of warp slots that were
occupied, and what warps waited for most (cycles per issued instruction). Writes OUT/bottlenecks.json.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "counters"))
from counters import ncu  # noqa: E402
from daemon import words_of  # noqa: E402

SHARES = {
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "fma": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
STALLS = ("long_scoreboard", "short_scoreboard", "barrier", "membar", "sleeping", "lg_throttle", "mio_throttle", "wait",
          "math_pipe_throttle", "not_selected", "no_instruction", "branch_resolve", "dispatch_stall", "drain")
TIME, DRAM_BYTES = "gpu__time_duration.sum", "dram__bytes.sum"


def stall_metric(name):
    return "smsp__average_warps_issue_stalled_%s_per_issue_active.ratio" % name


def launch_rows(words):
    """What runs under the profiler: the launches to be counted, and to standard error a line for each row."""
    import torch
    import peers
    import tunerd
    prefix, kernels, db = words
    with peers.Daemon(prefix, db=db) as daemon:
        daemon.devices()
        client = tunerd.connect(daemon.socket)
        for row in peers.rows.all_rows():
            if kernels and row.kernel not in kernels:
                continue
            ours, answer = peers.package(client, row, row.tensors())
            ours()
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            ours()
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()
            kernels_launched = [launch["entry"] for launch in answer["launches"]
                                if "entry" in launch and not launch.get("once")]  # that was done by the first call
            with open(os.environ["BOTTLENECK_ROWS"], "a") as file:
                print(json.dumps({"kernel": row.kernel, "dims": row.dims, "dtype": row.dtype, "origin": answer["origin"],
                                  "config": answer["config"], "entries": kernels_launched}), file=file)
            torch.cuda.empty_cache()


def line_of(row, launch):
    shape = ",".join("%s=%s" % item for item in row["dims"].items())
    shares = " ".join("%s %.0f%%" % (name, launch["percent"][name]) for name in SHARES)
    waits = ", ".join("%s %.1f" % item for item in launch["stalls"][:3])
    return "%-15s %-34s %-4s %-16s %9.1f us  %s  waits: %s" % (
        row["kernel"], shape, row["dtype"], launch["entry"], launch["us"], shares, waits)


def launch_of(entry, counts):
    """As ncu gives it: nanoseconds or microseconds, by its own unit column, are nanoseconds in raw CSV."""
    stalls = {name: counts.get(stall_metric(name)) or 0.0 for name in STALLS}
    return {"entry": entry, "us": counts[TIME] / 1e3, "dram_bytes": counts[DRAM_BYTES],
            "percent": {name: counts.get(metric) or 0.0 for name, metric in SHARES.items()},
            "stalls": sorted(stalls.items(), key=lambda item: -item[1])}


def main():
    prefix, out, db, kernels = words_of(sys.argv[1:])
    rows_file = out + "/bottleneck_rows.jsonl"
    if "BOTTLENECK_ROWS" in os.environ:
        launch_rows((prefix, kernels, db))
        return
    begun = time.monotonic()
    os.environ["BOTTLENECK_ROWS"] = rows_file
    open(rows_file, "w").close()
    metrics = [TIME, DRAM_BYTES, *SHARES.values(), *map(stall_metric, STALLS)]
    counted = iter(ncu(metrics, "--profile-from-start", "off", "--print-units", "base", sys.executable,
                       os.path.abspath(__file__), prefix, out, *(["--db", db] if db else []), *kernels))
    with open(rows_file) as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        row["launches"] = []
        for entry in row.pop("entries"):
            counts = next(counted)
            while entry not in counts["kernel"]:
                counts = next(counted)
            row["launches"].append(launch_of(entry, counts))
            print(line_of(row, row["launches"][-1]), flush=True)
    with open(out + "/bottlenecks.json", "w") as file:
        json.dump({"date": time.strftime("%Y-%m-%d"), "rows": rows}, file, indent=1)
    print("%d rows in %.0f s" % (len(rows), time.monotonic() - begun))


if __name__ == "__main__":
    main()
