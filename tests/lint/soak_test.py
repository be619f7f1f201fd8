# SPDX-License-Identifier: Apache-2.0
"""Tests the soaks of scripts/test.py: they repeat, a failure fails the run, and soaks that cannot run
are listed."""
import importlib.util
import os
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("test_script", ROOT / "scripts" / "test.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

# Imitates a GoogleTest program: it counts its runs, and fails in the run that FAIL_IN names.
PROGRAM = """#!/bin/sh
case "$*" in
  *--gtest_filter=None*--gtest_list_tests*) exit 0 ;;
  *--gtest_list_tests*) printf 'Suite.\\n  Test\\n'; exit 0 ;;
esac
echo run >> "$0.runs"
[ -z "$HANG" ] || exec sleep 60
[ "$(wc -l < "$0.runs")" != "$FAIL_IN" ]
"""


class Soak(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "some_test"
        self.program.write_text(PROGRAM, encoding="utf-8")
        self.program.chmod(0o700)
        self.tally = script.Tally()

    def soak(self, soaks, seconds, **environment):
        script.soak_build(self.tally, "asan", self.folder, soaks, seconds, environment)

    def runs(self):
        return len(pathlib.Path(f"{self.program}.runs").read_text(encoding="utf-8").splitlines())

    def test_repeats_for_the_time_given_and_at_least_once(self):
        self.soak([("states", "some_test", "Suite.*")], 0)
        self.assertEqual((self.runs(), self.tally.passed), (1, 1))
        self.soak([("states", "some_test", "Suite.*")], 0.5)
        self.assertGreater(self.runs(), 2)

    def test_a_failure_ends_it_and_fails(self):
        self.soak([("states", "some_test", "Suite.*")], 60, FAIL_IN="3")
        self.assertEqual((self.runs(), self.tally.passed), (3, 0))
        self.assertEqual(self.tally.failures, ["soak asan: states: start 3"])

    def test_a_program_that_hangs_fails(self):
        before, script.SOAK_HANGS = script.SOAK_HANGS, 0.3
        self.addCleanup(setattr, script, "SOAK_HANGS", before)
        self.soak([("states", "some_test", "Suite.*")], 60, HANG="1")
        self.assertEqual(self.tally.failures, ["soak asan: states: start 1"])

    def test_what_cannot_be_run_is_left_out_and_listed(self):
        self.soak([("states", "no_test", "Suite.*"), ("breakers", "some_test", "None.*")], 0)
        self.assertEqual(self.tally.skipped,
                         ["soak asan: states: there is no program no_test in this build",
                          "soak asan: breakers: no test of some_test matches None.*"])
        self.assertEqual((self.tally.passed, self.tally.failures), (0, []))

    def test_the_list_can_be_read(self):
        soaks = script.read_soaks(ROOT / "tests" / "soak.txt")
        self.assertEqual(len({subject for subject, _, _ in soaks}), len(soaks))
        for _, program, tests in soaks:
            self.assertRegex(program, r"^[a-z0-9_]+_test$")
            self.assertTrue(tests)

    def test_tests_that_a_program_skipped_are_found(self):
        case = script.xml.etree.ElementTree.fromstring(
            "<testcase><system-out>[ RUN      ] A.B\n[  SKIPPED ] A.B (0 ms)\n[       OK ] A.C (1 ms)\n"
            "[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n</system-out></testcase>")
        self.assertEqual(script.skipped_inside(case), ["A.B"])


unittest.main()
