"""tunerd.Kernel on the emulator: a real daemon, real code, stand-ins for PyTorch's and CuPy's arrays."""
import base64
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fake_daemon import FakeDaemon

SOURCE = os.environ["TUNE_SOURCE_DIR"]
BUILD = os.environ["TUNE_BUILD_DIR"]
os.environ["TUNE_CUDA_DIR"] = os.path.join(BUILD, "lib", "tunerd", "emulator")
sys.path.insert(0, os.path.join(SOURCE, "client", "python"))
import tunerd
from tunerd import driver
from tunerd.kernel import library_of
import fake_arrays
from fake_arrays import Tensor, ndarray

INF, NAN = math.inf, math.nan
#: relative error of an element that its type explains
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
VARIANTS = {  # variant -> (its configuration, a shape that it can do)
    "naive": ({"THREADS": 1, "ROWS": 128, "ITEMS": 1, "VEC": 1, "SPLIT": 1}, (5, 600)),
    "registers": ({"THREADS": 64, "ROWS": 1, "ITEMS": 16, "VEC": 2, "SPLIT": 1}, (5, 600)),
    "shared": ({"THREADS": 64, "ROWS": 1, "ITEMS": 4, "VEC": 2, "SPLIT": 1}, (5, 600)),
    "online": ({"THREADS": 64, "ROWS": 1, "ITEMS": 4, "VEC": 2, "SPLIT": 1}, (5, 600)),
    "split": ({"THREADS": 64, "ROWS": 1, "ITEMS": 4, "VEC": 2, "SPLIT": 4}, (5, 600)),
    "cluster": ({"THREADS": 64, "ROWS": 1, "ITEMS": 8, "VEC": 2, "SPLIT": 2}, (5, 600))}


def softmax(row):
    """As PyTorch's, in double precision."""
    if any(math.isnan(v) for v in row) or max(row) in (INF, -INF):
        return [NAN] * len(row)
    powers = [math.exp(v - max(row)) for v in row]
    return [p / sum(powers) for p in powers]


def special_row(kind, count):
    row = [random.uniform(-50, 50) for _ in range(count)]
    if kind == "nan":
        row[count // 2] = NAN
    elif kind == "inf":
        row[3] = INF
    elif kind == "some -inf":
        # Among them all that one thread sees first.
        row[:count // 2] = [-INF] * (count // 2)
    elif kind == "all -inf":
        row = [-INF] * count
    elif kind == "large":
        row = [v * 1000 for v in row]
    return row


#: y = taps[0] * x, or its negative, by blocks that must run together; OP and a constant
CHOOSING = {
    "tunerd": 1, "name": "choosing", "summary": "y = +- taps[0] * x",
    "dims": [{"name": "N", "meaning": "elements"},
             {"name": "OP", "meaning": "the sign", "values": [{"value": 1, "name": "plus"},
                                                              {"value": 2, "name": "minus"}, 3]}],
    "compile_dims": ["OP"], "shapes": [{"N": 256}], "dtypes": ["f32", "f16"],
    "params": [{"name": "HOW", "meaning": "none", "values": [{"value": 1, "name": "cluster"},
                                                             {"value": 2, "name": "cooperative"}]}],
    "buffers": [{"name": "x", "dtype": "T", "count": "N", "fill": {"below": 8}, "role": "in"},
                {"name": "factor", "dtype": "f32", "count": 1, "fill": {"value": 2}, "role": "in"},
                {"name": "y", "dtype": {"f32": "f32", "f16": "f32"}, "count": "N", "role": "out"}],
    "launches": [
        {"constant": "taps", "buffer": "factor"},
        {"entry": "choose", "when": "HOW == 1", "grid": ["2 * ceildiv(N, 128)"], "block": [64],
         "cluster": [2], "args": [{"buffer": "x"}, {"buffer": "y"}, {"scalar": "i64", "value": "N"}]},
        {"entry": "choose", "when": "HOW == 2", "grid": ["ceildiv(N, 64)"], "block": [64],
         "cooperative": True,
         "args": [{"buffer": "x"}, {"buffer": "y"}, {"scalar": "i64", "value": "N"}]}],
    "reference": {"buffers": [{"name": "r", "dtype": "f64", "count": "N", "role": "out"}],
                  "launches": [{"entry": "reference", "grid": [1], "block": [1], "args": []}]},
    "checks": [{"buffer": "y", "reference": "r", "derivation": "none", "tolerance": {"unit": "f32"}}],
    "default": {"HOW": "cluster"}}
CHOOSING_SOURCE = """#include <cuda_fp16.h>
#include <cooperative_groups.h>
extern "C" { __constant__ float taps[4]; }
extern "C" __global__ void choose(const TUNE_T *x, float *y, long long n)
{
    if (HOW == 2) // no such grid otherwise: the emulator and a GPU trap or hang
        cooperative_groups::this_grid().sync();
    if (HOW == 1)
        cooperative_groups::this_cluster().sync();
    long long i = blockIdx.x * 64ll + threadIdx.x;
    float sign = OP == 1 ? 1.0f : OP == 2 ? -1.0f : 0.0f;
    if (i < n)
        y[i] = sign * taps[0] * (float)x[i];
}
"""


#: y = x + 2 a, where 2 a is made once
DOUBLED = {
    "tunerd": 1, "name": "doubled", "summary": "y = x + 2 a", "dims": [{"name": "N", "meaning": "elements"}],
    "shapes": [{"N": 64}], "dtypes": ["f32"], "params": [{"name": "TAG", "meaning": "none", "values": [0]}],
    "buffers": [{"name": "a", "dtype": "f32", "count": "N", "fill": "small_int", "role": "in"},
                {"name": "x", "dtype": "f32", "count": "N", "fill": "small_int", "role": "in"},
                {"name": "y", "dtype": "f32", "count": "N", "role": "out"},
                {"name": "twice", "dtype": "f32", "count": "N", "role": "scratch"}],
    "launches": [{"entry": "prepare", "once": True, "block": ["N"],
                  "args": [{"buffer": "a"}, {"buffer": "twice"}]},
                 {"entry": "add", "block": ["N"],
                  "args": [{"buffer": "x"}, {"buffer": "twice"}, {"buffer": "y"}]}],
    "reference": {"buffers": [{"name": "r", "dtype": "f64", "count": "N", "role": "out"}],
                  "launches": [{"entry": "reference", "grid": [1], "block": [1], "args": []}]},
    "checks": [{"buffer": "y", "reference": "r", "derivation": "none", "tolerance": {"unit": "f32"}}],
    "default": {"TAG": 0}}
DOUBLED_SOURCE = """
extern "C" __global__ void prepare(const float *a, float *twice) { twice[threadIdx.x] = 2 * a[threadIdx.x]; }
extern "C" __global__ void add(const float *x, const float *twice, float *y)
{
    y[threadIdx.x] = x[threadIdx.x] + twice[threadIdx.x];
}
"""


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="tunerd_py_")
        cls.write_variants()
        cls.write_plugin("doubled", DOUBLED, DOUBLED_SOURCE)
        cls.write_plugin("choosing", CHOOSING, CHOOSING_SOURCE)
        cls.write_plugin("together", dict(CHOOSING, name="together", default={"HOW": "cooperative"}),
                         CHOOSING_SOURCE)
        cls.path = os.path.join(cls.folder, "s")
        cls.log = open(os.path.join(cls.folder, "log"), "w")
        cls.daemon = subprocess.Popen(
            [os.path.join(BUILD, "bin", "tunerd"), "--foreground", "--emulate", "--socket", cls.path,
             "--db", os.path.join(cls.folder, "db"), "--plugins", os.path.join(cls.folder, "plugins")],
            env=dict(os.environ, TUNE_LOCK_DIR=cls.folder), stderr=cls.log)
        try:
            cls.client = cls.connect()
            cls.wait_until_ready()
            fake_arrays.install(driver.driver()._library)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        cls.daemon.wait()
        cls.log.close()
        shutil.rmtree(cls.folder)

    @classmethod
    def write_variants(cls):
        """The kernel once for each variant: a plugin whose default is that one."""
        with open(os.path.join(SOURCE, "plugins", "softmax", "softmax.json")) as file:
            manifest = json.load(file)
        for variant, (config, _) in VARIANTS.items():
            name = "softmax_" + variant
            os.makedirs(os.path.join(cls.folder, "plugins", name))
            usual = manifest["default"][0]
            own = dict(manifest, name=name,
                       default=[dict(usual, **dict(config, VARIANT=variant, MIN_BLOCKS=1))]
                       + manifest["default"])
            with open(os.path.join(cls.folder, "plugins", name, name + ".json"), "w") as file:
                json.dump(own, file)
            for source in ("softmax.cu", "small_floats.cuh", "common.cuh"):
                shutil.copy(os.path.join(SOURCE, "kernels_src", source),
                            os.path.join(cls.folder, "plugins", name))

    @classmethod
    def write_plugin(cls, name, manifest, source):
        folder = os.path.join(cls.folder, "plugins", name)
        os.makedirs(folder)
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump(manifest, file)
        with open(os.path.join(folder, name + ".cu"), "w") as file:
            file.write(source)

    @classmethod
    def connect(cls):
        limit = time.monotonic() + 30
        while True:
            try:
                return tunerd.Client(cls.path)
            except tunerd.Error:
                if cls.daemon.poll() is not None or time.monotonic() > limit:
                    with open(os.path.join(cls.folder, "log")) as file:
                        raise AssertionError("no daemon: " + file.read())

    @classmethod
    def wait_until_ready(cls):
        limit = time.monotonic() + 30
        while not cls.client.request("ping")["ready"]:
            assert time.monotonic() < limit, "the daemon does not become ready"

    def check_rows(self, dtype, got, values, columns, what):
        self.assertEqual(len(got), len(values))
        for at in range(0, len(values), columns):
            for y, p in zip(got[at:at + columns], softmax(values[at:at + columns])):
                if math.isnan(p):
                    self.assertTrue(math.isnan(y), "%s: %r where NaN is due" % (what, y))
                else:
                    self.assertLessEqual(abs(y - p), TOLERANCE[dtype] * p + 6e-8, what)

    def test_leading_axes_are_rows_and_every_dtype_is_taken(self):
        kernel = tunerd.Kernel(self.client, "softmax")
        for dtype in TOLERANCE:
            values = fake_arrays.unpack(dtype, fake_arrays.pack(
                dtype, [random.uniform(-4, 4) for _ in range(2 * 3 * 5 * 33)]))
            y = kernel(Tensor(dtype, (2, 3, 5, 33), values))
            self.assertEqual((y.shape, y.name), ((2, 3, 5, 33), dtype))
            self.check_rows(dtype, y.tolist(), values, 33, dtype)
        answer = kernel.answer(Tensor("bfloat16", (7, 9)))
        self.assertEqual((answer["dtype"], answer["shape"]), ("bf16", {"M": 7, "N": 9}))

    def test_special_values_pass_through_every_variant_as_they_do_in_pytorch(self):
        kinds = ("nan", "inf", "some -inf", "all -inf", "large")
        for variant, (config, (rows, columns)) in VARIANTS.items():
            kernel = tunerd.Kernel(self.client, "softmax_" + variant)
            self.assertEqual(len(kinds), rows)
            values = [fake_arrays.unpack("float32", fake_arrays.pack("float32", special_row(k, columns)))
                      for k in kinds]
            flat = [v for row in values for v in row]
            x = Tensor("float32", (rows, columns), flat)
            self.assertEqual(kernel.answer(x)["config"]["VARIANT"], variant)
            self.check_rows("float32", kernel(x).tolist(), flat, columns, variant)

    def test_a_larger_shape_of_the_same_code_gets_its_shared_memory(self):
        kernel = tunerd.Kernel(self.client, "softmax_shared")
        for columns in (600, 15000, 1200):
            values = [random.uniform(-4, 4) for _ in range(columns)]
            x = Tensor("float32", (1, columns), values)
            self.assertEqual(kernel.answer(x)["launches"][-1]["shared_bytes"], 4 * columns)
            self.check_rows("float32", kernel(x).tolist(), values, columns, "shared")

    def test_plans_of_many_shapes_do_not_pile_up(self):
        kernel = tunerd.Kernel(self.client, "softmax")
        for columns in range(1, 301):
            kernel.answer(Tensor("float32", (1, columns)))
        self.assertLessEqual(len(kernel._plans), 256)
        self.assertNotIn("cubin", kernel.answer(Tensor("float32", (1, 300))))

    def test_dims_follow_from_two_arrays_and_out_is_used(self):
        a, b = [float(i % 7) for i in range(6 * 5)], [float(i % 5) for i in range(5 * 4)]
        A, B, C = Tensor("float32", (2, 3, 5), a), Tensor("float32", (5, 4), b), Tensor("float32", (6, 4))
        kernel = tunerd.Kernel(self.client, "gemm")
        self.assertIs(kernel(A, B, out=C), C)
        self.assertEqual(C.tolist(), [sum(a[5 * i + k] * b[4 * k + j] for k in range(5))
                                      for i in range(6) for j in range(4)])
        self.assertEqual(kernel(A, B).shape, (6, 4))

    def test_scratch_and_several_launches(self):
        y = tunerd.Kernel(self.client, "reduce")(Tensor("float32", (10, 100), [0.5] * 1000))
        self.assertEqual((y.shape, y.tolist()), ((1,), [500.0]))

    def test_choices_constants_and_blocks_that_run_together(self):
        values = [float(i % 7) for i in range(200)]
        for name in ("choosing", "together"):
            kernel = tunerd.Kernel(self.client, name)
            x, factor = Tensor("float32", (200,), values), Tensor("float32", (1,), [3.0])
            for dims, sign in ((None, 3), ({"OP": "plus"}, 3), ({"OP": "minus"}, -3), ({"OP": 2}, -3),
                               ({"OP": 3}, 0)):
                self.assertEqual(kernel(x, factor, dims=dims).tolist(), [sign * v for v in values])
            # Another factor for the same plan, and outputs that are wider than what comes in.
            factor = Tensor("float32", (1,), [0.5])
            self.assertEqual(kernel(x, factor).tolist(), [0.5 * v for v in values])
            half = Tensor("float16", (200,), values)
            y = kernel(half, factor)
            self.assertEqual((y.name, y.tolist()), ("float32", [0.5 * v for v in values]))
            self.assertEqual(kernel.answer(x, factor, dims={"OP": "minus"})["choices"], {"OP": "minus"})
            with self.assertRaises(tunerd.Error) as caught:
                kernel(x, factor, dims={"OP": "times"})
            self.assertIn("no OP = times; there are plus, minus, 3", str(caught.exception))
            with self.assertRaises(tunerd.Error) as caught:
                kernel(x, factor, dims={"op": 2})
            self.assertIn("has no dimension op; it has N, OP", str(caught.exception))

    def test_buffers_that_a_shape_leaves_empty_may_be_left_out(self):
        kernel = tunerd.Kernel(self.client, "radix_sort")
        numbers = [(i * 7919) % 1000 for i in range(300)]
        keys, values = Tensor("uint32", (300,), numbers), Tensor("uint32", (300,), list(range(300)))
        self.assertEqual(kernel(keys, None).tolist(), sorted(numbers))
        self.assertEqual(kernel(keys, Tensor("uint32", (0,), [])).tolist(), sorted(numbers))
        out, places = kernel(keys, values, dims={"VALUES": "pairs"})
        self.assertEqual([numbers[i] for i in places.tolist()], out.tolist())
        self.assertEqual(out.tolist(), sorted(numbers))
        with self.assertRaises(tunerd.Error) as caught:
            kernel(keys, None, dims={"VALUES": "pairs"})
        self.assertIn("values is None; radix_sort of this shape takes 300 elements", str(caught.exception))

    def test_what_is_done_once_is_kept_for_the_last_inputs(self):
        kernel = tunerd.Kernel(self.client, "doubled")
        arrays = [Tensor("float32", (8,), [10.0 + i] * 8) for i in range(6)]
        ones, twos = (Tensor("float32", (8,), [v] * 8) for v in (1.0, 2.0))
        self.assertEqual(kernel(arrays[0], ones).tolist(), [21.0] * 8)
        self.assertEqual(kernel(arrays[0], twos).tolist(), [22.0] * 8)  # x is read each time
        plan = next(iter(kernel._plans.values()))
        first = next(iter(plan.prepared.values()))[0]
        once, entries = plan.once[0].function, []
        launch = driver.driver().launch
        driver.driver().launch = lambda function, *rest: (entries.append(function), launch(function, *rest))
        try:
            kernel(arrays[0], ones)
            self.assertNotIn(once, entries)
            self.assertIs(next(iter(plan.prepared.values()))[0], first)
            for i, array in enumerate(arrays):  # more than are kept
                self.assertEqual(kernel(array, ones).tolist(), [21.0 + 2 * i] * 8)
            self.assertEqual((entries.count(once), len(plan.prepared)), (5, 4))
            self.assertEqual(kernel(arrays[0], ones).tolist(), [21.0] * 8)
            self.assertEqual(entries.count(once), 6)
            kernel.refresh()
            entries.clear()
            self.assertEqual(kernel(arrays[0], ones).tolist(), [21.0] * 8)
            self.assertEqual(len(entries), 2)
        finally:
            driver.driver().launch = launch

    def test_what_is_done_once_is_not_taken_for_that_of_another_array_at_the_same_address(self):
        kernel = tunerd.Kernel(self.client, "doubled")
        ones = Tensor("float32", (8,), [1.0] * 8)
        for i in range(10):  # each given back before the next is made
            self.assertEqual(kernel(Tensor("float32", (8,), [float(i)] * 8), ones).tolist(), [1.0 + 2 * i] * 8)

    def test_launches_that_set_constants_wait_for_those_on_another_stream(self):
        kernel = tunerd.Kernel(self.client, "choosing")
        x, factor = Tensor("float32", (64,), [1.0] * 64), Tensor("float32", (1,), [3.0])
        kernel(x, factor)
        calls, whole = [], driver.driver().call

        def call(name, *arguments):
            calls.append(name)
            whole(name, *arguments)
        driver.driver().call = call
        try:
            kernel(x, factor)
            self.assertNotIn("cuStreamWaitEvent", calls)
            self.assertEqual(calls[-1], "cuEventRecord")
            code = kernel._plan(library_of(x), [x, factor], None).code
            driver.driver()._orders[code.module] = (driver.driver()._orders[code.module][0], 1)
            kernel(x, factor)
            self.assertIn("cuStreamWaitEvent", calls)
            # The per-thread stream has one handle for the streams of all threads.
            driver.driver().call = lambda name, *_: calls.append(name)
            for stream in (1, 2, 2):
                calls.clear()
                with driver.driver().constants_of(code, stream):
                    self.assertTrue(code.constants_lock.locked())
                self.assertEqual(calls, ["cuStreamIsCapturing", "cuStreamWaitEvent", "cuEventRecord"])
        finally:
            driver.driver().call = whole

    def test_an_output_has_the_shape_of_its_count(self):
        y = tunerd.Kernel(self.client, "transpose")(Tensor("float32", (2, 3), [1, 2, 3, 4, 5, 6]))
        self.assertEqual((y.shape, y.tolist()), ((3, 2), [1, 4, 2, 5, 3, 6]))

    def test_a_thread_that_has_no_context_yet(self):
        kernel = tunerd.Kernel(self.client, "softmax")
        x, results = Tensor("float32", (4, 8), [0.0] * 32), []
        thread = threading.Thread(target=lambda: results.append(kernel(x)))
        thread.start()
        thread.join()
        self.assertEqual(results[0].tolist(), [0.125] * 32)

    def test_cupy_arrays(self):
        values = [random.uniform(-1, 1) for _ in range(4 * 10)]
        y = tunerd.Kernel(self.client, "softmax")(ndarray("float32", (4, 10), values))
        self.assertIsInstance(y, ndarray)
        self.check_rows("float32", y.tolist(), values, 10, "cupy")

    def test_an_answer_becomes_a_cupy_module_and_no_file_stays(self):
        from tunerd import cupy
        answer = self.client.get("softmax", {"M": 4, "N": 10}, cubin=True)
        module = cupy.raw_module(answer)
        self.assertEqual(module.code, base64.b64decode(answer["cubin"]))
        self.assertEqual(sorted(module.functions), sorted(answer["names"].values()))
        self.assertFalse(os.path.exists(module.path))

    def test_what_does_not_fit_is_refused_with_a_reason(self):
        kernel = tunerd.Kernel(self.client, "softmax")
        gemm = tunerd.Kernel(self.client, "gemm")
        x = Tensor("float32", (4, 8), [0.0] * 32)
        strided = Tensor("float32", (4, 8))
        strided.strided = True
        cases = [
            (lambda: kernel(), "arrays as arguments: x"),
            (lambda: kernel([1.0]), "list is neither"),
            (lambda: kernel(x, x), "takes 1 arrays (x), not 2"),
            (lambda: kernel(Tensor("float32", (8,))), "[M][N]"),
            (lambda: kernel(Tensor("int64", (4, 8))), "x is i64; softmax is made for f32, f16, bf16"),
            (lambda: kernel(Tensor("float32", (4, 8), on="cpu")), "move it to the GPU"),
            (lambda: kernel(strided), "not contiguous"),
            (lambda: kernel(Tensor("float32", (4, 8), offset=4)), "begins in the midst of 16 bytes"),
            (lambda: kernel(x, out=x), "one of the inputs"),
            (lambda: kernel(x, out=Tensor("float16", (4, 8))), "must be f32 with 32 elements"),
            (lambda: kernel(x, out=Tensor("float32", (4, 9))), "must be f32 with 32 elements"),
            (lambda: kernel(x, dims={"M": 3}), "x has M = 4, but dims says 3"),
            (lambda: gemm(x, Tensor("float32", (7, 2))), "B has K = 7, but A says 8"),
        ]
        for call, words in cases:
            with self.assertRaises(tunerd.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_code_for_another_gpu_or_a_newer_driver_is_not_loaded(self):
        answer = self.client.get("softmax", {"M": 4, "N": 11}, cubin=True)
        for change, words in (({"sm": 90}, "made for sm_90"),
                              ({"min_driver": "99.1"}, "compiled by CUDA 99.1")):
            with self.assertRaises(tunerd.Error) as caught:
                driver.driver()._load(dict(answer, **change))
            self.assertIn(words, str(caught.exception))

    def test_with_policy_tune_the_end_of_a_sweep_is_taken_up(self):
        manifest = self.client.describe("softmax")
        connections = []

        def get(connection, params):
            connections.append(connection)
            params = {k: v for k, v in params.items() if k not in ("kernel", "shape", "policy")}
            return self.client.get("softmax", {"M": 4, "N": 8}, **params)
        with FakeDaemon({"describe": lambda _c, _p: manifest, "get": get}) as daemon:
            with tunerd.Client(daemon.path) as client:
                kernel = tunerd.Kernel(client, "softmax", policy="tune")
                x = Tensor("float32", (4, 8), [0.0] * 32)
                kernel(x)
                kernel(x)
                self.assertEqual(len(daemon.asked("get")), 1)
                connections[0].notify("done", {"job": "j-1", "state": "done", "results": []})
                limit = time.monotonic() + 30
                while len(daemon.asked("get")) == 1 and time.monotonic() < limit:
                    self.assertEqual(kernel(x).tolist(), [0.125] * 32)
                self.assertEqual(len(daemon.asked("get")), 2)
                kernel.refresh()
                kernel(x)
                self.assertEqual(len(daemon.asked("get")), 3)


if __name__ == "__main__":
    unittest.main()
