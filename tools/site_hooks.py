"""Hooks of mkdocs: the site is made of the files where they are, with links that stay inside it.

The front page is README.md. Pages of the repository's root and the examples that documents link to are part of the
site under their own names. mkdocs checks links and anchors; `on_post_page` refuses what a browser would fetch from
another host, so that the site works offline and informs nobody of its readers.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LOG = logging.getLogger("mkdocs.site_hooks")
ROOT = Path(__file__).parents[1]
FRONT = "index.md"
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)")
FENCE = re.compile(r" *```")
ITEM = re.compile(r"( *)([-*]|\d+\.) +")
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*\shref=[\"']?(?:https?:)?//[^>]*stylesheet"
)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages and files outside docs/ that the documents link to."""
    found: set[str] = set()
    queue = ["README.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    while queue:
        source = queue.pop()
        if source.endswith(".md"):
            targets = {target for target in _targets(source) if not target.startswith("docs/")} - found
            found |= targets
            queue += sorted(targets)
    for path in sorted(found | {"README.md"}):
        if (ROOT / path).is_file():
            files.append(File.generated(config, _site_path(path), content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite the links of a page, and indent its lists as Python-Markdown expects."""
    source = _source_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        return posixpath.relpath(_site_path(path), here or ".")

    return _indented(_outside_code(markdown, lambda line: LINK.sub(rewritten, line)))


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Warn of what a browser would fetch from another host; a strict build fails then."""
    for found in FETCHED.findall(output):
        LOG.warning("%s fetches from another host: %s", page.file.src_uri, found)
    return output


def _site_path(path: str) -> str:
    """Where a file of the repository is in the site."""
    return FRONT if path == "README.md" else path.removeprefix("docs/")


def _source_path(path: str) -> str:
    """Where a page of the site is in the repository."""
    if path == FRONT:
        return "README.md"
    return path if (ROOT / path).exists() else f"docs/{path}"


def _targets(source: str) -> set[str]:
    folder = posixpath.dirname(source)
    text = re.sub(r"(?ms)^ *```.*?^ *```$|`[^`\n]*`", "", (ROOT / source).read_text())
    return {posixpath.normpath(posixpath.join(folder, target)) for target in LINK.findall(text)}


def _outside_code(markdown: str, change: Any) -> str:
    fenced, lines = False, []
    for line in markdown.split("\n"):
        fenced ^= bool(FENCE.match(line))
        lines.append(line if fenced else change(line))
    return "\n".join(lines)


def _indented(markdown: str) -> str:
    """Lists whose continued lines have four columns for each level, however wide the marker is."""
    marker, fenced, lines = 0, False, []
    for line in markdown.split("\n"):
        item = ITEM.match(line)
        inside = line.startswith(" " * marker) if marker else False
        if item and not fenced and not item[1]:
            marker = len(item[0])
        elif line and not inside and not fenced:
            marker = 0
        shift = 4 - marker if marker and line and not (item and not item[1]) and 0 < marker < 4 else 0
        already = line.startswith("    ") and bool(item) and not fenced
        fenced ^= bool(FENCE.match(line))
        lines.append(line if already else " " * shift + line)
    return "\n".join(lines)
