"""No document, docstring, comment or message uses a private word: each has a term of the field that says the same."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAY_INSTEAD = {
    r"rooms?": "capacity, free capacity, or slot (one trainer's worth on one node)",
    r"(?:make|makes|made|making|give|gives|gave|giving) way": "evict, delete, or yield to",
    r"(?:make|makes|made|making) (?:no |more )?room": "free capacity",
    r"gifts?|relief": "eviction ahead of the plan",
    r"seated": "bound",
    r"on (?:their|its) way out": "terminating",
    r"settles?": "debounce, decide or place, whichever it is",
    r"owes?|owed|debts?": "budget, or the amount that is still allowed",
    r"outdated": "stale (of an older snapshot) or superseded (by a newer plan)",
    r"handed back": "superseded",
    r"given up": "evicted, cancelled, or considered lost",
    r"hopeless": "infeasible alone",
    r"levelled": "rebalanced",
    r"reallocations?": "rebalance, or transfer for a single trainer",
    r"(?:place|placed|places|placing|pack|packed|packs|packing) anew": "repack",
    r"aside": "deferred trainers, odd shapes, or skipped objects",
    r"is promised": "fair share",
    r"have their say|has its say": "is called",
    r"the house|holds the walls": "the code, the contracts of the packages",
}
# What may hold such a word: a name that users know, a parameter in a docstring, or a quotation of others.
NOT_PROSE = re.compile(
    r"`[^`\n]*`"  # code
    r"|\]\([^)]*\)"  # the target of a link
    r"|^ +(?:promised|rooms?): ",  # a parameter of a docstring
    re.MULTILINE,
)
PAGES = [
    *(page for page in sorted((ROOT / "docs").rglob("*.md"))),
    *(page for page in sorted(ROOT.glob("*.md")) if page.name != "CHANGELOG.md"),
]
PACKAGES = sorted(path for path in (ROOT / "edl").iterdir() if path.name != "__pycache__" and path.suffix != ".toml")


def private_words(text: str) -> list[str]:
    """Each private word of a text, with what to say instead."""
    prose = NOT_PROSE.sub(" ", text)
    return [
        f"{' '.join(prose[max(0, found.start() - 40) : found.end() + 20].split())}: "
        f"for {found.group()!r} say {instead}"
        for word, instead in SAY_INSTEAD.items()
        for found in re.finditer(rf"(?<![-\w])(?:{word})(?![-\w])", prose, re.IGNORECASE)
    ]


def prose_of_page(text: str) -> str:
    """A page of Markdown without its blocks of code."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", text)


def prose_of_module(source: str) -> Iterator[str]:
    """The comments of a module, and its texts of more than one word; `X` for each expression of an f-string."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    # By their values: which tokens an f-string has depends on the version of Python.
    yield from (text for text in texts_below(ast.parse(source)) if " " in text)


def texts_below(node: ast.AST) -> Iterator[str]:
    """Each text of a module; an f-string is one text."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from texts_below(child)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_private_word(page: Path) -> None:
    assert private_words(prose_of_page(page.read_text())) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_has_no_private_word(package: Path) -> None:
    modules = [package] if package.suffix == ".py" else sorted(package.rglob("*.py"))
    found = {
        str(module.relative_to(ROOT)): words
        for module in modules
        if (words := [word for prose in prose_of_module(module.read_text()) for word in private_words(prose)])
    }
    assert found == {}


@pytest.mark.parametrize(
    "word", ["room", "Rooms", "makes way", "gift", "given up", "placed anew", "outdated", "aside"]
)
def test_a_private_word_is_found_in_prose(word: str) -> None:
    (found,) = private_words(f"Here {word} stands.")
    assert f"for {word!r} say " in found
    assert list(prose_of_module(f'"""What a {word} is."""\n')) == [f"What a {word} is."]
    assert private_words(prose_of_page(f"Text.\n\n- {word}\n"))


def test_names_code_and_quotations_are_no_prose() -> None:
    assert private_words("`room` and [why](room.md#aside), headroom, ServingNeedsRoom, make_room, room-maker") == []
    assert private_words("    Args:\n        room: (nodes,) what is free.\n") == []
    assert private_words(prose_of_page("```text\nno room\n```\n")) == []
    assert [*prose_of_module('x = f"a b {room.free} c"\nroom = 1\n')] == ["a b X c"]
