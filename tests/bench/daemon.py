"""A tunerd of its own for measurements and GPU tests: private socket and database in a temporary folder."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time


def words_of(words):
    """PREFIX OUT [--db FOLDER] [KERNEL...]: prefix, out, folder or None, kernels."""
    words, db = list(words), None
    if "--db" in words:
        at = words.index("--db")
        db = words[at + 1]
        del words[at:at + 2]
    return os.path.abspath(words[0]), os.path.abspath(words[1]), db, words[2:]


class Daemon:
    """A daemon of its own in a temporary folder; as a context manager it is ended and removed."""

    def __init__(self, prefix, plugins=None, env=None, db=None):
        """db: a folder whose database is copied to begin with."""
        self.prefix = prefix
        self.folder = tempfile.mkdtemp(prefix="tunerd-bench-")
        self.socket = self.folder + "/s"
        if db:
            shutil.copytree(db, self.folder + "/db")
        command = [prefix + "/bin/tunerd", "--foreground", "--socket", self.socket,
                   "--db", self.folder + "/db", "--log", self.folder + "/log"]
        if plugins:
            command += ["--plugins", plugins]
        self.process = subprocess.Popen(command, env={**os.environ, **(env or {})})
        self.log = self.folder + "/log"
        limit = time.monotonic() + 20
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise SystemExit("tunerd did not start:\n" + open(self.log).read())
            time.sleep(0.005)

    def answers(self):
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self.socket) == 0

    def ctl(self, *words, check=True):
        run = subprocess.run([self.prefix + "/bin/tunectl", "--socket", self.socket, "--json", *words],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and run.returncode != 0:
            raise SystemExit(f"tunectl {' '.join(words)}: {run.stderr[-2000:]}\n{run.stdout[-2000:]}\n"
                             + open(self.log).read()[-4000:])
        return json.loads(run.stdout)

    def devices(self):
        """The GPUs, once the daemon knows them."""
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            found = self.ctl("devices")
            if found:
                return found
            time.sleep(0.05)
        return []

    def sweep(self, *words, check=True):
        begun = time.monotonic()
        result = self.ctl("sweep", *words, "--no-cache", check=check)
        result["client_wall_s"] = time.monotonic() - begun
        return result

    def keep_db(self, folder):
        """Ends the daemon and leaves its database in a new folder."""
        self.process.terminate()
        self.process.wait()
        shutil.copytree(self.folder + "/db", folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)
