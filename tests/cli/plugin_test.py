# SPDX-License-Identifier: Apache-2.0
"""Tests yard plugin list, inspect, lock, probe and upgrade, and yard verify FILE."""
import json
import os
import shlex
import shutil
import signal
import stat
import tempfile
import time
import unittest

from command import SANITIZED, Yard, main

BUILT = os.environ["TEST_PLUGINS"]


class Plugins(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "plugins")
        os.mkdir(self.folder, 0o700)
        self.state = os.path.join(folder.name, "state")
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        for name in ("YARD_CONFIG", "YARD_PLUGINS", "YARD_PLUGIN_PATH"):
            os.environ.pop(name, None)
        os.environ["XDG_STATE_HOME"] = self.state

    def put(self, plugin, name=None):
        path = os.path.join(self.folder, (name or plugin) + ".so")
        shutil.copyfile(os.path.join(BUILT, plugin + ".so"), path)
        os.chmod(path, 0o700)
        return path


class List(Plugins):
    def test_found_and_refused(self):
        good, bad = self.put("answer"), self.put("abi_too_new")
        data = self.json("plugin", "list", self.folder, code=1)["plugins"]
        by_path = {p["path"]: p for p in data}
        self.assertEqual((by_path[good]["state"], by_path[good]["reason"]), ("found", None))
        self.assertEqual((by_path[good]["name"], by_path[good]["ops"]), ("answer", ["answer"]))
        self.assertEqual((by_path[bad]["state"], by_path[bad]["reason"]), ("refused", "abi_too_new"))
        self.assertIn("ABI 7", by_path[bad]["detail"])

    def test_table_lines_up(self):
        self.put("answer"), self.put("abi_too_new")
        out, err = self.yard("plugin", "list", self.folder, code=1)
        self.assertEqual(err, "")
        head, *rows = out.splitlines()
        self.assertRegex(head, r"^name +version +state +ops +file")
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertEqual(row.index(self.folder), head.index("file"))
        self.assertIn("abi_too_new: it was made for ABI 7", out)

    def test_the_environment_applies(self):
        path = self.put("answer")
        os.environ["YARD_PLUGINS"] = path
        self.assertEqual([p["name"] for p in self.json("plugin", "list")["plugins"]], ["answer"])
        os.environ["YARD_PLUGINS"] = ""
        out, _ = self.yard("plugin", "list")
        self.assertIn("No plugins were found", out)

    def test_a_changed_digest_is_refused_as_a_call_would(self):
        path = self.put("answer")
        self.yard("plugin", "lock", self.folder)
        with open(path, "ab") as f:
            f.write(b"x")
        entry, = self.json("plugin", "list", self.folder, code=1)["plugins"]
        self.assertEqual((entry["state"], entry["reason"]), ("refused", "digest_differs"))
        data = self.json("plugin", "inspect", path, code=1)
        self.assertEqual((data["state"], data["reason"]), ("refused", "digest_differs"))
        os.environ["YARD_PLUGINS"] = path
        self.assertIn("digest_differs", self.yard("run", "answer(i64[1])", code=2)[1])
        # Locking the folder again accepts its current files.
        self.yard("plugin", "lock", self.folder)
        self.assertEqual(self.json("plugin", "inspect", path)["state"], "found")

    def test_requirements_of_rules_apply(self):
        path = self.put("behave")
        rules = os.path.join(self.folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as f:
            f.write('version: "1.0"\nsettings: {plugins: {require_verified: true}}\n')
        os.environ["YARD_CONFIG"] = rules
        entry, = self.json("plugin", "list", self.folder, code=1)["plugins"]
        self.assertEqual((entry["state"], entry["reason"]), ("refused", "not_verified"))
        self.assertEqual(self.json("plugin", "inspect", path, code=1)["reason"], "not_verified")
        self.yard("verify", path)
        entry, = self.json("plugin", "list", self.folder)["plugins"]
        self.assertEqual(entry["state"], "found")

    def test_stated_device_features_apply(self):
        path = self.put("gpu_feature")
        data = self.json("plugin", "inspect", path, code=1)
        self.assertEqual(data["reason"], "missing_feature")
        self.assertIn("--device-feature cuda:sm_90", data["detail"])
        stated = ("--device-feature", "cuda:sm_90")
        self.assertEqual(self.json("plugin", "inspect", path, *stated)["state"], "found")
        entry, = self.json("plugin", "list", self.folder, *stated)["plugins"]
        self.assertEqual(entry["state"], "found")
        self.json("verify", "--quick", path, *stated)
        self.assertEqual(len(self.json("plugin", "lock", path, *stated)["plugins"]), 1)
        self.assertIn("expected one like cuda:sm_90",
                      self.wrong("plugin", "inspect", path, "--device-feature", "sm_90"))

    def test_a_new_kernel_for_an_op_of_another_plugin(self):
        os.environ["YARD_PLUGINS"] = self.put("answer")
        for flavour, signature in (([], "run(Call call, Tensor out, Tensor x)"), (["--c"], "yard_tensor_t* x = args[1]")):
            project = os.path.join(self.folder, "new" + "".join(flavour))
            out, _ = self.yard("plugin", "new", "acme", "--for-op", "answer", "--dir", project, *flavour)
            self.assertIn("declines every call of answer: verify fails until it is written", out)
            with open(os.path.join(project, "acme.c" if flavour else "acme.cc"), encoding="utf-8") as f:
                text = f.read()
            self.assertIn("answer(out!: i64[n], x: i64[n])", text)
            self.assertIn(signature, text)
            self.assertNotIn("YARD_F32", text)

    def test_kernels_of_plugins_that_are_not_opened(self):
        os.environ["YARD_PLUGINS"] = self.put("kernel_only") + "," + self.put("answer")
        data = self.json("list", "answer")
        self.assertEqual(data["ops"], [])
        self.assertEqual([a["plugin"] for a in data["announced"]], ["helper", "answer"])
        self.assertIn("plugin helper, not opened", self.yard("list", "answer")[0])
        self.assertIn("plugin helper, not opened", self.yard("list")[0])
        data = self.json("list", "answer", "--open")
        self.assertEqual({k["id"] for k in data["ops"][0]["kernels"]}, {"default.helper", "default.answer"})
        self.assertEqual(data["announced"], [])

    def test_an_unknown_op_names_refused_plugins(self):
        path = self.put("missing_feature")
        os.environ["YARD_PLUGINS"] = path
        for command in ("run", "explain"):
            _, err = self.yard(command, "answer(i64[1])", code=2)
            last = err[err.index("op 'answer' is not known"):]
            self.assertIn(f"is refused: {path}: missing_feature", last)
        os.environ["YARD_PLUGINS"] = self.put("no_manifest")
        _, err = self.yard("run", "answer(i64[1])", code=2)
        self.assertIn("see `yard plugin list`", err[err.index("op 'answer' is not known"):])

    def test_colour_is_for_terminals(self):
        self.put("answer")
        self.assertIn("\x1b[32mfound", self.on_terminal("plugin", "list", self.folder))
        self.assertNotIn("\x1b", self.on_terminal("plugin", "list", self.folder, NO_COLOR="1"))


class Inspect(Plugins):
    def test_good(self):
        path = self.put("answer")
        data = self.json("plugin", "inspect", path)
        self.assertEqual((data["name"], data["version"], data["state"]), ("answer", "1.0", "found"))
        self.assertRegex(data["sha256"], "^[0-9a-f]{64}$")
        self.assertFalse(data["verified"])
        out, _ = self.yard("plugin", "inspect", path)
        for text in ("answer 1.0", "could be loaded", data["sha256"], "ABI 0", "not yet: yard verify"):
            self.assertIn(text, out)

    def test_relative_paths_are_accepted(self):
        self.assertEqual(self.json("plugin", "inspect", os.path.relpath(self.put("answer")))["name"],
                         "answer")

    def test_refused(self):
        data = self.json("plugin", "inspect", self.put("no_manifest"), code=1)
        self.assertEqual((data["state"], data["reason"]), ("refused", "no_manifest"))
        out, _ = self.yard("plugin", "inspect", self.put("no_manifest"), code=1)
        self.assertIn("no_manifest: it has no note", out)

    def test_missing(self):
        self.assertIn("No such file", self.wrong("plugin", "inspect", self.folder + "/none.so"))


class Lock(Plugins):
    def lock(self):
        with open(os.path.join(self.folder, "yard.lock"), encoding="utf-8") as f:
            return [line.split() for line in f if not line.startswith("#")]

    def test_directory(self):
        path = self.put("answer")
        self.put("abi_too_new")
        digest = self.json("plugin", "inspect", path)["sha256"]
        out, err = self.yard("plugin", "lock", self.folder)
        self.assertIn(f"lists 1 plugin; where {self.folder} is searched, no others are loaded", out)
        self.assertIn("abi_too_new.so is skipped: abi_too_new", err)
        self.assertEqual(self.lock(), [["answer", "1.0", "sha256:" + digest]])
        self.put("old_layout")
        data = self.json("plugin", "list", self.folder, code=1)
        states = {p["name"]: p["reason"] for p in data["plugins"]}
        self.assertEqual(states["answer"], None)
        self.assertEqual(states["old_layout"], "not_in_lock_file")

    def test_states_when_it_applies(self):
        for name in ("a", "b", "c"):
            self.put("answer", name)
        other = os.path.join(self.folder, "allowed.txt")
        out, _ = self.yard("plugin", "lock", self.folder, "--output", other)
        self.assertIn("lists 1 plugin in 3 files; it applies to programs that name it", out)
        self.assertNotIn("loaded from now on", out)
        with open(other, encoding="utf-8") as f:
            self.assertEqual(len([line for line in f if not line.startswith("#")]), 1)

    def test_links_stay_and_pipes_are_not_replaced(self):
        path, link = self.put("answer"), os.path.join(self.folder, "link")
        os.symlink("real.lock", link)
        self.yard("plugin", "lock", path, "--output", link)
        self.assertTrue(os.path.islink(link) and os.path.isfile(os.path.join(self.folder, "real.lock")))
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        self.assertIn("a pipe without a reader",
                      self.wrong("plugin", "lock", path, "--output", pipe, code=1))
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_files_and_json(self):
        paths = [self.put("answer"), self.put("old_layout")]
        data = self.json("plugin", "lock", *paths)
        self.assertEqual(data["file"], os.path.join(self.folder, "yard.lock"))
        self.assertEqual([p["name"] for p in data["plugins"]], ["answer", "old_layout"])
        self.assertEqual(len(self.lock()), 2)
        self.assertEqual(sorted(os.listdir(self.folder)), ["answer.so", "old_layout.so", "yard.lock"])

    def test_a_file_that_would_be_refused_changes_nothing(self):
        self.yard("plugin", "lock", self.put("answer"))
        before = self.lock()
        message = self.wrong("plugin", "lock", self.put("answer"), self.put("bad_manifest"), code=1)
        self.assertIn("bad_manifest", message)
        self.assertIn("nothing was written", message)
        self.assertEqual(self.lock(), before)

    def test_invalid_usage(self):
        other = os.path.join(self.folder, "more")
        os.mkdir(other, 0o700)
        self.assertIn("--output", self.wrong("plugin", "lock", self.put("answer"), other))
        self.assertIn("No such file", self.wrong("plugin", "lock", self.folder + "/none.so"))
        self.assertIn("no plugin to list", self.wrong("plugin", "lock", other, code=1))
        self.assertIn("PATH", self.wrong("plugin", "lock"))
        self.yard("plugin", "lock", self.put("answer"), "--output", other + "/no/such", code=1)


class Verify(Plugins):
    def verified(self, path):
        return self.json("plugin", "inspect", path)["verified"]

    def test_a_pass_is_recorded(self):
        path = self.put("behave")
        self.assertFalse(self.verified(path))
        out, err = self.yard("verify", path)
        self.assertEqual(err, "")
        self.assertIn("default.behave", out)
        self.assertIn("all of it passed. sha256:", out)
        self.assertTrue(self.verified(path))
        self.assertEqual(os.listdir(os.path.join(self.state, "yard")), ["plugin_results"])

    def test_json(self):
        path = self.put("behave")
        data = self.json("verify", path)
        self.assertEqual(list(data), ["file", "sha256", "verified", "why", "kernels", "functions"])
        self.assertEqual((data["verified"], data["why"]), (True, None))
        self.assertEqual([k["id"] for k in data["kernels"]], ["default.behave", "reference.behave"])

    def test_a_lock_file_of_the_environment_does_not_matter(self):
        self.yard("plugin", "lock", self.put("answer"))
        path = self.put("behave")
        for variable in ("YARD_PLUGIN_PATH", "YARD_PLUGINS"):
            os.environ[variable] = self.folder if variable == "YARD_PLUGIN_PATH" else path
            os.environ["YARD_LOG_LEVEL"] = "off"  # the environment also tries to load the plugin, which is refused
            self.assertEqual(self.json("plugin", "inspect", path, code=1)["reason"], "not_in_lock_file")
            self.assertTrue(self.json("verify", path)["verified"])
            del os.environ[variable]
        with open(os.path.join(self.folder, "yard.lock"), "a", encoding="utf-8") as f:
            f.write("nonsense\n")
        os.environ["YARD_PLUGIN_PATH"] = self.folder
        self.assertTrue(self.json("verify", path)["verified"])

    def test_a_part_does_not_count(self):
        path = self.put("behave")
        for options in (["--quick"], ["--cases", "50"], ["--kernel", "default.behave"]):
            data = self.json("verify", path, *options)
            self.assertFalse(data["verified"])
            self.assertTrue(data["why"])
        self.assertFalse(self.verified(path))

    def test_failures(self):
        for plugin, words in (("behave_run_write_behind", "after its last element"),
                              ("behave_run_be_wrong", "where the reference has"),
                              ("behave_run_throws", "thrown through C")):
            path = self.put(plugin)
            data = self.json("verify", path, code=1)
            self.assertFalse(data["verified"])
            self.assertIn(words, json.dumps(data["kernels"]))
            self.assertFalse(self.verified(path))
        out, _ = self.yard("verify", self.put("behave_run_be_wrong"), code=1)
        self.assertIn(f"YARD_PLUGINS={self.folder}/behave_run_be_wrong.so yard run 'behave(", out)

    def test_a_crash_is_a_failure(self):
        for plugin, words in (("behave_load_crash", "while it was opened"),
                              ("behave_query_leave", "in its query"),
                              ("behave_run_leave_well", "ended its process with exit code 0"),
                              ("behave_run_crash", "in kernel 'default.behave' of op 'behave' on behave(")):
            # A sanitizer reports before the child ends.
            out, message = self.yard("verify", self.put(plugin), code=1)
            self.assertEqual(out, "")
            self.assertTrue(SANITIZED or message.startswith("yard: "), message)
            self.assertIn("yard: ", message)
            self.assertIn(words, message)
            if not SANITIZED and plugin.endswith("crash"):
                self.assertIn("died of SIGSEGV", message)
        data = self.json("verify", self.put("behave_run_leave"), code=1)
        self.assertFalse(data["verified"])
        self.assertIn("exit code 3", data["why"])
        self.assertIn(" yard run 'behave(i64[", data["reproduce"])
        self.assertEqual(data["backtrace"], [])

    @unittest.skipIf(SANITIZED, "a sanitizer ends the process in its own way")
    def test_a_crash_comes_with_a_backtrace_and_a_command(self):
        for plugin, again in (("behave_run_null", "YARD_PLUGINS={} yard run 'behave(i64["),
                              ("behave_run_recurse", "YARD_PLUGINS={} yard run 'behave(i64["),
                              ("behave_query_crash", "yard verify {} --quick")):
            path = self.put(plugin)
            data = self.json("verify", path, code=1)
            self.assertTrue(data["reproduce"].startswith(again.format(path)), data["reproduce"])
            self.assertRegex(json.dumps(data["backtrace"]), plugin + r"\.so\+0x[0-9a-f]+")
            _, err = self.yard("verify", path, code=1)
            self.assertRegex(err, r"backtrace:\n    \S+\+0x")
            self.assertIn("\n  reproduce it with: " + again.format(path), err)
            # The command that is printed reproduces the crash.
            command = shlex.split(data["reproduce"])
            options = command[command.index("yard") + 1:]
            if command[0].startswith("YARD_PLUGINS="):
                os.environ["YARD_PLUGINS"] = path
            self.yard(*options, code=1 if options[0] == "verify" else -signal.SIGSEGV)
            os.environ.pop("YARD_PLUGINS", None)

    def test_a_kernel_that_always_fails_has_not_passed(self):
        path = self.put("checked_fails")
        for options in ([], ["--quick"]):
            out, err = self.yard("verify", path, *options, code=1)
            self.assertNotIn("all of it passed", out)
            self.assertIn("default.checked of op checked", err)

    def test_a_hang_ends_at_the_timeout(self):
        begin = time.monotonic()
        message = self.wrong("verify", self.put("behave_query_hang"), "--timeout", "4", code=1)
        self.assertIn("was still running after 4 s, in its query", message)
        self.assertLess(time.monotonic() - begin, 50)  # the default timeout is 60 s
        self.assertIn("--timeout", self.wrong("verify", "--timeout", "5"))

    def test_a_kernel_without_compared_calls_is_not_verified(self):
        data = self.json("verify", self.put("answer"), code=1)
        self.assertFalse(data["verified"])
        self.assertIn("has no reference kernel", data["why"])

    def test_refused(self):
        self.assertIn("no_manifest", self.wrong("verify", self.put("no_manifest"), code=1))
        self.assertIn("query_declined", self.wrong("verify", self.put("query_null"), code=1))
        self.assertIn("not_found", self.wrong("verify", self.folder + "/none.so"))

    def test_without_a_results_file(self):
        os.environ["XDG_STATE_HOME"] = "/proc/none"
        _, err = self.yard("verify", self.put("behave"))
        self.assertIn("cannot be recorded", err)


class Upgrade(Plugins):
    def setUp(self):
        super().setUp()
        self.path = self.put("checked")
        self.new = os.path.join(os.path.dirname(self.folder), "checked-2.0.so")
        self.take("checked_v2")

    def take(self, plugin):
        shutil.copyfile(os.path.join(BUILT, plugin + ".so"), self.new)
        os.chmod(self.new, 0o600)

    def upgrade(self, *options, **kind):
        return self.yard("plugin", "upgrade", self.new, "--into", self.folder, *options, **kind)

    def version(self):
        return self.json("plugin", "inspect", self.path)["version"]

    def test_shows_the_changes_and_replaces_the_file(self):
        out, _ = self.upgrade("--dry-run")
        self.assertIn("checked 1.0 -> 2.0", out)
        self.assertIn("verified   yes", out)
        self.assertIn("kernels    unchanged", out)
        self.assertNotIn("although the file differs", out)
        self.assertIn("nothing was written", out)
        self.assertEqual(self.version(), "1.0")
        out, _ = self.upgrade()
        self.assertIn('Plugins::replace("checked")', out)
        self.assertEqual(self.version(), "2.0")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700, "as the old file had it")
        self.assertEqual(os.listdir(self.folder), ["checked.so"])
        self.assertTrue(self.json("plugin", "inspect", self.path)["verified"])
        self.assertIn("the same file", self.upgrade()[0])

    def test_json(self):
        data = json.loads(self.upgrade("--json")[0])
        self.assertEqual((data["name"], data["path"], data["written"]), ("checked", self.path, True))
        self.assertEqual((data["before"]["version"], data["after"]["version"]), ("1.0", "2.0"))
        self.assertEqual((data["version"], data["verified"]), ("higher", True))

    def test_wrong_results_are_not_installed(self):
        for plugin, why in (("checked_wrong", "is 2 where the reference has 1"),
                            ("checked_fails", "of op checked: ")):
            self.take(plugin)
            _, err = self.upgrade(code=1)
            self.assertIn(why, err)
            self.assertIn("nothing was written; `yard verify` shows more, and --no-verify", err)
            self.assertEqual(self.version(), "1.0")
        out, _ = self.upgrade("--no-verify")
        self.assertIn("verified   no: --no-verify was given", out)
        self.assertEqual(self.version(), "3.0")

    def test_a_crash_is_reported_with_its_command(self):
        self.path = self.put("behave")
        self.take("behave_run_crash")
        _, err = self.upgrade(code=1)
        self.assertIn("it died of SIG", err)
        self.assertIn(f"reproduce it with: YARD_PLUGINS={self.new} yard run 'behave(", err)

    def test_says_that_the_version_is_unchanged_or_lower(self):
        self.upgrade()
        self.take("checked_v2_fixed")
        self.assertIn("version    unchanged, although the file differs", self.upgrade("--dry-run")[0])
        self.take("checked")
        self.assertIn("version    lower, although the file differs", self.upgrade("--dry-run")[0])
        self.assertEqual(json.loads(self.upgrade("--json")[0])["version"], "lower")

    def test_ops_must_stay_unless_a_flag_is_given(self):
        self.path = self.put("answer")
        for plugin, why in (("answer_other_op", "op 'answer' is missing"),
                            ("answer_other_schema", "op 'answer' has the schema answer(out!: i64[n], x: i64[n], "
                                                    "y: int = 1) instead of")):
            self.take(plugin)
            _, err = self.upgrade("--no-verify", code=1)
            self.assertIn(why, err)
            self.assertIn("nothing was written; --allow-incompatible", err)
        self.take("answer_other_op")
        data = json.loads(self.upgrade("--no-verify", "--allow-incompatible", "--json")[0])
        self.assertEqual((data["verified"], data["written"]), (False, True))
        self.assertEqual(data["ops"], {"added": ["other_answer"], "removed": ["answer"]})
        self.assertEqual(data["kernels"], {"added": ["other_answer default.answer"],
                                           "removed": ["answer default.answer"]})

    def test_the_environment_says_where_it_is(self):
        os.environ["YARD_PLUGIN_PATH"] = self.folder
        self.yard("plugin", "upgrade", self.new)
        self.assertEqual(self.version(), "2.0")
        os.environ["YARD_PLUGIN_PATH"] = ""
        _, err = self.yard("plugin", "upgrade", self.new, code=2)
        self.assertIn("no plugin 'checked' was found in this environment; --into", err)
        self.yard("plugin", "upgrade", self.new, "--into", self.path)

    def test_what_is_refused_changes_nothing(self):
        self.path = self.put("answer")
        os.remove(os.path.join(self.folder, "checked.so"))
        for plugin, why in (("start_fails", "no licence"), ("abi_too_new", "ABI 7"),
                            ("bad_schema", "bad_descriptor")):
            self.take(plugin)
            _, err = self.upgrade(code=1)
            self.assertIn(why, err)
            self.assertIn("nothing was written", err)
        self.take("kernel_only")
        self.assertIn("no plugin 'helper' was found in", self.upgrade(code=2)[1])
        _, err = self.yard("plugin", "upgrade", self.new, "--into", self.path, code=2)
        self.assertIn("expected plugin 'helper', got plugin 'answer'", err)
        self.yard("plugin", "upgrade", "/no/such.so", "--into", self.folder, code=2)
        self.assertEqual(self.version(), "1.0")
        self.assertEqual(os.listdir(self.folder), ["answer.so"])

    def test_a_lock_file_must_list_the_new_version(self):
        self.yard("plugin", "lock", self.folder)
        _, err = self.upgrade(code=1)
        self.assertIn("not_in_lock_file", err)
        self.assertEqual(self.version(), "1.0")
        lock = os.path.join(self.folder, "yard.lock")
        self.yard("plugin", "lock", self.folder, self.new, "--output", lock)
        self.upgrade()
        self.assertEqual(self.version(), "2.0")


main()
