# SPDX-License-Identifier: Apache-2.0
"""Tests the commands for a running process from outside, and an incident from its report to its end."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from command import environment, main
from serving import Service, wait_for

BROKEN = "rms_norm(f32[2,5120], f32[5120]){tenant=B}"


class Incident(Service):
    """In this incident vendor.acme returns NaN for hidden=5120 of tenant B."""

    def test_from_the_report_to_the_rule_file(self):
        service = self.start()
        pid = str(service.pid)
        self.assertIn(pid, self.yard("ps")[0])
        before = self.wrong_results(service)
        self.assertGreater(before["B,5120"], 0)
        self.assertEqual((before["A,4096"], before["B,4096"]), (0, 0))

        # Find out which kernel ran, how long it took, and why it was selected.
        out, _ = self.yard("top", pid, "--once", "--interval", "0.3")
        self.assertRegex(out, r"\n  rms_norm +vendor\.acme +[\d.]+ ?[kM]? +[\d.]+ [nu]s .*100%  ok")
        out, _ = self.yard("explain", "--pid", pid, BROKEN)
        self.assertIn("  runs vendor.acme\n", out)
        self.assertIn("reference.cpp", out)

        # The deny affects only this kernel, and only for these calls.
        out, _ = self.yard("deny", "vendor.acme", "--when", "hidden=5120,tenant=B", "--pid", pid)
        self.assertIn(f"denied vendor.acme when hidden=5120,tenant=B in process {pid}\n", out)
        after = self.wrong_results(service)
        self.assertEqual(after, {"A,4096": 0, "B,4096": 0, "B,5120": 0})
        self.assertNotIn("runs vendor.acme", self.yard("explain", "--pid", pid, BROKEN)[0])
        for other in (BROKEN.replace("5120", "4096"), BROKEN.replace("=B", "=A")):
            self.assertIn("runs vendor.acme", self.yard("explain", "--pid", pid, other)[0])
        self.assertIn("deny", self.logged())
        self.assertIn(f"user {os.getuid()}", self.logged())

        # Undo restores the wrong results, and denying again fixes them again.
        self.assertIn("took back", self.yard("undo", "--pid", pid)[0])
        self.assertGreater(self.wrong_results(service)["B,5120"], 0)

        # The printed statement has the same effect in a rule file of a new process.
        statement = out.split("rule file:\n")[1]
        path = os.path.join(self.folder(), "rules.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(line[4:] for line in statement.splitlines()) + "\n")
        self.yard("config", "load", path, "--pid", pid)
        self.assertEqual(self.wrong_results(service)["B,5120"], 0)
        again = self.start(YARD_CONFIG=path)
        self.assertEqual(self.wrong_results(again), {"A,4096": 0, "B,4096": 0, "B,5120": 0})


class Commands(Service):
    def setUp(self):
        self.service = self.start()
        self.pid = str(self.service.pid)

    def live(self, *arguments, code=0):
        return self.yard(*arguments, "--pid", self.pid, code=code)[0]

    def live_json(self, *arguments, code=0):
        return self.json(*arguments, "--pid", self.pid, code=code)

    def test_ps(self):
        rows = [line for line in self.yard("ps")[0].splitlines() if line.split()[0] == self.pid]
        self.assertRegex(rows[0], r"serving_program +\d+\.\d+\.\d+ +\d+ s +\d+")
        process = [p for p in self.json("ps")["processes"] if p["pid"] == self.service.pid][0]
        self.assertEqual(os.path.basename(process["program"]), "serving_program")
        self.assertLess(abs(process["started"] - time.time()), 600)
        self.assertIsNone(process["problem"])

    def test_ps_lists_processes_that_do_not_answer(self):
        silent = [self.start() for _ in range(3)]
        for service in silent:
            service.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        found = {p["pid"]: p for p in self.json("ps")["processes"]}
        self.assertLess(time.monotonic() - start, 2)  # takes 0.3 s on an idle machine
        for service in silent:
            self.assertIn("has not answered in time", found[service.pid]["problem"])
            self.assertEqual(os.path.basename(found[service.pid]["program"]), "serving_program")
            self.assertIsNone(found[service.pid]["version"])
        out = [line for line in self.yard("ps")[0].splitlines() if line.split()[0] == str(silent[0].pid)]
        self.assertIn("has not answered in time", out[0])

    def test_status(self):
        out = self.live("status")
        self.assertIn(f"process      {self.pid}\n", out)
        self.assertIn("rules        none\n", out)
        self.assertIn("breakers     all closed\n", out)
        self.assertIn("last change  none\n", out)
        self.live("log", "info")
        status = self.live_json("status")
        self.assertEqual(status["pid"], self.service.pid)
        self.assertEqual(status["last_change"]["command"], "log")
        self.assertRegex(self.live("status"), r"last change  log level=info, \d+ s ago by yard \(user \d+, process \d+\)")

    def test_policy(self):
        self.assertEqual(self.live("policy"), "nothing set\n")
        out = self.live("policy", "prefer=reference", "strict=on")
        self.assertIn("set prefer=reference, strict=on in process", out)
        self.assertRegex(self.live("policy"), r"prefer +reference +process\nstrict +true +process\n")
        self.assertIn("runs reference.cpp", self.live("explain", BROKEN))
        self.live("policy", "prefer=null")
        self.assertEqual(list(self.live_json("policy")["policy"]), ["strict"])
        self.live("undo")
        self.assertEqual(self.live_json("policy")["policy"]["prefer"], "reference")
        self.live("policy", "--reset")
        self.assertEqual(self.live_json("policy")["policy"], {})
        self.assertIn("invalid field: expected FIELD=VALUE, got 'strict'", self.wrong("policy", "strict", "--pid", self.pid))
        self.assertIn("prefr", self.wrong("policy", "prefr=vendor", "--pid", self.pid))
        self.assertIn("--reset", self.wrong("policy", "strict=on", "--reset", "--pid", self.pid))

    def test_deny_and_allow(self):
        self.live("deny", "vendor.acme", "--op", "rms_norm")
        self.assertNotIn("runs vendor.acme", self.live("explain", BROKEN))
        self.assertIn("is denied already", self.yard("deny", "vendor.acme", "--op", "rms_norm", "--pid", self.pid, code=1)[1])
        self.live("allow", "vendor.acme", "--op", "rms_norm")
        self.assertIn("runs vendor.acme", self.live("explain", BROKEN))
        self.assertIn("did you mean 'vendor.acme'?", self.wrong("deny", "vendor.acm", "--pid", self.pid))
        self.assertIn("no deny of 'vendor.acme'", self.yard("allow", "vendor.acme", "--pid", self.pid, code=1)[1])
        self.assertIn("invalid when: expected FIELD=VALUE",
                      self.wrong("deny", "vendor.acme", "--when", "hidden", "--pid", self.pid))
        self.assertIn("effect", self.live_json("deny", "vendor.acme"))

    def test_deny_says_what_takes_over(self):
        out = self.live("deny", "vendor.acme", "--op", "rms_norm", "--dry-run")
        self.assertIn(f"would deny vendor.acme for rms_norm in process {self.pid}\n", out)
        self.assertRegex(out, r"rms_norm: default\.simd takes over from vendor\.acme for \d kinds of calls")
        self.assertEqual(self.live("changes"), "no changes\n")
        self.assertIn("runs vendor.acme", self.live("explain", BROKEN))
        effect = self.live_json("deny", "vendor.acme", "--op", "rms_norm")["effect"]
        row = effect["takes_over"][0]
        self.assertEqual((row["op"], row["from"], row["to"]), ("rms_norm", "vendor.acme", "default.simd"))
        # The times of both kernels are known once both have run.
        wait_for(lambda: self.live_json("allow", "vendor.acme", "--op", "rms_norm", "--dry-run")
                 ["effect"]["takes_over"][0]["measured"])
        out = self.live("allow", "vendor.acme", "--op", "rms_norm")
        self.assertRegex(out, r"vendor\.acme takes over from default\.simd for .* instead of .* times as long \(measured\)")

    def test_a_refused_deny_is_no_refused_reload(self):
        path = os.path.join(self.folder(), "rules.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write('version: "1.0"\n')
        self.live("config", "load", path)
        # Calls are known again after they were made under the new rules.
        wait_for(lambda: self.live_json("deny", "vendor.acme", "--dry-run")["effect"]["takes_over"])
        message = self.yard("deny", "*", "--pid", self.pid, code=1)[1]
        self.assertIn("would be left without a kernel", message)
        self.assertNotIn("error", message)
        self.assertNotIn("rules.yaml", message)
        self.assertNotIn("rules.yaml: error", self.logged())
        self.assertEqual(self.json("top", self.pid, "--interval", "0.1")["reloads"]["refused"], 0)

    def test_several_processes_at_once(self):
        other = self.start()
        both = f"{self.pid},{other.pid}"
        out, _ = self.yard("deny", "vendor.acme", "--pid", both)
        for pid in (self.pid, str(other.pid)):
            self.assertIn(f"denied vendor.acme in process {pid}\n", out)
            self.assertNotIn("runs vendor.acme", self.yard("explain", BROKEN, "--pid", pid)[0])
        self.live("undo")
        answers = self.json("deny", "vendor.acme", "--pid", both, code=1)["processes"]
        self.assertEqual([a["pid"] for a in answers], [self.service.pid, other.pid])
        self.assertIn("effect", answers[0])
        self.assertIn("is denied already", answers[1]["error"])
        # Processes of other users may exist and refuse.
        out = subprocess.run([os.environ["YARD"], "allow", "vendor.acme", "--all", "--dry-run"], env=environment(),
                             capture_output=True, text=True).stdout
        for pid in (self.pid, str(other.pid)):
            self.assertIn(f"would allow vendor.acme in process {pid}\n", out)
        self.assertIn("--all", self.wrong("deny", "vendor.acme", "--all", "--pid", self.pid))

    def test_plugins(self):
        path = os.path.join(self.folder(), "answer.so")
        shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], "answer.so"), path)
        os.chmod(path, 0o700)
        out = self.live("plugin", "load", path, "--dry-run")
        self.assertIn(f"process {self.pid} would load answer", out)
        self.assertNotIn("answer(", self.live("explain", "answer(f32[1])", code=2))
        self.assertIn("loaded plugin answer", self.live("plugin", "load", path))
        self.live("plugin", "replace", "answer")
        other = os.path.join(self.folder(), "other.so")
        shutil.copyfile(os.path.join(os.environ["TEST_PLUGINS"], "answer_other_op.so"), other)
        os.chmod(other, 0o700)
        self.live("plugin", "replace", "answer", other, "--allow-incompatible")
        self.assertIn("other_answer(", self.live("explain", "other_answer(i64[1])"))
        self.live("undo")
        self.assertIn("unloaded plugin answer", self.live("plugin", "unload", "answer"))
        self.live("undo")
        self.live("undo")
        self.assertIn("no plugin 'answer' is loaded", self.wrong("plugin", "unload", "answer", "--pid", self.pid))
        # Loading runs the usual checks.
        os.chmod(path, 0o777)
        self.assertIn("writable_by_others", self.wrong("plugin", "load", path, "--pid", self.pid))
        self.assertIn("writable_by_others", self.wrong("plugin", "load", path, "--dry-run", "--pid", self.pid))

    def test_breakers(self):
        self.assertEqual(self.live("breaker", "list"), "all closed\n")
        self.live("breaker", "open", "vendor.acme", "--reason", "bad firmware")
        out = self.live("breaker", "list")
        self.assertRegex(out, r"rms_norm +vendor\.acme +open +\S+.* - +all")
        self.assertNotIn("runs vendor.acme", self.live("explain", BROKEN))
        self.assertIn("1 not closed", self.live("status"))
        self.live("breaker", "close", "vendor.acme", "--op", "rms_norm")
        self.assertEqual(self.live("breaker", "list"), "all closed\n")
        self.live("breaker", "reset", "vendor.acme")
        self.assertIn("vendor.acm", self.wrong("breaker", "open", "vendor.acm", "--pid", self.pid))
        self.assertEqual(self.live_json("breaker", "list")["breakers"], [])

    def test_rules(self):
        path = os.path.join(self.folder(), "rules.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write('version: "1.0"\nkernel_denies: [vendor.acme]\n')
        self.assertEqual(self.live("config", "history"), "no rules were loaded\n")
        # A relative path is relative to the command's folder, not to the process's.
        run = subprocess.run([os.environ["YARD"], "config", "load", "rules.yaml", "--pid", self.pid],
                             cwd=os.path.dirname(path), env=environment(), capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn(f"loaded {path} into process", run.stdout)
        self.assertIn(f"rules        version 1 of {path}", self.live("status"))
        self.live("deny", "reference.cpp", "--when", "hidden=5120")
        self.assertRegex(self.live("config", "history"), rf"(?s) 1 +\d+ s +\w{{8}} +{path}\n.* 2 .*in force")
        self.live("config", "rollback", "1")
        self.assertEqual(self.live_json("config", "history")["versions"][-1]["in_force"], True)
        with open(path, "w", encoding="utf-8") as f:
            f.write('version: "1.0"\nkernel_deny: []\n')
        self.assertIn("kernel_deny", self.yard("config", "load", path, "--pid", self.pid, code=2)[1])
        self.assertIn("--pid", self.wrong("config", "history"))
        self.assertIn("--pid", self.wrong("config", "load", path))

    def test_explain(self):
        here, there = self.json("explain", "softmax(f32[4,8])"), self.live_json("explain", "softmax(f32[4,8])")
        self.assertEqual(list(there), list(here))
        for c in there["candidates"] + here["candidates"]:
            del c["estimate_ns"], c["detail"]  # these may contain measured times
        self.assertEqual(there["candidates"], here["candidates"])
        texts = [re.sub(r" +~.*", "", self.yard("explain", "softmax(f32[4,8])", *more)[0])
                 for more in ((), ("--pid", self.pid))]
        self.assertEqual(*texts)
        self.live("deny", "vendor.acme", "--when", "tenant=C")
        self.assertIn("runs vendor.acme", self.live("explain", "rms_norm(f32[2,64], f32[64])"))
        self.assertNotIn("runs vendor.acme", self.live("explain", "rms_norm(f32[2,64], f32[64])", "--label", "tenant=C"))
        self.assertIn("--pid: expected no --prefer", self.wrong("explain", BROKEN, "--prefer", "vendor", "--pid", self.pid))
        self.assertIn("op 'rms_nrm' is not known", self.wrong("explain", "rms_nrm(f32[2])", "--pid", self.pid))
        self.live("deny", "*", "--op", "softmax")
        self.assertIn("no kernel is allowed", self.live("explain", "softmax(f32[4,8])", code=1))

    def test_changes_and_undo(self):
        self.assertEqual(self.live("changes"), "no changes\n")
        self.live("deny", "vendor.acme")
        self.live("log", "debug", "--logger", "select")
        self.live("undo")
        rows = self.live("changes").splitlines()[1:]
        self.assertRegex(rows[0], r"^ +\d+  log level=debug logger=select +\d+ s ago by yard \(.*\) +undone$")
        self.assertRegex(rows[1], r"^ +\d+  deny kernel=vendor\.acme +\d+ s ago by yard")
        self.assertEqual([c["undone"] for c in self.live_json("changes")["changes"]], [False, True])
        self.assertIn("took back in process", self.live("undo"))
        self.assertIn("no change to undo", self.yard("undo", "--pid", self.pid, code=1)[1])

    def test_undo_takes_the_number_that_a_command_printed(self):
        first = re.search(r"yard undo (\d+) --pid", self.live("deny", "vendor.acme", "--when", "hidden=5120"))[1]
        self.live("log", "debug", "--logger", "select")
        self.live("deny", "vendor.acme", "--when", "tenant=C")
        self.assertIn("took back in process", self.live("undo", first))
        self.assertIn("runs vendor.acme", self.live("explain", BROKEN))
        self.assertNotIn("runs vendor.acme", self.live("explain", "rms_norm(f32[2,64], f32[64])", "--label", "tenant=C"))
        self.assertIn("is undone already", self.yard("undo", first, "--pid", self.pid, code=1)[1])
        self.assertIn("there is no change 999", self.wrong("undo", "999", "--pid", self.pid))
        self.assertIn("ID: expected a whole number", self.wrong("undo", "x", "--pid", self.pid))
        one = self.live_json("policy", "strict=on")["change"]
        two = self.live_json("policy", "prefer=vendor")["change"]
        self.assertIn(f"was followed by change {two}: undo that first", self.yard("undo", str(one), "--pid", self.pid, code=1)[1])
        self.live("undo", str(two)), self.live("undo", str(one))
        self.assertEqual(self.live("policy"), "nothing set\n")

    def test_a_reason_of_a_breaker_is_seen_everywhere(self):
        self.live("breaker", "open", "vendor.acme", "--reason", "bad firmware")
        events = wait_for(lambda: [e for e in self.live_json("events")["events"] if e["kind"] == "breaker_opened"])
        self.assertEqual(events[0]["reason"], "manual override: bad firmware")
        self.assertIn(f"user {os.getuid()}, process", events[0]["who"])
        self.assertRegex(self.live("breaker", "list"), r"vendor\.acme +open +\d+ s +- +all +bad firmware\n")
        self.assertIn("was opened manually: bad firmware", self.live("explain", BROKEN))
        self.assertIn("bad firmware", self.live("status"))
        self.assertIn("bad firmware", self.live("events"))

    def test_events_and_drift(self):
        self.assertIn("last error   none\n", self.live("status"))
        path = os.path.join(self.folder(), "rules.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write('version: "1.0"\nkernel_deny: []\n')
        self.yard("config", "load", path, "--pid", self.pid, code=2)
        self.live("deny", "vendor.acme", "--when", "tenant=C")
        status = self.live("status")
        self.assertRegex(status, rf"drift        \d+ s ago: refused file: rules_refused +{path}: .*kernel_deny.*, by user")
        self.assertRegex(status, rf"last error   \d+ s ago: {path}: .*kernel_deny")
        kinds = [e["kind"] for e in self.live_json("events")["events"]]
        self.assertEqual([k for k in kinds if not k.startswith("plugin")],
                         ["rules_refused", "change_refused", "rules", "change"])
        with open(path, "w", encoding="utf-8") as f:
            f.write('version: "1.0"\n')
        self.live("config", "load", path)
        drift = self.live_json("status")["drift"]
        self.assertEqual([re.sub(r"\d+", "N", d["what"]) for d in drift], ["replaced change N"])
        self.live("undo")
        self.assertIn("undone change", [d["what"] for d in self.live_json("status")["drift"]])
        # `events -f` prints events as they happen, and ends with the process.
        follow = subprocess.Popen([os.environ["YARD"], "events", "-f", "--json", "--pid", self.pid], env=environment(),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [json.loads(follow.stdout.readline()) for _ in range(len(self.live_json("events")["events"]))]
        self.live("log", "info")
        lines.append(json.loads(follow.stdout.readline()))
        self.assertEqual((lines[0]["id"], lines[-1]["kind"], lines[-1]["subject"]), (1, "change", "log"))
        self.service.kill()
        self.assertIn("has ended", follow.communicate(timeout=60)[0])  # also in JSON

    def test_events_outlive_the_process_in_a_file(self):
        path = os.path.join(self.folder(), "events")
        service = self.start(YARD_EVENTS=path)
        self.yard("breaker", "open", "vendor.acme", "--pid", str(service.pid))
        def written():
            with open(path, encoding="utf-8") as f:
                return [json.loads(line) for line in f.read().splitlines()]
        wait_for(lambda: "breaker_opened" in [e["kind"] for e in written()])
        service.kill()
        self.assertEqual({e["process"] for e in written()}, {service.pid})
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_log(self):
        self.live("log", "debug")
        self.assertIn("process", self.live("log", "warn", "--logger", "select"))
        self.assertIn("LEVEL: expected debug, info, warn, error or off", self.wrong("log", "loud", "--pid", self.pid))
        self.assertIn("--logger: expected", self.wrong("log", "info", "--logger", "sel", "--pid", self.pid))

    def test_verbose(self):
        self.assertEqual(self.live("verbose", "1"), f"process {self.pid}: verbose 1\n")
        wait_for(lambda: "yard,exec,rms_norm,vendor.acme," in self.logged())
        self.live("verbose", "0")
        self.assertIn("VERBOSITY: expected a whole number from 0 to 2", self.wrong("verbose", "3", "--pid", self.pid))

    def test_trace(self):
        path = os.path.join(self.folder(), "t.json")
        out = self.live("trace", "--seconds", "0.3", "-o", path)
        self.assertIn(f"events of process {self.pid}", out)
        with open(path, encoding="utf-8") as f:
            trace = json.load(f)
        spans = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
        self.assertGreater(len(spans), 3)
        self.assertEqual({e["args"]["kernel"] for e in spans}, {"vendor.acme"})
        # Events are dropped after the service has made a few hundred calls.
        wait_for(lambda: self.live_json("trace", "--seconds", "0.1", "--max-events", "2", "-o", path)["dropped"] > 0)
        # Ctrl-C ends the trace early, and the file is still written.
        os.unlink(path)
        run = subprocess.Popen([os.environ["YARD"], "trace", "--seconds", "500", "-o", path, "--pid", self.pid],
                               env=environment(), stdout=subprocess.PIPE)
        wait_for(lambda: "on" in [line.split()[1] for line in self.live("status").splitlines()
                                  if line.startswith("trace")])
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0)
        self.assertTrue(os.path.getsize(path) > 0)
        self.assertIn("trace        off", self.live("status"))

    def test_record(self):
        path = os.path.join(self.folder(), "calls.txt")
        self.live("record", path)
        self.assertIn(f"recording    {path}", self.live("status"))
        time.sleep(0.2)
        self.live("record", "--stop")
        with open(path, encoding="utf-8") as f:
            self.assertIn("rms_norm(f32[2,5120]", f.read())
        self.assertIn("expected a FILE to record to, or --stop", self.wrong("record", "--pid", self.pid))

    def test_top_as_json(self):
        data = self.json("top", self.pid, "--interval", "0.3")
        kernel = [k for k in data["kernels"] if k["kernel"] == "vendor.acme"][0]
        self.assertEqual(data["pid"], self.service.pid)
        self.assertGreater(kernel["calls_per_s"], 0)
        self.assertGreater(kernel["p99_ns"], 0)
        self.assertAlmostEqual(sum(k["share"] for k in data["kernels"]), 1)
        self.assertTrue(any(c["call"].startswith("rms_norm(f32[2,") for c in data["classes"]))
        out, _ = self.yard("top", self.pid, "--once", "--op", "rms_norm", "--interval", "0.1")
        self.assertIn("plans and rejected candidates", out)
        self.assertRegex(out, r"reference\.cpp  outranked")
        self.assertIn("expected a terminal", self.wrong("top", self.pid))

    def test_several_processes_need_a_number(self):
        other = self.start()
        message = self.wrong("status")
        self.assertRegex(message, r"^yard: \d+ processes answer: name one, with --pid PID\n")
        for pid in (self.pid, str(other.pid)):
            self.assertIn(f"\n  {pid}  serving_program\n", message)

    def test_completion(self):
        for words in (["status", "--pid", ""], ["top", ""]):
            self.assertIn(self.pid, [row.split("\t")[0] for row in self.yard("complete", *words)[0].splitlines()])


class Errors(Service):
    def test_no_such_process(self):
        self.assertEqual(self.wrong("status", "--pid", "2147483646"),
                         "yard: there is no process 2147483646\n  yard ps lists the processes that answer\n")
        self.assertIn("PID: expected a whole number from 1", self.wrong("top", "x"))

    def test_a_process_that_does_not_answer(self):
        self.assertIn(f"process {os.getpid()} does not answer", self.yard("status", "--pid", str(os.getpid()), code=1)[1])
        service = self.start(YARD_INSPECT="off")
        self.assertIn("does not answer", self.yard("status", "--pid", str(service.pid), code=1)[1])
        self.assertNotIn(str(service.pid), self.yard("ps")[0])

    def test_another_users_process(self):
        if os.getuid() == 0:
            run = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", os.environ["YARD"], "status",
                                  "--pid", str(os.getpid())], env=environment(), capture_output=True, text=True)
            if run.returncode == 127 or "setpriv" in run.stderr or "Permission" in run.stderr:
                self.skipTest("the command cannot be run as another user")
        else:
            run = subprocess.run([os.environ["YARD"], "status", "--pid", "1"], env=environment(),
                                 capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("belongs to another user", run.stderr)

    def answers(self, *lines):
        """Lets this process answer requests with these lines."""
        service = self.start()  # the service makes the directory
        path = [p for p in self.json("ps")["processes"] if p["pid"] == service.pid][0]["socket"]
        listener = socket.socket(socket.AF_UNIX)
        own = os.path.join(os.path.dirname(path), f"{os.getpid()}.sock")
        if os.path.exists(own):
            os.unlink(own)
        listener.bind(own)
        self.addCleanup(os.unlink, own)
        listener.listen(4)
        self.addCleanup(listener.close)

        def serve():
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection, connection.makefile("rw") as file:
                        for line in lines:
                            if not file.readline():
                                break  # connect() only checks whether somebody answers
                            file.write(line + "\n")
                            file.flush()
            except OSError:
                pass  # the listener is closed

        threading.Thread(target=serve, daemon=True).start()

    def test_a_process_of_a_newer_version(self):
        self.answers('{"v": 2, "id": 1, "ok": true, "result": {}}')
        message = self.wrong("status", "--pid", str(os.getpid()))
        self.assertIn("answers in version 2 of the protocol: expected 1", message)
        self.assertIn("version 2", self.json("status", "--pid", str(os.getpid()), code=2)["error"])

    def test_answers_that_are_none(self):
        self.answers("[1, 2")
        self.yard("status", "--pid", str(os.getpid()), code=1)

    def test_answers_with_control_characters(self):
        self.answers('{"v": 1, "id": 1, "ok": true, "result": {"policy": "\\u001b[31mred\\nline"}}')
        out, _ = self.yard("status", "--pid", str(os.getpid()))
        self.assertNotIn("\x1b", out)


main()
