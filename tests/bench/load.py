#!/usr/bin/env python3
"""Whether a daemon answers under load: load.py PREFIX [options]

PREFIX is a build tree or an installation with bench_fill and bench_ask in its bin. A daemon on the emulator, with a
database of tuned shapes, is asked by many connected clients in bursts, in three phases:

  idle      nothing else goes on
  load      a sweep of gemm; a flood of rows into the database (a sweep on a second emulated GPU, nearly all of whose
            candidates are refused before they are compiled); a client that sends requests and hardly reads
  restarts  the same, and the daemon is stopped (SIGTERM) and killed (SIGKILL), and started again, in turns

Counts failed and lost answers, times, the rows written meanwhile and the daemon's own memory. Exit status 1 where an
answer failed or was lost, where the rows do not come, where memory grows, or (not with --no-times) where the 99th
percentile under load is more than 5 times the idle one. One table is printed, and written with --out.

  --clients N    connected (1000)                 --seconds N    of the load phase (600)
  --asking N     of them at once (200)            --idle N       of the idle phase (30)
  --pause N      ms between bursts (50)           --shapes N     tuned, in the database (100000)
  --rows N       that have to be written in       --restarts N   (10)
                 the load phase (100000)          --growth N     MiB that the highest memory of the load phase's second
  --out FILE                                                     half may lie above that of the first (16)
  --no-times     times are printed and not judged: for a machine that others use
"""
import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RESTART_S = 3  # from one restart to the next
KEYS = 1000  # different shapes asked
P99_BOUND = 5
GPUS = [{"name": "Sweep emulator", "uuid": "GPU-00000000-0000-0000-0000-000000000001"},
        {"name": "Flood emulator", "uuid": "GPU-00000000-0000-0000-0000-000000000002"}]

# 16 x 64 x 25 configurations; all but the first ask for more shared memory than a block may have, so each of
# them is a row at once: nothing is compiled or launched.
FLOOD = {
    "tunerd": 1, "name": "flood", "summary": "y = x + 1, and rows", "source": "flood.cu",
    "dims": [{"name": "N", "meaning": "elements"}], "shapes": [{"N": 64}], "dtypes": ["f32"],
    "params": [{"name": name, "meaning": "nothing", "values": list(range(count))}
               for name, count in (("A", 16), ("B", 64), ("C", 25))],
    "derived": [], "constraints": [],
    "buffers": [{"name": "x", "dtype": "f32", "count": "N", "fill": "uniform", "role": "in"},
                {"name": "y", "dtype": "f32", "count": "N", "role": "out"}],
    "launches": [{"entry": "flood", "grid": ["ceildiv(N, 32)"], "block": ["32"],
                  "shared_bytes": "A + B + C == 0 ? 0 : smem_optin + 1",
                  "args": [{"buffer": "x"}, {"buffer": "y"}, {"scalar": "i64", "value": "N"}]}],
    "reference": {"defines": {"TUNE_REFERENCE": 1},
                  "buffers": [{"name": "y_ref", "dtype": "f32", "count": "N", "role": "scratch"}],
                  "launches": [{"entry": "flood_reference", "grid": ["ceildiv(N, 32)"], "block": ["32"],
                                "args": [{"buffer": "x"}, {"buffer": "y_ref"}, {"scalar": "i64", "value": "N"}]}]},
    "checks": [{"buffer": "y", "reference": "y_ref", "derivation": "one addition, correctly rounded",
                "tolerance": {"factor": 0, "unit": "exact"}}],
    "default": {"A": 0, "B": 0, "C": 0}, "flops": "N", "bytes": "8 * N"}
FLOOD_SOURCE = """extern "C" __global__ void
#if TUNE_REFERENCE
flood_reference
#else
flood
#endif
    (const float *x, float *y, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + 1.0f;
}
"""


def parse_options():
    parser = argparse.ArgumentParser(usage="load.py PREFIX [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    for name, number in (("clients", 1000), ("asking", 200), ("pause", 50), ("seconds", 600), ("idle", 30),
                         ("restarts", 10), ("growth", 16), ("shapes", 100000), ("rows", 100000)):
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--out")
    return parser.parse_args()


# --- a connection -----------------------------------------------------------------------------------------------------

class Refused(Exception):
    """An error that the daemon answered; the first argument is its stable word."""


class Connection:
    """One connection, plain: it ends with the daemon, by an OSError."""

    def __init__(self, path):
        self.socket, self.held = socket.socket(socket.AF_UNIX), b""
        self.socket.connect(path)

    def message(self, limit_s):
        """The next message, or None when there is none in time."""
        end = time.monotonic() + limit_s
        while b"\n" not in self.held:
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                more = self.socket.recv(1 << 16)
            except socket.timeout:
                return None
            if not more:
                raise ConnectionResetError("the daemon has gone")
            self.held += more
        line, _, self.held = self.held.partition(b"\n")
        return json.loads(line)

    def request(self, method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.socket.sendall(json.dumps(message).encode() + b"\n")
        while True:
            reply = self.message(60)
            if reply is None:
                raise TimeoutError("no answer to %s" % method)
            if "error" in reply:
                raise Refused(reply["error"]["data"]["code"], reply["error"]["message"])
            if "result" in reply:
                return reply["result"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


# --- the daemon -------------------------------------------------------------------------------------------------------

class Daemon:
    def __init__(self, options, folder):
        self.bin = os.path.join(os.path.abspath(options.prefix), "bin")
        self.folder, self.socket = folder, folder + "/s"
        self.write_flood()
        subprocess.run([self.bin + "/bench_fill", self.bin + "/../share/tunerd/plugins", folder + "/db",
                        str(options.shapes)], check=True, stdout=subprocess.DEVNULL)
        self.process = None

    def write_flood(self):
        os.makedirs(self.folder + "/plugins/flood")
        with open(self.folder + "/plugins/flood/flood.json", "w") as file:
            json.dump(FLOOD, file)
        with open(self.folder + "/plugins/flood/flood.cu", "w") as file:
            file.write(FLOOD_SOURCE)
        with open(self.folder + "/scenario.json", "w") as file:
            json.dump({"device": GPUS}, file)

    def start(self):
        env = {**os.environ, "TUNE_SCENARIO": self.folder + "/scenario.json", "TUNE_LOCK_DIR": self.folder}
        self.process = subprocess.Popen(
            [self.bin + "/tunerd", "--foreground", "--emulate", "--socket", self.socket, "--db", self.folder + "/db",
             "--plugins", self.folder + "/plugins", "--log", self.folder + "/log"], env=env)
        until(self.is_ready, 120, "the daemon does not get ready")

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit("the daemon ended with status %d:\n%s" % (self.process.returncode, self.log()))
        with contextlib.suppress(OSError, Refused), Connection(self.socket) as client:
            return client.request("ping")["ready"] and len(client.request("devices")) == len(GPUS)
        return False

    def settle(self):
        """Until it has had nothing to do for a second: what it publishes at its start is written."""
        ticks, since = -1, time.monotonic()
        while time.monotonic() < since + 1:
            with open("/proc/%d/stat" % self.process.pid) as file:
                now = [int(field) for field in file.read().rpartition(")")[2].split()[11:13]]
            if sum(now) != ticks:
                ticks, since = sum(now), time.monotonic()
            time.sleep(0.1)

    def end(self, number):
        self.process.send_signal(number)
        status = self.process.wait(60)
        if status != (0 if number == signal.SIGTERM else -number):
            raise SystemExit("the daemon ended with status %d:\n%s" % (status, self.log()))

    def log(self):
        with open(self.folder + "/log") as file:
            return file.read()[-3000:]

    def anonymous_mib(self):
        """Its own memory: without the pages of the database, which are the file's."""
        with open("/proc/%d/status" % self.process.pid) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) / 1024


def until(condition, limit_s, why):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(why)
        time.sleep(0.05)


# --- what goes on beside the asking -----------------------------------------------------------------------------------

class Disturbers:
    """Threads that go on until the end of the `with`, through restarts of the daemon."""

    def __init__(self, daemon):
        self.daemon, self.is_over = daemon, threading.Event()
        self.sweeps = self.rows = self.drops = self.slow_bytes = 0
        self.failures = []
        self.threads = [threading.Thread(target=self.again, args=(turn,))
                        for turn in (self.sweep, self.flood, self.read_slowly)]

    def again(self, turn):
        number = 0
        while not self.is_over.is_set():
            number += 1
            try:
                turn(number)
            except BrokenPipeError:
                self.drops += 1
            except OSError:
                self.is_over.wait(0.05)  # the daemon is being restarted
            except Refused as error:
                if error.args[0] != "busy":
                    self.failures.append("%s: %s: %s" % (turn.__name__, *error.args))
                    return

    def follow(self, kernel, gpu, **request):
        """A sweep to its end, or until all is over (then it is canceled); yields how many rows came."""
        with Connection(self.daemon.socket) as client:
            job, done = client.request("sweep", kernel=kernel, device=GPUS[gpu]["name"], **request)["job"], 0
            while not self.is_over.is_set():
                message = client.message(0.5)
                if message is None or message.get("params", {}).get("job") != job:
                    continue
                params = message["params"]
                if message["method"] == "progress":
                    yield params["done"] - done
                    done = params["done"]
                    continue
                if params["state"] != "done":
                    self.failures.append("the sweep of %s: %s" % (kernel, params.get("error")))
                return
            client.request("cancel", job=job)

    def sweep(self, number):
        shape = {"M": 32 + number % 64, "N": 40, "K": 24}
        for _ in self.follow("gemm", 0, shapes=[shape], budget={"evals": 20}, seed=number):
            pass
        self.sweeps += 1

    def flood(self, number):
        for rows in self.follow("flood", 1, shapes=[{"N": 64 + number}], strategy="exhaustive"):
            self.rows += rows

    def read_slowly(self, _):
        """Sends as much as is taken and reads a little; when the daemon drops it, it comes again."""
        line = (b'{"jsonrpc":"2.0","id":1,"method":"get","params":'
                b'{"kernel":"gemm","shape":{"M":64,"N":64,"K":64},"arch":"sm_90"}}\n')
        unsent = b""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.daemon.socket)
            client.setblocking(False)
            while not self.is_over.wait(0.02):
                unsent = unsent or line * 64
                with contextlib.suppress(BlockingIOError):
                    unsent = unsent[client.send(unsent):]
                with contextlib.suppress(BlockingIOError):
                    read = len(client.recv(256))
                    self.slow_bytes += read
                    if read == 0:
                        raise BrokenPipeError("dropped")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


class Memory(threading.Thread):
    """The daemon's anonymous memory, twice a second."""

    def __init__(self, daemon):
        super().__init__()
        self.daemon, self.is_over, self.mib = daemon, threading.Event(), []

    def run(self):
        while not self.is_over.wait(0.5):
            self.mib.append(self.daemon.anonymous_mib())

    def growth_mib(self):
        """Of the highest: what is held goes up and down with each sweep and with the slow reader's queue."""
        half = len(self.mib) // 2
        return max(self.mib[half:]) - max(self.mib[:half])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()


# --- phases -----------------------------------------------------------------------------------------------------------

class Asking:
    """bench_ask, running; its report when it has ended."""

    def __init__(self, options, daemon, seconds):
        self.process = subprocess.Popen(
            [daemon.bin + "/bench_ask", "--clients", str(options.clients), "--asking", str(options.asking), "--pause",
             str(options.pause), "--seconds", str(seconds), "--shapes", str(options.shapes), "--keys",
             str(min(KEYS, options.shapes)), daemon.socket],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_over(self):
        return self.process.poll() is not None

    def report(self):
        out, err = self.process.communicate()
        if not out:
            raise SystemExit("bench_ask: " + err)
        return json.loads(out)


def restart_during(options, daemon, asking):
    """Stops and kills by turns while clients are asking."""
    for number in range(options.restarts):
        end = time.monotonic() + RESTART_S
        until(lambda: time.monotonic() > end or asking.is_over(), 60, "the clock stands still")
        daemon.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
        daemon.start()


def measure(options, daemon):
    idle = Asking(options, daemon, options.idle).report()
    with Disturbers(daemon) as disturbers:
        with Memory(daemon) as memory:
            load = Asking(options, daemon, options.seconds).report()
        beside = {name: getattr(disturbers, name) for name in ("rows", "sweeps", "drops", "slow_bytes")}
        asking = Asking(options, daemon, RESTART_S * (options.restarts + 1))
        restart_during(options, daemon, asking)
        restarts = asking.report()
    return {"idle": idle, "load": load, "restarts": restarts, **beside, "mib": memory.mib,
            "growth_mib": memory.growth_mib(), "failures": disturbers.failures}


# --- the report -------------------------------------------------------------------------------------------------------

def table(options, result):
    model = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    yield "# %s, %s x %d; %d clients, %d ask at once every %d ms; %d tuned shapes; load average %s" % (
        datetime.date.today(), model[0] if model else platform.machine(), os.cpu_count(), options.clients,
        options.asking, options.pause, options.shapes, open("/proc/loadavg").read().split()[0])
    yield "%-9s %9s %9s %7s %5s %8s %10s %9s %9s %9s" % (
        "", "asked", "answered", "failed", "lost", "retried", "reconnects", "median us", "p99 us", "max us")
    for name in ("idle", "load", "restarts"):
        row = result[name]
        yield "%-9s %9d %9d %7d %5d %8d %10d %9d %9d %9d" % (
            name, row["asked"], row["answered"], row["failed"], row["lost"], row["retried"], row["reconnects"],
            row["median_us"], row["p99_us"], row["max_us"])
    yield "beside the load: %d rows written, %d sweeps ended; the slow reader read %d bytes, was dropped %d times" % (
        result["rows"], result["sweeps"], result["slow_bytes"], result["drops"])
    mib, half = result["mib"], len(result["mib"]) // 2
    yield "memory in the load phase: %.1f MiB at its start, %.1f at its end; at most %.1f at first, %.1f later" % (
        mib[0], mib[-1], max(mib[:half]), max(mib[half:]))
    yield "restarts: %d; the longest wait of a request that was sent again: %d ms" % (
        options.restarts, result["restarts"]["longest_retry_ms"])


def faults(options, result):
    for name in ("idle", "load", "restarts"):
        row = result[name]
        if row["failed"] or row["lost"]:
            yield "%s: %d answers failed, %d were lost; the first failure: %s" % (
                name, row["failed"], row["lost"], row["first_failure"])
        if row["answered"] < options.asking:
            yield "%s: only %d answers" % (name, row["answered"])
    if options.restarts and not result["restarts"]["reconnects"]:
        yield "no client met a restart"
    if result["rows"] < options.rows:
        yield "only %d rows were written of %d" % (result["rows"], options.rows)
    if result["growth_mib"] > options.growth:
        yield "memory grew by %.1f MiB in the second half of the load phase" % result["growth_mib"]
    if result["load"]["p99_us"] > P99_BOUND * result["idle"]["p99_us"] and not options.no_times:
        yield "p99 under load is %.1f times the idle one" % (result["load"]["p99_us"] / result["idle"]["p99_us"])
    yield from result["failures"]


def main():
    options = parse_options()
    folder = tempfile.mkdtemp(prefix="tunerd-load-")
    daemon = None
    try:
        daemon = Daemon(options, folder)
        daemon.start()
        daemon.settle()
        result = measure(options, daemon)
        daemon.end(signal.SIGTERM)
        lines = list(table(options, result))
        wrong = list(faults(options, result))
        if wrong:
            print(daemon.log(), file=sys.stderr)
    finally:
        if daemon is not None and daemon.process is not None and daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    ratio = result["load"]["p99_us"] / max(1, result["idle"]["p99_us"])
    lines.append("p99 under load / idle: %.2f (bound %d)" % (ratio, P99_BOUND))
    lines += ["WRONG: " + fault for fault in wrong] or ["nothing failed"]
    print("\n".join(lines))
    if options.out:
        with open(options.out, "w") as file:
            file.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
