# SPDX-License-Identifier: Apache-2.0
"""Tests which calls yard bench kernels --model measures."""
import os
import tempfile

import random_model
from command import Yard, main


class BenchModel(Yard):
    def calls(self, **model):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            random_model.write_model(path, **model)
            data = self.json("bench", "kernels", "--seconds", "0", "--model", path)
        self.assertGreaterEqual(data["mean_regret"], 0)
        return [row["call"] for row in data["rows"]]

    def test_each_call_once(self):
        calls = self.calls()
        self.assertEqual(len(calls), len(set(calls)))
        for call in ("linear(f32[1,64], q4_1[256,64])", "linear(f32[1,64], q4_1[128,64])",
                     "linear(f32[512,128], q4_1[64,128])", "linear(f32[1,64], q8_0[293,64])",
                     "embedding(i32[512], q8_0[293,64])",
                     "attention.decode(f32[1,4,16], f32[1,2048,2,16], f32[1,2048,2,16], i32[1])"):
            self.assertIn(call, calls)
        self.assertNotIn("linear(f32[512,64], q8_0[293,64])", calls)  # only the last token of a prompt has logits

    def test_an_output_of_its_own(self):
        calls = self.calls(weights="f16", untied="q4_0", shape=(1, 32, 64, 2, 1))
        self.assertIn("linear(f32[1,32], q4_0[293,32])", calls)
        self.assertIn("linear(f32[512,32], f16[128,32])", calls)


main()
