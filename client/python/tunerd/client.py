"""The connection to a daemon: requests, answers, notifications. tunerd/__init__.py is the manual."""
from __future__ import annotations

import collections
import itertools
import json
import math
import os
import shutil
import socket
import stat
import subprocess
import time
from typing import (TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple, Union)

if TYPE_CHECKING:
    import pandas

PROTOCOL = 1
SYSTEM_SOCKET = "/run/tunerd/tunerd.sock"
_SOCKET_PATH_BYTES = 108  # with the NUL: the kernel's limit for a socket address
_KEPT_LIMIT = 4096
_PAUSE_S = 0.02  # between two attempts to reach a daemon that is being restarted
_ENDED = ("done", "failed", "canceled")  # states of a job that will not change any more

#: What travels: a JSON object.
Json = Dict[str, Any]
#: Sizes by dim; a choice may be given by its name, or left out.
Shape = Mapping[str, Union[int, str]]

# Asking these twice does no harm, so a request that a restart of the daemon cut off is sent again.
_REPEATABLE = frozenset(("ping", "kernels", "describe", "get", "jobs", "watch", "records", "export",
                         "devices", "stats"))


class Error(Exception):
    """What went wrong; `code` is the daemon's stable word, the text a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Subscription(NamedTuple):
    """What news are wanted of; None matches any, and so does a dim that the shape leaves out."""
    kernel: str
    shape: Optional[Shape]
    dtype: Optional[str]

    def matches(self, result: Json) -> bool:
        return (result.get("kernel") == self.kernel
                and (self.dtype is None or result.get("dtype") == self.dtype)
                and all(value in (result.get("shape", {}).get(dim),
                                  result.get("choices", {}).get(dim))
                        for dim, value in (self.shape or {}).items()))


# --- finding a daemon ----------------------------------------------------------------------------


def _candidates() -> List[str]:
    """The sockets to try, in order: those of tunectl."""
    if os.environ.get("TUNE_SOCKET"):
        return [os.environ["TUNE_SOCKET"]]
    if os.environ.get("XDG_RUNTIME_DIR"):
        return [os.path.join(os.environ["XDG_RUNTIME_DIR"], "tunerd.sock"), SYSTEM_SOCKET]
    folder = "/tmp/tunerd-%d" % os.geteuid()
    try:
        info = os.lstat(folder)
    except OSError:
        return [SYSTEM_SOCKET]
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise Error("not_permitted", "%s is not a folder of yours with mode 0700, so a socket in it "
                    "cannot be trusted: remove it, or set XDG_RUNTIME_DIR or TUNE_SOCKET" % folder)
    return [os.path.join(folder, "tunerd.sock"), SYSTEM_SOCKET]


def _find_tunectl() -> str:
    """tunectl of the installation that this package lies in, else that of PATH."""
    here = os.path.dirname(os.path.abspath(__file__))  # PREFIX/share/tunerd/python/tunerd
    own = os.path.join(here, *[os.pardir] * 4, "bin", "tunectl")
    given = os.environ.get("TUNE_TUNECTL")
    found = given or (own if os.access(own, os.X_OK) else shutil.which("tunectl"))
    if not found:
        raise Error("no_daemon", "no daemon answers, and none can be started: tunectl is not in PATH "
                    "(set TUNE_TUNECTL, or start tunerd yourself)")
    return found


def _start_daemon() -> None:
    """Starts a daemon unless one answers. tunectl does it: it holds the lock that lets any number of
    programs start one daemon, knows where the log goes, and says why a start failed."""
    tunectl = _find_tunectl()
    try:
        run = subprocess.run([tunectl, "--json", "kernels"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        raise Error("no_daemon", "cannot run %s: %s" % (tunectl, error.strerror))
    if run.returncode != 0:
        raise Error("no_daemon", run.stderr.decode("utf-8", "replace").strip()
                    or "%s could not start a daemon (status %d)" % (tunectl, run.returncode))


def connect(path: Optional[str] = None, timeout: float = 30.0, autostart: bool = False) -> Client:
    """The same as Client(...)."""
    return Client(path, timeout, autostart)


class Client:
    """A connection that is made anew when the daemon was restarted, and in a forked child. Use it in a
    `with`, or call close(). It belongs to one thread.

    path       the daemon's socket; None: the first of $TUNE_SOCKET (alone, if set),
               $XDG_RUNTIME_DIR/tunerd.sock (without that variable /tmp/tunerd-UID/tunerd.sock) and
               /run/tunerd/tunerd.sock that answers
    timeout    seconds that a request may take, a restart of the daemon included; 0: no limit
    autostart  starts a daemon for this user when none answers, as tunectl does (with `path` None)

    Raises Error("no_daemon") when none answers."""

    def __init__(self, path: Optional[str] = None, timeout: float = 30.0,
                 autostart: bool = False) -> None:
        self.timeout = timeout
        self.server: Json = {}  #: the daemon's answer to `ping`
        self.generation = 0     #: rises whenever a sweep was seen to end: answers may have changed
        self._asked_path = path
        self._ids = itertools.count(1)
        self._bytes = bytearray()
        self._kept: Deque[Json] = collections.deque(maxlen=_KEPT_LIMIT)
        self._subscriptions: List[Subscription] = []
        self._watched: Dict[str, None] = {}  # jobs whose events are wanted
        self._socket: Optional[socket.socket] = None
        self._process = os.getpid()
        try:
            self._connect()
        except Error as error:
            if error.code != "no_daemon" or not autostart or path:
                raise
            _start_daemon()
            self._connect()
            self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """A daemon answers before it has looked for GPUs and the compiler."""
        deadline = time.monotonic() + self.timeout if self.timeout else math.inf
        while not self.server.get("ready", True) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            self.server = self.request("ping")

    @property
    def path(self) -> str:
        """The socket that it is connected to, or was last."""
        return self._path

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For select and event loops: readable when poll() has something to do."""
        if self._socket is None:
            raise Error("no_daemon", "there is no connection: the daemon went away")
        return self._socket.fileno()

    # --- the connection ---------------------------------------------------------------------------

    def _connect(self) -> None:
        tried = []
        for candidate in [self._asked_path] if self._asked_path else _candidates():
            size = len(os.fsencode(candidate))
            if size >= _SOCKET_PATH_BYTES:
                raise Error("invalid_request", "the socket path %s has %d bytes; the system allows %d"
                            % (candidate, size, _SOCKET_PATH_BYTES - 1))
            try:
                self._open(candidate)
                return
            except OSError as error:
                tried.append("%s: %s" % (candidate, error.strerror or error))
        raise Error("no_daemon", "no daemon answers (%s); `tunectl doctor` says more"
                    % "; ".join(tried))

    def _open(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._bytes = bytearray()
        self._path = path
        try:
            self._socket.settimeout(5.0)
            self._socket.connect(path)
            self.server = self._exchange("ping", None, time.monotonic() + 5.0)
            if self.server.get("proto") != PROTOCOL:
                raise Error("version", "the daemon at %s speaks protocol %s and this package %d: "
                            "install both from one version"
                            % (path, self.server.get("proto"), PROTOCOL))
            for params in self._watches():
                self._watch_again(params)
        except BaseException:
            self.close()
            raise

    def _watches(self) -> List[Optional[Json]]:
        """The params of the `watch` requests that a new connection needs."""
        if self._subscriptions:
            return [None]  # everything
        return [{"job": job} for job in self._watched]

    def _watch_again(self, params: Optional[Json]) -> None:
        try:
            self._exchange("watch", params, time.monotonic() + 5.0)
        except Error as error:
            if error.code != "not_found":  # the job has ended: who follows it looks for its row
                raise

    def _leave_parent(self) -> None:
        """In a forked child: what comes by the parent's connection is the parent's."""
        if self._process != os.getpid():
            self.close()
            self._kept.clear()
            self._process = os.getpid()

    def _reconnect(self, deadline: Optional[float]) -> None:
        """After the connection broke: until a daemon answers, or the deadline."""
        self.close()
        self.generation += 1  # what happened meanwhile is not known
        while True:
            try:
                self._connect()
                return
            except (Error, OSError) as error:
                is_away = isinstance(error, OSError) or error.code in ("no_daemon", "io")
                if not is_away or (deadline is not None and time.monotonic() >= deadline):
                    raise
            time.sleep(_PAUSE_S)

    def _message(self, deadline: Optional[float]) -> Optional[Json]:
        """The next message, or None at the deadline (monotonic seconds; None: no limit)."""
        while True:
            line, newline, rest = self._bytes.partition(b"\n")
            if newline:
                self._bytes = rest
                if line.strip():
                    message: Json = json.loads(line.decode("utf-8"))
                    return message
                continue
            if self._socket is None:
                raise Error("io", "the connection to the daemon is closed")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._socket.settimeout(left)
            try:
                more = self._socket.recv(1 << 16)
            except (socket.timeout, BlockingIOError):
                return None
            except OSError as error:
                raise Error("io", "cannot read from the daemon: %s" % error)
            if not more:
                raise Error("io", "the daemon at %s closed the connection" % self._path)
            self._bytes += more

    def _keep(self, message: Json) -> None:
        if message.get("method") == "done" and message["params"].get("state") == "done":
            self.generation += 1
        self._kept.append(message)

    def _exchange(self, method: str, params: Optional[Json], deadline: Optional[float]) -> Any:
        """One request and its result, on the connection as it is."""
        if self._socket is None:
            raise Error("io", "the connection to the daemon is closed")
        number = next(self._ids)
        message: Json = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        # Without blanks: the daemon recognises a repeated `get` of this form by its bytes.
        data = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("utf-8") + b"\n"
        self._socket.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Error("io", "cannot send to the daemon: %s" % error)
        while True:
            reply = self._message(deadline)
            if reply is None:
                raise Error("timeout", "no answer from the daemon within the time limit")
            if "method" in reply:
                self._keep(reply)
            elif reply.get("id") == number or (reply.get("id") is None and "error" in reply):
                break
        if "error" in reply:
            refusal = reply["error"]
            raise Error((refusal.get("data") or {}).get("code", "internal"),
                        refusal.get("message", ""))
        return reply["result"]

    def request(self, method: str, params: Optional[Json] = None,
                timeout: Optional[float] = None) -> Any:
        """Calls a method and returns its result. `timeout` in seconds; 0 for no limit. When the
        daemon was restarted meanwhile, the request is sent again if asking twice does no harm; one
        that may have changed something raises Error("io")."""
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit if limit else None
        is_sent_again = method not in _REPEATABLE
        self._leave_parent()
        while True:
            if self._socket is None:
                self._reconnect(deadline)
            try:
                return self._exchange(method, params, deadline)
            except Error as error:
                if error.code == "timeout":
                    self.close()  # its answer may come yet, and nobody would wait for it
                    raise Error("timeout", "no answer from the daemon within %g s" % limit)
                if error.code != "io":
                    raise
                self.close()
                if is_sent_again:
                    raise
                is_sent_again = True

    # --- notifications ----------------------------------------------------------------------------

    def notifications(self, timeout: float = 0) -> Iterator[Tuple[str, Json]]:
        """Yields (method, params) as they come; ends after `timeout` seconds of silence (0: never)."""
        while True:
            message = self._take(lambda _: True, time.monotonic() + timeout if timeout else None)
            if message is None:
                return
            yield message["method"], message.get("params") or {}

    def _take(self, is_wanted: Callable[[Json], bool], deadline: Optional[float]) -> Optional[Json]:
        """The next notification that is wanted, or None at the deadline; others are kept."""
        self._leave_parent()
        seen = 0
        while True:
            for number in range(seen, len(self._kept)):
                if is_wanted(self._kept[number]):
                    message = self._kept[number]
                    del self._kept[number]
                    return message
            seen = len(self._kept)
            message_or_none = self._message(deadline)
            if message_or_none is None:
                return None
            if "method" in message_or_none:
                self._keep(message_or_none)
                seen = min(seen, _KEPT_LIMIT - 1)  # a full queue has lost its oldest

    def poll(self) -> int:
        """Takes in what the daemon has sent, without waiting, and returns `generation`: when it has
        risen, answers may have become better."""
        self._leave_parent()
        try:
            while self._socket is not None:
                message = self._message(time.monotonic())
                if message is None:
                    break
                if "method" in message:
                    self._keep(message)
        except Error:
            self.close()  # the next request connects again
            self.generation += 1
        return self.generation

    def subscribe(self, kernel: str, shape: Optional[Shape] = None,
                  dtype: Optional[str] = None) -> None:
        """Asks for news of a kernel: next_news() tells when a sweep of it has ended. Without a shape,
        a dim of it, or dtype of all of them. Holds across restarts of the daemon."""
        self._subscriptions.append(Subscription(kernel, shape, dtype))
        self.request("watch")

    def next_news(self, timeout: float = 0) -> Optional[Json]:
        """Waits for the next sweep that subscribe() asked for to end: its result, as the `done` of
        a sweep has it ({"kernel","dtype","arch","shape","best",...}); None when nothing came for
        `timeout` seconds (0: no limit). Answers of get() are then better."""
        deadline = time.monotonic() + timeout if timeout else None
        while True:
            try:
                message = self._take(lambda message: self._news_of(message) is not None, deadline)
                return message and self._news_of(message)
            except Error as error:
                if error.code != "io":
                    raise
                self._reconnect(deadline)

    def _news_of(self, message: Json) -> Optional[Json]:
        if message.get("method") != "done":
            return None
        for result in message["params"].get("results") or []:
            if result.get("best") and any(s.matches(result) for s in self._subscriptions):
                news: Json = result
                return news
        return None

    # --- what one asks ----------------------------------------------------------------------------

    def get(self, kernel: str, shape: Shape, *, dtype: Optional[str] = None,
            arch: Optional[str] = None, gpu: Optional[str] = None, mode: Optional[str] = None,
            policy: str = "nearest", session: Optional[str] = None, cubin: bool = False,
            timeout: Optional[float] = None) -> Json:
        """The best known launch.

        policy   "nearest" (exact, else the best known for the nearest shape, else the default),
                 "cached" (exact, or Error("not_found")), "tune" (as nearest, and a sweep is queued
                 behind it), "wait" (waits for that sweep; give a timeout)
        session  all who ask under this name get the same answer, always
        cubin    adds the code: "cubin" (base64) and "names" (entry -> symbol)"""
        params: Json = {"kernel": kernel, "shape": dict(shape), "policy": policy}
        for key, value in (("dtype", dtype), ("arch", arch), ("gpu", gpu), ("mode", mode),
                           ("session", session), ("cubin", cubin or None)):
            if value is not None:
                params[key] = value
        if timeout is None and policy == "wait":
            timeout = 0
        answer: Json = self.request("get", params, timeout)
        return answer

    def start_sweep(self, kernel: str, shapes: Optional[Sequence[Shape]] = None,
                    **options: Any) -> str:
        """Queues a sweep and returns its job id; options: dtype, mode, strategy, prior, budget, seed,
        device, params, deadline_ms, nvrtc_cache, local."""
        params = dict(options, kernel=kernel)
        if shapes is not None:
            params["shapes"] = [dict(shape) for shape in shapes]
        job: str = self.request("sweep", params)["job"]
        return job

    def sweep(self, kernel: str, shapes: Optional[Sequence[Shape]] = None,
              **options: Any) -> Iterator[Json]:
        """Sweeps, yielding the params of each `progress` ({"job","done","total","best_ns",...}) and
        last those of the `done` ({"job","state","results"}). Leaving the loop leaves the sweep
        running: cancel(event["job"]) ends it. A restart of the daemon is survived."""
        return self._follow(self.start_sweep(kernel, shapes, **options))

    def watch(self, job: str) -> Iterator[Json]:
        """Follows a job that somebody started, as sweep() does."""
        self.request("watch", {"job": job})
        row = self._ended_job(job)
        return iter([row]) if row else self._follow(job)

    def _ended_job(self, job: str) -> Optional[Json]:
        """The row of a job that has ended; None while it has not."""
        for row in self.jobs():
            if row["job"] == job:
                return row if row["state"] in _ENDED else None
        raise Error("not_found", "the daemon no longer knows the job %s" % job)

    def _follow(self, job: str) -> Iterator[Json]:
        def is_of_job(message: Json) -> bool:
            return (message["method"] in ("progress", "done")
                    and (message.get("params") or {}).get("job") == job)

        self._watched[job] = None
        try:
            while True:
                try:
                    message = self._take(is_of_job, None)
                except Error as error:
                    if error.code != "io":
                        raise
                    self._reconnect(time.monotonic() + self.timeout if self.timeout else None)
                    row = self._ended_job(job)
                    if row:
                        yield row
                        return
                    continue
                assert message is not None  # there was no deadline
                yield message["params"]
                if message["method"] == "done":
                    return
        finally:
            self._watched.pop(job, None)

    def cancel(self, job: str) -> None:
        """Ends a sweep; what it has measured stays."""
        self.request("cancel", {"job": job})

    def jobs(self) -> List[Json]:
        """The sweeps that are queued, running, or ended lately."""
        rows: List[Json] = self.request("jobs")
        return rows

    def kernels(self) -> List[Json]:
        """[{"name","summary","dims","dtypes","params"}]"""
        rows: List[Json] = self.request("kernels")
        return rows

    def describe(self, kernel: str) -> Json:
        """The kernel's manifest as the daemon reads it."""
        manifest: Json = self.request("describe", {"kernel": kernel})
        return manifest

    def devices(self) -> List[Json]:
        """The GPUs that are attached to the daemon."""
        rows: List[Json] = self.request("devices")
        return rows

    def stats(self) -> Json:
        """What the daemon counts."""
        stats: Json = self.request("stats")
        return stats

    def records(self, as_frame: bool = False, **filters: Any) -> Any:
        """What was measured, newest last, as a list of dicts: "kernel", "dtype", "arch", "shape",
        "config", "outcome", "median_ns", "samples_ns" and more. Filters: kernel, outcome, job, shape
        (canonical text, "M=64,N=64"), arch, limit (1,000; at most 20,000), log. `as_frame`: as
        records_frame() gives them."""
        rows: List[Json] = self.request("records", filters or None)
        return _frame_of(rows) if as_frame else rows

    def records_frame(self, **filters: Any) -> pandas.DataFrame:
        """records() as a pandas frame, a row per record; the dims of the shape and the params of the
        configuration are columns "shape.M" and "config.BM", times are timestamps."""
        return _frame_of(self.records(**filters))


def _frame_of(rows: List[Json]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise Error("not_found", "records as a frame need pandas, which cannot be imported (%s): "
                    "install it, or take records() as dicts" % error)
    flat = []
    for row in rows:
        line = {key: value for key, value in row.items() if key not in ("shape", "config")}
        for part in ("shape", "config"):
            for name, value in (row.get(part) or {}).items():
                line["%s.%s" % (part, name)] = value
        flat.append(line)
    frame = pandas.DataFrame(flat)
    if "time" in frame:
        frame["time"] = pandas.to_datetime(frame["time"], unit="ms", utc=True)
    return frame
