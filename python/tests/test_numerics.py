# SPDX-License-Identifier: Apache-2.0
"""Every built-in op against torch, in float32, bfloat16 and float16."""

import math

import pytest
import yard
from helpers import torch

pytestmark = pytest.mark.skipif(torch is None, reason="torch is not installed")
CHECKS = {}


def check(function):
    """Adds a function of a Tensors that returns results and expected results, under the op's name."""
    CHECKS[function.__name__.replace("attention_", "attention.")] = function
    return function


class Tensors:
    """Random tensors of one dtype. `wide` are their numbers in float64."""

    def __init__(self, dtype):
        self.dtype = dtype
        torch.manual_seed(1)

    def __call__(self, *shape):
        return torch.randn(*shape).to(self.dtype)


def wide(*tensors):
    return tuple(t.double() for t in tensors)


def norm(x, eps):
    return x / (x * x).mean(-1, keepdim=True).add(eps).sqrt()


@check
def add(t):
    a, b = t(3, 37), t(3, 37)
    return yard.ops.add(a, b), a.double() + b.double()


@check
def mul(t):
    a, b = t(3, 37), t(3, 37)
    return yard.ops.mul(a, b), a.double() * b.double()


@check
def rms_norm(t):
    x, w = t(2, 5, 48), t(48)
    return yard.ops.rms_norm(x, w, eps=1e-5), norm(x.double(), 1e-5) * w.double()


@check
def add_rms_norm(t):
    residual, x, w = t(5, 48), t(5, 48), t(48)
    total = (residual.double() + x.double()).to(t.dtype)
    out = yard.ops.add_rms_norm(residual, x, w)
    return (out, residual), (norm(total.double(), 1e-6) * w.double(), total)


@check
def layer_norm(t):
    x, w, b = t(5, 48), t(48), t(48)
    expected = torch.nn.functional.layer_norm(x.double(), (48,), *wide(w, b), eps=1e-4)
    plain = torch.nn.functional.layer_norm(x.double(), (48,))
    return (yard.ops.layer_norm(x, w, b, eps=1e-4), yard.ops.layer_norm(x)), (expected, plain)


@check
def softmax(t):
    x = t(4, 33)
    return yard.ops.softmax(x), x.double().softmax(-1)


@check
def silu_and_mul(t):
    x = t(4, 34)
    a, b = x.double().chunk(2, -1)
    return yard.ops.silu_and_mul(x), torch.nn.functional.silu(a) * b


@check
def gelu_and_mul(t):
    x = t(4, 34)
    a, b = x.double().chunk(2, -1)
    tanh = 0.5 * a * (1 + torch.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a ** 3)))
    return ((yard.ops.gelu_and_mul(x), yard.ops.gelu_and_mul(x, "tanh")),
            (torch.nn.functional.gelu(a) * b, tanh * b))


@check
def matmul(t):
    a, b = t(2, 5, 24), t(2, 24, 7)
    return yard.ops.matmul(a, b), a.double() @ b.double()


@check
def linear(t):
    x, w, bias = t(5, 32), t(7, 32), t(7)
    whole, scale = torch.randint(-127, 128, (7, 32), dtype=torch.int8), torch.rand(7)
    return ((yard.ops.linear(x, w, bias=bias), yard.ops.linear(x, whole, scale=scale)),
            (x.double() @ w.double().t() + bias.double(), x.double() @ whole.double().t() * scale.double()))


@check
def embedding(t):
    table, ids = t(11, 6), torch.tensor([[3, 0], [10, 3]])
    return yard.ops.embedding(ids, table), table.double()[ids]


@check
def argmax(t):
    x, out = t(6, 17), torch.zeros(6, dtype=torch.int64)
    return yard.ops.argmax(x, out=out), x.argmax(-1)


@check
def sample(t):
    x, out = t(6, 17), torch.zeros(6, dtype=torch.int64)
    best = yard.ops.sample(x, top_k=1, seed=3, out=out)
    some = [yard.ops.sample(x, top_k=4, seed=s, out=torch.zeros_like(out)) for s in range(20)]
    top = x.float().topk(4, -1).indices
    assert all((s[:, None] == top).any(-1).all() for s in some)
    assert len({tuple(s.tolist()) for s in some}) > 5
    return best, x.argmax(-1)


@check
def topk_softmax(t):
    x, weights, ids = t(5, 9), torch.zeros(5, 3), torch.zeros(5, 3, dtype=torch.int32)
    yard.ops.topk_softmax(x, weights=weights, ids=ids)
    expected = x.double().softmax(-1).topk(3, -1)
    again = yard.ops.topk_softmax(x, renormalize=True, weights=torch.zeros(5, 3), ids=ids)[0]
    return ((weights, x.double().gather(-1, ids.long()), again),
            (expected.values, x.double().gather(-1, expected.indices),
             expected.values / expected.values.sum(-1, keepdim=True)))


@check
def quantize_int8(t):
    x = t(5, 40)
    out, scale = yard.ops.quantize_int8(x)
    assert out.dtype == torch.int8
    most = x.double().abs().amax(-1)
    assert ((out.double() * scale.double()[:, None] - x.double()).abs() <= 0.51 * scale.double()[:, None]).all()
    return scale, most / 127


@check
def dequantize(t):
    x, scale = torch.randint(-127, 128, (5, 8), dtype=torch.int8), torch.rand(5)
    out = yard.ops.dequantize(x, scale, out=torch.empty(5, 8, dtype=t.dtype))
    return out, x.double() * scale.double()[:, None]


def rotated(x, cos, sin, style):
    d = 2 * cos.shape[-1]
    head, tail = x[..., :d], x[..., d:]
    cos, sin = cos[:, None, :], sin[:, None, :]
    if style == "half":
        a, b = head[..., :d // 2], head[..., d // 2:]
        out = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    else:
        a, b = head[..., 0::2], head[..., 1::2]
        out = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    return torch.cat((out, tail), -1)


@check
def rotary_embedding(t):
    got, expected = [], []
    for style, rotary in (("half", 16), ("interleaved", 16), ("half", 8)):
        q, k, positions = t(5, 4, 16), t(5, 2, 16), torch.tensor([0, 3, 4, 7, 90])
        angle = positions[:, None].double() * 1e4 ** (-torch.arange(0, rotary, 2).double() / rotary)
        expected += [rotated(x.double(), angle.cos(), angle.sin(), style) for x in (q, k)]
        yard.ops.rotary_embedding(q, k, positions, rotary_dim=rotary, style=style)
        got += [q, k]
    q, cos, sin = t(5, 4, 16), t(5, 8), t(5, 8)
    expected.append(rotated(q.double(), *wide(cos, sin), "half"))
    yard.ops.rotary_embedding(q, cos=cos, sin=sin)
    return (*got, q), (*expected,)


def attended(q, k, v, allowed, mask=None, sinks=None, scale=0.0):
    """Attention by its definition; `allowed` has the shape (batch, seq, kv_seq) or fewer dimensions."""
    q, k, v = wide(q, k, v)
    each = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(each, 2), v.repeat_interleave(each, 2)
    scores = torch.einsum("bshd,bthd->bhst", q, k) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores + mask.double()
    allowed = allowed if allowed.dim() == 2 else allowed[:, None]
    scores = scores.masked_fill(~allowed, -math.inf)
    if sinks is not None:
        sink = sinks.double()[None, :, None, None].expand(*scores.shape[:3], 1)
        weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return torch.einsum("bhst,bthd->bshd", weights, v)


def qkv(t, seq=5, kv_seq=7):
    return t(2, seq, 4, 16), t(2, kv_seq, 2, 16), t(2, kv_seq, 2, 16)


@check
def attention_full(t):
    q, k, v = qkv(t)
    mask, every = t(2, 4, 5, 7), torch.ones(5, 7, dtype=torch.bool)
    return ((yard.ops.attention.full(q, k, v), yard.ops.attention.full(q, k, v, mask, scale=0.5)),
            (attended(q, k, v, every), attended(q, k, v, every, mask, scale=0.5)))


@check
def attention_causal(t):
    q, k, v = qkv(t)
    past = torch.arange(7)[None] <= torch.arange(5)[:, None] + 2
    return yard.ops.attention.causal(q, k, v), attended(q, k, v, past)


@check
def attention_cross(t):
    q, k, v = qkv(t)
    lengths = torch.tensor([3, 7])
    there = (torch.arange(7) < lengths[:, None])[:, None].expand(2, 5, 7)
    return yard.ops.attention.cross(q, k, v, lengths), attended(q, k, v, there)


@check
def attention_sliding_window(t):
    q, k, v = qkv(t)
    at, key = torch.arange(5)[:, None] + 2, torch.arange(7)[None]
    near, sinks = (key <= at) & (key > at - 3), torch.randn(4)
    return ((yard.ops.attention.sliding_window(q, k, v, window=3),
             yard.ops.attention.sliding_window(q, k, v, sinks=sinks, window=3)),
            (attended(q, k, v, near), attended(q, k, v, near, sinks=sinks)))


@check
def attention_decode(t):
    q, k, v = qkv(t, seq=1)
    lengths = torch.tensor([4, 6], dtype=torch.int32)
    there = (torch.arange(7) < lengths[:, None])[:, None]
    return yard.ops.attention.decode(q[:, 0], k, v, lengths), attended(q, k, v, there)[:, 0]


@check
def attention_paged_decode(t):
    q, keys, values = t(2, 4, 16), t(6, 4, 2, 16), t(6, 4, 2, 16)
    table, lengths = torch.tensor([[5, 0], [2, 3]]), torch.tensor([6, 3])
    k, v = keys[table].flatten(1, 2), values[table].flatten(1, 2)
    there = (torch.arange(8) < lengths[:, None])[:, None]
    return (yard.ops.attention.paged_decode(q, keys, values, table, lengths),
            attended(q[:, None], k, v, there)[:, 0])


def test_every_op_has_a_check():
    built_in = {n for n in yard.ops if not n.startswith(("test.", "doubled"))}
    assert built_in - {"shifted_relu"} == set(CHECKS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("op", CHECKS)
@pytest.mark.parametrize("prefer", ["default", "reference"])
def test_results_are_those_of_torch(op, dtype, prefer):
    tolerance = {"float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3}[dtype]
    with yard.policy(prefer=prefer):
        got, expected = CHECKS[op](Tensors(getattr(torch, dtype)))
    pairs = zip(got, expected) if isinstance(got, tuple) else [(got, expected)]
    for g, e in pairs:
        assert g.shape == e.shape
        size = max(1.0, float(e.abs().max()))
        torch.testing.assert_close(g.double(), e.double(), rtol=tolerance, atol=tolerance * size)
