#!/usr/bin/env python3
"""What only a GPU can show: gpu_suite.py PREFIX [OUT_FOLDER [part or kernel ...]]    exit status 77: there is no GPU here

PREFIX is an installed tree or a build folder. Sweeps with verification on fresh random inputs:
    awkward     every kernel over shapes of 1, primes, tile +- 1, tall, flat
    huge        and of more than 2^31 elements, where 32-bit offsets would wrap (needs up to 80 GiB of device memory; the
                sparse matrix for spmv takes the host minutes to make)
    faults      every planted fault is named as what it is, and the sweep goes on
    memcheck, racecheck   one configuration of each variant under compute-sanitizer's memcheck and racecheck
"""
import glob
import itertools
import json
import os
import stat
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from daemon import Daemon  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {os.path.basename(path)[:-5]: json.load(open(path)) for path in
         sorted(glob.glob(os.path.join(HERE, "..", "kernels", "cases", "*.json")))}
WRAPPER = """#!/bin/sh
[ "$1" = bench ] || exec {worker} "$@"
trap '' TERM # the tool would die of it before its summary; the worker ends with its pipe
exec compute-sanitizer --tool {tool} --log-file {logs}/{tool}.%p.log --error-exitcode 9 {worker} "$@"
"""

PARTS = ("awkward", "huge", "faults", "memcheck", "racecheck")
failures = []


def check(what, is_right, detail=""):
    print(f"{'ok    ' if is_right else 'FAILED'} {what} {detail}", flush=True)
    if not is_right:
        failures.append(what)


def all_ok(result, spare=()):
    bad = {k: v for k, v in result.get("counts", {}).items() if v and k != "ok" and k not in spare}
    return result.get("best") is not None and not bad


def story(daemon, kernel, result):
    """The counts of a sweep, and where there is more to tell its notes and what failed why."""
    counts = result.get("counts")
    text = str({k: v for k, v in counts.items() if v} if counts else result.get("error", result))
    if not all_ok(result):
        rows = daemon.ctl("records", kernel, check=False)
        bad = [(row["shape"], row["config"], row["outcome"], row.get("error")) for row in rows
               if row["outcome"] != "ok"] if isinstance(rows, list) else rows
        text += " %s %s" % (result.get("messages"), bad)
    return text


def awkward(daemon, dtypes):
    for kernel, case in CASES.items():
        words = [word for shape in case["gpu"] for word in ("--shape", shape)]
        for dtype in dtypes[kernel]:
            results = daemon.ctl("sweep", kernel, *words, "--dtype", dtype, "--strategy", "random", "--budget",
                                 "evals=12,seconds=20", "--seed", "7", check=False)
            # A sweep that ended early has fewer results than shapes, or an error alone.
            results = results if isinstance(results, list) else [results]
            for shape, result in itertools.zip_longest(case["gpu"], results, fillvalue={}):
                check(f"{kernel} {dtype} {shape}", all_ok(result), story(daemon, kernel, result))


def huge(daemon):
    memory = daemon.devices()[0]["memory_bytes"]
    for kernel, case in CASES.items():
        shape, gib = case["huge"]["shape"], case["huge"]["gib"]
        if memory < gib << 30:
            print(f"skipped {kernel} {shape}: it needs {gib} GiB of device memory")
            continue
        result = daemon.ctl("sweep", kernel, "--shape", shape, "--dtype", case["huge"]["dtype"], "--strategy",
                            "random", "--budget", "evals=6", "--seed", "7", check=False)
        check(f"{kernel} {shape}", all_ok(result), story(daemon, kernel, result))


def faults(prefix):
    wanted = {"ok": 3, "invalid": 3, "compile_failed": 3, "over_limits": 3, "wrong_result": 6,
              "timeout": 3, "crashed": 3, "launch_failed": 0}
    with Daemon(prefix, plugins=HERE + "/plugins") as daemon:
        result = daemon.sweep("faults", "--strategy", "exhaustive", "--deadline-ms", "1000")
    check("each planted fault is named", result["counts"] == wanted, str(result["counts"]))


def complaints(report):
    """Lines of a report beside its head and a summary of nothing found."""
    harmless = ("COMPUTE-SANITIZER", "ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards")
    lines = [line.strip("= ") for line in report.splitlines()]
    return [line for line in lines if line and not line.startswith(harmless)]


def wrapped_worker(prefix, tool, logs):
    worker = prefix + "/libexec/tunerd/tune-worker"
    wrapper = logs + "/worker." + tool
    with open(wrapper, "w") as file:
        file.write(WRAPPER.format(worker=worker, tool=tool, logs=logs))
    os.chmod(wrapper, stat.S_IRWXU)
    return wrapper


def reports_of(tool, logs):
    return [open(name).read() for name in glob.glob(f"{logs}/{tool}.*.log")]


def sanitizer_control(prefix, logs):
    """The tool must see a planted illegal address, or its silence about the kernels means nothing."""
    os.makedirs(logs, exist_ok=True)
    with Daemon(prefix, plugins=HERE + "/plugins",
                env={"TUNE_WORKER": wrapped_worker(prefix, "memcheck", logs)}) as daemon:
        daemon.ctl("sweep", "faults", "--param", "MODE=illegal_address", "--budget", "evals=1",
                   "--deadline-ms", "120000", check=False)
    check("memcheck sees a planted illegal address",
          any("Invalid __global__ write" in line for r in reports_of("memcheck", logs)
              for line in complaints(r)))


def sanitizer(prefix, tool, logs):
    wrapper = wrapped_worker(prefix, tool, logs)
    with Daemon(prefix, env={"TUNE_WORKER": wrapper}) as daemon:
        for kernel, case in CASES.items():
            for variant in case["variants"]:
                result = daemon.ctl("sweep", kernel, "--shape", case["sanitizer"], "--param",
                                    f"VARIANT={variant}", "--strategy", "random", "--budget", "evals=1",
                                    "--seed", "3", "--deadline-ms", "120000", check=False)
                check(f"{tool}: {kernel} {variant} runs", all_ok(result),
                      str(result.get("error", "")))
    reports = reports_of(tool, logs)
    clean = [r for r in reports if not complaints(r)]
    check(f"{tool} finds nothing", len(reports) > 0 and len(clean) == len(reports),
          f"{len(clean)} of {len(reports)} reports clean")
    for report in reports:
        if report not in clean:
            print(report[-3000:])


def main():
    begun = time.monotonic()
    prefix = os.path.abspath(sys.argv[1])
    words = sys.argv[3:]
    unknown = [word for word in words if word not in PARTS and word not in CASES]
    if unknown:
        sys.exit("neither a part (%s) nor a kernel: %s" % (", ".join(PARTS), " ".join(unknown)))
    logs = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="tunerd-gpu-")
    if not os.path.exists("/dev/nvidiactl"):
        print("skipped: there is no GPU on this machine")
        sys.exit(77)
    os.makedirs(logs, exist_ok=True)
    for kernel in [k for k in CASES if k not in words] if set(words) & set(CASES) else []:
        del CASES[kernel]
    wanted = [word for word in words if word not in CASES] or PARTS
    if "awkward" in wanted or "huge" in wanted:
        with Daemon(prefix) as daemon:
            daemon.devices()
            if "awkward" in wanted:
                awkward(daemon, {kernel: daemon.ctl("describe", kernel)["dtypes"] for kernel in CASES})
            if "huge" in wanted:
                huge(daemon)
    if "faults" in wanted:
        faults(prefix)
    if "memcheck" in wanted:
        sanitizer_control(prefix, logs + "/control")
    for tool in ("memcheck", "racecheck"):
        if tool in wanted:
            sanitizer(prefix, tool, logs)
    print(f"{time.monotonic() - begun:.0f} s, {len(failures)} failed" + "".join("\n  " + f for f in failures))
    sys.exit(1 if failures else 0)


main()
