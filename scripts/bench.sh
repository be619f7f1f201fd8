#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks: every way to call compared with PyTorch's dispatcher, kernels compared with
# PyTorch and a plain copy, a language model compared with llama.cpp, publishing, and instruction
# counts.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${YARD_BENCH_BUILD:-build/bench}

echo "== Ways to call an op (yard bench dispatch)"
"$build/bin/yard" bench dispatch --seconds 4
echo
echo "== Beside PyTorch's dispatcher, in one process"
"$build/bin/dispatch_bench" 6
echo
echo "== Kernels beside compositions of PyTorch's calls and a plain copy, in one process"
"$build/bin/kernels_bench" 1
echo
scripts/bench_llm.sh "$build"
echo
echo "== Publishing a change, beside its budget"
"$build/bin/publish_bench"
echo
echo "== Instructions of a call"
cmake --preset count --log-level=WARNING >/dev/null
cmake --build --preset count >/dev/null
status=0
python3 -B bench/instructions.py build/count/bin/instruction_target || status=$?
[ "$status" -eq 77 ] || exit "$status"
