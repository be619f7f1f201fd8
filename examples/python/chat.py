# SPDX-License-Identifier: Apache-2.0
"""Answers with the model of `make demo`. Switchyard's ops compute everything.

    python examples/python/chat.py "What is the capital of France?"
    python examples/python/chat.py    # a conversation: a message on each line

Needs the packages gguf and tokenizers. examples/llm runs the same model in C++.
"""
import pathlib
import subprocess
import sys
import time

import gguf
import numpy as np
import tokenizers
import yard
from yard import ops

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONTEXT = 2048  # tokens


class Tokenizer:
    def __init__(self, file):
        words = file.fields["tokenizer.ggml.tokens"].contents()
        merges = [tuple(m.split(" ")) for m in file.fields["tokenizer.ggml.merges"].contents()]
        self.bpe = tokenizers.Tokenizer(tokenizers.models.BPE({w: i for i, w in enumerate(words)}, merges))
        steps = tokenizers.pre_tokenizers
        self.bpe.pre_tokenizer = steps.Sequence([steps.Digits(True), steps.ByteLevel(add_prefix_space=False)])
        self.bpe.decoder = tokenizers.decoders.ByteLevel()
        self.start, self.end = words.index("<|im_start|>"), words.index("<|im_end|>")

    def turn(self, role, text=""):
        before = [] if role == "system" else [self.end, *self.bpe.encode("\n").ids]  # ends the turn before
        return before + [self.start, *self.bpe.encode(f"{role}\n{text}").ids]


class Model:
    """Weights, which stay in the mapped file, and the keys and values of the tokens so far."""

    def __init__(self, file):
        self.weights = {t.name: yard.Tensor(t.data, t.tensor_type.name.lower(), t.shape[::-1]) for t in file.tensors}
        size = {key.removeprefix("llama."): field.contents() for key, field in file.fields.items() if "llama." in key}
        self.heads, self.eps = size["attention.head_count"], size["attention.layer_norm_rms_epsilon"]
        self.width, self.hidden = size["embedding_length"], size["feed_forward_length"]
        half = size["rope.dimension_count"] // 2
        self.cache = np.empty((size["block_count"], 2, 1, CONTEXT, size["attention.head_count_kv"], 2 * half), "f4")
        angles = np.outer(np.arange(CONTEXT), size["rope.freq_base"] ** (-np.arange(half) / half))
        self.cos, self.sin, self.length = np.cos(angles).astype("f4"), np.sin(angles).astype("f4"), 0

    def next(self, ids):
        """Appends tokens, and returns the most probable next one."""
        n, start, end = len(ids), self.length, self.length + len(ids)
        if end > CONTEXT:
            sys.exit(f"chat.py: the conversation has more than {CONTEXT} tokens")
        x = ops.embedding(np.array(ids, "i4"), self.weights["token_embd.weight"], out=np.empty((n, self.width), "f4"))
        h = np.zeros_like(x)  # the output of each layer, which the next one adds to x
        for i, (keys, values) in enumerate(self.cache):
            def w(name):
                return self.weights[f"blk.{i}.{name}.weight"]
            h = ops.add_rms_norm(x, h, w("attn_norm"), self.eps)
            query = ops.linear(h, w("attn_q")).reshape(n, self.heads, -1)
            ops.linear(h, w("attn_k"), out=keys[0, start:end].reshape(n, -1))
            ops.linear(h, w("attn_v"), out=values[0, start:end].reshape(n, -1))
            cos, sin = self.cos[start:end], self.sin[start:end]
            ops.rotary_embedding(query, keys[0, start:end], cos=cos, sin=sin, style="interleaved")
            if n == 1:
                h = ops.attention.decode(query, keys, values, np.array([end], "i4"))
            else:
                h = ops.attention.causal(query[None], keys[:, :end], values[:, :end])
            h = ops.linear(h.reshape(n, -1), w("attn_output"))
            h = ops.add_rms_norm(x, h, w("ffn_norm"), self.eps)
            both = np.empty((n, 2 * self.hidden), "f4")
            ops.linear(h, w("ffn_gate"), out=both[:, :self.hidden])
            ops.linear(h, w("ffn_up"), out=both[:, self.hidden:])
            h = ops.linear(ops.silu_and_mul(both), w("ffn_down"))
        h = ops.add_rms_norm(x[-1:], h[-1:], self.weights["output_norm.weight"], self.eps)
        self.length = end
        logits = ops.linear(h, self.weights["token_embd.weight"])  # the embedding is also the last weight
        return int(ops.argmax(logits, out=np.empty(1, "i4"))[0])


fetch = pathlib.Path(__file__).resolve().parents[2] / "scripts/fetch_model.sh"
file = gguf.GGUFReader(subprocess.run([fetch], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
tokenizer, model = Tokenizer(file), Model(file)
ids = tokenizer.turn("system", SYSTEM)
for line in sys.argv[1:] or sys.stdin:
    ids += tokenizer.turn("user", line.strip()) + tokenizer.turn("assistant")
    text, times, token = tokenizers.decoders.DecodeStream(), [time.perf_counter()], model.next(ids)
    while token != tokenizer.end and len(times) <= 256:
        print(text.step(tokenizer.bpe, token) or "", end="", flush=True)
        times.append(time.perf_counter())
        token = model.next([token])
    count, seconds = len(times) - 1, time.perf_counter() - times[1]
    print(f"\n[{len(ids)} tokens in {times[1] - times[0]:.3f} s, then {count} at {count / seconds:.1f} a second]")
    ids = []
for k in yard.kernels():
    if k["calls"]:
        print(f"{k['op']:20}{k['id']:24}{k['calls']} calls")
