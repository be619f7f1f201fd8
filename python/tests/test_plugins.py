# SPDX-License-Identifier: Apache-2.0
"""Plugins in Python."""

import os
import subprocess
import sys

import pytest

GOOD = """
import yard

@yard.op("{name}_op(out!: T[n], x: T[n]) where T in {{f32}}", tensors="numpy")
def op(out, x):
    out[...] = x

def register():
    yard.kernel(op, vendor="{name}")(lambda out, x: None)
"""


@pytest.fixture
def run(tmp_path):
    """Writes the given files, and runs code that can import them."""

    def inside(code, variable=None, files=(), warnings="default"):
        for name, text in dict(files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
        environment.pop("YARD_PYTHON_PLUGINS", None)
        if variable is not None:
            environment["YARD_PYTHON_PLUGINS"] = variable
        return subprocess.run([sys.executable, "-W", warnings, "-c", code], capture_output=True, text=True,
                              env=environment)

    return inside


def package(name, points):
    """Returns the files that installation of a package leaves."""
    lines = "".join(f"{k} = {v}\n" for k, v in points.items())
    return {f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{name}-1.0.dist-info/entry_points.txt": f"[yard.plugins]\n{lines}"}


def test_the_environment_names_modules_and_functions(run):
    done = run("""
import yard
assert "good_op" in yard.ops and "other_op" in yard.ops
assert [k["id"] for k in yard.kernels("good_op")] == ["reference.python"]
assert {k["id"] for k in yard.kernels("other_op")} == {"reference.python", "vendor.other"}
rows = yard.plugins()
assert [(r["plugin"], r["source"], r["loaded"]) for r in rows] == [
    ("good", "YARD_PYTHON_PLUGINS", True), ("other:register", "YARD_PYTHON_PLUGINS", True)]
assert yard.load_plugins() == rows
""", " good, ,other:register", {"good.py": GOOD.format(name="good"), "other.py": GOOD.format(name="other")})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # the runtime knows the variable


def test_packages_state_entry_points(run):
    files = {**package("good-package", {"first": "good", "second": "good:register [fast]"}),
             "good.py": GOOD.format(name="good")}
    done = run("""
import sys, yard
assert "good" not in sys.modules and yard.plugins() == []
rows = yard.load_plugins()
assert [(r["plugin"], r["source"], r["loads"], r["loaded"]) for r in rows] == [
    ("first", "entry point of good-package", "good", True),
    ("second", "entry point of good-package", "good:register", True)]
assert "vendor.good" in {k["id"] for k in yard.kernels("good_op")}
assert len(yard.load_plugins()) == 2 and "first" in repr(rows)
""", files=files)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("entry, text", [
    ("missing", "ModuleNotFoundError: No module named 'missing'"),
    ("broken", "ZeroDivisionError: division by zero"),
    ("good:nothing", "AttributeError: module 'good' has no attribute 'nothing'"),
    ("good:__name__", "TypeError: 'str' object is not callable"),
    ("good:", "ValueError: expected MODULE or MODULE:FUNCTION, got 'good:'"),
    ("/tmp/x.so", "ModuleNotFoundError"),
])
def test_a_failure_is_reported_and_the_others_are_loaded(run, entry, text):
    files = {"good.py": GOOD.format(name="good"), "broken.py": "1 / 0", "fine.py": GOOD.format(name="fine")}
    done = run("""
import numpy, yard
assert "fine_op" in yard.ops and yard.ops.fine_op(numpy.ones(2, "f4")).sum() == 2
first, second = yard.plugins()
assert not first["loaded"] and second["loaded"] and second["error"] == ""
print(first["error"])
""", f"{entry},fine", files)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    assert f"RuntimeWarning: plugin '{entry}' of YARD_PYTHON_PLUGINS cannot be loaded: {text}" in done.stderr


def test_an_entry_point_that_fails_is_reported(run):
    files = {**package("bad", {"bad": "broken", "fine": "fine"}), "broken.py": "raise OSError('no device')",
             "fine.py": GOOD.format(name="fine")}
    done = run("""
import yard
rows = {r["plugin"]: r for r in yard.load_plugins()}
assert rows["bad"]["error"] == "OSError: no device" and rows["fine"]["loaded"]
""", files=files)
    assert done.returncode == 0, done.stderr
    assert "plugin 'bad' of entry point of bad cannot be loaded: OSError: no device" in done.stderr


def test_a_plugin_may_end_the_program(run):
    done = run("import yard", "leaves", {"leaves.py": "raise SystemExit(7)"})
    assert done.returncode == 7  # not an error of the plugin


def test_plugins_may_load_plugins(run):
    done = run("import yard; assert [r['loaded'] for r in yard.plugins()] == [True]", "inner",
               {"inner.py": "import yard\nyard.load_plugins()\nassert len(yard.plugins()) == 1\n"})
    assert done.returncode == 0, done.stderr


def test_a_privileged_process_loads_none(run):
    done = run("""
import os
from yard import _plugins
assert _plugins._ignored() is False
os.environ["YARD_PYTHON_PLUGINS"] = "good"
_plugins._ignored = lambda: True
_plugins.load_environment()
assert _plugins.plugins() == []
""", files={"good.py": GOOD.format(name="good")})
    assert done.returncode == 0, done.stderr
