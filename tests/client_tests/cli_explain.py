#!/usr/bin/env python3
"""tunectl explain: bare numbers without a daemon, requests, the text view, and comparisons."""
import base64
import copy
import json
import os
import subprocess
import tempfile
import unittest

from fake_daemon import FakeDaemon, Refusal

TUNECTL = os.environ["TUNECTL"]

EXPLANATION = {
    "kernel": "gemm", "dtype": "f32", "arch": "sm_90", "mode": "cold", "origin": "given",
    "shape": {"M": 4096, "N": 4096, "K": 4096}, "config": {"BM": 64, "SWIZZLE": "none"},
    "device": "NVIDIA H200",
    "occupancy": {"blocks_per_sm": 3, "warps_per_sm": 24, "warps_max": 64, "fraction": 0.375,
                  "limited_by": "shared_memory", "threads": 256, "registers": 64, "shared_bytes": 49152,
                  "blocks_by": {"threads": 8, "blocks": 32, "registers": 4, "shared_memory": 3}},
    "launches": [{"entry": "gemm", "grid": [4096, 1, 1], "block": [256, 1, 1], "shared_bytes": 49152,
                  "args": [{"kind": "buffer", "name": "A"}]}],
    "buffers": [], "blocks": 4096, "waves": 10.34, "tail_fill": 0.34,
    "accesses": [
        {"entry": "gemm", "file": "gemm.cu", "line": 41, "text": "a = A[i];", "space": "global",
         "kind": "load", "atomic": False, "bytes": 16, "sectors_per_request": 16.0,
         "ideal_sectors": 16.0, "conflict_degree": None, "wavefronts_per_request": None,
         "requests": 300, "active_lanes": 32},
        {"entry": "gemm", "file": "gemm.cu", "line": 88, "text": "sum += As[k][row] * " + "x" * 300,
         "space": "shared", "kind": "load", "atomic": False, "bytes": 4, "sectors_per_request": None,
         "ideal_sectors": None, "conflict_degree": 8.0, "wavefronts_per_request": 8.0,
         "requests": 1000, "active_lanes": 32}],
    "branches": [{"entry": "gemm", "file": "gemm.cu", "line": 30, "text": "if (row < M)",
                  "active_fraction": 0.5, "warps": 80},
                 {"entry": "gemm", "file": "gemm.cu", "line": 31, "text": "for", "active_fraction": 1.0,
                  "warps": 80}],
    "traced": {"blocks": 4, "of": 4096}, "intensity": 8.0,
    "roofline": {"flops": 137438953472, "bytes": 201326592, "requested_bytes": 17179869184,
                 "intensity_dram": 682.7, "ceiling": "compute", "attainable_flops_per_s": 55e12,
                 "attainable_ns": 2500000.0, "achieved_flops_per_s": 27.5e12,
                 "achieved_bytes_per_s": 40e9, "share": 0.5,
                 "limits": {"dram_bytes_per_s": 4.0e12, "flops": 55e12, "from": "measured",
                            "device": "NVIDIA H200"}},
    "registers": 64, "registers_from": "compiler", "spill_bytes": 0, "static_shared_bytes": 0,
    "instructions": {"total": 1000, "by_class": {"integer": 150, "fp32": 700, "shared_load": 150,
                                                 "local": 0}},
    "estimate": {"time_ns": 4000000.0, "limited_by": "memory_pipe", "wait_ns": 100000.0,
                 "launch_ns": 1500.0, "ceilings_ns": {"flops": 2500000.0, "issue": 2600000.0,
                                                      "memory_pipe": 3800000.0, "l2": 1e6, "dram": 5e4}},
    "median_ns": 5000000.0, "interval_ns": [4990000.0, 5010000.0], "measured_on": "NVIDIA H200",
    "notes": ["a note of the daemon"], "words": "The words of the daemon."}


def run(*args, env=None):
    environment = dict(os.environ, TUNE_AUTOSTART="0", **(env or {}))
    return subprocess.run([TUNECTL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, universal_newlines=True, timeout=60)


def explain(answer, *args):
    """What tunectl makes of it, and what it asked; several answers come one after the other."""
    answers = list(answer) if isinstance(answer, list) else [answer]
    def handler(_connection, _params):
        return copy.deepcopy(answers.pop(0) if len(answers) > 1 else answers[0])
    with FakeDaemon({"explain": handler}) as daemon:
        result = run("--socket", daemon.path, "explain", "gemm", "--shape", "M=64,N=32,K=16", *args)
        return result, daemon.asked("explain")


def resources(amounts, arch):
    # No daemon is to be asked: there is none at this socket.
    result = run("--socket", "/nonexistent/sock", "--json", "explain", "--resources", amounts,
                 "--arch", arch)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def figures(amounts, arch):
    found = resources(amounts, arch)["occupancy"]
    return (found["blocks_per_sm"], found["warps_per_sm"], found["warps_max"],
            round(found["fraction"], 4), found["limited_by"])


class BareNumbers(unittest.TestCase):
    def test_the_worked_values_come_out_without_a_daemon(self):
        self.assertEqual(figures("threads=256,registers=64,shared=49152", "sm_80"),
                         (3, 24, 64, 0.375, "shared_memory"))
        self.assertEqual(figures("threads=1024", "sm_89"), (1, 32, 48, 0.6667, "threads"))
        self.assertEqual(figures("threads=256", "sm_89"), (6, 48, 48, 1.0, "threads"))

    def test_the_form_has_every_field(self):
        form = resources("threads=256", "sm_90")
        self.assertEqual(sorted(form), sorted(EXPLANATION))
        self.assertEqual((form["kernel"], form["accesses"], form["registers"]), (None, [], None))

    def test_a_person_sees_the_limit_and_the_words(self):
        result = run("explain", "--resources", "threads=256,registers=64,shared=49152", "--arch", "sm_80")
        self.assertEqual(result.returncode, 0, result.stderr)
        limit = [line for line in result.stdout.splitlines() if "<- the limit" in line]
        self.assertEqual([line.split()[:3] for line in limit], [["shared", "memory", "3"]])
        self.assertIn("24 of 64 warps (37.5 %)", result.stdout)

    def test_a_wrong_command_line_says_what_is_needed(self):
        for args, says in (
                (("--resources", "threads=256"), "needs --arch"),
                (("--resources", "registers=3", "--arch", "sm_80"), "needs threads=N"),
                (("--resources", "thread=3", "--arch", "sm_80"), "threads, registers, shared"),
                (("--resources", "threads=some", "--arch", "sm_80"), "must be an integer"),
                (("--resources", "threads=2048", "--arch", "sm_80"), "1 to 1024"),
                (("--resources", "threads=1,threads=2", "--arch", "sm_80"), "given twice"),
                (("--resources", "threads=32,", "--arch", "sm_80"), "nothing follows"),
                (("--resources", "threads=256", "--arch", "sm_99"), "there are: sm_70"),
                (("--resources", "threads=256", "--arch", "sm_80", "--shape", "M=1"), "about a kernel"),
                (("gemm", "--resources", "threads=256", "--arch", "sm_80"), "one or the other"),
                (("--arch", "sm_80"), "needs KERNEL"),
                (("gemm",), "needs --shape"),
                (("gemm", "--shape", "M=1", "--config", "BM"), "NAME=VALUE"),
                (("gemm", "--shape", "M=1", "--config", "BM="), "has no value"),
                (("gemm", "--shape", "M=1", "--mode", "tepid"), "cold, warm"),
                (("gemm", "--shape", "M=1", "--against", "BM=1", "--cubin", "x"), "one kernel")):
            result = run("explain", *args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            self.assertIn(says, result.stderr)


class Explain(unittest.TestCase):
    def test_the_request_carries_every_option(self):
        _, asked = explain(EXPLANATION, "--config", "BM=64,SWIZZLE=xor", "--dtype", "f32", "--arch",
                                "sm_90", "--gpu", "NVIDIA H200", "--mode", "warm", "--no-trace")
        self.assertEqual(asked, [{
            "kernel": "gemm", "shape": {"M": 64, "N": 32, "K": 16}, "dtype": "f32", "arch": "sm_90",
            "gpu": "NVIDIA H200", "mode": "warm", "config": {"BM": 64, "SWIZZLE": "xor"},
            "trace": False}])
        _, asked = explain(EXPLANATION)
        self.assertEqual(asked, [{"kernel": "gemm", "shape": {"M": 64, "N": 32, "K": 16}, "trace": True}])

    def test_json_is_the_answer_as_it_came(self):
        result, _ = explain(EXPLANATION, "--json")
        self.assertEqual(json.loads(result.stdout), EXPLANATION)

    def test_the_text_has_a_section_for_all_that_is_known(self):
        result, _ = explain(EXPLANATION)
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in (
                "gemm f32 M=4096 N=4096 K=4096, sm_90, cold", "BM=64 SWIZZLE=none (given)",
                "5.00 ms (4.99 ms to 5.01 ms) on NVIDIA H200",
                "3 blocks per SM, 24 of 64 warps (37.5 %), limited by shared memory",
                "gemm<<<(4096,1,1), (256,1,1), 49152>>>(A)", "10.34 waves; the last one is 34 % full",
                "8 flop per byte that threads load", "50 % of the ceiling", "27.5 TFLOP/s",
                "55 TFLOP/s, 4 TB/s (measured, NVIDIA H200)", "16 of 16", "8-way", "50.0 % active",
                "64 registers per thread (by the compiler)", "1000 instructions: fp32 70 %, integer 15 %",
                "no forecast): 4.00 ms, limited by memory_pipe", "note: a note of the daemon"):
            self.assertIn(words, result.stdout)
        self.assertTrue(result.stdout.endswith("\nThe words of the daemon.\n"))
        self.assertLessEqual(max(len(line) for line in result.stdout.splitlines()), 100)
        self.assertNotIn("gemm.cu:31", result.stdout)
        # What wastes comes before what does not.
        self.assertLess(result.stdout.index("gemm.cu:88"), result.stdout.index("gemm.cu:41"))

    def test_a_long_configuration_is_wrapped_and_kept_whole(self):
        config = {"PARAMETER_%d" % i: i for i in range(20)}
        result, _ = explain(dict(EXPLANATION, config=config))
        self.assertLessEqual(max(len(line) for line in result.stdout.splitlines()), 100)
        for i in range(20):
            self.assertIn("PARAMETER_%d=%d " % (i, i), result.stdout.replace("\n", " "))

    def test_what_is_not_known_has_no_section(self):
        bare = {key: None for key in EXPLANATION}
        bare.update({key: EXPLANATION[key] for key in ("kernel", "shape", "config", "origin", "arch",
                                                       "dtype", "mode", "words")})
        bare.update(launches=[], buffers=[], accesses=[], branches=[], notes=[])
        result, _ = explain(bare)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not measured", result.stdout)
        for words in ("Occupancy", "Launch", "Roofline", "Memory", "Branches", "Code", "Estimate", "note",
                      "nan", "null"):
            self.assertNotIn(words, result.stdout)

    def test_control_characters_do_not_reach_the_terminal(self):
        evil = copy.deepcopy(EXPLANATION)
        evil["accesses"][0]["text"] = evil["words"] = evil["notes"][0] = "a\x1b[2J\u009b1m b"
        evil["occupancy"]["limited_by"] = evil["kernel"] = "\x1b[2J"
        evil["instructions"]["by_class"] = {"\x1b[2J": 3}
        evil["estimate"]["limited_by"] = evil["registers_from"] = "\x1b[2J"
        evil["estimate"]["ceilings_ns"] = {"\x1b[2J": 3}
        for args in ((), ("--against", "BM=1")):
            result, _ = explain(evil, *args)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("\x1b", result.stdout)
            self.assertNotIn("\u009b", result.stdout)

    def test_a_line_of_the_source_is_cut_between_characters(self):
        foreign = copy.deepcopy(EXPLANATION)
        for text in ("x" + "\u00e4" * 100, "\u6570" * 100):
            foreign["accesses"][0]["text"] = foreign["branches"][0]["text"] = text
            result, _ = explain(foreign)  # fails to decode where a character is cut in two
            self.assertIn(text[:30] + "\n", result.stdout)
            self.assertNotIn(text[:31], result.stdout)

    def test_the_cubin_goes_to_a_file(self):
        answer = dict(EXPLANATION, cubin=base64.b64encode(b"ELF!").decode())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gemm.cubin")
            result, asked = explain(answer, "--cubin", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIs(asked[0]["cubin"], True)
            with open(path, "rb") as file:
                self.assertEqual(file.read(), b"ELF!")

    def test_a_refusal_is_told_and_exits_with_1(self):
        def refuse(_connection, _params):
            raise Refusal("invalid", "BM is 5; it must be one of 16, 32")
        with FakeDaemon({"explain": refuse}) as daemon:
            for more in ((), ("--against", "BM=5")):
                result = run("--socket", daemon.path, "explain", "gemm", "--shape", "M=1", *more, "--json")
                self.assertEqual(result.returncode, 1)
                self.assertIn("one of 16, 32", json.loads(result.stdout)["error"]["message"])

    def test_no_daemon_is_exit_status_3(self):
        result = run("--socket", "/nonexistent/sock", "explain", "gemm", "--shape", "M=1")
        self.assertEqual(result.returncode, 3)


class Against(unittest.TestCase):
    BETTER = copy.deepcopy(EXPLANATION)
    BETTER.update(config={"BM": 64, "SWIZZLE": "xor"}, median_ns=4e6, interval_ns=[3.99e6, 4.01e6],
                  origin="exact")
    BETTER["accesses"][1].update(conflict_degree=1.0, wavefronts_per_request=1.0)
    BETTER["estimate"] = dict(BETTER["estimate"], time_ns=3e6)

    def test_both_configurations_are_asked_for(self):
        _, asked = explain([EXPLANATION, self.BETTER], "--against", "SWIZZLE=xor", "--arch", "sm_90")
        self.assertEqual([params.get("config") for params in asked], [None, {"SWIZZLE": "xor"}])
        self.assertEqual({params["arch"] for params in asked}, {"sm_90"})
        _, asked = explain([EXPLANATION, self.BETTER], "--config", "BM=32", "--against", "BM=64")
        self.assertEqual([params["config"] for params in asked], [{"BM": 32}, {"BM": 64}])

    def test_json_tells_what_differs_and_what_matters(self):
        result, _ = explain([EXPLANATION, self.BETTER], "--against", "SWIZZLE=xor", "--json")
        found = json.loads(result.stdout)
        self.assertEqual((found["a"], found["b"]), (EXPLANATION, self.BETTER))
        self.assertEqual((found["faster"], found["by"], found["ratio"]), ("b", "measured", 1.25))
        self.assertEqual(found["config"], [{"param": "SWIZZLE", "a": "none", "b": "xor"}])
        self.assertEqual((found["differences"][0]["what"], found["differences"][0]["favours"]),
                         ("conflicts", "b"))

    def test_a_person_sees_both_sides_and_the_words(self):
        result, _ = explain([EXPLANATION, self.BETTER], "--against", "SWIZZLE=xor")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
        for line in ("gemm f32 M=4096 N=4096 K=4096, sm_90, cold", "time 5.00 ms 4.00 ms",
                     "estimate 4.00 ms 3.00 ms", "origin given exact", "SWIZZLE none xor"):
            self.assertIn(line, lines)
        self.assertIn("B passes over the banks per pass without conflicts: 8 in A, 1 in B",
                      " ".join(lines))
        self.assertIn("B is 1.25 x as fast as A.", " ".join(lines))
        self.assertIn("They differ in SWIZZLE.", " ".join(lines))


if __name__ == "__main__":
    unittest.main()
