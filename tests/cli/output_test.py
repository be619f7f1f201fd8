# SPDX-License-Identifier: Apache-2.0
"""Tests output that cannot be written, endless inputs, and invalid text."""
import json
import os
import resource
import subprocess
import tempfile

from command import Yard, environment, main

SMALL, OTHER = "softmax(f32[4,8])@cpu", "softmax(f32[4,16])@cpu"


class Output(Yard):
    def run_with(self, *arguments, variables=None, **options):
        return subprocess.run([os.environ["YARD"], *arguments], env=environment(**(variables or {})),
                              timeout=120, **options)

    def test_results_that_cannot_be_written_are_a_failure(self):
        for arguments in (["list"], ["list", "--json"], ["--help"], ["explain", SMALL]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = self.run_with(*arguments, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(run.returncode, 1, arguments)
            self.assertEqual(run.stderr, "yard: the results cannot be written: No space left on device\n")

    def test_a_closed_stdout_is_a_failure(self):
        run = self.run_with("list", preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("the results cannot be written", run.stderr)

    def test_a_file_limit_is_a_failure_and_no_signal(self):
        with tempfile.TemporaryFile() as file:
            run = self.run_with("list", stdout=file, stderr=subprocess.PIPE, text=True,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
        self.assertEqual(run.returncode, 1)
        self.assertIn("File too large", run.stderr)

    def test_messages_that_cannot_be_written_change_no_exit_code(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertEqual(self.run_with("nonsense", stderr=full).returncode, 2)
        self.assertEqual(self.run_with("nonsense", preexec_fn=lambda: os.close(2)).returncode, 2)

    def test_an_input_without_end_is_refused(self):
        err = self.wrong("verify", "--quick", "--op", "softmax", "--expect", "/dev/zero")
        self.assertEqual(err, "yard: /dev/zero: expected at most 16 MiB, got more\n")

    def test_bytes_that_are_not_utf8_give_valid_json(self):
        for arguments in ([b"explain", b"\xff"], [b"\xff"], [b"explain", b"--label", b"a=\xff", SMALL.encode()]):
            run = self.run_with(*arguments, "--json", stdout=subprocess.PIPE)
            json.loads(run.stdout)
        run = self.run_with("doctor", "--json", stdout=subprocess.PIPE, variables={"YARD_PREFER": b"\xff"})
        json.loads(run.stdout)

    def test_control_characters_in_arguments_are_escaped(self):
        err = self.wrong("expl\x1b[31m\nyard: forged")
        self.assertNotIn("\x1b", err)
        self.assertEqual([line for line in err.splitlines() if line.startswith("yard: forged")], [])

    def test_a_long_variable_with_many_problems_gives_little_output(self):
        value = ";".join(f"softmax=x{i}" for i in range(9000))
        for arguments in (["doctor"], ["doctor", "--json"]):
            run = self.run_with(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                variables={"YARD_PER_OP": value})
            self.assertLess(len(run.stdout), 3 * len(value), arguments)


class Bake(Yard):
    def trace(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "calls.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def test_counts_stay_at_the_largest_number(self):
        data = self.json("bake", "--trace", self.trace(f"{2**64 - 1}\t{SMALL}\n5\t{OTHER}\n"))
        self.assertEqual((data["calls"], data["ops"][0]["calls"]), (2**64 - 1, 2**64 - 1))

    def test_namespaces_that_do_not_compile_are_refused(self):
        calls = self.trace(SMALL + "\n")
        for name in ("class", "acme::int", "std", "a__b", "_Acme"):
            self.assertIn("invalid namespace", self.wrong("bake", "--trace", calls, "--namespace", name))
        self.yard("bake", "--trace", calls, "--namespace", "acme::yard")


if __name__ == "__main__":
    main()
