"""What the controller reports, in the log, the metrics and the decision records."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from edl.explain.early_evictions import early_decisions
from edl.model.actions import CreatePod, DeletePod, Outcome, Result
from edl.model.limits import Limits, SharingLimits
from edl.model.names import Role
from edl.model.status import Reason
from edl.observability.decision_records import RecordFolder
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder, new_trace_id
from edl.observability.replay import Verdict, replay, replay_all, replays_json
from edl.planner.admission.early_evictions import Yield, decision_of
from edl.planner.guard import RefusedPlanError
from edl.planner.policies.registry import policy_named
from tests.observability.test_decision_records import KEY, plan, snapshot
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot


def make_recorder(folder: RecordFolder | None = None) -> ControllerRecorder:
    return ControllerRecorder(Metrics(), policy="maxmin", folder=folder)


def test_a_decision_is_logged_and_recorded_once_until_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "edl")
    recorder = make_recorder(RecordFolder(tmp_path))
    for second in range(4):
        asyncio.run(recorder.planned(snapshot(1000.0 + second), Limits(), plan(3)))
    asyncio.run(recorder.planned(snapshot(1010.0), Limits(), plan(4)))
    assert [r.message for r in caplog.records] == ["decision", "decision"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_write_has_the_trace_id_of_the_last_decision_that_changed_its_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "edl")
    ids = iter(("first", "second", "third"))
    recorder = ControllerRecorder(Metrics(), policy="maxmin", new_trace=lambda: next(ids))
    write = Outcome(CreatePod(KEY, "u", Role.TRAINER, 2), Result.DONE)
    recorder.acted(write)
    for second, made in enumerate((plan(3), plan(3), plan(4))):
        asyncio.run(recorder.planned(snapshot(1000.0 + second), Limits(), made))
        recorder.acted(write)
    asyncio.run(recorder.planned(snapshot(1010.0), Limits(), replace(plan(4), decisions=())))
    recorder.acted(write)
    assert [(r.message, fields(r).get("trace")) for r in caplog.records] == [
        ("action", None),
        ("decision", "first"),
        ("action", "first"),
        ("action", "first"),
        ("decision", "second"),
        ("action", "second"),
        ("action", None),
    ]


def test_trace_ids_are_those_of_trace_context_and_differ() -> None:
    assert all(re.fullmatch("[0-9a-f]{32}", new_trace_id()) for _ in range(3))
    assert new_trace_id() != new_trace_id()


def test_a_decision_that_moves_pservers_is_recorded(tmp_path: Path) -> None:
    recorder = make_recorder(RecordFolder(tmp_path))
    still = plan(3)
    moving = replace(still, decisions=tuple(replace(d, moves=("a-pserver-0",)) for d in still.decisions))
    for second, made in enumerate((still, moving, still)):
        asyncio.run(recorder.planned(snapshot(1000.0 + second), Limits(), made))
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_job_gives_ahead_of_a_plan_is_logged_counted_and_traced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edl")
    metrics = Metrics()
    recorder = ControllerRecorder(metrics, policy="maxmin", new_trace=lambda: "early")
    (job,) = snapshot().jobs
    found = Yield(job, tuple(pod.name for pod in job.live_trainers)[:1], ("n000",))
    recorder.evicted_early(snapshot(), Limits(), (decision_of(found, "yields 1 trainer to serving"),))
    recorder.acted(Outcome(DeletePod(KEY, "u", found.victims[0], "pod-uid", Reason.SERVING_NEEDS_ROOM), Result.DONE))
    logged = [fields(record) for record in caplog.records]
    assert [record.get("trace") for record in logged] == ["early", "early"]
    assert (logged[0]["ahead_of_plan"], logged[0]["victims"]) == (True, found.victims[0])
    assert b'edl_resize_decisions_total{direction="down",reason="ServingNeedsRoom"} 1.0' in metrics.render()


def test_what_a_job_gives_ahead_of_a_plan_is_recorded_and_replayed(tmp_path: Path) -> None:
    jobs = (make_job("a", trainers=8, min_trainers=2, max_trainers=8, on=("n000",)),)
    world = make_snapshot(make_nodes(1, cpu=8), jobs, (replace(make_serving("web", cpu=3), tried=True),))
    limits = Limits(sharing=SharingLimits(max_load_desired=1.0))
    made = early_decisions(world, policy_named("maxmin"), limits)
    assert sum(len(decision.victims) for decision in made) == 3
    make_recorder(RecordFolder(tmp_path)).evicted_early(world, limits, made)
    (found,) = replay_all(tmp_path)
    assert (found.verdict, found.differences) == (Verdict.SAME, ())
    assert found.record is not None
    assert found.record.ahead_of_plan
    assert json.loads(replays_json((found,)))["records"][0]["aheadOfPlan"] is True
    kept = replace(found.record, plan=replace(found.record.plan, decisions=()))
    again = replay(RecordFolder(tmp_path / "other").write(kept))
    assert [(d.job, d.field) for d in again.differences] == [("default/a", "decision")]


def test_each_plan_counts_serving_pods_that_did_not_use_free_capacity() -> None:
    metrics = Metrics()
    recorder = ControllerRecorder(metrics, policy="maxmin")
    asyncio.run(recorder.planned(snapshot(), Limits(), plan()))
    assert b"edl_serving_unplaceable_pods 1.0" in metrics.render()


def test_a_full_disk_is_logged_and_does_not_stop_the_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = make_recorder(RecordFolder(tmp_path / "records"))
    (tmp_path / "records").rmdir()
    asyncio.run(recorder.planned(snapshot(), Limits(), plan()))
    assert [r.message for r in caplog.records if r.levelno == logging.ERROR] == ["decision not recorded"]


def fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a log line."""
    found: dict[str, object] = record.__dict__["fields"]
    return found


def test_a_skipped_round_is_logged_once_until_the_reason_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edl")
    recorder = make_recorder()
    for reason in ("behind", "behind", "down", "behind"):
        recorder.skipped(reason)
    assert [fields(r)["reason"] for r in caplog.records] == ["behind", "down", "behind"]


def test_failed_writes_have_a_higher_log_level_than_successful_ones(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "edl")
    recorder = make_recorder()
    action = DeletePod(KEY, "u", "a-trainer-1", "p", "ServingNeedsRoom")
    for result in (Result.DONE, Result.UNCHANGED, Result.CONFLICT, Result.REFUSED, Result.FAILED):
        recorder.acted(Outcome(action, result, "Word", "sentence"))
    assert [r.levelname for r in caplog.records] == ["INFO", "DEBUG", "DEBUG", "WARNING", "WARNING"]
    recorder.acted(Outcome(CreatePod(KEY, "u", Role.TRAINER, 2), Result.DONE))
    assert fields(caplog.records[-1])["pod"] == "a-trainer-2"


def test_a_refused_plan_is_logged_with_every_problem(caplog: pytest.LogCaptureFixture) -> None:
    make_recorder().not_planned(snapshot(), RefusedPlanError(plan(), ("one", "two")))
    assert [fields(r)["problem"] for r in caplog.records if r.message == "plan refused"] == ["one", "two"]
