#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/top.svg: a model answers while `yard top` watches it and `yard deny` takes one of its kernels away.

Runs the programs in tmux, waits until each shows what the picture is about, and turns the cells of the terminal into SVG.
Usage: picture.py [BUILD_FOLDER] [OUTPUT]. Needs tmux and the model of `make demo`.
"""
import html
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 104, 42
CHAT_ROWS, TOP_ROWS = 11, 17  # the rest is for the shell
WIDTH, HEIGHT = 8.0, 17.0     # of a cell, in pixels
COLORS = {30: "#22272e", 31: "#f47067", 32: "#6bc46d", 33: "#daaa3f", 34: "#6cb6ff", 35: "#dcbdfb", 36: "#76e3ea",
          37: "#cdd9e5", 90: "#768390"}
BACKGROUND, FOREGROUND = "#1c2128", "#cdd9e5"
PROMPT = "Explain in ten sentences how trains are sorted in a railway yard."
DENIED = "default.simd_int8_packed"
DEADLINE = 60  # seconds that a program has to show something


def tmux(*arguments):
    return subprocess.run(["tmux", "-L", "yard-picture", *arguments], check=True, capture_output=True, text=True).stdout


def screen(pane, colors=False):
    return tmux("capture-pane", "-p", "-t", pane, *(["-e"] if colors else []))


def wait_for(pane, pattern):
    """Returns the match once the pane shows the pattern."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = re.search(pattern, screen(pane))
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"picture: {pattern!r} did not appear in\n{screen(pane)}")


def wait_for_process(yard):
    """The process that `yard ps` lists: the model."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        listed = json.loads(subprocess.run([yard, "ps", "--json"], check=True, capture_output=True, text=True).stdout)
        for process in listed["processes"]:
            if process["program"] and process["program"].endswith("yard-chat"):
                return process["pid"]
        time.sleep(0.1)
    sys.exit("picture: yard ps does not list yard-chat")


def record(build):
    """Runs the scene and returns the lines of all panes, with their colours."""
    yard = build / "bin" / "yard"
    shell = "env PS1='$ ' bash --norc --noprofile"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), shell)
    try:
        tmux("set-option", "-g", "status", "off")
        tmux("set-option", "-g", "pane-border-style", "fg=colour8")
        tmux("split-window", "-v", "-t", "0", "-l", str(ROWS - CHAT_ROWS - 1), shell)
        tmux("split-window", "-v", "-t", "1", "-l", str(ROWS - CHAT_ROWS - TOP_ROWS - 2), shell)
        for pane in "012":
            tmux("send-keys", "-t", pane, f"export PATH={build}/bin:$PATH YARD_LOG_LEVEL=error; clear", "Enter")
        tmux("send-keys", "-t", "0", f"yard-chat --temperature 0 -n 1000 '{PROMPT}'", "Enter")
        wait_for("0", r"(?s)railway yard\.'\s+(\S+\s+){9}")
        pid = wait_for_process(yard)
        tmux("send-keys", "-t", "1", f"yard top {pid}", "Enter")
        wait_for("1", re.escape(DENIED))
        time.sleep(2)
        tmux("send-keys", "-t", "2", f"yard deny {DENIED} --pid {pid}", "Enter")
        wait_for("2", r"yard undo \d+")
        wait_for("1", r"linear\s+(?!" + re.escape(DENIED) + r")\S+")
        time.sleep(2)
        return [screen(pane, colors=True).rstrip("\n").split("\n") for pane in "012"]
    finally:
        tmux("kill-server")


def spans(line):
    """(column, text, colour, is bold, is reversed) of each run of equal cells."""
    column, color, bold, reverse = 0, FOREGROUND, False, False
    for text, codes in re.findall(r"([^\x1b]+)|\x1b\[([\d;]*)m", line):
        if text:  # words that are far apart are placed one by one, because fonts differ in width
            for part in re.findall(r" {2,}|(?:[^ ]| (?! ))+", text):
                yield column, part, color, bold, reverse
                column += len(part)
            continue
        for code in (int(c or 0) for c in codes.split(";")):
            if code == 0:
                color, bold, reverse = FOREGROUND, False, False
            bold = (bold or code == 1) and code != 22
            reverse = (reverse or code == 7) and code != 27
            color = FOREGROUND if code == 39 else COLORS.get(code, color)


def draw(panes):
    rows, body = 0, []
    for number, lines in enumerate(panes):
        if number:
            y = (rows + 0.9) * HEIGHT
            body.append(f'<path d="M0 {y:.1f}H{(COLUMNS + 2) * WIDTH:.0f}" stroke="#444c56"/>')
            rows += 1
        for line in lines:
            rows += 1
            for column, text, color, bold, reverse in spans(line):
                x, y, width = (column + 1) * WIDTH, rows * HEIGHT, len(text) * WIDTH
                if reverse:
                    body.append(f'<rect x="{x:.0f}" y="{y - HEIGHT + 4:.1f}" width="{width:.0f}" height="{HEIGHT}" '
                                f'fill="{color}"/>')
                    color = BACKGROUND
                text = text.rstrip()  # textLength would stretch the letters over blanks at the end
                if text:
                    width = len(text) * WIDTH
                    weight = ' font-weight="bold"' if bold else ""
                    body.append(f'<text x="{x:.0f}" y="{y:.1f}" textLength="{width:.0f}" fill="{color}"{weight}>'
                                f"{html.escape(text)}</text>")
    width, height = (COLUMNS + 2) * WIDTH, (rows + 1) * HEIGHT
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13" xml:space="preserve">\n'
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n' + "\n".join(body) + "\n</svg>\n")


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    output = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/images/top.svg")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(draw(record(build)), encoding="utf-8")
    print(f"{output}: {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
