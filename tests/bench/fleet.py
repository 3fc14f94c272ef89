#!/usr/bin/env python3
"""What sharing costs and how fast it is: fleet.py BUILD_FOLDER [options]

Five daemons on the emulator and a PostgreSQL server on the loopback device of one machine. One daemon imports a file of
records; measured are

  - how long until the engine has them all, and until a new daemon with an empty database has;
  - what a record takes, in a daemon's database and in the engine;
  - from the request that stores a better record at one daemon to the answer of `get` with it, at all five;
  - what a `get` takes while the engine is well, silent (SIGSTOP) and gone;
  - what the disk takes for an fdatasync, which bounds the engine's commits.

A table is printed, and written with --out. Use a release build on a machine with nothing else to do.

  --records N   in the file (100000)              --trials N   better records (20)
  --per-key N   of them for one shape (1)         --gets N     of each kind (2000)
  --no-times    times are printed and not judged
  --out FILE"""
import argparse
import datetime
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fleet"))
from fleet_lab import Lab, Refused, wait_for  # noqa: E402

DAEMONS = 5
REPLICA_BOUND_S = 30
VISIBLE_BOUND_S = 1
LIMIT_S = 600


class Bench:
    def __init__(self, options, lab):
        self.options, self.lab, self.first = options, lab, lab.daemons[0]
        self.bin, self.wrong, self.lines, self.shapes = options.build + "/bin", [], [], []
        self.plugins = options.build + "/share/tunerd/plugins"

    def row(self, name, figure, bound=None, unit="s"):
        """One line of the table; bound: of a target, as (at most, measured)."""
        line = "%-62s %s" % (name, figure)
        if bound:
            most, measured = bound
            is_met = measured <= most
            line += "   target <= %g %s: %s" % (most, unit, "met" if is_met else "NOT MET")
            if not is_met:
                self.wrong.append(name)
        self.lines.append(line)
        print(line, flush=True)

    def make_file(self, kernel, rows, per_key, seed, *more):
        text = subprocess.run([self.bin + "/fleet_rows", self.plugins, kernel, str(rows), str(per_key), str(seed),
                               *map(str, more)], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.first.write("rows.jsonl", text)
        return text

    def samples(self, daemon):
        return daemon.rpc("stats")["database"]["samples"]

    def engine_rows(self):
        return int(self.lab.engine.sql("SELECT count(*) FROM tunerd.sample"))

    # --- the phases

    def disk(self):
        """Of a file of the engine's folder, 8 KiB at a time, as its log is written."""
        times, path = [], self.lab.engine.folder + "/probe"
        with open(path, "wb", buffering=0) as file:
            for _ in range(200):
                file.write(bytes(8192))
                begun = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - begun)
        os.remove(path)
        self.row("fdatasync of 8 KiB on the engine's disk, median / p99",
                 "%.2f / %.2f ms" % tuple(1e3 * t for t in quantiles(times)))

    def fill(self):
        count = self.options.records
        text = self.make_file("gemm", count, self.options.per_key, 1)
        self.shapes = [json.loads(line)["shape"] for line in text.splitlines()[1:20000]]
        wait_for(lambda: self.first.fleet()["state"] == "following", what="the link follows")
        wal = int(self.lab.engine.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
        begun = time.monotonic()
        self.first.tunectl("import", self.first.folder + "/rows.jsonl", limit_s=LIMIT_S)
        imported = time.monotonic() - begun
        wait_for(lambda: self.engine_rows() == count, LIMIT_S, "the engine has all records")
        sent = time.monotonic() - begun
        wal = int(self.lab.engine.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")) - wal
        self.row("import of %s records (%.0f bytes of text each)" % (thousands(count), len(text) / count),
                 "%.1f s, %s/s" % (imported, thousands(count / imported)))
        self.row("from its beginning until the engine has them all",
                 "%.1f s, %s/s" % (sent, thousands(count / sent)))
        self.sizes(count, wal)

    def sizes(self, count, wal):
        used = self.first.rpc("stats")["database"]["used_bytes"]
        self.lab.engine.sql("VACUUM ANALYZE tunerd.sample")
        kept = int(self.lab.engine.sql("SELECT pg_total_relation_size('tunerd.sample')"))
        self.row("bytes a record: in a daemon's database", "%.0f" % (used / count))
        self.row("bytes a record: in the engine, with its indexes / of its log",
                 "%.0f / %.0f" % (kept / count, wal / count))

    def replicate(self):
        """A machine that joins with nothing."""
        count, new = self.options.records, self.lab.daemons[1]
        begun = time.monotonic()
        new.start()
        wait_for(lambda: self.samples(new) == count, LIMIT_S, "a new daemon has all records")
        took = time.monotonic() - begun
        self.row("from its start until a new, empty daemon has them all",
                 "%.1f s, %s/s" % (took, thousands(count / took)), (REPLICA_BOUND_S, took))
        new.wait_ready()
        begun = time.monotonic()
        rest = self.lab.daemons[2:]
        for daemon in rest:
            daemon.start()
        for daemon in rest:
            wait_for(lambda daemon=daemon: self.samples(daemon) == count, LIMIT_S, "all daemons have all records")
        self.row("the same for %d more at once" % len(rest), "%.1f s" % (time.monotonic() - begun))

    def visibility(self):
        """A record that is better than all before it, stored at one; who serves it when. Not while somebody is still
        comparing its rows with the engine's, as each does after it has connected."""
        for daemon in self.lab.daemons:
            wait_for(lambda daemon=daemon: daemon.fleet()["state"] == "following", what="all links follow")
        shape = json.loads(self.make_file("transpose", 1, 1, 1, 1000000).splitlines()[1])["shape"]
        times = [self.one_trial(shape, number) for number in range(self.options.trials)]
        worst = max(times)
        self.row("from storing a new best at one until all five serve it, median / max of %d" % len(times),
                 "%.0f / %.0f ms" % (1e3 * statistics.median(times), 1e3 * worst), (VISIBLE_BOUND_S, worst))

    def one_trial(self, shape, number):
        time_ns = 900000 - 1000 * number
        lines = self.make_file("transpose", 1, 1, 100 + number, time_ns)
        wanted = json.loads(lines.splitlines()[1])["median_ns"]
        daemon = random.choice(self.lab.daemons)
        waiting = [other.connect() for other in self.lab.daemons]
        with daemon.connect() as connection:
            name = connection.request("import", {"begin": {"name": "best"}})["import"]
            connection.request("import", {"import": name, "lines": lines, "first_line": 1})
            begun = time.monotonic()
            connection.request("import", {"import": name, "end": True})
        ask = {"kernel": "transpose", "shape": shape, "policy": "cached"}
        while waiting:
            waiting = [one for one in waiting if not self.serves(one, ask, wanted)]
            if time.monotonic() > begun + LIMIT_S:
                raise SystemExit("a new best does not reach all daemons")
        return time.monotonic() - begun

    @staticmethod
    def serves(connection, ask, wanted):
        try:
            answer = connection.request("get", ask)
        except Refused:  # nothing is known of this shape yet
            return False
        if answer["origin"] != "exact" or answer["median_ns"] != wanted:
            return False
        connection.socket.close()
        return True

    def gets(self):
        self.ask_many("well")
        self.lab.engine.pause()
        self.ask_many("silent (stopped)")
        self.lab.engine.resume()
        self.lab.engine.kill9()
        wait_for(lambda: self.first.fleet()["state"] == "connecting", what="the link has noticed")
        self.ask_many("gone")
        self.lab.engine.start()

    def ask_many(self, state):
        """Known shapes, one after another, by one connection; a Python client adds its share of some 50 us."""
        times = []
        with self.first.connect() as connection:
            for number in range(self.options.gets + 100):
                shape = self.shapes[number * 7919 % len(self.shapes)]
                begun = time.perf_counter()
                connection.request("get", {"kernel": "gemm", "shape": shape, "policy": "cached"})
                times.append(time.perf_counter() - begun)
        self.row("get, with the engine %s, median / p99" % state,
                 "%.0f / %.0f us" % tuple(1e6 * t for t in quantiles(times[100:])))

    def run(self):
        self.lab.engine.start()
        self.first.start().wait_ready()
        self.disk()
        self.fill()
        self.replicate()
        self.visibility()
        self.gets()
        self.disk()


def quantiles(times):
    ordered = sorted(times)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


def thousands(number):
    return "{:,.0f}".format(number)


def head(options, lab):
    model = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    yield "# %s, %s x %d, Linux %s; load average before %s" % (
        datetime.date.today(), model[0] if model else platform.machine(), os.cpu_count(), platform.release(),
        " ".join(open("/proc/loadavg").read().split()[:3]))
    yield "# %d daemons and %s on one machine, loopback; %s records of gemm, %d for each shape" % (
        DAEMONS, "PostgreSQL " + lab.engine.sql("SHOW server_version", "postgres").split()[0],
        thousands(options.records), options.per_key)


def parse_options():
    parser = argparse.ArgumentParser(usage="fleet.py BUILD_FOLDER [options]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    for name, number in (("records", 100000), ("per-key", 1), ("trials", 20), ("gets", 2000)):
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--out")
    return parser.parse_args()


def main():
    options = parse_options()
    with Lab(DAEMONS, options.build, has_net=False) as lab:
        bench = Bench(options, lab)
        bench.run()
        lines = list(head(options, lab)) + bench.lines
    if options.out:
        with open(options.out, "w") as file:
            file.write("\n".join(lines) + "\n")
    if bench.wrong and not options.no_times:
        sys.exit("not met: " + "; ".join(bench.wrong))


if __name__ == "__main__":
    main()
