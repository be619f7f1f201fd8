# SPDX-License-Identifier: Apache-2.0
"""Picks, runs and explains the best kernel for every operator call.

>>> import numpy, yard
>>> x, weight = numpy.ones((2, 4), "f4"), numpy.ones(4, "f4")
>>> yard.ops.rms_norm(x, weight, eps=1e-6).round(3).tolist()
[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
"""

import sys

from ._yard import Handle, Tensor, version as __version__
from ._errors import (CallerError, Declined, DeviceLostError, Error, FatalError, FaultError,
                      TensorInfo, TransientError)
from ._calls import bind, explain, ops, policy, register_torch_ops
from ._functions import Backend, add_backend, dispatch, functions, remove_backend
from ._kernels import kernel, op, unregister
from ._plugins import load_plugins, plugins
from ._reports import configure, kernels, limit_threads, load_plugin, stats, verify

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError("yard needs the interpreter's lock, which a free-threaded Python gives back when it "
                      "imports yard; unset PYTHON_GIL=0 or -X gil=0, which forbid that")

__all__ = ["Backend", "CallerError", "Declined", "DeviceLostError", "Error", "FatalError", "FaultError", "Handle",
           "Tensor", "TensorInfo", "TransientError", "add_backend", "bind", "configure", "dispatch", "explain",
           "functions", "kernel", "kernels", "limit_threads", "load_plugin", "load_plugins", "op", "ops",
           "plugins", "policy", "register_torch_ops", "remove_backend", "stats", "unregister", "verify"]


_plugins.load_environment()
