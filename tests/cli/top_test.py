# SPDX-License-Identifier: Apache-2.0
"""Tests yard top in a terminal. tmux sends keys and reads the screen."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from command import environment, main
from serving import Service, wait_for


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class Top(Service):
    def setUp(self):
        self.service = self.start()
        # Use a separate tmux server. The path of its socket must be short.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = os.path.join(folder.name, "s")
        self.addCleanup(lambda: subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True))

    def tmux(self, *arguments):
        run = subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *arguments], capture_output=True,
                             text=True, env=environment(LC_ALL="C.UTF-8"), timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def top(self, *arguments, before="", width=80, height=24):
        """Starts yard top in a terminal. After it ends, the terminal must have its old settings."""
        words = " ".join(["top", str(self.service.pid), *arguments])
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height),
                  f"{before} a=$(stty -g); \"{os.environ['YARD']}\" {words}; echo code=$?; "
                  'test "$a" = "$(stty -g)" && echo terminal restored; sleep 600')
        self.shows("yard top  serving_program")

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def shows(self, text, seconds=20):
        """Waits until the screen matches, and returns it."""
        def look():
            found = self.screen()
            return found if re.search(text, found) else None
        try:
            return wait_for(look, seconds)
        except AssertionError:
            self.fail(f"no '{text}' in\n{self.screen()}")

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def ends(self, code):
        screen = self.shows("terminal restored")
        self.assertIn(f"code={code}\n", screen)
        self.assertNotIn("calls/s", screen)  # the earlier screen is back
        self.assertIn("1 ", self.tmux("display-message", "-p", "#{cursor_flag} "))
        return screen

    def test_the_table(self):
        self.top()
        screen = self.shows(r"\n> rms_norm +vendor\.acme +[\d.]+ ?k? +[\d.]+ [nu]s +[\d.]+ [nu]s +100%  ok\b")
        lines = screen.splitlines()
        self.assertIn(f"({self.service.pid})", lines[0])
        self.assertTrue(lines[1].startswith("generation 3; rules: none; reloads: 0 applied"), screen)
        self.assertEqual(lines[2], "health: ok")
        self.assertRegex(lines[4], r"^  op +kernel +calls/s +p50 +p99  share\*  health")
        self.assertEqual(lines[23], "Enter opens an op  / filter  sort: share  r reverse  ? help  q quit")
        self.keys("q")
        self.ends(0)

    def test_an_op_and_back(self):
        self.top()
        self.shows("> rms_norm")
        self.keys("Enter")
        screen = self.shows("plans and rejected candidates\n  vendor.acme  dynamic  rms_norm")
        self.assertRegex(screen, r"\n  f32\[2,\d+\].* +vendor\.acme ")
        self.assertRegex(screen, r"\n      reference\.cpp  outranked: ")
        self.assertIn("Esc back", screen)
        self.keys("Escape")
        self.shows("> rms_norm +vendor.acme")
        self.keys("q")
        self.ends(0)

    def test_changes_are_seen(self):
        self.top()
        self.yard("breaker", "open", "vendor.acme", "--reason", "bad firmware", "--pid", str(self.service.pid))
        screen = self.shows(r"vendor\.acme +0 .* open\b")
        self.assertIn("health: rms_norm: vendor.acme open", screen)
        self.assertIn("last change: breaker", screen)
        self.assertRegex(screen, r"rms_norm +(default|vendor)\.\w+ .*ok\b|rms_norm +reference")
        self.keys("q")
        self.ends(0)

    def test_sort_filter_and_help(self):
        self.top()
        self.keys("/", "n", "o", "n", "e")
        self.shows("no op or kernel has 'none'(?s:.*)/none_")
        self.keys("Escape")
        self.shows("> rms_norm")
        self.keys("/", "A", "C", "M", "Enter")
        self.shows("> rms_norm(?s:.*)/ filter: ACM")
        self.keys("c", "r")
        self.shows(r"calls/s\^(?s:.*)sort: calls")
        self.keys("?")
        self.shows("^Keys\n")
        self.keys("q")  # leaves the help
        self.shows("> rms_norm")
        self.keys("q")
        self.ends(0)

    def test_every_key(self):
        self.top()
        self.yard("breaker", "open", "vendor.acme", "--pid", str(self.service.pid))
        self.shows(r"(?m)^. rms_norm +(?!vendor\.acme).*\n(?:.*\n)*. rms_norm +vendor\.acme|"
                            r"^. rms_norm +vendor\.acme.*\n(?:.*\n)*. rms_norm +(?!vendor\.acme)")
        self.keys("n")  # sorts by kernel name, so that the order stays
        self.shows("sort: kernel")
        first, last = re.findall(r"(?m)^[> ] rms_norm +(\S+)", self.shows("kernel\\^"))
        self.shows(f"> rms_norm +{re.escape(first)}")
        for keys in (("Down", "Up"), ("End", "Home"), ("j", "k"), ("NPage", "PPage")):
            for key, name in zip(keys, (last, first)):
                self.keys(key)
                self.shows(f"> rms_norm +{re.escape(name)}")
        for key, sort in (("s", "share"), ("c", "calls"), ("l", "latency"), ("h", "health"), ("o", "op")):
            self.keys(key)
            self.shows(f"sort: {sort}")
        self.keys("Space")
        self.shows("yard top  paused")
        self.keys("Space")
        wait_for(lambda: "paused" not in self.screen())
        self.keys("Right")
        self.shows("plans and rejected candidates")
        self.keys("Left")
        self.shows("> rms_norm")
        self.keys("/", "x", "y", "BSpace")
        self.shows("/x_")
        self.keys("C-u")
        self.shows("(?m)^/_")
        self.keys("Enter")
        self.shows("> rms_norm")
        self.keys("F5", "M-x", "Q")  # unknown keys have no effect
        self.ends(0)

    def test_stopping_gives_the_terminal_back_to_the_shell(self):
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", "bash --norc -i")
        self.keys("-l", f"\"{os.environ['YARD']}\" top {self.service.pid}")
        self.keys("Enter")
        self.shows("> rms_norm")
        self.keys("C-z")
        self.assertNotIn("> rms_norm", self.shows("Stopped"))
        self.keys("-l", "fg")
        self.keys("Enter")
        self.shows("> rms_norm")
        self.keys("C-c")
        wait_for(lambda: "> rms_norm" not in self.screen())

    def test_a_very_small_window(self):
        self.top()
        self.tmux("resize-window", "-x", "8", "-y", "2")
        self.shows("^yard")
        self.tmux("resize-window", "-x", "80", "-y", "24")
        self.shows("> rms_norm")
        self.keys("q")
        self.ends(0)

    def test_a_terminal_without_a_cursor(self):
        for term in ("dumb", "no-such-terminal"):
            self.tmux("new-session", "-d", "-x", "80", "-y", "24",
                      f"TERM={term} \"{os.environ['YARD']}\" top {self.service.pid}; sleep 600")
            self.shows(f"expected a terminal that can move its cursor, got\\s+TERM={term}")
            self.tmux("kill-server")
            wait_for(lambda: subprocess.run(["tmux", "-S", self.socket, "ls"], capture_output=True).returncode != 0)

    def test_other_sizes(self):
        self.top(width=120, height=30)
        self.shows("fallback/s")
        self.tmux("resize-window", "-x", "60", "-y", "12")
        screen = self.shows("> rms_n(?s:.*)Enter opens an op")
        self.assertNotIn("fallback/s", screen)
        self.assertLessEqual(max(map(len, screen.splitlines())), 60)
        self.tmux("resize-window", "-x", "120", "-y", "40")
        self.shows("fallback/s")
        self.keys("q")
        self.ends(0)

    def test_colours(self):
        for before, coloured in (("NO_COLOR=1; export NO_COLOR;", False), ("", True)):
            self.top(before=before)
            self.shows("> rms_norm")
            self.assertEqual("\x1b[" in self.screen("-e"), coloured)
            self.keys("q")
            self.ends(0)
            self.tmux("kill-server")
            wait_for(lambda: subprocess.run(["tmux", "-S", self.socket, "ls"], capture_output=True).returncode != 0)

    def test_signals_leave_the_terminal_as_it_was(self):
        for name, code in ((signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131),
                           (signal.SIGABRT, 134), (signal.SIGSEGV, 139)):
            self.top(before="ulimit -c 0;")
            self.signal(name)
            self.ends(code)
            self.tmux("kill-server")
            wait_for(lambda: subprocess.run(["tmux", "-S", self.socket, "ls"], capture_output=True).returncode != 0)

    def signal(self, name):
        shell = int(self.tmux("display-message", "-p", "#{pane_pid}"))
        with open(f"/proc/{shell}/task/{shell}/children", encoding="ascii") as f:
            os.kill(int(f.read().split()[0]), name)

    def test_the_process_ends(self):
        self.top()
        self.service.stdin.close()
        self.service.wait(30)
        screen = self.ends(1)
        self.assertIn("the connection to process", screen)

    def test_the_process_is_stopped_for_a_while(self):
        self.top()
        self.service.send_signal(signal.SIGSTOP)
        self.shows("yard top  not answering  serving_program")
        self.service.send_signal(signal.SIGCONT)
        wait_for(lambda: "not answering" not in self.screen())
        self.keys("q")
        self.ends(0)


main()
