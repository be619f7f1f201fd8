#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each public header alone with -fno-exceptions: headers_test.py INCLUDE GENERATED
COMPILER...

Missing includes do not depend on the compiler, so compilers after the first compile all headers at
once.
"""
import concurrent.futures
import pathlib
import subprocess
import sys


def compile_headers(compiler, folders, headers):
    run = subprocess.run([compiler, "-std=c++20", "-fno-exceptions", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
                          "-Werror", *(f"-I{f}" for f in folders), "-x", "c++", "-"],
                         input="".join(f"#include <{h}>\n" for h in headers), capture_output=True, text=True)
    names = ", ".join(f"<{h}>" for h in headers)
    return "" if run.returncode == 0 else f"{compiler}: does not compile with -fno-exceptions: {names}\n{run.stderr}"


def main():
    folders, compilers = sys.argv[1:3], sys.argv[3:]
    headers = sorted(str(p.relative_to(folders[0])) for p in pathlib.Path(folders[0]).rglob("*.h*") if p.suffix != ".in")
    jobs = [(compilers[0], [h]) for h in headers] + [(c, headers) for c in compilers[1:]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        problems = [p for p in pool.map(lambda j: compile_headers(j[0], folders, j[1]), jobs) if p]
    print(f"{len(headers)} headers, {', '.join(compilers)}")
    sys.exit("\n".join(problems) if problems or len(jobs) < 20 else 0)


main()
