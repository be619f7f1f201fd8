#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests a wheel in an empty virtual environment where the libraries that it brings along cannot be
# found elsewhere. Usage: scripts/test_wheel.sh PYTHON PLAIN_WHEEL WHEEL
#
# PLAIN_WHEEL is the wheel without libraries. The libraries that it needs, apart from those that
# every Linux has, are hidden in a mount namespace, and importing this wheel has to fail there.
set -euo pipefail

if [ "${1-}" != --hidden ]; then
  cd "$(dirname "$0")/.."
  python=$1 plain=$(realpath "$2") wheel=$(realpath "$3")
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy pytest
  "$python" -m zipfile --extract "$plain" "$work/plain"
  mapfile -t hidden < <(ldd "$work"/plain/yard/*.so* "$work/plain/yard/bin/yard" |
    sed -n 's/.* => \(\/[^ ]*\) (.*/\1/p' | sort -u |
    grep -Ev "^$work/|/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so\.")
  [ ${#hidden[@]} != 0 ] || { echo "test_wheel: $plain needs no library of the system" >&2; exit 1; }
  # The library opens OpenBLAS itself, and goes without it.
  mapfile -t -O ${#hidden[@]} hidden < <(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libopenblas\.so\.0.* => //p')
  namespace=(unshare --mount)
  if [ "$(id -u)" != 0 ]; then namespace+=(--map-root-user); fi
  "${namespace[@]}" "$0" --hidden "$PWD" "$work" "$wheel" "${hidden[@]}"
  exit
fi

tree=$2 work=$3 wheel=$4
shift 4
for library in "$@"; do
  echo "test_wheel: without $library"
  mount --bind /dev/null "$(realpath "$library")"
done
cd "$work"
unset PYTHONPATH LD_LIBRARY_PATH
python=$work/venv/bin/python
if PYTHONPATH=$work/plain "$python" -c 'import yard' 2>/dev/null; then
  echo 'test_wheel: the wheel without libraries can be imported; nothing was hidden' >&2
  exit 1
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"

# Every library comes from the wheel, or is one of those that every Linux has.
"$python" - "$work/venv" <<'PYTHON'
import re
import sys


def mapped():
    return {line.split()[-1] for line in open("/proc/self/maps") if re.search(r"\.so[.\d]*$", line)}


before = mapped()
import yard
everywhere = re.compile(r"/lib-dynload/|/lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.")
others = [p for p in mapped() - before if not p.startswith(sys.argv[1]) and not everywhere.search(p)]
assert not others, f"from the system: {others}"
PYTHON
"$python" -m yard --version
"$python" -m yard verify --cases 20 >"$work/verify" || { cat "$work/verify"; exit 1; }
"$python" -m yard doctor
"$python" -m pytest -q -p no:cacheprovider "$tree/python/tests"
