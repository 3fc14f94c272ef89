"""`tunectl merge` as a person uses it: files in, one file out, no daemon. The kept file of version
1.0 must be read, and written again to the byte, by every later version."""
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import unittest

TUNECTL = os.environ["TUNECTL"]
DATA = os.path.join(os.environ["TUNE_SOURCE_DIR"], "tests", "data", "records")
KEPT = os.path.join(DATA, "version-1.0.jsonl")
SUPERSEDED = os.path.join(DATA, "superseded.jsonl")


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Merge(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.header, *self.lines = read(KEPT).splitlines(keepends=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, *parts):
        with open(self.path(name), "wb") as file:
            file.write(b"".join(parts))
        return self.path(name)

    def merge(self, *args, status=0, stdin=None):
        environment = dict(os.environ, TUNE_AUTOSTART="0", TUNE_SOCKET=self.path("no-socket"))
        result = subprocess.run([TUNECTL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=environment, input=stdin, timeout=60)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout, result.stderr.decode()

    def refuse(self, *inputs, says):
        """Nothing may be written, and an older file must stay."""
        out = self.write("kept", b"old")
        _, error = self.merge("merge", *inputs, "-o", out, status=1)
        self.assertIn(says, error)
        self.assertEqual(read(out), b"old")
        return error

    def test_the_kept_file_of_version_1_0_is_written_again_to_the_byte(self):
        _, error = self.merge("merge", KEPT, "-o", self.path("out"))
        self.assertEqual(read(self.path("out")), read(KEPT))
        self.assertIn("12 records read, 0 equal, 0 superseded, 12 written", error)

    def test_the_order_of_files_does_not_matter(self):
        parts = [self.write("a", self.header, *self.lines[:7]),
                 self.write("b", *reversed(self.lines[5:]), self.header), SUPERSEDED]
        for order in itertools.permutations(parts):
            _, error = self.merge("merge", *order, "-o", self.path("out"))
            self.assertEqual(read(self.path("out")), read(KEPT))
            self.assertIn("17 records read, 2 equal, 3 superseded, 12 written", error)

    def test_an_input_may_be_the_output(self):
        own = self.write("own", self.header, *self.lines[:3])
        self.merge("merge", own, KEPT, "-o", own)
        self.assertEqual(read(own), read(KEPT))
        self.assertEqual(os.listdir(self.folder), ["own"])

    def test_compressed_files_and_standard_streams(self):
        packed = self.path("packed.jsonl.zst")
        self.merge("merge", KEPT, "-o", packed)
        self.assertEqual(read(packed)[:4], b"\x28\xb5\x2f\xfd")
        output, _ = self.merge("merge", packed, "-o", "-")
        self.assertEqual(output, read(KEPT))
        output, _ = self.merge("merge", "-", SUPERSEDED, "-o", "-", stdin=read(packed))
        self.assertEqual(output, read(KEPT))

    def test_json_has_the_numbers(self):
        output, error = self.merge("--json", "merge", KEPT, SUPERSEDED, "-o", self.path("out"))
        self.assertEqual(json.loads(output), {
            "file": self.path("out"), "read": 15, "equal": 0, "superseded": 3, "written": 12})
        self.assertEqual(error, "")
        self.merge("--json", "merge", KEPT, "-o", "-", status=2)

    def test_lines_that_are_refused_stop_the_merge(self):
        damaged = self.lines[2].replace(b'"attempts":2', b'"attempts":3')
        bad = self.write("bad", self.header, self.lines[0], damaged, b"nonsense\n", self.lines[1])
        error = self.refuse(KEPT, bad, says="lines refused: 2")
        self.assertIn("bad:3: the line says \"sum\"", error)
        self.assertIn("bad:4: not valid JSON", error)
        conflict = self.write("conflict", self.header, b"<<<<<<< HEAD\n", self.lines[0],
                              b"=======\n", self.lines[1], b">>>>>>> other\n")
        error = self.refuse(conflict, says="lines refused: 3")
        self.assertIn("conflict:2: a mark of a merge conflict of git", error)
        cut = self.write("cut", self.header, self.lines[0], self.lines[1][:-9])
        self.refuse(cut, says="cut:3: ")

    @unittest.skipIf(shutil.which("git") is None, "no git here")
    def test_it_is_a_merge_driver_for_git(self):
        def git(*args):
            subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], check=True,
                           cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env=dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null"), timeout=60)
        git("init")
        git("config", "merge.tunerd.driver", TUNECTL + " merge %A %B -o %A")
        self.write(".gitattributes", b"*.jsonl merge=tunerd\n")
        sides = (self.lines[:1], self.lines[:6] + read(SUPERSEDED).splitlines(True)[1:],
                 self.lines[:1] + self.lines[6:] + self.lines[1:4])
        for branch, lines in zip(("base", "left", "right"), sides):
            git("checkout", "-b", branch, *(["base"] if branch != "base" else []))
            self.write("r.jsonl", self.header, *lines)
            git("add", ".gitattributes", "r.jsonl")
            git("commit", "-m", branch)
        git("merge", "left", "-m", "both")
        self.assertEqual(read(self.path("r.jsonl")), read(KEPT))

    def test_a_merge_of_git_that_went_well_is_a_sound_file(self):
        text = self.write("union", self.header, *self.lines[:4], self.header, *self.lines[2:])
        self.merge("merge", text, "-o", self.path("out"))
        self.assertEqual(read(self.path("out")), read(KEPT))

    def test_other_versions_are_refused_whole_and_minor_ones_are_taken(self):
        newer = self.write("newer", b'{"format":"tunerd-records","version":[2,0]}\n', *self.lines)
        self.refuse(KEPT, newer, says='"version" is [2,0]; this program reads [1,x]')
        self.refuse(self.write("none", *self.lines), says="no header line")
        self.refuse(self.write("bare", b'{"format":"tunerd-records"}\n'), says='"version"')
        self.refuse(self.write("empty"), says="no header line")
        self.refuse(self.path("absent"), says="cannot open")
        minor = self.write("minor", b'{"format":"tunerd-records","version":[1,9],"made":1,"by":2}\n',
                           *self.lines)
        _, error = self.merge("merge", minor, minor, "-o", self.path("out"))
        self.assertEqual(error.count("made, by"), 1)
        self.assertEqual(read(self.path("out")), read(KEPT))

    def test_only_a_header_is_a_file_too(self):
        empty = self.write("a", self.header)
        self.merge("merge", empty, "-o", self.path("out"))
        self.assertEqual(read(self.path("out")), self.header)
        self.merge("merge", "-o", self.path("out"), status=2)
        self.merge("merge", KEPT, status=2)


if __name__ == "__main__":
    unittest.main()
