#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/calls.svg: the times of calls beside PyTorch's.

The figures are in the first table of docs/performance.md.

Usage: plot_calls.py [--check]. With --check it fails if the picture does not match the table.
"""
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs/performance.md", ROOT / "docs/images/calls.svg"
MOST = 80                                    # nanoseconds; rows that take longer are left out
LEFT, WIDTH, ROW, TOP = 300, 460, 26, 62     # in pixels: labels, bars, a row, the heading
STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }
  .value { stroke: #ffffff; stroke-width: 4; paint-order: stroke }
  .ours { fill: #2f6fbd } .peer { fill: #c4682b } .peer-line { stroke: #c4682b }
  @media (prefers-color-scheme: dark) {
    .back { fill: #1c2128 } .text { fill: #e6edf3 } .faint { fill: #9da7b3 }
    .grid { stroke: #3d444d }
    .value { stroke: #1c2128 }
    .ours { fill: #6cb6ff } .peer { fill: #f0965a } .peer-line { stroke: #f0965a }
  }
"""


def rows(page):
    """(label, nanoseconds, ratio to PyTorch's typed call) of each row of the table."""
    lines = page.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("| way to call |"))
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            return
        label, time, ratio = [cell.strip() for cell in line.strip("|").split("|")][:3]
        label = re.sub(r" \([^()]*`[^()]*\)", "", label)  # leaves out the keys of the command
        yield label, float(time.replace(",", "")), ratio


def text(x, y, words, kind="text", more=""):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}"{more}>{html.escape(words)}</text>'


def draw(table):
    table = sorted((row for row in table if row[1] <= MOST), key=lambda row: row[1])
    typed = next(time for _, time, ratio in table if ratio == "1")
    bottom = TOP + ROW * len(table)
    width, height = LEFT + WIDTH + 120, bottom + 34
    body = [text(16, 26, "Time of a call, in nanoseconds",
                 more=' font-size="16" font-weight="bold"'),
            text(16, 46, "x86-64; shorter is better; the figure behind a bar is the ratio to "
                         "PyTorch's typed call", "faint")]
    for ns in range(0, MOST + 1, 20):
        x = LEFT + WIDTH * ns / MOST
        body += [f'<path d="M{x:g} {TOP}V{bottom}" class="grid"/>',
                 text(x, bottom + 18, str(ns), "faint", ' text-anchor="middle"')]
    x = LEFT + WIDTH * typed / MOST
    body.append(f'<path d="M{x:.1f} {TOP}V{bottom}" class="peer-line" stroke-dasharray="4 3"/>')
    for number, (label, time, ratio) in enumerate(table):
        y, long = TOP + ROW * number, WIDTH * time / MOST
        kind = "peer" if label.startswith("PyTorch") else "ours"
        body += [text(LEFT - 10, y + 18, label, more=' text-anchor="end"'),
                 f'<rect x="{LEFT}" y="{y + 5}" width="{long:.1f}" height="{ROW - 10}" rx="2" '
                 f'class="{kind}"/>',
                 text(round(LEFT + long + 7, 1), y + 18, f"{time:g} (×{ratio})", "text value")]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="system-ui,sans-serif" font-size="13" role="img">\n'
            f"<style>{STYLE}</style>\n"
            '<rect width="100%" height="100%" rx="8" class="back"/>\n'
            + "\n".join(body) + "\n</svg>\n")


def main():
    picture = draw(list(rows(PAGE.read_text(encoding="utf-8"))))
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
            sys.exit("plot_calls: docs/images/calls.svg does not match the table of "
                     "docs/performance.md; run scripts/plot_calls.py")
        return
    PICTURE.write_text(picture, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
