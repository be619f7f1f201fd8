#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/llm/unicode_ranges.inc: the code points that are letters, numbers or white space, as the tokenizers of
language models divide text. Usage: unicode_ranges.py > examples/llm/unicode_ranges.inc"""
import sys
import unicodedata

SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def kind(code):
    if code in SPACES:
        return "kSpace"
    return {"L": "kLetter", "N": "kNumber"}.get(unicodedata.category(chr(code))[0])


def ranges():
    first = 0
    for code in range(1, sys.maxunicode + 2):
        if code > sys.maxunicode or kind(code) != kind(first):
            if kind(first):
                yield f"{{0x{first:x}, 0x{code - 1:x}, {kind(first)}}},"
            first = code


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Written by scripts/unicode_ranges.py. First and last code point of each range, in order; "
          f"Unicode {unicodedata.unidata_version}.")
    line = ""
    for text in ranges():
        if len(line) + len(text) > 110:
            print(line.rstrip())
            line = ""
        line += text + " "
    print(line.rstrip())


if __name__ == "__main__":
    main()
