#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each public header alone with -fno-exceptions: headers_test.py INCLUDE GENERATED COMPILER..."""
import concurrent.futures
import pathlib
import subprocess
import sys


def compile_alone(compiler, folders, header):
    run = subprocess.run([compiler, "-std=c++20", "-fno-exceptions", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
                          "-Werror", *(f"-I{f}" for f in folders), "-x", "c++", "-"],
                         input=f"#include <{header}>\n", capture_output=True, text=True)
    return "" if run.returncode == 0 else f"{compiler}: <{header}> does not compile with -fno-exceptions:\n{run.stderr}"


def main():
    folders, compilers = sys.argv[1:3], sys.argv[3:]
    headers = sorted(str(p.relative_to(folders[0])) for p in pathlib.Path(folders[0]).rglob("*.h*") if p.suffix != ".in")
    jobs = [(c, h) for c in compilers for h in headers]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        problems = [p for p in pool.map(lambda j: compile_alone(j[0], folders, j[1]), jobs) if p]
    print(f"{len(headers)} headers, {', '.join(compilers)}")
    sys.exit("\n".join(problems) if problems or len(jobs) < 20 else 0)


main()
