# SPDX-License-Identifier: Apache-2.0
"""Tests that the build knows every op of every built-in backend. OPS of yard_backend() makes labels
and tests.

Usage: complete_test.py YARD BACKEND/OP ...
"""
import json
import os
import subprocess
import sys


def main():
    plain = {k: v for k, v in os.environ.items() if not k.startswith("YARD_")}
    out = subprocess.run([sys.argv[1], "list", "--json"], check=True, capture_output=True, text=True, env=plain)
    there = {f"{k['backend']}/{op['name']}" for op in json.loads(out.stdout)["ops"] for k in op["kernels"]}
    stated = set(sys.argv[2:])
    for pair in sorted(there - stated):
        print(f"{pair}: OPS of its yard_backend() does not list it")
    for pair in sorted(stated - there):
        print(f"{pair}: OPS of its yard_backend() lists it, and there is no such kernel")
    sys.exit(0 if there == stated and stated else 1)


if __name__ == "__main__":
    main()
