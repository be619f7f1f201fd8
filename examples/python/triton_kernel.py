# SPDX-License-Identifier: Apache-2.0
# A Triton kernel for an op. Without a GPU the interpreter of Triton runs it.
import importlib.util
import os

if importlib.util.find_spec("triton") is None:
    print("this example needs triton")
    raise SystemExit
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
# [triton]
import triton
import triton.language as tl
import yard
import yard.adapters.triton


@triton.jit
def square(out, x, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size)
    tl.store(out + at, value * value, mask=at < size)


@yard.op("square(out!: T[*rows, d], x: T[*rows, d]) where T in {f32}")
def reference(out, x):
    out.copy_(x * x)


def is_compact(out, x):
    return all(t.strides[-1] == 1 and len(t.shape) == 1 for t in (out, x)) or "not one dense row"


yard.adapters.triton.kernel(
    "square", vendor="mine", verify=is_compact, reasons=["not one dense row"],
    grid=lambda out, x: (triton.cdiv(x.numel(), 1024),),
    arguments=lambda out, x: {"out": out, "x": x, "size": x.numel(), "BLOCK": 1024},
)(square)
# [/triton]
x = torch.arange(3000.0, device="cuda" if torch.cuda.is_available() else "cpu")
assert torch.equal(yard.ops.square(x), x * x)
assert yard.explain(yard.ops.square, x)["selected"] == "vendor.mine"
