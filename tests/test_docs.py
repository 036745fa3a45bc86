"""The documents say what is so: generated tables are fresh, links lead somewhere, messages are the real ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edl.install.reference import filled_in, tables
from edl.lifecycle.pod_events import rerun_reason
from edl.model.actions import Intent
from edl.model.names import Role
from edl.model.status import JobPhase, Reason

ROOT = Path(__file__).parents[1]
DOCUMENTS = (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
# Where the words are made that a user reads as a reason.
SPEAKERS = (
    "lifecycle/conditions.py",
    "lifecycle/job_events.py",
    "lifecycle/status.py",
    "lifecycle/desired_state.py",
    "lifecycle/job_end.py",
    "lifecycle/pod_events.py",
    "lifecycle/data_progress.py",
    "controller/job_writes.py",
    "kube/outcomes.py",
    "kube/writer.py",
)
NO_REASONS = {
    *(phase.value for phase in JobPhase),
    *("Admitted", "Resizing", "Degraded", "Complete", "True", "False", "Waiting"),  # conditions and stages
    *("PreemptionByScheduler", "TrainingJob", "Pod", "Conflict", "Unavailable", "NotLeader"),
    *("RunsAgain", "Background", "Error", "Http"),
}


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def text_blocks(document: Path) -> str:
    """What stands in the blocks of plain text."""
    return "\n".join(re.findall(r"(?ms)^```text\n(.*?)^```", document.read_text()))


def anchors(document: Path) -> set[str]:
    """The headings of a document as a link names them."""
    heads = re.findall(r"(?m)^#+ (.*)$", document.read_text())
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def spoken(file: Path) -> Iterator[str]:
    """Every text in a module; of one with values in it, the pieces between them."""
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("document", sorted((ROOT / "docs").glob("*.md")), ids=name_of)
def test_generated_tables_are_up_to_date(document: Path) -> None:
    assert filled_in(document.read_text()) == document.read_text(), "run `make generate`"


def test_every_table_stands_in_some_document() -> None:
    marked = re.findall(r"<!-- generated: (.*) -->", "".join(d.read_text() for d in DOCUMENTS))
    assert sorted(marked) == sorted(tables())


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", document.read_text())
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("document", sorted((ROOT / "docs" / "reviews").glob("*.md")), ids=name_of)
def test_a_review_names_tests_that_exist(document: Path) -> None:
    for path, test in set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text())):
        file = ROOT / path
        assert file.exists(), path
        assert re.search(rf"^(async )?def {test}\(", file.read_text(), re.MULTILINE), f"{path}::{test}"


def test_every_reason_is_explained() -> None:
    explained = set(re.findall(r"`([A-Z][A-Za-z]+)(?:/\w+)?`", (ROOT / "docs/reference/conditions.md").read_text()))
    words = {*Reason, *Intent, *map(rerun_reason, Role)}
    for speaker in SPEAKERS:
        words |= {text for text in spoken(ROOT / "edl" / speaker) if re.fullmatch(r"(?:[A-Z][a-z]+)+", text)}
    assert {"BackoffLimitExceeded", "NameTaken", "PriorityClassMissing", "Restarting"} <= words
    assert {str(word) for word in words} - NO_REASONS - explained == set()


def test_quoted_messages_are_the_real_ones() -> None:
    texts = {text for file in (ROOT / "edl").rglob("*.py") for text in spoken(file)}
    quoted = text_blocks(ROOT / "docs/troubleshooting.md").splitlines()
    pieces = {piece for line in quoted for piece in re.split(r"<[^>]*>", line) if len(piece.strip()) > 2}
    assert len(pieces) > 30
    assert sorted(piece for piece in pieces if not any(piece in text for text in texts)) == []
