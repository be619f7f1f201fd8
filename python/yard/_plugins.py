# SPDX-License-Identifier: Apache-2.0
"""Plugins in Python: modules and functions that register kernels, ops and backends."""

import importlib
import os
import warnings
from _thread import RLock  # importing threading takes milliseconds

from . import _reports

VARIABLE = "YARD_PYTHON_PLUGINS"
GROUP = "yard.plugins"
_lock = RLock()
_rows = {}  # of plugins, by what they load


def _ignored():
    """Whether the process has more privileges than its user, who must not choose what it runs."""
    import ctypes
    at_secure = 23
    return bool(ctypes.CDLL(None).getauxval(at_secure))


def _load(name, source, target):
    if target in _rows:
        return
    row = _rows[target] = {"plugin": name, "source": source, "loads": target, "loaded": False, "error": ""}
    try:
        module_name, colon, function = target.partition(":")
        if not module_name or (colon and not function):
            raise ValueError(f"expected MODULE or MODULE:FUNCTION, got '{target}'")
        found = importlib.import_module(module_name)
        if colon:
            for attribute in function.split("."):
                found = getattr(found, attribute)
            found()
        row["loaded"] = True
    except Exception as e:  # the program runs on without it
        row["error"] = f"{type(e).__name__}: {e}"
        warnings.warn(f"plugin '{name}' of {source} cannot be loaded: {row['error']}", RuntimeWarning,
                      stacklevel=3)


def load_environment():
    """Loads the plugins that the environment names. The package does it when it is imported."""
    entries = [e.strip() for e in os.environ.get(VARIABLE, "").split(",")]
    entries = [e for e in entries if e]
    if not entries or _ignored():
        return
    with _lock:
        for entry in entries:
            _load(entry, VARIABLE, entry)


def load_plugins():
    """Loads the plugins of installed packages, and lists all plugins in Python.

    A package states its plugins as entry points of the group `yard.plugins`: a module, which registers
    kernels when it is imported, or a function, which is called. A plugin that fails is a warning, and
    its row has the error. Plugins are loaded once. See yard.load_plugin() for libraries in C++.
    """
    from importlib.metadata import entry_points
    with _lock:
        for point in entry_points(group=GROUP):
            package = point.dist.name if point.dist else "a package"
            _load(point.name, f"entry point of {package}", point.value.partition("[")[0].strip())
    return plugins()


def plugins():
    """Lists the plugins in Python that were loaded or that failed, and loads none."""
    return _reports.Table((dict(r) for r in list(_rows.values())),
                          ("plugin", "source", "loads", "loaded", "error"))
