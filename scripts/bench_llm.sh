#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares a language model with llama.cpp, if the model and llama-cpp-python can be fetched. Builds
# llama-cpp-python once under build/, which takes some minutes.
# Usage: scripts/bench_llm.sh BUILD [options of bench_llm.py]
set -euo pipefail
cd "$(dirname "$0")/.."
chat=$1/bin/yard-chat
yard=$1/bin/yard
shift

echo "== A language model beside llama.cpp"
if ! model=$(scripts/fetch_model.sh); then
  echo "left out: the model could not be fetched"
  exit 0
fi
peer=build/llama/bin/python
if ! "$peer" -c 'import llama_cpp' 2>/dev/null; then
  echo "building llama-cpp-python" >&2
  python3 -m venv build/llama 2>/dev/null \
    && build/llama/bin/pip --disable-pip-version-check install --quiet llama-cpp-python >build/llama/log 2>&1 \
    || { echo "llama-cpp-python could not be installed: only yard-chat is measured"; peer=''; }
fi
python3 -B scripts/bench_llm.py ${peer:+--llama "$peer"} "$@" "$chat" "$model"
echo
echo "== The choice between kernels for the calls of the model"
"$yard" bench kernels --model "$model" | tail -4
