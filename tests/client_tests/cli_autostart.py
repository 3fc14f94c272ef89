"""Starting a daemon on demand: one of them whatever happens, and a reason when it fails."""
import os
import signal
import subprocess
import tempfile
import unittest

TUNECTL = os.environ["TUNECTL"]
FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_daemon.py")


class Autostart(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.starts = os.path.join(self.folder, "starts")
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.folder, XDG_STATE_HOME=self.folder,
                        TUNE_TUNERD=FAKE, FAKE_STARTS=self.starts, HOME="/nonexistent",
                        PYTHONDONTWRITEBYTECODE="1")
        self.env.pop("TUNE_SOCKET", None)
        self.env.pop("TUNE_AUTOSTART", None)

    def tearDown(self):
        for pid, _ in self.started():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.temporary.cleanup()

    def started(self):
        """(pid, session) of every daemon that was started."""
        try:
            with open(self.starts) as file:
                return [tuple(map(int, line.split())) for line in file]
        except FileNotFoundError:
            return []

    def spawn(self, *args, **env):
        return subprocess.Popen([TUNECTL, *args], env=dict(self.env, **env), stdin=subprocess.DEVNULL,
                                close_fds=False,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                universal_newlines=True)

    def run_one(self, *args, **env):
        child = self.spawn(*args, **env)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err

    def test_a_command_starts_a_daemon_that_outlives_it(self):
        inherited = os.pipe()  # the caller's own descriptors are none of the daemon's
        for fd in inherited:
            os.set_inheritable(fd, True)
            self.addCleanup(os.close, fd)
        code, out, err = self.run_one("kernels", "--json")
        self.assertEqual((code, out), (0, "[]\n"), err)
        (pid, session), = self.started()
        self.assertNotEqual(session, os.getsid(0))
        self.assertEqual(session, pid)
        self.assertEqual(self.run_one("kernels", "--json")[0], 0)
        self.assertEqual(len(self.started()), 1)
        for fd in os.listdir("/proc/%d/fd" % pid):
            target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
            self.assertFalse("pipe:" in target or target.endswith(".start"), target)

    def test_many_at_once_start_one_daemon(self):
        children = [self.spawn("kernels", "--json") for _ in range(8)]
        for child in children:
            _, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, err)
        self.assertEqual(len(self.started()), 1)

    def test_a_daemon_that_dies_at_once_gives_its_last_line(self):
        code, _, err = self.run_one("kernels", FAKE_DIE="database /d is locked by pid 7")
        self.assertEqual(code, 3)
        self.assertIn("database /d is locked by pid 7", err)
        self.assertIn(os.path.join(self.folder, "tunerd/tunerd.log"), err)
        self.assertEqual(len(self.started()), 1)

    def test_a_program_that_is_missing_is_named(self):
        code, _, err = self.run_one("kernels", TUNE_TUNERD="/nonexistent/tunerd")
        self.assertEqual(code, 3)
        self.assertIn("/nonexistent/tunerd", err)

    def test_the_log_lies_beside_the_socket_when_there_is_no_home(self):
        del self.env["XDG_STATE_HOME"]
        code, _, err = self.run_one("kernels", FAKE_DIE="end")
        self.assertEqual(code, 3)
        self.assertIn(os.path.join(self.folder, "tunerd.sock.log"), err)

    def test_none_is_started_when_told_so_or_for_a_named_socket(self):
        self.assertEqual(self.run_one("kernels", TUNE_AUTOSTART="0")[0], 3)
        socket = os.path.join(self.folder, "other.sock")
        self.assertEqual(self.run_one("--socket", socket, "kernels")[0], 3)
        for command in (["cancel", "j-1"], ["watch"], ["doctor"]):
            self.run_one(*command)
        self.assertEqual(self.started(), [])

    def test_a_socket_from_the_environment_is_where_it_starts(self):
        socket = os.path.join(self.folder, "own.sock")
        code, _, err = self.run_one("kernels", TUNE_SOCKET=socket)
        self.assertEqual(code, 0, err)
        self.assertTrue(os.path.exists(socket))

    def test_a_stale_socket_does_not_prevent_a_start(self):
        # Left by a killed daemon: nobody listens. (The real one removes it before it binds.)
        import socket
        path = os.path.join(self.folder, "tunerd.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.close()
        code, _, err = self.run_one("kernels", FAKE_DIE="reached")
        self.assertEqual(code, 3)
        self.assertIn("reached", err)


if __name__ == "__main__":
    unittest.main()
