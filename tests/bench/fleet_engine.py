#!/usr/bin/env python3
"""What the fleet's engine takes, without daemons: fleet_engine.py [--seconds S] [--sessions N,N,...] [--out FILE]

A PostgreSQL server of its own on the loopback device, with the tables of daemon/fleet/schema.sql. Measured are

  - puts: batches and rows a second, with several writers and sizes of a batch (rows of 790 bytes of text);
  - listening: what a session takes of memory, what a put of 20 rows costs while so many listen, and until all were told.

A table is printed, and written with --out. Clients and server share the machine: use one with nothing else to do."""
import argparse
import ctypes
import datetime
import os
import platform
import select
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../fleet"))
from fleet_lab import Lab  # noqa: E402

SCHEMA = os.path.join(HERE, "../../daemon/fleet/schema.sql")
WRITERS, BATCHES, LISTENED_BATCH, TRIALS = (1, 8, 32), (1, 20, 500), 20, 20
PUT = """SELECT tunerd.put(
  array_agg(decode(md5(random()::text) || md5(random()::text) || md5(random()::text) || md5(random()::text), 'hex')),
  array_agg(1::bigint), array_agg((random() * 1e18)::bigint), array_agg(repeat('x', 785) || g::text), 'bench')
  FROM generate_series(1, {rows}) g"""


class Session:
    """A connection by libpq, which has no module in Python's library."""
    pq = ctypes.CDLL("libpq.so.5")
    for name in ("PQconnectdb", "PQexec", "PQnotifies"):
        getattr(pq, name).restype = ctypes.c_void_p
    pq.PQerrorMessage.restype = ctypes.c_char_p

    def __init__(self, url):
        self.conn = ctypes.c_void_p(self.pq.PQconnectdb(url.encode()))
        self.check(self.pq.PQstatus(self.conn) == 0)
        self.descriptor = self.pq.PQsocket(self.conn)

    def check(self, is_right):
        if not is_right:
            raise SystemExit(self.pq.PQerrorMessage(self.conn).decode())

    def run(self, statement):
        result = ctypes.c_void_p(self.pq.PQexec(self.conn, statement.encode()))
        self.check(self.pq.PQresultStatus(result) in (1, 2))
        self.pq.PQclear(result)

    def heard(self):
        """How many notifications have come."""
        self.pq.PQconsumeInput(self.conn)
        count = 0
        while (notification := self.pq.PQnotifies(self.conn)) is not None:
            self.pq.PQfreemem(ctypes.c_void_p(notification))
            count += 1
        return count

    def close(self):
        self.pq.PQfinish(self.conn)


def put_rate(url, writers, rows, seconds):
    """Batches a second of all writers together."""
    counts, end = [0] * writers, time.monotonic() + seconds

    def write(index):
        session = Session(url)
        while time.monotonic() < end:
            session.run(PUT.format(rows=rows))
            counts[index] += 1
        session.close()

    threads = [threading.Thread(target=write, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def memory_mib(engine):
    """Of all the server's processes, what they share counted once."""
    total_kib = 0
    for pid in engine.processes():
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
                total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            pass  # it has ended
    return total_kib / 1024


def listen(engine, count):
    before = memory_mib(engine)
    sessions = [Session(engine.url) for _ in range(count)]
    for session in sessions:
        session.run("LISTEN tunerd")
    each_mib = (memory_mib(engine) - before) / count
    writer, poll = Session(engine.url), select.epoll()
    by_descriptor = {session.descriptor: session for session in sessions}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    put_ms, told_ms = [], []
    for _ in range(TRIALS):
        begun, told = time.perf_counter(), 0
        writer.run(PUT.format(rows=LISTENED_BATCH))
        put_ms.append(1e3 * (time.perf_counter() - begun))
        while told < count:
            told += sum(by_descriptor[descriptor].heard() for descriptor, _ in poll.poll(5))
        told_ms.append(1e3 * (time.perf_counter() - begun))
    for session in sessions + [writer]:
        session.close()
    return each_mib, statistics.median(put_ms), statistics.median(told_ms)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--sessions", default="5,100,500,1000")
    parser.add_argument("--out")
    options = parser.parse_args()
    counts = [int(word) for word in options.sessions.split(",")]
    lines = [f"# {datetime.date.today()}, {os.cpu_count()} cores, Linux {platform.release()}; load average before "
             + " ".join(f"{load:.2f}" for load in os.getloadavg())]
    with Lab(0, HERE, has_net=False) as lab, open(SCHEMA, encoding="utf-8") as schema:
        lab.engine.settings = [f"max_connections = {max(counts) + 100}"]
        lab.engine.start()
        lab.engine.sql(schema.read())
        for writers in WRITERS:
            for rows in BATCHES:
                rate = put_rate(lab.engine.url, writers, rows, options.seconds)
                lines.append(f"put, {writers:2} writers, {rows:3} rows a batch: {rate:6.0f} batches/s, {rate * rows:7.0f} rows/s")
        for count in counts:
            each_mib, put_ms, told_ms = listen(lab.engine, count)
            lines.append(f"{count:4} sessions listen: {each_mib:4.1f} MiB each; a put of {LISTENED_BATCH} rows {put_ms:5.1f} ms, "
                         f"all told after {told_ms:5.1f} ms (medians of {TRIALS})")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
