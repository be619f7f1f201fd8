# SPDX-License-Identifier: Apache-2.0
"""The files of the tree as the rules see them, and their findings."""
import dataclasses
import os
import pathlib

SKIPPED_FOLDERS = {".git", "build", "dist", "__pycache__", ".cache", "third_party"}
CXX = {".h", ".hpp", ".cc", ".c"}
CODE = CXX | {".inc", ".in", ".py", ".sh", ".cmake", ".yaml", ".yml"}
CODE_NAMES = {"CMakeLists.txt", "Makefile", "LAYERS", "BUDGET", "run", ".clang-format"}


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    text: str
    fatal: bool = True

    def __str__(self):
        return f"{self.path}:{self.line}: {'' if self.fatal else 'warning: '}{self.text}"


class Tree:
    """The project's files, read once. Paths are relative and use slashes."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = {}
        for folder, subfolders, names in os.walk(self.root):
            subfolders[:] = sorted(d for d in subfolders if d not in SKIPPED_FOLDERS)
            for name in sorted(set(names) - SKIPPED_FOLDERS):
                path = pathlib.Path(folder, name)
                try:
                    text = path.read_text(encoding="utf-8")
                except (UnicodeDecodeError, OSError):
                    continue  # skips pictures, corpus files and deleted files
                self.files[path.relative_to(self.root).as_posix()] = text

    def lines(self, path):
        return self.files[path].splitlines()

    def with_suffix(self, suffixes, *prefixes):
        for path in self.files:
            if pathlib.PurePosixPath(path).suffix in suffixes:
                if not prefixes or path.startswith(prefixes):
                    yield path

    def code(self):
        for path in self.files:
            pure = pathlib.PurePosixPath(path)
            if not path.startswith("tests/fuzz/corpus/"):
                if pure.suffix in CODE or pure.name in CODE_NAMES:
                    yield path
