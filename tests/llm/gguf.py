# SPDX-License-Identifier: Apache-2.0
"""Reads and writes GGUF files in a simple way: metadata, and tensors as bytes that decode to float64.

This code is independent of examples/llm, because the tests compare the two.
"""
import struct

import numpy as np

# Types of metadata by number, as formats of struct.
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9

# Types of tensors: number, elements in a block, bytes in a block.
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q8_0": (8, 32, 34),
         "q4_k": (12, 256, 144), "q6_k": (14, 256, 210), "bf16": (30, 1, 2)}
NAMES = {number: name for name, (number, _, _) in TYPES.items()}
ALIGNMENT = 32


def bytes_of(kind, shape):
    _, elements, size = TYPES[kind]
    return int(np.prod(shape)) // elements * size


class Reader:
    """Reads the numbers and strings of a file in order."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.number("<Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, count = self.number("<I"), self.number("<Q")
            return [self.value(of) for _ in range(count)]
        return self.number(NUMBERS[kind])


def read(path):
    """Returns metadata by key, and tensors by name as (type, shape with the longest stride first,
    bytes)."""
    data = np.memmap(path, np.uint8, "r")
    r = Reader(data)
    if bytes(data[:4]) != b"GGUF":
        raise ValueError(f"invalid file {path}: expected GGUF")
    r.at = 8
    tensors, keys = r.number("<Q"), r.number("<Q")
    metadata = {}
    for _ in range(keys):
        key = r.text()
        metadata[key] = r.value(r.number("<I"))
    places = []
    for _ in range(tensors):
        name = r.text()
        shape = [r.number("<Q") for _ in range(r.number("<I"))][::-1]
        places.append((name, NAMES[r.number("<I")], shape, r.number("<Q")))
    start = -(-r.at // ALIGNMENT) * ALIGNMENT
    return metadata, {name: (kind, shape, data[start + at:start + at + bytes_of(kind, shape)])
                      for name, kind, shape, at in places}


def halves(block):
    """Returns the low halves of bytes, then the high ones."""
    return np.concatenate([block & 15, block >> 4], axis=-1).astype(float)


def decode_q4_k(b):
    d, dmin = b[:, :4].view(np.float16).astype(float).T[..., None]
    s = b[:, 4:16].astype(int)
    scale = np.concatenate([s[:, :4] & 63, s[:, 8:] & 15 | s[:, :4] >> 6 << 4], axis=1)
    least = np.concatenate([s[:, 4:8] & 63, s[:, 8:] >> 4 | s[:, 4:8] >> 6 << 4], axis=1)
    q = halves(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (d * scale)[..., None] * q - (dmin * least)[..., None]


def decode_q6_k(b):
    low = halves(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = np.stack([b[:, 128:192].reshape(-1, 2, 32) >> 2 * k & 3 for k in range(4)], axis=2)
    scale = b[:, 192:208].view(np.int8).astype(float) * b[:, 208:].view(np.float16).astype(float)
    return scale[..., None] * (low + 16.0 * high - 32).reshape(-1, 16, 16)


def decode(kind, shape, data):
    """Returns the elements as float64."""
    data = np.ascontiguousarray(data)
    if kind == "f32":
        out = data.view(np.float32)
    elif kind == "f16":
        out = data.view(np.float16)
    elif kind == "bf16":
        out = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        b = data.reshape(-1, TYPES[kind][2])
        if kind == "q4_k":
            out = decode_q4_k(b)
        elif kind == "q6_k":
            out = decode_q6_k(b)
        else:
            d = b[:, :2].view(np.float16).astype(float)
            if kind == "q8_0":
                out = d * b[:, 2:].view(np.int8)
            elif kind == "q4_0":
                out = d * (halves(b[:, 2:]) - 8)
            else:
                out = d * halves(b[:, 4:]) + b[:, 2:4].view(np.float16).astype(float)
    return out.astype(float).reshape(shape)


def text_bytes(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(value):
    """Encodes a value with its type: strings, floats, flags, signed lists, everything else as u32."""
    if isinstance(value, list):
        kind = STRING if isinstance(value[0], str) else 5
        parts = [text_bytes(v) if kind == STRING else struct.pack("<i", v) for v in value]
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(parts)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text_bytes(value)
    kind = 7 if isinstance(value, bool) else 6 if isinstance(value, float) else 4
    return struct.pack("<I", kind) + struct.pack(NUMBERS[kind], value)


def write(path, metadata, tensors):
    """The inverse of read()."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += text_bytes(key) + value_bytes(value)
    body = bytearray()
    for name, (kind, shape, data) in tensors.items():
        body += bytes(-len(body) % ALIGNMENT)
        head += text_bytes(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in shape[::-1])
        head += struct.pack("<IQ", TYPES[kind][0], len(body))
        body += bytes(data)
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT) + body)
