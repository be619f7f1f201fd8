# SPDX-License-Identifier: Apache-2.0
"""Kernels of Liger (liger-kernel), which are written in Triton."""

import math

from .. import _kernels
from . import cuda, load
from .triton import BLOCK, TOO_LONG, TOO_MANY, UNEVEN, rows_fit

torch, _ = load("torch")
ops, MISSING = load("liger_kernel.ops")
if not MISSING and not hasattr(ops.swiglu, "swiglu_fused_gate_up_forward"):
    MISSING = "this liger_kernel is too old; expected 0.8.5 or later"


def rms_norm(out, x, weight, eps):
    # "gemma" computes in f32 up to the store, and "llama" rounds before it multiplies by the weight.
    out.copy_(ops.rms_norm.rms_norm_forward(x, weight, eps, 0.0, "gemma", False)[0])


def silu_and_mul(out, x):
    out.copy_(ops.swiglu.swiglu_fused_gate_up_forward(x)[1].view(out.shape))


def rotary_embedding(query, key, positions, cos, sin, rotary_dim, base, style):
    # Liger wants (batch, heads, tokens, dim), which it turns over to find the tokens in a row.
    heads_first = [t.view(1, -1, *t.shape[-2:]).transpose(1, 2) for t in (query, key)]
    ops.rope.rope_forward(*heads_first, cos, sin, rotary_dim=2 * cos.shape[-1])


EMPTY = "Liger takes no empty tensors"
PAIRS = "Liger rotates a query and a key"
TABLES = "Liger takes a row of cos and sin for each token"
STYLE = "Liger pairs dimensions half a head apart"
COMPACT = "Liger rotates compact tensors in place"
DTYPE = "Liger computes in the dtype of cos and sin, which has fewer digits"


def _is_empty(*tensors):
    return any(0 in t.shape for t in tensors)


def _check_norm(out, x, weight, eps):
    if _is_empty(x):
        return EMPTY
    if x.shape[-1] > BLOCK:
        return TOO_LONG, x.shape[-1], BLOCK
    return rows_fit(x, weight)


def _check_activation(out, x):
    if _is_empty(x):
        return EMPTY
    if out.shape[-1] > BLOCK:
        return TOO_LONG, out.shape[-1], BLOCK
    return rows_fit(x)


def _check_rotation(query, key, positions, cos, sin, rotary_dim, base, style):
    if key is None:
        return PAIRS
    if positions is not None or cos is None:
        return TABLES
    if style != "half":
        return STYLE
    if query.dtype == "f32" and cos.dtype != "f32":
        return DTYPE
    if _is_empty(query, key, cos):
        return EMPTY
    for t in query, key, cos, sin:
        compact = [math.prod(t.shape[i + 1:]) for i in range(len(t.shape))]
        if any(n > 1 and s != c for n, s, c in zip(t.shape, t.strides, compact)):
            return COMPACT
    return True


def register():
    floats = ["f32", "f16", "bf16"]
    for op, function, dtypes, check, reasons in (
            ("rms_norm", rms_norm, floats, _check_norm, (EMPTY, TOO_LONG, UNEVEN, TOO_MANY)),
            ("silu_and_mul", silu_and_mul, floats, _check_activation, (EMPTY, TOO_LONG, UNEVEN, TOO_MANY)),
            ("rotary_embedding", rotary_embedding, {"query": floats, "cos": floats}, _check_rotation,
             (EMPTY, PAIRS, TABLES, STYLE, COMPACT, DTYPE))):
        _kernels.kernel(op, vendor="liger", device="cuda", unavailable=MISSING or cuda(), dtypes=dtypes,
                        verify=check, reasons=reasons, tensors="torch", summary="Liger's kernel")(function)
