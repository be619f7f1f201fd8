# SPDX-License-Identifier: Apache-2.0
"""Tests a conversation with yard-chat on a pseudo-terminal: commands, line editing, ctrl-C and a full
context."""
import os
import pty
import re
import select
import subprocess
import tempfile
import termios
import time
import unittest

import random_model

CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"


class Terminal:
    """Runs yard-chat on a terminal. With plain=True its output is a pipe, so there is no line editing."""

    def __init__(self, *options, plain=False):
        self.keys, child = pty.openpty()
        reader, writer = os.pipe() if plain else (self.keys, child)
        command = [os.environ["CHAT"], "--temperature", "0", "--model", MODEL, *options]
        # The terminal controls the new session, so that ctrl-C becomes a signal.
        self.program = subprocess.Popen(["setsid", "--ctty", "--wait", *command], stdin=child, stdout=writer,
                                        stderr=writer, env={**os.environ, "TERM": "xterm", "YARD_LOG_LEVEL": "error"})
        os.close(child)
        if plain:
            os.close(writer)
        # Without libedit a terminal has no line editing either.
        self.plain = plain or os.environ.get("LIBEDIT") != "1"
        self.reader, self.text, self.seen = reader, "", 0

    def read(self, seconds):
        """Reads output that comes within the time, and returns False at its end."""
        if not select.select([self.reader], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.reader, 65536)
        except OSError:
            return False
        self.text += piece.decode(errors="replace")
        return piece != b""

    def until(self, pattern):
        """Returns the output since the last call up to the pattern."""
        end = time.monotonic() + 60
        while True:
            found = re.search(pattern, self.text[self.seen:])
            if found:
                before = self.text[self.seen:self.seen + found.end()]
                self.seen += found.end()
                return before
            if not self.read(1) or time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} after {self.text[self.seen:]!r}, all: {self.text!r}")

    def send(self, keys):
        os.write(self.keys, keys.encode() if isinstance(keys, str) else keys)

    def wait_until_it_reads(self):
        """Waits until the program sleeps in the read after a prompt.

        A signal between the prompt and the read interrupts nothing, and a busy machine makes that
        likely."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open(f"/proc/{self.program.pid}/task/{self.program.pid}/stat", encoding="utf-8") as stat:
                sleeps = stat.read().rsplit(")", 1)[1].split()[0] == "S"
            # A line editor prints its prompt before it makes the terminal pass ctrl-C as a key.
            if sleeps and (self.plain or not termios.tcgetattr(self.keys)[3] & termios.ISIG):
                return
            time.sleep(0.01)
        raise AssertionError("the program does not wait for a line")

    def ask(self, line):
        """Sends a line and returns the output up to the next prompt."""
        self.send(line + "\r")
        self.until(re.escape(line[-8:]) if line else "")
        return self.until(r"\n> ")

    def end(self):
        self.program.kill()
        self.program.wait()
        for descriptor in {self.keys, self.reader}:
            os.close(descriptor)

    def code(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.program.poll() is None:
            self.read(0.1)
        return self.program.wait(timeout=1)


class Conversation(unittest.TestCase):
    def start(self, *options, **how):
        terminal = Terminal(*options, **how)
        self.addCleanup(terminal.end)
        terminal.until("> ")
        return terminal

    def test_commands(self):
        t = self.start("-n", "8")
        self.assertIn("/deny KERNEL", t.ask("/help"))
        t.ask("hello")
        self.assertRegex(t.ask("/kernels"), r"linear +default\.simd")
        why = t.ask("/why linear")
        self.assertIn("selected", why)
        self.assertIn("reference.cpp", why)
        self.assertRegex(t.ask("/stats"), r"answer 8 tokens(.|\n)*conversation 1 turns, \d+ of \d+ tokens")
        self.assertIn("begins again", t.ask("/reset"))
        self.assertIn("conversation 0 turns", t.ask("/stats"))
        self.assertIn("system message", t.ask("/system You are brief."))
        self.assertIn("unknown command '/nope'; /help lists commands", t.ask("/nope"))
        self.assertIn("expected /why OP", t.ask("/why"))
        self.assertIn("/stats takes no argument", t.ask("/stats now"))
        self.assertIn("did you mean 'linear'", t.ask("/why lineal"))
        t.send("/exit\r")
        self.assertEqual(t.code(), 0)

    def test_deny_and_undo(self):
        t = self.start("-n", "4")
        t.ask("hello")
        def serving():
            return re.search(r"runs (\S+)", t.ask("/why linear"))[1]
        first = serving()
        self.assertIn("is denied", t.ask(f"/deny {first}"))
        t.ask("hello again")
        self.assertNotEqual(serving(), first)
        self.assertIn("undone: deny", t.ask("/undo"))
        t.ask("and again")
        self.assertEqual(serving(), first)
        self.assertIn("yard-chat: ", t.ask("/deny no.such_kernel"))
        self.assertIn("yard-chat: ", t.ask("/deny *"))  # this deny would leave no kernel

    def test_a_full_context_goes_on(self):
        t = self.start("-n", "10", "--context", "64")
        said = "".join(t.ask(f"question number {i}") for i in range(8))
        self.assertRegex(said, r"the context of 64 tokens was full: the oldest \d+ turns? (is|are) forgotten")
        t.send(CTRL_D)
        self.assertEqual(t.code(), 0)

    def test_a_message_that_is_too_long_does_not_end_it(self):
        t = self.start("-n", "4", "--context", "64")
        self.assertIn("the context of 64 has room for", t.ask("x" * 200))
        self.assertNotIn("yard-chat", t.ask("hello"))

    def test_ctrl_c(self):
        for plain in (False, True):
            with self.subTest(plain=plain):
                # The answer must last until ctrl-C is sent, however slow this test is.
                t = self.start("-n", "100000", "--context", "30000", plain=plain)
                t.send("hello\r")
                # This is longer than the echo of the line, so the answer has begun and the terminal
                # sends signals again.
                t.until(r"(.|\n){200}")
                t.send(CTRL_C)
                t.until("interrupted; ctrl-C again leaves(.|\n)*> ")
                t.ask("/stats") if not plain else (t.send("/stats\r"), t.until(r"turns(.|\n)*> "))
                t.wait_until_it_reads()
                t.send(CTRL_C)
                t.until("ctrl-C again leaves")
                t.send(CTRL_C)
                self.assertEqual(t.code(), 130)

    @unittest.skipUnless(os.environ.get("LIBEDIT") == "1", "built without libedit")
    def test_line_editing_and_history(self):
        t = self.start("-n", "4")
        t.send("/statx\x7fs\r")
        t.until("conversation 0 turns")
        t.until("> ")
        t.send("hellO\x01\x1b[C\r")  # moves to the beginning, and then right by one
        t.until("> ")
        t.send(UP + UP + b"\r")
        t.until("conversation 1 turns")


with tempfile.TemporaryDirectory() as folder:
    MODEL = os.path.join(folder, "m.gguf")
    random_model.write_model(MODEL, shape=(2, 256, 512, 8, 4))
    unittest.main()
