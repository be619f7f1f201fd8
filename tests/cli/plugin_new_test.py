# SPDX-License-Identifier: Apache-2.0
"""Tests what yard plugin new writes and refuses. tests/package builds the projects that it makes."""
import os
import pathlib
import tempfile

from command import Yard, main


class PluginNew(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)

    def files(self, folder="acme"):
        return {p.name: p.read_text(encoding="utf-8") for p in (self.folder / folder).iterdir()}

    def test_project(self):
        out, err = self.yard("plugin", "new", "acme")
        self.assertEqual(err, "")
        self.assertIn("ctest --test-dir build", out)
        files = self.files()
        self.assertEqual(sorted(files), [".gitignore", "CMakeLists.txt", "README.md", "acme.cc"])
        self.assertIn("yard_add_plugin(acme\n  SOURCES acme.cc\n  OPS acme\n", files["CMakeLists.txt"])
        self.assertIn("LANGUAGES CXX)", files["CMakeLists.txt"])
        self.assertRegex(files["CMakeLists.txt"], r"find_package\(Switchyard \d+\.\d+ REQUIRED\)")
        self.assertIn('Kernel::of<fast>("acme", "default.acme")', files["acme.cc"])

    def test_every_word_is_filled_in(self):
        for flavour in ([], ["--c"]):
            name = "plain" if flavour else "acme"
            self.yard("plugin", "new", name, "--op", "acme.scale", *flavour)
            for file, text in self.files(name).items():
                self.assertNotIn("@", text, file)
                self.assertNotIn("SPDX", text, file)

    def test_in_c_in_another_directory_with_another_op(self):
        data = self.json("plugin", "new", "acme", "--c", "--dir", "a/b", "--op", "acme.scale")
        self.assertEqual(data, {"name": "acme", "op": "acme.scale", "directory": "a/b",
                                "files": ["CMakeLists.txt", "acme.c", "README.md", ".gitignore"]})
        files = self.files("a/b")
        self.assertEqual(sorted(files), sorted(data["files"]))
        self.assertIn("LANGUAGES C)", files["CMakeLists.txt"])
        self.assertIn('.op = "acme.scale"', files["acme.c"])

    def test_kernel_for_an_existing_op(self):
        for op in self.json("list")["ops"]:
            for flavour in ([], ["--c"]):
                name = op["name"].replace(".", "_") + ("_c" if flavour else "_cpp")
                data = self.json("plugin", "new", name, "--for-op", op["name"], *flavour)
                suffix = "c" if flavour else "cc"
                self.assertEqual(data["op"], op["name"])
                self.assertEqual(data["files"], ["CMakeLists.txt", f"{name}.{suffix}", "README.md", ".gitignore"])
                files = self.files(name)
                self.assertIn(op["schema"], files[f"{name}.{suffix}"])
                self.assertIn(f'"vendor.{name}"', files[f"{name}.{suffix}"])
                self.assertIn(f"OPS {op['name']}\n", files["CMakeLists.txt"])
                for file, text in files.items():
                    self.assertNotIn("@", text, file)
                    self.assertNotIn("SPDX", text, file)
                self.assertIn("YARD_DECLINED", files[f"{name}.{suffix}"])

    def test_existing_ops_are_suggested(self):
        self.assertIn("--for-op: op 'rms_nrm' is not known; did you mean 'rms_norm'?",
                      self.wrong("plugin", "new", "acme", "--for-op", "rms_nrm"))
        self.assertIn("--for-op rms_norm", self.wrong("plugin", "new", "rms_norm"))
        self.assertIn("--op", self.wrong("plugin", "new", "acme", "--for-op", "rms_norm", "--op", "x"))
        self.assertEqual(os.listdir(), [])

    def test_only_an_empty_directory_is_accepted(self):
        os.mkdir("acme")
        self.yard("plugin", "new", "acme")
        before = self.files()
        self.assertIn("'acme' is not empty", self.wrong("plugin", "new", "acme"))
        self.assertEqual(self.files(), before)
        pathlib.Path("file").write_text("", encoding="utf-8")
        self.assertIn("is not a directory", self.wrong("plugin", "new", "acme", "--dir", "file"))
        for place in ("file/below", "/proc/nowhere/acme"):
            self.assertIn("cannot make", self.wrong("plugin", "new", "acme", "--dir", place, code=1))

    def test_invalid_names(self):
        for name in ("Acme", "1st", "a-b", "a.b", "a/b", "ä", "", "../up", "a b"):
            self.assertIn("cannot be the name of a plugin", self.wrong("plugin", "new", name), name)
        self.assertIn("a build has a target of that name", self.wrong("plugin", "new", "test"))
        self.assertIn("a backend 'reference' already exists", self.wrong("plugin", "new", "reference"))
        self.assertIn("expected at most 64", self.wrong("plugin", "new", "a" * 65))
        self.assertEqual(os.listdir(), [])

    def test_invalid_ops(self):
        for op in ("Scale", "a..b", "a.", "x(y: f32[n])", "a b"):
            self.assertIn("cannot be the name of an op", self.wrong("plugin", "new", "acme", "--op", op), op)
        self.assertIn("op 'softmax' already exists",
                      self.wrong("plugin", "new", "acme", "--op", "softmax"))
        self.assertEqual(os.listdir(), [])

    def test_help(self):
        out, _ = self.yard("plugin", "new", "--help")
        self.assertIn("Examples:\n  yard plugin new", out)
        self.assertIn("--json", out)
        self.assertIn("NAME is required", self.wrong("plugin", "new"))


main()
