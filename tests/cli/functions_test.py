# SPDX-License-Identifier: Apache-2.0
"""Tests yard functions, and yard verify of functions."""
import json
import os
import shutil
import tempfile

from command import Yard, main

BUILT = os.environ["TEST_PLUGINS"]


class Plugged(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "plugins")
        os.mkdir(self.folder, 0o700)
        for name in ("YARD_PLUGINS", "YARD_PLUGIN_PATH", "YARD_BACKEND_PLUGGED"):
            os.environ.pop(name, None)
        self.path = self.put("plugged")
        os.environ["XDG_STATE_HOME"] = os.path.join(folder.name, "state")
        self.addCleanup(os.environ.pop, "XDG_STATE_HOME", None)

    def put(self, name):
        path = os.path.join(self.folder, name + ".so")
        shutil.copyfile(os.path.join(BUILT, name + ".so"), path)
        os.chmod(path, 0o700)
        return path


class Functions(Plugged):
    def test_groups_are_listed_without_opening_anything(self):
        data = self.json("functions", self.folder)
        self.assertEqual(data["functions"], [])
        self.assertIn({"group": "plugged_group", "plugin": "plugged", "path": self.path},
                      data["announced"])
        self.assertIn("plugin plugged, not opened", self.yard("functions", self.folder)[0])

    def test_opened_plugins_show_providers(self):
        data = self.json("functions", "--open", self.folder)
        self.assertEqual(data["announced"], [])
        f = next(f for f in data["functions"] if f["group"] == "plugged_group")
        self.assertEqual((f["name"], f["signature"], f["declared"]), ("plugged", "i64(i64)", False))
        self.assertEqual([(p["backend"], p["priority"], p["on"], p["breaker"]) for p in f["providers"]],
                         [("plugged", 7, True, "closed")])
        self.assertIn("not declared", self.yard("functions", "--open", self.folder)[0])

    def test_switches_show(self):
        os.environ["YARD_BACKEND_PLUGGED"] = "off"
        self.addCleanup(os.environ.pop, "YARD_BACKEND_PLUGGED", None)
        # The log may say that the variable has no backend yet, because the plugin adds it later.
        out, _ = self.yard("functions", "--open", "--json", self.folder)
        p = json.loads(out)["functions"][0]["providers"][0]
        self.assertEqual((p["on"], p["reason"], p["detail"]),
                         (False, "disabled", "switched off by YARD_BACKEND_PLUGGED"))


    def test_backends_are_activated(self):
        self.put("functions_in_c")
        for command in (("functions", "--active"), ("hooks",)):
            out, _ = self.yard(*command, "--activate", "in_c", self.folder)
            self.assertRegex(out, r"(?s)active_group/plugged.* in_c +0 +process")
            out, _ = self.yard(*command, "--activate", "in_c", "--json", self.folder)
            data = json.loads(out)
            self.assertEqual(data["activations"], [{"backend": "in_c", "device": None, "waiting": False}])
            plugged = next(f for f in data["functions"] if f["group"] == "active_group" and f["name"] == "plugged")
            self.assertEqual({p["backend"]: p["active"] for p in plugged["providers"]},
                             {"plugged": False, "in_c": True})
        self.assertIn("did you mean 'plugged'?", self.wrong("hooks", "--activate", "pluged", self.folder, code=1))


class VerifyFunctions(Plugged):
    def verify(self, name, code=0):
        data = self.json("verify", self.put(name), code=code)
        self.assertEqual(data["kernels"], [])
        self.assertEqual(len(data["functions"]), 1)
        f = data["functions"][0]
        self.assertEqual((f["function"], f["backend"]), ("v_jobs/run", "judge"))
        return data, f

    def test_a_good_verifier_passes_and_is_recorded(self):
        data, f = self.verify("verifier_good")
        self.assertTrue(data["verified"])
        self.assertEqual((f["state"], f["samples"], f["accepted"], f["refused"], f["broken"], f["problems"],
                          f["why"]), ("passed", 2, 1, 1, 0, [], None))
        out, _ = self.yard("verify", self.path_of("verifier_good"))
        self.assertRegex(out, r"v_jobs/run +judge +2 +1 +1 +passed")
        self.assertIn("1 implementations of functions, 0 broken verifiers, 0 not checked.", out)
        self.assertIn("all of it passed", out)

    def test_one_that_differs_between_calls_is_broken(self):
        data, f = self.verify("verifier_moody", code=1)
        self.assertFalse(data["verified"])
        self.assertEqual(f["state"], "broken")
        self.assertEqual(f["problems"][0], "sample 1: inconsistent answers: yes; asked again: no, 1 is more than 0")

    def test_one_that_throws_is_broken_with_its_text(self):
        _, f = self.verify("verifier_throws", code=1)
        self.assertEqual((f["state"], f["broken"]), ("broken", 2))
        self.assertEqual(f["problems"], ["sample 1: it threw: no entry 7", "sample 2: it threw: no entry 7"])
        out, _ = self.yard("verify", self.path_of("verifier_throws"), code=1)
        self.assertIn("v_jobs/run judge: sample 1: it threw: no entry 7", out)

    def test_a_crash_is_reported_with_the_sample(self):
        _, err = self.yard("verify", self.put("verifier_crashes"), code=1)
        self.assertIn("in the verifier of backend 'judge' for function 'v_jobs/run' on sample 1", err)

    def test_without_samples_nothing_has_passed(self):
        data, f = self.verify("verifier_without_samples", code=1)
        self.assertFalse(data["verified"])
        self.assertEqual((f["state"], f["why"]), ("not_checked", "declares no sample arguments"))
        self.assertIn("it declares no sample arguments", data["why"])
        out, err = self.yard("verify", self.path_of("verifier_without_samples"), code=1)
        self.assertIn("not checked: declares no sample arguments", out)
        self.assertIn("does not count as verified", err)

    def test_one_function_of_a_plugin(self):
        path = self.put("verifier_good")
        data = self.json("verify", path, "--function", "v_jobs/run")
        self.assertEqual((len(data["functions"]), data["verified"]), (1, False))
        self.assertIn("did you mean 'v_jobs/run'?", self.wrong("verify", path, "--function", "v_jobs/ran"))

    def path_of(self, name):
        return os.path.join(self.folder, name + ".so")


main()
