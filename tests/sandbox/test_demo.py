"""The demonstration of the sandbox, from its start to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edl.ledger.audit import EpochAudit
from edl.master.journal_audit import AuditReport
from edl.sandbox.demo import Account, audit_line, demo_jobs, summary
from tests.sandbox.sandboxes import launch, leftovers


@pytest.mark.timeout(1300)
def test_it_trains_two_jobs_through_kills_and_serving_and_prints_what_happened(tmp_path: Path) -> None:
    process = launch(tmp_path, "--demo")
    assert process.wait(1200) == 0, (tmp_path / "err").read_text()
    text = (tmp_path / "out").read_text()
    assert text.startswith("KUBECONFIG=")
    for job in ("flights", "late"):
        assert float(re.findall(rf"{job}: AUC (\d\.\d+) on held-out", text)[0]) > 0.7
        assert re.search(rf"{job}: audit ok: (\d+) of \1 records", text)
    assert "is killed with SIGKILL" in text
    assert int(re.findall(r"flights: audit ok: .*; (\d+) were dispatched again", text)[0]) > 0
    assert re.search(r"flights: a trainer was killed; [1-9]\d* records that it held are dispatched again", text)
    assert re.search(r"serving +[▁▂▃▄▅▆▇█ ]+ 5 at most", text)
    assert (tmp_path / "err").read_text() == ""
    assert leftovers(tmp_path) == []


def test_more_cores_train_more_epochs() -> None:
    def epochs(cores: int) -> list[int]:
        return [job["spec"]["trainer"]["passes"] for job in demo_jobs(cores)]

    assert epochs(1) == epochs(2) == [3, 2]
    assert epochs(8) == [12, 8]
    assert epochs(64) == epochs(14) == [21, 14]


def account(report: AuditReport | None, score: float | None) -> Account:
    made = Account(trainers={"a": [(0.0, 2), (5.0, 4)]}, serving=[(1.0, 3)], short=4.25)
    made.scores = {"a": score} if score is not None else {}
    made.audits = {"a": report} if report is not None else {}
    return made


def epoch() -> EpochAudit:
    return EpochAudit(epoch=0, total=10, done=10, redispatched=2)


def test_the_summary_tells_shortfall_trainers_quality_and_audit() -> None:
    good = account(AuditReport((epoch(),), ()), 0.78)
    lines = summary(good, 10.0)
    assert good.problems == []
    assert "serving pods were missing for 4.2 pod-seconds in all" in lines
    assert any("4 at most" in line for line in lines)
    assert "a: AUC 0.7800 on held-out flights (0.5 is chance)" in lines
    assert audit_line("a", AuditReport((epoch(),), ())) in lines


def test_a_bad_model_and_a_bad_or_missing_journal_are_problems() -> None:
    for bad in (
        account(AuditReport((epoch(),), ()), 0.6),
        account(AuditReport((epoch(),), ()), None),
        account(AuditReport((epoch(),), ("a position is lost",)), 0.78),
        account(None, 0.78),
    ):
        summary(bad, 10.0)
        assert len(bad.problems) == 1
