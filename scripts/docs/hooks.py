# SPDX-License-Identifier: Apache-2.0
"""Fits the pages of the repository to the site.

README.md, CONTRIBUTING.md and CHANGELOG.md become pages, and the headers a page that leads to what Doxygen wrote. Links to
other files of the repository become plain text, because the site has no sources.
"""
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ASSETS = ["iframe-worker.js", "site.css"]  # mkdocs.yml names them
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
MARKER = re.compile(r"^\s*<!-- example: .+? -->\s*$", re.M)
HEADERS = """# C++ headers

The <a href="../cpp/index.html">reference of all classes and functions</a> is made from the comments of the headers.
"""


def on_files(files, config):
    overview = files.get_file_from_path("README.md")  # docs/README.md, which index.md links to
    if overview is not None:
        files.remove(overview)
        files.append(File.generated(config, "overview.md", abs_src_path=overview.abs_src_path))
    for source, page in PAGES.items():
        wide = "---\nhide: [toc]\n---\n" if page == "index.md" else ""
        files.append(File.generated(config, page, content=wide + (ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/cpp.md", content=HEADERS))
    for name in ASSETS:
        files.append(File.generated(config, f"assets/{name}", content=(HERE / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    source = page.file.src_uri
    home = "." if source in PAGES.values() else posixpath.join("docs", posixpath.dirname(source))
    here = posixpath.dirname(source) or "."

    def relink(match):
        text, target, anchor = match[1], posixpath.normpath(posixpath.join(home, match[2])), match[3] or ""
        if target == "docs/README.md":
            to = "overview.md"
        elif target in PAGES:
            to = PAGES[target]
        elif target.startswith("docs/"):
            to = target.removeprefix("docs/")
        else:
            return text
        return f"[{text}]({posixpath.relpath(to, here)}{anchor})"

    markdown = LINK.sub(relink, MARKER.sub("", markdown))
    return markdown.replace("](docs/images/", "](images/")
