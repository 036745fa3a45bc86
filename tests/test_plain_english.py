"""The documents stay easy to read: no sentence is too long, and most are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parents[1]
LONGEST = 30
MEAN = 15.0
# Documents that no one rewrites, and why.
EXCEPTIONS = {
    "docs/adr": "a record keeps the words in which the decision was made",
    "docs/reference": "the pages are generated from help texts, which have checks of their own",
}
PAGES = sorted(
    page
    for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
    if page.name != "CHANGELOG.md" and not any(page.is_relative_to(ROOT / folder) for folder in EXCEPTIONS)
)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items as plain words; no code blocks, comments, tables, headings or pictures."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "", text)
    for block in re.split(r"\n\s*\n|\n(?= *[-*] | *\d+\. |[|#>])", prose):
        words = block.strip()
        if not words or words.startswith(("|", "#", "![", "<")):
            continue
        words = re.sub(r"`[^`]*`", "X", words)
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", words)
        yield re.sub(r"^[-*] |^\d+\. ", "", " ".join(words.split()))


def sentences(text: str) -> list[tuple[int, str]]:
    """Each sentence with its number of words; a code span counts as one word, a sign by itself as none."""
    parts = (part for words in paragraphs(text) for part in re.split(r"(?<=[.!?])\s+", words))
    counted = ((sum(bool(re.search(r"\w", word)) for word in part.split()), part) for part in parts)
    return [(words, part) for words, part in counted if words]


def too_long(text: str) -> list[str]:
    """The sentences of a text that are longer than the limit, the longest first."""
    return [f"{words} words: {part}" for words, part in sorted(sentences(text), reverse=True) if words > LONGEST]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_too_long(page: Path) -> None:
    assert too_long(page.read_text()) == []


def test_sentences_are_short_on_average() -> None:
    lengths = [words for page in PAGES for words, _ in sentences(page.read_text())]
    assert len(lengths) > 1000
    assert fmean(lengths) < MEAN


def test_every_exception_is_in_use() -> None:
    assert all(list((ROOT / folder).rglob("*.md")) for folder in EXCEPTIONS)


def test_a_long_sentence_is_found_wherever_it_stands() -> None:
    long = " ".join(["word"] * 31) + "."
    just = " ".join(["word"] * 30) + "."
    for before in ("", "- ", "1. ", "Short.\n\n", "Short. ", "- one\n- ", "- one\n    - ", "```sh\nls\n```\n\n"):
        assert [line[:9] for line in too_long(f"{before}{long}\n")] == ["31 words:"], before
        assert too_long(f"{before}{just}\n") == [], before


def test_what_is_no_prose_is_not_counted() -> None:
    many = " ".join(["word"] * 40)
    assert (
        sentences(f"```text\n{many}\n```\n\n| {many} |\n|---|\n\n# {many}\n\n<!-- {many} -->\n\n![{many}](x.svg)\n")
        == []
    )
    assert sentences(f"Use `{many}` here - [twice](https://example.org/a.b?c=d).") == [(4, "Use X here - twice.")]
