#!/usr/bin/env python3
"""What an answer costs by every road, beside what other servers cost: latency.py PREFIX [options]

PREFIX is a build tree with TUNE_BENCH=ON, or an installation with the bench_* programs in its bin. Redis, memcached,
hiredis and SQLite are looked for; without one its rows say so. Everything runs on two cores (--cores), client and
server pinned: both to the first, one to each, or all to both. In each of the repeats every server is started anew, and
the rows follow each other within a repeat, so that a change of the machine meets all of them; a figure is the
median over the repeats. Prints the table and writes it to tests/bench/results/latency-DATE.txt. Takes about five
minutes; a quiet machine is the caller's business, what else ran is printed.

  --repeats N    of everything (5)              --parts A,B      of socket,local,start (all)
  --keys N       different keys asked (10000)   --cores A,B      (0,1)
  --requests N   of one client alone (20000)    --shapes N       tuned, in the database (100000)
  --out FILE     instead of the results folder  --start N        records in the database of the start-up row
  --work FOLDER  keeps the databases there                       (1000000)
                 for the next run
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
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def parse_options():
    parser = argparse.ArgumentParser(usage="latency.py PREFIX [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--keys", type=int, default=10000)
    parser.add_argument("--shapes", type=int, default=100000)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--start", type=int, default=1000000)
    parser.add_argument("--parts", default="socket,local,start")
    parser.add_argument("--out")
    parser.add_argument("--work")
    options = parser.parse_args()
    options.cores = [int(core) for core in options.cores.split(",")]
    return options


# --- servers ----------------------------------------------------------------------------------------------------------

class Server:
    """A server on a socket of its own; as a context manager it is ended and its socket removed."""

    def __init__(self, command, path):
        self.path = path
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > self.begun + 60:
                raise SystemExit("%s does not start" % " ".join(command))
            time.sleep(0.0002)

    def answers(self):
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self.path) == 0

    def pin(self, cores):
        for task in os.listdir("/proc/%d/task" % self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), cores)

    def cpu_ticks(self):
        fields = open("/proc/%d/stat" % self.process.pid).read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def settle(self):
        """Until it has had nothing to do for a while; how long that took after the start, in seconds."""
        ticks, since = -1, time.monotonic()
        while time.monotonic() < since + 0.3:
            if self.cpu_ticks() != ticks:
                ticks, since = self.cpu_ticks(), time.monotonic()
            time.sleep(0.02)
        return since - self.begun

    def ask(self, method, params=None):
        message = {"jsonrpc": "2.0", "id": 1, "method": method}
        if params:
            message["params"] = params
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path)
            client.sendall(json.dumps(message).encode() + b"\n")
            reply = json.loads(client.makefile("rb").readline())
        if "error" in reply:
            raise SystemExit("%s: %s" % (method, reply["error"]["message"]))
        return reply["result"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.bin = os.path.join(os.path.abspath(options.prefix), "bin")
        self.one, self.two = {options.cores[0]}, {options.cores[1]}
        self.request_bytes, self.reply_bytes = 120, 1500  # of tunerd's get, once it was asked

    def path(self, name):
        return os.path.join(self.work, name)

    def run(self, program, *words, cores=None):
        """A line of JSON from one of our programs; None where it says that it was built without something."""
        command = [os.path.join(self.bin, program), *map(str, words)]
        if cores:
            command = ["taskset", "-c", ",".join(map(str, sorted(cores))), *command]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if "was built without" in run.stderr:
            return None
        if run.returncode != 0:
            raise SystemExit("%s: %s" % (" ".join(command), run.stderr[-1000:]))
        return json.loads(run.stdout) if run.stdout.strip() else None

    def database(self, count):
        folder = self.path("db-%d" % count)
        if not os.path.exists(folder):
            self.run("bench_fill", self.bin + "/../share/tunerd/plugins", folder, count)
        return folder

    def tunerd(self, count):
        path = self.path("t.s")
        return Server([self.bin + "/tunerd", "--foreground", "--socket", path, "--db", self.database(count),
                       "--log", self.path("log")], path)

    def echo(self, kind, sizes):
        path = self.path("e.s")
        return Server([self.bin + "/bench_server", kind, path, *map(str, sizes)], path)

    def redis(self):
        path = self.path("r.s")
        return Server(["redis-server", "--unixsocket", path, "--port", "0", "--save", "", "--appendonly", "no",
                       "--dir", self.work], path)

    def memcached(self):
        path = self.path("m.s")
        return Server(["memcached", "-s", path, "-m", "4096", "-t", "1", "-u", "root"], path)

    # --- one row ------------------------------------------------------------------------------------------------------

    def columns(self, server, road, *more, with_many=True):
        """One core, two cores, and 8 clients 64 deep: what bench_client says of each."""
        keys = ["--keys", self.options.keys, "--shapes", self.options.shapes, *more]
        alone = [*keys, "--requests", self.options.requests]
        many = [*keys, "--clients", 8, "--depth", 64, "--requests", 2 * self.options.requests]
        result = {}
        for column, words, at_server, at_client in (("one", alone, self.one, self.one),
                                                    ("two", alone, self.one, self.two),
                                                    ("many", many, self.one | self.two, self.one | self.two)):
            if column == "many" and not with_many:
                continue
            server.pin(at_server)
            result[column] = self.run("bench_client", *words, "ask", road, server.path, cores=at_client)
        return result

    def measure_tunerd(self, rows):
        with self.tunerd(self.options.shapes) as server:
            server.settle()
            server.pin(self.one)
            first = self.run("bench_client", "--keys", self.options.keys, "--shapes", self.options.shapes,
                             "first", "tunerd", server.path, cores=self.two)
            add(rows, "tunerd get, a key's first asking", {"two": first})
            result = self.columns(server, "tunerd")
            self.request_bytes, self.reply_bytes = (result["one"][of] for of in ("request_bytes", "reply_bytes"))
            add(rows, "tunerd get", result)
            add(rows, "tunerd get, reply read by jansson", self.columns(server, "tunerd-parsed", with_many=False))

    def measure_echoes(self, rows):
        ours = (self.request_bytes, self.reply_bytes)
        for kind, text in (("raw", "raw ping-pong"), ("uv", "libuv echo")):
            for sizes in ((200, 200), ours):
                with self.echo(kind, sizes) as server:
                    add(rows, "%s, %d B in, %d B out" % (text, *sizes),
                        self.columns(server, kind, "--bytes", "%d,%d" % sizes))

    def measure_stores(self, rows):
        for program, start, roads in (("redis-server", self.redis, (("redis", "Redis GET, RESP by hand"),
                                                                    ("hiredis", "Redis GET, hiredis"))),
                                      ("memcached", self.memcached, (("memcached", "memcached get, 1 thread"),))):
            if not shutil.which(program):
                for _, text in roads:
                    add(rows, text, None)
                continue
            with start() as server:
                self.run("bench_client", "--keys", self.options.keys, "--shapes", self.options.shapes,
                         "--value", self.reply_bytes, "fill", program.partition("-")[0], server.path)
                for road, text in roads:
                    add(rows, text, self.columns(server, road))

    def measure_local(self, rows):
        scratch = tempfile.mkdtemp(dir=self.work)
        value = ["--value", self.reply_bytes]
        keys = ["--keys", self.options.shapes]
        add(rows, "SQLite by key: WAL, mapped, prepared",
            self.run("bench_local", *value, *keys, "sqlite", scratch, cores=self.two))
        add(rows, "a JSON wisdom file of 10,000, read whole",
            self.run("bench_local", "wisdom", scratch, cores=self.two))
        shutil.rmtree(scratch)
        with self.tunerd(self.options.shapes) as server:
            server.settle()
            server.pin(self.one)
            before = server.ask("stats")["requests"]
            lookup = self.run("bench_local", *keys, "lookup", server.path, cores=self.two)
            asked = server.ask("stats")["requests"] - before - 1
            for which, text in (("first", "libtune, first lookup of a key"), ("again", "libtune, the same key again")):
                add(rows, text, {**lookup[which], "asked": asked})

    def measure_start(self, rows):
        """Seconds from starting the program to the end of the first answer; the first time nothing is published yet.
        The file is in the page cache."""
        shape = {"M": 64, "N": 64, "K": 64}
        with open(self.database(self.options.start) + "/data.mdb", "rb") as file:
            while file.read(1 << 24):
                pass
        shutil.rmtree(self.database(self.options.start) + "/served", ignore_errors=True)
        for repeat in range(self.options.repeats + 1):
            with self.tunerd(self.options.start) as server:
                answer = server.ask("get", {"kernel": "gemm", "shape": shape, "arch": "sm_90"})
                taken = time.monotonic() - server.begun
                if answer["origin"] != "exact":
                    raise SystemExit("the first answer is not exact: %s" % answer["origin"])
                settled = server.settle()
            add(rows, "later start" if repeat else "first start", {"start_s": taken, "settled_s": settled})


def add(rows, name, result):
    rows.setdefault(name, []).append(result)


# --- the table --------------------------------------------------------------------------------------------------------

def median(row, *path):
    """Over the repeats, of a figure at `path` of a row; None where it is not there."""
    figures = []
    for result in row or []:
        for step in path:
            result = result.get(step) if result else None
        figures.append(result)
    return statistics.median(figures) if figures and None not in figures else None


def micro(ns):
    return "%.2f" % (ns / 1000) if ns < 10000 else "%.1f" % (ns / 1000)


def pair(row, *path):
    if median(row, *path, "median_ns") is None:
        return "-"
    return "%s / %s" % (micro(median(row, *path, "median_ns")), micro(median(row, *path, "p99_ns")))


def ratio(of, to, *path):
    a, b = median(of, *path), median(to, *path)
    return None if a is None or b is None else a / b


FLOOR, LOOP = "raw ping-pong, 200 B in, 200 B out", "libuv echo, 200 B in, 200 B out"
ORDER = ["raw", "libuv", "tunerd", "Redis", "memcached"]


def socket_table(rows):
    floor = rows.get(FLOOR)
    yield "%-42s %16s %6s  %16s %6s  %11s" % ("by a socket", "one core", "ratio", "two cores", "ratio", "8 x 64 deep")
    yield "%-42s %16s %6s  %16s %6s  %11s" % ("", "median / p99 us", "", "median / p99 us", "", "requests/s")
    for name, row in sorted(rows.items(), key=lambda item: ORDER.index(item[0].split()[0])):
        if row[0] is None:
            yield "%-42s not there" % name
            continue
        cells = []
        for column in ("one", "two"):
            times = ratio(row, floor, column, "median_ns")
            cells += [pair(row, column), "-" if times is None else "%.2f" % times]
        rate = median(row, "many", "per_s")
        yield "%-42s %16s %6s  %16s %6s  %11s" % (name, *cells, "-" if rate is None else "{:,.0f}".format(rate))


def local_table(rows):
    yield "%-42s %16s  %s" % ("without a socket", "median / p99 us", "allocations, page faults, requests to the daemon")
    for name, row in rows.items():
        if row[0] is None:
            yield "%-42s not there" % name
        elif "median_ns" in row[0]:
            counts = [str(max(r[count] for r in row)) for count in ("allocations", "page_faults", "asked")
                      if count in row[0]]
            yield "%-42s %16s  %s" % (name, pair(row), ", ".join(counts))


def start_table(rows, records):
    yield "start-up with {:,} records: from exec to the end of the first answer".format(records)
    for name, row in rows.items():
        figures = [r["start_s"] * 1000 for r in row]
        yield "  %-40s %8.1f ms (%.1f to %.1f); at rest after %.1f s" % (
            name, statistics.median(figures), min(figures), max(figures), median(row, "settled_s"))


def targets(rows):
    """(what, figure or None, bound, whether less is better)"""
    def in_us(name, figure):
        ns = median(rows.get(name), figure)
        return ns and ns / 1000

    def to(name, *path):
        return ratio(rows.get("tunerd get"), rows.get(name), *path)

    first, again = "libtune, first lookup of a key", "libtune, the same key again"
    yield "one request, one core, to raw", to(FLOOR, "one", "median_ns"), 1.5, True
    yield "one request, two cores, to libuv", to(LOOP, "two", "median_ns"), 1.1, True
    for name in ("Redis GET, hiredis", "Redis GET, RESP by hand"):
        yield "8 x 64 deep, to " + name, to(name, "many", "per_s"), 1.0, False
    yield "first lookup, median us", in_us(first, "median_ns"), 1.5, True
    yield "first lookup, p99 us", in_us(first, "p99_ns"), 3.0, True
    yield "same key again, median us", in_us(again, "median_ns"), 0.2, True
    yield "allocations in lookups", max((r["allocations"] for name in (first, again) for r in rows.get(name, [])),
                                        default=None), 0, True
    for name in ("first start", "later start"):
        seconds = median(rows.get(name), "start_s")
        yield name + ", ms", seconds and seconds * 1000, 100, True


def target_table(rows):
    yield "%-42s %10s %10s" % ("target", "measured", "bound")
    for what, figure, bound, is_less in targets(rows):
        if figure is None:
            yield "%-42s %10s" % (what, "not there")
            continue
        is_met = figure <= bound if is_less else figure >= bound
        yield "%-42s %10.2f %s %7.2f  %s" % (what, figure, "<=" if is_less else ">=", bound,
                                             "met" if is_met else "MISSED")


# --- conditions -------------------------------------------------------------------------------------------------------

def busy_seconds():
    fields = [int(word) for word in open("/proc/stat").readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Others:
    """What other processes took of the machine's CPU since this was made."""

    def __init__(self):
        self.begun, self.busy, self.own = time.monotonic(), busy_seconds(), sum(os.times()[:4])

    def percent(self):
        others = busy_seconds() - self.busy - (sum(os.times()[:4]) - self.own)
        return 100 * max(0, others) / ((time.monotonic() - self.begun) * os.cpu_count())


def version_of(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    except FileNotFoundError:
        return command[0] + ": not there"


def conditions(options):
    model = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    yield "# %s, %s x %d, Linux %s; cores %s; %d repeats" % (
        datetime.date.today(), model[0] if model else platform.machine(), os.cpu_count(), platform.release(),
        ",".join(map(str, options.cores)), options.repeats)
    yield "# {:,} tuned shapes of gemm on {}; {:,} of them asked at random, each once before the clock starts;".format(
        options.shapes, "sm_90", options.keys)
    yield "# values of Redis, memcached and SQLite are as long as tunerd's reply; ratios are to the raw 200 B ping-pong"
    yield "# " + "; ".join([version_of("redis-server", "--version"), version_of("memcached", "--version")])


def measure(options, work):
    others = Others()
    bench = Bench(options, work)
    load_before = open("/proc/loadavg").read().split()[:3]
    socket_rows, local_rows, start_rows = {}, {}, {}
    parts = options.parts.split(",")
    with bench.tunerd(options.shapes) as server:
        server.settle()  # what it publishes is made before anything is measured
    for _ in range(options.repeats):
        if "socket" in parts:
            bench.measure_tunerd(socket_rows)
            bench.measure_echoes(socket_rows)
            bench.measure_stores(socket_rows)
        if "local" in parts:
            bench.measure_local(local_rows)
    if "start" in parts:
        bench.measure_start(start_rows)
    yield from conditions(options)
    yield "# load average before %s, after %s; other processes took %.1f %% of the CPU; %.0f s" % (
        " ".join(load_before), " ".join(open("/proc/loadavg").read().split()[:3]), others.percent(),
        time.monotonic() - others.begun)
    if socket_rows:
        yield from ["", *socket_table(socket_rows)]
    if local_rows:
        yield from ["", *local_table(local_rows)]
    if start_rows:
        yield from ["", *start_table(start_rows, options.start)]
    yield from ["", *target_table({**socket_rows, **local_rows, **start_rows})]


def main():
    options = parse_options()
    work = options.work or tempfile.mkdtemp(prefix="tunerd-latency-")
    os.makedirs(work, exist_ok=True)
    out = options.out or os.path.join(HERE, "..", "results", "latency-%s.txt" % datetime.date.today())
    try:
        lines = list(measure(options, work))
    finally:
        if not options.work:
            shutil.rmtree(work)
    with open(out, "w") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
