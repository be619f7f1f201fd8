# SPDX-License-Identifier: Apache-2.0
"""Tests yard config, and the output of explain and run under a rule file."""
import json
import os
import shutil
import tempfile

from command import Yard, main

EMPTY = 'version: "1.0"\n'
RULES = """version: "1.0"
dispatch_rules:
  - name: long rows
    operation: softmax
    conditions: {rows_gte: 512, dtype: f32}
    kernel: reference.cpp
"""
BAD = """version: "1.0"
dispatch_rules:
  - operation: softmax
    conditions: {rows_ge: 512}
    kernel: reference.cp
  - {operation: "conv*", kernel: reference.cpp}
"""
WARNING = 'version: "1.0"\ndispatch_rules: [{operation: "conv*", kernel: reference.cpp}]\n'
BELOW, ABOVE = "softmax(f32[511,64])@cpu", "softmax(f32[512,64])@cpu"


class Files(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def usual(self, call):
        return self.json("explain", call)["selected"]


class Check(Files):
    def test_a_good_file(self):
        path = self.file("rules.yaml", RULES)
        self.assertEqual(self.yard("config", "check", path), (f"{path}: fine\n", ""))
        self.assertEqual(self.json("config", "check", path),
                         {"ok": True, "files": [{"file": path, "ok": True, "errors": 0, "warnings": 0,
                                                 "problems": []}]})

    def test_all_problems_with_their_places(self):
        path = self.file("bad.yaml", BAD)
        out, err = self.yard("config", "check", path, code=1)
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertIn(f"{path}:4:18: error: dispatch_rules[0].conditions.rows_ge: ", lines[0])
        self.assertIn("did you mean 'rows_gte'?", lines[0])
        self.assertIn(f"{path}:5:13: error: ", lines[1])
        self.assertIn("did you mean 'reference.cpp'?", lines[1])
        self.assertIn(f"{path}:6:17: warning: ", lines[2])
        self.assertEqual(lines[3:], [f"{path}: 2 errors, 1 warning"])

    def test_json(self):
        path = self.file("bad.yaml", BAD)
        data = self.json("config", "check", path, code=1)
        self.assertFalse(data["ok"])
        problem = data["files"][0]["problems"][0]
        self.assertEqual(list(problem), ["severity", "file", "line", "column", "path", "found", "right"])
        self.assertEqual((problem["severity"], problem["file"], problem["line"], problem["column"]),
                         ("error", path, 4, 18))
        self.assertEqual(problem["path"], "dispatch_rules[0].conditions.rows_ge")

    def test_warnings_fail_only_if_asked_to(self):
        path = self.file("warning.yaml", WARNING)
        out, _ = self.yard("config", "check", path)
        self.assertIn("0 errors, 1 warning", out)
        self.assertEqual(self.yard("config", "check", "--strict", path, code=1)[0], out)
        self.assertFalse(self.json("config", "check", "--strict", path, code=1)["files"][0]["ok"])

    def test_contradictions_fail_if_asked_to(self):
        rule = "{operation: softmax, kernel: reference.cpp, conditions: {%s}}"
        for rules, path in (
                ("kernel_locks: {softmax: reference.cpp}\nkernel_denies: [reference.cpp]",
                 "kernel_locks.softmax"),
                ('kernel_denies: ["*"]', "kernel_denies"),
                ("policy: {reference_only: true}\nkernel_denies: [reference.cpp]", "kernel_denies"),
                ("dispatch_rules: [%s, %s]" % (rule % "rows_gte: 8", rule % "rows_gte: 16, rows_lt: 32"),
                 "dispatch_rules[1]"),
                ("dispatch_rules: [%s]" % (rule % "rows_gte: 8, rows_lt: 8"), "dispatch_rules[0].conditions"),
                ("dispatch_rules: [%s]" % (rule % "dtype: i8"), "dispatch_rules[0].conditions"),
                ("dispatch_rules: [{operation: softmax, deny: '*'}]", "dispatch_rules[0]"),
                ("dispatch_rules: [{operation: softmax, conditions: {rows: 8}, deny: '*'}]", "dispatch_rules[0]"),
                ("policy: {per_op: {softmax: [reference]}}\nkernel_denies: [reference.cpp]",
                 "policy.per_op.softmax"),
                ("settings: {mode: static}", "settings.mode"),
                ("canary: {op: softmax, one_in: 2, kernel: reference.cpp}", "canary[0].against"),
                ("canary: {op: softmax, one_in: 2, kernel: reference.cpp, against: default.simd}\n"
                 "kernel_denies: [reference.cpp]", "canary[0].kernel"),
                ("kernel_denies: [reference.cpp]\nfallback_chains: {softmax: [reference.cpp]}",
                 "fallback_chains.softmax[0]"),
                ("kernel_denies: [reference.cpp]\nscore: [{kernel: reference.cpp, add: 1}]", "score[0].kernel"),
                ("dispatch_rules: [%s]" % (rule % "label.regoin: eu"),
                 "dispatch_rules[0].conditions.label.regoin")):
            path_ = self.file("rules.yaml", f'version: "1.0"\n{rules}\n')
            self.yard("config", "check", path_)
            problems = self.json("config", "check", "--strict", path_, code=1)["files"][0]["problems"]
            self.assertIn((path, "warning"), [(p["path"], p["severity"]) for p in problems], rules)

    def test_unknown_names_fail_if_asked_to(self):
        for rules in ("kernel_denies: [vendor.zeta]", "kernel_allows: ['*', vendor.zeta]",
                      "kernel_locks: {softmax: vendor.zeta}", "kernel_locks: {zeta: vendor.zeta}",
                      "dispatch_rules: [{operation: softmax, deny: vendor.zeta}]"):
            path = self.file("rules.yaml", f'version: "1.0"\n{rules}\n')
            self.yard("config", "check", path)
            self.yard("config", "check", "--strict", path, code=1)
        near = self.file("near.yaml", 'version: "1.0"\nkernel_denies: [reference.cp]\n')
        self.assertIn("did you mean 'reference.cpp'?", self.yard("config", "check", near, code=1)[0])

    def test_several_files(self):
        good, bad = self.file("good.yaml", RULES), self.file("bad.yaml", BAD)
        data = self.json("config", "check", good, bad, code=1)
        self.assertEqual([(f["file"], f["ok"]) for f in data["files"]], [(good, True), (bad, False)])

    def test_colour_on_terminals_only(self):
        path = self.file("warning.yaml", WARNING)
        self.assertIn("\x1b[33mwarning", self.on_terminal("config", "check", path))
        self.assertNotIn("\x1b", self.on_terminal("config", "check", path, NO_COLOR="1"))

    def test_invalid_usage(self):
        self.assertIn("nowhere.yaml", self.wrong("config", "check", "nowhere.yaml"))
        self.assertIn("FILE", self.wrong("config", "check"))
        self.assertIn("did you mean 'check'?", self.wrong("config", "chek", "x"))


class Announced(Files):
    """Rules about an op of a plugin that a program opens with the first call."""

    def setUp(self):
        super().setUp()
        plugin = os.path.join(self.folder, "answer.so")
        shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], "answer.so"), plugin)
        os.chmod(plugin, 0o700)
        os.environ["YARD_PLUGINS"] = plugin
        self.addCleanup(os.environ.pop, "YARD_PLUGINS")

    def rules(self, conditions, more="optional: true"):
        return self.file("rules.yaml", 'version: "1.0"\ndispatch_rules:\n  - {operation: answer, kernel: '
                         f"default.answer, conditions: {{{conditions}}}, {more}}}\n")

    def test_conditions_are_checked(self):
        path = self.rules("nn_gte: 8, n_gte: abc")
        data = self.json("config", "check", path, code=1)
        problems = data["files"][0]["problems"]
        self.assertEqual([(p["line"], p["path"]) for p in problems],
                         [(3, "dispatch_rules[0].conditions.nn_gte"),
                          (3, "dispatch_rules[0].conditions.n_gte")])
        self.assertEqual(problems[0]["right"], "did you mean 'n_gte'?")
        self.assertEqual(self.yard("config", "check", self.rules("n_gte: 8"))[1], "")

    def test_names_of_a_plugin_that_was_found_are_known(self):
        path = self.file("rules.yaml", 'version: "1.0"\nkernel_locks: {answer: default.answer}\n')
        self.assertEqual(self.yard("config", "check", "--strict", path)[0], f"{path}: fine\n")
        rule = "{operation: answer, conditions: {n_gte: 8}, deny: default.answer}"
        path = self.file("rules.yaml", f'version: "1.0"\ndispatch_rules: [{rule}]\n')
        problems = self.json("config", "check", "--strict", path, code=1)["files"][0]["problems"]
        self.assertEqual([(p["path"], p["found"]) for p in problems],
                         [("dispatch_rules[0]", "no kernel of answer may serve its calls")])
        denied = self.file("denied.yaml", 'version: "1.0"\nkernel_denies: [default.answer]\n')
        problems = self.json("config", "check", "--strict", denied, code=1)["files"][0]["problems"]
        self.assertEqual([(p["path"], p["found"]) for p in problems],
                         [("kernel_denies", "no kernel of answer may run")])
        wrong = self.file("wrong.yaml", 'version: "1.0"\nkernel_locks: {answer: default.anwser}\n')
        self.assertIn("did you mean 'default.answer'?", self.yard("config", "check", wrong, code=1)[0])

    def test_a_field_that_an_op_of_a_plugin_lacks(self):
        for rules in ("dispatch_rules: [{operation: 'answ*', conditions: {nn: 8}, deny: default.answer}]",
                      "score: [{operation: answer, kernel: 'default.*', add: 1, conditions: {nn: 8}}]"):
            path = self.file("rules.yaml", f'version: "1.0"\n{rules}\n')
            out, _ = self.yard("config", "check", "--strict", path, code=1)
            self.assertIn(".conditions.nn: ", out)

    def test_rules_of_a_plugin_that_is_not_there_are_not_checked(self):
        path = self.rules("nn_gte: 8")
        del os.environ["YARD_PLUGINS"]
        self.addCleanup(os.environ.__setitem__, "YARD_PLUGINS", "")
        self.assertIn("no op is called 'answer' here; the rule is not checked", self.yard("config", "check", path)[0])
        self.yard("config", "check", "--strict", path, code=1)

    def test_a_kernel_must_be_optional_as_a_program_would_have_it(self):
        data = self.json("config", "check", self.rules("n_gte: abc", "optional: false"), code=1)
        self.assertEqual([p["path"] for p in data["files"][0]["problems"]],
                         ["dispatch_rules[0].kernel", "dispatch_rules[0].conditions.n_gte"])

    def test_a_plugin_that_cannot_be_opened_is_reported(self):
        shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], "start_fails.so"),
                        os.environ["YARD_PLUGINS"])
        path = self.rules("n_gte: abc")
        out, _ = self.yard("config", "check", path)
        self.assertIn("cannot be opened", out)

    def test_explain_reports_problems(self):
        out, err = self.yard("explain", "--config", self.rules("nn_gte: 8"), "answer(i64[4])")
        self.assertIn("runs default.answer", out)
        self.assertIn("dispatch_rules[0].conditions.nn_gte", err)

    def test_baked_rules_are_accepted(self):
        trace = self.file("calls.txt", "answer(i64[4])@cpu\nsoftmax(f32[4,8])@cpu\n")
        baked = os.path.join(self.folder, "baked.yaml")
        self.yard("bake", "--trace", trace, "--yaml", baked)
        with open(baked, encoding="utf-8") as f:
            text = f.read()
        self.assertRegex(text, r"answer: \{kernel: default.answer, optional: true\}")
        self.assertRegex(text, r"softmax: [a-z]+\.[a-z]+\n")
        self.yard("config", "check", baked)
        data = self.json("explain", "--config", baked, "answer(i64[4])")
        self.assertIn("chosen by static_kernel_map", data["candidates"][0]["detail"])


class Schema(Files):
    def test_is_json(self):
        out, err = self.yard("config", "schema")
        self.assertEqual(err, "")
        schema = json.loads(out)
        self.assertIn("$schema", schema)
        self.assertIn("dispatch_rules", schema["properties"])


class Under(Files):
    def test_explain(self):
        path = self.file("rules.yaml", RULES)
        data = self.json("explain", "--config", path, ABOVE)
        self.assertEqual(data["selected"], "reference.cpp")
        self.assertEqual(self.json("explain", "--config", path, BELOW)["selected"], self.usual(BELOW))
        self.assertIn("long rows", self.yard("explain", "--config", path, ABOVE)[0])

    def test_run(self):
        path = self.file("rules.yaml", RULES)
        call = "softmax(f32[512,8])"
        self.assertEqual(self.json("run", call, "--config", path, "--repeat", "1")["kernel"],
                         "reference.cpp")

    def test_rules_that_would_be_in_rollout_are_shown_as_in_force(self):
        old = self.file("old.yaml", EMPTY)
        new = self.file("new.yaml", RULES + "rollout: {percent: 1, hold_s: 3600}\n")
        trace = self.file("calls.txt", f"3\t{ABOVE}\n")
        os.environ["YARD_CONFIG"] = old  # other rules must be in force, or the new ones would not start a rollout
        self.addCleanup(os.environ.pop, "YARD_CONFIG")
        self.assertEqual(self.json("explain", "--config", new, ABOVE)["selected"], "reference.cpp")
        self.assertEqual(self.json("run", ABOVE, "--config", new, "--repeat", "1")["kernel"], "reference.cpp")
        self.assertIn("reference.cpp", self.yard("config", "diff", old, new, "--call", ABOVE)[0])
        self.assertIn("reference.cpp", self.yard("config", "simulate", new, "--trace", trace)[0])
        baked = os.path.join(self.folder, "baked.yaml")
        self.yard("bake", "--config", new, "--trace", trace, "--yaml", baked)
        with open(baked, encoding="utf-8") as f:
            self.assertIn("reference.cpp", f.read())

    def test_a_wrong_file_is_exit_code_2(self):
        path = self.file("bad.yaml", BAD)
        for command in ("explain", "run"):
            message = self.wrong(command, "--config", path, ABOVE)
            self.assertIn(f"{path}:4:18: error: ", message)
            self.assertIn(f"{path}:5:13: error: ", message)
        self.assertIn("nowhere.yaml", self.wrong("explain", "--config", "nowhere.yaml", ABOVE))

    def test_warnings_are_printed(self):
        path = self.file("warning.yaml", WARNING)
        out, err = self.yard("explain", "--config", path, ABOVE)
        self.assertIn("warning: ", err)
        self.assertIn("softmax", out)


class Unmet(Files):
    def test_a_rule_without_a_matching_call_is_listed(self):
        old = self.file("old.yaml", EMPTY)
        new = self.file("new.yaml", 'version: "1.0"\ndispatch_rules:\n  - {operation: softmax, name: odd tenants, '
                        'conditions: {tenant_regex: "a[0-9]{3}"}, kernel: reference.cpp}\n')
        out, _ = self.yard("config", "diff", old, new)
        self.assertIn("No call was found that matches this rule: --call and --trace try others\n"
                      f"  'odd tenants', dispatch_rules[0] ({new}:3)\n", out)
        self.assertEqual(self.json("config", "diff", old, new)["unmet"],
                         [f"'odd tenants', dispatch_rules[0] ({new}:3)"])
        self.assertEqual(self.json("config", "diff", old, self.file("met.yaml", RULES))["unmet"], [])


class Diff(Files):
    def test_calls_beside_the_numbers_of_rules(self):
        old, new = self.file("old.yaml", EMPTY), self.file("new.yaml", RULES)
        data = self.json("config", "diff", old, new)
        self.assertEqual((data["old"], data["new"]), (old, new))
        self.assertEqual([c["path"] for c in data["changes"]], ["dispatch_rules[0]"])
        moved = {m["call"]: m for m in data["moved"]}
        self.assertEqual({m["op"] for m in data["moved"]}, {"softmax"})
        self.assertEqual({m["new"] for m in data["moved"]}, {"reference.cpp"})
        self.assertGreater(data["tried"], 50)
        sizes = {c.split("[")[1].split(",")[0] for c in moved if c.startswith("softmax(f32[")}
        self.assertTrue({"512", "513"} <= sizes and "511" not in sizes, sizes)
        self.assertFalse([c for c in moved if "bf16" in c])
        # The diff also works in the other direction.
        back = self.json("config", "diff", new, old)
        self.assertEqual({(m["call"], m["new"], m["old"]) for m in back["moved"]},
                         {(m["call"], m["old"], m["new"]) for m in data["moved"]})

    def test_table_lines_up(self):
        old, new = self.file("old.yaml", EMPTY), self.file("new.yaml", RULES)
        out, err = self.yard("config", "diff", old, new)
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertTrue(lines[0].startswith("+ dispatch_rules[0]: "), lines[0])
        head = next(i for i, line in enumerate(lines) if line.startswith("op "))
        rows = [line for line in lines[head + 1:] if line.startswith("softmax")]
        for row in rows:
            self.assertEqual(row.index(" reference.cpp") + 1, lines[head].index("new"))
        self.assertRegex(lines[-1], r"^\d+ of \d+ calls tried would change kernel, of 1 op\.$")

    def test_equivalent_files(self):
        path = self.file("rules.yaml", RULES)
        out, _ = self.yard("config", "diff", path, path)
        self.assertRegex(out, r"^The files are equivalent\.\n\n0 of \d+ calls tried would change kernel\.\n$")

    def test_many_equal_moves_are_counted(self):
        old = self.file("old.yaml", EMPTY)
        new = self.file("new.yaml", 'version: "1.0"\npolicy: {prefer: reference}\n')
        out, _ = self.yard("config", "diff", old, new)
        self.assertRegex(out, r"and \d+ more like these: use --json for all")
        self.assertGreaterEqual(len({m["op"] for m in self.json("config", "diff", old, new)["moved"]}), 7)

    def test_given_calls(self):
        old, new = self.file("old.yaml", EMPTY), self.file("new.yaml", RULES)
        data = self.json("config", "diff", old, new, "--call", BELOW, "--call", ABOVE)
        self.assertEqual(data["tried"], 2)
        self.assertEqual(data["moved"], [{"op": "softmax", "call": ABOVE, "old": self.usual(ABOVE),
                                          "new": "reference.cpp"}])
        trace = self.file("calls.txt", f"{BELOW}\n")
        self.assertEqual(self.json("config", "diff", old, new, "--trace", trace)["moved"], [])

    def test_calls_left_without_a_kernel(self):
        old = self.file("old.yaml", EMPTY)
        new = self.file("new.yaml", 'version: "1.0"\nkernel_denies: ["*"]\n')
        out, err = self.yard("config", "diff", old, new, "--call", ABOVE, "--json", code=1)
        self.assertIsNone(json.loads(out)["moved"][0]["new"])
        self.assertIn("no kernel of any op may run", err)
        self.assertIn("none", self.yard("config", "diff", old, new, "--call", ABOVE, code=1)[0])
        self.yard("config", "diff", new, old)

    def test_invalid_usage(self):
        good, bad = self.file("good.yaml", RULES), self.file("bad.yaml", BAD)
        self.assertIn(f"{bad}:4:18: error: ", self.wrong("config", "diff", good, bad))
        self.assertIn(f"{bad}:4:18: error: ", self.wrong("config", "diff", bad, good))
        self.assertIn("did you mean 'softmax'?", self.wrong("config", "diff", good, good, "--call", "sofmax()"))
        self.assertIn("NEW", self.wrong("config", "diff", good))
        trace = self.file("calls.txt", ABOVE)
        self.assertIn("--trace", self.wrong("config", "diff", good, good, "--call", ABOVE, "--trace", trace))


class ProgramModes(Files):
    def test_are_announced(self):
        path = self.file("rules.yaml", 'version: "1.0"\nsettings: {mode: by_table}\n')
        self.assertIn("no mode is called 'by_table'", self.yard("config", "check", path, code=1)[0])
        self.yard("config", "check", path, "--program-mode", "other", "--program-mode", "by_table")
        self.yard("config", "diff", path, path, "--program-mode", "by_table", "--call", ABOVE)
        data = self.json("explain", "--config", path, "--program-mode", "by_table", ABOVE)
        self.assertIn({"field": "mode", "value": "by_table (it gave no answer: as in dynamic)",
                       "source": "file"}, data["policy"])
        self.assertIn("is the name of a mode already",
                      self.wrong("config", "check", path, "--program-mode", "static"))


class Simulate(Files):
    def trace(self):
        return self.file("calls.txt", "# recorded\n\n"
                         f"40\t{BELOW}\n7\t{ABOVE}\nsoftmax(f32[600,64])\n3\t{ABOVE}\n"
                         "100\trms_norm(f32[8,64], f32[64])\n")

    def test_json(self):
        new, trace = self.file("new.yaml", RULES), self.trace()
        data = self.json("config", "simulate", new, "--trace", trace)
        self.assertEqual(data, {
            "file": new, "against": None, "calls": 151, "moved": 11, "lost": 0, "distinct": 4,
            "moves": [{"op": "softmax", "from": self.usual(ABOVE), "to": "reference.cpp", "calls": 11,
                       "distinct": 2, "example": ABOVE}]})

    def test_against(self):
        new, old = self.file("new.yaml", EMPTY), self.file("old.yaml", RULES)
        data = self.json("config", "simulate", new, "--trace", self.trace(), "--against", old)
        self.assertEqual([(m["from"], m["to"], m["calls"]) for m in data["moves"]],
                         [("reference.cpp", self.usual(ABOVE), 11)])
        self.assertEqual(self.json("config", "simulate", old, "--trace", self.trace(), "--against",
                                   old)["moved"], 0)

    def test_table(self):
        out, err = self.yard("config", "simulate", self.file("new.yaml", RULES), "--trace", self.trace())
        self.assertEqual(err, "")
        head, row, blank, sum_line = out.splitlines()
        self.assertRegex(head, r"^op +calls +distinct +from +to +for example$")
        self.assertEqual(head.index("calls") + len("calls"), row.index(" 11 ") + 3)
        self.assertEqual((blank, sum_line), ("", "11 of 151 calls would move (2 of 4 distinct ones)."))

    def test_calls_left_without_a_kernel(self):
        new = self.file("new.yaml", 'version: "1.0"\nkernel_denies: ["*"]\n')
        out, _ = self.yard("config", "simulate", new, "--trace", self.trace(), "--json", code=1)
        self.assertEqual(json.loads(out)["lost"], 151)
        self.assertIn("No kernel could run 151",
                      self.yard("config", "simulate", new, "--trace", self.trace(), code=1)[0])

    def test_problems_of_the_trace(self):
        new = self.file("new.yaml", RULES)
        trace = self.file("bad.txt", f"{ABOVE}\nx\t{ABOVE}\n0\t{ABOVE}\n\nsofmax(f32[2,2])\nsoftmax(f32[2\n")
        message = self.wrong("config", "simulate", new, "--trace", trace)
        self.assertIn(f"{trace}:2: invalid count 'x'", message)
        self.assertIn(f"{trace}:3: invalid count '0'", message)
        self.assertIn(f"{trace}:5: op 'sofmax' is not known; did you mean 'softmax'?", message)
        self.assertIn(f"{trace}:6: ", message)
        self.assertNotIn(f"{trace}:1: ", message)
        many = self.file("many.txt", "nothing\n" * 50)
        self.assertIn("and 30 more lines", self.wrong("config", "simulate", new, "--trace", many))
        empty = self.file("empty.txt", "# nothing\n")
        self.assertIn("there is no call in it", self.wrong("config", "simulate", new, "--trace", empty))

    def test_invalid_usage(self):
        bad, trace = self.file("bad.yaml", BAD), self.trace()
        self.assertIn(f"{bad}:4:18: error: ", self.wrong("config", "simulate", bad, "--trace", trace))
        self.assertIn("--trace", self.wrong("config", "simulate", bad))


main()
