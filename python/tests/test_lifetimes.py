# SPDX-License-Identifier: Apache-2.0
"""Ops that change, cycles, threads, processes and leaks."""

import gc
import subprocess
import sys
import threading
import tracemalloc
import weakref

import numpy
import pytest
import yard
from helpers import in_threads, needs_torch, numbers


def define(schema, run):
    return yard.op(schema, tensors="numpy")(run)


def test_an_op_follows_its_schema():
    op = define("test.changes(out!: T[n], x: T[n]) where T in {f32}", lambda out, x: out.fill(1))
    x = numpy.zeros(3, "f4")
    assert op(x)[0] == 1
    yard.unregister(op)
    with pytest.raises(yard.Error, match="op 'test.changes' is not known"):
        op(x)
    with pytest.raises(AttributeError):
        yard.ops.test.changes
    again = define("test.changes(out!: T[n], x: T[n], by: float, how: enum{a, b} = b) where T in {f32}",
                   lambda out, x, by, how: out.fill(by if how == "b" else -by))
    assert again is op and "by: float" in op.schema and op(x, 5.0)[0] == 5 and op(x, by=2, how="a")[0] == -2
    assert yard.ops.test.changes is op
    yard.unregister(op)


def test_an_op_that_was_changed_elsewhere():
    """As by a program in C++, which does not tell the package."""
    from yard import _kernels, _schema, _yard

    def register(schema, run):
        _yard.register_op(schema, "", _kernels._fields(
            "test.elsewhere", _schema.read(schema), run, "reference.python", None, "reference", "python", 0, None,
            None, (), "", "numpy"))

    x = numpy.zeros(3, "f4")
    register("test.elsewhere(out!: T[n], x: T[n]) where T in {f32}", lambda out, x: out.fill(1))
    op = yard.ops.test.elsewhere
    assert op(x)[0] == 1
    _yard.unregister("test.elsewhere", "")
    register("test.elsewhere(out!: T[n], x: T[n], by: int = 7) where T in {f32}", lambda out, x, by: out.fill(by))
    assert op(x)[0] == 7 and op(x, by=2)[0] == 2 and "by" in op.schema
    _yard.unregister("test.elsewhere", "")
    with pytest.raises(yard.Error, match="not known"):
        op(x)


def test_ops_may_change_while_threads_call():
    x = numpy.zeros(3, "f4")
    op = define("test.busy(out!: T[n], x: T[n]) where T in {f32}", lambda out, *rest: out.fill(1))
    wrong, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            try:
                if op(x)[0] != 1:
                    wrong.append(1)
            except (yard.Error, TypeError):
                pass  # unknown for a moment, or with another parameter

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for i in range(30):
        yard.unregister("test.busy")
        define("test.busy(out!: T[n], x: T[n]" + ", by: int = 1" * (i % 2) + ") where T in {f32}",
               lambda out, *rest: out.fill(1))
    stop.set()
    for t in threads:
        t.join()
    assert not wrong and op(x)[0] == 1
    yard.unregister(op)


class Memory(bytearray):
    pass


def test_cycles_are_collected():
    memory = Memory(64)
    memory.tensor = yard.Tensor(memory, "f32", (16,))
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert gone() is None

    memory = Memory(64)
    memory.view = memoryview(yard.Tensor(memory, "f32", (16,)))  # with an exported buffer inside
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert gone() is None

    def make():
        @yard.dispatch("cycles")
        def recursive(n):
            return recursive(n - 1) if n else kept

        kept = Memory(1)
        assert recursive(3) is kept
        return weakref.ref(kept)

    gone = make()
    gc.collect()
    assert gone() is None


def test_a_view_keeps_its_tensor():
    memory = Memory(64)
    gone = weakref.ref(memory)
    array = numpy.asarray(yard.Tensor(memory, "f32", (16,)))
    del memory
    gc.collect()
    assert gone() is not None
    array[0] = 1
    del array
    gc.collect()
    assert gone() is None


def memory_after(work, times):
    for _ in range(times):
        work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("what", ["calls", "errors", "policies", "handles", "kernels", "functions", "explanations"])
def test_nothing_leaks(what):
    x, w = numbers(4, 64), numbers(64)
    count = [0]

    def kernels():
        define("test.leak(out!: T[n], x: T[n]) where T in {f32}", lambda out, x: out.fill(1))
        yard.kernel("test.leak", vendor="leaks", tensors="numpy")(lambda out, x: out.fill(2))
        assert yard.ops.test.leak(numpy.zeros(3, "f4"))[0] == 2
        yard.unregister("test.leak", "vendor.leaks")
        yard.unregister("test.leak")

    def errors():
        for wrong in (lambda: yard.ops.rms_norm(x, w[:3]), lambda: yard.ops.rms_norm(x), lambda: yard.ops.softmax([1]),
                      lambda: yard.ops.gelu_and_mul(x, "cubic"), lambda: yard.ops.softmax(x, y=1)):
            with pytest.raises((ValueError, TypeError)):
                wrong()

    def policies():
        count[0] += 1
        with yard.policy(prefer="reference"), yard.policy(labels={"n": str(count[0] % 5)}):
            yard.ops.softmax(x)

    @yard.dispatch("leaks", repeatable=True)
    def twice(v):
        return 2 * v

    class Fast(yard.Backend):
        name, group = "leaks_fast", "leaks"

        def twice(self, v):
            if v < 0:
                raise yard.Declined("negative")
            return v + v

    yard.add_backend(Fast())

    def functions():
        assert twice(3) == 6 and twice(-3) == -6

    work = {"calls": lambda: yard.ops.quantize_int8(yard.ops.rms_norm(x, w, eps=1e-5)), "errors": errors,
            "policies": policies, "handles": lambda: yard.bind("softmax", x)(), "kernels": kernels,
            "functions": functions, "explanations": lambda: yard.explain(yard.ops.softmax, x)}[what]
    tracemalloc.start()
    try:
        first = memory_after(work, 100)
        references = sys.getrefcount(x), sys.getrefcount(w), sys.getrefcount(None)
        assert memory_after(work, 400) - first < 50_000  # caches grow a little
        assert (sys.getrefcount(x), sys.getrefcount(w)) == references[:2]
        assert sys.getrefcount(None) - references[2] < 150
    finally:
        tracemalloc.stop()
        yard.remove_backend("leaks_fast")


def test_threads_raise_and_enter_policies():
    op = define("test.raises(out!: T[n], x: T[n]) where T in {f32}", lambda out, x: 1 / 0)
    x, wrong = numpy.zeros(3, "f4"), []

    def work():
        for _ in range(100):
            with yard.policy(prefer="reference"), pytest.raises(yard.Error) as e:
                op(x)
            if e.value.__cause__ is not None and not isinstance(e.value.__cause__, ZeroDivisionError):
                wrong.append(e.value)

    in_threads(work)
    yard.unregister(op)
    assert not wrong


PROGRAM = """
import multiprocessing, sys
import numpy
import yard


@yard.op("test.processes(out!: T[n], x: T[n]) where T in {f32}", tensors="numpy")
def op(out, x):
    out[...] = x + 1


def work(x):
    with yard.policy(prefer="reference"):
        return float(op(x)[0] + yard.ops.softmax(x)[0])


if __name__ == "__main__":
    x = numpy.zeros(2, "f4")
    assert work(x) == 1.5
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert pool.map(work, [x] * 20) == [1.5] * 20
    assert work(x) == 1.5
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_processes(tmp_path, how):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-B", str(program), how], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_forks_from_several_threads():
    code = """
import os, threading, numpy, yard
x = numpy.ones((8, 8), "f4")
yard.ops.softmax(x)
stop = threading.Event()
def work():
    while not stop.is_set():
        yard.ops.softmax(x)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for i in range(20):
    pid = os.fork()
    if pid == 0:
        ok = abs(yard.ops.softmax(x).sum() - 8) < 1e-4
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for t in threads: t.join()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@needs_torch
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_of_data_loaders(tmp_path, how):
    program = tmp_path / "loader.py"
    program.write_text("""
import sys, torch, yard

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return yard.ops.softmax(torch.full((4,), float(i)))

if __name__ == "__main__":
    yard.ops.softmax(torch.ones(4))
    loader = torch.utils.data.DataLoader(Rows(), batch_size=3, num_workers=2, multiprocessing_context=sys.argv[1])
    for batch in loader:
        torch.testing.assert_close(yard.ops.add(batch, batch), torch.full((3, 4), 0.5))
""")
    done = subprocess.run([sys.executable, "-B", str(program), how], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


def test_an_interpreter_without_its_lock_is_refused():
    code = "import sys\nsys._is_gil_enabled = lambda: False\nimport yard"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "ImportError: yard needs the interpreter's lock" in done.stderr
