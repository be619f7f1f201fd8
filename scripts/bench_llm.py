#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model beside llama.cpp on the same file, in one run: yard-chat and llama-cpp-python in turn, round after round.

Usage: bench_llm.py [--json] [--rounds N] [--threads N,...] [--llama PYTHON] YARD_CHAT FILE.gguf

Both get the same tokens and the same number of threads, greedy. Decode is 128 tokens, one at a time, after a short prompt; the
prompt is one of 512 tokens. A figure is the median over the rounds. Without --llama only yard-chat is measured. The shares of
ops in the time of decoding come from one more run of yard-chat for each number of threads.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

SHORT = "Once upon a time, in a small village by the sea,"
SENTENCE = " The ships came home with the evening tide, and the old keeper lit the lamp above the harbour once more."
DECODED, PROMPT, CONTEXT = 128, 512, 2048
MIB = 1 << 20


def chat(program, model, text, threads, tokens, *more):
    """The object that yard-chat prints, with what it writes to stderr and the peak of its memory."""
    command = [program, "--model", model, "--raw", "--temperature", "0", "--threads", str(threads), "--tokens",
               str(tokens), "--json", *more, text]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        notes = errors.read()
    if child.returncode != 0:
        sys.exit(f"bench_llm: yard-chat ended with {child.returncode}:\n{notes}")
    return {**json.loads(out), "notes": notes, "peak_bytes": usage.ru_maxrss * 1024}


def steps(ran):
    """Passes of decoding: the first token comes from the prompt, and the end of an answer is no token of it."""
    return len(ran["tokens"]) - (ran["stopped"] != "end")


def text_of(program, model, tokens):
    """A text of at most so many tokens, and nearly as many."""
    count = len(chat(program, model, SENTENCE * 8, 1, 1)["prompt_tokens"])
    return SENTENCE * (tokens * 8 // count)


def llama(python, model, threads, prompt, tokens):
    """Milliseconds of a prompt and of the tokens after it, in a process of its own."""
    question = json.dumps({"model": model, "threads": threads, "prompt": prompt, "tokens": tokens})
    run = subprocess.run([python, __file__, "--inside", question], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"bench_llm: llama.cpp failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def llama_inside(question):
    from llama_cpp import Llama
    q = json.loads(question)
    model = Llama(q["model"], n_ctx=1024, n_batch=PROMPT, n_threads=q["threads"], n_threads_batch=q["threads"],
                  verbose=False)
    model.eval(q["prompt"][:1])  # every page of the file is there
    model.reset()
    start = time.perf_counter()
    model.eval(q["prompt"])
    between = time.perf_counter()
    for token in q["tokens"]:
        model.eval([token])
    print(json.dumps({"prompt_ms": 1e3 * (between - start), "decode_ms": 1e3 * (time.perf_counter() - between)}))


def rate(count, ms):
    """Tokens a second."""
    return 1e3 * count / ms if ms > 0 else 0.0


def measure(a, threads):
    """Medians over the rounds, in tokens a second."""
    names = ["decode", "prompt"]
    ours, theirs = ({name: [] for name in names} for _ in range(2))
    long_text = text_of(a.program, a.model, PROMPT)
    for round_number in range(a.rounds):
        print(f"bench_llm: {threads} thread(s), round {round_number + 1} of {a.rounds}", file=sys.stderr, flush=True)
        for name, text, tokens in (("decode", SHORT, DECODED), ("prompt", long_text, 2)):
            ran = chat(a.program, a.model, text, threads, tokens)
            count = {"decode": steps(ran), "prompt": len(ran["prompt_tokens"])}[name]
            ours[name].append(rate(count, ran[name + "_ms"]))
            if a.llama:
                peer = llama(a.llama, a.model, threads, ran["prompt_tokens"], ran["tokens"][:steps(ran)])
                theirs[name].append(rate(count, peer[name + "_ms"]))
    row = {"threads": threads, "prompt_length": len(ran["prompt_tokens"])}
    row["shares"] = shares(chat(a.program, a.model, SHORT, threads, DECODED, "--profile"))
    for name in names:
        row[name] = {"yard": statistics.median(ours[name])}
        if a.llama:
            row[name]["llama_cpp"] = statistics.median(theirs[name])
            row[name]["ratio"] = statistics.median(o / t for o, t in zip(ours[name], theirs[name]))
    return row


def shares(ran):
    """The part of each op in the time of decoding, and of what is outside of kernels, from the table of --profile."""
    table = ran["notes"].partition("\ndecode ")[2].partition("\n\n")[0]
    found = {}
    for name, share in re.findall(r"^(outside of kernels|\S+) .*? ([-0-9.]+)%", table.partition("\n")[2], re.M):
        found[name] = round(found.get(name, 0) + float(share) / 100, 4)
    return found


def report(result):
    print("threads  what    yard-chat  llama.cpp  ratio   (tokens a second)")
    for row in result["rows"]:
        for name in ("decode", "prompt"):
            f = row[name]
            peer = f"{f['llama_cpp']:9.1f}  {f['ratio']:5.2f}" if "ratio" in f else "        -      -"
            print(f"{row['threads']:7}  {name:6}  {f['yard']:9.1f}  {peer}")
    print("Shares of the time of decoding:")
    for row in result["rows"]:
        print(f"{row['threads']:7}  " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in row["shares"].items()))
    print(f"Memory above the file's size at {result['context']} tokens of context: "
          f"{result['bytes_above_file'] / MIB:.0f} MiB.")


def main():
    if sys.argv[1:2] == ["--inside"]:
        return llama_inside(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", metavar="YARD_CHAT")
    parser.add_argument("model", metavar="FILE.gguf")
    parser.add_argument("--llama", metavar="PYTHON", help="a Python with llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", help="numbers of threads: 1, 2 and one for each core")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    threads = [int(t) for t in a.threads.split(",")] if a.threads else sorted({1, min(2, cores), cores})
    result = {"model": os.path.basename(a.model), "rows": [measure(a, t) for t in threads]}
    long = chat(a.program, a.model, text_of(a.program, a.model, CONTEXT - 8), cores, 8)
    result["context"] = len(long["prompt_tokens"]) + len(long["tokens"])
    result["bytes_above_file"] = long["peak_bytes"] - os.path.getsize(a.model)
    print(json.dumps(result, indent=2)) if a.json else report(result)


main()
