# SPDX-License-Identifier: Apache-2.0
"""Rules, listings and figures of the process."""

import json

from . import _yard


class Table(list):
    """A list of dicts that prints as a table."""

    def __init__(self, rows, columns):
        super().__init__(rows)
        self._columns = columns

    def _cells(self):
        return [list(self._columns)] + [[str(r.get(c, "")) for c in self._columns] for r in self]

    def __repr__(self):
        cells = self._cells()
        widths = [max(len(r[i]) for r in cells) for i in range(len(self._columns))]
        lines = ("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in cells)
        return "\n".join(lines)

    def _repr_html_(self):
        import html
        rows = ("".join(f"<td>{html.escape(c)}</td>" for c in r) for r in self._cells())
        return "<table>" + "".join(f"<tr>{r}</tr>" for r in rows) + "</table>"


def configure(path):
    """Puts a rule file in force (docs/reference/rules.md), or none for None. Returns warnings."""
    return _yard.load_rules("" if path is None else __import__("os").fspath(path))


def kernels(op=""):
    """Lists the kernels of an op, or of all ops."""
    columns = ("op", "id", "kind", "priority", "available", "reason", "calls")
    return Table(_yard.kernels(str(op) if isinstance(op, str) else op.__name__), columns)


def stats():
    """Returns the counters and times of all calls (docs/guides/monitoring.md)."""
    return json.loads(_yard.stats())


def verify(op="", kernel="", *, calls=(), cases=300):
    """Compares kernels with the reference over many calls (docs/guides/verify.md)."""
    columns = ("op", "id", "passed", "failed", "skipped", "worst_error", "worst")
    name = op if isinstance(op, str) else op.__name__
    return Table(_yard.verify(name, kernel, list(calls), cases), columns)


limit_threads = _yard.limit_threads


def load_plugin(path):
    """Loads a plugin by its name or the absolute path of its file."""
    _yard.load_plugin(__import__("os").fspath(path))
