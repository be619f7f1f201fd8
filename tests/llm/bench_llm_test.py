# SPDX-License-Identifier: Apache-2.0
"""Tests that scripts/bench_llm.py runs without its peer on a small model, and what it reports."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import random_model

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench_llm.py"


class BenchLlm(unittest.TestCase):
    def test_report(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            random_model.write_model(path, shape=(1, 32, 64, 2, 1))
            run = subprocess.run([sys.executable, "-B", SCRIPT, "--json", "--rounds", "1", "--threads", "1,2",
                                  os.environ["CHAT"], path], capture_output=True, text=True, timeout=200)
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        self.assertEqual([row["threads"] for row in result["rows"]], [1, 2])
        for row in result["rows"]:
            self.assertGreater(row["decode"]["yard"], 0)
            self.assertGreater(row["prompt"]["yard"], 0)
            self.assertTrue(400 < row["prompt_length"] <= 512, row)
            self.assertLess(row["shares"]["outside of kernels"], 1)
            self.assertGreater(row["shares"]["linear"], 0)
            self.assertIn("attention.decode", row["shares"])
            self.assertAlmostEqual(sum(row["shares"].values()), 1, delta=0.01)
        self.assertTrue(1800 < result["context"] <= 2048, result["context"])
        self.assertGreater(result["bytes_above_file"], 0)


unittest.main()
