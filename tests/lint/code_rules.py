# SPDX-License-Identifier: Apache-2.0
"""Rules about source files: layers, includes, length, licence line, leftovers."""
import pathlib
import re

from tree import CXX, Finding

WARN_LINES, MAX_LINES = 500, 700
MAX_COLUMNS = 100
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
C_HEADERS = {"assert.h", "errno.h", "math.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h",
             "stdio.h", "stdlib.h", "string.h"}
POSIX_HEADERS = {"pthread.h"}
# The forced unwinding of a cancelled thread must pass through catch (...), and only this header
# names its type.
CXX_ABI = {"cxxabi.h"}
# The words are split, so that this file does not contain them.
LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.})\]*-])/(?:work|root|home)" r"/")


def read_layers(tree):
    """Reads src/LAYERS as {layer: every layer that it may include, itself among them}."""
    allowed = {}
    for line in tree.lines("src/LAYERS"):
        match = re.fullmatch(r"([a-z_]+):([a-z_ ]*)", line)
        if match:
            allowed[match[1]] = {match[1]}.union(*(allowed[d] for d in match[2].split()))
    return allowed


def includes(tree, path):
    """Yields (line number, whether it is quoted, name) for every include."""
    for number, line in enumerate(tree.lines(path), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def is_test(path):
    return path.endswith("_test.cc") or pathlib.PurePosixPath(path).name.startswith("testing")


def check_layers(tree):
    """Every quoted include in src/ is a path from src/ into a layer that src/LAYERS allows."""
    if "src/LAYERS" not in tree.files:
        return
    allowed = read_layers(tree)
    # A test may include headers of a test-only backend that steer it.
    backend_headers = {pathlib.PurePosixPath(p).name for p in tree.with_suffix({".h"}, "backends/")}
    for path in tree.with_suffix(CXX, "src/"):
        layer = path.split("/")[1]
        if layer not in allowed:
            yield Finding(path, 1, f"src/LAYERS does not name the folder '{layer}'")
            continue
        for number, quoted, what in includes(tree, path):
            if not quoted or (is_test(path) and what in backend_headers):
                continue
            target = what.split("/")[0]
            if f"src/{what}" not in tree.files:
                yield Finding(path, number, f'"{what}" is no path from src/')
            elif target not in allowed[layer]:
                yield Finding(path, number, f"layer '{layer}' may not include '{target}' (src/LAYERS)")


def check_backends(tree):
    """Backends see plugin.h, plugin*.hpp and their own folder. Their tests may include every public
    header."""
    for path in tree.with_suffix(CXX, "backends/"):
        folder = str(pathlib.PurePosixPath(path).parent)
        for number, quoted, what in includes(tree, path):
            if quoted:
                if f"{folder}/{what}" not in tree.files:
                    yield Finding(path, number, f'a backend includes only its own folder, not "{what}"')
            elif what.startswith("yard/") and not is_test(path):
                if what not in ("yard/plugin.h", "yard/plugin.hpp", "yard/plugin_function.hpp"):
                    yield Finding(path, number, f"a backend includes only plugin.h and .hpp, not <{what}>")


# Our headers that the headers for C++ plugins may include, because they need no library.
PLUGIN_HPP = {"plugin.hpp": ("yard/plugin.h", "yard/detail/plugin_call.hpp"),
              "plugin_call.hpp": ("yard/plugin.h", "yard/detail/exceptions.h"),
              "plugin_function.hpp": ("yard/plugin.hpp", "yard/verdict.h"),
              "verdict.h": ("yard/plugin.h", "yard/detail/signature.h", "yard/detail/exceptions.h"),
              "signature.h": (), "exceptions.h": ()}
# Public headers that yard.h leaves out: some are for C, and some need another library.
NOT_IN_YARD_H = {"yard.h", "abi.h", "plugin.h", "c.h", "metrics.h"}
# The most lines of our headers that a header may include, with its own lines.
MAX_REACH = {"op.h": 1500}


def check_public_headers(tree):
    """Public headers include each other and the standard library. plugin.h includes only abi.h."""
    for path in tree.with_suffix(CXX, "include/yard/"):
        name = pathlib.PurePosixPath(path).name
        for number, quoted, what in includes(tree, path):
            standard = what in C_HEADERS | POSIX_HEADERS | CXX_ABI or re.fullmatch(r"[a-z_]+", what)
            ours = (f"include/{what}" in tree.files or f"include/{what}.in" in tree.files)
            if quoted or not (standard or ours):
                yield Finding(path, number, f"a public header cannot include '{what}'")
            elif name in ("abi.h", "plugin.h") and what not in C_HEADERS and (name, what) != ("plugin.h", "yard/abi.h"):
                yield Finding(path, number, f"{name} is standalone C11 and cannot include '{what}'")
            elif name in PLUGIN_HPP and ours and what not in PLUGIN_HPP[name]:
                yield Finding(path, number, f"{name} is for plugins and cannot include '{what}'")


def check_umbrella(tree):
    """yard.h includes every public header except those in NOT_IN_YARD_H."""
    umbrella = tree.files.get("include/yard/yard.h")
    for path in tree.with_suffix({".h", ".in"}, "include/yard/") if umbrella else ():
        name = pathlib.PurePosixPath(path).name.removesuffix(".in")
        if path.count("/") == 2 and name not in NOT_IN_YARD_H and f"#include <yard/{name}>" not in umbrella:
            yield Finding("include/yard/yard.h", 1, f"does not include {name}")


def check_reach(tree):
    """A program that only calls ops compiles few of our lines."""
    for name, most in MAX_REACH.items():
        reached, new = set(), {f"include/yard/{name}"} & tree.files.keys()
        while new:
            reached |= new
            new = {f"include/{what}" for path in new for _, _, what in includes(tree, path)} & tree.files.keys() - reached
        count = sum(len(tree.lines(path)) for path in reached)
        if count > most:
            yield Finding(f"include/yard/{name}", 1, f"reaches {count} lines; {most} is the most")


def check_listed(tree):
    """The CMakeLists.txt of a folder names every source of its layer or backend."""
    for path in tree.with_suffix({".cc", ".c"}, "src/", "backends/", "metrics/", "tools/", "python/", "tests/integration/"):
        pure = pathlib.PurePosixPath(path)
        listing = None
        for parent in list(pure.parents)[:-1]:
            listing = tree.files.get(f"{parent}/CMakeLists.txt")
            if listing is not None:
                name = str(pure.relative_to(parent))
                break
        if listing is None or not re.search(rf"(?<![\w/]){re.escape(name)}\b", listing):
            yield Finding(path, 1, "no CMakeLists.txt lists it, so it is never built")


def check_headers(tree):
    for path in tree.with_suffix({".h", ".hpp"}):
        if not any(line.strip() == "#pragma once" for line in tree.lines(path)):
            yield Finding(path, 1, "a header needs #pragma once")


def check_length(tree):
    for path in tree.code():
        count = len(tree.lines(path))
        if count > MAX_LINES:
            yield Finding(path, count, f"{count} lines; {MAX_LINES} is the most a file may have")
        elif count > WARN_LINES:
            yield Finding(path, count, f"{count} lines; consider splitting it", fatal=False)


def check_columns(tree):
    """clang-format leaves comments and string literals alone, so this rule also counts them."""
    for path in tree.with_suffix(CXX | {".inc", ".in"}):
        if path.endswith(".in") and pathlib.PurePosixPath(path[:-3]).suffix not in CXX:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if len(line) > MAX_COLUMNS:
                yield Finding(path, number, f"{len(line)} columns; {MAX_COLUMNS} is the most")


def budgets(tree):
    """Reads src/BUDGET as (line number, folder, the most lines that its C++ files may have)."""
    for number, line in enumerate(tree.lines("src/BUDGET") if "src/BUDGET" in tree.files else (), 1):
        match = re.fullmatch(r"([a-z/]+) (\d+)", line)
        if match:
            yield number, match[1], int(match[2])
        elif line and not line.startswith("#"):
            yield number, line, None


def check_budget(tree):
    """The C++ files of a folder, without tests, have at most as many lines as src/BUDGET allows."""
    for number, folder, most in budgets(tree):
        if most is None:
            yield Finding("src/BUDGET", number, f"cannot read '{folder}'; a line is `folder lines`")
            continue
        files = [p for p in tree.with_suffix(CXX | {".in"}, f"{folder}/") if not is_test(p)]
        count = sum(len(tree.lines(p)) for p in files)
        if not files:
            yield Finding("src/BUDGET", number, f"the folder '{folder}' has no C++ file")
        elif count > most:
            yield Finding("src/BUDGET", number, f"{folder} has {count} lines; {most} is the most")


def check_licence(tree):
    for path in tree.code():
        head = tree.lines(path)[:2]
        if head and head[0].startswith("#!"):
            head = head[1:]
        if not head or "SPDX-License-Identifier: Apache-2.0" not in head[0]:
            yield Finding(path, 1, "the first line must be the SPDX line")


def check_leftovers(tree):
    for path in tree.files:
        for number, line in enumerate(tree.lines(path), 1):
            if path.startswith("tests/fuzz/corpus/") or path == "LICENSE":
                continue
            match = LEFTOVER.search(line)
            if match:
                yield Finding(path, number, f"'{match[0]}': finish it or write an issue")
            if MACHINE_PATH.search(line):
                yield Finding(path, number, "a path of a specific machine")


RULES = [check_layers, check_backends, check_public_headers, check_umbrella, check_reach, check_listed,
         check_headers, check_length, check_columns, check_budget, check_licence, check_leftovers]
