# SPDX-License-Identifier: Apache-2.0
"""Kernels and ops that are written in Python."""

import atexit
import sys

from . import _calls, _errors, _schema, _yard

_registered = set()  # (op, kernel), of this process


def _library():
    return "torch" if "torch" in sys.modules else "numpy"


def _fields(name, params, function, id, vendor, kind, backend, priority, dtypes, verify, reasons,
            summary, tensors, autograd=False, device="cpu", own_backend=False):
    if not callable(function) or not (verify is None or callable(verify)):
        raise TypeError("expected a function that can be called")
    if isinstance(dtypes, str) or isinstance(reasons, str):
        raise TypeError("dtypes, reasons: expected a list of texts, got one text")
    if dtypes is None:
        dtypes = {}
    elif not isinstance(dtypes, dict):
        dtypes = {None: list(dtypes)}
    for argument, words in dtypes.items():
        if not all(isinstance(w, str) for w in words):
            raise TypeError(f"dtypes: expected names of dtypes, got {words!r}")
    if not all(isinstance(r, str) for r in reasons):
        raise TypeError(f"reasons: expected texts, got {reasons!r}")
    if not isinstance(priority, int) or not 0 <= priority <= 1000:
        raise ValueError(f"priority: expected a whole number from 0 to 1000, got {priority!r}")
    if tensors not in (None, "torch", "numpy"):
        raise ValueError(f"tensors: expected 'torch' or 'numpy', got {tensors!r}")
    tensors = tensors or _library()
    if autograd and tensors != "torch":
        raise ValueError("autograd: only kernels with tensors='torch' can compute gradients")
    doc = (function.__doc__ or "").strip().splitlines()
    return {"op": name, "id": id, "vendor": vendor, "kind": kind, "backend": backend,
            "priority": priority, "dtypes": dtypes, "verify": verify, "reasons": list(reasons),
            "summary": summary or (doc[0] if doc else ""), "tensors": tensors,
            "autograd": bool(autograd), "device": device, "own_backend": own_backend,
            "function": function, "params": [(p.name, list(p.words), p.role != "") for p in params],
            "tensor_info": _errors.TensorInfo}


def kernel(op, *, id=None, vendor=None, priority=0, dtypes=None, verify=None, reasons=(),
           summary=None, tensors=None, autograd=False, device="cpu", unavailable=""):
    """Registers the decorated function as a kernel of an op.

    The function takes the op's parameters in the order of the schema, writes to the outputs and
    returns None. It competes with all other kernels under the same policy. It gets the caller's own
    tensors where they are of the library `tensors` ("torch" or "numpy"), and otherwise tensors that
    share the memory and are valid until it returns.

    `dtypes` are the accepted dtypes of all tensors, or a dict from arguments to dtypes. `verify`
    gets the arguments with a TensorInfo for each tensor, and returns True to accept the call, or
    one of the texts `reasons`, where {0} to {2} stand for figures that follow in a tuple.

    A kernel with `autograd=True` also serves calls whose inputs require gradients. It writes to the
    outputs by operations that torch records, such as `out.copy_(x * weight)`. `device` names the
    devices of the calls that it takes: "cpu" or "cuda". Kernels of one vendor and device are a
    backend; `unavailable` tells why it cannot be used, such as "package x is not installed".

    Raise yard.Declined for a call that the kernel cannot run. Every other Exception is a fault.
    """
    name = op if isinstance(op, str) else op.__name__

    def register(function):
        params = _schema.read(_calls.ops[name].schema)
        kernel_id = id or (f"vendor.{vendor}" if vendor else f"default.{getattr(function, '__name__', '')}")
        kind = "vendor" if vendor else "default"
        backend = (vendor or "python") + ("" if device == "cpu" else f"_{device}")
        own_backend = device != "cpu" or unavailable != ""
        fields = _fields(name, params, function, kernel_id, vendor, kind, backend, priority, dtypes,
                         verify, reasons, summary, tensors, autograd, device, own_backend)
        if own_backend:
            _yard.add_backend(backend, vendor or "", "Kernels in Python", "", device, unavailable, [])
        _yard.register_kernel(fields)
        _registered.add((name, kernel_id))
        return function

    return register


def op(schema, *, summary="", tensors=None):
    """Registers an op, with the decorated function as its reference kernel. Returns the op.

    >>> import numpy, yard
    >>> @yard.op("doubled(out!: T[n], x: T[n]) where T in {f32}", tensors="numpy")
    ... def doubled(out, x):
    ...     out[...] = 2 * x
    >>> doubled(numpy.array([1, 2], "f4")).tolist()
    [2.0, 4.0]
    >>> yard.unregister("doubled")
    """

    def register(function):
        name = schema.partition("(")[0].strip()
        try:
            params = _schema.read(schema)
        except (IndexError, ValueError):
            params = ()  # the library says what is wrong
        _yard.register_op(schema, summary, _fields(
            name, params, function, "reference.python", None, "reference", "python", 0, None, None,
            (), summary, tensors))
        _calls._forget(name)
        _registered.add((name, "reference.python"))
        return _calls.ops[name]

    return register


def unregister(op, id=""):
    """Removes a kernel, or the whole op without `id`. Returns when no call uses it any more."""
    name = op if isinstance(op, str) else op.__name__
    _yard.unregister(name, id)
    for entry in [r for r in _registered if r[0] == name and id in ("", r[1])]:
        _registered.discard(entry)
    if not id:
        _calls._forget(name)


@atexit.register
def _end():
    for name, id in list(_registered):
        try:
            _yard.unregister(name, "" if id == "reference.python" else id)
        except _errors.Error:
            pass
    _yard.end()
