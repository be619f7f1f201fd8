# SPDX-License-Identifier: Apache-2.0
"""Tests yard bake with recordings that the command makes, and recordings that the environment asks
for."""
import json
import os
import stat
import subprocess
import tempfile

from command import Yard, environment, main

SMALL, LARGE = "softmax(f32[64,64])@cpu", "softmax(f32[512,64])@cpu"
NORM = "rms_norm(f32[8,64], f32[64], eps=1e-6)@cpu"
# The rules and calls use two kernels for one op.
RULES = """version: "1.0"
dispatch_rules:
  - {operation: softmax, conditions: {rows_gte: 512}, kernel: reference.cpp}
"""


class Bake(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return f.read()

    def calls(self):
        return self.file("calls.txt", f"# a warm-up\n7\t{SMALL}\n2\t{LARGE}\n100\t{NORM}\n3\t{SMALL}\n")

    def usual(self, call, *options):
        return self.json("explain", call, *options)["selected"]


class Files(Bake):
    def test_rule_file(self):
        out, err = self.yard("bake", "--trace", self.calls(), "--yaml", self.path("baked.yaml"))
        self.assertEqual(err, "")
        self.assertIn("baked.yaml is written.", out)
        self.assertRegex(out.splitlines()[0], r"^op +kernel +calls +served +distinct$")
        text = self.read("baked.yaml")
        self.assertIn("# Written by yard bake from calls.txt: 112 calls of 2 ops.\n", text)
        self.assertIn(f"#   10 {SMALL}\n", text)
        self.assertIn(f"  softmax: {self.usual(SMALL)}\n", text)
        self.assertIn(f"  rms_norm: {self.usual(NORM)}\n", text)
        self.yard("config", "check", self.path("baked.yaml"))
        data = self.json("explain", "--config", self.path("baked.yaml"), SMALL)
        self.assertIn("chosen by static_kernel_map (", data["candidates"][0]["detail"])

    def test_ops_that_are_not_known_are_skipped_and_named(self):
        calls = self.file("calls.txt", f"5\tacme_norm(f32[8,64])@cpu\n2\t{SMALL}\nacme_norm(f32[1])\nbeta(f32[1])\n")
        out, err = self.yard("bake", "--trace", calls)
        self.assertIn(f"softmax: {self.usual(SMALL)}", out)
        self.assertNotIn("acme", out)
        self.assertEqual(err, f"yard: {calls}: skipped 6 calls: op 'acme_norm' is not known; did you mean 'rms_norm'?\n"
                              f"yard: {calls}: skipped 1 call: op 'beta' is not known\n")
        data = self.json("bake", "--trace", calls)
        self.assertEqual(data["skipped"], [{"op": "acme_norm", "calls": 6}, {"op": "beta", "calls": 1}])
        none = self.file("none.txt", "acme_norm(f32[8,64])@cpu\n")
        _, err = self.yard("bake", "--trace", none, code=2)
        self.assertIn("there is no call of a known op in it", err)
        invalid = self.file("invalid.txt", f"{SMALL}\nsoftmax(f32[\n")
        self.assertIn("invalid.txt:2:", self.wrong("bake", "--trace", invalid))

    def test_links_stay_and_pipes_are_written_into(self):
        os.symlink("target.yaml", self.path("link.yaml"))
        self.yard("bake", "--trace", self.calls(), "--yaml", self.path("link.yaml"))
        self.assertTrue(os.path.islink(self.path("link.yaml")))
        self.assertIn("static_kernel_map", self.read("target.yaml"))
        os.mkfifo(self.path("pipe"))
        reader = os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.yard("bake", "--trace", self.calls(), "--yaml", self.path("pipe"))
        self.assertIn(b"static_kernel_map", os.read(reader, 65536))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        os.symlink("/dev/full", self.path("full"))
        self.assertIn("cannot be written", self.wrong("bake", "--trace", self.calls(), "--yaml",
                                                     self.path("full"), code=1))
        self.assertTrue(stat.S_ISCHR(os.stat(self.path("full")).st_mode))
        self.assertIn("Is a directory", self.wrong("bake", "--trace", self.calls(), "--header",
                                                   self.folder, code=1))
        self.assertEqual([n for n in os.listdir(self.folder) if ".new" in n], [])

    def test_no_other_file_is_written_through_and_the_mode_stays(self):
        self.file("precious", "precious")
        os.symlink("precious", self.path("baked.yaml.new"))
        self.file("baked.yaml", "old")
        os.chmod(self.path("baked.yaml"), 0o640)
        self.yard("bake", "--trace", self.calls(), "--yaml", self.path("baked.yaml"))
        self.assertEqual(self.read("precious"), "precious")
        self.assertTrue(os.path.islink(self.path("baked.yaml.new")))
        self.assertIn("static_kernel_map", self.read("baked.yaml"))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("baked.yaml")).st_mode), 0o640)

    def test_printed_where_no_file_is_named(self):
        out, _ = self.yard("bake", "--trace", self.calls())
        self.yard("bake", "--trace", self.calls(), "--yaml", self.path("baked.yaml"))
        self.assertEqual(out, self.read("baked.yaml"))

    def test_equal_calls_give_equal_files(self):
        shuffled = self.file("shuffled.txt",
                             f"100\t{NORM}\n10\t{SMALL}\n2\t{LARGE}\n")
        for trace, name in ((self.calls(), "a"), (shuffled, "b"), (self.calls(), "c")):
            self.yard("bake", "--trace", trace, "--yaml", self.path(name + ".yaml"), "--header",
                      self.path(name + ".h"))
        for kind in (".yaml", ".h"):
            a = self.read("a" + kind)
            self.assertEqual(a, self.read("c" + kind))
            self.assertEqual(a.replace("calls.txt", "shuffled.txt"), self.read("b" + kind))

    def test_header(self):
        self.yard("bake", "--trace", self.calls(), "--header", self.path("baked.h"), "--namespace",
                  "acme::baked")
        text = self.read("baked.h")
        self.assertIn("namespace acme::baked {\n", text)
        self.assertIn(f'    {{"softmax", "{self.usual(SMALL)}"}},\n', text)
        self.assertIn(f"    //   10 {SMALL}\n", text)
        self.assertIn("constexpr std::string_view kernel_of(std::string_view op) noexcept {", text)

    def test_report(self):
        data = self.json("bake", "--trace", self.calls())
        self.assertTrue(data["ok"])
        self.assertEqual(data["calls"], 112)
        self.assertEqual([o["op"] for o in data["ops"]], ["rms_norm", "softmax"])
        softmax = data["ops"][1]
        self.assertEqual((softmax["kernel"], softmax["calls"], softmax["served"], softmax["distinct"]),
                         (self.usual(SMALL), 12, 12, 2))
        self.assertEqual((softmax["unable"], data["lost"]), ([], []))


class Conflicts(Bake):
    def test_are_refused_and_listed(self):
        rules = self.file("rules.yaml", RULES)
        out, err = self.yard("bake", "--trace", self.calls(), "--config", rules, "--yaml",
                             self.path("baked.yaml"), code=1)
        self.assertEqual(out, "")
        usual = self.usual(SMALL, "--config", rules)
        self.assertIn(f"calls of softmax are served by several kernels ({usual} 10, reference.cpp 2); "
                      f"--majority takes {usual}", err)
        self.assertNotIn("rms_norm", err)
        self.assertFalse(os.path.exists(self.path("baked.yaml")))
        data = self.json("bake", "--trace", self.calls(), "--config", rules, code=1)
        self.assertFalse(data["ok"])
        self.assertEqual(data["ops"][1]["kernels"], [{"kernel": usual, "calls": 10},
                                                     {"kernel": "reference.cpp", "calls": 2}])

    def test_are_settled_by_the_majority(self):
        rules = self.file("rules.yaml", RULES)
        for counts, expected in (("7 2", self.usual(SMALL, "--config", rules)), ("1 2", "reference.cpp")):
            small, large = counts.split()
            trace = self.file("calls.txt", f"{small}\t{SMALL}\n{large}\t{LARGE}\n")
            self.yard("bake", "--trace", trace, "--config", rules, "--majority", "--yaml",
                      self.path("baked.yaml"))
            self.assertIn(f"  softmax: {expected}\n", self.read("baked.yaml"))
            self.assertIn(f"# softmax: {expected} served {max(small, large)} of ", self.read("baked.yaml"))

    def test_calls_that_no_kernel_can_run(self):
        rules = self.file("rules.yaml", 'version: "1.0"\nkernel_denies: ["*"]\n')
        _, err = self.yard("bake", "--trace", self.calls(), "--config", rules, code=1)
        self.assertIn(f"no kernel can run {SMALL}", err)
        out, _ = self.yard("bake", "--trace", self.calls(), "--config", rules, "--majority", "--json", code=1)
        self.assertEqual(len(json.loads(out)["lost"]), 3)


class WrongQuestions(Bake):
    def test_are_answered(self):
        trace = self.calls()
        self.assertIn("--trace", self.wrong("bake"))
        self.assertIn("invalid namespace 'a b'", self.wrong("bake", "--trace", trace, "--namespace", "a b"))
        bad = self.file("bad.txt", "sofmax(f32[2,2])\n")
        self.assertIn(f"{bad}: skipped 1 call: op 'sofmax' is not known; did you mean 'softmax'?",
                      self.wrong("bake", "--trace", bad))
        nowhere = self.path("no/such/folder.yaml")
        self.assertIn(f"{nowhere}: cannot be written: ",
                      self.wrong("bake", "--trace", trace, "--yaml", nowhere, code=1))
        rules = self.file("rules.yaml", "version: '1.0'\nrules: []\n")
        self.assertIn("rules.yaml:2:1: error", self.wrong("bake", "--trace", trace, "--config", rules))


class Recordings(Bake):
    def recorded(self, path, *arguments):
        return subprocess.run([os.environ["YARD"], *arguments], capture_output=True, text=True,
                              env=environment(YARD_RECORD=path), timeout=120)

    def test_of_the_environment_are_baked(self):
        path = self.path("calls.txt")
        run = self.recorded(path, "run", NORM)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("rms_norm(f32[8,64], f32[64], eps=1e-6)", self.read("calls.txt"))
        # These commands make no calls, so they leave the file alone.
        before = self.read("calls.txt")
        self.recorded(path, "bake", "--trace", path)
        self.recorded(path, "explain", SMALL)
        self.assertEqual(self.read("calls.txt"), before)
        self.assertEqual([o["op"] for o in self.json("bake", "--trace", path, "--majority")["ops"]],
                         ["rms_norm"])
        rules = self.file("rules.yaml", 'version: "1.0"\n')
        self.assertGreaterEqual(self.json("config", "simulate", rules, "--trace", path)["calls"], 1)

    def test_that_cannot_be_written_are_reported_at_once(self):
        run = self.recorded(self.path("no/calls.txt"), "explain", SMALL)
        self.assertEqual(run.returncode, 0)
        self.assertIn("YARD_RECORD=", run.stderr)
        self.assertIn("cannot be written: No such file or directory", run.stderr)


class Labels(Bake):
    def test_of_a_recorded_call_apply_to_rules(self):
        rules = self.file("rules.yaml", 'version: "1.0"\ndispatch_rules:\n'
                          "  - {operation: softmax, conditions: {tenant: blue}, kernel: reference.cpp}\n")
        blue = SMALL + "{tenant=blue}"
        self.assertEqual(self.usual(blue, "--config", rules), "reference.cpp")
        self.assertNotEqual(self.usual(SMALL, "--config", rules), "reference.cpp")
        trace = self.file("calls.txt", f"5\t{blue}\n")
        data = self.json("bake", "--trace", trace, "--config", rules)
        self.assertEqual(data["ops"][0]["kernel"], "reference.cpp")


main()
