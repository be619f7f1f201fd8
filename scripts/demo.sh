#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a language model on Switchyard's ops. The model answers, shows which kernels served it, and
# continues while a plugin fails, rules reload, and the plugin is upgraded and unloaded.
# Usage: scripts/demo.sh [build folder]
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
chat=$build/bin/yard-chat
demo=$build/bin/yard_llm_demo
plugins=$build/examples/llm_demo
for program in "$chat" "$demo"; do
  if [ ! -x "$program" ]; then
    echo "demo: $program is not there; make demo makes it" >&2
    exit 1
  fi
done

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
heading() { printf '\n%s== %s ==%s\n\n' "$bold" "$1" "$plain"; }

if ! model=$("$root/scripts/fetch_model.sh"); then
  echo 'demo: the model could not be fetched (no network?): going on with random weights of the same shape: the text will mean nothing'
  model=$root/build/model/random.gguf
  [ -f "$model" ] || "$build/bin/yard_random_model" "$model"
fi

heading 'A question, answered by dispatched kernels; then which kernels those were'
"$chat" --model "$model" --temperature 0 --tokens 96 --profile 'What is the capital of France?' 2>&1

heading 'The same tokens while a plugin fails, rules reload, and the plugin is upgraded and unloaded'
YARD_LOG_LEVEL=error "$demo" "$model" "$plugins/acme_broken.so" "$plugins/acme_repaired.so"
