"""tunectl watch on a terminal: a real daemon on the emulator, a pty, the screen that a person sees."""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from fake_daemon import FakeDaemon
from terminal import LIMIT_S, Terminal

BUILD = os.environ["TUNE_BUILD_DIR"]
TUNECTL = os.path.join(BUILD, "bin", "tunectl")


class Watch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tunectl_watch_")
        self.path = os.path.join(self.folder, "s")
        self.env = dict(os.environ, TUNE_SOCKET=self.path, TUNE_AUTOSTART="0", TERM="xterm",
                        LC_ALL="C.UTF-8")
        for name in ("LINES", "COLUMNS", "NO_COLOR"):
            self.env.pop(name, None)
        self.log = os.path.join(self.folder, "log")
        self.daemon = subprocess.Popen(
            [os.path.join(BUILD, "bin", "tunerd"), "--foreground", "--emulate", "--socket", self.path,
             "--db", os.path.join(self.folder, "db"), "--log", self.log])
        self.addCleanup(self.stop)
        self.until(self.answers, "the daemon answers")

    def stop(self):
        self.daemon.terminate()
        self.daemon.wait(LIMIT_S)
        shutil.rmtree(self.folder)

    def answers(self):
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self.path) == 0

    @staticmethod
    def until(condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.01)

    def ctl(self, *words):
        run = subprocess.run([TUNECTL, "--json", *words], env=self.env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=LIMIT_S)
        return json.loads(run.stdout)

    def sweep(self, evals=100000):
        """One that runs until it is canceled, unless it is given an end."""
        return self.ctl("sweep", "gemm", "--shape", "M=64,N=64,K=64", "--budget", "evals=%d" % evals,
                        "--detach")["job"]

    def terminal(self, *words, rows=24, columns=80, command=None, **env):
        terminal = Terminal(command or [TUNECTL, "watch", *words], rows, columns,
                            dict(self.env, **env))
        self.addCleanup(terminal.close)
        return terminal

    def check_left(self, terminal, status):
        self.assertEqual(terminal.wait_for_end(), status, str(terminal))
        self.assertTrue(terminal.is_as_found())

    def test_a_sweep_is_shown_and_q_leaves_the_terminal_as_it_was(self):
        terminal = self.terminal()
        terminal.wait_for_text("nothing runs: waiting for the next sweep")
        job = self.sweep()
        for text in ("> gemm M=64,N=64,K=64, searching  " + job, "best ", "GPU 0    [", "compile  [",
                     "jobs     1 running, 0 queued", "recent, newest first", " ok    ", "\u2581"):
            terminal.wait_for_text(text)
        self.assertNotEqual(terminal.is_as_found(), True)
        terminal.type("q")
        self.check_left(terminal, 0)
        self.assertEqual(self.ctl("jobs")[0]["state"], "running")

    def test_a_window_made_small_and_large_again_is_laid_out_anew(self):
        job = self.sweep()
        terminal = self.terminal()
        terminal.wait_for_text(job)
        terminal.resize(10, 40)
        terminal.wait_for(lambda: terminal.screen.lines()[9].startswith("q leave")
                          and terminal.screen.lines()[2].startswith("> gemm"), "ten lines")
        self.assertTrue(terminal.screen.lines()[0].startswith("tunerd"), str(terminal))
        self.assertTrue(terminal.screen.lines()[0].endswith("\u2026"), str(terminal))
        terminal.resize(30, 120)
        terminal.wait_for(lambda: terminal.screen.lines()[29].startswith("q leave"), "thirty lines")
        terminal.wait_for_text(job)
        terminal.type("\x1b")
        self.check_left(terminal, 0)

    def test_ctrl_c_and_sigterm_give_the_terminal_back(self):
        for act, status in ((lambda terminal: terminal.type("\x03"), 0),
                            (lambda terminal: terminal.child.terminate(), -signal.SIGTERM)):
            terminal = self.terminal()
            terminal.wait_for_text("nothing runs")
            act(terminal)
            self.check_left(terminal, status)

    def test_a_second_ctrl_c_ends_it_while_the_daemon_is_stuck(self):
        asked, released = threading.Event(), threading.Event()

        def stats(_connection, _params):
            if len(daemon.asked("stats")) > 1:  # the first one was answered: the screen is drawn
                asked.set()
                released.wait(LIMIT_S)
            return {}
        handlers = {"watch": lambda _c, _p: {}, "jobs": lambda _c, _p: [], "stats": stats,
                    "devices": lambda _c, _p: []}
        with FakeDaemon(handlers) as daemon:
            terminal = self.terminal(TUNE_SOCKET=daemon.path)
            self.assertTrue(asked.wait(LIMIT_S))
            terminal.wait_for_text("nothing runs")
            while terminal.child.poll() is None:
                terminal.type("\x03")
                terminal.read(0.05)
            released.set()
            self.check_left(terminal, -signal.SIGINT)

    def test_it_can_be_suspended_and_comes_back(self):
        terminal = self.terminal(command=["sh", "-i"], PS1="% ", ENV="")
        terminal.wait_for_text("%")
        terminal.type("%s watch; echo left $?\n" % TUNECTL)
        terminal.wait_for_text("nothing runs")
        terminal.type("\x1a")
        terminal.wait_for_text("Stopped")
        self.assertFalse(terminal.screen.is_alternate)
        terminal.resize(12, 50)  # of which the shell is told, and not the program
        terminal.type("fg\n")
        terminal.wait_for(lambda: terminal.screen.is_alternate
                          and terminal.screen.lines()[11].startswith("q leave"), "it is back")
        terminal.type("q")
        terminal.wait_for(lambda: not terminal.screen.is_alternate, "the normal screen")
        terminal.type("exit\n")
        terminal.wait_for_end()

    def test_a_daemon_that_is_lost_is_told_on_the_normal_screen(self):
        terminal = self.terminal()
        terminal.wait_for_text("nothing runs")
        self.daemon.kill()
        self.check_left(terminal, 1)
        self.assertIn("closed the connection", str(terminal))

    def test_one_job_is_watched_to_its_end_and_its_result_shown(self):
        terminal = self.terminal(self.sweep(evals=8))
        self.assertEqual(terminal.wait_for_end(), 0, str(terminal))
        self.assertTrue(terminal.is_as_found())
        self.assertIn("8 evaluations in", str(terminal))

    def test_c_cancels_after_y(self):
        job = self.sweep()
        terminal = self.terminal()
        terminal.wait_for_text(job)
        terminal.type("c")
        terminal.wait_for_text("cancel %s? y/n" % job)
        terminal.type("n")
        terminal.wait_for_text("q leave")
        terminal.type("cy")
        terminal.wait_for_text("gemm %s is canceled" % job)
        terminal.wait_for_text("nothing runs")
        terminal.type("q")
        self.check_left(terminal, 0)

    def test_help_is_shown_until_the_next_key(self):
        terminal = self.terminal()
        terminal.type("?")
        terminal.wait_for_text("suspend; fg comes back")
        terminal.type("q")
        terminal.wait_for_text("nothing runs")
        terminal.type("q")
        self.check_left(terminal, 0)

    def test_without_utf8_all_is_ascii(self):
        self.sweep()
        terminal = self.terminal(LC_ALL="C")
        terminal.wait_for_text("times    ")
        terminal.wait_for_text("best ")
        self.assertTrue(str(terminal).isascii(), str(terminal))
        self.assertTrue(any(line.endswith("~") for line in terminal.screen.lines()), str(terminal))

    def test_where_no_screen_can_be_drawn_it_prints_lines(self):
        job = self.sweep()
        for words, env in ((["--plain"], {}), ([], {"TERM": "dumb"}), ([], {"TERM": ""}),
                           ([], {"TERM": "no-such-terminal"})):
            terminal = self.terminal(*words, **env)
            terminal.wait_for_text(job + " gemm M=64")
            self.assertFalse(terminal.screen.was_alternate)
            terminal.type("\x03")
            self.assertEqual(terminal.wait_for_end(), 0, str(terminal))

    def test_in_a_pipe_it_prints_lines(self):
        job = self.sweep()
        with subprocess.Popen([TUNECTL, "watch"], env=self.env, stdout=subprocess.PIPE,
                              universal_newlines=True) as child:
            line = child.stdout.readline()
            child.send_signal(signal.SIGINT)
            rest = child.communicate(timeout=LIMIT_S)[0]
        self.assertEqual(child.returncode, 0)
        self.assertTrue(line.startswith(job + " gemm M=64,N=64,K=64: "), line)
        self.assertNotIn("\x1b", line + rest)


if __name__ == "__main__":
    unittest.main()
