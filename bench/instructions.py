#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a call in every row of `yard bench dispatch` but `cold`; fails when they have grown.

  instructions.py TARGET [ROW...]            compare with bench/instructions.json, fail on more than 3 % growth
  instructions.py TARGET [ROW...] --record   write the counts of this architecture into that file

Also holds that a hit costs the same whatever the environment says, with breakers on and off, and with a
hundred plugins found whose ops are not called; and that breakers and counters add at most 12 instructions to it.

The count is the difference between two runs of different length under callgrind, so start-up does not
matter and the figure is the same each time for one compiler and architecture, also of the rows that read a
clock (valgrind makes that a system call) or that see a new form with each call. Exit code 77 (skipped)
where valgrind or figures for this architecture and compiler are missing.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROWS = ["raw", "static", "bound", "dynamic", "shapes_4", "shapes_16", "mixed_forms", "in_place", "strided",
        "two_outputs", "fresh_views", "own_tensors", "growing", "scoped", "scope", "packed", "by_name", "options"]
HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "instructions.json")
MOST_FOR_HEALTH = 12
FEW, MANY = 1000, 21000  # many: calls are timed at random, about one in 128
TOLERANCE = 1.03
SKIPPED = 77


# A hit costs the same in any environment.
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


def breakers_off(folder):
    """A rule file under which nothing is watched."""
    path = os.path.join(folder, "no_breakers.yaml")
    with open(path, "w") as f:
        f.write('version: "1.0"\nsettings:\n  breaker: {enabled: false}\n')
    return {"YARD_CONFIG": path}


def a_hundred_plugins(folder):
    """A search path with a hundred copies of one plugin, each with a name of its own."""
    root, one = os.path.dirname(HERE), os.path.join(folder, "one.so")
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden",
                    "-I" + os.path.join(root, "include"),
                    os.path.join(root, "examples", "plugins", "c_plugin.c"), "-o", one], check=True)
    with open(one, "rb") as f:
        code = f.read()
    where = os.path.join(folder, "plugins")
    os.mkdir(where, 0o755)
    for i in range(100):
        name = b"examp_%03d" % i  # as long as the one it replaces
        path = os.path.join(where, name.decode() + ".so")
        with open(path, "wb") as f:
            f.write(code.replace(b"name=example_c\n", b"name=" + name + b"\n"))
        os.chmod(path, 0o644)
    return {"YARD_PLUGIN_PATH": where}


def compiler(target):
    text = subprocess.run(["readelf", "-p", ".comment", target], capture_output=True, text=True).stdout
    found = re.search(r"GCC: \(.*?\) (\d+)", text)
    return f"gcc{found.group(1)}" if found else "other"


def hold_dynamic(target, dynamic):
    """What has grown of the dynamic call with other settings, and of breakers and counters."""
    worse = []
    with tempfile.TemporaryDirectory() as folder:
        same = {"every variable of the environment set": EVERY_VARIABLE,
                "breakers off": breakers_off(folder),
                "a hundred plugins found": a_hundred_plugins(folder)}
        for what, environment in same.items():
            n = per_call(target, "dynamic", environment)
            print(f"  dynamic, {what}: {n:.1f}")
            if abs(n - dynamic) > 1:
                worse.append(f"dynamic: {dynamic:.1f} -> {n:.1f} with {what}")
            if what == "breakers off":
                breakers = dynamic - n
    counting = per_call(target, "counting") - per_call(target, "nothing")
    print(f"  counting a call: {counting:.1f}; with breakers: {counting + breakers:.1f}")
    if counting + breakers > MOST_FOR_HEALTH:
        worse.append(f"breakers and counters: {counting + breakers:.1f} (at most {MOST_FOR_HEALTH})")
    return worse


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    target, record = sys.argv[1], "--record" in sys.argv
    asked = [a for a in sys.argv[2:] if a != "--record"]
    unknown = [a for a in asked if a not in ROWS]
    if unknown:
        sys.exit(f"instructions: unknown row '{unknown[0]}': expected one of {', '.join(ROWS)}")
    if shutil.which("valgrind") is None:
        print("instructions: skipped, valgrind is not installed")
        sys.exit(SKIPPED)
    key = f"{platform.machine()} {compiler(target)}"
    with open(FILE) as f:
        known = json.load(f)
    if key not in known and not record:
        print(f"instructions: skipped, no figures for {key}; make them with --record")
        sys.exit(SKIPPED)
    now = {r: round(per_call(target, r), 1) for r in asked or ROWS}
    kept = known.setdefault(key, {})
    if record:
        known[key] = kept = {r: n for r, n in {**kept, **now}.items() if r in ROWS}
        with open(FILE, "w") as f:
            json.dump(known, f, indent=2, sort_keys=True)
            f.write("\n")
    worse = []
    print(f"instructions of a call, {key}:")
    for r, n in now.items():
        if r not in kept:
            print(f"  {r:<11} {n:>8.1f}  (none kept; --record keeps it)")
            continue
        print(f"  {r:<11} {n:>8.1f}  (kept: {kept[r]:.1f})")
        if n > kept[r] * TOLERANCE + 1:
            worse.append(f"{r}: {kept[r]:.1f} -> {n:.1f}")
    if "dynamic" in now:
        worse += hold_dynamic(target, now["dynamic"])
    if worse:
        sys.exit("INSTRUCTIONS HAVE GROWN: " + "; ".join(worse))


main()
