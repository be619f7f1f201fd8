# SPDX-License-Identifier: Apache-2.0
"""Dispatched functions in Python."""

import itertools

import pytest
import yard
from helpers import in_threads

numbers = itertools.count()


@pytest.fixture
def group():
    return f"test{next(numbers)}"


@pytest.fixture
def scaled(group):
    @yard.dispatch(group, repeatable=True)
    def scaled(x, by=2, *, log=None):
        """Multiplies."""
        if log is not None:
            log.append("original")
        return x * by

    return scaled


def backend(group, run, name="fast", verifier=None, **fields):
    """Makes and adds a backend whose implementation is run(x, by, log)."""

    class Made(yard.Backend):
        """Multiplies faster."""

        def scaled(self, x, by=2, *, log=None):
            return run(x, by, log)

    if verifier is not None:
        Made.scaled_verifier = lambda self, x, by=2, *, log=None: verifier(x, by)
    made = Made()
    made.name, made.group = f"{group}_{name}", group
    for field, value in fields.items():
        setattr(made, field, value)
    yard.add_backend(made)
    return made.name


def test_the_original_runs_without_backends(scaled):
    assert scaled(3) == 6 and scaled(3, by=4) == 12 and scaled.__doc__ == "Multiplies."
    assert yard.explain(scaled, 3)["selected"] == "original"


def test_a_backend_serves_calls_until_it_is_removed(scaled, group):
    name = backend(group, lambda x, by, log: ("fast", x, by))
    assert scaled(3, 5) == ("fast", 3, 5)
    e = yard.explain(scaled, 3)
    assert e["selected"] == name and name in repr(e)
    row = next(f for f in yard.functions() if f["function"] == f"{group}/scaled")
    assert row["signature"] == "object(*args, **kwargs)" and row["backends"][0]["calls"] == 1
    yard.remove_backend(name)
    assert scaled(3) == 6


def test_higher_priorities_go_first_and_verifiers_refuse(scaled, group):
    backend(group, lambda x, by, log: "low", "low", priority=1)
    high = backend(group, lambda x, by, log: "high", "high", priority=2,
                   verifier=lambda x, by: x > 0 or (False, "x is not positive"))
    assert scaled(1) == "high" and scaled(-1) == "low"
    e = yard.explain(scaled, -1)
    refused = next(c for c in e["candidates"] if c["backend"] == high)
    assert refused["verdict"] == "refused" and "x is not positive" in refused["detail"]


@pytest.mark.parametrize("verdict, accepted", [(True, True), (None, True), (False, False), ("no", False),
                                               ((True, ""), True), ((False, "why"), False)])
def test_answers_of_verifiers(scaled, group, verdict, accepted):
    backend(group, lambda x, by, log: "fast", verifier=lambda x, by: verdict)
    assert (scaled(1) == "fast") == accepted


def test_a_broken_verifier_refuses(scaled, group):
    def broken(x, by):
        raise ValueError("oops")

    backend(group, lambda x, by, log: "fast", verifier=broken)
    assert scaled(1) == 2
    assert yard.explain(scaled, 1)["candidates"][0]["verdict"] == "broken"


def test_failures_go_to_the_next_and_open_a_breaker(scaled, group):
    calls = []

    def fail(x, by, log):
        calls.append(x)
        raise ZeroDivisionError("by nothing")

    backend(group, fail)
    for i in range(20):
        assert scaled(i) == 2 * i
    assert 5 <= len(calls) < 20


def test_a_backend_declines(group):
    calls = []

    @yard.dispatch(group)  # not repeatable, and yet the next one runs
    def scaled(x, by=2, *, log=None):
        return x * by

    def decline(x, by, log):
        calls.append(x)
        raise yard.Declined("not today")

    name = backend(group, decline)
    for i in range(20):
        assert scaled(i) == 2 * i
    row = next(f for f in yard.functions() if f["function"] == f"{group}/scaled")["backends"][0]
    assert len(calls) == 20 and row["breaker"] in ("", "closed") and row["backend"] == name


def test_exceptions_of_the_original_reach_the_caller(group):
    @yard.dispatch(group)
    def fails():
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        fails()

    class Other(yard.Backend):
        def fails(self):
            raise KeyError("k")

    other = Other()
    other.name, other.group = group + "_other", group
    yard.add_backend(other)
    with pytest.raises((KeyError, LookupError)):  # not repeatable, so no other one may run
        fails()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_through(scaled, group, error):
    log = []

    def interrupt(x, by, log=None):
        raise error()

    name = backend(group, interrupt)
    with pytest.raises(error):
        scaled(1, log=log)
    assert not log
    yard.remove_backend(name)
    backend(group, lambda x, by, log: "fast", verifier=interrupt)
    with pytest.raises(error):
        scaled(1)
    with pytest.raises(error):
        yard.explain(scaled, 1)


def test_unavailable_backends_say_why(scaled, group):
    name = backend(group, lambda x, by, log: "fast",
                   available=lambda: "package left_pad is not installed")
    assert scaled(1) == 2
    row = next(f for f in yard.functions() if f["function"] == f"{group}/scaled")
    assert "package left_pad is not installed" in row["backends"][0]["detail"]
    yard.remove_backend(name)


def test_policies_apply(scaled, group):
    backend(group, lambda x, by, log: "fast", vendor="acme")
    with yard.policy(deny_vendors=["acme"]):
        assert scaled(1) == 2
    assert scaled(1) == "fast"


def test_signatures_are_compared(scaled, group):
    class Wrong(yard.Backend):
        name = "wrong"

        def scaled(self, x, factor=2, *, log=None):
            return 0

    wrong = Wrong()
    wrong.group = group
    with pytest.raises(TypeError, match="Wrong.scaled has other parameters than"):
        yard.add_backend(wrong)
    wrong.group = "nobody"
    with pytest.raises(ValueError, match="implements no function of group 'nobody'"):
        yard.add_backend(wrong)
    with pytest.raises(ValueError, match="needs a name and a group"):
        yard.add_backend(yard.Backend())


def test_mistakes_of_the_caller_are_no_failures(scaled, group):
    backend(group, lambda x, by, log: "fast")
    for _ in range(20):
        for wrong in (lambda: scaled(), lambda: scaled(1, 2, 3), lambda: scaled(1, x=1),
                      lambda: scaled(1, factor=2), lambda: scaled(by=2)):
            with pytest.raises(TypeError):
                wrong()
    assert scaled(1) == scaled(x=1) == scaled(1, by=3) == scaled(1, 2, log=None) == "fast"


def test_methods_are_dispatched(group):
    class Model:
        @yard.dispatch(group)
        def forward(self, x):
            return self, x

    m = Model()
    assert m.forward(3) == (m, 3)


def test_threads_and_recursion(scaled, group):
    def nested(x, by, log):
        return scaled(x - 1) if x > 0 else "end"

    backend(group, nested)
    wrong = []

    def work():
        for _ in range(100):
            if scaled(20) != "end":
                wrong.append(1)

    in_threads(work)
    assert not wrong
