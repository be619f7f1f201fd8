# SPDX-License-Identifier: Apache-2.0
"""yard hooks"""
import os
import shutil
import tempfile

from command import Yard, main

BUILT = os.environ["TEST_PLUGINS"]


class Hooks(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "plugins")
        os.mkdir(self.folder, 0o700)
        for name in ("YARD_PLUGINS", "YARD_PLUGIN_PATH"):
            os.environ.pop(name, None)

    def put(self, plugin):
        path = os.path.join(self.folder, plugin + ".so")
        shutil.copyfile(os.path.join(BUILT, plugin + ".so"), path)
        os.chmod(path, 0o700)
        return path

    def test_announced_hooks_are_listed_without_opening_anything(self):
        path = self.put("hooked")
        data = self.json("hooks", self.folder)
        self.assertEqual(data["hooks"], [])
        self.assertIn({"hook": "plugged", "plugin": "hooked", "path": path}, data["announced"])
        self.assertIn("plugin hooked, not opened", self.yard("hooks", self.folder)[0])

    def test_opened_plugins_show_providers(self):
        self.put("hooked")
        self.put("hooks_in_c")
        data = self.json("hooks", "--open", self.folder)
        self.assertEqual(data["announced"], [])
        plugged = next(h for h in data["hooks"] if h["name"] == "plugged")
        self.assertEqual((plugged["signature"], plugged["declared"], plugged["engaged"]),
                         ("i64(i64)", False, False))
        self.assertEqual({p["backend"] for p in plugged["providers"]}, {"hooked", "in_c"})
        self.assertIn("plugged", data["undeclared"])
        self.assertEqual(data["unprovided"], [])
        self.assertIn("not declared", self.yard("hooks", "--open", self.folder)[0])

    def test_activated_ones_come_first_and_are_engaged(self):
        self.put("hooked")
        self.put("hooks_in_c")
        out, _ = self.yard("hooks", "--activate", "in_c", "--json", self.folder)
        self.assertIn('"engaged": true', out)
        self.assertIn("process", self.yard("hooks", "--activate", "in_c", self.folder)[0])

    def test_errors_state_what_was_expected(self):
        self.put("hooked")
        self.assertIn("did you mean 'hooked'?",
                      self.wrong("hooks", "--activate", "hookd", self.folder, code=1))
        _, err = self.yard("hooks", os.path.join(self.folder, "none.so"), code=1)
        self.assertIn("not_found", err)

    def test_nothing(self):
        self.assertEqual(self.yard("hooks", self.folder)[0], "No hooks are declared or provided.\n")


main()
