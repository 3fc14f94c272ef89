"""Nothing is lost and all agree: proof.py [--long] [--kills N] [--batches N]

Five daemons and a real PostgreSQL server, each in a network namespace of its own. All daemons sweep small shapes and
import files without pause, and one has asked the fleet for a long sweep, while one of the five is cut off and the
server and the daemons are killed (SIGKILL) at random. What a daemon told to the outside is kept in a journal here: each
row that `records` told, each file whose import was acknowledged. Then all is started, the sweep ends, the cable goes
back in. Now

  - all five export the same bytes,
  - every row of the journal is among them,
  - every candidate of the long sweep has a final row of that sweep,
  - a better configuration that one daemon gets is served by all five.

Reported: the time to converge after the cable went back in, and until the new best was served everywhere."""
import argparse
import json
import subprocess
import threading
import time

from fleet_lab import Failure, Lab, Refused, wait_for

DAEMONS = 5
ASKER = 0  # has asked for the long sweep
LONG = {"kernel": "wide", "shape": {"N": 64}}
SMALL_TAGS = 4
IMPORT_ROWS = 20
FILES_PER_SWEEP = 3
PAUSE_S = 1  # of each daemon's driver, between files
CONVERGE_LIMIT_S = 180
SWEEP_LIMIT_S = 600
STEP_LIMIT_S = 5  # the next kill comes after some progress, or after this


def say(words):
    print("%7.1f s  %s" % (time.monotonic() - BEGUN, words), flush=True)


BEGUN = time.monotonic()


# --- what was told to the outside -------------------------------------------------------------------------------------

def identity(row):
    """What a row of `records` and the same row in an export have in common."""
    return (row["kernel"], json.dumps(row["shape"], sort_keys=True), json.dumps(row["config"], sort_keys=True),
            row["run"], row["host"], row["outcome"], row.get("median_ns") or 0)


class Journal:
    """Kept outside of all that is killed."""

    def __init__(self):
        self.lock, self.measured, self.imported = threading.Lock(), {}, {}
        self.news = 0  # files and measured rows

    def rows_told(self, daemon, rows):
        with self.lock:
            for row in rows:
                if row["final"] and identity(row) not in self.measured:
                    self.measured[identity(row)] = daemon.name
                    self.news += 1

    def file_imported(self, daemon, lines):
        with self.lock:
            for line in lines:
                self.imported[line] = daemon.name
            self.news += 1

    def missing(self, lines):
        """What is not among the lines of an export."""
        told = {identity(json.loads(line)) for line in lines}
        there = set(lines)
        for entry, who in self.measured.items():
            if entry not in told:
                yield "measured, told by %s: %s" % (who, entry)
        for line, who in self.imported.items():
            if line not in there:
                yield "imported by %s: %s" % (who, line)


# --- what goes on beside the kills ------------------------------------------------------------------------------------

class Drivers:
    """One thread for each daemon that imports and sweeps, and one that follows the long sweep. They go on through
    restarts."""

    def __init__(self, lab, journal, rows_program):
        self.lab, self.journal, self.rows_program = lab, journal, rows_program
        self.is_over, self.failures = threading.Event(), []
        self.long_job, self.sweeps, self.files = None, 0, 0
        self.threads = [threading.Thread(target=self.repeat, args=(self.turn, daemon, lab.random.getrandbits(30)))
                        for daemon in lab.daemons]
        self.threads.append(threading.Thread(target=self.repeat, args=(self.follow, lab.daemons[ASKER], 0)))

    def repeat(self, turn, daemon, seed):
        number = 0
        while not self.is_over.wait(0.05):
            number += 1
            try:
                turn(daemon, seed, number)
            except (OSError, subprocess.TimeoutExpired):
                pass  # it is being restarted; what was not acknowledged is not in the journal
            except Refused as error:
                if error.code not in ("busy", "not_found", "unavailable"):
                    self.failures.append("%s: %s" % (daemon.name, error))
                    return
            except Exception as error:  # a thread that ends silently would prove nothing
                self.failures.append("%s: %r" % (daemon.name, error))
                return

    def turn(self, daemon, seed, number):
        """A machine that is busy all the time would help nobody."""
        self.add_file(daemon, seed + number)
        if number % FILES_PER_SWEEP == 0:
            self.sweep_small(daemon, number)
        self.is_over.wait(PAUSE_S)

    def add_file(self, daemon, seed):
        text = subprocess.run([self.rows_program, daemon.folder + "/plugins", "tiny", str(IMPORT_ROWS), "2", str(seed)],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
        daemon.write("rows.jsonl", text)
        ended = daemon.tunectl("import", daemon.folder + "/rows.jsonl", check=False)
        if ended.returncode == 0:
            self.journal.file_imported(daemon, text.splitlines()[1:])
            self.files += 1
        elif "refused" in ended.stdout:
            self.failures.append("%s refused rows: %s" % (daemon.name, ended.stdout))

    def sweep_small(self, daemon, number):
        """A shape of this daemon's own, so that every sweep measures."""
        shape = {"N": 16 * (1 + number) + 16 * 10000 * self.lab.daemons.index(daemon)}
        job = daemon.sweep("tiny", shapes=[shape], strategy="exhaustive", seed=number)
        while not self.is_over.wait(0.1):
            ended = daemon.job(job)["state"] not in ("queued", "running")
            self.journal.rows_told(daemon, daemon.records(job=job))
            if ended:
                self.sweeps += 1
                return

    def follow(self, daemon, _, __):
        if self.long_job is None:
            self.long_job = daemon.sweep(LONG["kernel"], shapes=[LONG["shape"]], strategy="exhaustive", seed=1)
        self.journal.rows_told(daemon, daemon.records(job=self.long_job))
        self.is_over.wait(0.3)

    def check(self):
        if self.failures:
            raise Failure("; ".join(self.failures))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


# --- the kills --------------------------------------------------------------------------------------------------------

class Chaos:
    """Kills and restarts; all from the main thread."""

    def __init__(self, lab, journal, drivers):
        self.lab, self.journal, self.drivers, self.random = lab, journal, drivers, lab.random
        self.down, self.kills = [], 0

    def some_progress(self):
        """Some news for the journal, or none for a while: everybody may be down."""
        goal, end = self.journal.news + self.random.randrange(1, 40), time.monotonic() + STEP_LIMIT_S
        wait_for(lambda: self.journal.news >= goal or time.monotonic() > end, 2 * STEP_LIMIT_S, "the clock")
        self.drivers.check()

    def start(self, part):
        part.start()
        if part is not self.lab.engine:
            part.wait_ready()

    def kill(self):
        """The engine every third time or so. Some come back at once, others after the next kill."""
        standing = [part for part in [self.lab.engine] * 2 + self.lab.daemons if part not in self.down]
        part = self.random.choice(standing)
        part.kill9()
        name = "the engine" if part is self.lab.engine else part.name
        if self.random.random() < 0.5:
            self.start(part)
            return name
        self.down.append(part)
        return name + ", which stays down"

    def revive(self, most):
        while len(self.down) > most:
            self.start(self.down.pop(0))

    def run(self, kills):
        for _ in range(kills):
            self.some_progress()
            self.kills += 1
            say("kill %d: %s" % (self.kills, self.kill()))
            self.revive(1)
        self.revive(0)


# --- afterwards -------------------------------------------------------------------------------------------------------

def is_idle(daemon):
    return all(job["state"] not in ("queued", "running") for job in daemon.rpc("jobs"))


def export(daemon):
    daemon.tunectl("export", "-o", daemon.folder + "/all.jsonl")
    with open(daemon.folder + "/all.jsonl") as file:
        return file.read()


def is_settled(lab):
    """Each link says that it follows, has sent all and has read all that the engine has."""
    told = [daemon.fleet() for daemon in lab.daemons]
    return all(one["state"] == "following" and one["outbox"] == 0 and one["position"] == one["head"] for one in told)


def converge(lab):
    """All five exports are the same: the text. When they are not the links have to say so."""
    def same():
        if not is_settled(lab):
            return None
        texts = [export(daemon) for daemon in lab.daemons]
        return texts[0] if len(set(texts)) == 1 else None
    try:
        return wait_for(same, CONVERGE_LIMIT_S, "all exports are the same")
    except Failure as failure:
        sizes = ["%s: %d rows, %s" % (daemon.name, export(daemon).count("\n") - 1, json.dumps(daemon.fleet()))
                 for daemon in lab.daemons]
        raise Failure("%s\n%s" % (failure, "\n".join(sizes))) from failure


def check_journal(journal, lines):
    missing = list(journal.missing(lines))
    if missing:
        raise Failure("%d of %d acknowledged rows are lost:\n%s" % (
            len(missing), len(journal.measured) + len(journal.imported), "\n".join(missing[:10])))
    say("%d measured and %d imported rows were acknowledged; all are there, among %d" % (
        len(journal.measured), len(journal.imported), len(lines)))


def check_long_sweep(lines, job, candidates):
    rows = [row for row in map(json.loads, lines) if row["kernel"] == LONG["kernel"] and row["run"] == job + "/search"]
    measured = {json.dumps(row["config"], sort_keys=True) for row in rows if row.get("final", True)}
    if len(measured) != candidates:
        raise Failure("the long sweep has final rows of %d candidates in place of %d" % (len(measured), candidates))
    by_host = {}
    for row in rows:
        by_host[row["host"]] = by_host.get(row["host"], 0) + 1
    say("the long sweep: %d candidates, %d rows, by host: %s" % (candidates, len(rows), json.dumps(by_host)))
    if len(by_host) < 2:
        raise Failure("only one machine took part in the sweep of the fleet")


def check_new_best(lab):
    """A sweep at one of a shape that nobody knows: what it found is served by all."""
    shape = {"N": 40}  # no multiple of 16, as all others are
    first = lab.random.choice(lab.daemons)
    ask = {"kernel": "tiny", "shape": shape, "policy": "cached"}
    first.wait_job(first.sweep("tiny", shapes=[shape]))
    begun = time.monotonic()
    wanted = first.rpc("get", ask)
    if wanted["origin"] != "exact":
        raise Failure("%s does not serve what it found: %s" % (first.name, wanted["origin"]))
    for daemon in lab.daemons:
        def is_served(daemon=daemon):
            answer = daemon.rpc("get", ask)
            return answer["origin"] == "exact" and answer["config"] == wanted["config"]
        wait_for(is_served, what="%s serves what %s found" % (daemon.name, first.name))
    say("what %s found is served by all %.0f ms after its sweep ended" % (
        first.name, 1000 * (time.monotonic() - begun)))


def write_kernels(daemon, batches):
    daemon.write_tiny("tiny", tags=SMALL_TAGS)
    daemon.write_tiny("wide", tags=16, params=[("B", range(batches))],
                      body="if (n < -100 - B)\n        y[0] = B; // and so each B")
    # Compiling takes a while, but for little of these machines' time.
    daemon.write_scenario([{"call": "nvrtcCompileProgram", "do": "delay_ms", "value": 150}])


def disturb(lab, drivers, journal, options):
    """Everything up to the moment when the cable is back; what is left to do is to converge."""
    lonely = lab.random.randrange(1, DAEMONS)
    wait_for(lambda: drivers.long_job or drivers.failures, what="the long sweep has begun")
    chaos = Chaos(lab, journal, drivers)
    chaos.run(options.kills // 4)
    if lab.is_real:
        lab.net.cut(lonely)
        say("host%d is cut off" % lonely)
    chaos.run(options.kills - options.kills // 4)
    wait_for(lambda: drivers.check() or lab.daemons[ASKER].job(drivers.long_job)["state"] not in ("queued", "running"),
             SWEEP_LIMIT_S, "the long sweep ends")
    say("the long sweep: " + lab.daemons[ASKER].job(drivers.long_job)["state"])
    return lonely


def prove(lab, options, rows_program):
    journal, candidates = Journal(), 16 * options.batches
    lab.start()
    with Drivers(lab, journal, rows_program) as drivers:
        lonely = disturb(lab, drivers, journal, options)
    drivers.check()
    for daemon in lab.daemons:
        wait_for(lambda daemon=daemon: is_idle(daemon), 120, "the last sweeps of %s end" % daemon.name)
    told = lab.daemons[ASKER].job(drivers.long_job)
    if told["state"] != "done":
        raise Failure("the long sweep is %s: %s" % (told["state"], told.get("error")))
    say("%d small sweeps, %d files; host%d has %s rows to send" % (
        drivers.sweeps, drivers.files, lonely, lab.daemons[lonely].fleet().get("outbox")))
    begun = time.monotonic()
    if lab.is_real:
        lab.net.heal(lonely)
    lines = converge(lab).splitlines()[1:]
    say("converged %.1f s after the cable was put back" % (time.monotonic() - begun))
    in_engine = int(lab.engine.sql("SELECT count(*) FROM tunerd.sample"))
    if in_engine != len(lines):
        raise Failure("the engine has %d rows, and each daemon %d" % (in_engine, len(lines)))
    check_journal(journal, lines)
    check_long_sweep(lines, drivers.long_job, candidates)
    check_new_best(lab)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="50 kills and 960 candidates")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--batches", type=int, help="of 16 candidates")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    options = parser.parse_args()
    options.kills = options.kills or (50 if options.long else 10)
    options.batches = options.batches or (60 if options.long else 16)
    with Lab(DAEMONS, keep=options.keep) as lab:
        if not lab.is_real:
            print("not done here: cutting one off; the kills are")
        rows_program = lab.daemons[0].build_dir + "/bin/fleet_rows"
        for daemon in lab.daemons:
            write_kernels(daemon, options.batches)
        prove(lab, options, rows_program)


if __name__ == "__main__":
    main()
