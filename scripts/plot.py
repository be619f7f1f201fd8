#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/calls.svg, the times of calls beside PyTorch's, and docs/images/decode.svg, the
speed of a language model beside llama.cpp.

The figures are in the tables of docs/performance.md.

Usage: plot.py [--check]. With --check it fails if a picture does not match its table.
"""
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, IMAGES = ROOT / "docs/performance.md", ROOT / "docs/images"
MOST = 80                                    # nanoseconds; rows that take longer are left out
LEFT, WIDTH, ROW, TOP = 300, 460, 26, 62     # in pixels: labels, bars, a row, the heading
STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }
  .value { stroke: #ffffff; stroke-width: 4; paint-order: stroke }
  .ours { fill: #2f6fbd } .peer { fill: #c4682b } .peer-line { stroke: #c4682b }
  .line.ours { fill: none; stroke: #2f6fbd; stroke-width: 2.5 }
  .line.peer { fill: none; stroke: #c4682b; stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #1c2128 } .text { fill: #e6edf3 } .faint { fill: #9da7b3 }
    .grid { stroke: #3d444d }
    .value { stroke: #1c2128 }
    .ours { fill: #6cb6ff } .peer { fill: #f0965a } .peer-line { stroke: #f0965a }
    .line.ours { stroke: #6cb6ff } .line.peer { stroke: #f0965a }
  }
"""


def table_rows(page, heading):
    """The cells of each row of the table whose first line begins with `heading`."""
    lines = page.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def rows(page):
    """(label, nanoseconds, ratio to PyTorch's typed call) of each row of the table."""
    for label, time, ratio, *_ in table_rows(page, "| way to call |"):
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
    return picture(width, height, body)


def picture(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="system-ui,sans-serif" font-size="13" role="img">\n'
            f"<style>{STYLE}</style>\n"
            '<rect width="100%" height="100%" rx="8" class="back"/>\n'
            + "\n".join(body) + "\n</svg>\n")


def decode_rows(page):
    """(threads, tokens per second, those of llama.cpp) on x86."""
    machine = ""
    for name, threads, ours, peer, *_ in table_rows(page, "| | threads | decode |"):
        machine = name or machine
        if machine == "x86":
            yield int(threads), float(ours), float(peer)


def draw_decode(table):
    """Lines of tokens per second over threads."""
    left, top, width, height, most = 60, 66, 520, 240, 700
    table = list(table)
    threads = max(t for t, _, _ in table)

    def at(t, speed):
        return left + width * t / threads, top + height * (1 - speed / most)

    body = [text(16, 26, "Tokens per second in decoding", more=' font-size="16" font-weight="bold"'),
            text(16, 46, "SmolLM2-135M on x86-64, over the number of threads; higher is better", "faint")]
    for speed in range(0, most + 1, 100):
        y = at(0, speed)[1]
        body += [f'<path d="M{left} {y:g}H{left + width}" class="grid"/>',
                 text(left - 8, y + 4, str(speed), "faint", ' text-anchor="end"')]
    for t, _, _ in table:
        body.append(text(at(t, 0)[0], top + height + 18, str(t), "faint", ' text-anchor="middle"'))
    for kind, name, column in (("ours", "yard-chat", 1), ("peer", "llama.cpp", 2)):
        points = [at(row[0], row[column]) for row in table]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body.append(f'<polyline points="{line}" class="{kind} line"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{kind}"/>' for x, y in points]
        body.append(text(points[-1][0] + 12, points[-1][1] + 4, name))
    return picture(left + width + 100, top + height + 34, body)


def main():
    page = PAGE.read_text(encoding="utf-8")
    for name, made in (("calls.svg", draw(rows(page))), ("decode.svg", draw_decode(decode_rows(page)))):
        path = IMAGES / name
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != made:
                sys.exit(f"plot: docs/images/{name} does not match its table in docs/performance.md; "
                         "run scripts/plot.py")
            continue
        path.write_text(made, encoding="utf-8")
        print(f"docs/images/{name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
