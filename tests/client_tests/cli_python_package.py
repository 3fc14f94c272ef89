"""The Python package: its wheel, built without a network, works; versions agree; it starts a daemon."""
import base64
import csv
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ["TUNE_SOURCE_DIR"]
PACKAGE = os.path.join(SOURCE, "client", "python")
FAKE = os.path.join(HERE, "fake_daemon.py")
sys.path.insert(0, PACKAGE)
import build_backend
import tunerd


class Wheel(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def wheel(self):
        return os.path.join(self.folder, build_backend.build_wheel(self.folder))

    def test_it_holds_the_whole_package_and_its_record_is_right(self):
        with zipfile.ZipFile(self.wheel()) as archive:
            names = set(archive.namelist())
            record = next(name for name in names if name.endswith("/RECORD"))
            rows = list(csv.reader(archive.read(record).decode().splitlines()))
            for name, digest, size in rows:
                if name == record:
                    continue
                data = archive.read(name)
                wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), ("sha256=" + wanted, str(len(data))))
        self.assertEqual({row[0] for row in rows}, names)
        package = {"tunerd/" + name for name in os.listdir(os.path.join(PACKAGE, "tunerd"))
                   if name != "__pycache__"}
        self.assertEqual({name for name in names if name.startswith("tunerd/")}, package)
        self.assertIn("tunerd/py.typed", package)

    def test_it_is_imported_without_anything_else(self):
        code = "import tunerd, sys; print(tunerd.__file__, sorted({'torch', 'cupy', 'pandas'} & set(sys.modules)))"
        run = subprocess.run([sys.executable, "-I", "-c", "import sys; sys.path.insert(0, %r); %s"
                              % (self.wheel(), code)], stdout=subprocess.PIPE, check=True)
        self.assertRegex(run.stdout.decode(), r"\.whl/tunerd/__init__\.py \[\]\n")

    def test_the_same_files_give_the_same_bytes(self):
        with open(self.wheel(), "rb") as first:
            bytes_of_first = first.read()
        with open(self.wheel(), "rb") as second:
            self.assertEqual(second.read(), bytes_of_first)

    def test_an_editable_one_points_to_the_tree(self):
        name = build_backend.build_editable(self.folder)
        with zipfile.ZipFile(os.path.join(self.folder, name)) as archive:
            self.assertEqual(archive.read("tunerd.pth").decode().strip(), PACKAGE)

    def test_versions_agree_with_the_daemons(self):
        with open(os.path.join(SOURCE, "CMakeLists.txt")) as file:
            version = re.search(r"project\(tunerd VERSION ([\d.]+)", file.read()).group(1)
        self.assertEqual({tunerd.__version__, build_backend.project()["version"]}, {version})


class Autostart(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.starts = os.path.join(temporary.name, "starts")
        wanted = {"XDG_RUNTIME_DIR": temporary.name, "XDG_STATE_HOME": temporary.name,
                  "TUNE_TUNERD": FAKE, "TUNE_TUNECTL": os.environ["TUNECTL"],
                  "FAKE_STARTS": self.starts, "PYTHONDONTWRITEBYTECODE": "1"}
        unwanted = ("TUNE_SOCKET", "TUNE_AUTOSTART", "FAKE_DIE")
        before = {name: os.environ.pop(name, None) for name in (*wanted, *unwanted)}
        os.environ.update(wanted)

        def restore():
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        self.addCleanup(restore)
        self.addCleanup(self.end_daemons)

    def started(self):
        try:
            with open(self.starts) as file:
                return [int(line.split()[0]) for line in file]
        except FileNotFoundError:
            return []

    def end_daemons(self):
        for pid in self.started():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def test_a_daemon_is_started_when_asked_for_and_only_one(self):
        for _ in range(2):
            with tunerd.Client(autostart=True) as client:
                self.assertEqual(client.kernels(), [])
        self.assertEqual(len(self.started()), 1)

    def test_none_is_started_unasked_or_for_a_named_socket(self):
        for options in ({}, {"path": "/nonexistent/s", "autostart": True}):
            with self.assertRaises(tunerd.Error) as caught:
                tunerd.Client(**options)
            self.assertEqual(caught.exception.code, "no_daemon")
        self.assertEqual(self.started(), [])

    def test_a_start_that_fails_says_why(self):
        os.environ["FAKE_DIE"] = "database /d is locked by pid 7"
        self.addCleanup(os.environ.pop, "FAKE_DIE", None)
        with self.assertRaises(tunerd.Error) as caught:
            tunerd.Client(autostart=True)
        self.assertEqual(caught.exception.code, "no_daemon")
        self.assertIn("database /d is locked by pid 7", str(caught.exception))

    def test_a_missing_tunectl_is_named(self):
        os.environ["TUNE_TUNECTL"] = "/nonexistent/tunectl"
        with self.assertRaises(tunerd.Error) as caught:
            tunerd.Client(autostart=True)
        self.assertIn("/nonexistent/tunectl", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
