# SPDX-License-Identifier: Apache-2.0
"""Tests that the newest layout table has every struct, field and enumerator of plugin.h and its
companions.

The compilers check sizes and offsets; this test finds fields without a row in the table.
Usage: complete_test.py plugin.h [more.h ...] layout_vN.inc
"""
import re
import sys


def declared(header):
    """Returns the rows that the table must have, as (kind, name) pairs."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    ahead = dict(re.findall(r"typedef struct (\w+) (\w+);", code))  # names that are declared before their struct
    for tag, body in re.findall(r"struct (yard_\w+) \{(.*?)^\}", code, flags=re.S | re.M):
        struct = ahead.get(tag, f"{tag}_t")
        yield "SIZE", struct
        body = re.sub(r"union \{.*?\} u;", "uint64_t u;", body, flags=re.S)
        for statement in filter(None, (" ".join(s.split()) for s in body.split(";"))):
            pointer = re.search(r"\(\*(\w+)\)", statement)
            names = [pointer[1]] if pointer else [
                re.split(r"[ *]", re.sub(r"\[.*\]", "", part).strip())[-1]
                for part in statement.split(",")]
            for name in names:
                yield "FIELD", f"{struct}, {name}"
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", code, flags=re.S):
        for part in filter(None, (p.strip() for p in body.split(","))):
            name = re.split(r"[ =]", part)[0]
            if name != "YARD_REASON_COUNT":  # grows with every reason, so plugins may not use it
                yield "VALUE", name
    for name in re.findall(r"#define (YARD_\w+) (?=[0-9(])", code):
        yield "VALUE", name


def main():
    *headers, table = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
    wanted = [row for header in headers for row in declared(header)]
    missing = [f"{kind}({name}, ...)" for kind, name in wanted if f"{kind}({name}," not in table]
    for row in missing:
        print(f"missing in {sys.argv[-1]}: {row}")
    if len(wanted) < 200:
        sys.exit("plugin.h could not be read: too few declarations were found")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
