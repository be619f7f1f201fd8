# SPDX-License-Identifier: Apache-2.0
"""Kernels of torch, for tensors on the CPU and on CUDA devices."""

from .. import _errors, _kernels
from . import cuda, load

torch, MISSING = load("torch")
VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) if torch else (0, 0)


def rms_norm(out, x, weight, eps):
    out.copy_(torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps))


def add_rms_norm(out, residual, x, weight, eps):
    residual.add_(x)
    rms_norm(out, residual, weight, eps)


def layer_norm(out, x, weight, bias, eps):
    out.copy_(torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps))


def softmax(out, x):
    torch.softmax(x, -1, out=out)


def silu_and_mul(out, x):
    gate, up = x.chunk(2, -1)
    torch.mul(torch.nn.functional.silu(gate), up, out=out)


def gelu_and_mul(out, x, approximate):
    gate, up = x.chunk(2, -1)
    torch.mul(torch.nn.functional.gelu(gate, approximate=approximate), up, out=out)


def add(out, a, b):
    torch.add(a, b, out=out)


def mul(out, a, b):
    torch.mul(a, b, out=out)


def matmul(out, a, b):
    torch.matmul(a, b, out=out)


def linear(out, x, weight, scale, bias):
    # In two dimensions, because torch rounds before it adds the bias to others, and because out= gives
    # tensors of another shape new memory.
    if out.numel() == 0:
        return
    compact = out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    rows, to = x.reshape(out.numel() // out.shape[-1], x.shape[-1]), compact.view(-1, out.shape[-1])
    if bias is None:
        torch.mm(rows, weight.t(), out=to)
    else:
        torch.addmm(bias, rows, weight.t(), out=to)
    if compact is not out:
        out.copy_(compact)


def embedding(out, ids, table):
    try:
        out.copy_(torch.nn.functional.embedding(ids, table))
    except IndexError as e:  # the caller's error, which the reference kernel reports
        raise _errors.Declined(str(e)) from None


def argmax(out, x):
    torch.argmax(x, -1, out=out)


def attention(out, query, key, value, mask, scale, causal=False):
    repeats = {"enable_gqa": True} if query.shape[2] != key.shape[2] else {}
    done = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask,
        is_causal=causal and query.shape[1] > 1, scale=scale or None, **repeats)
    out.copy_(done.transpose(1, 2))


def causal_attention(out, query, key, value, mask, scale):
    attention(out, query, key, value, mask, scale, causal=True)


def cross_attention(out, query, key, value, lengths, mask, scale):
    attention(out, query, key, value, mask, scale)


FLOATS = ["f32", "f16", "bf16"]
ONE_ELEMENT = "torch is not exact for rows of one element"
ONE_DTYPE = "torch multiplies tensors of one dtype"
MASK_DTYPE = "torch takes masks of the dtype of the query"
TWO_MASKS = "torch takes no mask beside the causal one"
ALIGNED = "torch lets the first of {0} queries see the first of {1} keys"
NO_KEYS = "torch gives no zeros where there are no keys"
LENGTHS = "torch takes no lengths"
REPEATS = "torch repeats heads of keys from version 2.5 on"
MISSING_OP = "this torch has no such function; expected version {0}.{1} or later"


def _two_elements(out, x, *_):
    return x.shape[-1] > 1 or ONE_ELEMENT


def _same_dtype(out, x, weight, *_):
    return x.dtype == weight.dtype or ONE_DTYPE


def _attention(out, query, key, value, mask, scale):
    if mask is not None and mask.dtype != query.dtype:
        return MASK_DTYPE
    if key.shape[1] == 0:
        return NO_KEYS
    return query.shape[2] == key.shape[2] or VERSION >= (2, 5) or REPEATS


def _causal(out, query, key, value, mask, scale):
    if mask is not None and query.shape[1] > 1:
        return TWO_MASKS
    if query.shape[1] not in (1, key.shape[1]):
        return ALIGNED, query.shape[1], key.shape[1]
    return _attention(out, query, key, value, mask, scale)


def _cross(out, query, key, value, lengths, mask, scale):
    return LENGTHS if lengths is not None else _attention(out, query, key, value, mask, scale)


ATTENTION = (MASK_DTYPE, NO_KEYS, REPEATS)
# For each op: the function, the verifier and its reasons, the dtypes (of all tensors, or by
# argument), and the first version of torch that has it.
KERNELS = {
    "rms_norm": (rms_norm, None, (), FLOATS, (2, 4)),
    "add_rms_norm": (add_rms_norm, None, (), FLOATS, (2, 4)),
    "layer_norm": (layer_norm, _two_elements, (ONE_ELEMENT,), FLOATS, (1, 13)),
    "softmax": (softmax, None, (), FLOATS, (1, 13)),
    "silu_and_mul": (silu_and_mul, None, (), FLOATS, (1, 13)),
    "gelu_and_mul": (gelu_and_mul, None, (), FLOATS, (1, 13)),
    "add": (add, None, (), FLOATS, (1, 13)),
    "mul": (mul, None, (), FLOATS, (1, 13)),
    "matmul": (matmul, None, (), FLOATS, (1, 13)),
    "linear": (linear, _same_dtype, (ONE_DTYPE,), FLOATS, (1, 13)),
    "embedding": (embedding, None, (), {"out": FLOATS, "table": FLOATS}, (1, 13)),
    "argmax": (argmax, None, (), {"x": FLOATS, "out": ["i64"]}, (1, 13)),
    "attention.full": (attention, _attention, ATTENTION, FLOATS, (2, 1)),
    "attention.causal": (causal_attention, _causal, (*ATTENTION, TWO_MASKS, ALIGNED), FLOATS, (2, 1)),
    "attention.cross": (cross_attention, _cross, (*ATTENTION, LENGTHS), {"query": FLOATS}, (2, 1)),
}


def _wants(since, verify):
    if VERSION >= since or torch is None:
        return verify
    return lambda *_: (MISSING_OP, *since)


def register():
    for device, why in (("cpu", MISSING), ("cuda", MISSING or cuda())):
        for op, (function, verify, reasons, dtypes, since) in KERNELS.items():
            if device == "cpu" and VERSION < (2, 4) and dtypes is FLOATS:
                dtypes = ["f32"]  # others are missing there, or not exact
            _kernels.kernel(op, id="vendor.torch" if device == "cpu" else "vendor.torch_cuda",
                            vendor="torch", device=device, unavailable=why, dtypes=dtypes,
                            verify=_wants(since, verify), reasons=(*reasons, MISSING_OP),
                            summary="torch's own function", tensors="torch")(function)
