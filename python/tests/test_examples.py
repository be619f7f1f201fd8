# SPDX-License-Identifier: Apache-2.0
"""The examples of the documentation and of the docstrings."""

import doctest
import pathlib
import subprocess
import sys

import pytest
import yard

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
MODELS = {"chat", "transformers_smollm2"}  # test_models.py runs these


@pytest.mark.parametrize("path", sorted(p for p in EXAMPLES.glob("*.py") if p.stem not in MODELS), ids=lambda p: p.stem)
def test_example(path):
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["yard", "yard._calls", "yard._functions", "yard._kernels", "yard._reports"])
def test_docstrings(name):
    __import__(name)
    assert doctest.testmod(sys.modules[name]).failed == 0


def test_importing_is_quick_and_needs_no_torch():
    code = ("import sys, time; t = time.perf_counter(); import yard; t = time.perf_counter() - t\n"
            "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
            "print(t)")
    times = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  check=True).stdout) for _ in range(3)]
    print("import yard:", min(times), "s")
