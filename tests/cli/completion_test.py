# SPDX-License-Identifier: Apache-2.0
"""Tests completion: the answers of `yard complete`, and what bash makes of them."""
import os
import shutil
import subprocess

from command import Yard, environment, main


class Complete(Yard):
    def words(self, *line):
        out, err = self.yard("complete", *line)
        self.assertEqual(err, "")
        return [row.split("\t")[0] for row in out.splitlines()]

    def test_commands(self):
        top = self.words("")
        for command in ("list", "explain", "run", "bench", "doctor", "completion"):
            self.assertIn(command, top)
        self.assertNotIn("complete", top)
        self.assertEqual(top, sorted(top))
        self.assertEqual(self.words("bench", ""), ["dispatch", "kernels"])
        self.assertEqual(self.words("plugin", ""), ["inspect", "list", "load", "lock", "new", "replace", "unload", "upgrade"])
        self.assertEqual(self.words("plugin", "inspect", ""), [])
        self.assertEqual(self.words("config", ""), ["check", "diff", "history", "load", "rollback", "schema", "simulate"])
        self.assertEqual(self.words("config", "check", ""), [])
        self.assertEqual(self.words("breaker", ""), ["close", "list", "open", "reset"])
        self.assertEqual(self.words("verify", ""), [])
        self.assertEqual(self.words("exp"), ["explain"])
        self.assertEqual(self.words("frob"), [])
        self.assertEqual(self.words("help", "exp"), ["explain"])
        self.assertEqual(self.words("help", "plugin", "in"), ["inspect"])
        self.assertEqual(self.words("help", "--"), ["--help", "--man"])

    def test_options_come_from_the_commands_themselves(self):
        for command in (["list"], ["explain"], ["run"], ["doctor"], ["bench", "kernels"],
                        ["plugin", "list"], ["plugin", "lock"], ["plugin", "upgrade"],
                        ["config", "check"], ["config", "diff"], ["config", "simulate"], ["config", "load"],
                        ["top"], ["status"], ["policy"], ["deny"], ["breaker", "open"], ["log"], ["trace"], ["record"]):
            help_text, _ = self.yard(*command, "--help")
            offered = self.words(*command, "--")
            self.assertIn("--help", offered)
            for option in offered:
                self.assertIn(option, help_text)
            for option in (w.rstrip(",") for w in help_text.split("Examples:")[0].split()):
                if option.startswith("--") and "=" not in option:
                    self.assertIn(option.split(",")[-1], offered)

    def test_every_word_has_its_meaning(self):
        out, _ = self.yard("complete", "explain", "--pre")
        self.assertEqual(out.splitlines()[0].split("\t"),
                         ["--prefer", "Kind that comes first: default, vendor or reference"])

    def test_ops_and_kernels(self):
        ops = [op["name"] for op in self.json("list")["ops"]]
        self.assertEqual(self.words("list", ""), sorted(ops))
        self.assertEqual(self.words("explain", "soft"), ["softmax("])
        self.assertEqual(self.words("explain", "'soft"), ["softmax("])
        self.assertEqual(self.words("config", "diff", "--call", "soft"), ["softmax("])
        kernels = sorted(k["id"] for k in self.json("list", "softmax")["ops"][0]["kernels"])
        self.assertEqual(self.words("run", "softmax(f32[2,2])", "--force", ""), kernels)
        self.assertEqual(self.words("run", "softmax(f32[2,2])", "--force", "ref"), ["reference.cpp"])
        self.assertEqual(self.words("bench", "kernels", "--op", "softmax,rms"), ["softmax,rms_norm"])

    def test_values(self):
        self.assertEqual(self.words("explain", "--prefer", ""), ["default", "reference", "vendor"])
        self.assertEqual(self.words("explain", "--prefer=v"), ["--prefer=vendor"])
        self.assertEqual(self.words("explain", "--prefer", "=", "v"), ["vendor"])
        self.assertIn("reference=off", self.words("run", "--backend", "ref"))
        self.assertEqual(self.words("completion", ""), ["bash", "fish", "zsh"])
        self.assertEqual(self.words("log", ""), ["debug", "error", "info", "off", "warn"])
        self.assertEqual(self.words("log", "info", "--logger", "sel"), ["select"])
        self.assertEqual(self.words("verbose", ""), ["0", "1", "2"])
        self.assertEqual(self.words("top", "--sort", "la"), ["latency"])
        self.assertEqual(self.words("deny", "reference.c"), ["reference.cpp"])
        self.assertEqual(self.words("breaker", "open", "reference.c"), ["reference.cpp"])
        self.assertEqual(self.words("bake", "--yaml", ""), [])

    def test_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            out, err = self.yard("completion", shell)
            self.assertEqual(err, "")
            self.assertIn("complete", out)
        self.assertIn("-l yaml -rF", self.yard("completion", "fish")[0])
        self.assertIn("__fish_seen_subcommand_from diff' -F", self.yard("completion", "fish")[0])
        self.assertIn("__fish_seen_subcommand_from inspect' -F", self.yard("completion", "fish")[0])
        self.assertIn("SHELL", self.wrong("completion", "tcsh"))


class Shells(Yard):
    def bash(self, *line):
        """Returns COMPREPLY after the tab key is pressed behind `line`."""
        script, _ = self.yard("completion", "bash")
        run = subprocess.run(
            ["bash", "--norc", "-c",
             script + 'COMP_WORDS=("$YARD" "$@"); COMP_CWORD=$#; _yard; printf "%s\\n" "${COMPREPLY[@]}"',
             "bash", *line],
            capture_output=True, text=True, env=environment(YARD=os.environ["YARD"]))
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout.split("\n")[:-1]

    def test_bash(self):
        if shutil.which("bash") is None:
            self.skipTest("no bash")
        self.assertEqual(self.bash("li"), ["list"])
        self.assertEqual(self.bash("bench", "k"), ["kernels"])
        self.assertEqual(self.bash("list", "--js"), ["--json"])
        self.assertEqual(self.bash("explain", "soft"), ["softmax\\("])
        self.assertEqual(self.bash("explain", "'soft"), ["softmax("])
        self.assertEqual(self.bash("run", "softmax(f32[2,2])", "--force", "ref"), ["reference.cpp"])
        self.assertEqual(self.bash("bake", "--yaml", ""), [""])

    def test_syntax(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell) is not None:
                script, _ = self.yard("completion", shell)
                run = subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True,
                                     capture_output=True)
                self.assertEqual((run.returncode, run.stderr), (0, ""), shell)


main()
