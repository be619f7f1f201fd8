#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The linter must flag violations and leave good code alone."""
import pathlib
import tempfile
import unittest

import code_rules
import doc_rules
import lint
from tree import Tree

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
LAYERS = "# SPDX-License-Identifier: Apache-2.0\nbase:\ncore: base\nop: core\ntelemetry: core\n"


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def found(self, rule, files):
        """Returns the texts of the findings of `rule` in a tree of `files`."""
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return [f"{f.path}:{f.line}: {f.text}" for f in rule(Tree(self.root))]

    def one(self, rule, files, *parts):
        found = self.found(rule, files)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    # ---- layers ----

    def test_layers_good(self):
        self.assertEqual([], self.found(code_rules.check_layers, {
            "src/LAYERS": LAYERS, "src/base/a.h": "", "src/core/c.h": '#include "base/a.h"\n',
            "src/op/o.cc": '#include "core/c.h"\n#include "base/a.h"\n#include <yard/plugin.h>\n'}))

    def test_layer_includes_upwards(self):
        self.one(code_rules.check_layers, {
            "src/LAYERS": LAYERS, "src/op/o.h": "", "src/core/c.h": '\n#include "op/o.h"\n'},
            "src/core/c.h:2", "'core' may not include 'op'")

    def test_layer_includes_sideways(self):
        self.one(code_rules.check_layers, {
            "src/LAYERS": LAYERS, "src/op/o.h": "", "src/telemetry/t_test.cc": '# include "op/o.h"\n'},
            "'telemetry' may not include 'op'")

    def test_include_must_be_a_path_from_src(self):
        self.one(code_rules.check_layers, {
            "src/LAYERS": LAYERS, "src/op/o.h": "", "src/op/o.cc": '#include "o.h"\n'},
            "no path from src/")

    def test_unknown_layer(self):
        self.one(code_rules.check_layers, {"src/LAYERS": LAYERS, "src/misc/x.cc": ""}, "'misc'")

    # ---- budgets ----

    def test_budget_counts_everything_but_tests(self):
        self.assertEqual([], self.found(code_rules.check_budget, {
            "src/BUDGET": "# lines\nsrc/op 3\n", "src/op/a.h": "1\n", "src/op/a.cc": "1\n2\n",
            "src/op/a_test.cc": "1\n2\n", "src/op/testing.h": "1\n", "src/op/CMakeLists.txt": "1\n"}))

    def test_budget_exceeded(self):
        self.one(code_rules.check_budget, {"src/BUDGET": "src/op 2\n", "src/op/a.cc": "1\n2\n3\n"},
                 "src/BUDGET:1", "src/op has 3 lines; 2 is the most")

    def test_budget_of_a_folder_that_is_gone(self):
        self.one(code_rules.check_budget, {"src/BUDGET": "src/tune 2\n"}, "'src/tune' has no C++ file")

    def test_budget_that_cannot_be_read(self):
        self.one(code_rules.check_budget, {"src/BUDGET": "src/op = 2\n", "src/op/a.cc": ""}, "cannot read")

    # ---- other includes ----

    def test_backends(self):
        good = '#include <yard/plugin.hpp>\n#include <yard/plugin.h>\n#include <cmath>\n#include "k.h"\n'
        self.assertEqual([], self.found(code_rules.check_backends, {
            "backends/a/k.h": "", "backends/a/k.cc": good,
            "backends/a/k_test.cc": "#include <yard/yard.h>\n"}))

    def test_backend_reaches_into_the_core(self):
        self.one(code_rules.check_backends,
                 {"backends/a/k.cc": '#include "core/c.h"\n'}, "its own folder")

    def test_backend_uses_another_public_header(self):
        self.one(code_rules.check_backends,
                 {"backends/a/k.cc": "#include <yard/status.h>\n"}, "<yard/status.h>")

    def test_public_headers(self):
        self.assertEqual([], self.found(code_rules.check_public_headers, {
            "include/yard/version.h.in": "", "include/yard/plugin.h": "#include <stdint.h>\n",
            "include/yard/a.h": "#include <yard/plugin.h>\n#include <yard/version.h>\n#include <span>\n"}))
        self.one(code_rules.check_public_headers,
                 {"include/yard/a.h": "#include <fmt/core.h>\n"}, "fmt/core.h")
        self.one(code_rules.check_public_headers,
                 {"include/yard/a.h": "", "include/yard/plugin.h": "#include <vector>\n"}, "C11")

    def test_headers_for_plugins_need_no_library(self):
        self.one(code_rules.check_public_headers, {
            "include/yard/status.h": "", "include/yard/verdict.h": "#include <yard/status.h>\n"},
            "include/yard/verdict.h:1", "is for plugins")

    def test_umbrella(self):
        self.one(code_rules.check_umbrella, {
            "include/yard/yard.h": "#include <yard/op.h>\n", "include/yard/op.h": "", "include/yard/c.h": "",
            "include/yard/plugin.hpp": "", "include/yard/detail/call.h": "", "include/yard/version.h.in": ""},
            "does not include version.h")

    def test_reach(self):
        files = {"include/yard/op.h": "#include <yard/detail/call.h>\n", "include/yard/runtime.h": "//\n" * 700,
                 "include/yard/detail/call.h": "#include <atomic>\n" + "//\n" * 1498}
        self.assertEqual([], self.found(code_rules.check_reach, files))
        files["include/yard/op.h"] += "#include <yard/runtime.h>\n"
        self.one(code_rules.check_reach, files, "reaches 2201 lines")

    def test_sources_must_be_listed(self):
        self.assertEqual([], self.found(code_rules.check_listed, {
            "src/op/CMakeLists.txt": "yard_layer(op SOURCES a.cc)", "src/op/a.cc": ""}))
        self.one(code_rules.check_listed, {"src/op/aa.cc": ""}, "src/op/aa.cc", "never built")

    # ---- single files ----

    def test_pragma_once(self):
        self.one(code_rules.check_headers, {"a.h": "", "b.h": "#pragma once\n"}, "a.h")

    def test_length(self):
        found = self.found(code_rules.check_length,
                           {"a.cc": "\n" * 500, "b.cc": "\n" * 501, "c.cc": "\n" * 701})
        self.assertEqual(2, len(found))
        fatal = {f.path: f.fatal for f in code_rules.check_length(Tree(self.root))}
        self.assertEqual({"b.cc": False, "c.cc": True}, fatal)

    def test_columns(self):
        fits, wide = "x" * 100 + "\n", "\n// " + "x" * 98 + "\n"
        self.assertEqual([], self.found(code_rules.check_columns, {
            "a.cc": fits, "b.h": "ä" * 100, "c.md": wide, "d.txt.in": wide}))
        self.one(code_rules.check_columns, {"e.inc": wide}, "e.inc:2", "101 columns")
        self.one(code_rules.check_columns, {"e.inc": fits, "f.h.in": wide}, "f.h.in:2")

    def test_licence(self):
        self.assertEqual([], self.found(code_rules.check_licence, {
            "a.cc": SPDX, "b.sh": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n", "n.md": ""}))
        self.one(code_rules.check_licence, {"c.cc": "\n" + SPDX}, "c.cc:1")

    def test_leftovers(self):
        word = "TO" + "DO"
        self.one(code_rules.check_leftovers, {"a.cc": f"\n// {word}: later\n"}, "a.cc:2", word)
        self.one(code_rules.check_leftovers, {"a.cc": "int METHODOLOGY;", "b.md": "see X" "XX"}, "b.md")

    def test_machine_paths(self):
        for bad in ("/ho" "me/me/x", 'open("/ro' 'ot/x")'):
            self.one(code_rules.check_leftovers, {"a.py": bad}, "machine")
        self.assertEqual([], self.found(code_rules.check_leftovers,
                                        {"a.py": "src/work/x docs/root/y ${X}/home/z"}))

    # ---- documentation ----

    EXAMPLE = "int x;\nvoid f() {\n  // [a]\n  g();\n\n  // [b]\n  h();\n  // [/b]\n  // [/a]\n}\n"

    def doc(self, text):
        return self.found(doc_rules.check_examples, {"examples/e.cc": self.EXAMPLE, "docs/d.md": text})

    def test_examples_good(self):
        self.assertEqual([], self.doc(
            "Text\n\n<!-- example: examples/e.cc#a -->\n```cpp\ng();\n\nh();\n```\n"
            "<!-- example: examples/e.cc#b -->\n\n```cpp\nh();\n```\n"
            "<!-- example: none: it needs a GPU -->\n```sh\nrun\n```\n```text\nout\n```\n"))

    def test_examples_bad(self):
        block = "```cpp\nh();\n```\n"
        for text, part in ((block, "needs <!-- example"),
                           ("<!-- example: examples/e.cc#b -->\n```cpp\nhh();\n```\n", "differs"),
                           ("<!-- example: examples/e.cc#c -->\n" + block, "no region [c]"),
                           ("<!-- example: examples/no.cc#b -->\n" + block, "no file"),
                           ("<!-- example: examples/e.cc -->\n" + block, "names no region"),
                           ("<!-- example: none -->\n" + block, "say why"),
                           ("```\nout\n```\n", "says its language")):
            found = self.doc(text)
            self.assertEqual(1, len(found), (text, found))
            self.assertIn(part, found[0])

    def test_shell_regions(self):
        self.assertEqual([], self.found(doc_rules.check_examples, {
            "scripts/d.sh": "# [x]\nyard list\n# [/x]\n",
            "README.md": "<!-- example: scripts/d.sh#x -->\n```sh\nyard list\n```\n"}))

    def test_unreachable_pages(self):
        self.one(doc_rules.check_reached, {
            "README.md": "see [a](docs/a.md#part)\n", "docs/a.md": "[c](sub/c.md)\n", "docs/sub/b.md": "x\n",
            "docs/sub/c.md": "x\n",
        }, "no link leads to docs/sub/b.md")

    def test_names_in_walks(self):
        walk = "`Op::call` (op/call.cc), `Sites` (op/sites.h), `run()` (op/call.cc)"
        files = {"docs/life_of_a_call.md": walk, "src/op/call.cc": "void call() { run(); }", "src/op/sites.h": "class Sites;"}
        self.assertEqual([], self.found(doc_rules.check_names, files))
        self.one(doc_rules.check_names, files | {"src/op/call.cc": "call()"}, "life_of_a_call.md:1", "op/call.cc has no run")
        self.one(doc_rules.check_names, {"docs/life_of_a_call.md": "`Gone` (op/gone.h)"}, "there is no op/gone.h")

    def test_links(self):
        self.one(doc_rules.check_links, {
            "docs/a.md": "[b](b.md#part) [c](../README.md) [d](https://x.y) [e](gone.md)",
            "docs/b.md": "", "README.md": "[docs](docs/)"}, "gone.md")

    # ---- formatting ----

    def test_format(self):
        tool = lint.find_clang_format()
        if not tool:
            self.skipTest("clang-format 14 is not installed")
        style = "BasedOnStyle: Google\n"
        self.one(lambda tree: lint.check_format(tree, tool),
                 {".clang-format": style, "a.cc": "int   f( ) ;\nint  g ( );\n", "b.cc": "int f();\n"},
                 "a.cc:1", "not formatted")


if __name__ == "__main__":
    unittest.main()
