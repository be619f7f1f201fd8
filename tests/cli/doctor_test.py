# SPDX-License-Identifier: Apache-2.0
"""Tests yard doctor: its findings, the alignment of its tables, and what it says about the
environment."""
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile

from command import Yard, environment, main


class Doctor(Yard):
    def doctor(self, **variables):
        run = subprocess.run([os.environ["YARD"], "doctor", "--json"], capture_output=True, text=True,
                             env=environment(**variables), timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return json.loads(run.stdout)

    def test_json(self):
        data = self.json("doctor")
        self.assertTrue(data["ok"])
        self.assertEqual(data["version"], self.yard("--version")[0].strip())
        machine = data["machine"]
        self.assertEqual(machine["architecture"], platform.machine())
        self.assertGreaterEqual(machine["cores"], machine["cores_allowed"])
        self.assertGreaterEqual(machine["memory_bytes"], machine["memory_allowed_bytes"])
        self.assertGreaterEqual(machine["threads"], 1)
        self.assertRegex(data["build"]["compiler"], r"^(g\+\+|clang) \d+\.\d+\.\d+$")
        self.assertIn("onednn", data["build"]["parts"])

    def test_agrees_with_list(self):
        data = self.json("doctor")
        ops = self.json("list")["ops"]
        self.assertEqual(data["ops"], len(ops))
        self.assertEqual(data["kernels"], sum(len(op["kernels"]) for op in ops))
        available = [k for op in ops for k in op["kernels"] if k["available"]]
        self.assertEqual(data["kernels_available"], len(available))
        backends = {b["name"]: b for b in data["backends"]}
        self.assertTrue(backends["reference"]["available"])
        self.assertEqual(set(backends), {k["backend"] for op in ops for k in op["kernels"]})
        for name, built in data["build"]["parts"].items():
            if name in ("simd", "onednn"):
                self.assertEqual(built, name in backends, name)

    def test_features_are_those_of_the_kernel(self):
        with open("/proc/cpuinfo") as file:
            words = set(file.read().split())
        features = {f["name"]: f for f in self.json("doctor")["features"]}
        base = "neon" if platform.machine() == "aarch64" else "sse2"
        self.assertTrue(features[base]["usable"])
        for name in ("avx2", "avx512f", "sve", "sve2", "bf16"):
            if name in features:
                self.assertEqual(features[name]["listed"], name in words, name)

    def test_text_lines_up(self):
        out, err = self.yard("doctor")
        self.assertEqual(err, "")
        for head in ("Machine", "Build", "Backends", "Problems"):
            self.assertIn(f"{head}\n", out)
        rows = [line for line in out.splitlines() if re.match(r"  (name|reference) ", line)]
        self.assertEqual(rows[0].index("available"), rows[1].index("yes"))
        self.assertNotIn("\x1b", out)
        self.assertTrue(all(line == line.rstrip() for line in out.splitlines()))

    def test_colour_on_a_terminal_only(self):
        self.assertIn("\x1b[1m", self.on_terminal("doctor"))
        self.assertNotIn("\x1b[", self.on_terminal("doctor", NO_COLOR="1"))

    def test_plugins_are_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            good, bad = os.path.join(folder, "answer.so"), os.path.join(folder, "abi_too_new.so")
            for path in (good, bad):
                shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], os.path.basename(path)), path)
                os.chmod(path, 0o700)
            os.environ["YARD_PLUGINS"] = good
            self.addCleanup(os.environ.pop, "YARD_PLUGINS", None)
            data = self.json("doctor")
            self.assertEqual([(p["name"], p["state"]) for p in data["plugins"]], [("answer", "found")])
            self.assertNotIn("answer", [b["name"] for b in data["backends"]])
            self.assertIn("--open opens them", self.yard("doctor")[0])
            data = self.json("doctor", "--open")
            self.assertEqual([(p["name"], p["state"]) for p in data["plugins"]], [("answer", "loaded")])
            self.assertIn("answer", [b["name"] for b in data["backends"]])

            os.environ["YARD_PLUGINS"] = f"{good},{bad}"
            data = self.json("doctor", code=1)
            self.assertFalse(data["ok"])
            self.assertEqual({p["state"]: p["reason"] for p in data["plugins"]},
                             {"found": None, "refused": "abi_too_new"})
            problem, = [p for p in data["problems"] if p["broken"]]
            self.assertIn(f"plugin {bad} is refused: abi_too_new: it was made for ABI 7", problem["what"])
            self.assertIn(f"yard plugin inspect {bad}", problem["repair"])
            out, _ = self.yard("doctor", code=1)
            self.assertIn("Plugins\n", out)
            self.assertIn("broken plugin", out)

    def test_a_plugin_that_cannot_be_opened_is_a_problem(self):
        path = os.path.join(os.environ["TEST_PLUGINS"], "start_fails.so")
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copyfile(path, os.path.join(folder, "start_fails.so"))
            os.chmod(copy, 0o700)
            os.environ["YARD_PLUGINS"] = copy
            self.addCleanup(os.environ.pop, "YARD_PLUGINS", None)
            self.assertEqual(self.json("doctor")["plugins"][0]["state"], "found")
            data = self.json("doctor", "--open", code=1)
            self.assertEqual(data["plugins"][0]["reason"], "start_failed")

    def test_an_unavailable_backend_of_a_plugin_is_a_note(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], "probe_fails.so"),
                                   os.path.join(folder, "probe_fails.so"))
            os.chmod(copy, 0o700)
            os.environ["YARD_PLUGINS"] = copy
            self.addCleanup(os.environ.pop, "YARD_PLUGINS", None)
            data = self.json("doctor", "--open", code=1)  # no other kernel serves the op
            backend, = [b for b in data["backends"] if b["name"] == "probe_fails"]
            self.assertFalse(backend["available"])
            self.assertIn("no board is in the slot", backend["detail"])
            note, = [p for p in data["problems"] if "backend probe_fails is not available" in p["what"]]
            self.assertFalse(note["broken"])

    def test_a_refused_rule_file_is_a_problem(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write('version: "1.0"\nsettings: {mode: dynamc}\n')
            file.flush()
            os.environ["YARD_CONFIG"] = file.name
            self.addCleanup(os.environ.pop, "YARD_CONFIG", None)
            problem, = self.json("doctor", code=1)["problems"]
            self.assertTrue(problem["broken"])
            self.assertIn(f"{file.name}:2:18: error: settings.mode", problem["what"])
            self.assertIn("yard config check", problem["repair"])
        os.environ["YARD_CONFIG"] = "/nowhere.yaml"
        self.assertIn("/nowhere.yaml", self.json("doctor", code=1)["problems"][0]["what"])

    def test_variables_are_shown(self):
        data = self.doctor(YARD_PREFER="vendor")
        self.assertIn({"name": "YARD_PREFER", "value": "vendor", "problems": []}, data["environment"])
        self.assertEqual([p for p in data["problems"] if "YARD_PREFER" in p["what"]], [])

    def test_invalid_variables_are_shown(self):
        problems = self.doctor(YARD_PREFR="vendor", YARD_STRICT="maybe",
                               YARD_BACKEND_REFERENC="off")["problems"]
        found = {p["what"].split("=")[0]: p["what"] for p in problems}
        self.assertIn("did you mean 'YARD_PREFER'?", found["YARD_PREFR"])
        self.assertIn("maybe: expected 0/1, off/on, false/true or no/yes", found["YARD_STRICT"])
        self.assertIn("YARD_BACKEND_REFERENCE", found["YARD_BACKEND_REFERENC"])
        self.assertTrue(all(not p["broken"] for p in problems))


main()
