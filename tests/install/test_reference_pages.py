"""The generated pages of conditions, HTTP and JSON: up to date, and complete."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edl.cli.main import main
from edl.install.json_reference import AUDIT, COMMANDS, EXPLAIN, PLAN, REPLAY, Fields, fields_of, json_page
from edl.install.reference import pages
from edl.install.reference_pages import conditions_page, http_page
from edl.ledger.audit import EpochAudit
from edl.master.journal_audit import AuditReport, audit_json
from edl.model.status import Reason
from edl.observability.replay import Difference, Replay, Verdict, replays_json
from edl.shadow.document import Report

ROOT = Path(__file__).parents[2]
STORED = sorted((ROOT / "tests" / "explain").glob("*/*.output.json"))
# Their keys are names: of nodes, pods, stages, trainers, results.
NAMED = {"nodes": "<node>", "moves": "<pod>", "stages": "<stage>", "by": "<trainer>", "summary": "<result>"}
SOURCES = (
    "explain/best_possible.py",
    "explain/plan_table.py",
    "explain/whatif.py",
    "explain/job_text.py",
    "explain/speeds/lines.py",
    "explain/node_asks.py",
    "explain/tiers.py",
    "observability/replay.py",
    "master/journal_audit.py",
)


def paths(value: object, path: str = "") -> Iterator[str]:
    """Every path of a JSON value as the page writes it; null and empty values end a path."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            name = NAMED.get(path.rpartition(".")[2], str(key))
            yield from paths(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from paths(inner, f"{path}[]")
    else:
        yield path


def undeclared(value: object, fields: Fields) -> list[str]:
    """The paths of a value that the page lacks; one that ends early is there if the page has a longer one."""
    known = {path for path, _ in fields}
    found = (one for one in set(paths(value)) - known if not any(k.startswith((f"{one}.", f"{one}[")) for k in known))
    return sorted(found)


@pytest.mark.parametrize("page", pages())
def test_the_page_in_the_repository_is_up_to_date(page: str) -> None:
    assert (ROOT / page).read_text() == pages()[page], "run `make generate`"


def test_every_reason_of_a_count_has_a_row_with_a_remedy() -> None:
    of_counts = conditions_page().partition("## Condition `Degraded`")[0]
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.+) \| (.+) \|$", of_counts)
    assert {reason for reason, meaning, remedy in rows if meaning and remedy} == {reason.value for reason in Reason}


def test_every_body_that_a_call_names_has_a_section() -> None:
    page = http_page()
    named = set(re.findall(r"\[(\w+)\]\(#\w+\)", page))
    assert {"SyncBody", "SyncAnswer"} <= named
    assert named <= set(re.findall(r"(?m)^#### (\w+)$", page))


@pytest.mark.parametrize("file", STORED, ids=lambda file: file.name)
def test_the_page_has_every_field_that_a_plan_prints(file: Path) -> None:
    value = json.loads(file.read_text())
    assert undeclared(value if file.parent.name == "plan" else {"changes": value}, PLAN) == []


@pytest.mark.parametrize(
    ("cluster", "job", "policy"), [("two-nodes", "ctr", "maxmin"), ("goodput", "tagger", "goodput")]
)
def test_the_page_has_every_field_that_explain_prints(
    cluster: str, job: str, policy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "docs" / "how-to" / f"{cluster}.yaml")
    command = ["edl", "explain", job, "-n", "ads", "-f", file, "-o", "json", "--policy", policy]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    printed = json.loads(capsys.readouterr().out)
    assert undeclared(printed, EXPLAIN) == []
    assert {re.split(r"[.\[]", path)[0] for path, _ in EXPLAIN} == set(printed)


def test_the_page_has_every_field_that_replay_prints() -> None:
    replays = (Replay("decision-1.json", Verdict.DIFFERENT, None, (Difference("ads/ctr", "target", 1, 3),)),)
    assert undeclared(json.loads(replays_json(replays)), REPLAY) == []


def test_the_page_has_every_field_that_an_audit_prints() -> None:
    report = AuditReport(epochs=(EpochAudit(epoch=0, total=4, done=3, quarantined=[(0, 1)]),), problems=("one",))
    assert undeclared(json.loads(audit_json(report)), AUDIT) == []


def test_the_page_has_no_field_that_no_command_prints() -> None:
    sources = "".join((ROOT / "edl" / name).read_text() for name in SOURCES)
    keys = {key for fields in COMMANDS.values() for path, _ in fields for key in re.findall(r"[A-Za-z]+", path)}
    names = {name.strip("<>") for name in NAMED.values()}
    assert sorted(key for key in keys - names if f'"{key}"' not in sources) == []


def test_the_page_has_every_field_of_the_report_of_edl_shadow() -> None:
    schema = Report.model_json_schema(by_alias=True)
    parts = [schema, *(part for part in schema["$defs"].values() if "properties" in part)]
    fields = [(name, about) for part in parts for name, about in part["properties"].items()]
    wanted = {name for name, about in fields if "$ref" not in about}
    described = {re.sub(r"\[\]|\.<name>", "", path).rpartition(".")[2] for path, _ in fields_of(Report)}
    assert wanted <= described <= {name for name, _ in fields}
    page = json_page()
    assert "| `evictions.served[].outcome` |" in page
    assert "| `gain.servingWaiting.low` |" in page
    assert "| `unknown.kinds.<name>` |" in page
