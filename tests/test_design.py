"""The design pages: few, each with the same parts, all in their index, and about modules and names that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = ROOT / "docs" / "design"
PAGES = sorted(page for page in DESIGN.glob("*.md") if page.name != "README.md")
MOST_PAGES = 25
PARTS = ["Context", "Decision", "Alternatives that lost", "Consequences"]
# Names of other programs.
FOREIGN = {"CliApp", "LD_PRELOAD", "PR_SET_PDEATHSIG", "ProvisioningRequest", "ScalingDisabled"}
# The former way to name a decision: by the number of a record.
NUMBERED = re.compile(r"\bADR[- ]?\d|docs/adr\b|\badr/\d")
CODE = "\n".join(path.read_text() for path in (ROOT / "edl").rglob("*.py"))


def name_of(page: Path) -> str:
    return page.name


def spans(page: Path) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", page.read_text()))


def test_there_are_few_pages() -> None:
    assert 0 < len(PAGES) <= MOST_PAGES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_its_parts_in_their_order(page: Path) -> None:
    text = page.read_text()
    assert re.match(r"# .+\n\nStatus: .+", text)
    assert re.findall(r"(?m)^## (.*)$", text) == PARTS


def test_the_index_names_each_page_once() -> None:
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", (DESIGN / "README.md").read_text())) == [p.name for p in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_modules_and_names_of_a_page_exist(page: Path) -> None:
    files = {
        span for span in spans(page) if re.fullmatch(r"(?:edl|tests|tools|docs|example|requirements)/[\w./-]+", span)
    }
    assert {file for file in files if not (ROOT / file).exists()} == set()
    names = {span for span in spans(page) if re.fullmatch(r"[A-Z]+_[A-Z_]+|[A-Z][a-z]+[A-Z]\w+|\w+_\w+", span)}
    assert {name for name in names - FOREIGN if not re.search(rf"\b{name}\b", CODE)} == set()


def test_nothing_names_a_decision_by_a_number() -> None:
    folders = ("benchmarks", "docs", "edl", "example", "tests", "tools")
    texts = [path for folder in folders for kind in ("*.md", "*.py") for path in (ROOT / folder).rglob(kind)]
    texts += [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.yml"), ROOT / "Makefile"]
    found = {str(path.relative_to(ROOT)) for path in texts if NUMBERED.search(path.read_text())}
    assert found - {"tests/test_design.py"} == set()
