#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/llm/unicode_ranges.inc: the code points that are letters, numbers or white space,
as the tokenizers of language models divide text. Usage: unicode_ranges.py > examples/llm/unicode_ranges.inc"""
import itertools
import sys
import textwrap
import unicodedata

SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}


def kind(code):
    if code in SPACES:
        return "kSpaces"
    return {"L": "kLetters", "N": "kNumbers"}.get(unicodedata.category(chr(code))[0])


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Written by scripts/unicode_ranges.py for Unicode {unicodedata.unidata_version}.")
    print("// From code point 0 on: how many are not of the kind, how many are, and so on.")
    kinds = [kind(code) for code in range(sys.maxunicode + 1)]
    for name in ("kLetters", "kNumbers", "kSpaces"):
        runs = [len(list(run)) for _, run in itertools.groupby(kinds, lambda k: k == name)]
        print(f"constexpr uint32_t {name}[] = {{")
        text = ", ".join(map(str, runs[:len(runs) // 2 * 2]))
        print(*textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="    "), sep="\n", end="};\n")


if __name__ == "__main__":
    main()
