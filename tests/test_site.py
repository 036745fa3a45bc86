"""Every document is in the navigation of the site, and every entry of the navigation is a document."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Pages that the hooks of the site add: the repository's own files, and the design records.
FROM_THE_ROOT = {"index.md"} | {page.name for page in ROOT.glob("*.md")}


def navigation() -> list[str]:
    """The pages that mkdocs.yml names, in their order; it is no plain YAML, so it is read as text."""
    listed = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"(?m)([\w./-]+\.md)$", listed)


def test_no_document_is_an_orphan() -> None:
    documents = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in documents if not page.startswith("adr/")} - set(navigation()) == set()


def test_the_navigation_names_each_page_once_and_no_missing_one() -> None:
    pages = navigation()
    assert len(pages) == len(set(pages)) > 20
    assert [page for page in pages if page not in FROM_THE_ROOT and not (ROOT / "docs" / page).is_file()] == []
