"""`tunectl report` as a person uses it: records of files or of a daemon in, one page out."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from fake_daemon import FakeDaemon, Refusal

TUNECTL = os.environ["TUNECTL"]
SOURCE = os.environ["TUNE_SOURCE_DIR"]
SHIPPED = os.path.join(SOURCE, "tuning_db", "records", "sm_90-nvidia-h200.jsonl")
EMULATED = os.path.join(SOURCE, "tests", "data", "records", "emulated.jsonl")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def model_of(page):
    """The numbers in a page, as a browser reads them."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(data.group(1))


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_tunectl(self, *args, status=0, program=TUNECTL, socket=None, **environment):
        environment = dict(os.environ, TUNE_AUTOSTART="0", HOME=self.folder,
                           TUNE_SOCKET=socket or self.path("no-socket"), **environment)
        environment.pop("XDG_DATA_HOME", None)
        result = subprocess.run([program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=environment, universal_newlines=True, timeout=60)
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def own_program(self):
        """A tunectl that is installed in the test's folder, with the parts of the page alone."""
        os.makedirs(self.path("bin"))
        shutil.copytree(os.path.join(SOURCE, "client", "tunectl", "report"),
                        self.path("share/tunerd/report"))
        return shutil.copy(TUNECTL, self.path("bin/tunectl"))

    def own_kernel(self):
        shutil.copytree(os.path.join(SOURCE, "plugins", "gemm"), self.path("plugins/gemm"))
        shutil.copytree(os.path.join(SOURCE, "kernels_src"), self.path("kernels_src"))

    def report(self, *args, **options):
        self.run_tunectl("report", *args, "-o", self.path("page.html"), **options)
        return model_of(read(self.path("page.html")))


class OfFiles(Report):
    def test_the_shipped_records_make_a_page_without_daemon(self):
        result = self.run_tunectl("report", "--records", SHIPPED, "-o", self.path("page.html"))
        self.assertIn("201 measurements in 6 groups", result.stdout)
        page = read(self.path("page.html"))
        self.assertNotIn("/*TUNERD:", page)
        model = model_of(page)
        self.assertEqual(model["from"], "sm_90-nvidia-h200.jsonl")
        gemm = model["groups"][0]
        self.assertEqual((gemm["kernel"], gemm["device"]), ("gemm", "NVIDIA H200"))
        self.assertEqual({len(column) for column in gemm["rows"].values()}, {105})
        self.assertEqual([len(row) for row in gemm["loss"]["matrix"]],
                         [len(gemm["shapes"])] * len(gemm["loss"]["configs"]))
        self.assertTrue(all(shape["best"] is not None for shape in gemm["shapes"]))

    def test_the_installed_kernel_in_the_records_own_text_tells_its_work(self):
        gemm = self.report("gemm", "--records", SHIPPED)["groups"][0]
        shape = gemm["shapes"][0]
        m, n, k = (shape["shape"][dim] for dim in "MNK")
        self.assertAlmostEqual(shape["flops"] / (2 * m * n * k), 1, 5)
        self.assertTrue(all(bytes > 0 for bytes in gemm["rows"]["requested_bytes"]))
        self.assertIsNotNone(gemm["params"][0]["meaning"])

    def test_a_kernel_in_another_text_tells_nothing(self):
        self.own_kernel()
        search = {"program": self.own_program(), "TUNE_PLUGIN_PATH": self.path("plugins")}
        gemm = self.report("gemm", "--records", SHIPPED, **search)["groups"][0]
        self.assertGreater(gemm["shapes"][0]["flops"], 0)
        with open(self.path("kernels_src/gemm.cu"), "a", encoding="utf-8") as source:
            source.write("\nint another_text;\n")
        gemm = self.report("gemm", "--records", SHIPPED, **search)["groups"][0]
        self.assertEqual(gemm["shapes"][0]["flops"], 0)
        self.assertIsNone(gemm["params"][0]["meaning"])

    def test_limits_that_came_with_the_program_are_the_ceilings(self):
        program = self.own_program()
        os.makedirs(self.path("share/tunerd/records"))
        with open(self.path("share/tunerd/records/h200.limits.json"), "w") as file:
            json.dump([{"device": "NVIDIA H200", "dram_bytes_per_s": 4.1e12, "flops_f32": 5.5e13,
                        "driver": 13000, "time_unix_ms": 1}], file)
        softmax = self.report("softmax", "--records", SHIPPED, program=program)
        limits = {group["dtype"]: group["limits"] for group in softmax["groups"]}
        self.assertEqual(limits["f32"],
                         {"dram_bytes_per_s": 4.1e12, "flops": 5.5e13, "from": "shipped"})
        self.assertEqual(limits["f16"]["flops"], 16 * 5.5e13)

    def test_kernels_and_architectures_are_chosen(self):
        model = self.report("reduce", "transpose", "--records", SHIPPED)
        self.assertEqual([group["kernel"] for group in model["groups"]], ["reduce", "transpose"])
        self.assertEqual(len(self.report("--arch", "sm_90", "--records", SHIPPED)["groups"]), 6)

    def test_several_files_are_one_report_and_the_same_row_counts_once(self):
        packed = self.path("packed.zst")
        self.run_tunectl("merge", SHIPPED, "-o", packed)
        model = self.report("--records", SHIPPED, "--records", packed)
        self.assertEqual(model["from"], "sm_90-nvidia-h200.jsonl, packed.zst")
        self.assertEqual(sum(group["provenance"]["rows"] for group in model["groups"]), 201)

    def test_lines_that_cannot_be_read_are_left_out_and_counted(self):
        header, first, *rest = read(SHIPPED).splitlines(keepends=True)
        with open(self.path("bad.jsonl"), "w", encoding="utf-8") as file:
            file.writelines([header, first.replace("gemm", "gemn"), *rest])
        result = self.run_tunectl("report", "--records", self.path("bad.jsonl"),
                                  "-o", self.path("page.html"))
        self.assertIn("left out because they cannot be read: 1", result.stderr)
        self.assertIn("200 measurements", result.stdout)

    def test_json_tells_what_was_written(self):
        result = self.run_tunectl("--json", "report", "--records", SHIPPED,
                                  "-o", self.path("page.html"))
        self.assertEqual(json.loads(result.stdout),
                         {"file": self.path("page.html"), "groups": 6, "rows": 201})

    def test_the_page_goes_to_standard_output(self):
        result = self.run_tunectl("report", "--records", SHIPPED, "-o", "-")
        self.assertEqual(len(model_of(result.stdout)["groups"]), 6)
        self.assertEqual(result.stderr, "")
        self.run_tunectl("--json", "report", "--records", SHIPPED, "-o", "-", status=2)


class Failures(Report):
    def refuse(self, *args, says, **options):
        """No page is written, and an older one stays."""
        with open(self.path("page.html"), "w", encoding="utf-8") as file:
            file.write("old")
        result = self.run_tunectl("report", *args, "-o", self.path("page.html"), **options)
        self.assertIn(says, result.stderr)
        self.assertEqual(read(self.path("page.html")), "old")

    def test_nothing_found_is_a_failure(self):
        self.refuse("no_such", "--records", SHIPPED, status=1,
                    says="no record of kernel no_such in the files")
        self.refuse("--records", SHIPPED, "--arch", "sm_80", status=1,
                    says="no record on sm_80 in the files")

    def test_records_that_cannot_be_used_are_no_report(self):
        """One that was not final, of a crash that was to be tried once more."""
        header = read(SHIPPED).splitlines(keepends=True)[0]
        corpus = os.path.join(SOURCE, "tests", "fuzz", "corpus", "record_line")
        with open(self.path("crash.jsonl"), "w", encoding="utf-8") as file:
            file.write(header + read(os.path.join(corpus, "failed_unknown_fields")) + "\n")
        self.refuse("--records", self.path("crash.jsonl"), status=1,
                    says="none of 1 records can be used")

    def test_a_file_that_is_no_file_of_records_is_a_failure(self):
        self.refuse("--records", self.path("none"), status=1, says="none")
        self.refuse("--records", os.path.join(SOURCE, "README.md"), status=1,
                    says="no header line")

    def test_a_program_without_its_parts_names_what_is_missing(self):
        os.mkdir(self.path("bin"))
        shutil.copy(TUNECTL, self.path("bin/tunectl"))
        self.refuse("--records", SHIPPED, status=1, program=self.path("bin/tunectl"),
                    says="page.html")

    def test_o_must_be_given(self):
        self.run_tunectl("report", "--records", SHIPPED, status=2)

    def test_without_daemon_and_without_files_there_is_no_report(self):
        self.refuse(status=3, says="no daemon")


class OfADaemon(Report):
    """What a daemon has comes in pages, those of the emulated device by name only."""

    def serve(self, records, **handlers):
        pages = [records[i:i + 80] for i in range(0, len(records), 80)] or [[]]

        def export(_connection, params):
            number = int(params.get("cursor", 0))
            lines = [line for line in pages[number]
                     if params.get("kernel") in (None, json.loads(line)["kernel"])
                     and (json.loads(line)["arch"] == "cpu") == (params.get("arch") == "cpu")]
            page = {"lines": "".join(lines), "measured": len(lines)}
            if number + 1 < len(pages):
                page["cursor"] = str(number + 1)
            return page
        return FakeDaemon(dict({"export": export}, **handlers))

    def lines_of(self, path):
        return read(path).splitlines(keepends=True)[1:]

    def test_all_its_records_are_shown(self):
        with self.serve(self.lines_of(SHIPPED)) as daemon:
            model = self.report(socket=daemon.path)
        self.assertEqual(model["from"], "daemon")
        self.assertEqual(sum(group["provenance"]["rows"] for group in model["groups"]), 201)

    def test_kernels_are_asked_for_one_by_one(self):
        with self.serve(self.lines_of(SHIPPED)) as daemon:
            model = self.report("reduce", "transpose", socket=daemon.path)
            asked = {params["kernel"] for params in daemon.asked("export")}
        self.assertEqual(asked, {"reduce", "transpose"})
        self.assertEqual([group["kernel"] for group in model["groups"]], ["reduce", "transpose"])

    def test_its_limits_go_before_those_that_were_shipped(self):
        devices = [{"name": "NVIDIA H200", "limits": {
            "dram_bytes_per_s": 4.4e12, "flops_f32": 5.6e13, "from": "measured"}}]
        with self.serve(self.lines_of(SHIPPED), devices=lambda _c, _p: devices) as daemon:
            group = self.report("gemm", socket=daemon.path)["groups"][0]
        self.assertEqual(group["limits"],
                         {"dram_bytes_per_s": 4.4e12, "flops": 5.6e13, "from": "measured"})

    def test_a_kernel_that_only_the_daemon_was_told_of_tells_its_work(self):
        self.own_kernel()
        fingerprint = json.loads(self.lines_of(SHIPPED)[0])["fingerprint"]
        answer = {"fingerprint": fingerprint, "folder": self.path("plugins/gemm")}
        with self.serve(self.lines_of(SHIPPED), describe=lambda _c, _p: answer) as daemon:
            group = self.report("gemm", socket=daemon.path,
                                program=self.own_program())["groups"][0]
        self.assertGreater(group["shapes"][0]["flops"], 0)

    def test_the_emulated_device_is_shown_when_there_are_no_others(self):
        emulated = self.lines_of(EMULATED)
        with self.serve(emulated) as daemon:
            model = self.report(socket=daemon.path)
        self.assertEqual([group["arch"] for group in model["groups"]], ["cpu"])
        with self.serve(emulated + self.lines_of(SHIPPED)) as daemon:
            model = self.report(socket=daemon.path)
            self.assertEqual({group["arch"] for group in model["groups"]}, {"sm_90"})
            model = self.report("--arch", "cpu", socket=daemon.path)
        self.assertEqual({group["arch"] for group in model["groups"]}, {"cpu"})

    def test_an_empty_database_is_a_failure_that_says_how_to_fill_it(self):
        with self.serve([]) as daemon:
            result = self.run_tunectl("report", "-o", self.path("page.html"), status=1,
                                      socket=daemon.path)
        self.assertIn('"tunectl sweep KERNEL" makes some', result.stderr)
        self.assertFalse(os.path.exists(self.path("page.html")))

    def test_a_daemon_that_refuses_is_a_failure(self):
        def export(_connection, _params):
            raise Refusal("busy", "not now")
        with FakeDaemon({"export": export}) as daemon:
            result = self.run_tunectl("report", "-o", self.path("page.html"), status=1,
                                      socket=daemon.path)
        self.assertIn("not now", result.stderr)


if __name__ == "__main__":
    unittest.main()
