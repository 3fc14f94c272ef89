#!/usr/bin/env python3
"""A stand-in for tunerd that says what a test wants.

As a module: FakeDaemon(handlers) serves a socket in a temporary folder; handlers map a method to a
function (connection, params) -> result, which may raise Refusal and may send notifications. As a
program (for autostart): fake_daemon.py --foreground --socket PATH, steered by FAKE_STARTS (a file
that gets one line per start) and FAKE_DIE (print this and end).
"""
import json
import os
import shutil
import socket
import sys
import tempfile
import threading

VERSION = "0.1.0"


class Refusal(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Connection:
    def __init__(self, sock, handlers, seen):
        self.sock, self.handlers, self.seen = sock, handlers, seen

    def send(self, message):
        self.sock.sendall(json.dumps(dict(message, jsonrpc="2.0")).encode() + b"\n")

    def notify(self, method, params):
        self.send({"method": method, "params": params})

    def serve(self):
        try:
            for line in self.sock.makefile("rb"):
                self.answer(json.loads(line))
        except OSError:
            pass
        finally:
            self.sock.close()

    def answer(self, request):
        method, params = request["method"], request.get("params")
        self.seen.append((method, params))
        try:
            if method not in self.handlers:
                raise Refusal("unknown_method", "no method %s" % method)
            result = self.handlers[method](self, params)
        except Refusal as refusal:
            self.send({"id": request["id"], "error": {
                "code": -32000, "message": str(refusal), "data": {"code": refusal.code}}})
            return
        after = result.pop("_after", None) if isinstance(result, dict) else None
        self.send({"id": request["id"], "result": result})
        if after:
            after()


class FakeDaemon:
    def __init__(self, handlers=None, path=None):
        self.folder = tempfile.mkdtemp(prefix="fake_tunerd_")
        self.path = path or os.path.join(self.folder, "tunerd.sock")
        self.seen = []
        self.connections = []
        self.handlers = {"ping": lambda _c, _p: {"version": VERSION, "proto": 1, "pid": os.getpid(),
                                                 "db": self.folder, "emulated": True}}
        self.handlers.update(handlers or {})
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(64)

    def serve_forever(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(sock)
            connection = Connection(sock, self.handlers, self.seen)
            threading.Thread(target=connection.serve, daemon=True).start()

    def asked(self, method):
        return [params for name, params in self.seen if name == method]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        shutil.rmtree(self.folder)


def main():
    if os.environ.get("FAKE_STARTS"):
        with open(os.environ["FAKE_STARTS"], "a") as starts:
            starts.write("%d %s\n" % (os.getpid(), os.getsid(0)))
    if os.environ.get("FAKE_DIE"):
        sys.exit(os.environ["FAKE_DIE"])
    assert sys.argv[1:3] == ["--foreground", "--socket"], sys.argv
    FakeDaemon({"kernels": lambda _c, _p: []}, sys.argv[3]).serve_forever()


if __name__ == "__main__":
    main()
