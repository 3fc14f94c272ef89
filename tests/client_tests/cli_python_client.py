"""The Python client against a stand-in daemon."""
import os
import select
import sys
import types
import unittest
import unittest.mock

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

    def test_a_forked_child_has_a_connection_of_its_own(self):
        with FakeDaemon({"get": lambda c, _p: {"connection": id(c)}}) as daemon:
            with tunerd.connect(daemon.path) as client:
                before = client.get("gemm", {"M": 1})
                reader, writer = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        os.write(writer, str(client.get("gemm", {"M": 1})["connection"]).encode())
                    finally:
                        os._exit(0)
                os.close(writer)
                with os.fdopen(reader) as pipe:
                    said = pipe.read()
                os.waitpid(child, 0)
                self.assertNotIn(said, ("", str(before["connection"])))
                self.assertEqual(client.get("gemm", {"M": 1}), before)

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


def ends_first(result):
    """A method that ends the connection when it is called first, and then gives `result`."""
    def handler(connection, _params):
        handler.calls += 1
        if handler.calls == 1:
            connection.sock.shutdown(2)
        return result
    handler.calls = 0
    return handler


class Restart(unittest.TestCase):
    """A daemon that goes away and comes back."""

    def test_a_question_is_asked_again_and_an_order_is_not(self):
        get, sweep = ends_first({"origin": "exact"}), ends_first({"job": "j-1"})
        with FakeDaemon({"get": get, "sweep": sweep}) as daemon:
            with tunerd.Client(daemon.path) as client:
                self.assertEqual(client.get("gemm", {"M": 1}), {"origin": "exact"})
                with self.assertRaises(tunerd.Error) as caught:
                    client.start_sweep("gemm")
                self.assertEqual(caught.exception.code, "io")
                self.assertEqual(client.start_sweep("gemm"), "j-1")
        self.assertEqual((get.calls, sweep.calls), (2, 2))

    def test_a_daemon_that_stays_away_is_an_error_at_the_time_limit(self):
        with FakeDaemon() as daemon:
            client = tunerd.Client(daemon.path, timeout=0.2)
            client.close()
        with client, self.assertRaises(tunerd.Error) as caught:
            client.kernels()
        self.assertEqual(caught.exception.code, "no_daemon")

    def test_a_sweep_is_followed_across_a_restart(self):
        def sweep_and_end(connection, _params):
            def after():
                connection.notify("progress", {"job": "j-1", "done": 1, "total": 2})
                connection.sock.shutdown(2)
            return {"job": "j-1", "_after": after}

        def watch(connection, params):
            return {"_after": lambda: connection.notify("done", dict(params, state="done", results=[7]))}

        jobs = [{"job": "j-1", "state": "running"}]
        with FakeDaemon({"sweep": sweep_and_end, "watch": watch, "jobs": lambda _c, _p: jobs}) as daemon:
            with tunerd.Client(daemon.path) as client:
                events = list(client.sweep("gemm"))
        self.assertEqual([event.get("results") for event in events], [None, [7]])

    def test_a_sweep_that_ended_meanwhile_ends_with_its_row_and_a_forgotten_one_is_an_error(self):
        def sweep_and_end(connection, _params):
            return {"job": "j-1", "_after": lambda: connection.sock.shutdown(2)}

        def watch(_connection, _params):
            raise Refusal("not_found", "no job j-1")
        rows = [{"job": "j-1", "state": "done", "results": [7]}]
        with FakeDaemon({"sweep": sweep_and_end, "watch": watch, "jobs": lambda _c, _p: rows}) as daemon:
            with tunerd.Client(daemon.path) as client:
                self.assertEqual(list(client.sweep("gemm")), rows)
                rows.clear()
                with self.assertRaises(tunerd.Error) as caught:
                    list(client.sweep("gemm"))
        self.assertEqual(caught.exception.code, "not_found")


def done(kernel, dtype="f32", best=True, **shape):
    return {"job": "j-9", "state": "done", "results": [
        {"kernel": kernel, "dtype": dtype, "shape": shape, "best": {"median_ns": 5.0} if best else None}]}


class News(unittest.TestCase):
    def test_only_what_was_subscribed_to_is_told(self):
        def watch(connection, _params):
            def after():
                for params in (done("gemm", M=1), done("reduce", N=1), done("reduce", N=2, dtype="f16"),
                               done("reduce", N=2, best=False), done("reduce", N=2)):
                    connection.notify("done", params)
            return {"_after": after}
        with FakeDaemon({"watch": watch}) as daemon:
            with tunerd.Client(daemon.path) as client:
                client.subscribe("reduce", {"N": 2}, "f32")
                news = client.next_news(timeout=20)
                self.assertEqual((news["kernel"], news["shape"], news["dtype"]), ("reduce", {"N": 2}, "f32"))
                self.assertIsNone(client.next_news(timeout=0.01))

    def test_a_subscription_outlives_a_restart(self):
        def watch(connection, _params):
            watch.calls += 1
            if watch.calls == 1:
                return {"_after": lambda: connection.sock.shutdown(2)}
            return {"_after": lambda: connection.notify("done", done("gemm", M=1))}
        watch.calls = 0
        with FakeDaemon({"watch": watch}) as daemon:
            with tunerd.Client(daemon.path) as client:
                client.subscribe("gemm")
                self.assertEqual(client.next_news(timeout=20)["shape"], {"M": 1})

    def test_polling_does_not_wait_and_says_that_answers_may_have_changed(self):
        connections = []
        with FakeDaemon({"jobs": lambda c, _p: connections.append(c) or []}) as daemon:
            with tunerd.Client(daemon.path) as client:
                client.jobs()
                before = client.poll()
                self.assertEqual(client.poll(), before)
                connections[0].notify("progress", {"job": "j-1"})
                connections[0].notify("done", done("gemm", M=1))
                while client.poll() == before:
                    select.select([client], [], [], 20)
                self.assertEqual(client.poll(), before + 1)
                self.assertEqual([method for method, _ in client.notifications(timeout=0.01)],
                                 ["progress", "done"])


class Sparse(unittest.TestCase):
    OFFSETS, COLUMNS = [0, 3, 3, 4], [0, 1, 3, 1]
    WANTED = {"ROWS": 3, "COLUMNS": 4, "NONZEROS": 4, "SPREAD": 150, "LONGEST": 3, "BANDWIDTH": 4, "SKEW": 120}

    def test_a_matrix_is_described_as_by_libtune(self):  # test_sparse.c has the same one
        self.assertEqual(tunerd.describe_csr(self.OFFSETS, self.COLUMNS, 4), self.WANTED)

    def test_it_needs_no_numpy(self):
        with unittest.mock.patch("tunerd.sparse._numpy", return_value=None):
            self.assertEqual(tunerd.describe_csr(self.OFFSETS, self.COLUMNS, 4), self.WANTED)
            # 100 rows of 3 entries beside the diagonal, of which the first and last lack one
            columns = [c for r in range(100) for c in (r - 1, r, r + 1) if 0 <= c < 100]
            ends = [sum(1 for r in range(row) for c in (r - 1, r, r + 1) if 0 <= c < 100) for row in range(101)]
            shape = tunerd.describe_csr(ends, columns, 100)
        self.assertEqual(shape, tunerd.describe_csr(ends, columns, 100))
        self.assertEqual(shape, {"ROWS": 100, "COLUMNS": 100, "NONZEROS": 298, "SPREAD": 100, "LONGEST": 3,
                                 "BANDWIDTH": 2, "SKEW": 100})

    def test_it_gives_integers_that_can_be_sent(self):
        class Wide:  # as numpy.int64: columns.max() + 1
            def __index__(self):
                return 4

        with unittest.mock.patch("tunerd.sparse._numpy", return_value=None):
            shape = tunerd.describe_csr(self.OFFSETS, self.COLUMNS, Wide())
        self.assertEqual(shape, self.WANTED)
        self.assertEqual({type(value) for value in shape.values()}, {int})

    def test_what_is_no_matrix_is_an_error(self):
        for none in (None, tunerd.sparse._numpy()):
            with unittest.mock.patch("tunerd.sparse._numpy", return_value=none):
                for offsets, columns in (([0], []), ([1, 4], [0] * 4), ([0, 5], [0] * 4), ([0, 4], [4] * 4),
                                         ([0, 4], [-1] * 4), ([0, 3, 2, 4], [0] * 4), ([0, 0], [])):
                    with self.assertRaises(tunerd.Error) as caught:
                        tunerd.describe_csr(offsets, columns, 4)
                    self.assertEqual(caught.exception.code, "invalid_request")


class Records(unittest.TestCase):
    ROW = {"kernel": "gemm", "shape": {"M": 1}, "config": {"BM": 64}, "median_ns": 5.0, "time": 1000}

    def test_they_are_dicts_with_filters_passed_on(self):
        with FakeDaemon({"records": lambda _c, p: [dict(self.ROW, asked=p)]}) as daemon:
            with tunerd.Client(daemon.path) as client:
                self.assertEqual(client.records(kernel="gemm", limit=5),
                                 [dict(self.ROW, asked={"kernel": "gemm", "limit": 5})])

    def test_a_frame_has_a_column_for_each_dim_and_param(self):
        try:
            import pandas
        except ImportError:
            pandas = types.ModuleType("pandas")
            pandas.DataFrame = lambda rows: {key: [row[key] for row in rows] for key in rows[0]}
            pandas.to_datetime = lambda column, unit, utc: column
            sys.modules["pandas"] = pandas
            self.addCleanup(sys.modules.pop, "pandas")
        with FakeDaemon({"records": lambda _c, _p: [self.ROW, self.ROW]}) as daemon:
            with tunerd.Client(daemon.path) as client:
                for frame in (client.records_frame(), client.records(as_frame=True)):
                    self.assertEqual(list(frame["shape.M"]), [1, 1])
                    self.assertEqual(list(frame["config.BM"]), [64, 64])
                    self.assertNotIn("config", frame)

    def test_without_pandas_a_frame_is_an_error_that_says_so(self):
        with FakeDaemon({"records": lambda _c, _p: []}) as daemon:
            with tunerd.Client(daemon.path) as client:
                with unittest.mock.patch.dict(sys.modules, {"pandas": None}):
                    with self.assertRaises(tunerd.Error) as caught:
                        client.records_frame()
        self.assertIn("need pandas", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
