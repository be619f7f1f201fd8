# SPDX-License-Identifier: Apache-2.0
"""Tests yard explain."""
import os
import tempfile

from command import Yard, main

CALL = "softmax(f32[4,8])"


class Explain(Yard):
    def test_json(self):
        data = self.json("explain", CALL)
        for key in ("op", "call", "selected", "candidates", "policy"):
            self.assertIn(key, data)
        self.assertEqual(data["op"], "softmax")
        self.assertEqual(data["call"], "softmax(f32[4,8])@cpu")
        self.assertIsNotNone(data["selected"])
        winner = data["candidates"][0]
        self.assertEqual((winner["id"], winner["verdict"]), (data["selected"], "selected"))
        for candidate in data["candidates"]:
            for key in ("id", "verdict", "reason", "detail"):
                self.assertIn(key, candidate)

    def test_no_kernel(self):
        data = self.json("explain", CALL, "--deny", "*", code=1)
        self.assertIsNone(data["selected"])
        self.assertEqual({c["reason"] for c in data["candidates"]}, {"denied_kernel"})
        out, err = self.yard("explain", CALL, "--deny", "*", code=1)
        self.assertIn("no kernel is allowed, able and healthy", out)
        self.assertIn("which would have been first", out)
        self.assertEqual(err, "")

    def test_columns_have_titles(self):
        out, _ = self.yard("explain", CALL)
        lines = out.splitlines()
        head = next(line for line in lines if line.split()[:2] == ["kernel", "kind"])
        winner = lines[lines.index(head) + 1]
        self.assertEqual(head.split()[:4], ["kernel", "kind", "priority", "verdict"])
        self.assertEqual(winner.index("selected"), head.index("verdict"))
        reference = next(line for line in lines if line.startswith("  reference.cpp"))
        self.assertEqual(reference.index("reference", 10), head.index("kind"))
        self.assertEqual(reference.index("outranked"), head.index("reason"))

    def reasons(self, *options, code=1):
        data = self.json("explain", CALL, *options, code=code)
        return {c["id"]: c["reason"] for c in data["candidates"]}, data

    def test_policy_options(self):
        for options, reason in [(["--allow", "none.*"], "not_allowed_kernel"),
                                (["--order", "vendor:nobody"], "not_in_order"),
                                (["--lock", "default.other"], "locked_out"),
                                (["--backend", "reference=off", "--allow", "reference.*"],
                                 "disabled")]:
            self.assertEqual(self.reasons(*options)[0]["reference.cpp"], reason, options)
        _, data = self.reasons("--prefer", "vendor", "--strict", "--deny-vendor", "a", "--deny-vendor",
                               "b", "--order", "default|vendor,reference", "--no-transforms", code=0)
        policy = {n["field"]: n["value"] for n in data["policy"]}
        self.assertEqual(policy["prefer"], "vendor")
        self.assertEqual(policy["deny_vendors"], "a,b")
        self.assertEqual(policy["transforms[*]"], "false")
        self.assertTrue(all(n["source"] == "call" for n in data["policy"]))
        self.assertEqual(self.json("explain", CALL, "--force", "reference.cpp")["selected"],
                         "reference.cpp")

    def test_options_before_and_after_the_call(self):
        self.assertEqual(self.json("explain", "--deny", "x.*", CALL)["selected"],
                         self.json("explain", CALL, "--deny", "x.*")["selected"])

    def test_flags_and_labels(self):
        data = self.json("explain", CALL, "--deterministic", "--label", "model=llama")
        self.assertEqual(data["call"], "softmax(f32[4,8])@cpu+deterministic{model=llama}")
        self.assertEqual(self.json("explain", data["call"])["call"], data["call"])

    def test_scores_and_chains(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules.yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write('version: "1.0"\nscore: [{kernel: "reference.*", add: 900, name: boost them}]\n'
                        "fallback_chains: {softmax: [reference.cpp]}\n")
            data = self.json("explain", "--config", path, CALL)
            candidate = [c for c in data["candidates"] if c["id"] == "reference.cpp"][0]
            self.assertEqual(candidate["scores"],
                             [{"name": "boost them", "place": f"score[0] ({path}:2)", "add": 900, "multiply": 1}])
            self.assertEqual(candidate["adjusted_priority"], candidate["priority"] + 900)
            self.assertIn({"field": "score", "value": f"'boost them', score[0] ({path}:2): + 900", "source": "file"},
                          data["policy"])
            if sum(c["verdict"] in ("able", "selected") for c in data["candidates"]) > 2:
                self.assertEqual(candidate["placed_by"], f"fallback_chains.softmax ({path}:3)")
            out, _ = self.yard("explain", "--config", path, CALL)
            self.assertIn("'boost them', score[0]", out)

    def test_static_mode(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules.yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write('version: "1.0"\nsettings: {mode: static}\n'
                        "static_kernel_map: {rms_norm: reference.cpp}\n")
            data = self.json("explain", "--config", path, CALL, code=1)
            self.assertEqual({c["reason"] for c in data["candidates"]}, {"not_mapped"})

    def test_invalid_usage(self):
        self.assertIn("^", self.wrong("explain", "softmax(f32[4,8)"))  # points at the mistake
        self.assertIn("did you mean 'softmax'", self.wrong("explain", "sofmax(f32[4,8])"))
        self.assertIn("weight", self.wrong("explain", "rms_norm(f32[4,8], f32[9])"))
        self.assertIn("did you mean 'vendor'", self.wrong("explain", CALL, "--prefer", "vendr"))
        self.assertIn("no kernel 'reference.cp' to force; did you mean 'reference.cpp'?",
                      self.wrong("explain", CALL, "--force", "reference.cp"))
        self.assertIn("vendor:NAME or impl:ID", self.wrong("explain", CALL, "--order", "vndr"))
        self.assertIn("NAME=on or NAME=off", self.wrong("explain", CALL, "--backend", "reference=maybe"))
        self.assertIn("KEY=VALUE", self.wrong("explain", CALL, "--label", "model"))

    def test_colour_on_terminals_only(self):
        self.assertNotIn("\x1b", self.yard("explain", CALL)[0])
        self.assertIn("\x1b", self.on_terminal("explain", CALL))
        self.assertNotIn("\x1b", self.on_terminal("explain", CALL, NO_COLOR="1"))


main()
