#!/usr/bin/env python3
"""Serving C programs on a GPU: serve_suite.py PREFIX OUT_FOLDER [EXAMPLES]    exit status 77: there is no GPU here

PREFIX is an installed tree or a build folder. EXAMPLES is the folder of the built examples; without it they are
looked for in PREFIX (cmake --install BUILD --component examples, or a build folder's bin). Sweeps gemm for two
shapes, multiplies through tune_cuda.h and checks (tuned, untuned and awkward shapes; what a program is told when no
daemon runs), compares the served kernel with cuBLAS, and asks with the policy tune while PyTorch, if it is there,
keeps the GPU busy. Prints a table and writes OUT_FOLDER/serve.json. About a minute and a half.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
from daemon import Daemon  # noqa: E402

SWEPT = ("4096,4096,4096", "256,256,65536")  # the second is split along K: scratch and a second launch
AWKWARD = ("1,1,1", "17,13,7", "1021,1019,1013", "1,4099,257", "129,127,65")
COMPARED = SWEPT + ("512,512,512", "1024,1024,1024", "2048,2048,2048", "4000,4096,4096", "8192,8192,8192",
                    "16,4096,4096", "4096,16,4096", "1021,1019,1013")
BUDGET = "evals=200,seconds=30"  # of a shape

failures = []


def check(what, is_right, detail=""):
    print(f"{'ok    ' if is_right else 'FAILED'} {what} {detail}", flush=True)
    if not is_right:
        failures.append(what)


def find_examples(prefix):
    folders = sys.argv[3:4] or [prefix + "/libexec/tunerd/examples", prefix + "/bin"]
    for folder in folders:
        if os.path.exists(folder + "/tune_gemm"):
            return os.path.abspath(folder)
    raise SystemExit(f"the examples are not in {' or '.join(folders)}: cmake --install BUILD --component examples")


def environment(socket):
    libraries = [os.environ.get("LD_LIBRARY_PATH", ""), "/usr/local/cuda/lib64", "/usr/local/cuda/lib"]
    return {**os.environ, "TUNE_SOCKET": socket, "LD_LIBRARY_PATH": ":".join(x for x in libraries if x)}


def run(socket, *words):
    begun = time.monotonic()
    done = subprocess.run(words, env=environment(socket), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=240)
    return done, time.monotonic() - begun


def multiply(socket, program, shape):
    done, seconds = run(socket, program, *shape.split(","))
    check(f"tune_gemm {shape}", done.returncode == 0 and "right" in done.stdout,
          f"{seconds:.2f} s  {' | '.join((done.stdout + done.stderr).splitlines())}")
    return {"shape": shape, "seconds": seconds, "output": done.stdout + done.stderr}


def compare(socket, program, shapes):
    done, _ = run(socket, program, "--json", *shapes)
    check("tune_gemm_cublas", done.returncode == 0, done.stderr.strip())
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    print(f"{'shape':<18} {'origin':<12} {'served':>12} {'cuBLAS':>12} {'cuBLAS / served':>16}")
    for row in rows:
        shape = f"{row['M']},{row['N']},{row['K']}"
        theirs = f"{row['cublas_us']:9.1f} us {row['ratio']:16.3f}" if "ratio" in row else "not there"
        print(f"{shape:<18} {row['origin']:<12} {row['ours_us']:9.1f} us {theirs}")
    return rows


BUSY = """
import sys, threading, torch
a = torch.rand(8192, 8192, device="cuda")
ended = []
threading.Thread(target=lambda: (sys.stdin.read(), ended.append(1)), daemon=True).start()
print("busy", flush=True)
while not ended:
    for _ in range(8):
        a @ a
    torch.cuda.synchronize()
"""
BUSY_S = 5  # for so long a sweep must not begin


def state_of(daemon, job):
    return next(row["state"] for row in daemon.ctl("jobs") if row["job"] == job)


def background(daemon):
    """A sweep that nobody waits for: queued once, begun when the GPU is idle, and then its answer is exact."""
    ask = ["get", "gemm", "--shape", "M=640,N=640,K=640", "--policy", "tune"]
    busy = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.DEVNULL)
    is_busy = busy.stdout.readline().strip() == "busy"
    jobs = {daemon.ctl(*ask).get("job") for _ in range(5)}
    check("five askers queue one sweep", len(jobs) == 1 and None not in jobs, str(jobs))
    job = jobs.pop()
    if is_busy:
        states, limit = set(), time.monotonic() + BUSY_S
        while time.monotonic() < limit:
            states.add(state_of(daemon, job))
            time.sleep(0.2)
        check("it does not begin on a busy GPU", states == {"queued"}, str(states))
    else:
        print("skipped: PyTorch is not there to keep the GPU busy")
    busy.stdin.close()
    busy.wait()
    begun, limit = time.monotonic(), time.monotonic() + 90
    while state_of(daemon, job) in ("queued", "running") and time.monotonic() < limit:
        time.sleep(0.1)
    answer = daemon.ctl(*ask)
    check("it runs once the GPU is idle, and the answer is exact",
          state_of(daemon, job) == "done" and answer["origin"] == "exact", f"{time.monotonic() - begun:.1f} s")
    return {"was_busy": is_busy, "seconds": time.monotonic() - begun}


def main():
    prefix, out = (os.path.abspath(word) for word in sys.argv[1:3])
    if not os.path.exists("/dev/nvidiactl"):
        print("skipped: there is no GPU on this machine")
        sys.exit(77)
    examples = find_examples(prefix)
    os.makedirs(out, exist_ok=True)
    result = {"sweeps": [], "products": []}
    with Daemon(prefix) as daemon:
        for shape in SWEPT:
            words = ",".join(f"{name}={size}" for name, size in zip("MNK", shape.split(",")))
            swept = daemon.sweep("gemm", "--shape", words, "--budget", BUDGET)
            check(f"sweep gemm {shape}", swept["best"] is not None,
                  f"{swept['client_wall_s']:.1f} s, {swept['evaluations']} evaluations")
            result["sweeps"].append(swept)
        for shape in SWEPT + AWKWARD:
            result["products"].append(multiply(daemon.socket, examples + "/tune_gemm", shape))
        check("a swept shape is served as measured", "measured for this shape" in result["products"][0]["output"])
        result["compared"] = compare(daemon.socket, examples + "/tune_gemm_cublas", COMPARED)
        result["background"] = background(daemon)
    done, seconds = run("/nowhere/tunerd.sock", examples + "/tune_gemm", "64", "64", "64")
    check("without a daemon it says so", done.returncode == 1 and "does not compile" in done.stderr,
          f"{seconds:.2f} s  {done.stderr.strip()}")
    with open(out + "/serve.json", "w") as file:
        json.dump(result, file, indent=1)
    print(f"{len(failures)} failed" + "".join("\n  " + f for f in failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
