#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a header with its comments as Doxygen expects them. scripts/docs/Doxyfile calls it.

The comment at the top of a header describes the file, a comment above a declaration describes the
declaration, and a comment behind one describes what is in front of it. Indented lines of a comment
are code.
"""
import re
import sys

CODE = re.compile(r"\s*/// {3,}\S")            # a line of code in a comment
BEHIND = re.compile(r"^(?P<code>.*\S) {1,}// (?P<text>.*)$")
ALONE = re.compile(r"^(\s*)//(?=[^/]|$)")
HEADING = re.compile(r"^\s*// ----")
C_ALONE = re.compile(r"^(\s*)/\* (?!----|clang-format)")
C_BEHIND = re.compile(r"(?<=[,;]) +/\* (?!clang-format)")
FILE_NAME = re.compile(r"\w+\.(h|hpp)$")       # names the header that defines a class


def filtered(lines):
    """The comments in Doxygen's syntax, line by line."""
    result, in_behind = [], False
    for number, line in enumerate(lines):
        if number == 0 and "SPDX-License-Identifier" in line:
            result.append("/** @file" if line.startswith("/*") else "/// @file")
        elif number == 1 and line.startswith("/* "):  # goes on with the comment that line 0 begins
            result.append(" * " + line.removeprefix("/* "))
        elif C_ALONE.match(line):
            result.append(C_ALONE.sub(r"\1/** ", line))
        elif C_BEHIND.search(line):
            result.append(C_BEHIND.sub("  /**< ", line, count=1))
        elif HEADING.match(line):
            result.append(line)
        elif ALONE.match(line):
            # A comment behind a declaration goes on below itself, far from the left.
            column = len(line) - len(line.lstrip())
            mark = r"\1///<" if in_behind and column > 12 else r"\1///"
            result.append(ALONE.sub(mark, line, count=1))
            continue
        else:
            behind = BEHIND.match(line)
            if behind and behind["code"][-1] in ",;" and not FILE_NAME.match(behind["text"]):
                result.append(f"{behind['code']}  ///< {behind['text']}")
                in_behind = True
                continue
            result.append(line)
        in_behind = False
    return result


def with_code(lines):
    """Marks the indented lines of comments. The blank comment lines around them hold the marks."""
    result, i = list(lines), 0
    while i < len(lines):
        if not CODE.match(lines[i]):
            i += 1
            continue
        end = i + 1  # behind the last line of code of this comment
        for k in range(i + 1, len(lines)):
            if CODE.match(lines[k]):
                end = k + 1
            elif lines[k].strip() != "///":
                break
        indent = lines[i][:lines[i].index("///")]
        if lines[i - 1].strip() == "///":
            result[i - 1] = indent + "/// @code{.cpp}"
        else:
            result[i] = indent + "/// @code{.cpp}\n" + lines[i]
        if end < len(lines) and lines[end].strip() == "///":
            result[end] = indent + "/// @endcode"
        else:
            result[end - 1] += "\n" + indent + "/// @endcode"
        i = end
    return result


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(with_code(filtered(file.read().split("\n")))), end="")


if __name__ == "__main__":
    main()
