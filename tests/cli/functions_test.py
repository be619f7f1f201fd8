# SPDX-License-Identifier: Apache-2.0
"""yard functions"""
import json
import os
import shutil
import tempfile

from command import Yard, main

BUILT = os.environ["TEST_PLUGINS"]


class Functions(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "plugins")
        os.mkdir(self.folder, 0o700)
        for name in ("YARD_PLUGINS", "YARD_PLUGIN_PATH", "YARD_PLUGIN_PROBE", "YARD_BACKEND_HOOKED"):
            os.environ.pop(name, None)
        self.path = os.path.join(self.folder, "hooked.so")
        shutil.copyfile(os.path.join(BUILT, "hooked.so"), self.path)
        os.chmod(self.path, 0o700)

    def test_groups_are_listed_without_opening_anything(self):
        data = self.json("functions", self.folder)
        self.assertEqual(data["functions"], [])
        self.assertIn({"group": "plugged_group", "plugin": "hooked", "path": self.path},
                      data["announced"])
        self.assertIn("plugin hooked, not opened", self.yard("functions", self.folder)[0])

    def test_opened_plugins_show_who_provides_what(self):
        data = self.json("functions", "--open", self.folder)
        self.assertEqual(data["announced"], [])
        f = next(f for f in data["functions"] if f["name"] == "plugged")
        self.assertEqual((f["group"], f["signature"], f["declared"]),
                         ("plugged_group", "i64(i64)", False))
        self.assertEqual([(p["backend"], p["priority"], p["on"]) for p in f["providers"]],
                         [("hooked", 7, True)])
        self.assertIn("nobody declares it", self.yard("functions", "--open", self.folder)[0])

    def test_switches_show(self):
        os.environ["YARD_BACKEND_HOOKED"] = "off"
        self.addCleanup(os.environ.pop, "YARD_BACKEND_HOOKED", None)
        # The log may say that the variable counts once there is such a backend: it comes with the plugin.
        out, _ = self.yard("functions", "--open", "--json", self.folder)
        p = json.loads(out)["functions"][0]["providers"][0]
        self.assertEqual((p["on"], p["reason"], p["detail"]),
                         (False, "disabled", "switched off by YARD_BACKEND_HOOKED"))


main()
