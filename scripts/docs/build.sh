#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the documentation site into build/docs, with MkDocs for the pages and Doxygen for the C++
# reference. Fails on a broken link. Installs MkDocs Material from the Python package index into
# build/docs-tools. Exits with 77 if a tool is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=build/docs-tools
if [ ! -x "$tools/bin/mkdocs" ]; then
  if ! python3 -m venv "$tools" ||
     ! "$tools/bin/pip" install --quiet --disable-pip-version-check -r scripts/docs/requirements.txt; then
    rm -rf "$tools"
    echo 'docs: MkDocs Material could not be installed from the Python package index' >&2
    exit 77
  fi
fi
if ! command -v doxygen >/dev/null 2>&1; then
  echo 'docs: doxygen is missing, which makes the reference of the C++ headers' >&2
  exit 77
fi
NO_MKDOCS_2_WARNING=true "$tools/bin/mkdocs" build --quiet --strict
{ cat scripts/docs/Doxyfile; echo 'OUTPUT_DIRECTORY = build/docs'; } | doxygen -
if grep -rnE --include='*.html' '<(script|img|link)[^>]* (src|href)="https?://' build/docs; then
  echo 'docs: these pages need the network' >&2
  exit 1
fi
echo "docs: build/docs/index.html"
