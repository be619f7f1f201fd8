# SPDX-License-Identifier: Apache-2.0
"""Rules about the documentation: examples are quoted from files that run, and links lead to files.

A code block is preceded by
    <!-- example: path#region -->        the block equals that region of that file, word for word
    <!-- example: none: reason -->       the block cannot run for this reason
A region lies between the comments `[region]` and `[/region]` (after // or # or inside /* */).
Blocks of output and of grammars are ```text and need no marker.
"""
import pathlib
import posixpath
import re
import textwrap

from tree import Finding

QUOTED = {"c", "cpp", "c++", "sh", "bash", "shell", "console", "python", "yaml", "yml", "cmake"}
FREE = {"text", "json", "mermaid"}
FENCE = re.compile(r"^(\s*)(```+)\s*([\w+-]*)\s*$")
MARKER = re.compile(r"^\s*<!-- example: (.+?) -->\s*$")
MARK = re.compile(r"^\s*(?://|#|/\*|--)\s*\[(/?[\w.-]+)\]\s*(?:\*/)?\s*$")
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")


def documents(tree):
    for path in tree.files:
        if path in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            yield path
        elif path.startswith("docs/") and path.endswith(".md"):
            yield path


def blocks(lines):
    """Yields (line number, language, text, line before the block) of every fenced block."""
    i = 0
    while i < len(lines):
        match = FENCE.match(lines[i])
        if not match:
            i += 1
            continue
        start, body = i, []
        i += 1
        while i < len(lines) and lines[i].strip() != match[2]:
            body.append(lines[i])
            i += 1
        i += 1
        before = next((l for l in reversed(lines[:start]) if l.strip()), "")
        yield start + 1, match[3], textwrap.dedent("\n".join(body)), before


def region(lines, name):
    """Returns the text of a region without the marks of inner regions, or None if it does not exist."""
    body, inside, closed = [], False, False
    for line in lines:
        mark = MARK.match(line)
        if mark and mark[1] == name:
            inside = True
        elif mark and mark[1] == f"/{name}" and inside:
            inside, closed = False, True
        elif inside and not mark:
            body.append(line)
    return textwrap.dedent("\n".join(body)) if closed else None


def strip_ends(text):
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def check_block(tree, path, number, language, text, before):
    if language in FREE:
        return None
    if language not in QUOTED:
        return "a code block says its language; output and grammars are ```text"
    marker = MARKER.match(before)
    if not marker:
        return f"a block of {language} needs <!-- example: path#region --> before it"
    what = marker[1]
    if what.startswith("none"):
        return None if re.fullmatch(r"none: \S.*", what) else "say why: <!-- example: none: reason -->"
    file, _, name = what.partition("#")
    if not name:
        return f"'{what}' names no region"
    if file not in tree.files:
        return f"there is no file {file}"
    quoted = region(tree.lines(file), name)
    if quoted is None:
        return f"{file} has no region [{name}] ... [/{name}]"
    if strip_ends(quoted) != strip_ends(text):
        return f"the block differs from region {name} of {file}"
    return None


def check_examples(tree):
    for path in documents(tree):
        for number, language, text, before in blocks(tree.lines(path)):
            problem = check_block(tree, path, number, language, text, before)
            if problem:
                yield Finding(path, number, problem)


def check_links(tree):
    for path in documents(tree):
        fenced = False
        for number, line in enumerate(tree.lines(path), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            for target in [] if fenced else LINK.findall(line):
                if re.match(r"[a-z]+:|#", target):
                    continue
                file = posixpath.normpath(
                    posixpath.join(str(pathlib.PurePosixPath(path).parent), target.split("#")[0]))
                if file not in tree.files and not (tree.root / file).exists():
                    yield Finding(path, number, f"the link leads nowhere: {target}")


def check_reached(tree):
    """Links lead from the README to every page."""
    if "README.md" not in tree.files:
        return
    reached, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page not in tree.files or not page.endswith(".md"):
            continue
        reached.add(page)
        for line in tree.lines(page):
            for target in LINK.findall(line):
                todo.append(posixpath.normpath(posixpath.join(posixpath.dirname(page), target.split("#")[0])))
    for path in documents(tree):
        if path.startswith("docs/") and path not in reached:
            yield Finding("README.md", 1, f"no link leads to {path}")


NAMED = re.compile(r"`([\w:~.]+)(?:\(\))?`,? \(?((?:yard|[a-z]+)/[\w/]+\.(?:h|hpp|cc))\b")
WALKS = ("docs/life_of_a_call.md", "docs/dev/architecture.md")


def check_names(tree):
    """If a walk says `name` (folder/file), the file contains the name."""
    for path in WALKS:
        text = tree.files.get(path, "")
        for match in NAMED.finditer(text):
            name, file = re.split("::|[.]", match[1])[-1], match[2]
            places = [p for p in (f"src/{file}", f"include/{file}", file) if p in tree.files]
            line = text.count("\n", 0, match.start()) + 1
            if not places:
                yield Finding(path, line, f"there is no {file}")
            elif not re.search(rf"\b{re.escape(name)}\b", tree.files[places[0]]):
                yield Finding(path, line, f"{file} has no {name}")


RULES = [check_examples, check_links, check_reached, check_names]
