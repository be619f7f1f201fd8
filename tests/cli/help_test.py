# SPDX-License-Identifier: Apache-2.0
"""Tests help on every level, and answers to misspelt words."""
import os
import re
import shutil
import subprocess
import tempfile

from command import Yard, environment, main

COMMANDS = [[], ["list"], ["explain"], ["run"], ["verify"], ["bench"], ["bench", "dispatch"],
            ["bench", "kernels"], ["doctor"], ["completion"], ["plugin"], ["plugin", "list"],
            ["hooks"], ["metrics"], ["report"], ["functions"], ["plugin", "inspect"], ["plugin", "lock"],
            ["plugin", "upgrade"], ["config"],
            ["config", "check"], ["config", "diff"], ["config", "simulate"], ["config", "schema"], ["bake"], ["help"],
            ["plugin", "new"], ["ps"], ["top"], ["status"], ["policy"], ["deny"], ["allow"], ["breaker"],
            ["breaker", "list"], ["breaker", "open"], ["breaker", "close"], ["breaker", "reset"], ["undo"], ["changes"], ["events"],
            ["log"], ["verbose"], ["trace"], ["record"], ["config", "load"], ["config", "rollback"],
            ["config", "history"]]


class Help(Yard):
    def test_every_level_has_examples(self):
        for command in COMMANDS:
            out, err = self.yard(*command, "--help")
            self.assertEqual(err, "")
            self.assertIn("Examples:\n  yard", out)
            self.assertIn(f"\nUsage: {' '.join(['yard', *command])} ", out)
            self.assertEqual(out, self.yard(*command, "-h")[0])

    def test_every_command_takes_json(self):
        for command in COMMANDS:
            if command not in ([], ["bench"], ["completion"], ["plugin"], ["config"], ["config", "schema"],
                               ["help"], ["breaker"]):
                self.assertIn("--json", self.yard(*command, "--help")[0])

    def test_examples_of_explain_and_run_work(self):
        for command in ("explain", "run"):
            out, _ = self.yard(command, "--help")
            examples = re.findall(rf"^  yard ({command} '.*)$", out, flags=re.M)
            self.assertGreaterEqual(len(examples), 4)
            for line in examples:
                text = re.sub(r"  +[a-z, ]+$", "", line)  # removes the remark at the end
                run = subprocess.run(f'"$YARD" {text}', shell=True, capture_output=True, text=True,
                                     env=environment(YARD=os.environ["YARD"]))
                self.assertIn(run.returncode, (0, 1), line + run.stderr)
                self.assertNotIn("yard:", run.stderr)

    def test_version(self):
        out, err = self.yard("--version")
        self.assertRegex(out, r"^\d+\.\d+\.\d+\n$")
        self.assertEqual((out, err), self.yard("-V"))

    def test_no_command_shows_help(self):
        out, err = self.yard()
        self.assertEqual((out, err), self.yard("--help"))
        self.assertIn("Usage: yard COMMAND", out)
        for group in ("plugin", "config", "bench", "breaker"):
            self.assertEqual(self.yard(group), self.yard(group, "--help"))

    def test_help_command(self):
        for command in COMMANDS:
            self.assertEqual(self.yard("help", *command), self.yard(*command, "--help"))
        self.assertIn("yard has no command 'lst'; did you mean 'list'?", self.wrong("help", "lst"))
        self.assertIn("yard plugin has no command 'x'", self.wrong("help", "plugin", "x"))
        self.assertIn("yard list has no command 'x'", self.wrong("help", "list", "x"))

    def test_no_type_names_of_the_parser(self):
        for command in COMMANDS:
            text = self.yard(*command, "--help")[0].split("Examples:")[0]
            self.assertIsNone(re.search(r"\b(TEXT|INT|UINT|FLOAT|BOOLEAN|REQUIRED|Excludes|Needs)\b", text), text)
            self.assertNotIn("FILE:FILE", text)
            self.assertNotRegex(text, "--[a-z-]+ VALUE")  # every value of an option has a name

    def test_lines_of_help_fit_a_terminal(self):
        for command in COMMANDS:
            for line in self.yard(*command, "--help")[0].splitlines():
                self.assertLessEqual(len(line), 120, line)

    def test_manual_page(self):
        page, err = self.yard("help", "--man")
        self.assertEqual(err, "")
        self.assertTrue(page.startswith(".TH YARD 1 "))
        for command in COMMANDS[1:]:
            self.assertIn(f".SS {' '.join(['yard', *command])}\n", page)
        self.assertIn("\n.B \\-\\-device\\-feature DEVICE:NAME\n", page)
        if shutil.which("man") is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
                file.write(page)
                file.flush()
                run = subprocess.run(["man", "--warnings", "-l", file.name], capture_output=True, text=True,
                                     env=environment(MANWIDTH="100", MANPAGER="cat", LC_ALL="C"))
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            if "unminimize" not in run.stdout:  # minimal containers replace man by a stub
                self.assertIn("yard plugin list [OPTIONS] [PATH ...]", run.stdout)

    def test_commands_are_suggested(self):
        self.assertIn("no command 'lst'; did you mean 'list'?", self.wrong("lst"))
        self.assertIn("did you mean 'explain'?", self.wrong("explian", "softmax(f32[2,2])"))
        self.assertIn("did you mean 'dispatch'?", self.wrong("bench", "dispach"))
        self.assertIn("did you mean 'inspect'?", self.wrong("plugin", "inspct", "x.so"))
        self.assertIn("did you mean 'simulate'?", self.wrong("config", "simulat", "x.yaml"))
        self.assertNotIn("did you mean", self.wrong("frobnicate"))
        self.assertIn("yard bench --help", self.wrong("bench", "x"))
        self.assertIn("did you mean '--version'?", self.wrong("version"))

    def test_options_are_suggested(self):
        self.assertIn("no option '--jsn'; did you mean '--json'?", self.wrong("list", "--jsn"))
        self.assertIn("did you mean '--prefer'?", self.wrong("explain", "f()", "--prefr=vendor"))
        self.assertIn("yard has no option '-v'; did you mean '-V'?", self.wrong("-v"))
        self.assertIn("yard plugin has no option '--jsn'", self.wrong("plugin", "--jsn"))
        self.assertEqual(self.json(code=2)["error"], "yard has no option '--json'")

    def test_a_call_in_pieces(self):
        self.assertIn("put it in quotes", self.wrong("explain", "rms_norm(f32[2,2],", "f32[2])"))
        message = self.wrong("list", "softmax", "rms_norm")
        self.assertIn("yard list does not take 'rms_norm'", message)
        self.assertNotIn("quotes", message)

    def test_missing_arguments(self):
        self.assertIn("CALLSPEC is required; usage: yard explain [OPTIONS] CALLSPEC", self.wrong("explain"))
        self.assertIn("--prefer: expected KIND, got nothing", self.wrong("explain", "softmax(f32[2,2])", "--prefer"))

    def test_wrong_values(self):
        self.assertIn("--seconds: expected a number from 0 to 3600, got 'x'",
                      self.wrong("bench", "dispatch", "--seconds", "x"))
        self.assertIn("--threads: expected a whole number from 2 to 1024, got '1'",
                      self.wrong("bench", "dispatch", "--threads", "1"))
        self.assertIn("--dtype: expected f32, f16 or bf16, got 'bf6'; did you mean 'bf16'?",
                      self.wrong("bench", "kernels", "--dtype", "bf6"))
        self.assertIn("--config: expected a file, got 'none.yaml', which does not exist",
                      self.wrong("explain", "--config", "none.yaml", "softmax(f32[2,2])"))
        self.assertIn("--config: expected a file, got the directory '.'",
                      self.wrong("explain", "--config", ".", "softmax(f32[2,2])"))

    def test_errors_are_json_too(self):
        for command, words in ((["list", "rms_nrm"], "op 'rms_nrm' is not known; did you mean 'rms_norm'?"),
                               (["lst"], "there is no command 'lst'"),
                               (["list", "--opn"], "yard list has no option '--opn'; did you mean '--open'?"),
                               (["explain"], "CALLSPEC is required"),
                               (["explain", "softmax(f32[4,8)"], "softmax"),
                               (["run", "sofmax(f32[4,8])"], "did you mean 'softmax'"),
                               (["bench", "dispatch", "--threads", "1"], "--threads: expected"),
                               (["plugin", "inspect", "/none.so"], "No such file"),
                               (["plugin", "new", "A"], "cannot be the name of a plugin"),
                               (["config", "check", "none.yaml"], "none.yaml"),
                               (["hooks", "--activate", "nobody"], "nobody")):
            _, err = self.yard(*command, code=1 if command[0] == "hooks" else 2)
            self.assertIn(words, err)
            data = self.json(*command, code=1 if command[0] == "hooks" else 2)
            self.assertEqual(list(data), ["error", "notes", "exit_code"])
            self.assertIn(words, data["error"])
            self.assertIn(data["exit_code"], (1, 2))

    def test_an_invalid_rule_file_is_a_json_error(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write('version: "1.0"\nsettings: {mode: dynamc}\n')
            file.flush()
            data = self.json("explain", "--config", file.name, "softmax(f32[2,2])", code=2)
            self.assertIn("is not a valid rule file", data["error"])
            self.assertTrue(any(f"{file.name}:2:" in note for note in data["notes"]), data)


main()
