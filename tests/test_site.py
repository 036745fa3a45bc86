"""Every document is in the navigation of the site, which fits one screen, and every entry of it is a document."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Pages that the hooks of the site add: the repository's own files.
FROM_THE_ROOT = {"index.md"} | {page.name for page in ROOT.glob("*.md")}

MOST_TABS, MOST_OF_A_TAB = 6, 16


def navigation() -> list[str]:
    """The pages that mkdocs.yml names, in their order; it is no plain YAML, so it is read as text."""
    listed = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"(?m)([\w./-]+\.md)$", listed)


def test_no_document_is_an_orphan() -> None:
    documents = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    figures = set(re.findall(r"\]\((\w+\.md)", (ROOT / "docs" / "figures.md").read_text()))
    listed_by_their_index = {page for page in documents if page.startswith("design/")} | figures
    assert documents - listed_by_their_index - set(navigation()) == set()


def test_the_navigation_names_each_page_once_and_no_missing_one() -> None:
    pages = navigation()
    assert len(pages) == len(set(pages)) > 20
    assert [page for page in pages if page not in FROM_THE_ROOT and not (ROOT / "docs" / page).is_file()] == []


def test_each_tab_of_the_navigation_fits_one_screen() -> None:
    tabs = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].split("\n- ")
    assert len(tabs) <= MOST_TABS
    assert {tab.partition(":")[0]: tab.count("\n  - ") for tab in tabs if tab.count("\n  - ") > MOST_OF_A_TAB} == {}
