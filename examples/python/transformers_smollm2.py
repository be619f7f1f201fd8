#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the model of `make demo` with Hugging Face transformers, first as it is, then with norms, rotary embedding,
attention and activations replaced by Switchyard's ops. The tokens must be equal.

    python examples/python/transformers_smollm2.py

Needs the packages torch, transformers, accelerate and gguf.
"""
import pathlib
import subprocess
import sys
import time

sys.path.pop(0)  # or transformers takes kernels.py, beside this file, for the package `kernels`
import torch
import transformers
import yard
from transformers.models.llama import modeling_llama as llama
from yard import ops

PROMPTS = ("What is the capital of France?", "Name three primary colors.")
COUNT = 32  # tokens of an answer


# [replace]
def norm(self, x):
    return ops.rms_norm(x, self.weight, self.variance_epsilon)


def rotate(query, key, cos, sin, **_):
    half = cos.shape[-1] // 2  # the tables of transformers hold each angle twice
    cos, sin = (table.flatten(0, -2)[:, :half] for table in (cos, sin))
    ops.rotary_embedding(query.transpose(1, 2), key.transpose(1, 2), cos=cos, sin=sin)
    return query, key


def attention(module, query, key, value, mask, scaling, **_):
    """Attends to all earlier tokens. Batches with padding would need the mask."""
    out = ops.attention.causal(*(t.transpose(1, 2) for t in (query, key, value)), scale=scaling)
    return out, None


def feed_forward(self, x):
    return self.down_proj(ops.silu_and_mul(torch.nn.functional.linear(x, self.gate_up)))


def use_switchyard(model):
    llama.LlamaRMSNorm.forward = norm
    llama.apply_rotary_pos_emb = rotate
    llama.LlamaMLP.forward = feed_forward
    for layer in model.model.layers:  # one product computes both halves
        gate, up = layer.mlp.gate_proj, layer.mlp.up_proj
        layer.mlp.gate_up = torch.cat((gate.weight, up.weight))
        gate.weight.data, up.weight.data = layer.mlp.gate_up.chunk(2)
    transformers.AttentionInterface.register("switchyard", attention)
    model.set_attn_implementation("switchyard")
# [/replace]


def generate(model, tokenizer, prompt, **how):
    """Returns the ids of the answer."""
    inputs = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                           return_tensors="pt", return_dict=True)
    out = model.generate(**inputs, do_sample=False, **how)
    return out[0, inputs["input_ids"].shape[1]:].tolist()


def speed(model, tokenizer):
    """Returns tokens per second, prompt included: the best of three runs."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        generate(model, tokenizer, PROMPTS[0], min_new_tokens=COUNT, max_new_tokens=COUNT)
        times.append(time.perf_counter() - begin)
    return COUNT / min(times)


def main():
    fetch = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "fetch_model.sh"
    path = subprocess.run([fetch], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    folder, name = path.rsplit("/", 1)
    transformers.utils.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    model.requires_grad_(False)

    def answers():
        return [generate(model, tokenizer, prompt, max_new_tokens=COUNT) for prompt in PROMPTS]

    before, speed_before = answers(), speed(model, tokenizer)
    use_switchyard(model)
    after, speed_after = answers(), speed(model, tokenizer)
    for prompt, ids in zip(PROMPTS, after):
        print(f"> {prompt}\n{tokenizer.decode(ids, skip_special_tokens=True)}\n")
    print(f"{'op':20}{'kernel':24}calls")
    for k in yard.kernels():
        if k["calls"]:
            print(f"{k['op']:20}{k['id']:24}{k['calls']}")
    print(f"tokens per second: {speed_before:.1f} before, {speed_after:.1f} with Switchyard")
    if after != before:
        sys.exit("transformers_smollm2.py: the tokens differ")
    print("the tokens are the same")


if __name__ == "__main__":
    main()
