# SPDX-License-Identifier: Apache-2.0
"""Tests yard run --from."""
import os
import struct
import tempfile

from command import Yard, main

CALL = "softmax(f32[3,8])@cpu"


class RunDump(Yard):
    def dump(self, data=None, **changes):
        """Writes a dump of a softmax and returns its path. A line that is None is left out."""
        data = struct.pack("<24f", *(0.37 * (i % 7) - 1 for i in range(24))) if data is None else data
        lines = {"op": "softmax", "kernel": "reference.cpp", "against": "reference.cpp", "call": CALL,
                 "worst": "out[1,2]", "found": "nan", "expected": "0.25", "error": "inf",
                 "when_us": "1700000000000000", "input": f"x {len(data)}", **changes}
        text = "".join(f"{k}: {v}\n" for k, v in lines.items() if v is not None)
        file = tempfile.NamedTemporaryFile(suffix=".yarddump", delete=False)
        self.addCleanup(os.unlink, file.name)
        with file:
            file.write(b"yard canary dump 1\n" + text.encode() + b"data\n" + data)
        return file.name

    def test_a_kernel_that_was_fixed(self):
        path = self.dump()
        data = self.json("run", "--from", path)
        self.assertEqual((data["dump"], data["op"], data["call"]), (path, "softmax", CALL))
        self.assertEqual((data["kernel"], data["against"]), ("reference.cpp", "reference.cpp"))
        self.assertEqual((data["ok"], data["equal_bits"], data["worst"]), (True, True, None))
        self.assertEqual(data["then"], {"kernel": "reference.cpp", "worst": {
            "element": "out[1,2]", "found": "nan", "expected": 0.25, "error": "inf"}})
        out, _ = self.yard("run", "--from", path)
        self.assertIn("reference.cpp: out[1,2] is nan where reference.cpp has 0.25", out)
        self.assertIn("equal bits (reference.cpp)", out)

    def test_the_reference_is_the_default(self):
        self.assertEqual(self.json("run", "--from", self.dump(against=None))["against"], "reference.cpp")

    def test_a_kernel_that_is_still_wrong(self):
        other = self.json("explain", CALL)["selected"]
        if other == "reference.cpp":
            self.skipTest("there is no other kernel")
        # No kernel meets a tolerance of zero, so a good kernel can stand in for a wrong one.
        path = self.dump(kernel=other, rtol="0", atol="0")
        data = self.json("run", "--from", path, code=1)
        self.assertEqual((data["kernel"], data["ok"], data["equal_bits"]), (other, False, False))
        self.assertTrue(data["worst"]["element"].startswith("out["), data)
        self.assertNotEqual(data["worst"]["found"], data["worst"]["expected"])
        out, _ = self.yard("run", "--from", path, code=1)
        self.assertIn("beyond tolerance (reference.cpp)", out)
        self.assertIn(f"{data['worst']['element']} is ", out)
        self.assertTrue(self.json("run", "--from", path, "--kernel", "reference.cpp")["ok"])
        self.assertTrue(self.json("run", "--from", self.dump(kernel=other))["ok"])  # uses the tolerance of the op

    def test_invalid_dumps_are_reported(self):
        self.assertIn("cannot be read", self.wrong("run", "--from", "/nowhere/dump"))
        self.assertIn("is not a regular file", self.wrong("run", "--from", "/"))
        self.assertIn("not a canary dump", self.wrong("run", "--from", __file__))
        for changes, why in [({"call": None}, "the line 'call: ...' is missing"),
                             ({"call": "softmax(f32[3,8"}, "column"),
                             ({"call": "sotfmax(f32[3,8])"}, "did you mean 'softmax'"),
                             ({"call": "softmax(f32[3,9])@cpu"}, "invalid contents of 'x': expected 108 bytes, got 96"),
                             ({"call": "softmax(f32[3,8])@cuda"}, "does not take the call"),
                             ({"call": "softmax(f32[300000000000,8])@cpu"}, "expected smaller shapes"),
                             ({"kernel": "reference.cp"}, "did you mean 'reference.cpp'"),
                             ({"against": "nobody"}, "op 'softmax' has no kernel \"nobody\""),
                             ({"input": "y 96"}, "the call reads no tensor \"y\""),
                             ({"input": "x 95"}, "invalid data: expected 95 bytes, got 96")]:
            self.assertIn(why, self.wrong("run", "--from", self.dump(**changes)), changes)

    def test_conflicting_options(self):
        path = self.dump()
        self.assertIn("CALLSPEC is missing, or --from DUMP", self.wrong("run"))
        self.assertIn("CALLSPEC does not go with --from", self.wrong("run", CALL, "--from", path))
        self.assertIn("--seed does not go with --from", self.wrong("run", "--from", path, "--seed", "3"))
        self.assertIn("--force does not go with --from",
                      self.wrong("run", "--from", path, "--force", "reference.cpp"))
        self.assertIn("--kernel goes with --from", self.wrong("run", CALL, "--kernel", "reference.cpp"))


main()
