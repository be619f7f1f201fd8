# SPDX-License-Identifier: Apache-2.0
"""yard bench: the shape of its answers. How fast calls are is for `make bench` to say."""
from command import Yard, main

KEYS = ["raw_ns", "static_ns", "bound_ns", "dynamic_ns", "varied_ns", "scoped_ns", "packed_ns", "scope_ns",
        "cold_ns", "dynamic_2t_speedup", "raw_2t_speedup"]


class Bench(Yard):
    def test_json(self):
        data = self.json("bench", "dispatch", "--seconds", "0")
        self.assertEqual(list(data)[:len(KEYS)], KEYS)
        for key in [*KEYS, "with_1000_kernels_ns", "threads"]:
            self.assertGreater(data[key], 0, key)
        self.assertGreater(data["cold_ns"], data["dynamic_ns"])

    def test_table(self):
        out, err = self.yard("bench", "dispatch", "--seconds", "0")
        self.assertEqual(err, "")
        for key in ("raw", "static", "bound", "dynamic", "packed", "cold"):
            self.assertIn(f"\n  {key} ", out)

    def test_wrong_questions(self):
        self.assertIn("--seconds", self.wrong("bench", "dispatch", "--seconds", "soon"))


main()
