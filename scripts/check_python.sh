#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs python/tests with the current torch, numpy and transformers of the Python package index, in
# build/check-python. PYTHON is the interpreter to use. torch alone takes several GB on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."

env=build/check-python
[ -x "$env/bin/python" ] || "${PYTHON:-/usr/bin/python3}" -m venv "$env"
pip=("$env/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" --upgrade torch numpy transformers accelerate gguf tokenizers pytest
"${pip[@]}" --force-reinstall --no-deps .
export CHAT=$PWD/build/bin/yard-chat
if [ ! -x "$CHAT" ]; then unset CHAT; fi
unset PYTHONPATH
cd build
exec check-python/bin/python -B -m pytest -rs -p no:cacheprovider --durations=3 ../python/tests
