"""Recorded decisions, replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edl.errors import ConfigError, PlanError, PlanFailure
from edl.explain.decision import decide
from edl.lifecycle.desired_state import as_planned
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, SharingLimits
from edl.model.plan import KeptColumns, ScalePlan
from edl.model.status import Reason
from edl.observability.decision_records import DecisionRecord, RecordFolder, decode_record
from edl.observability.replay import Verdict, differences, exit_code, recompute, replay, replay_all, replays_json
from edl.planner.fallback import without_growth
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for


def world(now_s: float = 1000.0) -> ClusterSnapshot:
    jobs = (make_job("a", trainers=8, max_trainers=8, on=("n000",)), make_job("b", max_trainers=8))
    snapshot = make_snapshot(make_nodes(2), jobs, (make_serving("web", cpu=3),), now_s=now_s)
    return replace(snapshot, jobs=tuple(as_planned(job) for job in snapshot.jobs))


def recorded(folder: Path, *, now_s: float = 1000.0, plan: ScalePlan | None = None, policy: str = "maxmin") -> Path:
    snapshot = world(now_s)
    made = plan or plan_for(snapshot, policy=policy)
    return RecordFolder(folder).write(DecisionRecord(policy, Limits(), snapshot, made))


@pytest.mark.parametrize("policy", ["maxmin", "static-min"])
def test_a_record_gives_the_same_decision_again(tmp_path: Path, policy: str) -> None:
    one = replay(recorded(tmp_path, policy=policy))
    assert (one.verdict, one.differences, one.reworded) == (Verdict.SAME, (), 0)
    assert exit_code((one,)) == 0


def test_limits_are_part_of_the_record(tmp_path: Path) -> None:
    limits, snapshot = Limits(sharing=SharingLimits(max_load_desired=0.5)), world()
    path = RecordFolder(tmp_path).write(DecisionRecord("maxmin", limits, snapshot, plan_for(snapshot, limits)))
    assert replay(path).verdict is Verdict.SAME


def test_a_different_decision_is_named_job_by_job(tmp_path: Path) -> None:
    plan = plan_for(world())
    old = decision_of(plan, "b")
    changed = replace(old, target=old.target + 1, nodes=(("n009", 2),), reason=Reason.PINNED)
    decisions = tuple(changed if d is old else d for d in plan.decisions)
    one = replay(recorded(tmp_path, plan=replace(plan, decisions=decisions)))
    assert one.verdict is Verdict.DIFFERENT
    assert [(d.job, d.field, d.recorded, d.now) for d in one.differences] == [
        ("default/b", "target", old.target + 1, old.target),
        ("default/b", "reason", Reason.PINNED, old.reason),
        ("default/b", "nodes", (("n009", 2),), old.nodes),
    ]
    assert exit_code((one,)) == 1


def test_a_job_that_only_one_plan_decides_about_is_a_difference() -> None:
    plan = plan_for(world())
    (found,) = differences(plan, replace(plan, decisions=plan.decisions[:1]))
    assert (found.job, found.field, found.recorded, found.now) == ("default/b", "decision", "yes", "no")


def test_the_certificate_and_the_serving_report_are_compared_but_not_their_last_digits() -> None:
    plan = plan_for(world())
    near = replace(plan.certificate, achieved=plan.certificate.achieved + 1e-9)
    assert not list(differences(plan, replace(plan, certificate=near, seconds=99.0)))
    far = replace(plan.certificate, bound=plan.certificate.bound + 0.1)
    serving = replace(plan.serving, short=1)
    found = list(differences(plan, replace(plan, certificate=far, serving=serving)))
    assert [d.field for d in found] == ["serving short", "bound"]


def test_a_changed_sentence_is_not_a_different_decision(tmp_path: Path) -> None:
    plan = plan_for(world())
    decisions = (replace(plan.decisions[0], message="an older sentence"), *plan.decisions[1:])
    one = replay(recorded(tmp_path, plan=replace(plan, decisions=decisions)))
    assert (one.verdict, one.reworded) == (Verdict.SAME, 1)


def test_a_fallback_plan_is_named_and_not_compared(tmp_path: Path) -> None:
    plan = without_growth(plan_for(world()), world(), PlanFailure.LATE_SOLVER)
    one = replay(recorded(tmp_path, plan=plan))
    assert (one.verdict, one.problem) == (Verdict.FALLBACK, "late_solver")
    assert exit_code((one,)) == 0


def test_a_plan_that_the_deadline_cut_short_is_named_and_not_compared(tmp_path: Path) -> None:
    one = replay(recorded(tmp_path, plan=replace(plan_for(world()), cut=("admission",))))
    assert (one.verdict, one.problem, exit_code((one,))) == (Verdict.CUT, "admission", 0)


def test_a_record_without_the_field_fallback_can_be_read(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    body = json.loads(path.read_text())
    del body["plan"]["fallback"], body["plan"]["is_comparison"]
    path.write_text(json.dumps(body))
    assert replay(path).verdict is Verdict.SAME


def test_a_replay_starts_from_the_columns_of_the_record(tmp_path: Path) -> None:
    snapshot, limits = world(), Limits()
    shape, amounts = snapshot.jobs[0].trainer, snapshot.nodes[0].allocatable.amounts
    columns = KeptColumns((shape,), (amounts,), ((0, ((0, 8),)),))
    first = decide(snapshot, policy_named("maxmin"), limits, columns)
    path = RecordFolder(tmp_path).write(DecisionRecord("maxmin", limits, snapshot, first))
    again = recompute(decode_record(path.read_bytes()))
    assert again.given == columns
    assert replace(again, seconds=0) == replace(first, seconds=0)


def test_a_decision_that_can_no_longer_be_made_is_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path)
    monkeypatch.setattr("edl.planner.decide.check", lambda *_: ("node n000: overcommitted",))
    one = replay(path)
    assert (one.verdict, exit_code((one,))) == (Verdict.FAILED, 1)
    assert "overcommitted" in one.problem
    with pytest.raises(PlanError):
        recompute(decode_record(path.read_bytes()))


@pytest.mark.parametrize(
    ("text", "says"),
    [("{}", "not a decision record"), ("", "not a decision record"), ('{"version": 2}', "not a decision record")],
)
def test_an_unreadable_record_is_reported_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "decision-x.json"
    path.write_text(text)
    one = replay(path)
    assert (one.verdict, exit_code((one,))) == (Verdict.UNREADABLE, 2)
    assert says in one.problem


def test_a_missing_file_is_reported_with_the_reason(tmp_path: Path) -> None:
    one = replay(tmp_path / "nowhere.json")
    assert one.file == str(tmp_path / "nowhere.json")
    assert one.problem.startswith("cannot be read: No such file or directory; give a record")


def test_a_record_with_an_unknown_policy_is_unreadable(tmp_path: Path) -> None:
    snapshot = world()
    path = RecordFolder(tmp_path).write(DecisionRecord("coin", Limits(), snapshot, plan_for(snapshot)))
    assert "policy 'coin' does not exist" in replay(path).problem


def test_a_folder_is_replayed_oldest_record_first(tmp_path: Path) -> None:
    for second in (3000.0, 1000.0, 2000.0):
        recorded(tmp_path, now_s=second)
    (tmp_path / "notes.txt").write_text("mine")
    replays = replay_all(tmp_path)
    assert [one.record.snapshot.observed_at_s for one in replays if one.record] == [1000.0, 2000.0, 3000.0]
    assert json.loads(replays_json(replays))["summary"] == {
        "same": 3, "different": 0, "fallback": 0, "cut": 0, "failed": 0, "unreadable": 0,
    }  # fmt: skip
    (tmp_path / "decision-19700101.json").write_text("{}")
    assert exit_code(replay_all(tmp_path)) == 2


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no decision-\*\.json; give a record"):
        replay_all(tmp_path)
