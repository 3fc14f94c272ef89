"""A terminal for tests: a program on a pty, and the screen that an xterm would show.

Knows what curses writes for TERM=xterm and no more; a sequence that it does not know is an error, so
that nothing is passed over. Each character takes one column.
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

LIMIT_S = 60  # of waits that end at once on an idle machine
SEQUENCE = re.compile(r"\x1b\[([?>]?)([0-9;]*)([A-Za-z@`])|\x1b[()][0AB]|\x1b[=>78M]")
BEGUN = re.compile(r"\x1b(\[[?>]?[0-9;]*|[()])?$")


class Screen:
    def __init__(self, rows, columns):
        self.row = self.column = 0
        self.is_alternate = self.was_alternate = False
        self.last = " "
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.top, self.bottom = 0, rows - 1
        self.move(self.row, self.column)

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def move(self, row, column):
        self.row = min(max(row, 0), self.rows - 1)
        self.column = min(max(column, 0), self.columns - 1)
        self.wraps = False

    def scroll(self, first, count):
        """Takes `count` lines out at `first`, or puts so many in (below 0), up to the margin."""
        for _ in range(abs(count)):
            del self.cells[first if count > 0 else self.bottom]
            self.cells.insert(self.bottom if count > 0 else first, [" "] * self.columns)

    def line_feed(self):
        if self.row == self.bottom:
            self.scroll(self.top, 1)
        else:
            self.move(self.row + 1, self.column)

    def put(self, character):
        if self.wraps:
            self.move(self.row, 0)
            self.line_feed()
        self.cells[self.row][self.column] = self.last = character
        if self.column == self.columns - 1:
            self.wraps = True
        else:
            self.column += 1

    def erase(self, how, before, after):
        """0: from the cursor on, 1: up to it, 2: all of it."""
        line = self.cells[self.row]
        if how in (0, 2):
            line[self.column:] = [" "] * (self.columns - self.column)
            for row in after:
                self.cells[row] = [" "] * self.columns
        if how in (1, 2):
            line[:self.column + 1] = [" "] * (self.column + 1)
            for row in before:
                self.cells[row] = [" "] * self.columns

    def private(self, numbers, final):
        if 1049 in numbers:
            self.is_alternate = final == "h"
            self.was_alternate = True
            self.resize(self.rows, self.columns)

    def control(self, numbers, final):
        n = max(numbers[0], 1) if numbers else 1
        line, row, column = self.cells[self.row], self.row, self.column
        if final in "Hf":
            self.move(n - 1, (numbers[1] if len(numbers) > 1 else 1) - 1)
        elif final in "ABCDGd`":
            moves = {"A": (row - n, column), "B": (row + n, column), "C": (row, column + n),
                     "D": (row, column - n), "d": (n - 1, column)}
            self.move(*moves.get(final, (row, n - 1)))
        elif final == "J":
            self.erase(numbers[0] if numbers else 0, range(row), range(row + 1, self.rows))
        elif final == "K":
            self.erase(numbers[0] if numbers else 0, (), ())
        elif final == "X":
            line[column:column + n] = [" "] * min(n, self.columns - column)
        elif final == "P":
            self.cells[row] = (line[:column] + line[column + n:] + [" "] * n)[:self.columns]
        elif final == "@":
            self.cells[row] = (line[:column] + [" "] * n + line[column:])[:self.columns]
        elif final in "LM":
            self.scroll(row, n if final == "M" else -n)
        elif final in "ST":
            self.scroll(self.top, n if final == "S" else -n)
        elif final == "b":
            for _ in range(n):
                self.put(self.last)
        elif final == "r":
            self.top, self.bottom = (numbers[0] - 1, numbers[1] - 1) if numbers else (0, self.rows - 1)
            self.move(0, 0)
        else:
            assert final in "mhlt", "CSI %s %s" % (numbers, final)

    def take(self, text):
        """What is left of it: a sequence that is not complete."""
        at = 0
        while at < len(text):
            match = SEQUENCE.match(text, at)
            if match and match.group(3):
                numbers = [int(number or 0) for number in match.group(2).split(";")] if match.group(2) else []
                (self.private if match.group(1) else self.control)(numbers, match.group(3))
            elif text[at] == "\x1b" and not match:
                assert BEGUN.match(text, at), repr(text[at:at + 20])
                return text[at:]
            elif text[at:at + 2] == "\x1bM":
                self.scroll(self.top, -1) if self.row == self.top else self.move(self.row - 1, self.column)
            elif text[at] == "\r":
                self.move(self.row, 0)
            elif text[at] == "\n":
                self.line_feed()
            elif text[at] == "\b":
                self.move(self.row, self.column - 1)
            elif text[at] not in "\x07\x0f\x1b":
                assert text[at].isprintable(), repr(text[at])
                self.put(text[at])
            at = match.end() if match else at + 1
        return ""


class Terminal:
    """A program on a terminal; what it wrote since is taken in by wait_for."""

    def __init__(self, command, rows, columns, env):
        self.main, self.side = pty.openpty()
        self.screen = Screen(rows, columns)
        self.set_size(rows, columns)
        self.found = termios.tcgetattr(self.side)
        self.left = b""
        self.text = ""
        self.child = subprocess.Popen(command, stdin=self.side, stdout=self.side, stderr=self.side,
                                      env=env, start_new_session=True, preexec_fn=self.take_over)

    @staticmethod
    def take_over():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def set_size(self, rows, columns):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        """The kernel tells the program by SIGWINCH."""
        self.read()
        self.screen.resize(rows, columns)
        self.set_size(rows, columns)

    def type(self, text):
        os.write(self.main, text.encode())

    def read(self, limit_s=0):
        while select.select([self.main], [], [], limit_s)[0]:
            self.left += os.read(self.main, 65536)
            limit_s = 0
        whole = self.left.decode("utf-8", "ignore") if self.left else ""
        self.left = self.left[len(whole.encode()):]
        self.text = self.screen.take(self.text + whole)

    def wait_for(self, condition, what):
        """Until condition() is true of what is on the screen."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, "%s: not so; the screen:\n%s" % (what, self)
            self.read(0.05)

    def wait_for_text(self, text):
        self.wait_for(lambda: any(text in line for line in self.screen.lines()), repr(text))

    def wait_for_end(self):
        """Its exit status, with all that it wrote taken in."""
        end = time.monotonic() + LIMIT_S
        while self.child.poll() is None:
            assert time.monotonic() < end, "it does not end; the screen:\n%s" % self
            self.read(0.05)
        self.read()
        return self.child.returncode

    def is_as_found(self):
        return (not self.screen.is_alternate and self.screen.was_alternate
                and termios.tcgetattr(self.side) == self.found)

    def __str__(self):
        return "\n".join(self.screen.lines())

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self.main)
        os.close(self.side)
