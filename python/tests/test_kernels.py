# SPDX-License-Identifier: Apache-2.0
"""Ops and kernels that are written in Python."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy
import pytest
import yard
from exchange import Exchanged
from helpers import in_threads, needs_torch, torch


@pytest.fixture
def halved():
    """An op with a reference kernel in Python."""

    @yard.op("test.halved(out!: T[*rows, d], x: T[*rows, d], by: float = 2.0, how: enum{exact, fast} = exact) "
             "where T in {f32, f64}", summary="Divides by a number.", tensors="numpy")
    def reference(out, x, by, how):
        out[...] = x / by

    yield reference
    yard.unregister(reference)


def test_an_op_has_its_reference(halved):
    x = numpy.arange(6, dtype="f4").reshape(2, 3)
    numpy.testing.assert_array_equal(halved(x), x / 2)
    numpy.testing.assert_array_equal(yard.ops.test.halved(x, 4.0), x / 4)
    assert yard.explain(halved, x)["selected"] == "reference.python"
    assert "Divides by a number." in halved.__doc__ and "by=2.0" in halved.__doc__


def test_a_kernel_competes(halved):
    seen = []

    @yard.kernel(halved, vendor="mine", dtypes=["f32"], tensors="numpy")
    def fast(out, x, by, how):
        """Also divides."""
        seen.append((out, x, by, how))
        numpy.divide(x, by, out=out)

    x, out = numpy.ones((2, 3), "f4"), numpy.zeros((2, 3), "f4")
    assert halved(x, out=out, how="fast") is out and out[0, 0] == 0.5
    assert seen[0][0] is out and seen[0][1] is x and seen[0][2:] == (2.0, "fast")
    e = yard.explain(halved, x.astype("f8"))
    assert e["selected"] == "reference.python" and "f64" in repr(e)
    with yard.policy(deny_vendors=["mine"]):
        halved(x)
    assert len(seen) == 1
    row = next(r for r in yard.kernels(halved) if r["id"] == "vendor.mine")
    assert row["summary"] == "Also divides." and row["calls"] == 1
    yard.unregister(halved, "vendor.mine")
    assert len(yard.kernels(halved)) == 1


def test_verifiers_give_reasons(halved):
    infos = []

    def even(out, x, by, how):
        infos.append(x)
        return True if x.shape[-1] % 2 == 0 else ("the last size {0} is odd", x.shape[-1])

    @yard.kernel(halved, vendor="mine", verify=even, reasons=["the last size {0} is odd"], tensors="numpy")
    def fast(out, x, by, how):
        out[...] = -1

    assert (halved(numpy.ones((2, 4), "f4")) == -1).all()
    assert (halved(numpy.ones((2, 3), "f4")) == 0.5).all()
    e = yard.explain(halved, numpy.ones((2, 3), "f4"))
    assert "the last size 3 is odd" in repr(e)
    assert infos[0] == yard.TensorInfo("f32", (2, 4), (4, 1), "cpu")


def test_faults_fall_back_and_are_the_cause(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def broken(out, x, by, how):
        raise ZeroDivisionError("by nothing")

    x = numpy.ones(3, "f4")
    assert (halved(x) == 0.5).all()
    with yard.policy(allow_kernels=["vendor.mine"]), pytest.raises(yard.FaultError, match="by nothing") as e:
        halved(x)
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_a_kernel_declines(halved):
    calls = []

    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def picky(out, x, by, how):
        calls.append(1)
        raise yard.Declined("not today")

    for _ in range(20):
        assert (halved(numpy.ones(3, "f4")) == 0.5).all()
    assert len(calls) == 20  # a kernel that declines has no fault, so no breaker opens


def test_no_memory_is_transient(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def hungry(out, x, by, how):
        raise MemoryError("too much")

    with yard.policy(allow_kernels=["vendor.mine"]), pytest.raises(yard.TransientError, match="too much"):
        halved(numpy.ones(3, "f4"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_through(halved, error):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def interrupted(out, x, by, how):
        raise error()

    with pytest.raises(error):
        halved(numpy.ones(3, "f4"))


def test_results_belong_into_the_outputs(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def functional(out, x, by, how):
        return x / by

    with yard.policy(allow_kernels=["vendor.mine"]), pytest.raises(yard.FaultError, match="writes to its outputs"):
        halved(numpy.ones(3, "f4"))


def test_a_kernel_may_call_ops(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def nested(out, x, by, how):
        yard.ops.softmax(x, out=out)

    assert abs(halved(numpy.ones(4, "f4")).sum() - 1) < 1e-6


def test_memory_of_cxx_programs_may_not_be_kept(halved):
    kept = []

    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def keeps(out, x, by, how):
        kept.append(x)
        out[...] = x / by

    report = yard.verify(halved, "vendor.mine", cases=5)
    assert report[0]["failed"] > 0 and "keeps a reference to argument 'x'" in report[0]["worst"]
    kept.clear()
    mine = numpy.ones(3, "f4")  # the caller's own array may be kept
    assert halved(mine)[0] == 0.5 and kept[0] is mine
    other = Exchanged(numpy.ones(3, "f4"))  # and so may its memory
    halved(other, out=Exchanged(numpy.ones(3, "f4")))
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is not None and kept[1][0] == 1
    kept.clear()
    assert gone() is None


def test_locals_in_a_cycle_are_not_kept(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def cyclic(out, x, by, how):
        try:
            raise ValueError
        except ValueError as e:
            saved = e  # noqa: F841
        out[...] = x / by

    assert yard.verify(halved, "vendor.mine", cases=3)[0]["failed"] == 0


def test_a_kernel_may_return_its_output_only(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def returns(out, x, by, how):
        return numpy.divide(x, by, out=out)

    x = numpy.ones(3, "f4")
    with yard.policy(allow_kernels=["vendor.mine"]):
        assert (halved(x) == 0.5).all()
    yard.unregister(halved, "vendor.mine")
    yard.kernel(halved, vendor="mine", tensors="numpy")(lambda out, x, by, how: x)
    with yard.policy(allow_kernels=["vendor.mine"]), pytest.raises(yard.FaultError, match="writes to its outputs"):
        halved(x)


def test_tensors_that_the_library_lacks_are_declined():
    @yard.op("test.wide(out!: T[*rows, d], x: T[*rows, d]) where T in {f32, bf16}", tensors="numpy")
    def wide(out, x):
        out[...] = x

    memory = bytearray(16)
    x = yard.Tensor(memory, "bf16", (8,))
    with pytest.raises(yard.Error, match="numpy has no dtype bf16"):
        wide(x, out=yard.Tensor(bytearray(16), "bf16", (8,)))
    assert (wide(numpy.ones((2, 3), "f4")[:, ::-1]) == 1).all()
    yard.unregister(wide)


@needs_torch
def test_torch_kernels_decline_negative_strides(halved):
    @yard.kernel(halved, vendor="mine", tensors="torch")
    def by_torch(out, x, by, how):
        torch.div(x, by, out=out)

    assert (halved(numpy.ones((2, 8), "f4")[:, ::-1]) == 0.5).all()
    assert yard.verify(halved, "vendor.mine", cases=20)[0]["failed"] == 0


def test_wrong_functions_and_lists_are_type_errors(halved):
    for wrong, options in (3, {}), (print, {"verify": 3}), (print, {"dtypes": "f32"}), (print, {"reasons": "slow"}):
        with pytest.raises(TypeError, match="expected a"):
            yard.kernel(halved, vendor="mine", tensors="numpy", **options)(wrong)
    with pytest.raises(TypeError, match="expected an op, .*, got int"):
        yard.explain(3)
    assert [k["id"] for k in yard.kernels(halved)] == ["reference.python"]


def test_a_kernel_runs_on_the_thread_of_its_caller(halved):
    callers, seen = threading.local(), []

    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def here(out, x, by, how):
        seen.append(callers.number)

    def work(number):
        callers.number = number
        halved(numpy.ones(3, "f4"))

    in_threads(work, 1, 2, 3)
    assert sorted(seen) == [1, 2, 3]


def test_an_interrupt_ends_a_verification(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def interrupted(out, x, by, how):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        yard.verify(halved, "vendor.mine", cases=5)


def test_an_interrupt_passes_through_verifiers():
    def interrupted(*args):
        raise KeyboardInterrupt

    x = numpy.ones(3, "f4")
    for ask in (lambda op: op(x), lambda op: yard.explain(op, x), lambda op: yard.explain("test.plain(f32[3])"),
                lambda op: yard.bind(op, x)):
        op = yard.op("test.plain(out!: T[n], x: T[n]) where T in {f32}", tensors="numpy")(lambda out, x: None)
        yard.kernel(op, vendor="mine", verify=interrupted, tensors="numpy")(lambda out, x: None)
        with pytest.raises(KeyboardInterrupt):
            ask(op)
        yard.unregister(op)


def test_a_decorator_that_is_older_than_the_op():
    def register(schema):
        return yard.op(schema, tensors="numpy")(lambda out, *rest: None)

    register("test.old(out!: T[n], x: T[n]) where T in {f32}")
    decorate = yard.kernel("test.old", vendor="mine", tensors="numpy")
    yard.unregister("test.old")
    op = register("test.old(out!: T[n], x: T[n], a: int = 1, b: int = 2) where T in {f32}")
    seen = []
    decorate(lambda *args: seen.append(args))
    op(numpy.ones(3, "f4"))
    assert seen[0][2:] == (1, 2)
    yard.unregister("test.old", "vendor.mine")
    yard.unregister("test.old")


def test_schemas_without_blanks():
    @yard.op("test.dense(out!:T[n],x:T[n],how:enum{exact,fast}=fast,n2:int=3)where T in{f32}", tensors="numpy")
    def dense(out, x, how, n2):
        out[...] = n2 if how == "fast" else 0

    assert dense(numpy.ones(2, "f4"))[0] == 3 and dense(numpy.ones(2, "f4"), "exact")[0] == 0
    yard.unregister(dense)


@needs_torch
def test_kernels_for_torch_serve_calls_of_numpy(halved):
    types = []

    @yard.kernel(halved, vendor="mine", tensors="torch")
    def by_torch(out, x, by, how):
        types.append(type(x))
        torch.div(x, by, out=out)

    x = numpy.ones((2, 3), "f4")
    assert (halved(x) == 0.5).all() and types == [torch.Tensor]
    t = torch.ones(2, 3)
    assert (halved(t) == 0.5).all() and types == [torch.Tensor] * 2


def test_unregistering_releases(halved):
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)

    def make(big):
        @yard.kernel(halved, vendor="alone", tensors="numpy")
        def uses(out, x, by, how):
            out[...] = 1 if big else 0

    make(big)
    halved(numpy.ones(3, "f4"))
    del big
    assert gone() is not None
    yard.unregister(halved, "vendor.alone")
    gc.collect()
    assert gone() is None


def test_mistakes_in_registrations(halved):
    with pytest.raises(KeyError, match="not known"):
        yard.kernel("no_such_op", vendor="mine")(print)
    with pytest.raises(ValueError, match="'float99' is not a dtype"):
        yard.kernel(halved, vendor="mine", dtypes=["float99"])(lambda *a: None)
    with pytest.raises(ValueError, match="tensors: expected"):
        yard.kernel(halved, vendor="mine", tensors="jax")(lambda *a: None)
    for bad in ("bad(out!: T[n]", "", ": T[n]"):
        with pytest.raises(yard.Error):
            yard.op(bad)(lambda out: None)
    for wrong in ({"priority": 1.5}, {"priority": 2**40}, {"reasons": [1]}, {"dtypes": [1]}):
        with pytest.raises((TypeError, ValueError), match=list(wrong)[0]):
            yard.kernel(halved, vendor="mine", **wrong)(lambda *a: None)
    yard.kernel(halved, vendor="mine", tensors="numpy")(lambda *a: None)
    with pytest.raises(yard.Error, match="vendor.mine"):
        yard.kernel(halved, vendor="mine", tensors="numpy")(lambda *a: None)
    with pytest.raises(yard.Error):
        yard.unregister(halved, "vendor.nobody")


def test_threads_run_kernels(halved):
    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def fast(out, x, by, how):
        numpy.divide(x, by, out=out)

    x = numpy.ones((4, 4), "f4")
    wrong = []

    def work():
        for _ in range(300):
            if not (halved(x) == 0.5).all():
                wrong.append(1)

    in_threads(work)
    assert not wrong


ENDS = """
import os, sys, threading, numpy, yard
@yard.op("end.op(out!: T[n], x: T[n]) where T in {f32}", tensors="numpy")
def op(out, x):
    out[...] = x + 1
x = numpy.ones(4, "f4")
assert op(x)[0] == 2
%s
"""


@pytest.mark.parametrize("code", [
    "",  # ends with kernels registered
    "threading.Thread(target=lambda: [op(x) for _ in range(100000)], daemon=True).start()",
    "threading.Thread(target=lambda: [yard.stats() for _ in range(100000)], daemon=True).start()\n"
    "threading.Thread(target=lambda: [yard.kernels() for _ in range(100000)], daemon=True).start()",
    "pid = os.fork()\nassert op(x)[0] == 2\nif pid: assert os.waitpid(pid, 0)[1] == 0",
    "import multiprocessing as m\nm.get_context('fork').Process(target=op, args=(x,)).start()",
])
def test_the_interpreter_ends(code):
    done = subprocess.run([sys.executable, "-c", ENDS % code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_lists_that_change_while_they_are_read():
    @yard.op("test.cat(out!: T[n], xs: T[n][]) where T in {f32}", tensors="numpy")
    def cat(out, xs):
        items.clear()
        gc.collect()
        out[...] = sum(xs)

    class Clears:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **_):
            items.clear()
            return self.a.__dlpack__()

    items = [Clears(numpy.full(4, i, "f4")) for i in range(40)]
    assert cat(items, out=numpy.zeros(4, "f4"))[0] == sum(range(40))
    items = [numpy.ones(4, "f4") for _ in range(65)]
    with pytest.raises(ValueError, match="at most 64 tensors"):
        cat(items, out=numpy.zeros(4, "f4"))
    yard.unregister(cat)


def on_cuda(array):
    """Makes a tensor that says it is on a CUDA device, which no test needs."""
    import exchange

    class OnCuda(Exchanged):
        pass

    @exchange.Borrow
    def borrow(x, to):
        exchange.borrow(x, to)
        to.contents.device_type = 2
        return 0

    table = exchange.Exchange(1, 3, None, exchange.allocate, exchange.to_managed, exchange.to_object, borrow,
                              exchange.stream)
    OnCuda.kept = table, borrow
    OnCuda.__dlpack_c_exchange_api__ = exchange.new_capsule(exchange.ctypes.addressof(table), exchange.NAME, None)
    return OnCuda(array)


def test_devices(halved):
    seen = []

    @yard.kernel(halved, vendor="mine", tensors="numpy", device="cuda", verify=lambda out, x, by, how: seen.append(x))
    def gpu(out, x, by, how):
        seen.append("ran")

    assert yard.explain("test.halved(f32[3])@cuda")["selected"] == "vendor.mine"
    assert yard.explain("test.halved(f32[3])")["selected"] == "reference.python"
    assert seen[0].device == "cuda"
    x = on_cuda(numpy.ones(3, "f4"))
    with pytest.raises(yard.Error, match="numpy has only arrays on the cpu"):  # and not a crash
        halved(x, out=on_cuda(numpy.ones(3, "f4")))
    assert "ran" not in seen
    with pytest.raises(yard.Error) as e:
        yard.ops.softmax(x, out=on_cuda(numpy.ones(3, "f4")))
    assert e.value.code == "no_kernel" and {r["reason"] for r in e.value.reasons} == {"device"}
    with pytest.raises(yard.CallerError, match="on cpu like 'out', got .* on cuda"):
        yard.ops.softmax(x, out=numpy.ones(3, "f4"))
    with pytest.raises(ValueError, match="device: 'gpu' is not a device"):
        yard.kernel(halved, vendor="other", device="gpu")(print)
