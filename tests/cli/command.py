# SPDX-License-Identifier: Apache-2.0
"""Runs the command from tests. Each test is a method of a TestCase derived from Yard."""
import json
import os
import pty
import select
import subprocess
import unittest


# A sanitizer writes to stderr before a crashing program ends.
SANITIZED = os.environ.get("TEST_SANITIZED", "") != ""


def environment(**changes):
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    return {**kept, "TERM": "xterm", **changes}


class Yard(unittest.TestCase):
    def yard(self, *arguments, code=0):
        """Returns stdout and stderr of a run that must exit with `code`."""
        run = subprocess.run([os.environ["YARD"], *arguments], capture_output=True, text=True,
                             env=environment(), timeout=120)
        self.assertEqual(run.returncode, code, f"yard {arguments}\n{run.stdout}\n{run.stderr}")
        return run.stdout, run.stderr

    def json(self, *arguments, code=0):
        """Returns the object that a run prints, without its version, after checking the common format."""
        out, err = self.yard(*arguments, "--json", code=code)
        self.assertTrue(SANITIZED or err == "", err)
        data = json.loads(out)
        self.assertEqual(list(data)[0], "schema", out)
        self.assertEqual(data["schema"], 1)
        self.assertTrue(out.startswith('{\n  "schema": 1,\n  "'), out)
        self.assertTrue(out.endswith("\n}\n"), out)
        del data["schema"]
        return data

    def wrong(self, *arguments, code=2):
        """Returns the message of a run that must fail and print nothing on stdout."""
        out, err = self.yard(*arguments, code=code)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("yard: ") or SANITIZED and "yard: " in err, err)
        return err

    def on_terminal(self, *arguments, **changes):
        """Returns the output on a terminal."""
        parent, child = pty.openpty()
        run = subprocess.Popen([os.environ["YARD"], *arguments], stdout=child, stderr=child,
                               env=environment(**changes))
        os.close(child)
        text = b""
        while select.select([parent], [], [], 60)[0]:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            text += piece
        os.close(parent)
        self.assertEqual(run.wait(), 0)
        return text.decode()


def main():
    unittest.main(module="__main__")
