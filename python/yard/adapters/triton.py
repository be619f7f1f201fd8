# SPDX-License-Identifier: Apache-2.0
"""Kernels in Triton, and a way to register others.

With TRITON_INTERPRET=1 Triton interprets its kernels on the CPU. Then they are registered for tensors
of the CPU, so that yard.verify() compares them with the reference on a machine without a GPU.
"""

import math
import os

from .. import _kernels
from . import cuda, load, row_stride

triton, MISSING = load("triton")
torch, WITHOUT_TORCH = load("torch")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def kernel(op, *, grid, arguments, vendor="triton", **fields):
    """Registers a function of Triton as a kernel of an op.

    `grid` and `arguments` take the parameters of the op, with tensors of torch. They return the grid,
    and a dict of the function's arguments, also num_warps and the like. `fields` are those of
    yard.kernel.
    """

    def register(function):
        def launch(*args):
            programs = grid(*args)
            if 0 in programs:
                return
            if INTERPRETED:
                function[programs](**arguments(*args))
                return
            with torch.cuda.device(args[0].device):
                function[programs](**arguments(*args))

        _kernels.kernel(op, vendor=vendor, tensors="torch", device="cpu" if INTERPRETED else "cuda",
                        unavailable=MISSING or (WITHOUT_TORCH if INTERPRETED else cuda()),
                        **fields)(launch)
        return function

    return register


BLOCK = 65536  # the longest row that one block of rms_norm holds
UNEVEN = "rows have gaps or uneven distances"
TOO_LONG = "a row of {0} elements is longer than a block of {1}"
TOO_MANY = "{0} rows are more than a grid has"


def rows_fit(*tensors):
    """Returns True or a reason, for kernels that run one program per row."""
    rows = math.prod(tensors[0].shape[:-1])
    if rows >= 2**31:
        return TOO_MANY, rows
    return all(row_stride(t.shape, t.strides) is not None for t in tensors) or UNEVEN


def _check_norm(out, x, weight, eps):
    if x.shape[-1] > BLOCK:
        return TOO_LONG, x.shape[-1], BLOCK
    return rows_fit(out, x, weight)


def _norm_grid(out, x, *_):
    return (math.prod(x.shape[:-1]) if x.shape[-1] > 0 else 0,)


def _activation_grid(out, x):
    return math.prod(out.shape[:-1]), triton.cdiv(out.shape[-1], 1024)


def _check_activation(out, x):
    return rows_fit(out, x)


def _stride(tensor):
    return row_stride(tensor.shape, tensor.stride())


def _norm_arguments(out, x, weight, eps):
    size = x.shape[-1]
    block = triton.next_power_of_2(size)
    return {"out": out, "x": x, "weight": weight, "eps": eps, "size": size, "out_row": _stride(out),
            "x_row": _stride(x), "BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


def _activation_arguments(out, x):
    return {"out": out, "x": x, "size": out.shape[-1], "out_row": _stride(out), "x_row": _stride(x),
            "BLOCK": 1024}


def register():
    functions, _ = load("yard.adapters._triton_kernels")
    floats = ["f32", "f16", "bf16"]
    kernel("rms_norm", dtypes=floats, verify=_check_norm, reasons=(UNEVEN, TOO_LONG, TOO_MANY),
           summary="one program for each row", arguments=_norm_arguments,
           grid=_norm_grid)(getattr(functions, "rms_norm", None))
    kernel("silu_and_mul", dtypes=floats, verify=_check_activation, reasons=(UNEVEN, TOO_MANY),
           summary="one program for 1,024 elements of a row", arguments=_activation_arguments,
           grid=_activation_grid)(getattr(functions, "silu_and_mul", None))
