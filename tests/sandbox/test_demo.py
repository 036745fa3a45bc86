"""The demonstration of the sandbox, from its start to its end."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edl.kube.client.session import ApiSession
from edl.ledger.audit import EpochAudit
from edl.master.journal_audit import AuditReport
from edl.sandbox.demo import Account, Demo, audit_line, demo_jobs, summary, why_slow
from edl.sandbox.kubelet.kubelet import Kubelet
from edl.sandbox.view.live import View
from edl.sandbox.view.picture import JOB, ROLE
from tests.sandbox.sandboxes import launch, leftovers

Object = dict[str, Any]
JOURNAL = Path(__file__).parents[1] / "master" / "journals" / "before-the-move"


@pytest.mark.timeout(1300)
def test_it_trains_two_jobs_through_kills_and_serving_and_prints_what_happened(tmp_path: Path) -> None:
    process = launch(tmp_path, "--demo")
    code, text = process.wait(1200), (tmp_path / "out").read_text()
    assert code == 0, (tmp_path / "err").read_text() + text
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

    assert epochs(1) == epochs(2) == [5, 3]
    assert epochs(8) == [20, 12]
    assert epochs(64) == epochs(8)


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


def test_a_demonstration_that_was_cut_short_is_not_said_to_have_bad_results() -> None:
    cut = account(None, None)
    lines = summary(cut, 10.0, is_whole=False)
    assert cut.problems == []
    assert "serving pods were missing for 4.2 pod-seconds in all" in lines


def test_a_step_that_took_too_long_is_blamed_on_a_busy_machine_only_if_it_is_busy() -> None:
    assert why_slow(9.0, 2) == "this machine is busy (load 9.0 on 2 cores); try again when it is not"
    assert "busy" not in why_slow(2.0, 2)


def test_the_records_that_came_back_are_read_from_the_journals_of_the_job(tmp_path: Path) -> None:
    """The journal has ten records that were leased and came back; the other folder is another job's."""
    claims = tmp_path / "claims" / "default"
    shutil.copytree(JOURNAL, claims / "flights-journal-1")
    shutil.copytree(JOURNAL, claims / "late-journal-1")
    kubelet = cast("Kubelet", SimpleNamespace(host=SimpleNamespace(folder=tmp_path)))
    demo = Demo(cast("ApiSession", None), kubelet, cast("View", None))
    assert demo.returned("flights") == 10
    assert demo.returned("other") == 0


class Pods:
    def get(self, _namespace: str, name: str) -> Object:
        return {"metadata": {"name": name}}


class Training:
    """A job whose master can be killed: `after` says whether it is then ready again or the job ends."""

    def __init__(self, *, phase: str = "Running", after: str = "") -> None:
        self.phase, self.after, self.kills = phase, after, 0
        self.record = SimpleNamespace(restarts=0, is_ready=True)
        self.seconds = 0.0

    def picture(self) -> SimpleNamespace:
        return SimpleNamespace(jobs=[SimpleNamespace(name="flights", phase=self.phase)])

    def __getitem__(self, _kind: str) -> Pods:
        return Pods()

    def say(self, _text: str) -> None:
        pass

    def container(self, _namespace: str, _pod: str, _name: str) -> Training:
        return self

    async def kill(self) -> None:
        self.kills += 1
        self.record.is_ready = False
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.after == "ended":
            self.phase = "Succeeded"
        else:
            self.record.restarts, self.record.is_ready = 1, True


@pytest.mark.parametrize(
    ("training", "kills", "note"),
    [
        (Training(after="ready"), 1, "flights: its master was ready again 0.0 s after it was killed"),
        (Training(after="ended"), 1, "flights: it ended while its master was killed"),
        (Training(phase="Succeeded"), 0, "flights: it ended before its master could be killed"),
    ],
    ids=["ready again", "ended meanwhile", "ended before"],
)
async def test_a_job_that_ends_needs_no_master_again(training: Training, kills: int, note: str) -> None:
    demo = Demo(cast("ApiSession", None), cast("Kubelet", training), cast("View", training))
    await demo.kill_master("flights")
    assert (training.kills, demo.account.notes, demo.account.problems) == (kills, [note], [])


class Trainers:
    """Three running trainers; one that is killed loses what `leased` says, unless it had just reported it."""

    def __init__(self, leased: dict[str, int], reported: set[str]) -> None:
        self.leased, self._reported = Counter(leased), reported
        self.redispatched, self.killed, self.seconds = 0, list[str](), 0.0
        self.host = SimpleNamespace(folder=Path("/nowhere"))

    def picture(self) -> SimpleNamespace:
        return SimpleNamespace(jobs=[SimpleNamespace(name="flights", phase="Running")])

    def __getitem__(self, _kind: str) -> list[Object]:
        labels = {JOB: "flights", ROLE: "trainer"}
        names = [f"flights-trainer-{number}" for number in range(3)]
        return [{"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}} for name in names]

    def say(self, _text: str) -> None:
        pass

    def container(self, _namespace: str, pod: str, _name: str) -> SimpleNamespace:
        async def kill() -> None:
            self.killed.append(pod)
            held = self.leased.pop(pod)
            self.redispatched += 0 if pod in self._reported else held

        return SimpleNamespace(kill=kill)

    def report(self, _job: str) -> list[AuditReport]:
        return [AuditReport((EpochAudit(epoch=0, total=10, redispatched=self.redispatched),), (), None, self.leased)]


@pytest.mark.parametrize(
    ("leased", "reported", "killed", "again"),
    [
        ({"flights-trainer-1": 40, "flights-trainer-2": 7}, set[str](), ["flights-trainer-1"], 40),
        (
            {"flights-trainer-1": 40, "flights-trainer-2": 7},
            {"flights-trainer-1"},
            ["flights-trainer-1", "flights-trainer-2"],
            7,
        ),
    ],
    ids=["held records", "had just reported them"],
)
async def test_a_trainer_that_holds_records_is_killed(
    monkeypatch: pytest.MonkeyPatch, leased: dict[str, int], reported: set[str], killed: list[str], again: int
) -> None:
    world = Trainers(leased, reported)
    demo = Demo(cast("ApiSession", None), cast("Kubelet", world), cast("View", world))
    monkeypatch.setattr("edl.sandbox.demo._SETTLE_S", 0.0)
    monkeypatch.setattr(demo, "audits", world.report)
    await demo.kill_trainers("flights")
    note = f"flights: a trainer was killed; {again} records that it held are dispatched again"
    assert (world.killed, demo.account.notes, demo.account.problems) == (killed, [note], [])
