#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that functions that differ without exceptions have other symbols: symbols_test.py INCLUDE
GENERATED COMPILER...

The linker keeps one of two functions with the same symbol. So a function of ours that files of both
kinds contain must have nothing to do when an exception passes, and must call the same functions.
Constructors, destructors and assignments are left out: like those of the standard library, they may
only leak memory then.
"""
import os
import re
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read(path):
    """Returns the weak functions of an object file, those that handle exceptions, and what each refers
    to."""
    weak = {line.split()[-1] for line in run("nm", path).splitlines() if re.search(r" [WVu] _Z", line)}
    handling = set(re.findall(r"\.gcc_except_table\.(_Z\w+)", run("readelf", "-SW", path)))
    uses, to = {}, None
    for line in run("readelf", "-rW", path).splitlines():
        if line.startswith("Relocation section"):
            found = re.search(r"'\.rela\.text\.(_Z\w+)'", line)
            to = uses.setdefault(found.group(1), set()) if found else set()
        elif found := re.search(r" (_Z\w+)", line):
            to.add(found.group(1))
    return weak, handling, uses


def is_ours(symbol, name):
    """Returns whether a function belongs to the library and is not a special member. `name` is
    demangled."""
    if not re.match(r"_ZZ*N[KRO]*4yard(?!7testing)", symbol):
        return False
    name = re.sub(r"\[abi:\w+\]", "", name)
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    member = re.search(r"(\w+)::(~?\w+|operator=)\(", name)
    return not member or member.group(2) not in (member.group(1), "~" + member.group(1), "operator=")


def check(compiler, name, folders, into):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    objects = []
    for mode in ("-fexceptions", "-fno-exceptions"):
        objects.append(os.path.join(into, mode + ".o"))
        run(compiler, "-std=c++20", mode, "-O0", "-ffunction-sections", "-DCALLS=kCalls",
            '-DYARD_PLUGIN_NAME="p"', '-DYARD_PLUGIN_VERSION="1"', *(f"-I{f}" for f in folders),
            "-c", source, "-o", objects[-1])
    (weak, handling, uses), (other_weak, _, other_uses) = map(read, objects)
    common = sorted(weak & other_weak)
    ours = [s for s, name in zip(common, run("c++filt", *common).splitlines()) if is_ours(s, name)]
    problems = []
    for symbol in ours:
        if symbol in handling:
            problems.append(f"{compiler}: it handles exceptions and has one symbol: {run('c++filt', symbol)}")
        elif uses.get(symbol) != other_uses.get(symbol):
            problems.append(f"{compiler}: it uses other functions and has one symbol: {run('c++filt', symbol)}")
    tagged = len([s for s in other_weak if "noexceptions" in s])
    print(f"{compiler}, {name}: {len(ours)} functions in both, {tagged} in files without exceptions only")
    if len(ours) < 10 or tagged < 5:
        problems.append(f"{compiler}: too few functions were found")
    return problems


def main():
    folders, compilers = sys.argv[1:3], sys.argv[3:]
    with tempfile.TemporaryDirectory() as into:
        problems = [p for c in compilers for name in ("calls.cc", "plugin.cc")
                    for p in check(c, name, folders, into)]
    sys.exit("\n".join(problems) if problems else 0)


main()
