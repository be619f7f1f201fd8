# SPDX-License-Identifier: Apache-2.0
"""Seeing and steering a running process: each command from outside, and an incident from its report to its end."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from command import environment, main
from serving import Service, wait_for

BROKEN = "rms_norm(f32[2,5120], f32[5120]){tenant=B}"


class Incident(Service):
    """vendor.acme returns NaN for hidden=5120 of tenant B."""

    def test_from_the_report_to_the_rule_file(self):
        service = self.start()
        pid = str(service.pid)
        self.assertIn(pid, self.yard("ps")[0])
        before = self.wrong_results(service)
        self.assertGreater(before["B,5120"], 0)
        self.assertEqual((before["A,4096"], before["B,4096"]), (0, 0))

        # Which kernel ran, how long, and why?
        out, _ = self.yard("top", pid, "--once", "--interval", "0.3")
        self.assertRegex(out, r"\n  rms_norm +vendor\.acme +[\d.]+ ?[kM]? +[\d.]+ [nu]s .*100%  ok")
        out, _ = self.yard("explain", "--pid", pid, BROKEN)
        self.assertIn("  runs vendor.acme\n", out)
        self.assertIn("reference.cpp", out)

        # Only that kernel, only for these calls.
        out, _ = self.yard("deny", "vendor.acme", "--when", "hidden=5120,tenant=B", "--pid", pid)
        self.assertIn(f"denied vendor.acme when hidden=5120,tenant=B in process {pid}\n", out)
        after = self.wrong_results(service)
        self.assertEqual(after, {"A,4096": 0, "B,4096": 0, "B,5120": 0})
        self.assertNotIn("runs vendor.acme", self.yard("explain", "--pid", pid, BROKEN)[0])
        for other in (BROKEN.replace("5120", "4096"), BROKEN.replace("=B", "=A")):
            self.assertIn("runs vendor.acme", self.yard("explain", "--pid", pid, other)[0])
        self.assertIn("deny", self.logged())
        self.assertIn(f"user {os.getuid()}", self.logged())

        # Taken back, and denied again: exactly as before.
        self.assertIn("took back", self.yard("undo", "--pid", pid)[0])
        self.assertGreater(self.wrong_results(service)["B,5120"], 0)

        # The statement for the rule file has the same effect in a new process.
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
        self.assertIn("no deny of 'vendor.acme'", self.wrong("allow", "vendor.acme", "--pid", self.pid))
        self.assertIn("invalid when: expected FIELD=VALUE",
                      self.wrong("deny", "vendor.acme", "--when", "hidden", "--pid", self.pid))
        self.assertIn("effect", self.live_json("deny", "vendor.acme"))

    def test_breakers(self):
        self.assertEqual(self.live("breaker", "list"), "all closed\n")
        self.live("breaker", "open", "vendor.acme", "--reason", "bad firmware")
        out = self.live("breaker", "list")
        self.assertRegex(out, r"rms_norm +vendor\.acme +open +- +all")
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
        # A relative path is that of the command, not of the process.
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
            del c["estimate_ns"], c["detail"]  # which may be measured
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
        self.assertRegex(rows[0], r"^ +2  log level=debug logger=select +\d+ s ago by yard \(.*\) +undone$")
        self.assertRegex(rows[1], r"^ +1  deny kernel=vendor\.acme +\d+ s ago by yard")
        self.assertEqual([c["undone"] for c in self.live_json("changes")["changes"]], [False, True])
        self.assertIn("took back in process", self.live("undo"))
        self.assertIn("no change to undo", self.wrong("undo", "--pid", self.pid))

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
        # Events are dropped once the service has had time to make a few hundred calls.
        wait_for(lambda: self.live_json("trace", "--seconds", "0.1", "--max-events", "2", "-o", path)["dropped"] > 0)
        # Ctrl-C ends it early and still writes the file.
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
        self.assertIn(f"process {os.getpid()} does not answer", self.wrong("status", "--pid", str(os.getpid())))
        service = self.start(YARD_INSPECT="off")
        self.assertIn("does not answer", self.wrong("status", "--pid", str(service.pid)))
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
        """This process, which answers requests with these lines."""
        service = self.start()  # which makes the directory
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
                                break  # connect() has only looked whether somebody answers
                            file.write(line + "\n")
                            file.flush()
            except OSError:
                pass  # closed

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
