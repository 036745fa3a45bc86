"""The pictures are those that the source draws, say in words what they show, and need nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import pictures

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_a_picture_is_up_to_date(name: str) -> None:
    assert (pictures.IMAGES / name).read_text() == pictures.PICTURES[name]().svg(), "run `make pictures`"


def test_no_picture_is_left_that_nothing_draws() -> None:
    assert {file.name for file in pictures.IMAGES.glob("*.svg")} == set(pictures.PICTURES)


@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_a_picture_has_words_and_colours_for_dark_screens(name: str) -> None:
    drawn = pictures.PICTURES[name]().svg()
    root = ElementTree.fromstring(drawn)  # noqa: S314 - drawn by this repository
    assert root.get("aria-labelledby") == "title description"
    assert all(len(root.findtext(f"{SVG}{part}") or "") > 10 for part in ("title", "desc"))
    assert "prefers-color-scheme: dark" in drawn
    assert re.findall(r"(?:href|src|url)[=(]['\"]?http", drawn) == []


def test_every_picture_is_in_a_document_with_a_text_beside_it() -> None:
    root = Path(pictures.ROOT)
    documents = "".join(page.read_text() for page in (*(root / "docs").rglob("*.md"), root / "README.md"))
    shown = {Path(path).name: words for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]*\.svg)\)", documents)}
    assert {name: len(shown.get(name, "")) > 20 for name in pictures.PICTURES} == dict.fromkeys(
        pictures.PICTURES, True
    )


def test_the_serving_picture_shows_the_measured_levels() -> None:
    assert [pods for pods, _ in pictures.measured()] == [100, 200, 300, 400, 300, 200, 100]
