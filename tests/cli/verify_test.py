# SPDX-License-Identifier: Apache-2.0
"""Tests yard verify."""
import json
import os
import shutil
import tempfile

from unittest import mock

from command import Yard, main

KEYS = ["op", "id", "passed", "failed", "skipped", "worst_error", "worst_call"]
CASES = 8  # calls for each kernel; the tests conformance.* run more
REFERENCE = ("verify", "--backend", "reference", "--quick", "--cases", str(CASES))
SOFTMAX = ("verify", "--backend", "reference", "--op", "softmax", "--quick")


class Folder(Yard):
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


class Verify(Folder):
    def test_json(self):
        data = self.json(*REFERENCE)
        self.assertEqual(list(data), ["kernels", "functions"])
        self.assertEqual(data["functions"], [])
        self.assertGreaterEqual(len(data["kernels"]), 7)
        for kernel in data["kernels"]:
            self.assertEqual(list(kernel)[:len(KEYS)], KEYS)
            self.assertEqual((kernel["id"], kernel["passed"], kernel["failed"]), ("reference.cpp", CASES, 0))
            self.assertEqual((kernel["skipped"], kernel["worst_error"]), (0, 0))

    def test_every_kernel_of_this_build_is_right(self):
        data = self.json("verify", "--quick", "--cases", str(CASES), "--seed", "5")
        for kernel in data["kernels"]:
            self.assertEqual(kernel["failed"], 0, kernel)
            self.assertGreaterEqual(sum(kernel[k] for k in ("passed", "skipped", "declined")), CASES)
            # Each kernel gets CASES calls of its op's schema, and other kernels get as many of
            # their own limits.
            if [r["reason"] for r in kernel["reasons"]] == ["cpu_feature"]:
                continue  # the processor lacks the instructions
            if "oneDNN packs no such weights for this processor" in [r["detail"] for r in kernel["reasons"]]:
                continue
            self.assertGreaterEqual(kernel["passed"] + kernel["declined"], CASES, kernel)
            self.assertEqual(kernel["runs"], kernel["passed"])
            self.assertEqual(sum(r["count"] for r in kernel["reasons"]),
                             kernel["skipped"] + kernel["declined"])

    def test_run_takes_the_worst_call(self):
        for kernel in self.json(*REFERENCE)["kernels"]:
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
        self.assertEqual(head.index("passed") + len("passed"), first.index(f" {CASES} ") + 2)
        self.assertRegex(out, r"\d+ kernels, \d+ runs compared, 0 failed\.")
        self.assertRegex(out, r"\n0 of \d+ kernels are verified\.\n")
        self.assertIn(f"reference.cpp of op softmax passed {CASES} runs, and 100 are required", out)

    def test_verified_after_a_hundred_runs(self):
        softmax = ("verify", "--op", "softmax", "--kernel", "reference.cpp")
        for cases, verified in (("99", False), ("100", True)):
            kernel = self.json(*softmax, "--cases", cases)["kernels"][0]
            self.assertEqual((kernel["runs"], kernel["verified"]), (int(cases), verified))
        out, _ = self.yard(*softmax, "--cases", "100")
        self.assertIn("1 of 1 kernels are verified.\n", out)

    def test_given_calls(self):
        calls = ("--call", "softmax(f32[3,5120])", "--call", "rms_norm(f32[2,64], f32[64])")
        data = self.json("verify", "--kernel", "reference.cpp", *calls)
        self.assertEqual([(k["op"], k["runs"], k["skipped"]) for k in data["kernels"]],
                         [("rms_norm", 6, 0), ("softmax", 6, 0)])
        self.assertEqual(data["kernels"][1]["worst_call"], "softmax(f32[3,5120])@cpu")
        self.assertIn("did you mean 'softmax'?", self.wrong("verify", "--call", "softmx(f32[3,5120])"))
        self.assertIn("^", self.wrong("verify", "--call", "softmax(f32[3"))
        self.assertIn("'x'", self.wrong("verify", "--call", "softmax(i32[3])"))

    def test_calls_of_a_trace(self):
        path = self.file("calls.txt", "2\tsoftmax(f32[3,64])@cpu\n7\tsoftmax(f32[3,5120])@cpu\n"
                                      "1\tacme_norm(f32[8])@cpu\n")
        only = ("verify", "--kernel", "reference.cpp", "--trace", path)
        data = self.json(*only)
        self.assertEqual(data["kernels"][0]["runs"], 12)
        self.assertEqual(data["skipped"], [{"op": "acme_norm", "calls": 1}])
        self.assertEqual(self.json(*only, "--cases", "1")["kernels"][0]["runs"], 6)
        _, err = self.yard(*only)
        self.assertEqual(err, f"yard: {path}: skipped 1 call: op 'acme_norm' is not known; did you mean 'rms_norm'?\n")

    def test_calls_that_cannot_be_made_are_skipped_with_the_reason(self):
        data = self.json("verify", "--kernel", "reference.cpp", "--call", "softmax(f32[4000000000,5120])",
                         "--call", "softmax(f32[4,8]@cuda)", code=1)
        kernel = data["kernels"][0]
        self.assertEqual((kernel["runs"], kernel["skipped"]), (0, 12))
        self.assertIn("GB", kernel["reasons"][0]["detail"])

    def test_options_that_no_kernel_has_are_errors(self):
        softmax = ("verify", "--op", "softmax")
        self.assertIn("no kernel has an option 'window'", self.wrong(*softmax, "--option", "window=4"))
        self.assertIn("expected NAME=VALUE", self.wrong(*softmax, "--option", "window"))
        self.assertIn("expected NAME=TENSOR", self.wrong(*softmax, "--weight", "sink=f33[8]"))

    def test_progress_is_for_terminals(self):
        text = self.on_terminal(*SOFTMAX)
        self.assertRegex(text, r"op 1 of 1: softmax, call 1 of 40\b")
        self.assertIn("\x1b[K", text)
        self.assertNotIn("call 1 of", self.on_terminal(*SOFTMAX, TERM="dumb"))

    def test_unexpected_pass(self):
        path = self.file("known.txt", "# known\nreference.* softmax * : fails : was wrong once\n")
        data = self.json(*SOFTMAX, "--expect", path, code=1)
        kernel = data["kernels"][0]
        self.assertEqual((kernel["passed"], kernel["failed"]), (39, 1))
        self.assertIn("unexpected pass", kernel["failures"][0]["what"])
        out, _ = self.yard(*SOFTMAX, "--expect", path, code=1)
        self.assertIn("was wrong once", out)
        self.assertIn("yard run 'softmax(", out)

    def test_unsupported_but_accepted(self):
        path = self.file("known.txt", "reference.cpp softmax softmax(f16* : unsupported : no f16\n")
        kernel = self.json(*SOFTMAX, "--expect", path, code=1)["kernels"][0]
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


class Files(Folder):
    """Verifies files of the test plugins."""
    def setUp(self):
        super().setUp()
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        for name in ("YARD_CONFIG", "YARD_PLUGINS", "YARD_PLUGIN_PATH"):
            os.environ.pop(name, None)
        os.environ["XDG_STATE_HOME"] = os.path.join(self.folder, "state")
        self.plugins = os.path.join(self.folder, "plugins")
        os.mkdir(self.plugins, 0o700)

    def put(self, plugin):
        path = os.path.join(self.plugins, plugin + ".so")
        shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], plugin + ".so"), path)
        os.chmod(path, 0o700)
        return path

    def test_beside_a_lock_file_that_does_not_list_the_plugin(self):
        self.put("answer")
        self.yard("plugin", "lock", self.plugins)
        path = self.put("behave")
        os.environ["YARD_PLUGIN_PATH"] = self.plugins
        self.assertIn("not_in_lock_file", json.dumps(self.json("plugin", "inspect", path, code=1)))
        data = self.json("verify", path)
        self.assertEqual((data["verified"], data["why"]), (True, None))

    def test_a_failing_probe_is_the_reason(self):
        data = self.json("verify", self.put("probe_fails"), code=1)
        self.assertFalse(data["verified"])
        self.assertIn("no board is in the slot", data["why"])
        self.assertEqual(data["kernels"][0]["reasons"][0]["reason"], "unavailable")
        _, err = self.yard("verify", self.put("probe_fails"), code=1)
        self.assertIn("does not count as verified: default.probe_fails of op probed was not compared on any call: "
                      "backend 'probe_fails' is not available: no board is in the slot", err)

    def test_quick_runs_a_smoke_test_in_a_child(self):
        path = self.put("behave")
        data = self.json("verify", "--quick", path)
        self.assertEqual((data["verified"], data["why"]), (False, "with --quick, only the smoke test was run"))
        self.assertEqual([(k["id"], k["failed"]) for k in data["kernels"]],
                         [("default.behave", 0), ("reference.behave", 0)])
        self.assertTrue(all(0 < k["passed"] < 20 for k in data["kernels"]))
        self.assertFalse(self.json("plugin", "inspect", path)["verified"])
        # With --quick no results are compared.
        self.json("verify", "--quick", self.put("behave_run_be_wrong"))

    def test_quick_says_where_a_plugin_died(self):
        for plugin, where in (("load_crash", "while it was opened"), ("load_leave_well", "while it was opened"),
                              ("query_crash", "in its query"), ("query_recurse", "in its query"),
                              ("query_fall_silent", "in its query"), ("query_leave_a_child", "in its query"),
                              ("start_leave", "in its start"),
                              ("run_leave", "kernel 'default.behave' of op 'behave' on behave(i64["),
                              ("run_divide", "on behave(i64["), ("run_leave_a_child", "on behave(i64["),
                              ("stop_crash", "stopped and closed"), ("close_leave", "stopped and closed")):
            data = self.json("verify", "--quick", self.put("behave_" + plugin), code=1)
            self.assertFalse(data["verified"])
            self.assertIn(where, data["why"], plugin)
        message = self.wrong("verify", "--quick", self.put("behave_query_leave"), code=1)
        self.assertIn("behave_query_leave.so failed: it ended its process with exit code 3 in its query", message)

    def test_quick_finds_writes_out_of_bounds(self):
        for plugin, words in (("run_write_behind", "after its last element"),
                              ("run_write_far_behind", "100 bytes after its last element"),
                              ("run_change_float_state", "floating-point control state")):
            for options in (["--quick"], []):
                data = self.json("verify", *options, self.put("behave_" + plugin), code=1)
                self.assertFalse(data["verified"])
                self.assertIn(words, data["why"])
                self.assertEqual(data["kernels"][0]["failed"], 1)

    def test_quick_ends_a_plugin_that_hangs(self):
        for plugin, where in (("load_hang", "while it was opened"), ("query_spin", "in its query"),
                              ("start_hang", "in its start"), ("run_hang", "on behave(i64["),
                              ("stop_hang", "stopped and closed")):
            data = self.json("verify", "--quick", "--timeout", "2", self.put("behave_" + plugin), code=1)
            self.assertIn("was still running after 2 s", data["why"])
            self.assertIn(where, data["why"])

    def test_quick_reports_a_backend_that_is_not_available(self):
        data = self.json("verify", "--quick", self.put("probe_fails"), code=1)
        self.assertIn("no board is in the slot", data["why"])

    def test_quick_refuses_what_a_load_refuses(self):
        self.assertIn("other_machine", self.wrong("verify", "--quick", self.put("other_machine"), code=1))
        self.assertIn("bad_descriptor", self.wrong("verify", "--quick", self.put("query_bad_utf8"), code=1))

    def test_functions_are_run_with_their_samples(self):
        data = self.json("verify", self.put("function_samples"))
        self.assertEqual((data["verified"], data["why"]), (True, None))
        self.assertEqual([(f["function"], f["state"], f["samples"]) for f in data["functions"]],
                         [("active_group/chained", "passed", 2), ("active_group/held", "passed", 1),
                          ("active_group/plugged", "passed", 1)])
        self.assertTrue(self.json("plugin", "inspect", self.put("function_samples"))["verified"])

    def test_a_function_with_another_result_than_its_samples_expect(self):
        data = self.json("verify", self.put("function_samples_wrong"), code=1)
        self.assertFalse(data["verified"])
        plugged = [f for f in data["functions"] if f["function"] == "active_group/plugged"][0]
        self.assertEqual((plugged["state"], plugged["problems"]), ("broken", ["sample 1: unexpected result"]))

    def test_functions_without_samples_are_not_verified(self):
        data = self.json("verify", self.put("functions_in_c"), code=1)
        self.assertFalse(data["verified"])
        self.assertIn("declares no sample calls", data["why"])


class Behaviour(Yard):
    def plugin(self, name):
        return os.path.join(os.environ["TEST_PLUGINS"], f"behave_run_{name}.so")

    def test_a_kernel_that_redirects_stdout_changes_no_result(self):
        data = self.json("verify", self.plugin("redirect"))
        self.assertEqual(data["verified"], True)
        self.assertGreater(data["kernels"][0]["passed"], 0)
        with mock.patch.dict(os.environ, YARD_PLUGINS=self.plugin("redirect")):
            self.assertEqual(self.json("run", "behave(i64[4])")["kernel"], "default.behave")

    def test_a_kernel_that_ends_the_process_is_an_error_in_words(self):
        with mock.patch.dict(os.environ, YARD_PLUGINS=self.plugin("leave")):
            data = self.json("run", "behave(i64[4])", code=1)
            self.assertIn("ended by exit()", data["error"])
            self.assertIn("ended by exit()", self.wrong("run", "behave(i64[4])", code=1))


main()
