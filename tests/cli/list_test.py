# SPDX-License-Identifier: Apache-2.0
"""Tests yard list."""
from command import Yard, main


class List(Yard):
    def test_json_is_as_documented(self):
        data = self.json("list")
        self.assertEqual(list(data), ["ops", "announced"])
        self.assertIn("rms_norm", [op["name"] for op in data["ops"]])
        for op in data["ops"]:
            self.assertEqual(list(op), ["name", "schema", "kernels"])
            self.assertTrue(op["schema"].startswith(op["name"] + "("))
            for kernel in op["kernels"]:
                self.assertEqual(list(kernel), ["id", "kind", "vendor", "backend", "priority",
                                                "available", "reason"])
                self.assertIn(kernel["kind"], ("default", "vendor", "reference"))
                self.assertIsInstance(kernel["priority"], int)
                self.assertEqual(kernel["reason"] is None, kernel["available"])

    def test_reference_kernel(self):
        op, = self.json("list", "softmax")["ops"]
        kernel = next(k for k in op["kernels"] if k["id"] == "reference.cpp")
        self.assertEqual(kernel, {"id": "reference.cpp", "kind": "reference", "vendor": None,
                                  "backend": "reference", "priority": 50, "available": True,
                                  "reason": None})

    def test_table_lines_up(self):
        out, _ = self.yard("list")
        head, *rows = out.splitlines()
        self.assertTrue(head.startswith("op "))
        column = head.index("kind")
        for row in rows:
            self.assertIn(row[column:].split()[0], ("default", "vendor", "reference"))
            self.assertEqual(row, row.rstrip())

    def test_one_op_shows_its_schema(self):
        self.assertIn("rms_norm(out!: T[*rows, hidden]", self.yard("list", "rms_norm")[0])

    def test_unknown_op(self):
        self.assertIn("op 'rms_nrm' is not known; did you mean 'rms_norm'?", self.wrong("list", "rms_nrm"))

    def test_colour_on_terminals_only(self):
        self.assertNotIn("\x1b", self.yard("list")[0])
        self.assertIn("\x1b", self.on_terminal("list"))
        self.assertNotIn("\x1b", self.on_terminal("list", NO_COLOR="1"))
        self.assertNotIn("\x1b", self.on_terminal("list", TERM="dumb"))


main()
