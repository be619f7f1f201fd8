#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a call on every path and shouts when they have grown.

  instructions.py TARGET            compare with bench/instructions.json, fail on more than 3 % growth
  instructions.py TARGET --record   write the counts of this architecture into that file

The count is the difference between two runs of different length under callgrind, so start-up does not
matter and the figure is the same each time for one compiler and architecture. Exit code 77 (skipped)
where valgrind or figures for this architecture and compiler are missing.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys

PATHS = ["raw", "static", "bound", "dynamic", "varied", "scoped", "packed", "scope"]
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.json")
FEW, MANY = 1000, 3000
TOLERANCE = 1.03
SKIPPED = 77


# A hit costs the same whatever the environment says.
EVERY_VARIABLE = {
    "YARD_PREFER": "default", "YARD_STRICT": "1", "YARD_PER_OP": "softmax=reference",
    "YARD_DENY_VENDORS": "acme", "YARD_ALLOW_VENDORS": "onednn", "YARD_DENY_KERNELS": "no.such",
    "YARD_ALLOW_KERNELS": "*", "YARD_BACKEND_REFERENCE": "on", "YARD_DISABLE": "0",
    "YARD_LOG_LEVEL": "off",
}


def count(target, path, n, environment=None):
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", target, path, str(n)],
        capture_output=True, text=True, env={**os.environ, **(environment or {})})
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f"instructions: {path}: valgrind failed\n{run.stderr[-2000:]}")
    return int(found.group(1))


def per_call(target, path, environment=None):
    runs = [count(target, path, n, environment) for n in (FEW, MANY)]
    return (runs[1] - runs[0]) / (MANY - FEW)


def compiler(target):
    text = subprocess.run(["readelf", "-p", ".comment", target], capture_output=True, text=True).stdout
    found = re.search(r"GCC: \(.*?\) (\d+)", text)
    return f"gcc{found.group(1)}" if found else "other"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    target, record = sys.argv[1], "--record" in sys.argv
    if shutil.which("valgrind") is None:
        print("instructions: skipped, valgrind is not installed")
        sys.exit(SKIPPED)
    key = f"{platform.machine()} {compiler(target)}"
    with open(FILE) as f:
        known = json.load(f)
    if key not in known and not record:
        print(f"instructions: skipped, no figures for {key}; make them with --record")
        sys.exit(SKIPPED)
    now = {p: round(per_call(target, p), 1) for p in PATHS}
    if record:
        known[key] = now
        with open(FILE, "w") as f:
            json.dump(known, f, indent=2, sort_keys=True)
            f.write("\n")
    worse = []
    print(f"instructions of a call, {key}:")
    for p in PATHS:
        before = known[key][p]
        print(f"  {p:<8} {now[p]:>7.1f}  (kept: {before:.1f})")
        if now[p] > before * TOLERANCE + 1:
            worse.append(f"{p}: {before:.1f} -> {now[p]:.1f}")
    told = per_call(target, "dynamic", EVERY_VARIABLE)
    print(f"  dynamic, every variable of the environment set: {told:.1f}")
    if abs(told - now["dynamic"]) > 1:
        worse.append(f"dynamic: {now['dynamic']:.1f} -> {told:.1f} with the environment set")
    if worse:
        sys.exit("INSTRUCTIONS HAVE GROWN: " + "; ".join(worse))


main()
