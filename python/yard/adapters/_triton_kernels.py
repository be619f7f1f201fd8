# SPDX-License-Identifier: Apache-2.0
"""Kernels in Triton. Only adapters.triton imports this module."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(out, x, weight, eps, size, out_row, x_row, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + row * x_row + at, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / size + eps)
    tl.store(out + row * out_row + at, value * scale * factor, mask=inside)


@triton.jit
def silu_and_mul(out, x, size, out_row, x_row, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    gate = tl.load(x + row * x_row + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * x_row + size + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * out_row + at, gate / (1.0 + tl.exp(-gate)) * up, mask=inside)
