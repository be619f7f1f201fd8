# SPDX-License-Identifier: Apache-2.0
"""Compares the logits and tokens of yard-chat with the forward pass in float64, on small random models
and under every policy.

Tokens are compared along the program's own text, so that two nearly equal tokens do not end the
comparison.
"""
import json
import os
import subprocess
import sys
import tempfile
import unicodedata
import unittest

import numpy as np

import forward
import random_model

POLICIES = ("reference", "simd", "vendor", "default")
PROMPTS = ("hello world", "The quick brown fox", "é 你好 😀 123")
# The largest error of a logit (docs/performance.md).
EXACT, INT8 = 0.05, 0.5
MODELS = {
    "q4_1, q8_0 tied": {},
    "f16, f32 tied": {"weights": "f16", "embedding": "f32"},
    "bf16, q4_0 output": {"weights": "bf16", "untied": "q4_0"},
    "q4_0, f16 output": {"weights": "q4_0", "untied": "f16"},
    "q4_k, q6_k tied": {"weights": "q4_k", "embedding": "q6_k", "shape": (1, 256, 256, 4, 2)},
    "q6_k, q4_k output": {"weights": "q6_k", "untied": "q4_k", "shape": (1, 256, 256, 4, 1)},
}


def chat(model, prompt, policy, tokens, *more):
    """Returns the object that yard-chat prints."""
    run = subprocess.run([os.environ["CHAT"], "--model", model, "--json", "--temperature", "0", "--policy", policy,
                          "--tokens", str(tokens), *more, prompt], capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


def program_logits(model, policy, prompt, tokens):
    """Returns the logits after the prompt and after each further token."""
    run = subprocess.run([os.environ["LOGITS"], model, policy, str(len(prompt)), *map(str, prompt + tokens)],
                         capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    return np.frombuffer(run.stdout, np.float32).reshape(len(tokens) + 1, -1)


def quantised(kinds):
    return any(kind.startswith("q") for kind in kinds)


class Tokens(unittest.TestCase):
    def check(self, path, model, prompt, policy, allowed, *more):
        ran = chat(path, prompt, policy, 16, "--raw", *more)
        start, tokens = ran["prompt_tokens"], ran["tokens"]
        self.assertEqual(len(tokens), 16)
        logits = model.logits(start + tokens[:-1], len(tokens))
        for step, token in enumerate(tokens):  # each token must be the best within the error
            self.assertLessEqual(logits[step].max() - logits[step, token], allowed, (policy, prompt, step))
        own = program_logits(path, policy, start, tokens[:-1])
        self.assertLessEqual(abs(own - logits).max(), allowed, (policy, prompt))
        self.assertEqual(list(own.argmax(axis=1)), tokens)

    def test_every_model_under_every_policy(self):
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, kinds) in enumerate(MODELS.items()):
                path = os.path.join(folder, f"{number}.gguf")
                random_model.write_model(path, seed=number + 1, **kinds)
                model = forward.Model(path)
                integers = quantised(kind for kind, _, _ in model.tensors.values())
                for policy in POLICIES:
                    for prompt in PROMPTS[:3 if not kinds else 1]:
                        with self.subTest(model=name, policy=policy, prompt=prompt):
                            self.check(path, model, prompt, policy, INT8 if integers and policy != "reference" else EXACT)

    def test_threads_do_not_change_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            random_model.write_model(path, shape=(2, 256, 512, 8, 4))
            one, two = (chat(path, PROMPTS[1], "simd", 24, "--threads", n) for n in ("1", "2"))
        self.assertEqual(one["tokens"], two["tokens"])


class Characters(unittest.TestCase):
    def test_the_table_is_what_its_script_writes(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        with open(os.path.join(root, "examples", "llm", "unicode_ranges.inc"), encoding="utf-8") as file:
            table = file.read()
        if f"for Unicode {unicodedata.unidata_version}." not in table:
            self.skipTest(f"this Python has Unicode {unicodedata.unidata_version}")
        script = os.path.join(root, "scripts", "unicode_ranges.py")
        self.assertEqual(subprocess.check_output([sys.executable, script], text=True), table)


if __name__ == "__main__":
    unittest.main()
