# SPDX-License-Identifier: Apache-2.0
"""yard verify"""
import os
import tempfile

from command import Yard, main

KEYS = ["op", "id", "passed", "failed", "skipped", "worst_error", "worst_call"]
REFERENCE = ("verify", "--backend", "reference", "--quick")


class Verify(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        return path

    def test_json(self):
        data = self.json(*REFERENCE)
        self.assertEqual(list(data), ["kernels", "functions"])
        self.assertEqual(data["functions"], [])
        self.assertGreaterEqual(len(data["kernels"]), 7)
        for kernel in data["kernels"]:
            self.assertEqual(list(kernel)[:len(KEYS)], KEYS)
            self.assertEqual((kernel["id"], kernel["passed"], kernel["failed"]), ("reference.cpp", 40, 0))
            self.assertEqual((kernel["skipped"], kernel["worst_error"]), (0, 0))

    def test_every_kernel_of_this_build_is_right(self):
        data = self.json("verify", "--quick", "--seed", "5")
        for kernel in data["kernels"]:
            self.assertEqual(kernel["failed"], 0, kernel)
            self.assertEqual(sum(kernel[k] for k in ("passed", "skipped", "declined")), 40)
            self.assertEqual(sum(r["count"] for r in kernel["reasons"]),
                             kernel["skipped"] + kernel["declined"])

    def test_run_takes_the_worst_call(self):
        for kernel in self.json(*REFERENCE, "--cases", "5")["kernels"]:
            data = self.json("run", kernel["worst_call"], "--force", kernel["id"], "--repeat", "1",
                             "--contents", kernel["worst"]["contents"],
                             "--seed", str(kernel["worst"]["seed"]))
            self.assertEqual(data["call"], kernel["worst_call"])
            self.assertTrue(data["ok"])
            self.assertIsNone(data["damage"])

    def test_seed_and_cases(self):
        softmax = ("verify", "--op", "softmax", "--kernel", "reference.cpp", "--quick", "--cases", "7")
        first = self.json(*softmax, "--seed", "1")
        self.assertEqual(first, self.json(*softmax, "--seed", "1"))
        self.assertNotEqual(first, self.json(*softmax, "--seed", "2"))
        self.assertEqual([(k["op"], k["passed"]) for k in first["kernels"]], [("softmax", 7)])

    def test_table(self):
        out, err = self.yard(*REFERENCE)
        self.assertEqual(err, "")
        head, first = out.splitlines()[:2]
        self.assertRegex(head, r"^op +kernel +passed +failed +skipped +declined +worst error")
        self.assertEqual(head.index("passed") + len("passed"), first.index(" 40 ") + 3)
        self.assertRegex(out, r"\d+ kernels, \d+ runs compared, 0 failed\.")

    def test_progress_is_for_terminals(self):
        text = self.on_terminal(*REFERENCE, "--op", "softmax")
        self.assertIn("op 1 of 1: softmax, call 1 of 40", text)
        self.assertIn("\x1b[K", text)
        self.assertNotIn("call 1 of", self.on_terminal(*REFERENCE, "--op", "softmax", TERM="dumb"))

    def test_unexpected_pass(self):
        path = self.file("known.txt", "# known\nreference.* softmax * : fails : was wrong once\n")
        data = self.json(*REFERENCE, "--op", "softmax", "--expect", path, code=1)
        kernel = data["kernels"][0]
        self.assertEqual((kernel["passed"], kernel["failed"]), (39, 1))
        self.assertIn("unexpected pass", kernel["failures"][0]["what"])
        out, _ = self.yard(*REFERENCE, "--op", "softmax", "--expect", path, code=1)
        self.assertIn("was wrong once", out)
        self.assertIn("yard run 'softmax(", out)

    def test_unsupported_but_accepted(self):
        path = self.file("known.txt", "reference.cpp softmax softmax(f16* : unsupported : no f16\n")
        kernel = self.json(*REFERENCE, "--op", "softmax", "--expect", path, code=1)["kernels"][0]
        self.assertGreater(kernel["failed"], 5)
        self.assertIn("says unsupported: no f16", kernel["failures"][0]["what"])
        self.assertTrue(kernel["worst_call"].startswith("softmax(f16"))
        self.assertIsNone(kernel["worst_error"])

    def test_lines_that_match_nothing_are_listed(self):
        path = self.file("known.txt", "\nvendor.none * * : fails : not here\n")
        _, err = self.yard(*REFERENCE, "--expect", path)
        self.assertIn(f"{path}:2: no call matched this line", err)

    def test_invalid_usage(self):
        self.assertIn("did you mean 'softmax'?", self.wrong("verify", "--op", "sofmax"))
        self.assertIn("did you mean 'reference.cpp'?", self.wrong("verify", "--kernel", "reference.cp"))
        self.assertIn("did you mean 'reference'?", self.wrong("verify", "--backend", "referense"))
        self.assertIn("--kernel", self.wrong("verify", "--kernel", "a", "--backend", "b"))
        self.assertIn("--cases", self.wrong("verify", "--cases", "0"))
        self.assertIn("cannot read", self.wrong("verify", "--expect", self.file("none.txt")))
        path = self.file("bad.txt", "softmax : fails\n\nk softmax * : breaks : why\n")
        message = self.wrong("verify", "--expect", path)
        self.assertIn(f"{path}:1: expected `KERNEL OP CALLSPEC", message)
        self.assertIn(f"{path}:3: expected 'unsupported' or 'fails', got 'breaks'", message)


main()
