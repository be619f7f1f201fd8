# SPDX-License-Identifier: Apache-2.0
"""The examples that run a language model. They need its file and packages that may be missing."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model():
    fetched = subprocess.run([ROOT / "scripts" / "fetch_model.sh"], capture_output=True, text=True)
    if fetched.returncode != 0:
        pytest.skip(f"no model: {fetched.stderr.strip()}")


# Threads of OpenMP, which torch uses, wait for each other without sleeping. If other programs use the cores, each wait
# takes milliseconds, and a token hundreds of waits.
BUSY = {"OMP_WAIT_POLICY": "passive"}


def run(name, *arguments, **environment):
    done = subprocess.run([sys.executable, "-B", ROOT / "examples" / "python" / name, *arguments], capture_output=True,
                          text=True, timeout=900, env={**os.environ, **BUSY, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def chat(model):
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")


def test_chat_gives_known_answers_in_a_conversation(chat):
    # The best two first tokens are 0.08 apart, less than the error of activations in int8.
    printed = run("chat.py", "What is the capital of France?", "And of Italy?", YARD_DENY_KERNELS="default.simd_int8")
    assert printed.startswith("The capital of France is Paris.\n[37 tokens in ")
    assert re.search(r"^The capital of Italy is Rome\.$", printed, re.M)
    assert re.search(r"^linear +\S+ +\d+ calls$", printed, re.M)


@pytest.mark.skipif("CHAT" not in os.environ, reason="CHAT does not name the program yard-chat")
def test_chat_gives_the_tokens_of_the_program_in_cpp(chat):
    prompt = "What is the capital of Germany?"
    ran = subprocess.run([os.environ["CHAT"], "--temperature", "0", "--json", prompt], capture_output=True, text=True,
                         check=True)
    expected = json.loads(ran.stdout)
    printed = run("chat.py", prompt)
    assert printed.startswith(expected["text"] + "\n")
    counts = re.search(r"^\[(\d+) tokens in .* then (\d+) ", printed, re.M)
    assert counts.groups() == (str(len(expected["prompt_tokens"])), str(len(expected["tokens"])))


def test_transformers_gives_the_same_tokens_with_the_ops(model):
    for package in ("torch", "transformers", "accelerate", "gguf"):
        pytest.importorskip(package)
    printed = run("transformers_smollm2.py")
    assert "The capital of France is Paris." in printed
    assert "\nthe tokens are the same\n" in printed
    for op in ("rms_norm", "rotary_embedding", "attention.causal", "silu_and_mul"):
        assert re.search(rf"^{re.escape(op)} +\S+ +[1-9]\d*$", printed, re.M), printed
