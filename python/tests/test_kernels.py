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

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


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


def test_borrowed_memory_may_not_be_kept(halved):
    from exchange import Exchanged
    kept = []

    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def keeps(out, x, by, how):
        kept.append(x)

    x, out = Exchanged(numpy.ones(3, "f4")), Exchanged(numpy.ones(3, "f4"))
    with yard.policy(allow_kernels=["vendor.mine"]):
        with pytest.raises(yard.FaultError, match="keeps a reference to argument 'x'"):
            halved(x, out=out)
    kept.clear()
    yard.unregister(halved, "vendor.mine")

    @yard.kernel(halved, vendor="mine", tensors="numpy")
    def returns(out, x, by, how):
        kept.append(x) if type(x) is not numpy.ndarray or x.base is None else None
        return numpy.divide(x, by, out=out)

    assert (halved(x, out=out) or out).array[0] == 0.5
    mine = numpy.ones(3, "f4")  # the caller's own array may be kept
    with yard.policy(allow_kernels=["vendor.mine"]):
        halved(mine)
    assert kept[0] is mine


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
        @yard.kernel(halved, vendor="mine", tensors="numpy")
        def uses(out, x, by, how):
            out[...] = 1 if big else 0

    make(big)
    halved(numpy.ones(3, "f4"))
    del big
    assert gone() is not None
    yard.unregister(halved, "vendor.mine")
    gc.collect()
    assert gone() is None


def test_mistakes_in_registrations(halved):
    with pytest.raises(KeyError, match="not known"):
        yard.kernel("no_such_op", vendor="mine")(print)
    with pytest.raises(ValueError, match="'float99' is not a dtype"):
        yard.kernel(halved, vendor="mine", dtypes=["float99"])(lambda *a: None)
    with pytest.raises(ValueError, match="tensors: expected"):
        yard.kernel(halved, vendor="mine", tensors="jax")(lambda *a: None)
    with pytest.raises(yard.Error, match="schema|expected"):
        yard.op("bad(out!: T[n]")(lambda out: None)
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

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
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
    "pid = os.fork()\nassert op(x)[0] == 2\nif pid: assert os.waitpid(pid, 0)[1] == 0",
    "import multiprocessing as m\nm.get_context('fork').Process(target=op, args=(x,)).start()",
])
def test_the_interpreter_ends(code):
    done = subprocess.run([sys.executable, "-c", ENDS % code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
