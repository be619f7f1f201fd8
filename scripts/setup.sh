#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that a task needs.
# Usage: scripts/setup.sh [build] [test] [full] [model] [wheel] [bench] [docs] [lint]
#
# Looks for each tool and header, so that it can run before every task and does nothing if all are
# present. On Debian and its derivatives it installs missing packages, as root or through sudo. On
# other systems it names them and fails. A `?` marks an optional package.
set -euo pipefail

# Each row is group:package:probe. A probe is a program, a <header>, or a function of this script.
needs='
build:g++:c++
build:cmake:recent_cmake
build:ninja-build:ninja
build:pkg-config:pkg-config
build:ccache?:ccache
build:libfmt-dev:<fmt/core.h>
build:libdnnl-dev?:<dnnl.hpp>
build:ocl-icd-opencl-dev?:<CL/cl.h>
build:libopenblas0-pthread?:openblas
build:libyaml-cpp-dev:<yaml-cpp/yaml.h>
build:libssl-dev:<openssl/sha.h>
build:libhwy-dev?:<hwy/highway.h>
build:prometheus-cpp-dev?:<prometheus/exposer.h>
build:libcli11-dev:<CLI/CLI.hpp>
build:nlohmann-json3-dev:<nlohmann/json.hpp>
build:libncurses-dev?:<curses.h>
build:libedit-dev?:<histedit.h>
test:libgtest-dev:<gtest/gtest.h>
test:libgmock-dev:<gmock/gmock.h>
test:librapidcheck-dev:<rapidcheck.h>
test:python3:python3
test:python3-numpy:numpy
test:python3-dev?:headers_of_python
test:python3-torch?:torch_of_debian
test:tmux?:tmux
test:clang:clang++
test:libclang-rt-dev:fuzzer_runtime
test:lld?:ld.lld
test:clang-format:clang-format
test:prometheus?:promtool
test:doxygen?:doxygen
test:python3-venv?:venv_of_python
full:chromium?:chromium
model:python3:python3
model:python3-pip?:pip_of_python
wheel:python3-dev:headers_of_python
wheel:python3-venv:venv_of_python
bench:libbenchmark-dev:<benchmark/benchmark.h>
bench:libtorch-dev?:<torch/library.h>
bench:valgrind:valgrind
bench:python3:python3
bench:python3-venv?:venv_of_python
docs:doxygen:doxygen
docs:python3:python3
docs:python3-venv?:venv_of_python
lint:python3:python3
lint:clang-format:clang-format
'

recent_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p') || return 1
  [ -n "$version" ] && printf '3.25\n%s\n' "$version" | sort -C -V
}

fuzzer_runtime() {
  local folder
  folder=$(clang++ -print-resource-dir 2>/dev/null) || return 1
  [ -n "$(find "$folder/" -name 'libclang_rt.fuzzer*.a' -print -quit 2>/dev/null)" ]
}

# Debian's Python need not be the first in PATH.
numpy() { python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null; }

headers_of_python() {
  /usr/bin/python3 -c 'import os, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null
}
torch_of_debian() { /usr/bin/python3 -c 'import torch' 2>/dev/null; }

# Looks for pip where scripts/fetch_model.sh looks.
pip_of_python() {
  python3 -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m pip --version >/dev/null 2>&1 || command -v pip3 >/dev/null
}
venv_of_python() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

openblas() {
  PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep 'libopenblas\.so\.0' >/dev/null
}

present() {
  case $1 in
    \<*) printf '#include %s\n' "$1" | c++ -std=c++20 -x c++ -M - >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 || return 1
       if [ "$(type -t "$1")" = function ]; then "$1"; fi ;;
  esac
}

# Fills `missing` and `optional` with the packages of the groups that are not installed.
look() {
  missing=() optional=()
  local group package probe
  while IFS=: read -r group package probe; do
    [[ " $groups " == *" $group "* ]] || continue
    present "$probe" && continue
    case $package in
      *\?) optional+=("${package%\?}") ;;
      *) [[ " ${missing[*]-} " == *" $package "* ]] || missing+=("$package") ;;
    esac
  done < <(printf '%s' "$needs" | grep .)
}

apt() {
  local root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || return 1
    root=(sudo)
  fi
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

groups=${*:-build test}
for group in $groups; do
  case $group in
    build | test | full | model | wheel | bench | docs | lint) ;;
    *) echo "setup: no group '$group'; there are build, test, full, model, wheel, bench, docs and lint" >&2; exit 2 ;;
  esac
done

look
if [ ${#missing[@]} = 0 ] && [ ${#optional[@]} = 0 ]; then exit 0; fi

# Do not ask for a password to install optional packages.
if [ ${#missing[@]} = 0 ] && [ "$(id -u)" != 0 ]; then exit 0; fi

if command -v apt-get >/dev/null 2>&1; then
  echo "setup: installing ${missing[*]-} ${optional[*]-}"
  apt update -qq || echo "setup: the package lists could not be renewed; trying with those at hand" >&2
  if [ ${#missing[@]} != 0 ]; then
    apt install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || true
  fi
  for package in ${optional[@]+"${optional[@]}"}; do
    apt install -y -qq --no-install-recommends "$package" >/dev/null || true
  done
  look
fi

for package in ${optional[@]+"${optional[@]}"}; do
  echo "setup: going on without $package"
done
if [ ${#missing[@]} != 0 ]; then
  echo "setup: missing, by the names of their Debian packages; please install:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi
