# SPDX-License-Identifier: Apache-2.0
"""Ops as ops of torch, `torch.ops.yard.NAME`, so that torch.compile keeps each as one node.

torch.compile runs this module when it traces a call of an op. Programs that neither compile nor
call yard.register_torch_ops() never import it. An op has two forms in torch: `NAME` returns its
outputs, and `NAME.out` writes to given outputs. Arguments that the op reads and writes are declared
as mutated in both.
"""

import re
import threading
import types

import torch

from . import _calls, _schema

if not hasattr(torch.library, "register_fake"):
    raise RuntimeError(f"torch {torch.__version__} cannot register ops; expected torch 2.4 or later")

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
           "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
           "u8": torch.uint8, "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn,
           "f8e5m2": torch.float8_e5m2}
_SCALARS = {"i": "SymInt", "f": "float", "b": "bool", "s": "str"}

_library = torch.library.Library("yard", "FRAGMENT")
_schemas = {}  # of registered ops, by their names in torch
_lock = threading.Lock()

# Python functions that torch.compile traces in place of calls, by the op's name in torch. This is a
# module because torch.compile looks up attributes of modules anew, and remembers contents of dicts.
traced = types.ModuleType("yard._torch.traced")


def torch_name(name):
    """Returns the name that an op has in torch, where a dot comes before an overload."""
    return name.replace(".", "_")


class _Outputs:
    """Finds the shapes and dtypes of outputs from those of inputs, whose sizes may be symbols."""

    def __init__(self, schema, params):
        parts = [(p, *self._split(p)) for p in params if p.kind in "tl"]
        self._inputs = [part for part in parts if part[0].role != "!"]
        self._outputs = [part for part in parts if part[0].role == "!"]
        # The first dtype of a variable counts if no input has the variable.
        self._dtypes = dict(re.findall(r"(\w+) in \{(\w+)", schema.partition(" where ")[2]))
        known = {name for _, _, dims in self._inputs for _, name, _ in dims} - {"_"}
        known.update(p.name for p in params if p.kind == "i")
        # The caller gives the outputs of other ops.
        self.follow = all(p.kind == "t" and not p.optional
                          and all(name.isdigit() or name in known for _, name, _ in dims)
                          for p, _, dims in self._outputs)

    @staticmethod
    def _split(param):
        """Returns the dtype, and (factor, name, whether it broadcasts) for each dimension."""
        dtype, _, rest = param.type.partition("[")
        dims = []
        for text in filter(None, rest.partition("]")[0].replace(" ", "").split(",")):
            text, _, broadcasts = text.partition("|")
            factor, star, name = text.rpartition("*")
            dims.append(("*" if star and not factor else int(factor or 1), name, bool(broadcasts)))
        return dtype, dims

    @staticmethod
    def _bind(param, tensor, dims, found):
        sizes = list(tensor.shape)
        if dims and dims[0][0] == "*":
            rows = max(len(sizes) - len(dims) + 1, 0)
            sizes = [tuple(sizes[:rows]), *sizes[rows:]]
        if len(sizes) != len(dims):
            raise ValueError(f"argument '{param.name}': expected {param.type}, got {list(tensor.shape)}")
        for size, (factor, name, broadcasts) in zip(sizes, dims):
            if factor == "*" and broadcasts:
                found[name] = tuple(torch.broadcast_shapes(size, found.get(name, ())))
            elif not broadcasts:
                found.setdefault(name, size if factor in ("*", 1) else size // factor)
            elif found.get(name, 1) == 1:
                found[name] = size if factor == 1 else max(size // factor, 1)

    def of(self, arguments):
        """Returns a list of (shape, dtype). `arguments` are the inputs by name."""
        found = {n: v for n, v in arguments.items() if isinstance(v, (int, torch.SymInt))}
        dtypes = dict(self._dtypes)
        for broadcasts in (False, True):  # full sizes first
            for p, dtype, dims in self._inputs:
                value = arguments[p.name]
                if value is None or broadcasts != any(b for _, _, b in dims):
                    continue
                for tensor in value if p.kind == "l" else (value,):
                    dtypes[dtype] = tensor.dtype
                    self._bind(p, tensor, dims, found)
        made = []
        for _, dtype, dims in self._outputs:
            shape = []
            for factor, name, _ in dims:
                size = int(name) if name.isdigit() else found[name]
                shape.extend(size if factor == "*" else [size * factor])
            dtype = dtypes.get(dtype, dtype)
            made.append((shape, _DTYPES.get(dtype, dtype)))
        return made


def _refuse_gradients(tensors):
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise RuntimeError("an argument requires a gradient, which Switchyard does not compute; call "
                           "within torch.no_grad(), or detach() the tensor")


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _declaration(params, with_outputs):
    """Returns the parameters in the notation of torch."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    inputs, outputs = [], []
    defaults = True  # parameters with defaults come last
    for p in reversed(params):
        tensor = "Tensor" + (f"({next(letters)}!)" if p.role else "") + ("[]" if p.kind == "l" else "")
        text = _SCALARS.get(p.kind, tensor) + ("?" if p.optional else "") + " " + p.name
        if p.role == "!":
            outputs.append(text + ("=None" if p.optional else ""))
            continue
        has_default = p.optional or p.default is not None
        defaults = defaults and has_default
        if defaults:
            text += "=" + (f'"{p.default}"' if p.kind == "s" else repr(p.default))
        inputs.append(text)
    inputs.reverse(), outputs.reverse()
    return ", ".join(inputs + (["*"] + outputs if with_outputs and outputs else []))


def _trace(name, params, returning, writing):
    """Makes the function that torch.compile traces. It binds arguments as the op itself does."""
    inputs = tuple(p.name for p in params if p.role != "!")
    outputs = tuple(p.name for p in params if p.role == "!")
    required = tuple(p.name for p in params if p.role == "!" and not p.optional)
    defaults = {p.name: p.default for p in params if p.optional or p.default is not None}

    def call(*args, **kwargs):
        if len(args) > len(inputs):
            raise TypeError(f"op '{name}' takes {len(inputs)} arguments and its outputs by name")
        given = dict(zip(inputs, args))
        given.update(kwargs)
        out = given.pop("out", None) if "out" not in outputs or len(outputs) > 1 else None
        if out is not None:
            given.update(zip(outputs, out if len(outputs) > 1 else (out,)))
        values = []
        for n in inputs:
            value = given.pop(n, None)
            if value is None:
                if n not in defaults:
                    raise TypeError(f"op '{name}' needs argument '{n}'")
                value = defaults[n]
            values.append(value)
        written = {n: given.pop(n) for n in outputs if given.get(n) is not None}
        if any(n not in outputs for n in given):
            raise TypeError(f"op '{name}' has no parameter '{list(given)[0]}'")
        if returning is not None and not written:
            return returning(*values)
        for n in required:
            if n not in written:
                raise TypeError(f"op '{name}' needs output '{n}' when it is compiled")
        writing(*values, **written)
        results = tuple(written.get(n) for n in outputs)
        return results[0] if len(results) == 1 else results

    return call


@torch.compiler.assume_constant_result
def register(name):
    """Registers an op with torch, unless it is. torch.compile runs this while it traces a call."""
    op = _calls.ops[name]
    with _lock:
        known = _schemas.get(torch_name(name))
        if known is None:
            _register(op, torch_name(name))
            _schemas[torch_name(name)] = op.schema
        elif known != op.schema:
            raise RuntimeError(f"torch.ops.yard.{torch_name(name)} stands for {known}, and torch cannot "
                               "change it; give the op another name")


def _register(op, name):
    params = _schema.read(op.schema)
    inputs = [p.name for p in params if p.role != "!"]
    defaults = {p.name: p.default for p in params if p.role != "!"}
    outputs = _Outputs(op.schema, params)
    count = sum(p.role == "!" for p in params)

    def fake(*args):
        _refuse_gradients(_tensors(args))
        if count == 0:
            return None
        like = next(_tensors(args))
        found = outputs.of({**defaults, **dict(zip(inputs, args))})
        made = tuple(like.new_empty(shape, dtype=dtype) for shape, dtype in found)
        return made[0] if count == 1 else made

    def fake_writing(*args, **written):
        _refuse_gradients(_tensors((*args, *written.values())))

    def write(*args, **written):
        op(*args, **written)

    def define(form, returns, with_outputs, run, fake):
        _library.define(f"{form}({_declaration(params, with_outputs)}) -> {returns}",
                        tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(form, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"yard::{form}", fake, lib=_library)

    returning = writing = None
    if outputs.follow:
        returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        define(name, returns, False, op, fake)
        returning = getattr(torch.ops.yard, name).default
    if count > 0:
        define(f"{name}.out", "()", True, write, fake_writing)
        writing = getattr(torch.ops.yard, name).out
    setattr(traced, name, _trace(op.__name__, params, returning, writing))
