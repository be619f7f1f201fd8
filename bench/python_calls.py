#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times calls from Python in one run: PYTHONPATH=build/python python bench/python_calls.py

Compiles a kernel that does nothing as a plugin, and the same op for torch, so it needs a C++ compiler. Without torch it
times numpy only. Each figure is the least of many short loops, which take turns.
"""

import contextvars
import ctypes
import os
import pathlib
import subprocess
import sysconfig
import tempfile
import timeit

import numpy

try:
    import torch
except ImportError:
    torch = None
import yard

TREE = pathlib.Path(__file__).resolve().parent.parent

PLUGIN = r"""
#include <yard/plugin.h>
static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  (void)call, (void)args, (void)count;
  return YARD_OK;
}
const yard_plugin_t* yard_plugin_query(uint32_t abi, const yard_host_t* host) {
  static const yard_op_t op = {
      .size = sizeof op, .schema = "bench.nothing(out!: T[*n], x: T[*n], weight: T[*n]) where T in {f32}"};
  static const yard_backend_t backend = {.size = sizeof backend, .name = "bench"};
  static const yard_kernel_t kernel = {.size = sizeof kernel, .op = "bench.nothing", .id = "reference.nothing",
                                       .kind = YARD_KIND_REFERENCE, .run = run};
  static const yard_op_t* const ops[] = {&op};
  static const yard_backend_t* const backends[] = {&backend};
  static const yard_kernel_t* const kernels[] = {&kernel};
  static const yard_plugin_t plugin = {.size = sizeof plugin, .abi = YARD_ABI_VERSION, .name = "bench",
                                       .version = "1", .backends = backends, .ops = ops, .kernels = kernels,
                                       .backend_count = 1, .op_count = 1, .kernel_count = 1};
  (void)abi, (void)host;
  return &plugin;
}
YARD_MANIFEST("bench", "1", YARD_MANIFEST_OPS("bench.nothing"));
"""

TORCH_OP = r"""
#include <torch/library.h>
static at::Tensor& nothing(const at::Tensor&, const at::Tensor&, at::Tensor& out) { return out; }
TORCH_LIBRARY(yard_bench, m) {
  m.def("nothing(Tensor x, Tensor weight, *, Tensor(a!) out) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(yard_bench, CPU, m) { m.impl("nothing", nothing); }
"""

EXCHANGES = r"""
#include <Python.h>
typedef int (*borrow_t)(void* object, void* to);
void exchange(PyObject* capsule, PyObject* a, PyObject* b, PyObject* c, long count) {
  void* const* const api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  const borrow_t borrow = (borrow_t)api[5];
  char to[64];
  for (long i = 0; i < count; ++i) borrow(a, to), borrow(b, to), borrow(c, to);
}
"""


def compiled(folder, name, text, *options, language="c"):
    source, library = folder / f"{name}.{language}", folder / f"{name}.so"
    source.write_text(text)
    compiler = os.environ.get("CXX", "c++") if language == "cc" else os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), *options, "-o", str(library)], check=True)
    return str(library)


def torch_op(folder):
    from torch.utils import cpp_extension as c
    options = ["-std=c++20", *(f"-I{p}" for p in c.include_paths()), *(f"-L{p}" for p in c.library_paths()),
               f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-ltorch", "-ltorch_cpu", "-lc10"]
    torch.ops.load_library(compiled(folder, "nothing_op", TORCH_OP, *options, language="cc"))
    return torch.ops.yard_bench.nothing.default


def exchanges(folder, tensors):
    api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if api is None:
        return None
    function = ctypes.PyDLL(compiled(folder, "exchange", EXCHANGES, "-I" + sysconfig.get_paths()["include"])).exchange
    function.argtypes = [ctypes.py_object] * 4 + [ctypes.c_long]
    return lambda count: function(api, *tensors, count)


def least_times(rows, loops=400, calls=250):
    """Returns seconds per call. Rows are names and statements, functions of a count, or None."""
    timers = {}
    for name, row, variables in rows:
        if callable(row):
            timers[name] = lambda n, row=row: timeit.timeit(lambda: row(n), number=1)
        elif row is not None:
            timers[name] = timeit.Timer(row, globals=variables).timeit
    least = dict.fromkeys(timers, float("inf"))
    for _ in range(loops):
        for name, timer in timers.items():
            least[name] = min(least[name], timer(calls) / calls)
    return least


def main():
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        yard.load_plugin(compiled(folder, "bench", PLUGIN, "-std=c11", f"-I{TREE / 'include'}"))
        op = yard.ops.bench.nothing
        rows = []

        @yard.op("bench.python(out!: T[*n], x: T[*n], weight: T[*n]) where T in {f32}",
                 tensors="torch" if torch else "numpy")
        def function(out, x, weight):
            pass

        def add(name, statement, **variables):
            rows.append((name, statement, variables))

        def plain(out, x, weight):
            pass

        a, b, c = (numpy.ones((4, 8), "f4") for _ in range(3))
        add("numpy.add, out=", "f(x, y, out=z)", f=numpy.add, x=a, y=b, z=c)
        add("op on numpy, out=", "f(x, y, out=z)", f=op, x=a, y=b, z=c)
        add("op on numpy, allocated", "f(x, y)", f=op, x=a, y=b)
        add("numpy.empty", "f(s, dtype=d)", f=numpy.empty, s=(4, 8), d=numpy.dtype("f4"))
        if torch:
            a, b, c = (torch.ones(4, 8) for _ in range(3))
            add("three C exchanges", exchanges(folder, (a, b, c)))
            add("torch.ops, out=", "f(x, y, out=z)", f=torch_op(folder), x=a, y=b, z=c)
            add("op on torch, out=", "f(x, y, out=z)", f=op, x=a, y=b, z=c)
            add("op on torch, allocated", "f(x, y)", f=op, x=a, y=b)
            add("torch.empty", "f(4, 8, dtype=d)", f=torch.empty, d=torch.float32)
            add("handle on torch", "f()", f=yard.bind(op, a, b, out=c))
        add("Python kernel, out=", "f(x, y, out=z)", f=function, x=a, y=b, z=c)
        add("its function directly", "f(z, x, y)", f=plain, x=a, y=b, z=c)
        policy, variable = yard.policy(prefer="reference"), contextvars.ContextVar("v", default=None)
        add("entering and leaving a policy", "with p: pass", p=policy)
        add("setting a ContextVar twice", "v.set(p); v.set(None)", v=variable, p=policy)
        found = least_times(rows)

        def line(name, limit="", base=None):
            if name not in found:
                return
            ratio = f"{found[name] / found[base]:5.2f} x {base}" if base in found else ""
            print(f"{name:<32}{1e9 * found[name]:7.0f} ns   {limit:<28}{ratio}")

        line("three C exchanges")
        line("torch.ops, out=")
        line("op on torch, out=", "at most 600", "torch.ops, out=")
        line("torch.empty")
        line("op on torch, allocated", "out= and torch.empty")
        line("handle on torch", "", "op on torch, out=")
        line("numpy.add, out=")
        line("op on numpy, out=", "at most 800", "numpy.add, out=")
        line("numpy.empty")
        line("op on numpy, allocated")
        line("its function directly")
        line("Python kernel, out=", "800 over its function")
        line("setting a ContextVar twice")
        line("entering and leaving a policy", "at most 300", "setting a ContextVar twice")


if __name__ == "__main__":
    main()
