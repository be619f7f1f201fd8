# SPDX-License-Identifier: Apache-2.0
"""Tests yard run."""
from command import Yard, main

KEYS = ["op", "call", "kernel", "median_ns", "gb_per_s", "attempts", "max_abs_error", "max_rel_error",
        "reference", "ok"]

# Calls with every op and dtype, and every property of a tensor in a CallSpec.
CALLS = [
    "rms_norm(f32[8,64], f32[64])",
    "rms_norm(bf16[2,3,64], bf16[64], eps=1e-3)",
    "rms_norm(f32[8,64], f32[64], out=&x)",
    "add_rms_norm(f16[8,64], f16[8,64], f16[64])",
    "layer_norm(f32[4,64], bias=f32[64])",
    "layer_norm(f32[4,64])",
    "silu_and_mul(bf16[8,128])",
    "gelu_and_mul(f16[8,128], approximate=tanh)",
    "softmax(f32[64,100;128,1])",
    "softmax(f32[4,8;-8,1]%4)",
    "softmax(f32[4,8;0,1])",
    "softmax(f16[4,8]%2, out=f16[4,8;1,4])",
    "softmax(f32[0,8])",
    "softmax(f32[])",
    "softmax(f32[8])",
    "rotary_embedding(f32[5,8,64], positions=i64[5])",
    "rotary_embedding(bf16[5,8,64], bf16[5,2,64], i32[5], f32[3,32], f32[3,32], style=interleaved)",
    "rotary_embedding(f16[2,5,8,64], cos=f16[10,16], sin=f16[10,16])",
    "softmax(f32[4,8])@cpu+deterministic{model=llama}",
    "linear(bf16[4,64], i8[8,64], f32[8], bf16[8])",
    "embedding(i64[5], f16[100,64])",
    "argmax(f32[4,64], out=i64[4])",
    "topk_softmax(f32[4,64], weights=f32[4,2], ids=i32[4,2], renormalize=true)",
    "attention.sliding_window(f32[2,3,4,8], f32[2,9,2,8], f32[2,9,2,8], sinks=f32[4], window=4)",
    "attention.paged_decode(f32[2,4,16], f16[7,16,2,16], f16[7,16,2,16], i32[2,3], i32[2])",
]


class Run(Yard):
    def test_json(self):
        data = self.json("run", "rms_norm(f32[8,64], f32[64])", "--repeat", "5")
        self.assertEqual(list(data)[:len(KEYS)], KEYS)
        self.assertEqual(data["op"], "rms_norm")
        self.assertEqual(data["call"], "rms_norm(f32[8,64], f32[64], eps=1e-6)@cpu")
        self.assertGreater(data["median_ns"], 0)
        self.assertAlmostEqual(data["gb_per_s"], (2 * 8 * 64 + 64) * 4 / data["median_ns"])
        self.assertEqual((data["attempts"], data["runs"], data["ok"]), (1, 5, True))
        self.assertEqual(data["reference"], "reference.cpp")

    def test_calls(self):
        for call in CALLS:
            if call == "softmax(f32[])":  # it has no last dimension
                self.wrong("run", call)
                continue
            data = self.json("run", call, "--repeat", "2")
            self.assertTrue(data["ok"], call)
            self.assertEqual(data["kernel"] is None, call == "softmax(f32[0,8])", call)  # an empty call runs no kernel
            if data["kernel"] is not None and data["kernel"] == data["reference"]:
                self.assertTrue(data["equal_bits"], call)
                self.assertEqual((data["max_abs_error"], data["max_rel_error"]), (0, 0))

    def test_text(self):
        out, err = self.yard("run", "softmax(f32[4,8])", "--force", "reference.cpp", "--repeat", "3")
        self.assertEqual(err, "")
        self.assertRegex(out, r"kernel +reference\.cpp\n")
        self.assertRegex(out, r"time +[\d.]+ (ns|us|ms) \(median of 3\), [\d.]+ GB/s\n")
        self.assertRegex(out, r"reference +equal bits \(reference\.cpp\)\n")

    def test_no_kernel(self):
        self.assertIn("no kernel", self.wrong("run", "softmax(f32[4,8])", "--deny", "*", code=1))
        data = self.json("run", "softmax(f32[4,8])", "--deny", "*", code=1)
        self.assertEqual((data["ok"], data["kernel"], data["median_ns"]), (False, None, None))
        self.assertIn("no_kernel", data["error"])

    def test_a_kernel_that_refuses(self):
        message = self.wrong("run", "rotary_embedding(f32[5,8,64], positions=i64[5], base=-1.0)", code=1)
        self.assertIn("base", message)

    def test_invalid_usage(self):
        self.assertIn("on the cpu only", self.wrong("run", "softmax(f32[4,8])@cuda:1"))
        self.assertIn("smaller shapes", self.wrong("run", "softmax(f32[400000000,8000])"))
        self.assertIn("smaller shapes", self.wrong("run", "softmax(f32[2,8;-4611686018427387904,1])"))
        self.assertIn("leave the flag out", self.wrong("run", "softmax(f32[4,8])@cpu+tracing"))
        self.assertIn("to force", self.wrong("run", "softmax(f32[4,8])", "--force", "no.such"))
        self.assertIn("--repeat", self.wrong("run", "softmax(f32[4,8])", "--repeat", "0"))
        self.wrong("run", "softmax(f32[4,8]")


main()
