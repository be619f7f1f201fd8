# SPDX-License-Identifier: Apache-2.0
"""Writes small Llama models with random weights and a byte-level BPE vocabulary.

Usage: random_model.py FILE.gguf [--weights TYPE] [--untied TYPE] [--shape LAYERS,WIDTH,HIDDEN,HEADS,KV_HEADS] [--seed N]

Logits are spread enough for their order not to depend on rounding, and the model never ends a text: the embeddings of its
special tokens are zero.
"""
import argparse

import numpy as np

import gguf

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "Ġ t", "Ġt he", "i n", "e r", "r e", "o n", "a n", "Ġ a", "a t", "e n", "o r", "o u", "Ġ w", "i s",
          "i t", "Ġ s", "e s", "Ġ c", "l l", "in g", "o f", "Ġ of", "w or", "wor l", "worl d", "he ll", "hell o",
          "Ċ Ċ", "Ġ Ġ", "ĠĠ ĠĠ", "Ã ©", "ä ¸", "ð Ł"]
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
            "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_tokens():
    """Returns the character that stands for each byte: itself if it is printable, else one from U+0100
    on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (b for b in range(256) if b not in printable)
    table = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [table[b] for b in range(256)]


def vocabulary():
    tokens = SPECIAL + byte_tokens() + [m.replace(" ", "") for m in MERGES]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)),
            "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE}


def f16_bytes(values):
    return np.asarray(values, np.float16).view(np.uint8).reshape(len(values), -1)


def random_blocks(kind, rows, width, deviation, random):
    """Returns the bytes of a matrix whose elements have about this standard deviation."""
    if kind in ("f32", "f16", "bf16"):
        values = (random.standard_normal((rows, width)) * deviation).astype(np.float32)
        if kind == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return values.astype({"f32": np.float32, "f16": np.float16}[kind]).tobytes()
    _, elements, size = gguf.TYPES[kind]
    blocks = random.integers(0, 256, (rows * width // elements, size), np.uint8)
    spread = random.uniform(0.5, 1.4, len(blocks)) * deviation  # one spread for each block
    if kind in ("q4_0", "q4_1"):
        blocks[:, :2] = f16_bytes(spread / 4.6)
        if kind == "q4_1":
            blocks[:, 2:4] = f16_bytes(-7.5 * spread / 4.6)
    elif kind == "q8_0":
        blocks[:, :2] = f16_bytes(spread / 74)
    elif kind == "q4_k":  # chooses scales and minima that nearly centre each part
        scales = random.integers(20, 44, (len(blocks), 8))
        least = scales + random.integers(-1, 2, scales.shape)
        blocks[:, 4:8] = scales[:, :4] | scales[:, 4:] >> 4 << 6
        blocks[:, 8:12] = least[:, :4] | least[:, 4:] >> 4 << 6
        blocks[:, 12:16] = scales[:, 4:] & 15 | (least[:, 4:] & 15) << 4
        blocks[:, :2], blocks[:, 2:4] = f16_bytes(spread / 4.6 / 32), f16_bytes(7.5 * spread / 4.6 / 32)
    else:  # q6_k
        blocks[:, 192:208] = random.integers(20, 44, (len(blocks), 16))
        blocks[:, 208:] = f16_bytes(spread / 18.5 / 32)
    return blocks.tobytes()


def write_model(path, weights="q4_1", embedding="q8_0", untied=None, shape=(2, 64, 128, 4, 2), seed=1):
    layers, width, hidden, heads, kv_heads = shape
    random = np.random.default_rng(seed)
    metadata = {"general.architecture": "llama", "llama.block_count": layers, "llama.context_length": 2048,
                "llama.embedding_length": width, "llama.feed_forward_length": hidden,
                "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads,
                "llama.rope.freq_base": 10000.0, "llama.rope.dimension_count": width // heads,
                "llama.attention.layer_norm_rms_epsilon": 1e-5, **vocabulary()}
    words = len(metadata["tokenizer.ggml.tokens"])
    metadata["llama.vocab_size"] = words
    tensors = {}

    def matrix(name, kind, rows, columns, deviation):
        tensors[name + ".weight"] = (kind, [rows, columns], random_blocks(kind, rows, columns, deviation, random))

    def norm(name):  # weights of both signs, so that a token does not predict itself
        tensors[name + ".weight"] = ("f32", [width], random.standard_normal(width).astype(np.float32).tobytes())

    def table(name, kind):
        matrix(name, kind, words, width, 4 / np.sqrt(width))
        kind, rows, data = tensors[name + ".weight"]
        silent = len(SPECIAL) * len(data) // words
        tensors[name + ".weight"] = (kind, rows, bytes(silent) + data[silent:])

    table("token_embd", embedding)
    for layer in range(layers):
        b = f"blk.{layer}."
        norm(b + "attn_norm")
        matrix(b + "attn_q", weights, width, width, 1 / np.sqrt(width))
        matrix(b + "attn_k", weights, width // heads * kv_heads, width, 1 / np.sqrt(width))
        matrix(b + "attn_v", weights, width // heads * kv_heads, width, 0.7 / np.sqrt(width))
        matrix(b + "attn_output", weights, width, width, 0.7 / np.sqrt(width))
        norm(b + "ffn_norm")
        for name in ("ffn_gate", "ffn_up") if layer % 2 == 0 else ("ffn_up", "ffn_gate"):
            matrix(b + name, weights, hidden, width, 1 / np.sqrt(width))
        matrix(b + "ffn_down", weights, width, hidden, 0.7 / np.sqrt(hidden))
    norm("output_norm")
    if untied:
        table("output", untied)
    gguf.write(path, metadata, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", metavar="FILE.gguf")
    parser.add_argument("--weights", default="q4_1", choices=gguf.TYPES)
    parser.add_argument("--embedding", default="q8_0", choices=gguf.TYPES)
    parser.add_argument("--untied", choices=gguf.TYPES, help="an output matrix of its own")
    parser.add_argument("--shape", default="2,64,128,4,2", metavar="LAYERS,WIDTH,HIDDEN,HEADS,KV_HEADS")
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    write_model(a.path, a.weights, a.embedding, a.untied, tuple(int(n) for n in a.shape.split(",")), a.seed)


if __name__ == "__main__":
    main()
