# SPDX-License-Identifier: Apache-2.0
"""Kernels that compute gradients."""

import pytest
import yard
from helpers import torch

pytestmark = pytest.mark.skipif(torch is None, reason="torch is not installed")


@pytest.fixture
def op():
    @yard.op("test.times(out!: T[*n], x: T[*n], weight: T[*n]) where T in {f32}", tensors="torch")
    def times(out, x, weight):
        torch.mul(x, weight, out=out)

    yield times
    yard.unregister(times)


@pytest.fixture
def with_autograd(op):
    calls = []

    @yard.kernel(op, vendor="grads", tensors="torch", autograd=True)
    def kernel(out, x, weight):
        calls.append(torch.is_grad_enabled())
        out.copy_(x * weight)

    return calls


def tensors():
    return torch.randn(3, 4), torch.nn.Parameter(torch.randn(3, 4))


def test_without_such_a_kernel_the_error_says_what_to_do(op):
    x, w = tensors()
    with pytest.raises(RuntimeError, match="'weight' of op 'test.times': it requires a gradient.*autograd=True"):
        op(x, w)
    with torch.no_grad():
        assert not op(x, w).requires_grad


def test_the_mode_may_change_between_calls(op):
    x, w = tensors()
    for enabled in (True, False, False, True, True, False):
        with torch.set_grad_enabled(enabled):
            op(x, x)  # no gradient is required, so the mode does not matter
            if enabled:
                with pytest.raises(RuntimeError, match="requires a gradient"):
                    op(x, w)
            else:
                assert not op(x, w).requires_grad


def test_gradients_flow_through_the_kernel(op, with_autograd):
    x, w = tensors()
    out = op(x, w)
    assert with_autograd == [True] and out.requires_grad
    out.sum().backward()
    torch.testing.assert_close(w.grad, x)
    given = torch.empty(3, 4)
    assert op(x, w, out=given) is given
    given.sum().backward()
    torch.testing.assert_close(w.grad, 2 * x)


def test_only_such_kernels_serve_the_call(op, with_autograd):
    @yard.kernel(op, vendor="fast", priority=900, tensors="torch")
    def fast(out, x, weight):
        torch.mul(x, weight, out=out)

    x, w = tensors()
    assert yard.explain(op, x, w.detach())["selected"] == "vendor.fast"
    e = yard.explain(op, x, w)
    assert e["selected"] == "vendor.grads"
    assert {c["reason"] for c in e["candidates"] if c["kernel" if "kernel" in c else "id"] != "vendor.grads"} == {
        "not_allowed_kernel"}
    assert op(x, w).requires_grad and with_autograd
    handle = yard.bind(op, x, w)
    assert handle().requires_grad


@pytest.mark.parametrize("policy", [{"deny_kernels": ["vendor.grads"]}, {"allow_kernels": ["vendor.fast"]},
                                    {"locks": {"test.times": "reference.python"}}, {"deny_vendors": ["grads"]}])
def test_policies_do_not_lose_gradients(op, with_autograd, policy):
    x, w = tensors()
    with yard.policy(**policy):
        with pytest.raises(yard.Error, match="only kernels with autograd=True may run") as e:
            op(x, w)
        assert e.value.code == "no_kernel"
    assert not with_autograd


def test_allowing_the_kernel_by_a_glob(op, with_autograd):
    x, w = tensors()
    with yard.policy(allow_kernels=["vendor.gr*"]):
        assert op(x, w).requires_grad


def test_a_failing_kernel_has_no_silent_fallback(op):
    @yard.kernel(op, vendor="grads", tensors="torch", autograd=True)
    def kernel(out, x, weight):
        raise ValueError("no gradient today")

    x, w = tensors()
    with pytest.raises(yard.FaultError, match="no gradient today"):
        op(x, w)


def test_nested_calls(op, with_autograd):
    @yard.op("test.twice(out!: T[*n], x: T[*n], weight: T[*n]) where T in {f32}", tensors="torch")
    def twice(out, x, weight):
        out.copy_(2 * op(x, weight))

    x, w = tensors()
    try:
        yard.kernel(twice, vendor="outer", tensors="torch", autograd=True)(lambda out, x, weight:
                                                                          out.copy_(2 * op(x, weight)))
        twice(x, w).sum().backward()
        torch.testing.assert_close(w.grad, 2 * x)
    finally:
        yard.unregister(twice)


def test_outputs_that_require_gradients_are_refused(op, with_autograd):
    x, w = tensors()
    with pytest.raises(RuntimeError, match="'out' of op 'test.times': it requires a gradient, and the call writes"):
        op(x, x, out=w)


def test_only_kernels_of_torch(op):
    with pytest.raises(ValueError, match="autograd: only kernels with tensors='torch'"):
        yard.kernel(op, vendor="grads", tensors="numpy", autograd=True)(print)
