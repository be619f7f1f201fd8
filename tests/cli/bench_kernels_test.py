# SPDX-License-Identifier: Apache-2.0
"""Tests the shape of the answers of yard bench kernels. The times are left to `make bench`."""

from command import Yard, main

QUICK = ["bench", "kernels", "--seconds", "0"]
SMALL = [*QUICK, "--shapes", "rows=1,3", "--shapes", "hidden=256"]


class BenchKernels(Yard):
    def test_json(self):
        data = self.json(*SMALL, "--shapes", "d=256", "softmax", "rms_norm", "--dtype", "f32")
        self.assertEqual([r["call"] for r in data["rows"]],
                         ["softmax(f32[1,256])", "softmax(f32[3,256])",
                          "rms_norm(f32[1,256], f32[256])", "rms_norm(f32[3,256], f32[256])"])
        self.assertEqual(data["rows"][0]["bytes"], 2 * 256 * 4)
        for row in data["rows"]:
            times = row["times_ns"]
            self.assertIn(row["selected"], times)
            self.assertEqual(times[row["fastest"]], min(times.values()))
            self.assertAlmostEqual(row["regret"], times[row["selected"]] / times[row["fastest"]] - 1, places=6)
            self.assertGreaterEqual(row["spread"], 0)
            self.assertGreater(row["copy_ns"], 0)
        regrets = [row["regret"] for row in data["rows"]]
        self.assertAlmostEqual(data["mean_regret"], sum(regrets) / len(regrets), places=6)
        self.assertAlmostEqual(data["worst_regret"], max(regrets), places=6)

    def test_every_op_can_be_measured(self):
        small = ["rows=2", "tokens=2", "hidden=64", "d=64", "heads=2", "kv_heads=1", "head_dim=8", "m=2", "n=4", "k=32",
                 "vocab=8", "batch=2", "seq=3", "kv_seq=5", "dim=8", "capacity=6", "blocks=3", "block=4", "max_blocks=3",
                 "experts=64"]
        data = self.json(*QUICK, "--dtype", "f32", *[a for s in small for a in ("--shapes", s)])
        measured = {row["call"].split("(")[0] for row in data["rows"]}
        self.assertEqual(measured, {op["name"] for op in self.json("list")["ops"]})

    def test_a_call_of_any_op(self):
        call = "rms_norm(f32[2,32], f32[32])"
        rows = self.json(*QUICK, "--call", call)["rows"]
        self.assertEqual([r["call"] for r in rows], [call])

    def test_kernels_that_pack_weights_get_loaded_ones(self):
        call = "linear(f32[1,64], q8_0[48,64])"
        row, other = self.json(*QUICK, "--call", call, "--call", "softmax(f32[1,256])")["rows"]
        plan = self.json("explain", call + "@cpu+loaded")
        able = {c["id"] for c in plan["candidates"] if c["verdict"] != "rejected" and c["kind"] != "reference"}
        self.assertEqual((row["loaded"], other["loaded"]), (True, False))
        self.assertEqual((set(row["times_ns"]), row["selected"]), (able, plan["selected"]))
        self.assertIn(call + ", weight loaded\n", self.yard(*QUICK, "--call", call)[0])

    def test_an_invalid_model(self):
        self.assertIn("GGUF", self.wrong(*QUICK, "--model", __file__))
        self.assertIn("/no/such/file", self.wrong(*QUICK, "--model", "/no/such/file"))
        self.assertIn("--model", self.wrong(*QUICK, "softmax", "--model", "/no/such/file"))

    def test_unable_kernels_are_listed_with_their_reason(self):
        row = self.json(*QUICK, "--call", "softmax(bf16[1,256])")["rows"][0]
        known = {k["id"] for op in self.json("list", "softmax")["ops"] for k in op["kernels"]}
        self.assertEqual(set(row["times_ns"]) | {k["id"] for k in row["skipped"]}, known)
        self.assertTrue(all(k["reason"] for k in row["skipped"]))

    def test_reference_kernels_count_only_where_there_is_no_other(self):
        row = self.json(*QUICK, "--call", "softmax(f32[1,256])")["rows"][0]
        self.assertNotIn("reference.cpp", row["times_ns"])
        row = self.json(*QUICK, "--call", "softmax(f32[2,32;1,2])")["rows"][0]  # strides that are not compact
        self.assertEqual(list(row["times_ns"]), ["reference.cpp"])

    def test_table(self):
        out, err = self.yard(*SMALL, "rms_norm", "--dtype", "f32")
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^call, kernel +time +GB/s +of copy +to the fastest$")
        self.assertEqual(lines[1], "rms_norm(f32[1,256], f32[256])")
        self.assertRegex(lines[2], r"^  copy, \d+ threads? ")
        self.assertRegex(out, r"  default\.simd \*.* #")
        self.assertIn("Mean regret", out)

    def test_invalid_usage(self):
        self.assertIn("did you mean 'softmax'?", self.wrong(*QUICK, "sofmax"))
        self.assertIn("did you mean 'rows'?", self.wrong(*QUICK, "softmax", "--shapes", "row=1"))
        self.assertIn("expected sizes", self.wrong(*QUICK, "softmax", "--shapes", "rows=0"))
        self.assertIn("expected sizes", self.wrong(*QUICK, "softmax", "--shapes", "rows=1,"))
        self.assertIn("expected DIMENSION=SIZE", self.wrong(*QUICK, "softmax", "--shapes", "rows"))
        self.wrong(*QUICK, "--dtype", "f64")


main()
