# SPDX-License-Identifier: Apache-2.0
"""Tests the float64 reference: decoders of blocks against their definition, element by element, and
parts of the forward pass against loops."""
import math
import os
import struct
import tempfile
import unittest

import numpy as np

import forward
import gguf
import random_model


def f16(block, at):
    return struct.unpack_from("<e", block, at)[0]


def element(kind, block, i):
    """Computes an element as docs/reference/ops.md defines it."""
    if kind == "q8_0":
        return f16(block, 0) * struct.unpack_from("<b", block, 2 + i)[0]
    if kind in ("q4_0", "q4_1"):
        q = block[(2 if kind == "q4_0" else 4) + i % 16] >> (4 if i >= 16 else 0) & 15
        return f16(block, 0) * (q - 8) if kind == "q4_0" else f16(block, 0) * q + f16(block, 2)
    if kind == "q4_k":
        j, s = i // 32, block[4:16]
        scale = s[j] & 63 if j < 4 else s[j + 4] & 15 | s[j - 4] >> 6 << 4
        least = s[j + 4] & 63 if j < 4 else s[j + 4] >> 4 | s[j] >> 6 << 4
        q = block[16 + 32 * (j // 2) + i % 32] >> (4 if j % 2 else 0) & 15
        return f16(block, 0) * scale * q - f16(block, 2) * least
    half, quarter, l = i // 128, i % 128 // 32, i % 32
    low = block[64 * half + 32 * (quarter % 2) + l] >> (4 if quarter >= 2 else 0) & 15
    high = block[128 + 32 * half + l] >> 2 * quarter & 3
    scale = struct.unpack_from("<b", block, 192 + i // 16)[0]
    return f16(block, 208) * scale * ((low | high << 4) - 32)


class Decoding(unittest.TestCase):
    def test_blocks(self):
        random = np.random.default_rng(3)
        for kind in ("q8_0", "q4_0", "q4_1", "q4_k", "q6_k"):
            _, elements, size = gguf.TYPES[kind]
            data = random_model.random_blocks(kind, 3, elements, 1.0, random)
            got = gguf.decode(kind, [3, elements], np.frombuffer(data, np.uint8))
            for row in range(3):
                block = data[row * size:(row + 1) * size]
                self.assertEqual(list(got[row]), [element(kind, block, i) for i in range(elements)], kind)

    def test_spread_of_random_weights(self):
        random = np.random.default_rng(4)
        for kind in gguf.TYPES:
            data = random_model.random_blocks(kind, 64, 256, 0.5, random)
            values = gguf.decode(kind, [64, 256], np.frombuffer(data, np.uint8))
            self.assertAlmostEqual(values.std(), 0.5, delta=0.1, msg=kind)
            self.assertAlmostEqual(values.mean(), 0, delta=0.1, msg=kind)

    def test_a_written_file_reads_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            data = np.arange(6, dtype=np.float32)
            metadata = {"a.text": "é", "a.number": 7, "a.flag": True, "a.half": 0.5, "a.list": ["x", "yz"]}
            gguf.write(path, metadata, {"one": ("f32", [2, 3], data.tobytes()), "two": ("f32", [6], data.tobytes())})
            got, tensors = gguf.read(path)
        self.assertEqual(got, metadata)
        for name, shape in (("one", [2, 3]), ("two", [6])):
            self.assertTrue((gguf.decode(*tensors[name]) == data.reshape(shape)).all())


class Parts(unittest.TestCase):
    def test_attention(self):
        random = np.random.default_rng(5)
        q, k, v = (random.standard_normal((3, heads, 4)) for heads in (4, 2, 2))
        got = forward.attention(q, k, v).reshape(3, 4, 4)
        for token in range(3):
            for head in range(4):
                weights = [math.exp(q[token, head] @ k[t, head // 2] / 2) for t in range(token + 1)]
                expected = sum(w * v[t, head // 2] for t, w in enumerate(weights)) / sum(weights)
                np.testing.assert_allclose(got[token, head], expected, atol=1e-12)

    def test_rotation(self):
        got = forward.rotate(np.ones((3, 1, 4)), 100.0)[2, 0]
        for pair, angle in enumerate((2.0, 0.2)):
            expected = [math.cos(angle) - math.sin(angle), math.cos(angle) + math.sin(angle)]
            np.testing.assert_allclose(got[2 * pair:2 * pair + 2], expected, atol=1e-12)

    def test_logits_do_not_depend_on_later_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            random_model.write_model(path, shape=(1, 64, 64, 4, 2))
            model = forward.Model(path)
            both, first = model.logits([7, 8, 9], 2), model.logits([7, 8], 1)
        np.testing.assert_allclose(both[0], first[0], atol=1e-9)
        self.assertGreater(abs(both[1] - both[0]).max(), 1)


unittest.main()
