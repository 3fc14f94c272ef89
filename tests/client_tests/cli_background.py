"""tunerd without --foreground: it answers when the command returns, or the command says why not."""
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
import unittest

TUNERD = os.path.join(os.path.dirname(os.environ["TUNECTL"]), "tunerd")
LIMIT_S = 60


class Background(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name
        self.socket = os.path.join(self.folder, "s")

    def start(self, descriptors=None):
        def limit():
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        return subprocess.run(
            [TUNERD, "--emulate", "--socket", self.socket, "--db", os.path.join(self.folder, "db"),
             "--log", os.path.join(self.folder, "log")], stdin=subprocess.DEVNULL, preexec_fn=limit,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S).returncode

    def ping(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT_S)
            connection.connect(self.socket)
            connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            return json.loads(connection.makefile().readline())["result"]

    def log(self):
        with open(os.path.join(self.folder, "log")) as file:
            return file.read()

    @staticmethod
    def is_alive(pid):
        """A zombie that nobody collects has ended all the same."""
        try:
            with open("/proc/%d/stat" % pid) as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def stop(self, pid):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + LIMIT_S
        while self.is_alive(pid):
            self.assertLess(time.monotonic(), deadline, "it does not end")
            time.sleep(0.02)

    def test_it_answers_when_the_command_has_returned_with_few_descriptors_too(self):
        for descriptors in (None, 150):
            self.assertEqual(self.start(descriptors), 0, self.log())
            pid = self.ping()["pid"]
            try:
                self.assertEqual(os.getsid(pid), pid)
                for number in (0, 1):
                    self.assertEqual(os.readlink("/proc/%d/fd/%d" % (pid, number)), "/dev/null")
            finally:
                self.stop(pid)

    def test_a_start_that_fails_is_the_commands_failure(self):
        self.assertEqual(self.start(), 0, self.log())
        pid = self.ping()["pid"]
        try:
            self.assertEqual(self.start(), 1)
            self.assertIn("another tunerd", self.log())
        finally:
            self.stop(pid)


if __name__ == "__main__":
    unittest.main()
