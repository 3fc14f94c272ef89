#!/usr/bin/env python3
"""What `tunectl explain` says beside what the hardware counts: counters.py PREFIX OUT_FOLDER    needs a GPU and ncu

PREFIX is an installed tree. Each configuration below is explained, and launched once under Nsight Compute. Compared
per kernel: sectors per request of global loads and stores, passes over the banks per access of shared loads and
stores, blocks per multiprocessor (with the driver's own calculator), occupancy. Then the passes of single accesses
(banks.cu) with the table of tests/explain_tests, if nvcc is there. Writes OUT_FOLDER/counters.json, prints a table, and
exits 1 if a ratio differs by more than 5 %. Two minutes.
"""
import csv
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(HERE + "/../../..")
sys.path.insert(0, HERE + "/..")
from daemon import Daemon  # noqa: E402

TILED = "VARIANT=tiled,BM=128,BN=128,BK=16,TM=8,TN=8,STAGES=2,SPLIT_K=1,UNROLL=16,MIN_BLOCKS=1"
NAIVE = "VARIANT=naive,BM=64,BN=64,BK=8,TM=4,TN=4,PAD=0,SWIZZLE=none,VEC=1,STAGES=1,SPLIT_K=1,UNROLL=8,MIN_BLOCKS=1"
CUBE, ODD = "M=1024,N=1024,K=1024", "M=1021,N=1019,K=1013"
CONFIGURATIONS = [("gemm", CUBE, config) for config in (
    NAIVE,
    TILED + ",PAD=0,SWIZZLE=none,VEC=4", TILED + ",PAD=1,SWIZZLE=none,VEC=4", TILED + ",PAD=4,SWIZZLE=none,VEC=4",
    TILED + ",PAD=0,SWIZZLE=xor,VEC=4", TILED + ",PAD=4,SWIZZLE=none,VEC=1", TILED + ",PAD=4,SWIZZLE=none,VEC=2",
    TILED.replace("BM=128,BN=128", "BM=64,BN=64").replace("STAGES=2,SPLIT_K=1", "STAGES=1,SPLIT_K=2")
    + ",PAD=4,SWIZZLE=none,VEC=4")]
CONFIGURATIONS += [("gemm", ODD, NAIVE), ("gemm", ODD, TILED + ",PAD=4,SWIZZLE=none,VEC=1")]
SQUARE, REST = "TILE_M=32,TILE_N=32,ROWS=8,VEC=1,PACK=1", "ORDER=rows,STREAM=none,MIN_BLOCKS=1"
CONFIGURATIONS += [("transpose", "M=4096,N=4096", config + "," + REST) for config in (
    "VARIANT=naive,TILE_M=32,TILE_N=32,ROWS=4,VEC=1,PACK=1,LAYOUT=none",
    *(f"VARIANT=tiled,{SQUARE},LAYOUT={layout}" for layout in ("none", "pad", "xor")),
    *(f"VARIANT=tiled,TILE_M=64,TILE_N=64,ROWS=8,VEC=4,PACK=1,LAYOUT={layout}" for layout in ("none", "pad", "xor")))]
CONFIGURATIONS += [("transpose", "M=4095,N=4095", f"VARIANT=tiled,{SQUARE},LAYOUT=xor,{REST}")]
CONFIGURATIONS += [("reduce", "N=16777216", f"VARIANT={variant},BLOCK=256,ITEMS=8,VEC=4,BLOCKS_PER_SM=8,"
                    "WALK=strided,LOAD=cached,MIN_BLOCKS=1")
                   for variant in ("interleaved", "sequential", "shuffle", "shuffle_atomic")]
TOLERANCE = 0.05

# What is compared: name, how the counters say it, and which rows of an explanation say it with which field.
COUNTED = {
    "global load": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
                    "global", "load", "sectors_per_request"),
    "global store": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
                     "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "global", "store", "sectors_per_request"),
    "shared load": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
                    "smsp__inst_executed_op_shared_ld.sum", "shared", "load", "wavefronts_per_request"),
    "shared store": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
                     "smsp__inst_executed_op_shared_st.sum", "shared", "store", "wavefronts_per_request"),
}
# The passes above are counted per instruction. Those that the pipe counts for the whole kernel contain its waits for
# others' turns as well; they are kept beside.
BYTES = {"shared load": "smsp__sass_data_bytes_mem_shared_op_ld.sum",
         "shared store": "smsp__sass_data_bytes_mem_shared_op_st.sum"}
PIPE = {"shared load": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "shared store": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}
THEORETICAL, ACHIEVED = "sm__maximum_warps_per_active_cycle_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"
METRICS = sorted({name for row in COUNTED.values() for name in row[:2]} | set(BYTES.values()) | set(PIPE.values())
                 | {THEORETICAL, ACHIEVED})


def ncu(metrics, *command):
    """[{"kernel", metric: value}] in the order of the launches."""
    run = subprocess.run(["ncu", "--csv", "--metrics", ",".join(metrics), *command], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    launches = {}
    for row in csv.reader(run.stdout.splitlines()):
        if len(row) < 15 or not row[0].isdigit():
            continue
        launch = launches.setdefault(int(row[0]), {"kernel": row[4]})
        value = row[14].replace(",", "")
        launch[row[12]] = float(value) if re.fullmatch(r"-?[0-9.]+(e[+-]?\d+)?", value) else None
    if run.returncode != 0 or "returned an error code" in run.stdout or not launches:
        said = [line for line in run.stdout.splitlines() if not line.startswith('"')]
        raise SystemExit("ncu ended with %d, %d launches counted:\n%s" % (
            run.returncode, len(launches), "\n".join(said[-40:])))
    return [launches[i] for i in sorted(launches)]


def explanations(daemon, out):
    specs = []
    for number, (kernel, shape, config) in enumerate(CONFIGURATIONS):
        cubin = f"{out}/{number}.cubin"
        said = daemon.ctl("explain", kernel, "--shape", shape, "--config", config, "--cubin", cubin)
        specs.append({"kernel": kernel, "shape": shape, "config": config, "cubin": cubin, "said": said,
                      "names": said["names"], "launches": said["launches"], "buffers": said["buffers"]})
    return specs


def said_rows(said, entry, space, kind, field):
    return [row for row in said["accesses"] if row["entry"] == entry and row["space"] == space
            and row["kind"] == kind and not row.get("atomic") and row[field] is not None]


def said_ratio(rows, field):
    requests = sum(row["requests"] for row in rows)
    return sum(row["requests"] * row[field] for row in rows) / requests if requests else None


def said_bytes_per_pass(rows):
    passes = sum(row["requests"] * row["wavefronts_per_request"] for row in rows)
    return sum(row["requests"] * row["active_lanes"] * row["bytes"] for row in rows) / passes if passes else None


def ratio_row(ours, theirs):
    return {"explain": ours, "counted": theirs, "difference": ours / theirs - 1 if ours and theirs else None}


def compare_launch(spec, entry, counted):
    result = {}
    for what, (above, below, space, kind, field) in COUNTED.items():
        rows = said_rows(spec["said"], entry, space, kind, field)
        ours, theirs = said_ratio(rows, field), counted[above] / counted[below] if counted[below] else None
        if ours is None and theirs is None:
            continue
        result[what] = {**ratio_row(ours, theirs), "counted_requests": counted[below]}
        if what in BYTES and counted[above]:
            result[what]["pipe_passes"] = counted[PIPE[what]] / counted[below]
            result[what]["bytes_per_pass"] = ratio_row(said_bytes_per_pass(rows), counted[BYTES[what]] / counted[above])
    return result


def compare(specs, counted, told):
    rows, counted = [], iter(counted)
    for spec, launches in zip(specs, told):
        for number, launch in enumerate(launches):
            counts = next(counted)
            while launch["entry"] not in counts["kernel"]:
                counts = next(counted)  # a memset of the driver's
            row = {"kernel": spec["kernel"], "shape": spec["shape"], "config": spec["config"],
                   "entry": launch["entry"], "ratios": compare_launch(spec, launch["entry"], counts),
                   "achieved_percent": counts[ACHIEVED], "theoretical_percent": counts[THEORETICAL]}
            if number == 0:
                row["occupancy"] = spec["said"]["occupancy"]
                row["driver_blocks_per_sm"] = launch["blocks_per_sm"]
                row["driver_registers"], row["registers"] = launch["registers"], spec["said"]["registers"]
            rows.append(row)
    return rows


def short(config):
    return config.replace("VARIANT=", "").replace("UNROLL=16,", "").replace("MIN_BLOCKS=1,", "")


def differs(ratio):
    return ratio["difference"] is None or abs(ratio["difference"]) > TOLERANCE


def ratio_text(ratio):
    ours, theirs = (f"{x:8.3f}" if x else "       -" for x in (ratio["explain"], ratio["counted"]))
    difference = ratio["difference"]
    return f"{ours} {theirs} {f'{100 * difference:+6.1f}%' if difference is not None else '      -'}"


def show(rows):
    """Prints the table; the number of ratios that differ.

    Where the compiler predicates instead of branching, instructions count that no lane carries out: per access the
    counters then say less than one pass. The bytes of a pass do not depend on that, and are what is judged there."""
    wrong = 0
    print(f"{'kernel':<12} {'what':<12} {'explain':>8} {'counted':>8} {'differ':>7}   configuration; bytes per pass")
    for row in rows:
        for what, ratio in row["ratios"].items():
            each = ratio.get("bytes_per_pass")
            is_wrong = differs(ratio) and (each is None or differs(each))
            wrong += is_wrong
            print(f"{row['entry']:<12} {what:<12} {ratio_text(ratio)} {'!' if is_wrong else ' '} "
                  f"{short(row['config'])} {row['shape']}" + (f"; {ratio_text(each)}" if each else ""))
    return wrong


def show_occupancy(rows):
    wrong = 0
    print(f"\n{'kernel':<12} {'blocks/SM':>9} {'driver':>7} {'theoretical':>12} {'ncu':>7} {'achieved':>9}")
    for row in rows:
        if "occupancy" not in row:
            continue
        said = row["occupancy"]
        is_wrong = said["blocks_per_sm"] != row["driver_blocks_per_sm"] or row["registers"] != row["driver_registers"] \
            or abs(100 * said["fraction"] - row["theoretical_percent"]) > 0.1
        wrong += is_wrong
        print(f"{row['entry']:<12} {said['blocks_per_sm']:9} {row['driver_blocks_per_sm']:7} "
              f"{100 * said['fraction']:11.1f}% {row['theoretical_percent']:6.1f}% {row['achieved_percent']:8.1f}% "
              f"{'!' if is_wrong else ' '} {short(row['config'])} {row['shape']}")
    return wrong


def check_banks(out):
    """Single accesses: how many of the table's rows are counted otherwise."""
    table = open(ROOT + "/tests/explain_tests/h200_wavefronts.h").read()
    rows = [[int(x) for x in re.findall(r"\d+", row)] for row in re.findall(r"\{(\d+, \d+, \d+,\s*\{[^}]*\})\}", table)]
    subprocess.run(["nvcc", "-arch=native", "-I", ROOT, "-o", out + "/banks", HERE + "/banks.cu"], check=True)
    counted = ncu(METRICS, out + "/banks")
    wrong = 0
    for number, row in enumerate(rows):
        for offset, what in enumerate(("shared load", "shared store")):
            above, below = COUNTED[what][:2]
            counts = counted[2 * number + offset]
            wrong += counts[above] / counts[below] != row[1 + offset]
    print(f"\n{2 * len(rows)} single accesses to shared memory: {wrong} differ from the table")
    return wrong


def main():
    prefix, out = (os.path.abspath(word) for word in sys.argv[1:3])
    if not os.path.exists("/dev/nvidiactl") or not shutil.which("ncu"):
        print("skipped: there is no GPU on this machine, or no ncu")
        sys.exit(77)
    os.makedirs(out, exist_ok=True)
    with Daemon(prefix) as daemon:
        specs = explanations(daemon, out)
        device = daemon.devices()[0]["name"]
    with open(out + "/specs.json", "w") as file:
        json.dump(specs, file)
    counted = ncu(METRICS, sys.executable, HERE + "/launch.py", out + "/specs.json")
    rows = compare(specs, counted, json.load(open(out + "/specs.json.told")))
    print(device)
    wrong = show(rows) + show_occupancy(rows)
    if shutil.which("nvcc"):
        wrong += check_banks(out)
    with open(out + "/counters.json", "w") as file:
        json.dump({"device": device, "rows": rows, "words": [spec["said"]["words"] for spec in specs]}, file, indent=1)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
