"""Client of tunerd for Python 3.7 and later; needs nothing but the standard library.

    import tunerd
    with tunerd.connect() as client:
        answer = client.get("gemm", {"M": 4096, "N": 4096, "K": 4096})
        for launch in answer["launches"]: ...

        for event in client.sweep("gemm", shapes=[{"M": 64, "N": 64, "K": 64}], seed=1):
            print(event["done"], "of", event["total"])    # progress, and last the `done`
        print(event["results"])

Requests, answers and notifications are the JSON of the daemon as dicts and lists. A failure is a
tunerd.Error with `code`, the daemon's stable word ("not_found", "no_daemon", ...). A client belongs to
one thread.
"""
import collections
import itertools
import json
import os
import socket
import stat
import time

PROTOCOL = 1
SYSTEM_SOCKET = "/run/tunerd/tunerd.sock"
_KEPT_LIMIT = 4096


class Error(Exception):
    """What went wrong; `code` is a stable word, the text a sentence."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def _candidates():
    """The sockets to try, in order, as in tune_rpc.h."""
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


def connect(path=None, timeout=30.0):
    """A Client of the daemon at `path`, or of the first that answers. It starts none."""
    tried = []
    for candidate in [path] if path else _candidates():
        if len(os.fsencode(candidate)) >= 108:
            raise Error("invalid_request", "the socket path %s has %d bytes; the system allows 107"
                        % (candidate, len(os.fsencode(candidate))))
        try:
            return Client(candidate, timeout)
        except OSError as error:
            tried.append("%s: %s" % (candidate, error.strerror or error))
    raise Error("no_daemon", "no daemon answers (%s)" % "; ".join(tried))


class Client:
    """One connection. Use it in a `with`, or call close()."""

    def __init__(self, path, timeout=30.0):
        self.path = path
        self.timeout = timeout
        self._ids = itertools.count(1)
        self._bytes = bytearray()
        self._kept = collections.deque(maxlen=_KEPT_LIMIT)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(5.0)
            self._socket.connect(path)
            self.server = self.request("ping")
            if self.server.get("proto") != PROTOCOL:
                raise Error("version", "the daemon at %s speaks protocol %s and this module %d"
                            % (path, self.server.get("proto"), PROTOCOL))
        except BaseException:
            self._socket.close()
            raise

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- messages ---------------------------------------------------------------------------------

    def _message(self, deadline):
        """The next message, or None at the deadline (monotonic seconds; None: no limit)."""
        while True:
            line, newline, rest = self._bytes.partition(b"\n")
            if newline:
                self._bytes = rest
                if line.strip():
                    return json.loads(line.decode("utf-8"))
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                more = self._socket.recv(1 << 16)
            except socket.timeout:
                return None
            except OSError as error:
                raise Error("io", "cannot read from the daemon: %s" % error)
            if not more:
                raise Error("io", "the daemon at %s closed the connection" % self.path)
            self._bytes += more

    def request(self, method, params=None, timeout=None):
        """Calls a method and returns its result. `timeout` in seconds; 0 for no limit."""
        limit = self.timeout if timeout is None else timeout
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        self._socket.settimeout(limit or None)
        try:
            self._socket.sendall(json.dumps(message, allow_nan=False).encode("utf-8") + b"\n")
        except OSError as error:
            raise Error("io", "cannot send to the daemon: %s" % error)
        deadline = time.monotonic() + limit if limit else None
        while True:
            reply = self._message(deadline)
            if reply is None:
                raise Error("timeout", "no answer from the daemon within %g s" % limit)
            if "method" in reply:
                self._kept.append(reply)
            elif reply.get("id") == number or (reply.get("id") is None and "error" in reply):
                break
        if "error" in reply:
            error = reply["error"]
            raise Error((error.get("data") or {}).get("code", "internal"), error.get("message", ""))
        return reply["result"]

    def notifications(self, timeout=0):
        """Yields (method, params) as they come; ends after `timeout` seconds of silence (0: never)."""
        while True:
            if self._kept:
                message = self._kept.popleft()
            else:
                message = self._message(time.monotonic() + timeout if timeout else None)
            if message is None:
                return
            if "method" in message:
                yield message["method"], message.get("params") or {}

    # --- what one asks ----------------------------------------------------------------------------

    def get(self, kernel, shape, **options):
        """The best known launch; options: dtype, arch, gpu, mode, policy, cubin."""
        wait = options.get("policy") == "wait"
        return self.request("get", dict(options, kernel=kernel, shape=shape), 0 if wait else None)

    def start_sweep(self, kernel, **options):
        """Queues a sweep and returns its job id; options: shapes, dtype, mode, strategy, prior, budget,
        seed, device, params, deadline_ms, nvrtc_cache."""
        return self.request("sweep", dict(options, kernel=kernel))["job"]

    def sweep(self, kernel, **options):
        """Sweeps, yielding the params of each `progress` and last those of the `done`."""
        return self._follow(self.start_sweep(kernel, **options))

    def watch(self, job):
        """Follows a job that somebody started, as sweep() does."""
        self.request("watch", {"job": job})
        for row in self.request("jobs"):
            if row["job"] == job and row["state"] in ("done", "failed", "canceled"):
                return iter([row])
        return self._follow(job)

    def _follow(self, job):
        for method, params in self.notifications():
            if params.get("job") == job and method in ("progress", "done"):
                yield params
                if method == "done":
                    return
