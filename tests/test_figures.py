"""A measured figure in the documents has the command that printed it and the date beside it, or a link to both.

A section inherits what the sections above it say: the introduction of the page, and the headings that contain it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNIT = r"(?:s|ms|min|minutes|seconds|hours|CPU seconds|MiB|MB|GB|kB|%|tasks/s|records/s|calls/s)"
FIGURE = re.compile(rf"\d[\d.,]* ?{UNIT}(?![\w/-])")
# Pages about figures: each of their figures counts. On other pages a figure counts beside a word of measuring.
MEASURED = {"measurements", "benchmarks", "drills", "simulations"}
MEASURING = re.compile(r"\b(?:measured|median|p50|p95|p99|on average|CPU seconds?|we saw|in our run|took)\b")
COMMAND = re.compile(
    r"(?m)^ *(?:\.venv\S*/bin/|make |python |edl |time |\$ )|`[^`\n]*(?:make |python -m |pytest |edl )"
)
DATE = re.compile(r"2026-\d\d-\d\d|\d+ November 2026")
LINK = re.compile(
    r"\]\((?:\.\./|docs/)*(?:measurements|benchmarks|simulations|drills|real-cluster|simulator|sandbox)\.md"
)
# Sections without a command or a date, and why.
EXCEPTIONS = {
    "docs/simulations.md": "virtual time from seeds: the same figures on every day; each table names its command",
}


@dataclass(frozen=True)
class Section:
    """A section with the text that its figures are judged by: its own and that of the sections that contain it."""

    page: str
    head: str
    text: str
    context: str

    def __str__(self) -> str:
        return f"{self.page}: {self.head}"


def sections(page: str, text: str) -> Iterator[Section]:
    """The sections of a page, in order; what is generated is left out."""
    text = re.sub(r"(?s)<!-- generated: .*?<!-- end: .*?-->", "", text)
    parts = re.split(r"(?m)^(#+) (.*)$", re.sub(r"(?ms)^```(\w+)\n(.*?)^```$", _without_headings, text))
    above: list[tuple[int, str]] = []
    for marks, head, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        above = [one for one in above if one[0] < len(marks)]
        yield Section(page, head, body, "\n".join([*(own for _, own in above), body]))
        above.append((len(marks), body))


def _without_headings(block: re.Match[str]) -> str:
    """A block of code without lines that look like headings, and without its output."""
    if block[1] in {"text", "json", "yaml", "mermaid"}:
        return ""
    return re.sub(r"(?m)^#.*$", "", block[2])


def figures(section: Section) -> list[str]:
    """The measured figures of a section."""
    statements = [one for one in re.split(r"(?<=[.:!?])\s+|\n\s*\n|\n(?=[|-] )", section.text) if FIGURE.search(one)]
    if Path(section.page).stem not in MEASURED:
        statements = [one for one in statements if MEASURING.search(one)]
    return statements


def unproved(page: str, text: str) -> list[str]:
    """The sections with a figure that has neither command and date nor a link to a page that has both."""
    found = (one for one in sections(page, text) if figures(one) and not LINK.search(one.text))
    bad = (one for one in found if not (COMMAND.search(one.context) and DATE.search(one.context)))
    return [f"{one}: {figures(one)[0]}" for one in bad if not {page, str(one)} & set(EXCEPTIONS)]


PAGES = sorted(
    page
    for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
    if not page.is_relative_to(ROOT / "docs" / "reference")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_measured_figure_has_its_command_and_its_date(page: Path) -> None:
    assert unproved(str(page.relative_to(ROOT)), page.read_text()) == []


def test_every_exception_is_in_use() -> None:
    for exception in EXCEPTIONS:
        page, _, head = exception.partition(": ")
        assert any(figures(one) and head in {"", one.head} for one in sections(page, (ROOT / page).read_text()))


@pytest.mark.parametrize(
    ("text", "is_proved"),
    [
        ("# A\n\nIt took 3 s.\n", False),
        ("# A\n\nIt took 3 s (`make demo`).\n", False),
        ("# A\n\nIt took 3 s (`make demo`, 2026-11-23).\n", True),
        ("# A\n\nIt took 3 s ([measured](measurements.md#a)).\n", True),
        ("# A\n\n`make demo`, 2026-11-23:\n\n## B\n\nIt took 3 s.\n", True),
        ("# A\n\n## B\n\n`make demo`, 2026-11-23.\n\n## C\n\nIt took 3 s.\n", False),
        ("# A\n\n| the median | 3 s |\n", False),
        ("# A\n\nA job waits for at most 30 s.\n", True),
        ("# A\n\n```text\nit took 3 s\n```\n", True),
    ],
)
def test_a_figure_without_its_proof_is_found(text: str, is_proved: bool) -> None:
    assert (unproved("docs/page.md", text) == []) is is_proved
