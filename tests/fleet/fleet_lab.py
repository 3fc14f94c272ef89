"""A fleet in a temporary folder: daemons with the emulator, a real PostgreSQL server, and a network that can be cut.

    with Lab(daemons=2) as lab:
        lab.start()
        lab.daemons[0].write_tiny()
        ...
        lab.net.cut(0)

Each daemon has its own folder (socket, database, kernels, scenario, log), its own GPU (model, UUID), its own host name
and, with root's rights, its own network namespace; the server has one too. Without these rights (or where the kernel
or `ip` refuses) everything runs on the loopback device: net.is_real is False, and what cuts the network has to be
skipped. initdb refuses root, so the server runs as `postgres` or `nobody` then.

Nothing sleeps: wait_for polls a condition with a limit. Everything random comes from lab.random, whose seed is printed
(FLEET_SEED repeats it). All processes end with this one, also when it is killed; namespaces that a killed one left are
removed by the next. Processes have to be started from the main thread (they are told to end with the thread that
started them).

The lab's parts can be used alone: Net(n), Postgres(folder, ...), Daemon(name, folder, ...)."""
import atexit
import contextlib
import ctypes
import glob
import itertools
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60  # of waits that end at once on an idle machine
SKIPPED = 77  # exit status of a test that cannot run here
POLL_S = 0.02
GPU = {"name": "Lab GPU", "major": 9, "minor": 0, "sms": 132}  # of every daemon, unless told otherwise
CPU = {"name": "CPU emulator", "major": 0, "minor": 0, "sms": 4}

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000


class Failure(AssertionError):
    """What a test found wrong."""


def wait_for(condition, limit_s=LIMIT_S, what="the condition"):
    """Calls it until what it returns is true, and returns that. An OSError or Refused counts as not yet."""
    end, last = time.monotonic() + limit_s, None
    while True:
        try:
            if result := condition():
                return result
            last = None
        except (OSError, Refused) as error:
            last = error
        if time.monotonic() > end:
            raise Failure("%s: still not so after %d s%s" % (what, limit_s, ": %s" % last if last else ""))
        time.sleep(POLL_S)


def skip(why):
    print("skipped: " + why)
    sys.exit(SKIPPED)


# --- processes --------------------------------------------------------------------------------------------------------

def preparation(namespace=None, host=None, user=None):
    """What a child does before exec: join the namespace, take the name and the user, end with this process."""
    wanted = pwd.getpwnam(user) if user else None

    def prepare():
        if namespace:
            with open("/run/netns/" + namespace) as file:
                if libc.setns(file.fileno(), CLONE_NEWNET):
                    os._exit(126)
        if host and os.geteuid() == 0 and libc.unshare(CLONE_NEWUTS) == 0:
            libc.sethostname(host.encode(), len(host))
        if wanted:
            os.setgroups([])
            os.setgid(wanted.pw_gid)
            os.setuid(wanted.pw_uid)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return prepare


def children_of(pid):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as file:
            fields = file.read().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(path.split("/")[2]))
    return found


def send_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def have_ended(pids):
    """Orphans are adopted by this process, so they have to be waited for."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return not any(os.path.exists("/proc/%d" % pid) for pid in pids)


# --- the network ------------------------------------------------------------------------------------------------------

class Net:
    """A switch with one namespace for the engine and one for each of n daemons; cut(i) takes i's cable out: packets
    vanish, nobody is told."""
    SUBNET = "10.77.0."
    made = itertools.count()

    def __init__(self, n):
        self.prefix = "tunerd-lab-%d-%d-" % (os.getpid(), next(Net.made))
        self.names, self.why_not = [], ""
        remove_leftovers()
        atexit.register(self.close)
        try:
            self.switch = self.add("switch")
            self.ip("-n", self.switch, "link", "add", "name", "bridge0", "type", "bridge")
            self.ip("-n", self.switch, "link", "set", "dev", "bridge0", "up")
            for place in range(n + 1):
                self.plug_in(place)
        except (OSError, subprocess.CalledProcessError) as error:
            self.why_not = getattr(error, "stderr", None) or str(error)
            self.close()
        self.is_real = not self.why_not

    @staticmethod
    def ip(*words):
        subprocess.run(("ip",) + words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def add(self, name):
        self.ip("netns", "add", self.prefix + name)
        self.names.append(self.prefix + name)
        return self.prefix + name

    def plug_in(self, place):
        """Place 0 is the engine's, i + 1 that of daemon i."""
        name = self.add(str(place))
        self.ip("-n", name, "link", "add", "name", "eth0", "type", "veth",
                "peer", "name", "p%d" % place, "netns", self.switch)
        self.ip("-n", name, "addr", "add", "%s%d/24" % (self.SUBNET, place + 1), "dev", "eth0")
        self.ip("-n", name, "link", "set", "dev", "eth0", "up")
        self.ip("-n", name, "link", "set", "dev", "lo", "up")
        self.ip("-n", self.switch, "link", "set", "dev", "p%d" % place, "master", "bridge0", "up")

    def engine(self):
        """Namespace (None: there are none) and address of the engine."""
        return (self.prefix + "0", self.SUBNET + "1") if self.is_real else (None, "127.0.0.1")

    def namespace(self, i):
        return self.prefix + str(i + 1) if self.is_real else None

    def cut(self, i):
        self.ip("-n", self.switch, "link", "set", "dev", "p%d" % (i + 1), "down")

    def heal(self, i):
        self.ip("-n", self.switch, "link", "set", "dev", "p%d" % (i + 1), "up")

    def close(self):
        while self.names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                self.ip("netns", "del", self.names[-1])
            self.names.pop()


def remove_leftovers():
    """Namespaces of labs that have ended without removing them."""
    for path in glob.glob("/run/netns/tunerd-lab-*"):
        name = os.path.basename(path)
        if not os.path.exists("/proc/" + name.split("-")[2]):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                Net.ip("netns", "del", name)


# --- the engine -------------------------------------------------------------------------------------------------------

def find_postgres():
    """The folder of the server's programs, version 15 or later; None when there is none."""
    asked = os.environ.get("TUNE_POSTGRES_BIN")
    on_path = shutil.which("initdb")
    folders = [asked] if asked else glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin") + \
        ([os.path.dirname(os.path.realpath(on_path))] if on_path else [])
    found = []
    for folder in folders:
        with contextlib.suppress(OSError, subprocess.CalledProcessError, ValueError):
            words = subprocess.run([folder + "/postgres", "--version"], check=True, capture_output=True, text=True)
            version = int(words.stdout.split()[2].split(".")[0].rstrip("develbtarc"))
            if version >= 15 and os.path.exists(folder + "/initdb"):
                found.append((version, folder))
    return max(found)[1] if found else None


def server_user():
    """Who runs the server: nobody else than we, unless we are root, whom initdb refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return None


class Postgres:
    """A server of its own with the database `tune` of the role `tuner` (a superuser, no password unless settings and
    pg_hba lines say otherwise). Durable as by default: fsync is on."""

    def __init__(self, folder, namespace=None, address="127.0.0.1", port=None, settings=()):
        """settings: lines of postgresql.conf, such as "ssl = on"."""
        self.programs = find_postgres()
        if self.programs is None:
            skip("no PostgreSQL server, 15 or later, is installed (Debian: postgresql; or name its TUNE_POSTGRES_BIN)")
        self.folder, self.data = os.path.abspath(folder), os.path.abspath(folder) + "/data"
        self.user, self.namespace, self.address = server_user(), namespace, address
        self.port = port or (5432 if namespace else free_port())
        self.settings, self.hba = list(settings), []
        self.process, self.is_paused = None, False
        os.makedirs(self.folder, exist_ok=True)
        if self.user:
            os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, -1)

    @property
    def url(self):
        return "postgresql://tuner@%s:%d/tune" % (self.address, self.port)

    @property
    def log(self):
        return self.folder + "/log"

    def run(self, program, *words, **options):
        # In a folder that the server's user may enter; the test's own need not be one.
        return subprocess.run([os.path.join(self.programs, program), *words], check=True, text=True, cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              preexec_fn=preparation(user=self.user), **options)

    def create(self):
        """Makes an empty cluster. Its files need not survive the machine; those of transactions do."""
        self.run("initdb", "--data-checksums", "--no-sync", "--auth=trust", "--username=tuner", "--encoding=UTF8",
                 "--locale=C", "--pgdata", self.data)
        with open(self.data + "/postgresql.conf", "a") as file:
            file.write("listen_addresses = '%s'\nport = %d\nunix_socket_directories = '%s'\nshared_buffers = 64MB\n"
                       "max_connections = 60\n" % (self.address, self.port, self.folder))
        with open(self.data + "/pg_hba.conf", "a") as file:
            file.write("host all all %s/24 trust\n" % self.address)

    def start(self):
        """Starts it, with a new cluster where there is none, and waits until it answers."""
        if not os.path.exists(self.data):
            self.create()
        if self.settings:
            with open(self.data + "/postgresql.auto.conf", "w") as file:
                file.write("".join(line + "\n" for line in self.settings))
        if self.hba:
            with open(self.data + "/pg_hba.conf", "w") as file:
                file.write("local all all trust\n" + "".join(line + "\n" for line in self.hba))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.programs + "/postgres", "-D", self.data], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                                            preexec_fn=preparation(self.namespace, user=self.user))
        wait_for(self.answers, what="the server answers (its log: %s)" % self.log)
        if not self.sql("SELECT 1 FROM pg_database WHERE datname = 'tune'", "postgres"):
            self.sql("CREATE DATABASE tune", "postgres")
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise Failure("the server ended with status %d:\n%s" % (self.process.returncode, tail(self.log)))
        with contextlib.suppress(subprocess.CalledProcessError):
            return self.sql("SELECT 1", "postgres") == "1"
        return False

    def sql(self, text, database="tune", limit_s=LIMIT_S):
        """What psql prints: a row a line, columns separated by |. By the socket in the folder, whatever the network."""
        environment = {**os.environ, "PGCONNECT_TIMEOUT": "10", "PGOPTIONS": "-c client_min_messages=warning"}
        return self.run("psql", "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-p", str(self.port),
                        "-U", "tuner", "-d", database, input=text, timeout=limit_s, env=environment).stdout.rstrip("\n")

    def stop(self):
        if self.process is None:
            return
        self.resume()
        self.process.send_signal(signal.SIGINT)  # "fast": sessions are ended
        self.process.wait(LIMIT_S)
        self.process = None

    def processes(self):
        return [self.process.pid] + children_of(self.process.pid)

    def kill9(self):
        """The postmaster and every process of it."""
        if self.process is None:
            return
        everyone = self.processes()
        send_all(everyone, signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: have_ended(everyone), what="the server's processes end")
        self.process, self.is_paused = None, False

    def pause(self):
        """It is there, and says nothing."""
        os.kill(self.process.pid, signal.SIGSTOP)  # first, so that it makes no more children
        send_all(self.processes(), signal.SIGSTOP)
        self.is_paused = True

    def resume(self):
        if self.is_paused:
            send_all(reversed(self.processes()), signal.SIGCONT)
            self.is_paused = False

    def wipe(self):
        """Loses everything; start() makes it anew. Not while it runs."""
        assert self.process is None
        shutil.rmtree(self.data)

    def copy_data(self, name="copy"):
        """Keeps a copy of its files, as a backup would. Not while it runs."""
        assert self.process is None
        shutil.rmtree(self.folder + "/" + name, ignore_errors=True)
        self.copy(self.data, self.folder + "/" + name)

    def restore(self, name="copy"):
        assert self.process is None
        shutil.rmtree(self.data, ignore_errors=True)
        self.copy(self.folder + "/" + name, self.data)

    def copy(self, source, target):
        subprocess.run(["cp", "-a", source, target], check=True)  # owners too


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tail(path, size=4000):
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - size))
        return file.read(size).decode(errors="replace")  # it may grow meanwhile
    return ""


# --- a daemon ---------------------------------------------------------------------------------------------------------

class Refused(Exception):
    """An error that the daemon answered."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.code = error.get("data", {}).get("code", "")


class Connection:
    """A connection to a daemon; it ends with the daemon, by an OSError."""

    def __init__(self, path, limit_s=LIMIT_S):
        self.socket, self.held, self.asked = socket.socket(socket.AF_UNIX), b"", 0
        self.socket.settimeout(limit_s)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def message(self):
        while b"\n" not in self.held:
            more = self.socket.recv(1 << 18)
            if not more:
                raise ConnectionResetError("the daemon has gone")
            self.held += more
        line, _, self.held = self.held.partition(b"\n")
        return json.loads(line)

    def request(self, method, params=None):
        self.asked += 1
        message = {"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params or {}}
        self.socket.sendall(json.dumps(message).encode() + b"\n")
        while (reply := self.message()).get("id") != self.asked:
            pass
        if "error" in reply:
            raise Refused(reply["error"])
        return reply["result"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Daemon:
    """A tunerd in a folder of its own, which stays when it ends: start() goes on with the same database."""

    def __init__(self, name, folder, build_dir, url=None, namespace=None, options=(), device=GPU, number=1):
        """number: makes the UUID of its GPU. device: what the emulator poses as (GPU, CPU, or fields like theirs)."""
        self.name, self.folder, self.build_dir = name, os.path.abspath(folder), os.path.abspath(build_dir)
        self.url, self.namespace, self.options = url, namespace, list(options)
        self.uuid = "GPU-1ab00000-0000-4000-8000-%012x" % number
        self.device = {**device, "uuid": self.uuid}
        self.socket, self.db, self.log = (self.folder + "/" + part for part in ("s", "db", "log"))
        self.process = None
        os.makedirs(self.folder + "/state", mode=0o700, exist_ok=True)
        os.makedirs(self.folder + "/plugins", mode=0o700, exist_ok=True)
        self.write_scenario()

    # -- its files

    def write(self, name, text):
        """A file of its folder, replaced in one step."""
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path + ".fresh", "w") as file:
            file.write(text)
        os.rename(path + ".fresh", path)

    def write_scenario(self, rules=(), **more):
        """For processes that start from now on: workers are started for each sweep and after each crash."""
        arch = self.device["major"] * 10 + self.device["minor"]
        self.write("scenario.json", json.dumps({"device": self.device, "nvrtc": {"version": [13, 0], "archs": [arch]},
                                                "state": self.folder + "/state", "rules": list(rules), **more}))

    def write_tiny(self, name="tiny", tags=4, shapes=(64,), params=(), body=""):
        """A kernel y = x + 1, quick to compile, each of whose TAGs is code of its own. params: further ones as
        (name, values). body: C at the end of the kernel; sees x, y, i, n and the params."""
        manifest, source = tiny_kernel(name, tags, shapes, params, body)
        self.write("plugins/%s/%s.json" % (name, name), json.dumps(manifest))
        self.write("plugins/%s/%s.cu" % (name, name), source)

    def environment(self):
        report = "log_path=%s/sanitizer" % self.folder
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("XDG_", "TUNE_", "PG"))}
        environment.update({
            "HOME": self.folder, "TMPDIR": self.folder, "XDG_DATA_HOME": self.folder + "/data",
            "XDG_RUNTIME_DIR": self.folder, "XDG_STATE_HOME": self.folder + "/xdg-state",
            "XDG_CONFIG_HOME": self.folder + "/config", "TUNE_SCENARIO": self.folder + "/scenario.json",
            "TUNE_LOCK_DIR": self.folder, "TUNE_SOCKET": self.socket,
            "ASAN_OPTIONS": ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), report])),
            "TSAN_OPTIONS": ":".join(filter(None, [os.environ.get("TSAN_OPTIONS"), report]))})
        if os.path.exists(self.build_dir + "/bin/e2e_cxx"):  # a compiler with a memory
            environment["TUNE_HOST_CXX"] = self.build_dir + "/bin/e2e_cxx"
            environment["E2E_CXX_CACHE"] = self.build_dir + "/tests/e2e/cxx-cache"
        return environment

    # -- its life

    def command(self):
        words = [self.build_dir + "/bin/tunerd", "--foreground", "--emulate", "--socket", self.socket, "--db", self.db,
                 "--plugins", self.folder + "/plugins", "--compile-workers", "1"]
        if self.url:
            words += ["--fleet", self.url]
        return words + self.options

    def start(self):
        """Starts it; wait_ready waits until it answers and knows its device."""
        assert self.process is None, self.name + " runs"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.environment(), start_new_session=True,
                                            preexec_fn=preparation(self.namespace, self.name))
        return self

    def wait_ready(self):
        wait_for(self.is_ready, what=self.name + " is ready")
        return self

    def is_ready(self):
        if self.process.poll() is not None:
            raise Failure("%s ended with status %d:\n%s" % (self.name, self.process.returncode, tail(self.log)))
        return self.rpc("ping")["ready"]

    def stop(self):
        """SIGTERM; it has to end cleanly."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        status = self.process.wait(LIMIT_S)
        self.process = None
        if status != 0:
            raise Failure("%s did not end cleanly: status %d\n%s" % (self.name, status, tail(self.log)))

    def kill9(self):
        """SIGKILL to the daemon alone; returns when its workers have found out and ended too."""
        if self.process is None:
            return
        workers = children_of(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.process = None
        wait_for(lambda: have_ended(workers), what="the workers of %s end" % self.name)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    # -- asking it

    def connect(self, limit_s=LIMIT_S):
        return Connection(self.socket, limit_s)

    def rpc(self, method, params=None, limit_s=LIMIT_S):
        """The result; Refused with the daemon's sentence, OSError when it is not there."""
        with self.connect(limit_s) as connection:
            return connection.request(method, params)

    def tunectl(self, *words, check=True, limit_s=2 * LIMIT_S, text_in=None):
        """The ended process, with stdout and stderr as text."""
        run = subprocess.run([self.build_dir + "/bin/tunectl", "--socket", self.socket, *words],
                             env=self.environment(), input=text_in, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, timeout=limit_s, cwd=self.folder)
        if check and run.returncode != 0:
            raise Failure("tunectl %s: status %d\n%s%s" % (" ".join(words), run.returncode, run.stdout, run.stderr))
        return run

    def sweep(self, kernel="tiny", **params):
        """Queues a sweep and returns its id."""
        return self.rpc("sweep", {"kernel": kernel, **params})["job"]

    def job(self, job):
        return self.rpc("jobs", {"job": job})

    def wait_job(self, job, limit_s=2 * LIMIT_S):
        """The ended job, as `jobs` tells it."""
        def ended():
            told = self.job(job)
            return told if told["state"] not in ("queued", "running") else None
        return wait_for(ended, limit_s, "job %s at %s ends" % (job, self.name))

    def records(self, **params):
        return self.rpc("records", {"limit": 20000, **params})

    def fleet(self):
        """What the link says of itself."""
        return self.rpc("stats").get("fleet") or {}

    def log_text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def reports(self):
        """Texts of a sanitizer's reports. One that is killed while it looks for leaks leaves words that are none."""
        texts = []
        for path in glob.glob(self.folder + "/sanitizer.*"):
            with open(path, errors="replace") as file:
                text = file.read()
            if any(word in text for word in ("ERROR:", "WARNING:", "runtime error")):
                texts.append(text)
        return texts


def tiny_kernel(name, tags, shapes, params, body):
    """Manifest and source."""
    buffers = [{"name": "x", "dtype": "f32", "count": "N", "fill": "uniform", "role": "in"},
               {"name": "y", "dtype": "f32", "count": "N", "role": "out"}]
    scalar = {"scalar": "i64", "value": "N"}
    listed = [{"name": "TAG", "meaning": "nothing", "values": list(range(tags))}] + \
        [{"name": param, "meaning": "nothing", "values": list(values)} for param, values in params]
    manifest = {
        "tunerd": 1, "name": name, "summary": "y = x + 1", "source": name + ".cu",
        "dims": [{"name": "N", "meaning": "elements"}],
        "shapes": [{"N": n} for n in shapes], "shapes_cpu": [{"N": n} for n in shapes], "dtypes": ["f32"],
        "params": listed, "derived": [], "constraints": [], "buffers": buffers,
        "launches": [{"entry": "tiny", "grid": ["ceildiv(N, 32)"], "block": ["32"], "shared_bytes": "0",
                      "args": [{"buffer": "x"}, {"buffer": "y"}, scalar]}],
        "reference": {"defines": {"TUNE_REFERENCE": 1},
                      "buffers": [{"name": "y_ref", "dtype": "f32", "count": "N", "role": "scratch"}],
                      "launches": [{"entry": "reference", "grid": ["ceildiv(N, 32)"], "block": ["32"],
                                    "args": [{"buffer": "x"}, {"buffer": "y_ref"}, scalar]}]},
        "checks": [{"buffer": "y", "reference": "y_ref", "derivation": "one addition, correctly rounded",
                    "tolerance": {"factor": 0, "unit": "exact"}}],
        "default": {param["name"]: param["values"][0] for param in listed}, "flops": "N", "bytes": "8 * N"}
    return manifest, TINY_SOURCE % body


TINY_SOURCE = """#ifndef TAG
#define TAG 0
#endif
#if TUNE_REFERENCE
extern "C" __global__ void reference(const float *x, float *y, long long n)
#else
extern "C" __global__ void tiny(const float *x, float *y, long long n)
#endif
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + 1.0f;
#if !TUNE_REFERENCE
    if (n < -TAG)
        y[0] = TAG; // never: makes each TAG code of its own
    %s
#endif
}
"""


def tag_wins(tag):
    """Rules of a scenario in which the candidate of this TAG is the fastest."""
    return [{"call": "cuLaunchKernel", "do": "time_ns", "value": 100000},
            {"call": "cuLaunchKernel", "when": {"defines": {"TAG": tag}}, "do": "time_ns", "value": 50000}]


# --- all of it --------------------------------------------------------------------------------------------------------

class Lab:
    """A folder with n daemons, the engine and the net; all is ended and removed at the end, and when the block inside
    fails the logs are printed."""

    def __init__(self, daemons, build_dir=None, has_engine=True, has_net=True, has_fleet=True, options=(),
                 device=GPU, keep=False):
        """has_fleet: the daemons are told where the engine is."""
        build_dir = build_dir or os.environ.get("TUNE_BUILD_DIR") or sys.exit("name the build folder: TUNE_BUILD_DIR")
        self.seed = int(os.environ.get("FLEET_SEED") or time.time_ns() % 1000000007)
        self.random = random.Random(self.seed)
        print("seed: FLEET_SEED=%d" % self.seed, flush=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that namespaces are removed
        self.keep, self.daemons, self.engine, self.net = keep, [], None, None
        self.folder = tempfile.mkdtemp(prefix="tunerd-fleet-")
        os.chmod(self.folder, 0o711)  # the server's user passes through
        self.net = Net(daemons if has_net else 0) if has_net else None
        if self.net and not self.net.is_real:
            print("no network namespaces here (%s): all on the loopback device" % self.net.why_not.strip())
        namespace, address = self.net.engine() if self.net else (None, "127.0.0.1")
        if has_engine:
            self.engine = Postgres(self.folder + "/engine", namespace, address)
        for i in range(daemons):
            self.daemons.append(Daemon("host%d" % i, "%s/%d" % (self.folder, i), build_dir,
                                       self.engine.url if has_engine and has_fleet else None,
                                       self.net.namespace(i) if self.net else None, options, device, i + 1))

    @property
    def is_real(self):
        """Whether the network can be cut."""
        return self.net is not None and self.net.is_real

    def start(self):
        """The engine, and all daemons at once; returns when all are ready."""
        if self.engine:
            self.engine.start()
        for daemon in self.daemons:
            daemon.start()
        for daemon in self.daemons:
            daemon.wait_ready()
        return self

    def stop(self):
        """Every daemon has to end cleanly, and no sanitizer may have a word to say."""
        for daemon in self.daemons:
            daemon.stop()
        for daemon in self.daemons:
            for report in daemon.reports():
                raise Failure("a sanitizer about %s:\n%s" % (daemon.name, report))

    def print_logs(self):
        for daemon in self.daemons:
            print("--- %s\n%s" % (daemon.name, tail(daemon.log)))
            for report in daemon.reports():
                print("--- %s: sanitizer\n%s" % (daemon.name, report))
        if self.engine:
            print("--- the engine\n" + tail(self.engine.log), flush=True)

    def close(self):
        for part in self.daemons + [self.engine]:
            if part:
                part.kill9()
        if self.net:
            self.net.close()
        if self.keep:
            print("kept: " + self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
        except BaseException:
            self.print_logs()
            raise
        else:
            if kind not in (None, SystemExit):
                self.print_logs()
        finally:
            self.close()
