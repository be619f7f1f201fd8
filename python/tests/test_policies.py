# SPDX-License-Identifier: Apache-2.0
"""Policies as context managers and decorators."""

import asyncio

import pytest
import yard
from helpers import numbers, selected


def test_policies_nest_and_end():
    x = numbers(2, 8)
    outside = selected()
    with yard.policy(prefer="reference") as p:
        assert selected() == "reference.cpp"
        yard.ops.softmax(x)
        with yard.policy(deny_kernels=["reference.*"]):
            assert selected() != "reference.cpp"
            with p:
                assert selected() != "reference.cpp"
        assert selected() == "reference.cpp"
    assert selected() == outside and "reference" in repr(p)
    with pytest.raises(ValueError), p:
        raise ValueError
    assert selected() == outside
    with pytest.raises(yard.Error) as e, yard.policy(deny_kernels=["*"]):
        yard.ops.softmax(x)
    assert e.value.code == "no_kernel"


def test_explaining_a_text_follows_policies():
    text = "softmax(f32[2,8])"
    outside = yard.explain(text)["selected"]
    with yard.policy(prefer="reference"):
        assert yard.explain(text)["selected"] == "reference.cpp" != outside
        with yard.policy(deny_kernels=["reference.*"]):
            assert yard.explain(text)["selected"] == outside
    assert yard.explain(text)["selected"] == outside


def test_policies_are_decorators():
    @yard.policy(prefer="reference")
    def inside():
        return selected()

    @yard.policy(prefer="reference")
    async def soon():
        await asyncio.sleep(0)
        return selected()

    assert inside() == asyncio.run(soon()) == "reference.cpp" and selected() != "reference.cpp"


def test_a_policy_belongs_to_its_task():
    async def one(policy, steps):
        with policy:
            found = []
            for _ in range(steps):
                found.append(selected())
                await asyncio.sleep(0)
            return set(found)

    async def both():
        return await asyncio.gather(one(yard.policy(prefer="reference"), 5), one(yard.policy(), 5))

    reference, other = asyncio.run(both())
    assert reference == {"reference.cpp"} and "reference.cpp" not in other


def test_policies_may_nest_deeply_and_not_decorate_generators():
    p = yard.policy(labels={"a": "b"})
    for _ in range(20000):
        p.__enter__()
    for _ in range(20000):
        p.__exit__(None, None, None)
    del p
    with pytest.raises(TypeError, match="generator"):
        @yard.policy(prefer="reference")
        def numbers():
            yield 1
    for wrong in 3, int:
        with pytest.raises(TypeError, match="decorates functions"):
            yard.policy()(wrong)


def test_wrong_policies():
    with pytest.raises(ValueError, match="prefer: expected"):
        yard.policy(prefer="fast")
    with pytest.raises(TypeError):
        yard.policy(prefered="vendor")
    with pytest.raises(yard.Error, match="order|per_op"):
        yard.policy(order={"softmax": ["nonsense:x:y"]})
    a, b = yard.policy(), yard.policy()
    a.__enter__()
    b.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        a.__exit__(None, None, None)
    b.__exit__(None, None, None)
    a.__exit__(None, None, None)
