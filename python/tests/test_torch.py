# SPDX-License-Identifier: Apache-2.0
"""Ops in torch.compile."""

import subprocess
import sys

import pytest
import yard
from helpers import numbers, rms

torch = pytest.importorskip("torch")
CURRENT = hasattr(torch.library, "opcheck")
needs_compile = pytest.mark.skipif(not CURRENT, reason=f"torch {torch.__version__} has no torch.library.opcheck")
if CURRENT:
    yard.register_torch_ops()


def t(*shape):
    return torch.from_numpy(numbers(*shape))


def ints(*values):
    return torch.tensor(values)


CALLS = {
    "rms_norm": lambda: (t(2, 3, 8), t(8), 1e-6),
    "add_rms_norm": lambda: (t(3, 8), t(3, 8), t(8)),
    "layer_norm": lambda: (t(3, 8), None, t(8)),
    "silu_and_mul": lambda: (t(3, 8),),
    "gelu_and_mul": lambda: (t(3, 8), "tanh"),
    "softmax": lambda: (t(8),),
    "add": lambda: (t(3, 4), t(3, 4)),
    "mul": lambda: (t(3, 4), t(3, 4)),
    "rotary_embedding": lambda: (t(5, 2, 8), t(5, 1, 8), torch.arange(5)),
    "matmul": lambda: (t(2, 3, 4), t(2, 4, 5)),
    "linear": lambda: (t(2, 4), t(3, 4), None, t(3)),
    "embedding": lambda: (ints([1, 2]), t(4, 6)),
    "quantize_int8": lambda: (t(3, 8),),
    "dequantize": lambda: (torch.ones(3, 8, dtype=torch.int8), t(3)),
    "attention.full": lambda: (t(1, 3, 4, 8), t(1, 5, 2, 8), t(1, 5, 2, 8)),
    "attention.causal": lambda: (t(1, 3, 4, 8), t(1, 5, 2, 8), t(1, 5, 2, 8), t(1, 4, 3, 5)),
    "attention.sliding_window": lambda: (t(1, 3, 4, 8), t(1, 5, 2, 8), t(1, 5, 2, 8), None, t(4), 2),
    "attention.cross": lambda: (t(1, 3, 4, 8), t(1, 5, 2, 8), t(1, 5, 2, 8), ints(4)),
    "attention.decode": lambda: (t(1, 4, 8), t(1, 5, 2, 8), t(1, 5, 2, 8), ints(4)),
    "attention.paged_decode": lambda: (t(1, 4, 8), t(6, 4, 2, 8), t(6, 4, 2, 8), ints([1, 2]), ints(6)),
    "argmax": lambda: (t(3, 8),),
    "sample": lambda: (t(3, 8),),
    "topk_softmax": lambda: (t(3, 8),),
}
OUTPUTS = {"rotary_embedding": {}, "quantize_int8": ("out", "scale"), "topk_softmax": ("weights", "ids")}


@needs_compile
def test_every_op_has_a_call_here():
    builtin = {k["op"] for k in yard.kernels() if k["id"] == "reference.cpp"}
    assert builtin == set(CALLS)


@needs_compile
@pytest.mark.parametrize("name", CALLS)
def test_opcheck_passes(name):
    packet = getattr(torch.ops.yard, name.replace(".", "_"))
    forms = packet.overloads()
    assert forms, "the op has no form in torch"
    outputs = torch.empty(3, 2), torch.empty(3, 2, dtype=torch.int32)
    if "default" in forms:
        torch.library.opcheck(packet.default, CALLS[name]())
        outputs = packet.default(*CALLS[name]())
    if "out" in forms:
        names = OUTPUTS.get(name, ("out",))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        torch.library.opcheck(packet.out, CALLS[name](), {n: torch.empty_like(o) for n, o in zip(names, outputs)})
    assert set(forms) == {"default", "out"} - {{"rotary_embedding": "out", "topk_softmax": "default"}.get(name)}


class Graphs:
    """A backend of torch.compile that keeps the graphs and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, module, inputs):
        self.graphs.append(module.graph)
        return module

    def ops(self):
        return [str(n.target) for g in self.graphs for n in g.nodes
                if n.op == "call_function" and str(n.target).startswith("yard.")]


def compiled(function, **options):
    torch._dynamo.reset()
    graphs = Graphs()
    return torch.compile(function, backend=graphs, fullgraph=True, **options), graphs


@needs_compile
def test_a_graph_keeps_an_op_as_one_node():
    def layer(x, weight):
        return yard.ops.softmax(yard.ops.rms_norm(x * 2, weight, eps=1e-5)) + 1

    run, graphs = compiled(layer)
    x, weight = t(4, 8), t(8)
    assert torch.equal(run(x, weight), layer(x, weight))
    assert graphs.ops() == ["yard.rms_norm.default", "yard.softmax.default"]


@needs_compile
def test_names_with_dots_and_words_are_kept():
    def layer(q, k, v):
        return yard.ops.gelu_and_mul(yard.ops.attention.causal(q, k, v), approximate="tanh")

    run, graphs = compiled(layer)
    calls = t(1, 3, 4, 8), t(1, 3, 2, 8), t(1, 3, 2, 8)
    assert torch.equal(run(*calls), layer(*calls))
    assert graphs.ops() == ["yard.attention_causal.default", "yard.gelu_and_mul.default"]


@needs_compile
def test_sizes_may_be_symbols():
    run, graphs = compiled(lambda x: yard.ops.silu_and_mul(x.reshape(-1, x.shape[-1])), dynamic=True)
    for rows, columns in (3, 8), (5, 16), (7, 32):
        x = t(2, rows, columns)
        assert torch.equal(run(x), yard.ops.silu_and_mul(x.reshape(2 * rows, columns)))
    assert len(graphs.graphs) == 1 and graphs.ops() == ["yard.silu_and_mul.default"]


@needs_compile
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_written_arguments_are_written(backend):
    def step(residual, x, weight, out, scale):
        yard.ops.add_rms_norm(residual, x, weight, out=x)
        quantized = yard.ops.quantize_int8(x, out=(out, scale))
        return residual + 1, quantized[1] * 2

    torch._dynamo.reset()
    run = torch.compile(step, backend=backend, fullgraph=True)
    arguments = [t(3, 8), t(3, 8), t(8), torch.empty(3, 8, dtype=torch.int8), torch.empty(3)]
    copies = [a.clone() for a in arguments]
    for got, expected in zip(run(*arguments), step(*copies)):
        torch.testing.assert_close(got, expected)
    for got, expected in zip(arguments, copies):
        torch.testing.assert_close(got, expected)


@needs_compile
def test_a_graph_calls_the_op_that_it_was_given():
    run, graphs = compiled(lambda op, x: op(x))
    x = t(2, 8)
    for op in yard.ops.softmax, yard.ops.silu_and_mul, yard.ops.softmax:
        assert torch.equal(run(op, x), op(x))
    assert graphs.ops() == ["yard.softmax.default", "yard.silu_and_mul.default"]


@needs_compile
def test_policies_count_when_a_graph_runs():
    run, _ = compiled(yard.ops.softmax.__call__)
    x = t(2, 8)
    seen = []

    @yard.kernel("softmax", id="vendor.seen", vendor="seen", tensors="torch", priority=1)
    def kernel(out, x):
        seen.append(type(x))
        out.copy_(torch.softmax(x, -1))

    run(x)
    assert not seen
    with yard.policy(allow_kernels=["vendor.seen"]):
        run(x)
    yard.unregister("softmax", "vendor.seen")
    assert seen == [torch.Tensor]


SCHEMAS = {
    "made_later(out!: T[*rows, 2*d, 3], x: T[*rows, d]) where T in {f32}": lambda: (t(2, 5, 4),),
    "made_group.broadcast(out!: T[*rows, d], x: T[*rows|1, d|1], y: T[*rows|1, d|1]) where T in {f32}":
        lambda: (t(3, 1, 4), t(2, 1)),
    "made_full(out!: T[*rows, d], x: T[*rows|1, 1], y: T[*rows, d]) where T in {f32}":
        lambda: (t(1, 1), t(2, 3, 4)),
    "made_list(out!: I[n, m], xs: T[n, _][], m: int = 4) where T in {f32}, I in {i64, i32}":
        lambda: ([t(3, 1), t(3, 2)],),
}


@needs_compile
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: s.partition("(")[0])
def test_fake_outputs_are_like_real_ones(schema):
    @yard.op(schema, tensors="torch")
    def op(out, *inputs):
        out.fill_(len(inputs))

    yard.register_torch_ops(op.__name__)
    packet = getattr(torch.ops.yard, op.__name__.replace(".", "_"))
    torch.library.opcheck(packet.default, SCHEMAS[schema]())
    run, graphs = compiled(lambda *a: op(*a))
    assert torch.equal(run(*SCHEMAS[schema]()), op(*SCHEMAS[schema]()))
    assert graphs.ops() == [f"yard.{op.__name__.replace('.', '_')}.default"]
    yard.unregister(op)


@needs_compile
def test_torch_keeps_the_schema_of_an_op():
    def define(schema):
        @yard.op(schema, tensors="torch")
        def op(out, x, by=1):
            out.copy_(x * by)
        return op

    yard.register_torch_ops(define("made_twice(out!: T[n], x: T[n]) where T in {f32}").__name__)
    yard.unregister("made_twice")
    other = define("made_twice(out!: T[n], x: T[n], by: int = 2) where T in {f32}")
    with pytest.raises(RuntimeError, match="give the op another name"):
        yard.register_torch_ops("made_twice")
    assert other(t(3)).shape == (3,)
    yard.unregister("made_twice")


@needs_compile
def test_gradients_are_refused():
    x, weight = t(2, 8).requires_grad_(), t(8)
    run, _ = compiled(lambda x, w: yard.ops.rms_norm(x, w))
    with pytest.raises(RuntimeError, match="requires a gradient"):
        run(x, weight)
    with torch.no_grad():
        assert torch.equal(run(x, weight), yard.ops.rms_norm(x, weight))


@needs_compile
@pytest.mark.parametrize("call, text", [
    (lambda x: yard.ops.softmax(x, x), "takes 1 arguments"),
    (lambda x: yard.ops.softmax(y=x), "needs argument 'x'"),
    (lambda x: yard.ops.softmax(x, y=x), "has no parameter 'y'"),
    (lambda x: yard.ops.topk_softmax(x), "needs output 'weights'"),
    (lambda x: yard.ops.add_rms_norm(x, x, x[0]), "the same memory"),
    (lambda x: yard.ops.matmul(x[0], x), "expected T"),
])
def test_wrong_calls_say_why(call, text):
    run, _ = compiled(call)
    with pytest.raises(Exception, match=text):
        run(t(2, 8))


def test_nothing_is_registered_before_it_is_compiled():
    code = """
import sys, torch, yard
yard.ops.softmax(torch.ones(2, 8))
assert "yard._torch" not in sys.modules and "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_compile
def test_an_op_may_be_compiled_before_its_first_call():
    code = """
import torch, yard
def f(x):
    return yard.ops.softmax(yard.ops.attention.full(x, x, x))
x = torch.ones(1, 2, 2, 8)
count = [0]
def backend(module, inputs):
    count[0] += 1
    return module
run = torch.compile(f, backend=backend, fullgraph=True)
run(x), run(x)
assert count == [1] and torch.equal(run(x), f(x))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_compile
def test_programs_are_exported_with_their_ops(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x, weight):
            return torch.ops.yard.rms_norm(x, weight)

    x, weight = t(3, 8), t(8)
    torch.export.save(torch.export.export(Model(), (x, weight)), tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    assert abs(again(x, weight).numpy() - rms(x.numpy(), weight.numpy())).max() < 1e-5


@pytest.mark.skipif(CURRENT, reason="this torch can register ops")
def test_an_old_torch_is_refused():
    with pytest.raises(RuntimeError, match="expected torch 2.4 or later"):
        yard.register_torch_ops()
