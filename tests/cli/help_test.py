# SPDX-License-Identifier: Apache-2.0
"""Help on every level, and answers to what is misspelt."""
import os
import re
import subprocess

from command import Yard, environment, main

COMMANDS = [[], ["list"], ["explain"], ["run"], ["verify"], ["bench"], ["bench", "dispatch"],
            ["bench", "kernels"], ["doctor"], ["completion"], ["plugin"], ["plugin", "list"],
            ["hooks"], ["functions"], ["plugin", "inspect"], ["plugin", "lock"], ["plugin", "probe"],
            ["plugin", "upgrade"], ["config"],
            ["config", "check"], ["config", "diff"], ["config", "simulate"], ["config", "schema"], ["bake"]]


class Help(Yard):
    def test_every_level_has_examples(self):
        for command in COMMANDS:
            out, err = self.yard(*command, "--help")
            self.assertEqual(err, "")
            self.assertIn("Examples:\n  yard", out)
            self.assertIn("Usage: ", out)
            self.assertEqual(out, self.yard(*command, "-h")[0])

    def test_every_command_takes_json(self):
        for command in COMMANDS:
            if command not in ([], ["bench"], ["completion"], ["plugin"], ["config"], ["config", "schema"]):
                self.assertIn("--json", self.yard(*command, "--help")[0])

    def test_examples_of_explain_and_run_work(self):
        for command in ("explain", "run"):
            out, _ = self.yard(command, "--help")
            examples = re.findall(rf"^  yard ({command} '.*)$", out, flags=re.M)
            self.assertGreaterEqual(len(examples), 4)
            for line in examples:
                text = re.sub(r"  +[a-z, ]+$", "", line)  # the remark behind it
                run = subprocess.run(f'"$YARD" {text}', shell=True, capture_output=True, text=True,
                                     env=environment(YARD=os.environ["YARD"]))
                self.assertIn(run.returncode, (0, 1), line + run.stderr)
                self.assertNotIn("yard:", run.stderr)

    def test_version(self):
        self.assertRegex(self.yard("--version")[0], r"^\d+\.\d+\.\d+\n$")

    def test_no_command_shows_help_and_is_an_error(self):
        out, err = self.yard(code=2)
        self.assertEqual(out, "")
        self.assertIn("Usage: yard", err)

    def test_commands_are_suggested(self):
        self.assertIn("no command 'lst'; did you mean 'list'?", self.wrong("lst"))
        self.assertIn("did you mean 'explain'?", self.wrong("explian", "softmax(f32[2,2])"))
        self.assertIn("did you mean 'dispatch'?", self.wrong("bench", "dispach"))
        self.assertIn("did you mean 'inspect'?", self.wrong("plugin", "inspct", "x.so"))
        self.assertIn("did you mean 'simulate'?", self.wrong("config", "simulat", "x.yaml"))
        self.assertNotIn("did you mean", self.wrong("frobnicate"))
        self.assertIn("yard bench --help", self.wrong("bench", "x"))

    def test_options_are_suggested(self):
        self.assertIn("no option '--jsn'; did you mean '--json'?", self.wrong("list", "--jsn"))
        self.assertIn("did you mean '--prefer'?", self.wrong("explain", "f()", "--prefr=vendor"))

    def test_a_call_in_pieces(self):
        self.assertIn("put it in quotes", self.wrong("explain", "rms_norm(f32[2,2],", "f32[2])"))

    def test_missing_arguments(self):
        self.assertIn("CALLSPEC", self.wrong("explain"))
        self.wrong("bench")
        self.wrong("explain", "softmax(f32[2,2])", "--prefer")


main()
