# SPDX-License-Identifier: Apache-2.0
"""Reads the canonical text of a schema (docs/reference/schema.md)."""

import json
from collections import namedtuple

# `kind` is t (tensor), l (list of tensors), i, f, b or s (also enums, with their `words`); `role` is
# "!" (written), "~" (read and written) or "".
Param = namedtuple("Param", "name kind role optional default words type")


def _split(text):
    """Splits at commas outside of brackets and strings."""
    parts, depth, start, quoted, i = [], 0, 0, False, 0
    while i < len(text):
        c = text[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth < 0:
                break
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    parts.append(text[start:i])
    return [p.strip() for p in parts if p.strip()]


def _default(kind, text):
    if kind == "i":
        return int(text)
    if kind == "f":
        return float(text)
    if kind == "b":
        return text == "true"
    return json.loads(text) if text.startswith('"') else text


def read(schema):
    """Returns the parameters of the op."""
    params = []
    for part in _split(schema[schema.index("(") + 1:]):
        name, _, rest = part.partition(":")
        name, rest = name.strip(), rest.strip()
        optional = name.endswith("?")
        name = name.rstrip("?")
        role = name[-1] if name[-1] in "!~" else ""
        name = name.rstrip("!~")
        type_text, has_default, default = rest.partition("=")
        type_text = type_text.strip()
        words = ()
        if type_text.startswith("enum{"):
            kind, words = "s", tuple(w.strip() for w in type_text[5:-1].split(","))
        elif type_text in ("int", "float", "bool", "string"):
            kind = {"int": "i", "float": "f", "bool": "b", "string": "s"}[type_text]
        else:
            kind = "l" if type_text.endswith("[]") else "t"
        value = _default(kind, default.strip()) if has_default else None
        params.append(Param(name, kind, role, optional, value, words, type_text))
    return tuple(params)


def text_of_call(name, params):
    """Returns the call as Python writes it: `rms_norm(x, weight, eps=1e-06, *, out=None)`."""
    inputs, outputs = [], []
    for p in params:
        if p.role == "!":
            outputs.append(f"{p.name}=None")
        elif p.default is not None or p.optional:
            inputs.append(f"{p.name}={p.default!r}")
        else:
            inputs.append(p.name)
    return f"{name}({', '.join(inputs + (['*'] + outputs if outputs else []))})"
