"""The PostgreSQL engine by itself, each user of it a process (engine_driver): order of changes under writers at once,
precedence, digests, leases, and every way in which a server can fail to answer."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from fleet_lab import Failure, LIMIT_S, Postgres, preparation, wait_for

BUILD = os.environ["TUNE_BUILD_DIR"]
NODES = {"a": "a" * 32, "b": "b" * 32, "c": "c" * 32}
TARGET = "sm_90|Lab GPU|132"


class EngineError(Exception):
    def __init__(self, answer):
        super().__init__("%s: %s" % (answer["error"], answer["text"]))
        self.code, self.text = answer["error"], answer["text"]


class User:
    """One process with one engine."""

    def __init__(self, url=None, node="a", environment=None, **options):
        self.shown = None
        self.process = subprocess.Popen([BUILD + "/bin/engine_driver"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=preparation(),
                                        env={**os.environ, **(environment or {})})
        if url:
            self.connect(url, node, **options)

    def connect(self, url, node="a", **options):
        return self.call("connect", url=url, node=NODES[node], **options)

    def send(self, op, **request):
        self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure("the driver ended with status %s" % self.process.wait())
        answer = json.loads(line)
        self.shown = answer.get("shown", self.shown)
        if "error" in answer:
            raise EngineError(answer)
        return answer

    def call(self, op, **request):
        self.send(op, **request)
        return self.receive()

    def fails(self, op, **request):
        """The error of a call that has to fail."""
        try:
            answer = self.call(op, **request)
        except EngineError as error:
            return error
        raise Failure("%s does not fail: %s" % (op, answer))

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            expect(self.process.wait(LIMIT_S) == 0, "the driver ends with status %s" % self.process.returncode)
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close() if kind is None else self.kill()


def expect(condition, otherwise):
    if not condition:
        raise Failure(otherwise)


def equal(found, wanted, what):
    expect(found == wanted, "%s: %s, not %s" % (what, found, wanted))


def row(number, rank=1, line="{}", hash=None):
    return {"id": "%02x%0126x" % (number % 256, number), "rank": rank, "line": line,
            "hash": hash or "%016x" % (number * 0x9E3779B97F4A7C15 % 2**64)}


def at_database(server, name):
    return server.url.rpartition("/")[0] + "/" + name


def all_changes(user, since=0, limit=1000):
    rows = []
    while True:
        answer = user.call("changes", since=since, limit=limit)
        rows += answer["rows"]
        if len(answer["rows"]) < limit:
            return rows
        since = rows[-1]["seq"]


# --- rows -------------------------------------------------------------------------------------------------------------

def put_and_read(server):
    with User(server.url) as a, User(server.url, "b") as b:
        a.call("put", rows=[row(1, line='{"a":1}'), row(2), row(258)])
        theirs = all_changes(b)
        equal([r["id"] for r in theirs], [row(n)["id"] for n in (1, 2, 258)], "the other's rows")
        equal(theirs[0]["line"], '{"a":1}', "a line")
        equal([r["line"] for r in all_changes(a)], [None] * 3, "lines of what one put oneself")
        equal(b.call("changes", since=theirs[-1]["seq"], limit=10)["rows"], [], "changes after the last one")
        equal(len(b.call("changes", since=0, limit=2)["rows"]), 2, "rows with a limit")
        equal({r["id"] for r in b.call("list", bucket=2)["rows"]}, {row(2)["id"], row(258)["id"]}, "a bucket")
        equal(b.call("list", bucket=255)["rows"], [], "the last bucket")
        fetched = b.call("fetch", ids=[row(1)["id"], row(77)["id"]])["rows"]
        equal([r["line"] for r in fetched], ['{"a":1}'], "rows by id")
        a.call("put", rows=[])


def by_hand(server):
    """A row that claims a number beyond the head does not carry a follower past what comes; one that is too long is
    not read whole."""
    with User(server.url) as a, User(server.url, "b") as b:
        a.call("put", rows=[row(700)])
        head = b.call("changes", since=0, limit=0)["head"]
        server.sql("ALTER TABLE tunerd.sample DROP CONSTRAINT sample_line_check")
        server.sql("INSERT INTO tunerd.sample SELECT decode(repeat('09', 64), 'hex'), 1, 42, repeat('x', 1000000), "
                   "'hand', 1::bigint << 62")
        equal([r["seq"] for r in b.call("changes", since=head - 1, limit=10)["rows"]], [head], "changes up to the head")
        equal(len(b.call("fetch", ids=["09" * 64])["rows"][0]["line"]), 65537, "what is read of a line")
        server.sql("DELETE FROM tunerd.sample WHERE node = 'hand'")
        server.sql("ALTER TABLE tunerd.sample ADD CHECK (octet_length(line) <= 65536)")


def refusals(server):
    """A bad row fails alone, says so, and leaves the connection as it was."""
    with User(server.url) as a:
        head = a.call("changes", since=0, limit=0)["head"]
        equal(a.fails("put", rows=[row(1000), row(1001, line="x" * 65537)]).code, "invalid_request", "a long line")
        equal(a.fails("put", rows=[row(1000, rank=2), row(1000, rank=3)]).code, "invalid_request", "an id twice in one batch")
        equal(a.call("changes", since=0, limit=0)["head"], head, "the head after refused batches")
        equal(a.call("fetch", ids=[row(1000)["id"]])["rows"], [], "a row of a refused batch")
        # As when the queue of notifications is full: no row is to blame, and each stays to be sent.
        server.sql("CREATE FUNCTION tunerd.full() RETURNS trigger LANGUAGE plpgsql AS "
                   "$$ BEGIN RAISE 'too many' USING ERRCODE = '54000'; END $$; "
                   "CREATE TRIGGER full_queue BEFORE INSERT ON tunerd.sample EXECUTE FUNCTION tunerd.full()")
        equal(a.fails("put", rows=[row(1000)]).code, "io", "a limit of the server")
        server.sql("DROP FUNCTION tunerd.full CASCADE")


def precedence(server):
    with User(server.url) as a:
        a.call("precedence", count=400, seed=int(os.environ.get("FLEET_SEED", "1")))


def recount(server):
    """bucket is what the rows are, whoever changed them."""
    server.sql("INSERT INTO tunerd.sample SELECT decode(repeat('07', 64), 'hex'), 1, 42, '{}', 'hand', "
               "(SELECT max(seq) + 1000000 FROM tunerd.sample)")
    server.sql("UPDATE tunerd.sample SET hash = hash + 5 WHERE seq % 3 = 0")
    server.sql("DELETE FROM tunerd.sample WHERE seq % 5 = 0")
    counted = server.sql("SELECT get_byte(id, 0), count(*), bit_xor(hash) FROM tunerd.sample GROUP BY 1 ORDER BY 1")
    wanted = [[0, 0]] * 256
    for line in counted.splitlines():
        bucket, rows, digest = (int(part) for part in line.split("|"))
        wanted[bucket] = [rows, digest % 2**64]
    with User(server.url) as a:
        found = [[rows, int(digest, 16)] for rows, digest in a.call("digest")["buckets"]]
        equal(found, wanted, "the digests")
        equal(a.call("status")["rows"], sum(rows for rows, _ in wanted), "the count of rows")
        server.sql("TRUNCATE tunerd.sample")
        equal(a.call("digest")["buckets"], [[0, "0" * 16]] * 256, "the digests of nothing")


def order(server):
    """Four writers at once and a reader that goes on from the last number it saw: it misses nothing."""
    before = server.sql("SELECT count(*) FROM tunerd.sample")
    with User(server.url, "c") as reader:
        seen, position = set(), reader.call("changes", since=0, limit=0)["head"]
        writers = [User(server.url, "b") for _ in range(4)]
        for i, writer in enumerate(writers):
            writer.send("storm", batches=120, seed=1000 + i)
        wanted = 4 * 120 * 7

        def has_all():
            nonlocal position
            reader.call("wait", ms=50)
            answer = reader.call("changes", since=position, limit=10000)
            seen.update(r["id"] for r in answer["rows"])
            position = max([answer["head"]] + [r["seq"] for r in answer["rows"]])
            return int(server.sql("SELECT count(*) FROM tunerd.sample")) - int(before) == wanted
        wait_for(has_all, what="the writers' rows are there")
        for writer in writers:
            writer.receive()
            writer.close()
        has_all()
        equal(len(seen), wanted, "rows that a follower has seen")


def news(server):
    with User(server.url, "a") as a, User(server.url, "b") as b:
        equal(b.call("wait", ms=0)["status"], 0, "news of nothing")
        b.call("changes", since=0, limit=0)
        a.call("put", rows=[row(5000)])
        equal(b.call("wait", ms=LIMIT_S * 1000)["status"], 1, "news of a row")
        b.call("changes", since=0, limit=0)
        b.send("wait", ms=LIMIT_S * 1000)
        a.call("offer", target=TARGET, payload="{}")
        equal(b.receive()["status"], 1, "news of a task")
    server.sql("DELETE FROM tunerd.task")


# --- tasks ------------------------------------------------------------------------------------------------------------

def offer(asker, **more):
    asker.call("beat", host="h", targets="", position=0)
    return asker.call("offer", target=TARGET, payload='{"n":1}', **more)["task"]


def lease(user, lease_ms=60000, targets=(TARGET,)):
    answer = user.call("lease", targets=list(targets), lease_ms=lease_ms)
    return answer if answer["status"] == 0 else None


def leases(server):
    with User(server.url, "a") as a, User(server.url, "b") as b, User(server.url, "c") as c:
        task = offer(a)
        equal(a.call("task_state", task=task)["state"], "waiting", "an offered task")
        equal(b.call("task_state", task=task)["state"], "gone", "another's task")
        equal(lease(a), None, "a lease of one's own task")
        equal(lease(b, targets=["sm_80|Lab GPU|132"]), None, "a lease for another GPU")
        got = lease(b, targets=["sm_80|x|1", TARGET])
        equal((got["task"], got["asker"], got["payload"], got["tries"]), (task, NODES["a"], '{"n":1}', 1), "a lease")
        equal(lease(c), None, "a lease of what is leased")
        equal(a.call("take_back", task=task)["status"], 1, "taking back what is leased")
        equal(c.call("renew", task=task, lease_ms=1000)["status"], 1, "renewing another's lease")
        equal(c.call("complete", task=task)["status"], 1, "completing another's lease")
        equal(a.call("task_state", task=task)["state"], "leased", "a leased task")
        b.call("put", rows=[row(6000)])
        equal(b.call("complete", task=task)["status"], 0, "completing")
        told = a.call("task_state", task=task)
        seqs = {r["id"]: r["seq"] for r in all_changes(a)}
        expect(told["state"] == "done" and told["done_seq"] >= seqs[row(6000)["id"]], "a done task: %s" % told)
        equal(b.call("complete", task=task)["status"], 1, "completing twice")
        a.call("withdraw", task=task)
        equal(a.call("task_state", task=task)["state"], "gone", "a withdrawn task")
        task = offer(a)
        equal(b.call("take_back", task=task)["status"], 1, "taking back another's task")
        equal(a.call("take_back", task=task)["status"], 0, "taking back")
        task = offer(a)
        lease(b)
        b.call("complete", task=task, failed=True)
        equal(a.call("task_state", task=task)["state"], "failed", "a failed task")
        a.call("withdraw", task=task)


def expiry(server):
    """A holder that is killed, and one that is too slow: somebody else has the batch, and the late one is refused."""
    with User(server.url, "a") as a, User(server.url, "c") as c:
        killed = User(server.url, "b")
        task = offer(a)
        equal(lease(killed, 300)["task"], task, "a lease")
        killed.kill()
        got = wait_for(lambda: lease(c, 300), what="the batch of a killed holder is taken over")
        equal((got["task"], got["tries"]), (task, 2), "the batch that was taken over")
        with User(server.url, "b") as b:
            wait_for(lambda: lease(b), what="the batch of a slow holder is taken over")
            equal(c.call("renew", task=task, lease_ms=1000)["status"], 1, "renewing a lease that ran out")
            equal(c.call("complete", task=task)["status"], 1, "completing after the lease ran out")
            equal(b.call("complete", task=task)["status"], 0, "completing")
        a.call("withdraw", task=task)
        task = offer(a)
        for _ in range(5):
            wait_for(lambda: lease(c, 1), what="a lease")
        wait_for(lambda: a.call("task_state", task=task)["state"] == "failed", what="five lost leases are enough")
        equal(lease(c), None, "a sixth lease")
        a.call("withdraw", task=task)
        task = offer(a)
        server.sql("UPDATE tunerd.node SET seen = seen - interval '1 hour' WHERE node = '%s'" % NODES["a"])
        equal(lease(c), None, "a lease of a batch of an asker that is gone")
        a.call("withdraw", task=task)


def nodes(server):
    with User(server.url, "a") as a, User(server.url, "b") as b:
        a.call("beat", host="one", targets="x\ny", position=7)
        b.call("beat", host="two", targets="", position=8)
        told = {n["node"]: n for n in b.call("status")["nodes"]}
        equal((told[NODES["a"]]["host"], told[NODES["a"]]["targets"], told[NODES["a"]]["position"]),
              ("one", "x\ny", 7), "what a node says of itself")
        expect(0 <= told[NODES["a"]]["age_s"] < LIMIT_S, "a node's age")
        with User(server.url, "a") as twin:
            equal(twin.call("beat", host="copy", targets="", position=0)["status"], 0, "the twin's beat")
            equal(a.call("beat", host="one", targets="", position=0)["status"], 1, "a beat beside a twin")
        server.sql("INSERT INTO tunerd.node VALUES ('old', '', 'h', '', 0, now() - interval '2 days')")
        server.sql("INSERT INTO tunerd.task (asker, target, payload, made) VALUES ('old', 't', '{}', "
                   "now() - interval '2 days')")
        with User(server.url, "c") as c:
            c.call("beat", host="h", targets="", position=0)
            expect("old" not in {n["node"] for n in c.call("status")["nodes"]}, "a node that left long ago is kept")
            equal(server.sql("SELECT count(*) FROM tunerd.task WHERE asker = 'old'"), "0", "tasks of long ago")


# --- servers that fail ------------------------------------------------------------------------------------------------

def silence(server):
    """With a server that says nothing each call ends by its deadline, all of them at once here; and a call is broken
    off from outside."""
    calls = [("put", {"rows": [row(7000)]}), ("changes", {"since": 0, "limit": 1}), ("digest", {}),
             ("lease", {"targets": [TARGET], "lease_ms": 1000}), ("beat", {"host": "", "targets": "", "position": 0})]
    users = [User(server.url, "b") for _ in calls]
    broken_off, late = User(server.url, "c"), User()
    server.pause()
    try:
        for user, (op, request) in zip(users, calls):
            user.send(op, **request)
        late.send("connect", url=server.url, node=NODES["a"], deadline_ms=1000)
        broken_off.call("cancel_after", ms=100)
        equal(broken_off.fails("digest").code, "canceled", "a call that is broken off")
        equal(broken_off.fails("connect", url=server.url, node=NODES["c"]).code, "canceled", "connecting after that")
        codes = []
        for user in users + [late]:
            try:
                codes.append(user.receive())
            except EngineError as error:
                codes.append(error.code)
        equal(codes, ["timeout"] * 6, "calls to a silent server")
        equal(users[0].fails("digest").code, "io", "a call on a lost connection")
    finally:
        server.resume()
    for user in users + [broken_off, late]:
        user.close()
    with User(server.url) as a:  # nothing is left locked
        a.call("put", rows=[row(7001)])


def restarts(server):
    a = User(server.url)
    a.call("put", rows=[row(7100)])
    b = User(server.url, "b")
    identity = a.connect(server.url)["identity"]
    server.kill9()
    equal(a.fails("digest").code, "io", "a call to a killed server")
    equal(b.fails("wait", ms=LIMIT_S * 1000).code, "io", "waiting for a killed server")
    equal(a.fails("connect", url=server.url, node=NODES["a"]).code, "io", "a connection that is refused")
    server.start()
    equal(a.connect(server.url)["identity"], identity, "the identity after a restart")
    equal(len(a.call("fetch", ids=[row(7100)["id"]])["rows"]), 1, "an acknowledged row after kill -9")
    a.close()
    b.close()


def addresses(server):
    with User() as a:
        name = server.url.replace("127.0.0.1", "localhost")
        a.connect(name)
        equal(a.fails("connect", url=server.url.replace("127.0.0.1", "no-such-host.invalid"), node=NODES["a"]).code,
              "io", "a name that is not found")
        both = "postgresql://tuner@127.0.0.1:1,localhost:%d/tune" % server.port
        a.connect(both)
        a.connect("host=%s port=%d user=tuner dbname=tune" % (server.folder, server.port))


def versions(server):
    server.sql("UPDATE tunerd.version SET major = 2")
    with User() as a:
        error = a.fails("connect", url=server.url, node=NODES["a"])
        expect(error.code == "version" and "newer tunerd" in error.text, "a newer version: %s" % error)
    server.sql("UPDATE tunerd.version SET major = 1")


def rights(server):
    """A role that may not make the tables is told what to do; with the printed schema and GRANTs it works."""
    schema = open(os.path.join(os.environ["TUNE_SOURCE_DIR"], "daemon/fleet/schema.sql")).read()
    server.sql("CREATE ROLE weak LOGIN; CREATE DATABASE other", "postgres")
    url = at_database(server, "other").replace("tuner@", "weak@")
    with User() as a:
        error = a.fails("connect", url=url, node=NODES["a"])
        expect(error.code == "not_permitted" and "--fleet-schema" in error.text, "no rights: %s" % error)
        server.sql(schema, "other")
        error = a.fails("connect", url=url, node=NODES["a"])
        expect(error.code == "not_permitted", "tables, but no rights: %s" % error)
        server.sql("\n".join(line[2:].replace("the_role", "weak") for line in schema.splitlines()
                             if line.startswith("--     GRANT")), "other")
        a.connect(url)
        a.call("put", rows=[row(1)])
        offer(a)
        equal(a.call("status")["rows"], 1, "rows put by a role without ownership")
        server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'", "postgres")
        equal(a.fails("connect", url=at_database(server, "latin"), node=NODES["a"]).code, "invalid_request",
              "a database that is not UTF8")
        equal(a.fails("connect", url=at_database(server, "none"), node=NODES["a"]).code, "not_permitted",
              "a database that is not there")


def secrets(server):
    """TLS with a certificate that is checked, and a password that is neither wrong nor shown."""
    folder = server.folder + "/tls"
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder + "/key", "-out", folder + "/cert"],
                   check=True, capture_output=True)
    owner = os.stat(server.data)
    for name in ("", "/key", "/cert"):
        os.chown(folder + name, owner.st_uid, owner.st_gid)
    os.chmod(folder + "/key", 0o600)
    os.chmod(folder, 0o755)
    shutil.copy(folder + "/cert", server.folder + "/root.pem")
    server.sql("SET password_encryption = 'scram-sha-256'; CREATE ROLE safe LOGIN SUPERUSER PASSWORD 'open sesame'")
    server.stop()
    server.settings += ["ssl = on", "ssl_cert_file = '%s/cert'" % folder, "ssl_key_file = '%s/key'" % folder]
    server.hba += ["hostssl all all 127.0.0.1/32 scram-sha-256"]
    server.start()
    rest = "@localhost:%d/tune?sslmode=verify-full&sslrootcert=%s/root.pem" % (server.port, server.folder)
    with User() as a:
        a.connect("postgresql://safe:open%20sesame" + rest)
        expect("sesame" not in a.shown and "localhost" in a.shown, "what is shown of the URL: %s" % a.shown)
        a.call("put", rows=[row(7200)])
        equal(server.sql("SELECT DISTINCT ssl FROM pg_stat_ssl s JOIN pg_stat_activity USING (pid) "
                         "WHERE usename = 'safe'"), "t", "a connection with TLS")
        error = a.fails("connect", url="postgresql://safe:guessed" + rest, node=NODES["a"])
        expect(error.code == "not_permitted" and "guessed" not in error.text, "a wrong password: %s" % error)
        error = a.fails("connect", url=("postgresql://safe:open%20sesame" + rest).replace("localhost", "127.0.0.1"),
                        node=NODES["a"])
        expect(error.code == "not_permitted", "another name than the certificate's: %s" % error)
        error = a.fails("connect", url="postgresql://safe:x@localhost:%d/tune?sslmode=disable" % server.port,
                        node=NODES["a"])
        equal(error.code, "not_permitted", "without TLS")


PARTS = [put_and_read, by_hand, refusals, precedence, recount, order, news, leases, expiry, nodes, addresses, versions,
         rights, restarts, silence, secrets]


def main():
    wanted = sys.argv[1:]
    folder = tempfile.mkdtemp(prefix="tune-engine.")
    os.chmod(folder, 0o711)
    server = Postgres(folder + "/pg")
    try:
        server.start()
        for part in PARTS:
            if not wanted or part.__name__ in wanted:
                start = time.monotonic()
                part(server)
                print("ok: %s (%.1f s)" % (part.__name__, time.monotonic() - start), flush=True)
    except BaseException:
        with open(server.log, errors="replace") as log:
            print("--- the server's log ends:\n" + log.read()[-4000:], file=sys.stderr)
        raise
    finally:
        server.kill9()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
