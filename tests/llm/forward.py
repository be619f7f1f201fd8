# SPDX-License-Identifier: Apache-2.0
"""A simple forward pass of a Llama model in float64, to compare with the tokens of yard-chat.

Usage: forward.py FILE.gguf TOKEN... prints the best five next tokens with their logits.
"""
import sys

import numpy as np

import gguf


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, base):
    """Rotates interleaved pairs of the last dimension by the position along the first."""
    tokens, _, dim = x.shape
    angle = np.arange(tokens)[:, None] * float(base) ** (-np.arange(0, dim, 2) / dim)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * c - b * s, b * c + a * s], axis=-1).reshape(x.shape)


def attention(q, k, v):
    """Causal attention, in which consecutive query heads share a key head."""
    tokens, heads, dim = q.shape
    k, v = (np.repeat(t, heads // t.shape[1], axis=1).swapaxes(0, 1) for t in (k, v))
    scores = q.swapaxes(0, 1) @ k.swapaxes(1, 2) / np.sqrt(dim)
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).swapaxes(0, 1).reshape(tokens, heads * dim)


def silu(x):
    return x / (1 + np.exp(-x))


class Model:
    def __init__(self, path):
        self.metadata, self.tensors = gguf.read(path)
        number = {key.removeprefix("llama."): value for key, value in self.metadata.items()}
        self.layers, self.heads = number["block_count"], number["attention.head_count"]
        self.kv_heads = number["attention.head_count_kv"]
        self.base = number.get("rope.freq_base", 10000.0)
        self.eps = number["attention.layer_norm_rms_epsilon"]
        self.embedding = self.weight("token_embd")
        self.output = self.weight("output") if "output.weight" in self.tensors else self.embedding

    def weight(self, name):
        return gguf.decode(*self.tensors[name + ".weight"])

    def logits(self, tokens, last):
        """Returns the logits after each of the last `last` tokens as float64 [last, vocabulary]."""
        x = self.embedding[tokens]
        for layer in range(self.layers):
            def product(y, name):
                return y @ self.weight(f"blk.{layer}.{name}").T

            y = rms_norm(x, self.weight(f"blk.{layer}.attn_norm"), self.eps)
            q = product(y, "attn_q").reshape(len(tokens), self.heads, -1)
            k, v = (product(y, name).reshape(len(tokens), self.kv_heads, -1) for name in ("attn_k", "attn_v"))
            x = x + product(attention(rotate(q, self.base), rotate(k, self.base), v), "attn_output")
            y = rms_norm(x, self.weight(f"blk.{layer}.ffn_norm"), self.eps)
            x = x + product(silu(product(y, "ffn_gate")) * product(y, "ffn_up"), "ffn_down")
        return rms_norm(x[-last:], self.weight("output_norm"), self.eps) @ self.output.T


def main():
    model = Model(sys.argv[1])
    logits = model.logits([int(t) for t in sys.argv[2:]], 1)[0]
    for token in np.argsort(-logits)[:5]:
        print(token, repr(model.metadata["tokenizer.ggml.tokens"][token]), f"{logits[token]:.4f}")


if __name__ == "__main__":
    main()
