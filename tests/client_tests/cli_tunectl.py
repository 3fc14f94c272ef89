"""tunectl's command line, requests, tables, JSON and exit statuses, against a stand-in daemon."""
import base64
import json
import os
import pty
import signal
import subprocess
import tempfile
import threading
import unittest

from fake_daemon import FakeDaemon, Refusal

TUNECTL = os.environ["TUNECTL"]
RESULT = {
    "kernel": "gemm", "dtype": "f32", "arch": "sm_90", "shape": {"M": 64, "N": 64, "K": 64},
    "mode": "cold", "evaluations": 3, "wall_s": 1.5, "counts": {"ok": 2, "compile_failed": 1},
    "best": {"config": {"BM": 64, "SWIZZLE": "xor"}, "median_ns": 63200.0,
             "interval_ns": [62900.0, 63600.0], "samples": 25,
             "ties": [{"config": {"BM": 32, "SWIZZLE": "none"}, "median_ns": 63300.0,
                       "interval_ns": [63000.0, 63700.0]}]},
    "default": {"config": {"BM": 32, "SWIZZLE": "xor"}, "median_ns": 94800.0},
    "tflops": 33.9, "gbs": 120.0, "roofline": 0.51, "device": "NVIDIA H200", "method": "graph",
    "messages": []}


def run(*args, env=None, stdin=None):
    environment = dict(os.environ, TUNE_AUTOSTART="0", **(env or {}))
    return subprocess.run([TUNECTL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, input=stdin, universal_newlines=True, timeout=60)


def sweeping(*events):
    """A handler of `sweep` that answers with a job and then sends these notifications."""
    def handler(connection, _params):
        def after():
            for method, params in events:
                connection.notify(method, dict(params, job="j-1"))
        return {"job": "j-1", "_after": after}
    return handler


def progress(done, total=20):
    return ("progress", {"kernel": "gemm", "shape": {"M": 64}, "done": done, "total": total,
                         "best_ns": 63200.0, "default_ns": 94800.0, "configs_per_s": 4.0})


def done(*results, state="done", error=None):
    return ("done", {"state": state, "error": error, "results": list(results)})


class CommandLine(unittest.TestCase):
    def check_usage(self, *args, says):
        result = run(*args)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(says, result.stderr)

    def test_a_wrong_command_line_is_a_usage_error_that_names_the_nearest(self):
        self.check_usage(says="no command")
        self.check_usage("swep", says='did you mean "sweep"?')
        self.check_usage("sweep", says="needs KERNEL")
        self.check_usage("get", "gemm", says="needs --shape")
        self.check_usage("get", "gemm", "--shap=M=1", says="did you mean --shape?")
        self.check_usage("get", "gemm", "--strategy", "x", says='an option of "sweep", not of "get"')
        self.check_usage("--dtype", "f32", "sweep", "gemm", says="comes after its command")
        self.check_usage("sweep", "gemm", "again", says="again")
        self.check_usage("sweep", "gemm", "--dtype", says="needs a value")
        self.check_usage("sweep", "gemm", "--detach=1", says="takes no value")
        self.check_usage("sweep", "gemm", "--seed", "1", "--seed", "2", says="given twice")

    def test_values_are_read_strictly(self):
        for shape in ("M", "M=", "M=0", "M=-1", "M=0x10", "M= 1", "M=1.0", "M=1e3", "M=1,", "M=1,M=2",
                      "=1", "M=9223372036854775808"):
            self.check_usage("sweep", "gemm", "--shape", shape, says="tunectl:")
        for budget in ("evals", "evals=0", "evals=x", "eval=3", "evals=1,evals=2"):
            self.check_usage("sweep", "gemm", "--budget", budget, says="tunectl:")
        self.check_usage("sweep", "gemm", "--param", "BM=", says="NAME=VALUE")
        self.check_usage("sweep", "gemm", "--param", "BM=1", "--param", "BM=2", says="given twice")
        self.check_usage("sweep", "gemm", "--mode", "tepid", says="cold, warm")
        self.check_usage("get", "gemm", "--shape", "M=1", "--policy", "soon", says="nearest")
        self.check_usage("records", "--outcome", "fine", says="compile_failed")
        self.check_usage("records", "--limit", "0", says="1 to")

    def test_every_command_has_help_on_standard_output(self):
        names = [line.split()[0] for line in run("--help").stdout.splitlines()
                 if line.startswith("  ") and not line.startswith("  -")]
        self.assertGreaterEqual(len(names), 17)
        for name in names:
            result = run(name, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("usage: tunectl", result.stdout)

    def test_no_daemon_is_exit_status_3_and_one_json_value(self):
        result = run("--socket", "/nonexistent/sock", "kernels", "--json")
        self.assertEqual(result.returncode, 3)
        self.assertEqual(json.loads(result.stdout)["error"]["code"], "no_daemon")
        self.assertIn("/nonexistent/sock", result.stderr)
        self.assertEqual(run("--socket", "/" + "x" * 107, "kernels").returncode, 1)

    def test_an_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([TUNECTL, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 1)


class Sweep(unittest.TestCase):
    def sweep(self, handler, *args, **kwargs):
        with FakeDaemon({"sweep": handler}) as daemon:
            result = run("--socket", daemon.path, "sweep", "gemm", *args, **kwargs)
            return result, daemon.asked("sweep")

    def test_the_request_carries_every_option(self):
        _, asked = self.sweep(
            sweeping(done(RESULT)), "--shape", "M=64,N=32,K=1", "--shape=M=1,N=1,K=1", "--dtype", "f32",
            "--mode", "warm", "--strategy", "random", "--prior", "near", "--budget", "evals=10,seconds=5", "--seed", "7",
            "--device", "1", "--param", "BM=32,64", "--param", "SWIZZLE=xor", "--deadline-ms", "500",
            "--no-cache", "--local")
        self.assertEqual(asked, [{
            "kernel": "gemm", "shapes": [{"M": 64, "N": 32, "K": 1}, {"M": 1, "N": 1, "K": 1}],
            "dtype": "f32", "mode": "warm", "strategy": "random", "prior": "near",
            "budget": {"evals": 10, "seconds": 5}, "seed": 7, "device": 1,
            "params": {"BM": [32, 64], "SWIZZLE": ["xor"]}, "deadline_ms": 500, "nvrtc_cache": False,
            "local": True}])
        _, asked = self.sweep(sweeping(done(RESULT)), "--device", "GPU-1")
        self.assertEqual(asked, [{"kernel": "gemm", "device": "GPU-1"}])

    def test_shapes_come_from_a_file_of_lines_or_json(self):
        lines = "# two shapes\nM=1,N=2,K=3\n\n  M=4,N=5,K=6   # the second\r\n"
        both = [{"M": 1, "N": 2, "K": 3}, {"M": 4, "N": 5, "K": 6}]
        for text in (lines, json.dumps(both)):
            _, asked = self.sweep(sweeping(done(RESULT)), "--shapes-file", "-", stdin=text)
            self.assertEqual(asked[0]["shapes"], both)
        for text, says in (("M=1\nM=0\n", "line 2"), ("# none\n", "no shapes"), ("[{]", "JSON")):
            result, asked = self.sweep(sweeping(done(RESULT)), "--shapes-file", "-", stdin=text)
            self.assertEqual((result.returncode, asked), (2, []))
            self.assertIn(says, result.stderr)

    def test_choices_go_by_name_and_are_shown_so(self):
        result = dict(RESULT, shape={"N": 64, "OP": 2}, choices={"OP": "max"})
        shown, asked = self.sweep(sweeping(done(result)), "--shape", "N=64,OP=max", "--shape", "N=64,OP=2")
        self.assertEqual(asked[0]["shapes"], [{"N": 64, "OP": "max"}, {"N": 64, "OP": 2}])
        self.assertIn("gemm f32 N=64 OP=max on", shown.stdout)
        self.assertNotIn("OP=2", shown.stdout)

    def test_it_ends_with_the_winner_in_a_table(self):
        result, _ = self.sweep(sweeping(progress(10), progress(20), done(RESULT)))
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("BM=64 SWIZZLE=xor", "63.2 us", "62.9 us to 63.6 us", "25 samples",
                      "33.9 TFLOP/s", "51% of the roofline", "1.50 x as fast",
                      "1 cannot be told apart", "2 ok, 1 compile_failed", "NVIDIA H200"):
            self.assertIn(words, result.stdout)
        self.assertEqual(len(result.stderr.splitlines()), 2)
        self.assertIn("20 of 20, 4.0 configs/s, best 63.2 us (1.50 x as fast as the default)", result.stderr)

    def test_json_is_one_object_for_one_shape_and_a_list_for_more(self):
        result, _ = self.sweep(sweeping(progress(1), done(RESULT)), "--json")
        self.assertEqual(json.loads(result.stdout), RESULT)
        result, _ = self.sweep(sweeping(done(RESULT, RESULT)), "--json")
        self.assertEqual(json.loads(result.stdout), [RESULT, RESULT])

    def test_a_sweep_without_a_winner_exits_with_1(self):
        nothing = dict(RESULT, best=None, counts={"ok": 0, "wrong_result": 3})
        result, _ = self.sweep(sweeping(done(nothing)), "--json")
        self.assertEqual(result.returncode, 1)
        self.assertIsNone(json.loads(result.stdout)["best"])
        result, _ = self.sweep(sweeping(done(RESULT, nothing)))
        self.assertEqual(result.returncode, 1)
        self.assertIn("3 wrong_result", result.stdout)

    def test_ties_are_claimed_only_of_a_confirmed_winner(self):
        early = dict(RESULT, best=dict(RESULT["best"], confirmed=False, samples=0, ties=[]))
        result, _ = self.sweep(sweeping(done(early)))
        self.assertIn("before the winner was confirmed", result.stdout)
        self.assertNotIn("0 samples", result.stdout)

    def test_a_failed_job_exits_with_1_and_its_sentence(self):
        result, _ = self.sweep(sweeping(done(state="failed", error="no GPU is attached")), "--json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no GPU is attached", result.stderr)
        self.assertIn("no GPU is attached", json.loads(result.stdout)["error"]["message"])

    def test_a_refused_request_exits_with_1(self):
        def refuse(_connection, _params):
            raise Refusal("not_found", "no kernel gemm; there are: reduce")
        result, _ = self.sweep(refuse)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("there are: reduce", result.stderr)

    def test_detach_prints_the_job_and_leaves(self):
        result, _ = self.sweep(sweeping(), "--detach")
        self.assertEqual((result.returncode, result.stdout), (0, "j-1\n"))
        result, _ = self.sweep(sweeping(), "--detach", "--json")
        self.assertEqual(json.loads(result.stdout), {"job": "j-1"})

    def test_other_jobs_news_is_not_taken_for_ours(self):
        def handler(connection, _params):
            def after():
                connection.notify("done", {"job": "j-0", "state": "failed", "results": []})
                connection.notify("done", {"job": "j-1", "state": "done", "results": [RESULT]})
            return {"job": "j-1", "_after": after}
        result, _ = self.sweep(handler)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_control_characters_do_not_reach_the_terminal(self):
        evil = dict(RESULT, device="H200\x1b[2J\u009b1m")
        result, _ = self.sweep(sweeping(done(evil)))
        self.assertNotIn("\x1b", result.stdout)
        self.assertNotIn("\u009b", result.stdout)

    def test_a_daemon_that_goes_away_is_a_failure_not_a_hang(self):
        def handler(connection, _params):
            return {"job": "j-1", "_after": lambda: connection.sock.shutdown(2)}
        result, _ = self.sweep(handler)
        self.assertEqual(result.returncode, 1)
        self.assertIn("closed the connection", result.stderr)


class Interrupt(unittest.TestCase):
    def start(self, daemon):
        return subprocess.Popen([TUNECTL, "--socket", daemon.path, "sweep", "gemm"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                universal_newlines=True)

    def test_ctrl_c_cancels_and_shows_what_there_is(self):
        started = threading.Event()

        def sweep(connection, _params):
            return {"job": "j-1", "_after": started.set}

        def cancel(connection, params):
            return {"_after": lambda: connection.notify("done", {
                "job": params["job"], "state": "canceled", "results": [RESULT]})}

        with FakeDaemon({"sweep": sweep, "cancel": cancel}) as daemon:
            child = self.start(daemon)
            self.assertTrue(started.wait(30))
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=30)
            self.assertEqual(daemon.asked("cancel"), [{"job": "j-1"}])
        self.assertEqual(child.returncode, 1)
        self.assertIn("63.2 us", out)
        self.assertIn("canceled", err)

    def test_a_second_ctrl_c_leaves_at_once(self):
        started, canceling = threading.Event(), threading.Event()

        def sweep(_connection, _params):
            return {"job": "j-1", "_after": started.set}

        def cancel(_connection, _params):
            return {"_after": canceling.set}  # and no `done` ever

        with FakeDaemon({"sweep": sweep, "cancel": cancel}) as daemon:
            child = self.start(daemon)
            self.assertTrue(started.wait(30))
            child.send_signal(signal.SIGINT)
            self.assertTrue(canceling.wait(30))
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=30)
        self.assertEqual(child.returncode, -signal.SIGINT)


class Terminal(unittest.TestCase):
    def test_progress_is_one_line_within_the_width(self):
        with FakeDaemon({"sweep": sweeping(progress(5), progress(20), done(RESULT))}) as daemon:
            main, side = pty.openpty()
            child = subprocess.Popen(
                ["sh", "-c", 'stty cols 40 <&2; exec "$0" "$@"', TUNECTL, "--socket", daemon.path,
                 "sweep", "gemm"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=side,
                env=dict(os.environ, TERM="xterm"))
            os.close(side)
            child.stdout.read()
            child.stdout.close()
            self.assertEqual(child.wait(30), 0)
            text = b""
            try:
                while True:
                    more = os.read(main, 4096)
                    if not more:
                        break
                    text += more
            except OSError:  # the other side is closed
                pass
            os.close(main)
        lines = [line for line in text.decode().replace("\x1b[K", "").split("\r") if line]
        self.assertTrue(any("20 of 20" in line for line in lines), lines)
        self.assertTrue(all(len(line) < 40 and "\n" not in line for line in lines), lines)


class Answers(unittest.TestCase):
    ANSWER = {"kernel": "gemm", "dtype": "f32", "arch": "sm_90", "shape": {"M": 64}, "origin": "exact",
              "measured_on": "NVIDIA H200", "same_gpu": True, "config": {"BM": 64},
              "launches": [{"memset": "C", "byte": 0},
                           {"entry": "gemm", "grid": [8, 16, 1], "block": [256, 1, 1],
                            "shared_bytes": 34816, "defines": {"BM": 64}, "cluster": None,
                            "cooperative": False,
                            "args": [{"kind": "buffer", "name": "A"},
                                     {"kind": "scalar", "type": "i64", "value": 64}]}],
              "buffers": [], "expected_loss": 0.02, "median_ns": 63200.0, "generation": 4}

    def ask(self, handlers, *args):
        with FakeDaemon(handlers) as daemon:
            return run("--socket", daemon.path, *args), daemon

    def test_get_asks_and_shows_the_launch_as_cuda_writes_it(self):
        result, daemon = self.ask({"get": lambda _c, _p: self.ANSWER}, "get", "gemm", "--shape",
                                  "M=64", "--arch", "sm_90", "--policy", "cached", "--gpu", "H200")
        self.assertEqual(daemon.asked("get"), [{"kernel": "gemm", "shape": {"M": 64}, "arch": "sm_90",
                                                "policy": "cached", "gpu": "H200"}])
        self.assertIn("gemm<<<(8,16,1), (256,1,1), 34816>>>(A, 64)", result.stdout)
        self.assertIn("exact, measured on NVIDIA H200", result.stdout)
        together = dict(self.ANSWER["launches"][1], cluster=[2, 1, 1], cooperative=True, repeat=3)
        answer = dict(self.ANSWER, launches=[{"constant": "taps", "buffer": "filter"}, together])
        result, _ = self.ask({"get": lambda _c, _p: answer}, "get", "gemm", "--shape", "M=64")
        self.assertIn("constant taps = filter\n", result.stdout)
        self.assertIn(">>>(A, 64) in clusters of (2,1,1), cooperative x 3\n", result.stdout)
        result, _ = self.ask({"get": lambda _c, _p: self.ANSWER}, "--json", "get", "gemm", "--shape",
                             "M=64")
        self.assertEqual(json.loads(result.stdout), self.ANSWER)

    def test_get_writes_the_cubin_whole_or_not_at_all(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gemm.cubin")
            cubin = bytes(range(256)) * 100
            answer = dict(self.ANSWER, cubin=base64.b64encode(cubin).decode())
            result, daemon = self.ask({"get": lambda _c, _p: answer}, "get", "gemm", "--shape", "M=64",
                                      "--cubin", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(daemon.asked("get")[0]["cubin"])
            with open(path, "rb") as file:
                self.assertEqual(file.read(), cubin)
            result, _ = self.ask({"get": lambda _c, _p: self.ANSWER}, "get", "gemm", "--shape", "M=64",
                                 "--cubin", path + "2")
            self.assertEqual((result.returncode, os.listdir(folder)), (1, ["gemm.cubin"]))

    def test_records_pass_their_filter_on(self):
        record = {"kernel": "gemm", "dtype": "f32", "arch": "cpu", "shape": {"M": 1}, "config": {"BM": 2},
                  "outcome": "ok", "median_ns": 5.0, "samples_ns": [5.0], "device": "CPU emulator",
                  "driver": 13000, "nvrtc": "13.0", "time": "2026-01-02T03:04:05Z", "host": "h"}
        result, daemon = self.ask({"records": lambda _c, _p: [record]}, "records", "gemm", "--outcome",
                                  "ok", "--job", "j-1", "--limit", "5")
        self.assertEqual(daemon.asked("records"),
                         [{"kernel": "gemm", "outcome": "ok", "job": "j-1", "limit": 5}])
        for words in ("CPU emulator", "BM=2", "5.00 ns", "2026-01-02T03:04:05Z"):
            self.assertIn(words, result.stdout)

    def test_lists_are_tables_or_the_very_json(self):
        kernels = [{"name": "gemm", "summary": "C = A B", "dims": ["M", "N"], "dtypes": ["f32"],
                    "params": [{"name": "BM"}, {"name": "BN"}]}]
        devices = [{"ordinal": 0, "name": "CPU emulator", "uuid": "GPU-0", "arch": "cpu",
                    "state": "idle", "sms": 4, "memory_bytes": 2147483648},
                   {"ordinal": 1, "name": "NVIDIA H200", "uuid": "GPU-1", "arch": "sm_90",
                    "state": "idle", "sms": 132, "memory_bytes": 0, "limits": {
                        "dram_bytes_per_s": 4.1234e12, "flops_f32": 5.9876e13}}]
        jobs = [{"job": "j-1", "kernel": "gemm", "state": "running", "done": 3, "total": 9,
                 "created_unix_ms": 1767323045000}]
        for name, value, words in (("kernels", kernels, ["gemm", "M N", "f32", "C = A B"]),
                                   ("devices", devices, ["CPU emulator", "2.00 GiB", "GPU-0",
                                                         "4123 GB/s", "59.88 TFLOP/s"]),
                                   ("jobs", jobs, ["j-1", "running", "3/9", "2026-01-0"])):
            result, _ = self.ask({name: lambda _c, _p, value=value: value}, name)
            for word in words:
                self.assertIn(word, result.stdout)
            result, _ = self.ask({name: lambda _c, _p, value=value: value}, name, "--json")
            self.assertEqual(json.loads(result.stdout), value)
            result, _ = self.ask({name: lambda _c, _p: []}, name)
            self.assertEqual((result.returncode, len(result.stdout.splitlines())), (0, 1))

    def test_describe_shows_parameters_with_their_meaning(self):
        manifest = {"name": "gemm", "summary": "C = A B", "dims": [
                        {"name": "M", "meaning": "rows"},
                        {"name": "OP", "meaning": "what", "values": [{"value": 1, "name": "sum"}, 5]}],
                    "params": [{"name": "BM", "meaning": "tile rows",
                                "values": [16, {"value": 2, "name": "xor"}]}],
                    "constraints": [{"expr": "BM <= 64", "message": "tile too large"}],
                    "default": {"BM": 16}, "shapes": [{"M": 64}], "dtypes": ["f32"],
                    "fingerprint": "abc", "folder": "/p/gemm", "space": {"total": 2}}
        result, daemon = self.ask({"describe": lambda _c, _p: manifest}, "describe", "gemm")
        self.assertEqual(daemon.asked("describe"), [{"kernel": "gemm"}])
        for words in ("one of sum 5", "16 xor", "tile rows", "tile too large", "BM=16", "M=64", "abc", "/p/gemm"):
            self.assertIn(words, result.stdout)

    def test_a_kernel_and_a_device_that_cannot_be_used_say_why(self):
        broken = [{"name": "conv", "error": "conv.json: no field \"dims\""}]
        result, _ = self.ask({"kernels": lambda _c, _p: broken}, "kernels")
        self.assertIn('not usable: conv.json: no field "dims"', result.stdout)
        broken = [{"ordinal": 0, "name": "H200", "state": "failed", "reason": "context lost"}]
        result, _ = self.ask({"devices": lambda _c, _p: broken}, "devices")
        self.assertIn("failed: context lost", result.stdout)

    def test_cancel_names_the_job(self):
        result, daemon = self.ask({"cancel": lambda _c, _p: {}}, "cancel", "j-7")
        self.assertEqual((result.returncode, daemon.asked("cancel")), (0, [{"job": "j-7"}]))


class Watch(unittest.TestCase):
    def watch(self, events, jobs, *args):
        def watch(connection, _params):
            def after():
                for method, params in events:
                    connection.notify(method, dict(params, job="j-1"))
            return {"_after": after}
        with FakeDaemon({"watch": watch, "jobs": lambda _c, _p: jobs}) as daemon:
            return run("--socket", daemon.path, "watch", *args)

    def test_a_job_is_followed_to_its_end(self):
        running = [{"job": "j-1", "state": "running"}]
        result = self.watch([progress(20), done(RESULT)], running, "j-1", "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)), (0, RESULT), result.stderr)

    def test_a_job_that_is_over_is_shown_at_once(self):
        over = [{"job": "j-1", "state": "done", "results": [RESULT]}]
        result = self.watch([], over, "j-1", "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)), (0, RESULT), result.stderr)

    def test_a_job_that_never_was_is_an_error(self):
        result = self.watch([], [], "j-1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("j-1", result.stderr)

    def test_with_a_closed_standard_output_nothing_printed_goes_to_the_daemon(self):
        def watch(connection, _params):
            def after():
                try:  # it leaves as soon as it cannot print, perhaps before the second of these
                    connection.notify("progress", dict(progress(1)[1], job="j-1"))
                    connection.notify("done", {"job": "j-1", "state": "done", "results": []})
                    got.append(connection.sock.recv(100))
                    connection.sock.shutdown(2)
                except OSError:
                    got.append(b"")
                has_read.set()
            return {"_after": after}
        got, has_read = [], threading.Event()
        with FakeDaemon({"watch": watch}) as daemon:
            result = subprocess.run(["sh", "-c", 'exec "$0" --socket "$1" watch >&-', TUNECTL,
                                     daemon.path], stderr=subprocess.PIPE, timeout=60)
            self.assertTrue(has_read.wait(60))
        self.assertEqual(set(got), {b""})
        self.assertEqual(result.returncode, 1)

    def test_watching_all_with_json_is_one_array_when_it_ends(self):
        def watch(connection, _params):
            def after():
                connection.notify("progress", dict(progress(1)[1], job="j-1"))
                connection.notify("done", {"job": "j-1", "state": "done", "results": []})
                connection.sock.shutdown(2)
            return {"_after": after}
        with FakeDaemon({"watch": watch}) as daemon:
            result = run("--socket", daemon.path, "--json", "watch")
        self.assertEqual([item["method"] for item in json.loads(result.stdout)], ["progress", "done"])
        self.assertEqual(result.returncode, 1)


class Doctor(unittest.TestCase):
    PROBE = {"probe": "0.1.0", "tried": [], "nvml": False,
             "nvrtc": {"found": True, "works": True, "version": "13.0", "path": "/n/libnvrtc.so.13",
                       "archs": [75, 90, 120], "include": "/n/include", "emulated": False},
             "driver": {"found": True, "works": True, "path": "/d/libcuda.so.1", "cuda": "13.0"},
             "devices": [{"name": "NVIDIA H200", "arch": "sm_90", "sm": 90, "uuid": "GPU-1"}]}

    def doctor(self, probe, *args, **ping):
        with tempfile.TemporaryDirectory() as folder, FakeDaemon() as daemon:
            usual = daemon.handlers["ping"]
            daemon.handlers["ping"] = lambda connection, params: dict(usual(connection, params), **ping)
            worker = os.path.join(folder, "tune-worker")
            with open(worker, "w") as file:
                file.write("#!/bin/sh\ncat <<'END'\n%s\nEND\n" % json.dumps(probe))
            os.chmod(worker, 0o755)
            return run("--socket", daemon.path, "doctor", *args, env={
                "TUNE_WORKER": worker, "TUNE_TUNERD": worker, "TUNE_LOCK_DIR": folder,
                "TUNE_EMULATE": ""})

    def test_what_is_published_is_shown(self):
        for served, words in ((None, "the daemon cannot publish answers"), ("/n/served", "nothing yet")):
            result = self.doctor(self.PROBE, served=served)
            self.assertEqual(result.returncode, 0, result.stdout)
            self.assertIn(words, result.stdout)
        self.assertNotIn("published", self.doctor(self.PROBE).stdout)  # an older daemon

    def test_a_whole_machine_is_well(self):
        result = self.doctor(self.PROBE)
        self.assertEqual(result.returncode, 0, result.stdout)
        for words in ("NVRTC 13.0", "/n/libnvrtc.so.13", "/n/include", "NVIDIA H200, sm_90"):
            self.assertIn(words, result.stdout)
        value = json.loads(self.doctor(self.PROBE, "--json").stdout)
        self.assertTrue(value["ok"])
        self.assertEqual(value["probe"], self.PROBE)

    def test_without_nvrtc_it_says_how_to_get_it_and_fails(self):
        probe = dict(self.PROBE, nvrtc={"found": False, "works": False, "error": "no libnvrtc"})
        result = self.doctor(probe)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no libnvrtc", result.stdout)
        self.assertIn("nvidia-cuda-toolkit", result.stdout)

    def test_without_a_gpu_it_warns_only(self):
        probe = dict(self.PROBE, devices=[], driver={"found": False, "works": False,
                                                     "error": "no libcuda.so.1"})
        result = self.doctor(probe)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("TUNE_EMULATE=1", result.stdout)

    def test_a_gpu_that_nvrtc_cannot_serve_is_named(self):
        old = dict(self.PROBE, devices=[{"name": "Tesla V100", "arch": "sm_70", "sm": 70}])
        new = dict(self.PROBE, devices=[{"name": "Next", "arch": "sm_150", "sm": 150}])
        self.assertEqual(self.doctor(old).returncode, 1)
        result = self.doctor(new)
        self.assertEqual(result.returncode, 0)
        self.assertIn("PTX for sm_120", result.stdout)

    def test_a_gpu_that_runs_code_of_an_older_one_of_its_generation_is_served(self):
        nvrtc = dict(self.PROBE["nvrtc"], archs=[75, 80, 86, 100, 120])
        for sm in (89, 103, 121):
            device = {"name": "GPU", "arch": "sm_%d" % sm, "sm": sm, "uuid": "GPU-1"}
            result = self.doctor(dict(self.PROBE, nvrtc=nvrtc, devices=[device]))
            self.assertEqual(result.returncode, 0, result.stdout)
            self.assertNotIn("PTX", result.stdout)

    def test_the_socket_is_told_without_a_daemon_too(self):
        result = run("doctor", env={"TUNE_SOCKET": "/nonexistent/s"})
        self.assertRegex(result.stdout, r"ok +socket +/nonexistent/s\n")
        result = run("doctor", env={"TUNE_SOCKET": "/" + "s" * 120})
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"missing +socket +.*107")

    def test_a_worker_that_says_nothing_is_a_finding(self):
        result = run("doctor", env={"TUNE_WORKER": "/bin/true", "TUNE_SOCKET": "/nonexistent/s"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("gave no answer", result.stdout)


if __name__ == "__main__":
    unittest.main()
