# SPDX-License-Identifier: Apache-2.0
"""Handles that bind an op to arguments of one form."""

import gc
import weakref

import numpy
import pytest
import yard
from exchange import Exchanged
from helpers import needs_torch, numbers, rms, torch


def test_a_handle_calls_with_what_it_was_bound_to():
    x, w, out = numbers(3, 64), numbers(64), numpy.zeros((3, 64), "f4")
    handle = yard.bind(yard.ops.rms_norm, x, w, eps=1e-5, out=out)
    assert handle() is out and handle.kernel == "default.simd" and "rms_norm" in repr(handle)
    numpy.testing.assert_allclose(out, rms(x, w, 1e-5), rtol=1e-5, atol=1e-5)
    other, y = numpy.zeros_like(out), numbers(3, 64, seed=2)
    assert handle(y, out=other) is other
    numpy.testing.assert_allclose(other, rms(y, w, 1e-5), rtol=1e-5, atol=1e-5)
    numpy.testing.assert_allclose(handle(y, eps=1.0), rms(y, w, 1.0), rtol=1e-5, atol=1e-5)


def test_missing_outputs_are_made_by_each_call():
    x = numbers(2, 8)
    handle = yard.bind("softmax", x)
    a, b = handle(), handle()
    assert a is not b and abs(a.sum() - 2) < 1e-5
    numpy.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("other", [numbers(3, 8), numbers(2, 9), numbers(2, 8).astype("f8"), numbers(2, 16)[:, ::2],
                                   numbers(8)])
def test_other_forms_are_refused(other):
    handle = yard.bind(yard.ops.softmax, numbers(2, 8))
    with pytest.raises((ValueError, yard.CallerError), match="softmax"):
        handle(other, out=numpy.zeros_like(other))


def test_other_alignments_and_overlaps_are_served():
    x, w = numbers(3, 64), numbers(64)
    handle = yard.bind(yard.ops.rms_norm, x, w, out=numpy.zeros_like(x))
    memory = numpy.zeros(3 * 64 + 16, "f4")
    for start in range(16):
        y = memory[start:start + 192].reshape(3, 64)
        y[...] = x
        handle(y, out=y)  # in place
        numpy.testing.assert_allclose(y, rms(x, w), rtol=1e-5, atol=1e-5)
    both = memory[:192 + 1]
    both[:192] = x.ravel()
    with pytest.raises(yard.CallerError, match="out"):  # a partial overlap, as in any call
        handle(both[:192].reshape(3, 64), out=both[1:].reshape(3, 64))


def test_a_handle_follows_changes():
    x = numbers(2, 8)
    handle = yard.bind(yard.ops.softmax, x)
    assert handle.kernel == "default.simd"
    with yard.policy(prefer="reference"):
        assert handle.kernel == "reference.cpp"
        handle()
    calls = []

    @yard.kernel("softmax", vendor="handles", priority=900, tensors="numpy")
    def mine(out, x):
        calls.append(1)
        out[...] = 7

    assert handle.kernel == "vendor.handles" and handle()[0, 0] == 7 and calls
    yard.unregister("softmax", "vendor.handles")
    assert handle.kernel == "default.simd" and handle()[0, 0] != 7


def test_wrong_binds():
    x = numbers(2, 8)
    with pytest.raises(TypeError, match="expected an op"):
        yard.bind(print, x)
    with pytest.raises(KeyError, match="not known"):
        yard.bind("sofmax", x)
    with pytest.raises(TypeError, match="needs argument 'x'"):
        yard.bind("softmax")
    with pytest.raises(yard.CallerError):
        yard.bind("rms_norm", x, numbers(3), out=x)
    handle = yard.bind("softmax", x)
    with pytest.raises(TypeError, match="no parameter 'y'"):
        handle(y=x)
    with pytest.raises(TypeError, match="expected a tensor"):
        handle([1.0])


def test_handles_keep_and_release_their_arguments():
    x = Exchanged(numbers(2, 8))
    gone = weakref.ref(x)
    handle = yard.bind("softmax", x)
    x.handle = handle  # a cycle
    del x
    gc.collect()
    assert gone() is not None and abs(handle().array.sum() - 2) < 1e-5
    del handle
    gc.collect()
    assert gone() is None


@needs_torch
def test_tensors_of_torch_that_change():
    x = torch.randn(2, 8)
    handle = yard.bind("softmax", x)
    torch.testing.assert_close(handle(), x.softmax(-1))
    x.resize_(4, 8).fill_(1)
    with pytest.raises(ValueError, match="another dtype, shape"):
        handle()
