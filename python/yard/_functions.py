# SPDX-License-Identifier: Apache-2.0
"""Functions of a program that backends can implement."""

import functools
import weakref

from . import _calls, _reports, _yard

_declared = weakref.WeakValueDictionary()  # functions by (group, name)


def _binding(function):
    """Returns the names of parameters, how many of them are required, and the keyword-only ones."""
    import inspect
    names, required, keywords = [], 0, {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            return None, 0, {}
        if p.kind == p.KEYWORD_ONLY:
            keywords[p.name] = p.default is p.empty
        else:
            names.append(p.name)
            required += p.default is p.empty
    return tuple(names), required, keywords


class Function(_yard.Function):
    """A function that backends can implement; made by `dispatch`."""

    def __init__(self, group, function, repeatable):
        super().__init__(group, function.__name__, function, repeatable, *_binding(function))
        functools.update_wrapper(self, function)
        self.group = group

    def __get__(self, owner, owner_type=None):
        if owner is None:
            return self
        return functools.partial(self, owner)

    def __repr__(self):
        return f"<yard function {self.group}/{self.__name__}>"


class FunctionExplanation(_calls.Explanation):
    """Which backend would serve a call, and why the others would not."""

    def __init__(self, found, text):
        dict.__init__(self, found)
        self._text = text


def dispatch(group, *, repeatable=False):
    """Makes the decorated function one that backends can implement.

    The function itself is the original: it runs when no backend accepts a call. `repeatable` says
    that no implementation reads what it writes, so that after a failure another can start over.

    >>> import yard
    >>> @yard.dispatch("demo", repeatable=True)
    ... def double(x):
    ...     return x + x
    >>> class Fast(yard.Backend):
    ...     name = "fast"
    ...     group = "demo"
    ...     def double(self, x):
    ...         return 2 * x
    ...     def double_verifier(self, x):
    ...         return True if isinstance(x, int) else "x is no int"
    >>> yard.add_backend(Fast())
    >>> double(4), yard.explain(double, 4)["selected"], yard.explain(double, "a")["selected"]
    (8, 'fast', 'original')
    >>> yard.remove_backend("fast")
    """

    def declare(function):
        made = Function(group, function, repeatable)
        _declared[group, function.__name__] = made
        return made

    return declare


class Backend:
    """A family of implementations of a group's functions. Subclass it and pass it to add_backend.

    `name` and `group` are required. A method that is called like a function of the group implements
    it, with the same parameters. NAME_verifier, with these parameters, returns True to accept a
    call, and otherwise the reason, False, or a tuple (False, reason). `available()` returns True,
    or why the backend cannot be used. `env` names a variable that switches the backend, and
    functions ask backends of a higher `priority` first.
    """

    name = group = vendor = env = ""
    priority = 0

    def available(self):
        return True


def _parameters(function):
    import inspect
    return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]


def add_backend(backend):
    """Registers a Backend. Each implementation must have the parameters of its function."""
    if not backend.name or not backend.group:
        raise ValueError(f"{type(backend).__name__} needs a name and a group")
    rows = []
    for (group, name), function in list(_declared.items()):
        method = getattr(backend, name, None) if group == backend.group else None
        if method is None or not callable(method):
            continue
        verifier = getattr(backend, name + "_verifier", None)
        for found, what in ((method, name), (verifier, name + "_verifier")):
            if found is not None and _parameters(found) != _parameters(function.__wrapped__):
                raise TypeError(f"{type(backend).__name__}.{what} has other parameters than "
                                f"{group}/{name}")
        rows.append((group, name, method, verifier, backend.priority))
    if not rows:
        raise ValueError(f"{type(backend).__name__} implements no function of group "
                         f"'{backend.group}'")
    available = backend.available()
    why = "" if available in (True, None) else str(available or "it is not available")
    doc = (type(backend).__doc__ or "").strip().splitlines() if type(backend).__doc__ != Backend.__doc__ else []
    _yard.add_backend(backend.name, backend.vendor, doc[0] if doc else "", backend.env, "cpu", why, rows)


def remove_backend(name):
    """Removes a backend, with its functions and kernels."""
    _yard.remove_backend(name)


def functions():
    """Lists the functions of this process, with their backends."""
    return _reports.Table(_yard.functions(), ("function", "signature", "original_calls"))
