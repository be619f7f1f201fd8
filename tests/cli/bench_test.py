# SPDX-License-Identifier: Apache-2.0
"""Tests the shape of the answers of yard bench. The times are left to `make bench`."""
from command import Yard, main

ROWS = ["raw", "static", "bound", "dynamic", "shapes_4", "shapes_16", "mixed_forms", "in_place", "strided",
        "two_outputs", "fresh_views", "own_tensors", "growing", "scoped", "scope", "packed", "by_name", "options", "cold",
        "with_1000_kernels"]
KEYS = [*(row + "_ns" for row in ROWS), "threads", "raw_speedup", "dynamic_speedup", "without_1000_kernels_ns"]


class Bench(Yard):
    def test_json(self):
        data = self.json("bench", "dispatch", "--seconds", "0")
        self.assertEqual(list(data), KEYS)
        for key in KEYS:
            self.assertGreater(data[key], 0, key)
        self.assertGreater(data["cold_ns"], data["dynamic_ns"])
        self.assertGreaterEqual(data["threads"], 2)

    def test_number_of_threads(self):
        for threads in (2, 3):
            data = self.json("bench", "dispatch", "--seconds", "0", "--threads", str(threads))
            self.assertEqual(data["threads"], threads)
            for key in ("raw_speedup", "dynamic_speedup"):
                self.assertGreater(data[key], 0, key)

    def test_table(self):
        out, err = self.yard("bench", "dispatch", "--seconds", "0", "--threads", "2")
        self.assertEqual(err, "")
        for row in ROWS:
            self.assertIn(f"\n  {row} ", out)
        self.assertIn("\n2 threads make ", out)

    def test_invalid_options(self):
        self.assertIn("--seconds", self.wrong("bench", "dispatch", "--seconds", "soon"))
        for threads in ("1", "many"):
            self.assertIn("--threads", self.wrong("bench", "dispatch", "--threads", threads))


main()
