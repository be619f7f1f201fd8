# SPDX-License-Identifier: Apache-2.0
"""Calls, policies and explanations."""

import functools
import json
import sys
import types

from . import _schema, _yard


class Ops:
    """The ops by name: `yard.ops.rms_norm(x, weight)`, `yard.ops.attention.causal(...)` or
    `yard.ops["attention.causal"](...)`.

    Outputs that are not given as `out=` (or by their own names) are made by the library of the
    first tensor, and returned.
    """

    def __init__(self, prefix=""):
        self._prefix = prefix

    def __getitem__(self, name):
        found = _made.get(name)
        if found is None:
            schemas = _yard.schemas()
            if name not in schemas:
                import difflib
                close = difflib.get_close_matches(name, schemas, 1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise KeyError(f"op '{name}' is not known{hint}")
            found = _make(name, *schemas[name])
        return found

    def _find(self, name):
        full = self._prefix + name
        found = _made.get(full)
        if found is None:
            try:
                found = self[full]
            except KeyError as e:
                if not any(n.startswith(full + ".") for n in _yard.schemas()):
                    raise AttributeError(e.args[0]) from None
                found = Ops(full + ".")
        self.__dict__[name] = found
        setattr(_known, _key(full), found)

    _find._dynamo_marked_constant = True  # torch.compile runs it instead of tracing it

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._find(name)
        return getattr(_known, _key(self._prefix + name))

    def __dir__(self):
        rest = (n[len(self._prefix):] for n in _yard.schemas() if n.startswith(self._prefix))
        return sorted({n.partition(".")[0] for n in rest})

    def __iter__(self):
        return iter(n for n in _yard.schemas() if n.startswith(self._prefix))

    def __repr__(self):
        return f"<yard ops: {', '.join(self)}>"


_made = {}  # ops by their full name
_gone = {}  # ops that were removed and may come back
# The ops for torch.compile, which looks up attributes of modules anew and remembers contents of dicts.
_known = types.ModuleType("yard._calls._known")


def _described(name, schema, summary):
    params = _schema.read(schema)
    doc = f"{_schema.text_of_call(name, params)}\n\n{summary}\n\nSchema: {schema}"
    rows = tuple((p.name, p.kind, p.role, p.optional, p.default, p.words) for p in params)
    return name, rows, schema, doc


def _key(name):
    return name.replace(".", "DOT")  # names of ops have no capitals


def _make(name, schema, summary):
    described = _described(name, schema, summary)
    found = _gone.pop(name, None)
    if found is None:
        return _made.setdefault(name, _yard.Op(*described))
    found._set(*described)
    return _made.setdefault(name, found)


def _refresh(op):
    """Reads the schema of an op again, for the extension."""
    schemas = _yard.schemas()
    name = op.__name__
    if name in schemas:
        op._set(*_described(name, *schemas[name]))
    else:
        _forget(name)
        op._set(*_described(name, op.schema, ""))  # whose next call says that the op is not known


ops = Ops()


def _forget(name):
    """Forgets an op that was removed. Those who have the op see it again when it comes back."""
    found = _made.pop(name, None)
    if found is not None:
        _gone[name] = found
    vars(_known).pop(_key(name), None)
    ops.__dict__.pop(name.partition(".")[0], None)


def _traced_call(self, *args, **kwargs):
    """What torch.compile traces in place of a call."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "compiler") or not torch.compiler.is_compiling():
        return self(*args, **kwargs)
    from . import _torch
    name = self.__name__
    _torch.register(name)
    return getattr(_torch.traced, _torch.torch_name(name))(*args, **kwargs)


_yard.Op._trace_calls_as(_traced_call)


def register_torch_ops(*names):
    """Registers the named ops, or all, with torch: "attention.full" as torch.ops.yard.attention_full.

    torch.compile does it by itself. Programs call it before they load an exported program that has
    such ops, or call torch.ops.yard themselves. It needs torch 2.4 or later.
    """
    from . import _torch
    for name in names or ops:
        _torch.register(name)


def bind(op, *args, **kwargs):
    """Finds the kernel of repeated calls in advance. Returns a yard.Handle, which is called like the op.

    Arguments that a call of the handle does not give are those that it was bound to. Tensors have the
    dtypes, shapes, strides and devices that the handle was bound to, and other tensors are a ValueError.
    The handle follows changes of kernels and policies.

    >>> import numpy, yard
    >>> x, out = numpy.ones((2, 4), "f4"), numpy.empty((2, 4), "f4")
    >>> softmax = yard.bind(yard.ops.softmax, x, out=out)
    >>> softmax() is out, float(softmax(2 * x)[0, 0]), softmax.kernel
    (True, 0.25, 'default.simd')
    """
    return _yard.Handle(ops[op] if isinstance(op, str) else op, *args, **kwargs)


class Explanation(dict):
    """Why one kernel was selected and the others were not. `print()` shows a table."""

    def __init__(self, found):
        super().__init__(json.loads(found[0]))
        self._text = found[1]

    def __repr__(self):
        return self._text

    def _repr_html_(self):
        import html
        return f"<pre>{html.escape(self._text)}</pre>"


def explain(op, *args, **kwargs):
    """Tells which kernel a call would run, and why the others would not. Runs nothing.

    Takes an op or a dispatched function and its arguments, or the text of a call:

    >>> import yard
    >>> yard.explain("softmax(f32[8,4096])")["selected"]
    'default.simd'
    """
    if isinstance(op, str):
        if not args and not kwargs:
            return Explanation(_yard.explain(op))
        op = ops[op]
    if not isinstance(op, (_yard.Op, _yard.Function)):
        raise TypeError(f"expected an op, a dispatched function or the text of a call, got {type(op).__name__}")
    if isinstance(op, _yard.Function):
        from ._functions import FunctionExplanation
        return FunctionExplanation(*op._explain(*args, **kwargs))
    return Explanation(op._explain(*args, **kwargs))


class policy(_yard.Policy):
    """What kernels may run, for the calls in a `with` block or in a decorated function.

    >>> import numpy, yard
    >>> x = numpy.zeros((2, 4), "f4")
    >>> with yard.policy(prefer="reference"):
    ...     yard.explain(yard.ops.softmax, x)["selected"]
    'reference.cpp'

    The policy belongs to the thread or to the asyncio task. Policies nest, and the inner one goes
    first. The fields are those of docs/reference/rules.md: prefer, strict, order (op to tokens),
    allow_vendors, deny_vendors, allow_kernels, deny_kernels, locks (op to kernel), transforms (op
    to bool), labels, mode, inference and deterministic.
    """

    def __init__(self, *, prefer=None, strict=None, order=None, allow_vendors=None,
                 deny_vendors=None, allow_kernels=None, deny_kernels=None, locks=None,
                 transforms=None, labels=None, mode=None, inference=None, deterministic=None):
        fields = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__(fields)
        self._fields = {k: v for k, v in fields.items() if v is not None}

    def __call__(self, function):
        import inspect
        if not callable(function) or inspect.isclass(function):
            raise TypeError(f"a policy decorates functions, got {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a policy cannot decorate a generator; use `with` inside it")
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def inside(*args, **kwargs):
                with self:
                    return await function(*args, **kwargs)
        else:
            @functools.wraps(function)
            def inside(*args, **kwargs):
                with self:
                    return function(*args, **kwargs)
        return inside

    def __repr__(self):
        fields = ", ".join(f"{k}={v!r}" for k, v in self._fields.items())
        return f"yard.policy({fields})"
