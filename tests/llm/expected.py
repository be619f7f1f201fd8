# SPDX-License-Identifier: Apache-2.0
"""Prints prompts and their greedy tokens in float64. Usage: expected.py FILE.gguf TOKENS PROMPTS
MARGIN LIST

Each line has the tokens of a prompt, a bar, and the tokens that follow. Prompts are chosen so that
the best logit is always more than MARGIN above the second, so that every kernel must choose the
same tokens, and so that the tokens do not end in a short loop.
"""
import sys

import numpy as np

import forward


def greedy(model, prompt, count, margin):
    """Returns the greedy tokens, or None if two logits are too close."""
    tokens = list(prompt)
    for _ in range(count):
        logits = model.logits(tokens, 1)[0]
        second, best = np.argsort(logits)[-2:]
        if logits[best] - logits[second] <= margin:
            return None
        tokens.append(int(best))
    return tokens[len(prompt):]


def main():
    path, count, prompts, margin = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    model = forward.Model(path)
    random = np.random.default_rng(1)
    words = len(model.metadata["tokenizer.ggml.tokens"])
    lines = []
    for _ in range(1000):
        prompt = [int(t) for t in random.integers(3, words, random.integers(1, 20))]
        tokens = greedy(model, prompt, count, margin)
        if tokens and len(set(tokens)) > count // 3:
            lines.append(" ".join(str(t) for t in [*prompt, "|", *tokens]))
            if len(lines) == prompts:
                break
    else:
        sys.exit(f"expected.py: only {len(lines)} of 1000 prompts have margins of {margin}")
    with open(sys.argv[5], "w") as out:
        print(*lines, sep="\n", file=out)


main()
