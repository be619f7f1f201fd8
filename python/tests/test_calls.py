# SPDX-License-Identifier: Apache-2.0
"""Calls on tensors of several libraries."""

import array
import gc
import subprocess
import sys
import threading

import numpy
import pytest
import yard
from exchange import Exchanged
from helpers import in_threads, needs_torch, numbers, rms, selected, torch


def test_an_output_is_made_and_returned():
    x, w = numbers(3, 64), numbers(64)
    out = yard.ops.rms_norm(x, w, eps=1e-5)
    assert type(out) is numpy.ndarray and out.dtype == numpy.float32
    numpy.testing.assert_allclose(out, rms(x, w, 1e-5), rtol=1e-5, atol=1e-5)


def test_a_given_output_is_written_and_returned():
    x, w, out = numbers(3, 64), numbers(64), numpy.full((3, 64), 7, "f4")
    assert yard.ops.rms_norm(x, w, out=out) is out
    numpy.testing.assert_allclose(out, rms(x, w), rtol=1e-5, atol=1e-5)


def test_in_place():
    x, w = numbers(3, 64), numbers(64)
    expected = rms(x, w)
    yard.ops.rms_norm(x, w, out=x)
    numpy.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)


def test_an_argument_that_is_read_and_written():
    residual, x, w = numbers(2, 32), numbers(2, 32, seed=2), numbers(32)
    total = residual + x
    out = yard.ops.add_rms_norm(residual, x, w)
    numpy.testing.assert_allclose(residual, total, rtol=1e-6)
    numpy.testing.assert_allclose(out, rms(total, w), rtol=1e-4, atol=1e-5)


def test_several_outputs_are_a_tuple():
    x = numbers(2, 8)
    q, scale = yard.ops.quantize_int8(x)
    assert q.dtype == numpy.int8 and scale.shape == (2,)
    q2, scale2 = numpy.zeros_like(q), numpy.zeros_like(scale)
    assert yard.ops.quantize_int8(x, out=(q2, scale2))[0] is q2
    numpy.testing.assert_array_equal(q, q2)
    assert yard.ops.quantize_int8(x, scale=scale2)[1] is scale2


def test_outputs_that_inputs_do_not_determine_must_be_given():
    x = numbers(2, 8)
    weights, ids = numpy.zeros((2, 3), "f4"), numpy.zeros((2, 3), "i4")
    yard.ops.topk_softmax(x, weights=weights, ids=ids)
    assert (ids[:, 0] == x.argmax(-1)).all()
    with pytest.raises(yard.CallerError, match="k"):
        yard.ops.topk_softmax(x)


def test_enums_bools_and_ints():
    x = numbers(2, 16)
    a = yard.ops.gelu_and_mul(x, approximate="tanh")
    b = yard.ops.gelu_and_mul(x)
    assert a.shape == (2, 8) and not numpy.array_equal(a, b)
    with pytest.raises(yard.CallerError, match="approximate"):
        yard.ops.gelu_and_mul(x, approximate="cubic")
    with pytest.raises(TypeError, match="argument 'approximate' of op 'gelu_and_mul': expected a string"):
        yard.ops.gelu_and_mul(x, approximate=1)


def test_names_with_dots():
    q = numbers(1, 4, 2, 8)
    a = yard.ops.attention.causal(q, q, q)
    b = yard.ops["attention.causal"](q, q, q, mask=None)
    numpy.testing.assert_array_equal(a, b)
    assert "causal" in dir(yard.ops.attention) and "rms_norm" in dir(yard.ops)


def test_unknown_ops_are_attribute_errors():
    with pytest.raises(AttributeError, match="did you mean 'rms_norm'"):
        yard.ops.rms_nrm
    with pytest.raises(KeyError, match="not known"):
        yard.ops["nothing.like.it"]


@pytest.mark.parametrize("wrong, message", [
    (lambda x, w: yard.ops.rms_norm(), "op 'rms_norm' needs argument 'x'"),
    (lambda x, w: yard.ops.rms_norm(x, w, 1e-5, 2), "at most 3 positional arguments .x, weight, eps., got 4"),
    (lambda x, w: yard.ops.rms_norm(x, weight=w, x=x), "got argument 'x' twice"),
    (lambda x, w: yard.ops.rms_norm(x, w, epsilon=1), "has no parameter 'epsilon'; it has out, x, weight, eps"),
    (lambda x, w: yard.ops.rms_norm([1.0], w), "argument 'x' of op 'rms_norm': expected a tensor .*, got list"),
    (lambda x, w: yard.ops.rms_norm(x, w, eps="a"), "argument 'eps' of op 'rms_norm'"),
    (lambda x, w: yard.ops.quantize_int8(x, out=(x,)), "expected a tuple of 2 tensors"),
])
def test_wrong_arguments_are_type_errors(wrong, message):
    with pytest.raises(TypeError, match=message):
        wrong(numbers(2, 8), numbers(8))


@pytest.mark.parametrize("wrong, message", [
    (lambda x, w: yard.ops.rms_norm(x, w[:4]), "hidden"),
    (lambda x, w: yard.ops.rms_norm(x.astype("f8"), w), "f64"),
    (lambda x, w: yard.ops.rms_norm(x, w, eps=-1.0), "eps"),
])
def test_calls_that_the_schema_refuses(wrong, message):
    with pytest.raises(yard.CallerError, match=message) as e:
        wrong(numbers(2, 8), numbers(8))
    assert e.value.code == "invalid_argument" and e.value.op == "rms_norm"
    assert isinstance(e.value, ValueError) and isinstance(e.value, yard.Error)


def test_read_only_memory_is_an_input_only():
    x, w = numbers(2, 8), numbers(8)
    x.setflags(write=False)
    w.setflags(write=False)
    yard.ops.rms_norm(x, w)
    with pytest.raises(ValueError, match="argument 'out' of op 'rms_norm': its memory is read-only"):
        yard.ops.rms_norm(x, w, out=x)


def test_strides_zero_sizes_and_scalars():
    x, w = numbers(6, 128), numbers(64)
    part = x[::2, 32:96]
    numpy.testing.assert_allclose(yard.ops.rms_norm(part, w), rms(part, w), rtol=1e-5, atol=1e-5)
    assert yard.ops.rms_norm(numpy.zeros((0, 64), "f4"), w).shape == (0, 64)
    one = yard.ops.rms_norm(numbers(64), w)
    assert one.shape == (64,)
    with pytest.raises(ValueError, match="no multiple"):
        bytes_ = numpy.zeros(66, "u1")
        odd = numpy.ndarray((2, 8), "f4", bytes_, strides=(33, 4))
        yard.ops.softmax(odd)


def test_other_kinds_of_buffers():
    x = array.array("f", [1, 2, 3, 4])
    out = numpy.zeros(4, "f4")
    yard.ops.softmax(x, out=out)
    assert abs(out.sum() - 1) < 1e-6
    with pytest.raises(TypeError, match="no library of its tensors"):
        yard.ops.softmax(x)
    with pytest.raises(TypeError, match="no dtype stands for elements of format 'Zf'"):
        yard.ops.softmax(numpy.zeros(4, "c8"))
    with pytest.raises(TypeError, match="a subclass"):
        yard.ops.softmax(numpy.ma.masked_array(numbers(4), mask=[1, 0, 0, 0]))
    with pytest.raises(ValueError, match="9 dimensions"):
        yard.ops.softmax(numpy.zeros((1,) * 9, "f4"))


def test_block_quantised_weights():
    rows, k = 4, 64
    scales = numpy.full((rows, k // 32), 0.5, "f2")
    quants = numpy.random.default_rng(1).integers(-127, 127, (rows, k // 32, 32)).astype("i1")
    blocks = numpy.concatenate([scales.view("i1").reshape(rows, -1, 2), quants], 2).tobytes()
    weight = yard.Tensor(blocks, "q8_0", (rows, k))
    assert weight.shape == (rows, k) and weight.dtype == "q8_0"
    x = numbers(3, k)
    expected = x @ (0.5 * quants.reshape(rows, k).astype("f4")).T
    numpy.testing.assert_allclose(yard.ops.linear(x, weight), expected, rtol=2e-2, atol=2)
    with pytest.raises(ValueError, match="the shape needs 136 bytes, the buffer has 272|needs"):
        yard.Tensor(blocks, "q8_0", (rows + 1, k))
    with pytest.raises(ValueError, match="a multiple of 32"):
        yard.Tensor(blocks, "q8_0", (rows, 33))
    with pytest.raises(ValueError, match="'q9' is not a dtype"):
        yard.Tensor(blocks, "q9", (rows, k))
    with pytest.raises(BufferError):
        memoryview(weight)


def test_own_tensors_are_buffers_too():
    memory = bytearray(4 * 6)
    t = yard.Tensor(memory, "f32", (2, 3))
    a = numpy.asarray(t)
    a[1, 2] = 5
    assert memoryview(memory).cast("f")[5] == 5 and repr(t) == "yard.Tensor(dtype='f32', shape=(2, 3))"
    with pytest.raises(ValueError, match="read-only"):
        yard.ops.softmax(a, out=yard.Tensor(bytes(24), "f32", (2, 3)))
    column = yard.Tensor(memory, "f32", (2,), strides=(3,))
    assert numpy.asarray(column).strides == (12,)


def test_the_c_functions_of_dlpack():
    x, w = numbers(3, 64), numbers(64)
    before = Exchanged.borrowed
    out = yard.ops.rms_norm(Exchanged(x), Exchanged(w))
    assert type(out) is Exchanged and Exchanged.borrowed - before == 3
    numpy.testing.assert_allclose(out.array, rms(x, w), rtol=1e-5, atol=1e-5)

    class Derived(Exchanged):
        pass

    with pytest.raises(TypeError, match="got .*Derived"):
        yard.ops.rms_norm(Derived(x), w)


class Producer:
    """Has only __dlpack__."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **_):
        return self.a.__dlpack__()

    def __dlpack_device__(self):
        return 1, 0


def test_dlpack_capsules():
    x, w, out = numbers(3, 64), numbers(64), numpy.zeros((3, 64), "f4")
    yard.ops.rms_norm(Producer(x), Producer(w), out=out)
    numpy.testing.assert_allclose(out, rms(x, w), rtol=1e-5, atol=1e-5)


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch(dtype):
    kind = getattr(torch, dtype)
    x, w = torch.randn(3, 64).to(kind), torch.randn(64).to(kind)
    out = yard.ops.rms_norm(x, w)
    assert type(out) is torch.Tensor and out.dtype == kind
    expected = rms(x.float().numpy(), w.float().numpy())
    numpy.testing.assert_allclose(out.float().numpy(), expected, rtol=2e-2, atol=2e-2)
    y = torch.randn(64, 3).t()
    yard.ops.rms_norm(y, torch.ones(64), out=y)
    assert not y.is_contiguous()


@needs_torch
def test_outputs_are_made_where_the_inputs_are():
    from torch.overrides import TorchFunctionMode

    class Changes(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if kwargs is not None and "dtype" in kwargs:
                kwargs["dtype"] = torch.float64
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, 8)
    if hasattr(torch, "set_default_device"):  # since torch 2
        with torch.device("meta"):
            assert yard.ops.softmax(x).device.type == yard.ops.argmax(x).device.type == "cpu"
    with Changes(), pytest.raises(yard.Error):
        yard.ops.argmax(x)
    assert yard.ops.argmax(x).dtype == torch.int32 and yard.ops.argmax(x[0]).shape == ()


@needs_torch
def test_gradients_are_not_lost_silently():
    x = torch.nn.Parameter(torch.randn(2, 8))
    with pytest.raises(RuntimeError, match="argument 'x' of op 'softmax': it requires a gradient"):
        yard.ops.softmax(x)
    with torch.no_grad():
        out = yard.ops.softmax(x)
    assert not out.requires_grad and abs(float(out.sum()) - 2) < 1e-5


@needs_torch
def test_subclasses_of_torch_tensors_are_refused():
    class Strange(torch.Tensor):
        pass

    with pytest.raises(TypeError, match="Strange, a subclass"):
        yard.ops.softmax(torch.randn(4).as_subclass(Strange))


def test_arguments_whose_code_runs_meanwhile():
    class Clears:
        def __init__(self, of):
            self.of = of

        def __index__(self):
            self.of.clear()
            return 1

    shape = []
    shape += [Clears(shape), 2, 3]
    assert yard.Tensor(bytes(24), "f32", shape).shape == (1, 2, 3)

    class Fails:
        def __dlpack__(self, **_):
            raise ValueError("no tensor today")

    with pytest.raises(ValueError, match="argument 'x' of op 'softmax': no tensor today") as e:
        yard.ops.softmax(Fails(), out=numbers(4))
    assert isinstance(e.value.__cause__, ValueError)


@pytest.mark.parametrize("ndim", [-1, 9, 2**30])
def test_tensors_of_a_wrong_rank(ndim):
    import exchange

    class Wrong(Exchanged):
        pass

    @exchange.Borrow
    def borrow(x, to):
        exchange.borrow(x, to)
        to.contents.ndim = ndim
        return 0

    table = exchange.Exchange(1, 3, None, exchange.allocate, exchange.to_managed, exchange.to_object, borrow,
                              exchange.stream)
    Wrong.__dlpack_c_exchange_api__ = exchange.new_capsule(exchange.ctypes.addressof(table), exchange.NAME, None)
    with pytest.raises(ValueError, match="dimensions"):
        yard.ops.softmax(Wrong(numbers(4)))


def test_read_only_tensors_stay_so():
    t = yard.Tensor(bytes(16), "f32", (4,))
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    assert not numpy.asarray(t).flags.writeable


def test_outputs_given_twice():
    x = numbers(2, 8)
    q, scale = yard.ops.quantize_int8(x)
    with pytest.raises(TypeError, match="an output twice"):
        yard.ops.quantize_int8(x, scale=scale, out=(q, scale))


@needs_torch
def test_negative_views_are_refused():
    y = (torch.arange(4) * torch.full((4,), 1j, dtype=torch.complex64)).conj().imag
    with pytest.raises(ValueError, match="argument 'x' of op 'softmax': it is a negative view"):
        yard.ops.softmax(y)
    torch.testing.assert_close(yard.ops.softmax(y.resolve_neg()), y.softmax(-1))


@needs_torch
def test_importing_after_torch():
    subprocess.run([sys.executable, "-c", "import torch, yard; yard.ops.softmax(torch.ones(3))"], check=True)


@needs_torch
@pytest.mark.parametrize("make, message", [
    (lambda: torch.empty(3, 4, device="meta"), "meta"),
    (lambda: torch.zeros(3, dtype=torch.complex64), "complex"),
    (lambda: torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.tensor([1.]), (2, 2)), "storage|strided"),
    (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "QInt"),
    (lambda: torch.zeros(3, dtype=torch.int32), "i32"),
])
def test_tensors_that_no_kernel_can_read(make, message):
    with pytest.raises((RuntimeError, TypeError, ValueError), match=f"'x'.*{message}") as e:
        yard.ops.softmax(make())
    assert "Exception raised from" not in str(e.value)
    with pytest.raises((RuntimeError, TypeError, ValueError), match=message):
        yard.ops.softmax(torch.ones(3, 4), out=make())


@needs_torch
def test_dead_tensors():
    dead = torch.ones(3, 4)
    (dead.untyped_storage() if hasattr(dead, "untyped_storage") else dead.storage()).resize_(0)
    with pytest.raises((yard.CallerError, RuntimeError), match="null pointer|out of bounds for storage"):
        yard.ops.softmax(dead)
    view = memoryview(bytearray(16)).cast("f")
    view.release()
    with pytest.raises(ValueError, match="released memoryview"):
        yard.ops.softmax(view, out=numpy.zeros(4, "f4"))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_zero_dimensional_tensors(library):
    if library == "torch":
        pytest.importorskip("torch")

    @yard.op("test.plus(out!: T[*n], x: T[*n], y: T[*n]) where T in {f32}", tensors=library)
    def plus(out, x, y):
        out[...] = x + y

    x = numpy.full((), 3, "f4") if library == "numpy" else torch.tensor(3.0)
    out = plus(x, x)
    assert out.shape == () and float(out) == 6 and plus(x, x, out=out) is out
    yard.unregister(plus)
    with pytest.raises(yard.CallerError, match=r"softmax(.|\n)*x: f32\[\]"):
        yard.ops.softmax(x)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_any_strides(library):
    if library == "torch":
        pytest.importorskip("torch")
    base = numbers(4, 6, 8)
    views = [base[::2], base[:, 1:4], base[:, :, ::3], base.transpose(1, 0, 2), base.transpose(2, 1, 0),
             numpy.broadcast_to(base[0, 0], (3, 2, 8)), base[:0], base[:, :0]]
    if library == "numpy":
        views += [base[::-1], base[:, :, ::-1]]
    for view in views:
        expected = numpy.exp(view.astype("f8"))
        expected /= expected.sum(-1, keepdims=True)
        x = torch.from_numpy(base).as_strided(view.shape, [s // 4 for s in view.strides],
                                              (view.ctypes.data - base.ctypes.data) // 4 if view.size else 0
                                              ) if library == "torch" else view
        numpy.testing.assert_allclose(numpy.asarray(yard.ops.softmax(x)), expected, rtol=1e-5, atol=1e-6)
        wide = numpy.zeros(tuple(2 * s for s in view.shape), "f4")
        part = wide[tuple(slice(None, None, 2) for _ in view.shape)]
        yard.ops.softmax(x, out=torch.from_numpy(wide)[::2, ::2, ::2] if library == "torch" else part)
        numpy.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-6)


def test_an_array_that_another_thread_reshapes():
    x = numbers(64, 8)
    expected = yard.ops.softmax(x)
    stop = []

    def reshape():
        while not stop:
            x.shape = (8, 64)
            x.shape = (64, 8)

    thread = threading.Thread(target=reshape)
    thread.start()
    wrong = 0
    for _ in range(2000):
        out = yard.ops.softmax(x)
        wrong += out.shape == (64, 8) and not numpy.allclose(out, expected)
    stop.append(1)
    thread.join()
    assert not wrong


@needs_torch
def test_imaginary_parts_at_odd_addresses():
    numbers_ = torch.arange(9.0)
    torch.testing.assert_close(yard.ops.softmax(numbers_[1:]), numbers_[1:].softmax(-1))
    z = torch.randn(4, 2, dtype=torch.complex64)
    torch.testing.assert_close(yard.ops.softmax(z.imag), z.imag.softmax(-1))
    with pytest.raises(ValueError, match="negative view"):
        yard.ops.softmax(z.conj().imag[1:])


def test_explain():
    x, w = numbers(2, 8), numbers(8)
    e = yard.explain(yard.ops.rms_norm, x, w)
    assert e["selected"] == yard.explain("rms_norm", x, w)["selected"] == "default.simd"
    assert "default.simd" in repr(e) and "<pre>" in e._repr_html_()
    assert yard.explain("rms_norm(f32[2,8], f32[8])")["selected"] == "default.simd"
    with pytest.raises(yard.Error):
        yard.explain("rms_norm(f32[2,8")


def test_threads_call_at_once():
    x, w = numbers(64, 256), numbers(256)
    expected = rms(x, w)
    wrong = []

    def work(prefer):
        with yard.policy(prefer=prefer):
            for _ in range(200):
                if not numpy.allclose(yard.ops.rms_norm(x, w), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(prefer)

    in_threads(work, None, "reference", "vendor", None)
    assert not wrong


def test_nothing_leaks():
    x, w = numbers(4, 64), numbers(64)

    def some():
        for _ in range(300):
            yard.ops.rms_norm(x, w)
            yard.ops.softmax(Producer(x), out=x)
            with yard.policy(prefer="reference"):
                pass
            try:
                yard.ops.rms_norm(x, w[:3])
            except yard.CallerError:
                pass

    some()
    gc.collect()
    before, references = len(gc.get_objects()), sys.getrefcount(x)
    some()
    gc.collect()
    assert sys.getrefcount(x) == references and len(gc.get_objects()) - before < 50


def test_reports(tmp_path):
    rows = yard.kernels(yard.ops.softmax)
    assert {"default.simd", "reference.cpp"} <= {r["id"] for r in rows}
    assert repr(rows).splitlines()[0].startswith("op       id") and "<table>" in rows._repr_html_()
    yard.ops.softmax(numbers(2, 8))
    assert any(o["op"] == "softmax" and o["calls"] > 0 for o in yard.stats()["ops"])
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: '1.0'\nkernel_denies: [default.simd]\n")
    yard.configure(rules)
    assert selected() != "default.simd"
    yard.configure(None)
    assert selected() == "default.simd"
    rules.write_text("version: '1.0'\nkernel_deny: []\n")
    with pytest.raises(yard.Error, match="kernel_denies"):
        yard.configure(rules)
    report = yard.verify("softmax", "default.simd", cases=20)
    assert report[0]["failed"] == 0 and report[0]["passed"] > 0
