"""The Python client against a stand-in daemon."""
import os
import sys
import unittest

from fake_daemon import FakeDaemon, Refusal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "client", "python"))
import tunerd


def sweep(connection, params):
    def after():
        connection.notify("progress", {"job": "j-2", "done": 9, "total": 9})
        connection.notify("progress", {"job": "j-1", "done": 1, "total": 2})
        connection.notify("done", {"job": "j-1", "state": "done", "results": [params]})
    return {"job": "j-1", "_after": after}


class Client(unittest.TestCase):
    def test_get_sends_its_options_and_returns_the_answer(self):
        with FakeDaemon({"get": lambda _c, p: {"origin": "exact", "asked": p}}) as daemon:
            with tunerd.connect(daemon.path) as client:
                answer = client.get("gemm", {"M": 64}, policy="cached")
        self.assertEqual(answer["asked"], {"kernel": "gemm", "shape": {"M": 64}, "policy": "cached"})

    def test_a_sweep_yields_its_own_progress_and_ends_with_done(self):
        with FakeDaemon({"sweep": sweep}) as daemon:
            with tunerd.connect(daemon.path) as client:
                events = list(client.sweep("gemm", shapes=[{"M": 64}], seed=1))
        self.assertEqual([event["job"] for event in events], ["j-1", "j-1"])
        self.assertEqual(events[-1]["results"],
                         [{"kernel": "gemm", "shapes": [{"M": 64}], "seed": 1}])

    def test_watching_a_job_that_is_over_returns_its_row(self):
        row = {"job": "j-1", "state": "done", "results": []}
        with FakeDaemon({"watch": lambda _c, _p: {}, "jobs": lambda _c, _p: [row]}) as daemon:
            with tunerd.connect(daemon.path) as client:
                self.assertEqual(list(client.watch("j-1")), [row])

    def test_errors_carry_the_stable_word(self):
        def refuse(_connection, _params):
            raise Refusal("not_found", "no kernel x")
        with FakeDaemon({"get": refuse}) as daemon:
            with tunerd.connect(daemon.path) as client:
                with self.assertRaises(tunerd.Error) as caught:
                    client.get("x", {})
        self.assertEqual((caught.exception.code, str(caught.exception)), ("not_found", "no kernel x"))

    def test_no_daemon_another_protocol_and_a_long_path_are_told_apart(self):
        for handlers, path, code in ((None, "/nonexistent/s", "no_daemon"),
                                     (None, "/" + "x" * 107, "invalid_request"),
                                     ({"ping": lambda _c, _p: {"proto": 9}}, None, "version")):
            with FakeDaemon(handlers) as daemon:
                with self.assertRaises(tunerd.Error) as caught:
                    tunerd.connect(path or daemon.path)
            self.assertEqual(caught.exception.code, code)

    def test_a_connection_that_ends_is_an_error(self):
        with FakeDaemon({"jobs": lambda c, _p: c.sock.shutdown(2)}) as daemon:
            with tunerd.connect(daemon.path) as client:
                with self.assertRaises(tunerd.Error) as caught:
                    client.request("jobs")
        self.assertEqual(caught.exception.code, "io")

    def test_an_answer_that_is_late_is_a_timeout(self):
        with FakeDaemon({"jobs": lambda c, _p: c.sock.recv(1).decode()}) as daemon:
            with tunerd.connect(daemon.path) as client:
                with self.assertRaises(tunerd.Error) as caught:
                    client.request("jobs", timeout=0.01)
        self.assertEqual(caught.exception.code, "timeout")


if __name__ == "__main__":
    unittest.main()
