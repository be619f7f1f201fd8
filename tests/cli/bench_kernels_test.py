# SPDX-License-Identifier: Apache-2.0
"""yard bench kernels: the shape of its answers. How fast kernels are is for `make bench` to say."""

from command import Yard, main

QUICK = ["bench", "kernels", "--seconds", "0", "--rows", "1,3", "--hidden", "256"]


class BenchKernels(Yard):
    def test_json(self):
        data = self.json(*QUICK, "--op", "softmax,rms_norm", "--dtype", "f32")
        self.assertEqual([(r["op"], r["rows"]) for r in data["results"]],
                         [("softmax", 1), ("softmax", 3), ("rms_norm", 1), ("rms_norm", 3)])
        first = data["results"][0]
        self.assertEqual(first["call"], "softmax(f32[1,256])")
        self.assertEqual(first["bytes"], 2 * 256 * 4)
        for result in data["results"]:
            ids = [k["id"] for k in result["kernels"]]
            self.assertIn("reference.cpp", ids)
            self.assertEqual(sum(k["selected"] for k in result["kernels"]), 1)
            for k in result["kernels"]:
                self.assertGreater(k["ns"], 0)
                self.assertAlmostEqual(k["gb_per_s"], result["bytes"] / k["ns"], places=6)
                self.assertAlmostEqual(k["over_copy"], result["copy_ns"] / k["ns"], places=6)

    def test_every_op_and_dtype_can_be_measured(self):
        data = self.json("bench", "kernels", "--seconds", "0", "--rows", "2", "--hidden", "128",
                         "--dtype", "f32,f16,bf16")
        measured = {(r["op"], r["dtype"]) for r in data["results"]}
        ops = {op["name"] for op in self.json("list")["ops"]}
        self.assertEqual(measured, {(op, t) for op in ops for t in ("f32", "f16", "bf16")})

    def test_unable_kernels_are_listed_with_their_reason(self):
        result = self.json(*QUICK, "--op", "softmax", "--dtype", "bf16")["results"][0]
        known = {k["id"] for op in self.json("list", "softmax")["ops"] for k in op["kernels"]}
        shown = [k["id"] for k in result["kernels"]] + [k["id"] for k in result["skipped"]]
        self.assertEqual(set(shown), known)
        self.assertTrue(all(k["reason"] for k in result["skipped"]))

    def test_table(self):
        out, err = self.yard(*QUICK, "--op", "rms_norm", "--dtype", "f32")
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^op +dtype +rows +kernel +time +GB/s +of copy$")
        self.assertRegex(lines[1], r"^rms_norm +f32 +1 +copy, \d+ threads? ")
        column = lines[0].index("kernel")
        for line in lines[1:7]:
            if line:
                self.assertNotEqual(line[column], " ", line)

    def test_invalid_usage(self):
        self.assertIn("did you mean 'softmax'?", self.wrong(*QUICK, "--op", "sofmax"))
        self.wrong(*QUICK, "--dtype", "f64")
        self.wrong(*QUICK, "--rows", "0")


main()
