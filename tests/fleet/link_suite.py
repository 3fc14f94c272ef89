"""The link between a daemon and the fleet: what is measured at one machine is served at the others, nothing that was
acknowledged is lost whatever becomes of the engine, nothing hostile in it is served, and a daemon answers as ever with
the engine down, silent, or full of junk.

    link_suite.py [PART...]"""
import json
import shutil
import subprocess
import sys
import time

from engine_suite import User, equal, expect
from fleet_lab import CPU, Daemon, Lab, Refused, tag_wins, wait_for

SHAPES = (64, 96, 128)


def get(daemon, n=64, kernel="tiny"):
    return daemon.rpc("get", {"kernel": kernel, "shape": {"N": n}, "policy": "cached"})


def sweep(daemon, n=64, **params):
    told = daemon.wait_job(daemon.sweep(shapes=[{"N": n}], local=True, **params))
    equal(told["state"], "done", "a sweep")
    return told


def lines(daemon):
    """All rows that a daemon has."""
    found, cursor = [], None
    while True:
        page = daemon.rpc("export", {"cursor": cursor} if cursor else {})
        found += [line for line in page["lines"].split("\n") if line and not line.startswith('{"format"')]
        cursor = page["cursor"]
        if not cursor:
            return sorted(found)


def converge(lab, daemons=None, what="all daemons hold the same rows"):
    """Waits until they do, and the engine too; returns the rows."""
    daemons = daemons or lab.daemons

    def alike():
        first = lines(daemons[0])
        if all(lines(daemon) == first for daemon in daemons[1:]) and in_engine(lab) == len(first) and \
                all(daemon.fleet()["outbox"] == 0 for daemon in daemons):
            return first
    try:
        return wait_for(alike, what=what)
    except AssertionError:
        for daemon in daemons:
            print("%s: %d rows, %s" % (daemon.name, len(lines(daemon)), json.dumps(daemon.fleet())))
        print("the engine: %d rows" % in_engine(lab))
        raise


def in_engine(lab):
    return int(lab.engine.sql("SELECT count(*) FROM tunerd.sample"))


def follows(daemon):
    wait_for(lambda: daemon.fleet()["state"] == "following", what=daemon.name + " follows")


def disconnected(daemon):
    wait_for(lambda: daemon.fleet()["state"] in ("connecting", "refused"), what=daemon.name + " notices")


# --- the parts --------------------------------------------------------------------------------------------------------

def shares(lab):
    a, b = lab.daemons
    for daemon in lab.daemons:
        follows(daemon)
    try:
        expect(False, "an answer before anything was measured: %s" % get(b))
    except Refused:
        pass
    sweep(a)
    converge(lab)
    equal((get(b)["origin"], get(b)["config"]), ("exact", {"TAG": 2}), "the other's answer")
    equal(get(b)["median_ns"], get(a)["median_ns"], "the time")
    told = b.fleet()
    equal((told["sent"], told["refused"]), (0, 0), "what it sent and refused")
    wait_for(lambda: len(b.fleet()["nodes"]) == 2, what="both nodes are listed")
    text = b.tunectl("fleet").stdout
    expect("following" in text and "(this)" in text, "tunectl fleet: " + text)


def outage(lab):
    a, b = lab.daemons
    before = in_engine(lab)
    lab.engine.kill9()
    for daemon in lab.daemons:
        disconnected(daemon)
    sweep(a, 96)
    equal(get(a, 96)["origin"], "exact", "an answer without the engine")
    equal(get(b)["origin"], "exact", "the other's answer without the engine")
    wait_for(lambda: a.fleet()["outbox"] > 0, what="rows wait")
    a.kill9()
    a.start().wait_ready()
    equal(get(a, 96)["origin"], "exact", "an answer after kill -9 without the engine")
    lab.engine.start()
    converge(lab)
    expect(in_engine(lab) > before, "nothing came")
    equal(get(b, 96)["origin"], "exact", "the other's answer")


def silence(lab):
    a, b = lab.daemons
    lab.engine.pause()
    try:
        equal(get(b)["origin"], "exact", "an answer beside a silent engine")
        sweep(a, 128)
        equal(get(a, 128)["origin"], "exact", "an answer beside a silent engine")
        b.stop()
        b.start().wait_ready()
        equal(get(b)["origin"], "exact", "an answer of a daemon that cannot connect")
        b.stop()  # in the middle of connecting
    finally:
        lab.engine.resume()
    b.start().wait_ready()
    converge(lab)


def loss(lab):
    """The engine's data is thrown away: the daemons fill the new one."""
    a, b = lab.daemons
    held = converge(lab)
    lab.engine.stop()
    lab.engine.wipe()
    sweep(b, 160)
    lab.engine.start()
    now = converge(lab)
    expect(set(held) < set(now), "rows are lost")


def backup(lab):
    """The engine is one of yesterday."""
    a, b = lab.daemons
    lab.engine.stop()
    lab.engine.copy_data()
    lab.engine.start()
    for daemon in lab.daemons:
        follows(daemon)
    sweep(a, 192)
    held = converge(lab)
    lab.engine.stop()
    lab.engine.restore()
    lab.engine.start()
    equal(converge(lab), held, "rows after the restore")


def late(lab):
    """A machine that joins late, one whose folder is one of yesterday, and one whose folder is a copy of another's."""
    a, b = lab.daemons
    held = converge(lab)
    late = Daemon("late", lab.folder + "/late", a.build_dir, lab.engine.url, namespace=a.namespace, number=7)
    late.write_tiny(shapes=SHAPES)
    late.start().wait_ready()
    try:
        equal(converge(lab, [a, late]), held, "rows of a daemon that joined late")
        late.stop()
        shutil.copytree(late.db, late.db + ".old", ignore=shutil.ignore_patterns("served"))
        late.start().wait_ready()
        sweep(late, 224)
        held = converge(lab, [a, late])
        late.stop()
        shutil.rmtree(late.db)
        shutil.copytree(late.db + ".old", late.db)
        late.start().wait_ready()
        equal(converge(lab, [a, late]), held, "rows of a daemon with a folder of yesterday")
        # Both go by one id now, until one of them finds out.
        twin = Daemon("twin", lab.folder + "/twin", a.build_dir, lab.engine.url, namespace=a.namespace, number=8)
        twin.write_tiny(shapes=SHAPES)
        shutil.copytree(late.db + ".old", twin.db)
        twin.start().wait_ready()
        try:
            wait_for(lambda: late.fleet()["node"] != twin.fleet()["node"], what="the twins take two ids")
            sweep(twin, 256)
            converge(lab, [a, late, twin])
            twin.stop()
        finally:
            twin.kill9()
        late.stop()
    finally:
        late.kill9()
    converge(lab)


def refused(lab):
    """A newer version of the tables: said in words, answers go on, and it connects when that is over."""
    a, b = lab.daemons
    lab.engine.sql("UPDATE tunerd.version SET major = 2")
    lab.engine.kill9()
    lab.engine.start()
    wait_for(lambda: b.fleet()["state"] == "refused", what="it is refused")
    expect("newer tunerd" in b.fleet()["error"], "the reason: %s" % b.fleet()["error"])
    equal(get(b)["origin"], "exact", "an answer while refused")
    lab.engine.sql("UPDATE tunerd.version SET major = 1")
    for daemon in lab.daemons:
        follows(daemon)
    sweep(a, 288)
    converge(lab)


def full(lab):
    """No room for rows of others: they are not taken, what is measured here is sent, and no answer changes."""
    a, b = lab.daemons
    small = Daemon("small", lab.folder + "/small", a.build_dir, lab.engine.url, namespace=a.namespace, number=9,
                   options=["--fleet-limit", "1"])
    small.write_tiny(shapes=SHAPES)
    held = len(converge(lab))
    with open(lab.folder + "/flood.jsonl", "w") as file:
        subprocess.run([a.build_dir + "/bin/fleet_rows", a.folder + "/plugins", "tiny", "3000", "1000", "1"],
                       check=True, stdout=file)
    a.tunectl("import", lab.folder + "/flood.jsonl")
    converge(lab)
    small.start().wait_ready()
    try:
        wait_for(lambda: small.fleet()["state"] == "full", what="it is full")
        expect("--fleet-limit" in small.fleet()["error"], "the reason: %s" % small.fleet()["error"])
        before = in_engine(lab)
        expect(len(lines(small)) < before, "it took all")
        sweep(small, 320)
        wait_for(lambda: small.fleet()["outbox"] == 0, what="its rows are sent")
        expect(in_engine(lab) > before >= held + 3000, "its rows are not in the engine")
        small.stop()
    finally:
        small.kill9()
    converge(lab)


def emulated(lab):
    """Rows of the arch `cpu` stay where they are, unless asked for."""
    a, b = lab.daemons
    before = in_engine(lab)
    cpu = [Daemon("cpu%d" % i, "%s/cpu%d" % (lab.folder, i), a.build_dir, lab.engine.url, namespace=a.namespace,
                  number=20 + i, device=CPU, options=["--fleet-emulated"] if i else []) for i in range(2)]
    for daemon in cpu:
        daemon.write_tiny(shapes=SHAPES)
        daemon.start().wait_ready()
    try:
        sweep(cpu[0])
        follows(cpu[0])
        wait_for(lambda: cpu[0].fleet()["outbox"] == 0, what="nothing waits")
        equal(in_engine(lab), before, "rows in the engine")
        sweep(cpu[1])
        wait_for(lambda: cpu[1].fleet()["outbox"] == 0, what="rows are sent")
        expect(in_engine(lab) > before, "rows of --fleet-emulated are not in the engine")
        for daemon in (b, cpu[0]):
            wait_for(lambda: daemon.fleet()["lag_s"] == 0 and daemon.fleet()["position"] >= in_engine(lab),
                     what="it has read them")
        foreign = [r for r in b.records() if r["arch"] == "cpu"]
        equal(foreign, [], "rows of an emulated device at one that shares none")
        compared = b.log_text().count("compared:")
        b.stop()
        b.start().wait_ready()
        follows(b)
        equal(b.log_text().count("compared:"), compared, "comparisons that found a difference")
        for daemon in cpu:
            daemon.stop()
    finally:
        for daemon in cpu:
            daemon.kill9()
    lab.engine.sql("DELETE FROM tunerd.sample WHERE line LIKE '%\"arch\":\"cpu\"%'")


def cut(lab):
    if not lab.is_real:
        print("cut: skipped, no network namespaces here")
        return
    a, b = lab.daemons
    lab.net.cut(0)
    sweep(a, 352)
    equal(get(a, 352)["origin"], "exact", "an answer of one that is cut off")
    disconnected(a)
    sweep(b, 384)
    lab.net.heal(0)
    converge(lab)
    equal((get(b, 352)["origin"], get(a, 384)["origin"]), ("exact", "exact"), "answers after healing")


# --- hostile peers ----------------------------------------------------------------------------------------------------

class Forger:
    """Writes rows with SQL, past every check of a daemon."""

    def __init__(self, lab):
        self.lab, self.count, self.driver = lab, 0, User()
        self.model = json.loads(lab.engine.sql(
            "SELECT line FROM tunerd.sample WHERE line LIKE '%\"outcome\":\"ok\"%' AND line LIKE '%\"N\":64%' "
            "ORDER BY seq LIMIT 1"))
        self.model.pop("sum")

    def line(self, **changes):
        """A line as the model with changes, its sum right; and the row that it is, where a daemon reads it."""
        fields = {**self.model, "run": "forged-%d/search" % self.count, **changes}
        fields = {name: value for name, value in fields.items() if value is not None}
        text = json.dumps(fields, separators=(",", ":"))
        return self.driver.call("seal", line=text)

    def insert(self, line, id=None, rank=None, hash=None, row=None):
        self.count += 1
        row = row or {"id": "%0128x" % (self.count << 480 | 99), "rank": 1 << 32, "hash": "%016x" % self.count}
        self.lab.engine.sql(
            "WITH h AS (UPDATE tunerd.head SET seq = seq + 1 RETURNING seq) INSERT INTO tunerd.sample AS s "
            "SELECT decode('%s', 'hex'), %d, ('x' || '%s')::bit(64)::bigint, $forged$%s$forged$, 'hostile', seq FROM h "
            "ON CONFLICT (id) DO UPDATE SET rank = excluded.rank, hash = excluded.hash, line = excluded.line, "
            "node = excluded.node, seq = excluded.seq; SELECT pg_notify('tunerd', 'rows ' || seq) FROM tunerd.head"
            % (id or row["id"], rank if rank is not None else row["rank"], hash or row["hash"], line))

    def sealed(self, **changes):
        sealed = self.line(**changes)
        self.insert(sealed["line"], row=sealed.get("row"))
        return sealed


def hostile(lab):
    a, b = lab.daemons
    held = converge(lab)
    served = {n: get(b, n) for n in SHAPES}
    forger = Forger(lab)
    fast = {"confirmed": True, "median_ns": 900.0, "interval_ns": [890.0, 910.0], "samples_ns": None}
    good = forger.line(config={"TAG": 1}, **fast)
    expect("row" in good, "the forger cannot forge: %s" % good)
    before = b.fleet()["refused"]
    junk = ["", "{", "null", "[]", "junk", "{}", "\\xff", '{"sum":"0000000000000000"}', "x" * 65536, good["line"][:-9],
            good["line"].replace('"TAG":1', '"TAG":3'), "[" * 30000, '{"a":' * 10000]
    for line in junk:
        forger.insert(line)
    forger.insert(good["line"], row=good["row"], id="ab" * 64)  # under another id
    forger.insert(good["line"], row=good["row"], hash="0123456789abcdef")
    forger.insert(good["line"], row=good["row"], rank=1 << 61)
    forger.insert(good["line"], row=good["row"], rank=-1)
    wrong = [forger.sealed(config={"TAG": 99}, **fast), forger.sealed(config={"TAG": 1, "MORE": 2}, **fast),
             forger.sealed(config={}, **fast), forger.sealed(shape={"N": 64, "X": 1}, config={"TAG": 1}, **fast),
             forger.sealed(config={"TAG": 1}, confirmed=True, median_ns=1e-9, interval_ns=[1e-9, 1e-9], samples_ns=None),
             forger.sealed(config={"TAG": 1}, confirmed=True, median_ns=-5.0, interval_ns=[-6.0, -4.0], samples_ns=None),
             forger.sealed(config={"TAG": 1}, kernel="../../etc/passwd", **fast),
             forger.sealed(config={"TAG": 1}, dtype="f99", **fast),
             forger.sealed(config={"TAG": 1}, arch="sm_90; DROP TABLE", **fast)]
    # What is well-formed and of another version of the kernel is kept, and not served as if it were of this one.
    forger.sealed(config={"TAG": 1}, fingerprint="f" * 32, **fast)
    lab.engine.sql("ALTER TABLE tunerd.sample DROP CONSTRAINT sample_line_check")
    forger.insert('{"kernel":"%s"}' % ("x" * 1000000))
    # A row in the place of one that is served.
    victim = lab.engine.sql("SELECT encode(id, 'hex') FROM tunerd.sample WHERE line LIKE '%\"N\":96%' LIMIT 1")
    forger.insert("junk", id=victim, rank=1 << 62)
    wrong_rows = before + len(junk) + 4 + len(wrong) + 2
    wait_for(lambda: b.fleet()["refused"] == wrong_rows, what="what is wrong is refused, and nothing else")
    # The feed goes on: an honest row behind all that arrives.
    sweep(a, 416)
    wait_for(lambda: get(b, 416)["origin"] == "exact", what="an honest row arrives behind the junk")
    for n in SHAPES:
        equal(get(b, n), {**served[n], "generation": get(b, n)["generation"]}, "what is served for N = %d" % n)
    expect(set(held) <= set(lines(b)), "rows of before are gone")
    # And a daemon that starts with it, and compares.
    b.stop()
    b.start().wait_ready()
    follows(b)
    for n in SHAPES:
        equal(get(b, n)["config"], served[n]["config"], "what is served for N = %d after a start" % n)
    fresh = Daemon("fresh", lab.folder + "/fresh", a.build_dir, lab.engine.url, namespace=a.namespace, number=30)
    fresh.write_tiny(shapes=SHAPES)
    fresh.start().wait_ready()
    try:
        follows(fresh)
        for n in (64, 128):
            equal(get(fresh, n)["config"], served[n]["config"], "what a new daemon serves for N = %d" % n)
        fresh.stop()
    finally:
        fresh.kill9()
    forger.driver.close()
    # Cleaned by hand: what lay under an id of the junk is there again, and taken by all.
    lab.engine.sql("DELETE FROM tunerd.sample WHERE node = 'hostile'")
    for daemon in lab.daemons:
        daemon.stop()
        daemon.start().wait_ready()
    cleaned = converge(lab)
    expect(set(held) <= set(cleaned), "rows of before are gone")
    equal(lab.engine.sql("SELECT count(*) FROM tunerd.sample WHERE id = decode('%s', 'hex')" % victim), "1",
          "the row in whose place the junk was")


PARTS = [shares, outage, silence, loss, backup, late, refused, full, emulated, cut, hostile]


def main():
    wanted = sys.argv[1:]
    with Lab(2) as lab:
        for daemon in lab.daemons:
            daemon.write_tiny(shapes=SHAPES)
            daemon.write_scenario(tag_wins(2))
        lab.start()
        if wanted and "shares" not in wanted:
            for n in SHAPES:
                sweep(lab.daemons[0], n)
            converge(lab)
        for part in PARTS:
            if not wanted or part.__name__ in wanted:
                start = time.monotonic()
                part(lab)
                print("ok: %s (%.1f s)" % (part.__name__, time.monotonic() - start), flush=True)


if __name__ == "__main__":
    main()
