#!/usr/bin/env python3
"""What only a GPU can show: gpu_suite.py PREFIX [OUT_FOLDER [part ...]]    exit status 77: there is no GPU here

PREFIX is an installed tree or a build folder. Sweeps with verification on fresh random inputs:
    sweeps      every kernel over shapes of 1, primes, tile +- 1, tall, flat
                and of more than 2^31 elements, where 32-bit offsets would wrap (needs 24 GiB of device memory)
    faults      every planted fault is named as what it is, and the sweep goes on
    memcheck, racecheck   one configuration of each variant under compute-sanitizer's memcheck and racecheck
"""
import glob
import os
import stat
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from daemon import Daemon  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
AWKWARD = {
    "gemm": ["M=1,N=1,K=1", "M=17,N=13,K=7", "M=129,N=127,K=65", "M=1,N=4099,K=257", "M=2053,N=3,K=31",
             "M=64,N=64,K=65537", "M=255,N=257,K=1"],
    "transpose": ["M=1,N=1", "M=1,N=100003", "M=100003,N=1", "M=127,N=129", "M=1023,N=1025"],
    "reduce": ["N=1", "N=31", "N=33", "N=1023", "N=1000003"],
    "softmax": ["M=1,N=1", "M=100003,N=1", "M=1,N=1000003", "M=1023,N=33", "M=257,N=1025", "M=7,N=32768"],
}
HUGE = {"transpose": "M=46349,N=46351", "reduce": "N=2147484671", "gemm": "M=70001,N=9,K=31013",
        "softmax": "M=46349,N=46351"}
HUGE_GIB = {"softmax": 64}  # of device memory, with the reference in double precision; 24 for the others
VARIANTS = {"gemm": ["naive", "tiled"], "transpose": ["naive", "tiled"],
            "reduce": ["interleaved", "sequential", "shuffle", "shuffle_atomic"],
            "softmax": ["naive", "registers", "shared", "online", "split"]}
WRAPPER = """#!/bin/sh
[ "$1" = bench ] || exec {worker} "$@"
trap '' TERM # the tool would die of it before its summary; the worker ends with its pipe
exec compute-sanitizer --tool {tool} --log-file {logs}/{tool}.%p.log --error-exitcode 9 {worker} "$@"
"""

failures = []


def check(what, is_right, detail=""):
    print(f"{'ok    ' if is_right else 'FAILED'} {what} {detail}", flush=True)
    if not is_right:
        failures.append(what)


def all_ok(result, spare=()):
    bad = {k: v for k, v in result["counts"].items() if v and k != "ok" and k not in spare}
    return result["best"] is not None and not bad


def awkward(daemon):
    for kernel, shapes in AWKWARD.items():
        words = [word for shape in shapes for word in ("--shape", shape)]
        results = daemon.ctl("sweep", kernel, *words, "--strategy", "random", "--budget", "evals=40",
                             "--seed", "7", check=False)
        for shape, result in zip(shapes, results):
            check(f"{kernel} {shape}", all_ok(result), str({k: v for k, v in result["counts"].items() if v}))


def huge(daemon):
    memory = daemon.devices()[0]["memory_bytes"]
    for kernel, shape in HUGE.items():
        if memory < HUGE_GIB.get(kernel, 24) << 30:
            print(f"skipped {kernel} {shape}: it needs {HUGE_GIB.get(kernel, 24)} GiB of device memory")
            continue
        result = daemon.ctl("sweep", kernel, "--shape", shape, "--strategy", "random", "--budget",
                            "evals=6", "--seed", "7", check=False)
        check(f"{kernel} {shape}", "counts" in result and all_ok(result), str(result.get("counts", result)))


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
    shapes = {"gemm": "M=65,N=70,K=33", "transpose": "M=70,N=45", "reduce": "N=10007",
              "softmax": "M=3,N=4096"}
    with Daemon(prefix, env={"TUNE_WORKER": wrapper}) as daemon:
        for kernel, variants in VARIANTS.items():
            for variant in variants:
                result = daemon.ctl("sweep", kernel, "--shape", shapes[kernel], "--param",
                                    f"VARIANT={variant}", "--strategy", "random", "--budget", "evals=1",
                                    "--seed", "3", "--deadline-ms", "120000", check=False)
                check(f"{tool}: {kernel} {variant} runs", "counts" in result and all_ok(result),
                      str(result.get("error", "")))
    reports = reports_of(tool, logs)
    clean = [r for r in reports if not complaints(r)]
    check(f"{tool} finds nothing", len(reports) > 0 and len(clean) == len(reports),
          f"{len(clean)} of {len(reports)} reports clean")
    for report in reports:
        if report not in clean:
            print(report[-3000:])


def main():
    prefix = os.path.abspath(sys.argv[1])
    logs = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="tunerd-gpu-")
    if not os.path.exists("/dev/nvidiactl"):
        print("skipped: there is no GPU on this machine")
        sys.exit(77)
    os.makedirs(logs, exist_ok=True)
    wanted = sys.argv[3:] or ["sweeps", "faults", "memcheck", "racecheck"]
    if "sweeps" in wanted:
        with Daemon(prefix) as daemon:
            awkward(daemon)
            huge(daemon)
    if "faults" in wanted:
        faults(prefix)
    if "memcheck" in wanted:
        sanitizer_control(prefix, logs + "/control")
    for tool in ("memcheck", "racecheck"):
        if tool in wanted:
            sanitizer(prefix, tool, logs)
    print(f"{len(failures)} failed" + "".join("\n  " + f for f in failures))
    sys.exit(1 if failures else 0)


main()
