# SPDX-License-Identifier: Apache-2.0
"""What several tests need."""

import threading

import numpy
import pytest
import yard

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def rms(x, weight, eps=1e-6):
    x = x.astype("f8")
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def numbers(*shape, dtype="f4", seed=1):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def selected():
    return yard.explain("softmax", numbers(2, 8))["selected"]


def in_threads(work, *arguments):
    """Runs work(argument) for all arguments at once, or work() on four threads."""
    calls = [(a,) for a in arguments] or [()] * 4
    threads = [threading.Thread(target=work, args=args) for args in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
