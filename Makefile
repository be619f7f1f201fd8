# SPDX-License-Identifier: Apache-2.0
# The tasks of this project. Each target installs what it needs (scripts/setup.sh) and can be called
# first on a fresh machine.

FUZZ_SECONDS ?= 10
FULL_FUZZ_SECONDS ?= 120
SOAK_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup build demo tour test check check-full check-python wheel bench lint format fuzz docs clean

help: ## say what there is
	@echo 'Switchyard picks, runs and explains the best kernel for every operator call.'
	@echo
	@echo '  make build    the library and the command: build/bin/yard'
	@echo '  make demo     a language model answers, while plugins fail and rules change'
	@echo '  make tour     calls under several policies, each choice explained'
	@echo '  make test     the tests of the release build and the lint'
	@echo '  make check    the same tests under sanitizers, the fuzzers, the library built inside another project'
	@echo '  make check-full  the long tests with ten times as many rounds, the fuzzers for two minutes each, the soaks of'
	@echo '                tests/soak.txt for a minute each under the sanitizers (SOAK_SECONDS=60)'
	@echo '  make wheel    a Python wheel with all libraries inside, in dist/, tested where these are missing'
	@echo '  make check-python  the tests of the Python package with the current torch, numpy and transformers, and a model'
	@echo '  make bench    the figures, beside those of PyTorch'"'"'s dispatcher and of llama.cpp'
	@echo '  make docs     the documentation site: build/docs/index.html'
	@echo '  make lint     the house rules alone'
	@echo '  make format   formats every C and C++ file'
	@echo '  make fuzz     the fuzzers alone (FUZZ_SECONDS=10 each)'
	@echo '  make setup    installs what these need; they also do so themselves'
	@echo '  make clean    removes build/'
	@echo
	@echo 'For daily work: cmake --preset dev && cmake --build --preset dev && ctest --preset dev'
	@echo 'One stage of the tests: scripts/test.py release | package | asan | fuzz | tsan | soak'

setup:
	@scripts/setup.sh build test lint

build:
	@scripts/setup.sh build
	@cmake --preset release --log-level=WARNING -DYARD_BUILD_TESTS=OFF -DYARD_BUILD_DOCS_EXAMPLES=OFF
	@cmake --build --preset release

demo:
	@scripts/setup.sh build model
	@cmake --preset release --log-level=WARNING -DYARD_BUILD_TESTS=OFF -DYARD_BUILD_DOCS_EXAMPLES=OFF
	@cmake --build --preset release --target yard_chat yard_llm_demo
	@scripts/demo.sh

tour:
	@scripts/setup.sh build
	@cmake --preset release --log-level=WARNING -DYARD_BUILD_TESTS=OFF -DYARD_BUILD_DOCS_EXAMPLES=ON
	@cmake --build --preset release --target yard_tool example_tour
	@scripts/tour.sh

test:
	@scripts/setup.sh build test model
	@scripts/test.py release

check:
	@scripts/setup.sh build test
	@scripts/test.py --fuzz-seconds $(FUZZ_SECONDS) package asan fuzz tsan

check-full:
	@scripts/setup.sh build test full
	@scripts/test.py --full --fuzz-seconds $(FULL_FUZZ_SECONDS) --soak-seconds $(SOAK_SECONDS) \
	  release asan fuzz tsan soak

wheel:
	@scripts/setup.sh build wheel
	@scripts/wheel.sh

check-python:
	@scripts/setup.sh build wheel model
	@scripts/check_python.sh

bench:
	@scripts/setup.sh build model bench
	@cmake --preset bench --log-level=WARNING
	@cmake --build --preset bench
	@scripts/bench.sh

lint:
	@scripts/setup.sh lint
	@python3 -B tests/lint/lint_test.py --quiet
	@python3 -B tests/lint/lint.py

format:
	@scripts/setup.sh lint
	@find include src backends tools tests examples bench -name '*.h' -o -name '*.hpp' -o -name '*.cc' \
	  -o -name '*.c' 2>/dev/null | xargs clang-format -i

fuzz:
	@scripts/setup.sh build test
	@scripts/test.py --fuzz-seconds $(FUZZ_SECONDS) fuzz

docs:
	@scripts/setup.sh docs
	@scripts/docs/build.sh

clean:
	@rm -rf build
