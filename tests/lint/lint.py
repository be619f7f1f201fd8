#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tree against the house rules. Usage: lint.py [root]

Prints one line per finding and exits with 1 if one of them is more than a warning.
"""
import pathlib
import re
import shutil
import subprocess
import sys

import code_rules
import doc_rules
from tree import CXX, Finding, Tree

CLANG_FORMAT = "14"  # other versions format differently


def find_clang_format():
    for name in (f"clang-format-{CLANG_FORMAT}", "clang-format"):
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            match = re.search(r"version (\d+)", text)
            if match and match[1] == CLANG_FORMAT:
                return path
    return None


def check_format(tree, tool):
    """Asks clang-format about every C and C++ file; one finding per file."""
    files = sorted(tree.with_suffix(CXX))
    if not files:
        return
    run = subprocess.run([tool, "--dry-run", "--ferror-limit=0", *files], cwd=tree.root,
                         capture_output=True, text=True)
    seen = set()
    for path, line in re.findall(r"^(\S+?):(\d+):\d+: (?:warning|error): code should be clang-formatted",
                                 run.stderr, flags=re.M):
        if path not in seen:
            seen.add(path)
            yield Finding(path, int(line), "not formatted: clang-format -i " + path)


def lint(root, tool):
    tree = Tree(root)
    for rule in code_rules.RULES + doc_rules.RULES:
        yield from rule(tree)
    if tool:
        yield from check_format(tree, tool)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    tool = find_clang_format()
    if not tool:
        print(f"note: clang-format {CLANG_FORMAT} is not installed; formatting was not checked")
    findings = sorted(lint(root, tool), key=lambda f: (f.fatal, f.path, f.line))
    for finding in findings:
        print(finding)
    fatal = sum(f.fatal for f in findings)
    print(f"lint: {fatal} to fix, {len(findings) - fatal} warnings")
    sys.exit(1 if fatal else 0)


if __name__ == "__main__":
    main()
