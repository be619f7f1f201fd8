# SPDX-License-Identifier: Apache-2.0
"""Kernels of other Python libraries for the ops of yard.

Nothing of these libraries is imported before enable() is called.
"""

import importlib

from .. import _reports

ADAPTERS = ("torch", "triton", "liger")
_enabled = set()


def enable(*names):
    """Registers the kernels of the named adapters, or of all, and lists their kernels.

    Kernels whose library or device is missing are registered too, so that yard.explain() tells why
    they do not run. Enabling an adapter again changes nothing.

    >>> import yard.adapters
    >>> sorted({row["id"] for row in yard.adapters.enable("liger") if row["op"] == "rms_norm"})
    ['vendor.liger']
    """
    for name in names:
        if name not in ADAPTERS:
            raise ValueError(f"expected names of adapters ({', '.join(ADAPTERS)}), got {name!r}")
    names = names or ADAPTERS
    for name in names:
        if name not in _enabled:
            importlib.import_module(f"yard.adapters.{name}").register()
            _enabled.add(name)
    rows = [k for k in _reports.kernels() if k["vendor"] in names]
    return _reports.Table(rows, ("op", "id", "backend", "available", "detail"))


def load(package):
    """Imports a package. Returns it and "", or None and why it cannot be used."""
    top = package.partition(".")[0]
    try:
        importlib.import_module(top)
        return importlib.import_module(package), ""
    except ModuleNotFoundError as e:
        return None, f"package {top} {'is not installed' if e.name == top else f'cannot be imported: {e}'}"
    except Exception as e:  # a broken installation must not end the program
        return None, f"package {package} cannot be imported: {type(e).__name__}: {e}"


def cuda():
    """Returns why torch cannot use CUDA, or ""."""
    torch, why = load("torch")
    return why or ("" if torch.cuda.is_available() else "torch finds no CUDA device")


def row_stride(shape, strides):
    """Returns the distance between rows, or None if rows have gaps or uneven distances."""
    if shape[-1] > 1 and strides[-1] != 1:
        return None
    outer = [(n, s) for n, s in zip(shape[:-1], strides[:-1]) if n != 1]
    if any(s != n * inner for (_, s), (n, inner) in zip(outer, outer[1:])):
        return None
    return outer[-1][1] if outer else shape[-1]
