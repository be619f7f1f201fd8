#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes build/python-tools, a virtual environment that can build and test the Python package. It
# also sees the system's packages, such as Debian's python3-torch. Exits with 77 if nanobind or
# pytest cannot be installed from the Python package index, or if Python's headers are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=build/python-tools
works() {
  "$tools/bin/python" -c 'import nanobind, numpy, os, pytest, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null
}
models() {  # what examples/python/chat.py needs; without it a test is skipped
  "$tools/bin/python" -c 'import gguf, tokenizers' 2>/dev/null && return
  local pip=("$tools/bin/pip" install --quiet --disable-pip-version-check)
  "${pip[@]}" gguf && "${pip[@]}" --no-deps tokenizers ||
    echo 'python: gguf and tokenizers could not be installed; the test of chat.py will be skipped' >&2
}
if works; then models; exit 0; fi
for python in /usr/bin/python3 python3; do  # Debian's Python sees Debian's packages
  rm -rf "$tools"
  if "$python" -m venv --system-site-packages "$tools" >/dev/null 2>&1 &&
     "$tools/bin/pip" install --quiet --disable-pip-version-check -r scripts/python_requirements.txt &&
     works; then
    models
    exit 0
  fi
done
rm -rf "$tools"
echo 'python: the package is left out, because nanobind, numpy, pytest or the headers of Python are missing' >&2
exit 77
