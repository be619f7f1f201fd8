#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds objects of a library that are made at first use behind a compiler's guard. Usage: statics.py
LIBRARY

If a thread makes such an object during a fork, the child waits for that thread forever. base/lazy.h
and std::call_once restart in the child. Exits with 1 if there is such an object.
"""
import subprocess
import sys

GUARD = "_ZGV"
ALLOWED = "yard::onednn::"  # a backend that does not run in forked children


def guards(library):
    """Returns the mangled names of guards that threads share."""
    lines = subprocess.run(["readelf", "--syms", "--wide", library], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    symbols = [line.split() for line in lines]
    if not any(len(s) >= 8 and "yard" in s[7] for s in symbols):
        sys.exit(f"{library}: no symbols of ours; is it stripped?")
    return sorted({s[7] for s in symbols if len(s) >= 8 and s[3] == "OBJECT" and s[7].startswith(GUARD)})


def main():
    found = guards(sys.argv[1])
    plain = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True, check=True)
    names = [name.removeprefix("guard variable for ") for name in plain.stdout.splitlines()]
    bad = [name for name in names if name.startswith("yard") and not name.startswith(ALLOWED)]
    for name in bad:
        print(f"{name} is made behind a guard: use base/lazy.h or std::call_once, which a fork cannot leave half done")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
