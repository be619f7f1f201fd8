# SPDX-License-Identifier: Apache-2.0
"""Kernels of other libraries."""

import doctest
import os
import subprocess
import sys

import pytest
import yard
import yard.adapters
from exchange import Exchanged
from helpers import needs_torch, numbers, torch
from yard.adapters import row_stride

TORCH_OPS = ("add", "add_rms_norm", "argmax", "embedding", "gelu_and_mul", "layer_norm", "linear", "matmul",
             "mul", "rms_norm", "silu_and_mul", "softmax")


@pytest.fixture(scope="module", autouse=True)
def rows():
    found = yard.adapters.enable()
    yield found
    for row in found:  # other tests expect the kernels of the library
        yard.unregister(row["op"], row["id"])
    yard.adapters._enabled.clear()


def run(code, **environment):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def reason_of(kernel, op, *arguments, **named):
    found = yard.explain(op, *arguments, **named)
    return next(k for k in found["candidates"] if k["id"] == kernel)


def test_enable_lists_the_kernels(rows):
    assert {r["vendor"] for r in rows} == {"torch", "triton", "liger"}
    assert {r["op"] for r in rows if r["id"] == "vendor.torch"} >= set(TORCH_OPS)
    assert len(yard.adapters.enable()) == len(rows)  # a second time changes nothing
    with pytest.raises(ValueError, match="torch, triton, liger"):
        yard.adapters.enable("tensorflow")


def test_docstrings():
    found = doctest.testmod(yard.adapters)
    assert found.attempted > 0 and found.failed == 0


def test_an_absent_package_is_a_reason():
    out = run("""
import sys
for name in "torch", "triton", "liger_kernel":
    sys.modules[name] = None  # as if it were not installed
import yard.adapters
rows = yard.adapters.enable()
assert not any(r["available"] for r in rows)
print(yard.explain("rms_norm(f32[2,8], f32[8])@cuda"))
""")
    for package in "torch", "triton", "liger_kernel":
        assert f"package {package} is not installed" in out


def test_a_broken_package_is_a_reason(tmp_path):
    (tmp_path / "liger_kernel").mkdir()
    (tmp_path / "liger_kernel" / "__init__.py").write_text("raise OSError('a library is missing')")
    out = run("import yard.adapters; print(yard.adapters.enable('liger'))",
              PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert "package liger_kernel.ops cannot be imported: OSError: a library is missing" in out


@needs_torch
@pytest.mark.parametrize("op", TORCH_OPS)
def test_torch_agrees_with_the_reference(op):
    report = yard.verify(op, "vendor.torch", cases=60)[0]
    assert report["failed"] == 0, report["worst"]
    if "rms_norm" in op and not hasattr(torch.nn.functional, "rms_norm"):
        assert report["passed"] == 0
        assert "version 2.4" in reason_of("vendor.torch", "rms_norm(f32[2,8], f32[8])")["detail"]
    else:
        assert report["passed"] > 50


def attend(name, *arguments, **named):
    with yard.policy(prefer="reference"):
        expected = yard.ops["attention." + name](*arguments, **named)
    with yard.policy(allow_kernels=["vendor.torch"]):
        found = yard.ops["attention." + name](*arguments, **named)
    torch.testing.assert_close(found.float(), expected.float(), rtol=0.02 if found.element_size() == 2 else 1e-5,
                               atol=0.01 if found.element_size() == 2 else 1e-5)


needs_current_torch = pytest.mark.skipif(torch is None or not hasattr(torch.nn.functional, "rms_norm"),
                                         reason="torch 2.4 or later is not installed")


def tensors(*shapes, dtype="float32"):
    return [torch.from_numpy(numbers(*s, seed=i)).to(getattr(torch, dtype)) for i, s in enumerate(shapes)]


@needs_current_torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("heads", [4, 2])
def test_attention_of_torch_agrees_with_the_reference(dtype, heads):
    q, k, v = tensors((2, 5, 4, 16), (2, 5, heads, 16), (2, 5, heads, 16), dtype=dtype)
    mask, = tensors((2, 4, 5, 5), dtype=dtype)
    for scale in 0.0, 0.5:
        attend("full", q, k, v, scale=scale)
        attend("full", q, k, v, mask, scale=scale)
        attend("causal", q, k, v, scale=scale)
        attend("causal", q[:, :1].contiguous(), k, v, mask[:, :, :1], scale=scale)
        attend("cross", q[:, :3], k, v, mask=mask[:, :, :3], scale=scale)


@needs_current_torch
@pytest.mark.parametrize("call, reason", [
    ("causal(f32[1,3,2,8], f32[1,5,2,8], f32[1,5,2,8])", "the first of 3 queries see the first of 5 keys"),
    ("causal(f32[1,5,2,8], f32[1,5,2,8], f32[1,5,2,8], mask=f32[1,2,5,5])", "no mask beside the causal one"),
    ("full(f32[1,5,2,8], f32[1,5,2,8], f32[1,5,2,8], mask=f16[1,2,5,5])", "masks of the dtype of the query"),
    ("full(f32[1,5,2,8], f32[1,0,2,8], f32[1,0,2,8])", "no zeros where there are no keys"),
    ("cross(f32[1,5,2,8], f32[1,5,2,8], f32[1,5,2,8], lengths=i32[1])", "takes no lengths"),
])
def test_torch_says_which_attention_it_does_not_have(call, reason):
    assert reason in reason_of("vendor.torch", "attention." + call)["detail"]


@needs_current_torch
def test_torch_says_which_products_it_does_not_have():
    assert "of one dtype" in reason_of("vendor.torch", "linear(f32[2,8], bf16[4,8])")["detail"]
    assert reason_of("vendor.torch", "linear(f32[2,32], q8_0[4,32])")["reason"] != ""
    assert "one element" in reason_of("vendor.torch", "layer_norm(f32[2,1], f32[1])")["detail"]


@needs_torch
def test_an_id_outside_of_the_table_stays_the_callers_error():
    with yard.policy(order={"embedding": ["impl:vendor.torch", "reference"]}):
        with pytest.raises(yard.CallerError, match="9"):
            yard.ops.embedding(torch.tensor([1, 9]), torch.ones(4, 2))


def test_a_kernel_takes_calls_on_its_device():
    @yard.kernel("softmax", vendor="dev", device="cuda", tensors="torch", priority=900)
    def kernel(out, x):
        """Runs on a device."""

    @yard.kernel("softmax", id="vendor.none", vendor="nodev", device="cuda", unavailable="it is switched off")
    def absent(out, x):
        raise AssertionError

    found = yard.explain("softmax(f32[2,8])@cuda")
    assert found["selected"] == "vendor.dev"
    assert "it is switched off" in reason_of("vendor.none", "softmax(f32[2,8])@cuda")["detail"]
    assert "the call is on cpu, the kernel runs on cuda" in reason_of("vendor.dev", "softmax(f32[2,8])")["detail"]
    x, out = Exchanged(numbers(2, 8)), Exchanged(numbers(2, 8))
    x.device_type = out.device_type = 2
    assert yard.explain(yard.ops.softmax, x)["selected"] == "vendor.dev"
    with pytest.raises(yard.Error, match="vendor.dev.*argument 'out'"):  # torch cannot share this memory
        yard.ops.softmax(x, out=out)
    yard.unregister("softmax", "vendor.dev")
    yard.unregister("softmax", "vendor.none")
    with pytest.raises(ValueError, match="'gpu' is not a device"):
        yard.kernel("softmax", vendor="dev2", device="gpu")(kernel)


@pytest.mark.parametrize("shape, strides, expected", [
    ((3, 8), (8, 1), 8), ((3, 8), (20, 1), 20), ((3, 8), (8, 2), None), ((2, 3, 8), (24, 8, 1), 8),
    ((2, 3, 8), (30, 8, 1), None), ((2, 1, 8), (30, 8, 1), 30), ((8,), (1,), 8), ((3, 1), (5, 7), 5),
    ((2, 3, 8), (0, 0, 1), 0), ((3, 8), (-8, 1), -8)])
def test_rows_of_even_distance(shape, strides, expected):
    assert row_stride(shape, strides) == expected


needs_triton = pytest.mark.skipif(yard.adapters.load("triton")[0] is None, reason="triton is not installed")


@needs_triton
@pytest.mark.parametrize("op", ["rms_norm", "silu_and_mul"])
def test_kernels_in_triton_agree_with_the_reference(op):
    out = run(f"""
import yard.adapters
yard.adapters.enable("triton")
report = yard.verify("{op}", "vendor.triton", cases=6)[0]
assert report["failed"] == 0 and report["passed"] >= 6, report
""", TRITON_INTERPRET="1")
    assert out == ""


@needs_triton
def test_a_kernel_in_triton_is_registered_with_its_constraints(tmp_path):
    (tmp_path / "mine.py").write_text('''
import triton
import triton.language as tl
import yard
import yard.adapters.triton


@triton.jit
def scaled(out, x, by, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size) * by, mask=at < size)


@yard.op("scaled(out!: T[*rows, d], x: T[*rows, d], by: float = 2.0) where T in {f32}", tensors="torch")
def op(out, x, by):
    out.copy_(x * by)


yard.adapters.triton.kernel(
    "scaled", vendor="mine", dtypes=["f32"], reasons=["{0} is odd"],
    verify=lambda out, x, by: x.shape[-1] % 2 == 0 and x.strides[-1] == 1 or ("{0} is odd", x.shape[-1]),
    grid=lambda out, x, by: (triton.cdiv(x.numel(), 64),),
    arguments=lambda out, x, by: {"out": out, "x": x.contiguous(), "by": by, "size": x.numel(), "BLOCK": 64},
)(scaled)
import torch
x = torch.ones(3, 50)
with yard.policy(allow_kernels=["vendor.mine"]):
    assert torch.equal(op(x), 2 * x) and torch.equal(op(x, 3.0), 3 * x)
print(yard.explain(op, torch.ones(3, 5)))
''')
    assert "5 is odd" in run("import mine", TRITON_INTERPRET="1",
                             PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


def test_kernels_in_triton_say_what_they_do_not_take():
    def of(call):
        # The verifier comes after the check of the device, so it is asked directly.
        from yard.adapters import triton
        info = [yard.TensorInfo("f32", shape, strides, "cuda:0") for shape, strides in call]
        return triton._check_norm(*info, 1e-6)

    compact = ((2, 8), (8, 1))
    assert of([compact, compact, ((8,), (1,))]) is True
    assert "gaps" in of([compact, ((2, 8), (8, 2)), ((8,), (1,))])
    assert "gaps" in of([compact, compact, ((8,), (2,))])
    long = ((2, 70000), (70000, 1))
    assert of([long, long, ((70000,), (1,))])[1:] == (70000, 65536)
    many = ((2**31, 8), (8, 1))
    assert of([many, many, ((8,), (1,))])[1:] == (2**31,)


@pytest.mark.skipif(yard.adapters.load("liger_kernel")[0] is None, reason="liger_kernel is not installed")
def test_kernels_of_liger_agree_with_the_reference():
    # The interpreter of Triton has no rms_norm of Liger, and no arithmetic in bf16.
    run("""
import torch, yard
from yard.adapters import liger
for dtype in torch.float32, torch.float16:
    x = torch.randn(3, 5, 64).to(dtype)
    out = torch.empty(3, 5, 32, dtype=dtype)
    liger.silu_and_mul(out, x)
    torch.testing.assert_close(out, yard.ops.silu_and_mul(x), rtol=4e-3, atol=2e-3)
    for dim, half in (16, 8), (16, 4):
        q, k, angle = torch.randn(2, 3, 4, dim).to(dtype), torch.randn(2, 3, 1, dim).to(dtype), torch.randn(6, half)
        q2, k2 = q.clone(), k.clone()
        yard.ops.rotary_embedding(q, k, cos=angle.cos(), sin=angle.sin())
        liger.rotary_embedding(q2, k2, None, angle.cos(), angle.sin(), 0, 10000.0, "half")
        torch.testing.assert_close(q2, q, rtol=4e-3, atol=2e-3)
        torch.testing.assert_close(k2, k, rtol=4e-3, atol=2e-3)
""", TRITON_INTERPRET="1")


@pytest.mark.parametrize("change, reason", [
    ({"key": None}, "a query and a key"), ({"positions": "i"}, "for each token"), ({"cos": None}, "for each token"),
    ({"style": "interleaved"}, "half a head apart"), ({"cos": "f16"}, "fewer digits"),
    ({"query": "strided"}, "compact"), ({"query": "empty"}, "no empty"), ({}, True)])
def test_liger_says_which_rotations_it_does_not_have(change, reason):
    from yard.adapters import liger
    half = yard.TensorInfo("f32", (6, 4), (4, 1), "cuda:0")
    call = {"query": yard.TensorInfo("f32", (6, 2, 8), (16, 8, 1), "cuda:0"),
            "key": yard.TensorInfo("f32", (6, 1, 8), (8, 8, 1), "cuda:0"), "positions": None, "cos": half,
            "sin": half, "rotary_dim": 0, "base": 10000.0, "style": "half"}
    change = {name: {"f16": half._replace(dtype="f16"), "i": half, "empty": call["query"]._replace(shape=(0, 2, 8)),
                     "strided": call["query"]._replace(strides=(8, 48, 1))}.get(value, value)
              for name, value in change.items()}
    found = liger._check_rotation(**{**call, **change})
    assert found is True if reason is True else reason in found


@needs_current_torch
def test_the_script_for_devices_compares_kernels():
    script = os.path.join(os.path.dirname(__file__), "gpu_adapters.py")
    done = subprocess.run([sys.executable, script, "--cpu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "attention.causal vendor.torch: 3 of 3 calls compared" in done.stdout
