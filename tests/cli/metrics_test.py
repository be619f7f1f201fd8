# SPDX-License-Identifier: Apache-2.0
"""Tests yard metrics and yard report of a running process."""
import json
import os
import pathlib
import re
import shutil
import subprocess

from command import main
from report_test import Page
from serving import Service, wait_for


def total(text, name):
    """Returns the sum of all series of a metric."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"[{ ]", line))


class Metrics(Service):
    def text(self, pid):
        run = subprocess.run([os.environ["YARD"], "metrics", "--pid", pid], capture_output=True, text=True)
        if "expected prometheus-cpp" in run.stderr:
            self.skipTest(run.stderr)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout

    def test_text_is_that_of_prometheus(self):
        pid = str(self.start().pid)
        text = self.text(pid)
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) yard_\w+ .+|yard_\w+(\{[^{}]*\})? \S+)$")
        self.assertIn('yard_calls_total{op="rms_norm",kernel="vendor.acme",mode="', text)
        self.assertIn('yard_breaker_state{op="rms_norm",kernel="vendor.acme"} 0\n', text)
        self.assertGreater(total(text, "yard_call_seconds_count"), 0)
        calls = total(text, "yard_calls_total")
        self.assertGreater(wait_for(lambda: total(self.text(pid), "yard_calls_total") - calls), 0)
        if shutil.which("promtool"):
            run = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_breakers_and_reloads_are_shown(self):
        pid = str(self.start().pid)
        self.text(pid)
        self.yard("breaker", "open", "vendor.acme", "--op", "rms_norm", "--pid", pid)
        rules = pathlib.Path(self.folder(), "rules.yaml")
        rules.write_text("version: \"1.0\"\nkernel_locks:\n  rms_norm: reference.cpp\n", encoding="utf-8")
        self.yard("config", "load", str(rules), "--pid", pid)
        text = self.text(pid)
        self.assertIn('yard_breaker_state{op="rms_norm",kernel="vendor.acme"} 2\n', text)
        self.assertIn('yard_reloads_total{result="applied"} 1\n', text)
        self.assertIn('kernel="reference.cpp"', text)

    def test_file_and_json(self):
        pid = str(self.start().pid)
        self.text(pid)
        file = pathlib.Path(self.folder(), "yard.prom")
        out, _ = self.yard("metrics", "--pid", pid, "--textfile", str(file))
        self.assertEqual(out, "")
        self.assertIn("yard_calls_total", file.read_text(encoding="utf-8"))
        self.assertEqual(os.listdir(file.parent), ["yard.prom"])
        data = self.json("metrics", "--pid", pid)
        self.assertEqual(data["pid"], int(pid))
        calls = next(m for m in data["metrics"] if m["name"] == "yard_calls_total")
        self.assertEqual(calls["type"], "counter")
        self.assertEqual(calls["samples"][0]["labels"]["op"], "rms_norm")

    def test_errors(self):
        self.assertIn("there is no process 2000000000", self.wrong("metrics", "--pid", "2000000000"))
        self.assertIn("there is no process 2000000000", self.wrong("report", "--pid", "2000000000"))
        self.assertIn("--pid: expected a whole number", self.wrong("metrics", "--pid", "x"))
        self.assertIn("--seconds: expected a number from 0 to 3600", self.wrong("report", "--seconds", "-1"))


class ReportOfAProcess(Service):
    def test_has_figures_rates_and_changes(self):
        pid = str(self.start().pid)
        self.yard("deny", "vendor.acme", "--when", "hidden=5120", "--pid", pid)
        rules = pathlib.Path(self.folder(), "rules.yaml")
        rules.write_text("version: \"1.0\"\nkernel_locks:\n  rms_norm: reference.cpp\n", encoding="utf-8")
        self.yard("config", "load", str(rules), "--pid", pid)
        self.yard("breaker", "open", "vendor.acme", "--op", "rms_norm", "--reason", "<b>", "--pid", pid)
        page = pathlib.Path(self.folder(), "r.html")
        out, _ = self.yard("report", "--pid", pid, "--seconds", "1.2", "-o", str(page))
        self.assertEqual(out, f"wrote {page}\n")
        parsed = Page(page.read_text(encoding="utf-8"))
        self.assertEqual(parsed.texts["h1"], f"serving_program ({pid})")
        data = json.loads(parsed.texts["data"])
        self.assertFalse(data["exact"])
        self.assertFalse(data["relative"])
        self.assertEqual(data["sampled_one_in"], 128)
        def of(kernel, figure):
            return sum(c[figure] for c in data["calls"] if c["kernel"] == kernel)

        self.assertGreater(of("vendor.acme", "calls"), 0)
        self.assertEqual(of("vendor.acme", "rate"), 0)
        self.assertGreater(of("reference.cpp", "rate"), 0)
        self.assertGreater(of("reference.cpp", "time_ns"), 0)
        self.assertAlmostEqual(data["seconds"], 1.2, delta=1)
        self.assertEqual(len(data["rates"]["times"]), 3)
        self.assertEqual([s["op"] for s in data["rates"]["series"]], ["rms_norm"])
        self.assertEqual([b["kernel"] for b in data["breakers"]], ["vendor.acme"])
        self.assertGreaterEqual(data["reloads"]["applied"], 1)
        self.assertEqual(data["reloads"]["refused"], 0)
        kinds = [e["kind"] for e in data["events"]]
        self.assertEqual(sorted(set(kinds)), ["breaker_opened", "change", "rules"])
        self.assertEqual([e["text"] for e in data["events"] if e["kind"] == "change"], ["deny", "config.load", "breaker"])
        self.assertTrue(any("kernel_locks" in e["detail"] for e in data["events"] if e["kind"] == "rules"))


if __name__ == "__main__":
    main()
