"""Rounds in which no plan can be made, for each way to fail: what the pods see, the metric and the log.

Each test lets the planner decide once, breaks the solver, and looks at the world after the next round.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import edl.controller.loop
from edl.controller.loop import Controller, Planner
from edl.explain.decision import decide
from edl.model.actions import DeletePod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Limits, ScalePlan
from edl.observability.decision_records import ControllerRecorder, RecordFolder
from edl.observability.metrics import Metrics
from edl.observability.replay import Verdict, replay_all
from edl.planner.guard import check
from edl.planner.packing import startable
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_serving
from tests.worlds.fakes import FakeCluster, FakeLease, LoopClock, PodWorld, run_virtual

A = JobKey("default", "a")
NODE = make_node("n000")


@dataclass
class Stage:
    """A controller with its own planner, metrics and log, over one node of eight cores with one job of four."""

    max_trainers: int = 8
    metrics: Metrics = field(default_factory=Metrics)
    hold: threading.Event = field(default_factory=threading.Event)
    folder: RecordFolder | None = None

    def __post_init__(self) -> None:
        self.world = PodWorld()
        self.world.add(make_job("a", trainers=4, min_trainers=1, max_trainers=self.max_trainers, on=(NODE.name,)))
        self.hold.set()
        self.limits = Limits(serving_grace_s=0.0)

    def build(self) -> Controller:
        self.cluster = FakeCluster(self.world, (NODE,))
        clock = LoopClock()
        return Controller(
            cluster=self.cluster,
            clock=clock,
            lease=FakeLease(),
            recorder=ControllerRecorder(self.metrics, clock, policy="maxmin", folder=self.folder),
            planner=Planner(self._decide, check, startable),
            limits=self.limits,
        )

    def _decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        self.hold.wait(30.0)
        return decide(snapshot, policy_named("maxmin"), limits)

    @property
    def trainers(self) -> int:
        return len(self.world.jobs[A].live_trainers)

    def lose(self, count: int) -> None:
        """Some of the trainers vanish, so that a plan would create them anew."""
        for pod in self.world.jobs[A].live_trainers[-count:]:
            self.world.drop(A, pod.name)

    def failures(self) -> dict[str, float]:
        """How often each kind of failure was counted."""
        metric = next(m for m in self.metrics.registry.collect() if m.name == "edl_decision_failures")
        return {s.labels["failure"]: s.value for s in metric.samples if s.name.endswith("_total") and s.value}


def answer(status: int, x: object = None, fun: float | None = None) -> Callable[..., OptimizeResult]:
    result = OptimizeResult()
    result.update({"status": status, "x": x, "fun": fun, "message": "as told"})
    return lambda *_, **__: result


def raising(error: Exception) -> Callable[..., OptimizeResult]:
    def solve(*_: object, **__: object) -> OptimizeResult:
        raise error

    return solve


FAULTS = {
    "late_solver": answer(1),
    "infeasible": answer(2),
    "unbounded": answer(3),
    "not_a_number": answer(0, np.array([np.nan] * 9), 1.0),
}
MORE_FAULTS = [
    *FAULTS.items(),
    ("not_a_number", answer(0, np.array([1.0] * 9), float("nan"))),
    ("not_a_number", answer(4)),
    ("not_a_number", raising(ValueError("b_ub must not contain values inf, nan, or None"))),
    ("not_a_number", raising(FloatingPointError("invalid value"))),
    ("bug", raising(KeyError("shape"))),
]


def fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = record.__dict__["fields"]
    return found


@pytest.mark.parametrize(("name", "fault"), MORE_FAULTS)
def test_no_plan_means_no_growth_and_no_shrink_on_a_guess(
    name: str,
    fault: Callable[..., OptimizeResult],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        assert stage.trainers == 8
        stage.lose(3)
        stage.cluster.serving = (make_serving("web", cpu=8),)
        monkeypatch.setattr("edl.planner.programs.columns.linprog", fault)
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {name: 1}
    lines = [(r.levelname, fields(r)["failure"]) for r in caplog.records if r.message == "no plan"]
    assert lines == [("ERROR", name)]
    kept = [fields(r) for r in caplog.records if r.message == "last plan stands without its growth"]
    assert [(f["failure"], f["victims"]) for f in kept] == [(name, 0)]


@pytest.mark.parametrize(("name", "fault"), FAULTS.items())
def test_without_a_plan_the_last_one_goes_on_freeing_room_for_serving_that_waits(
    name: str, fault: Callable[..., OptimizeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.world.step()
        stage.cluster.serving = (make_serving("web", cpu=3),)
        stage.cluster.policies = lambda a: Outcome(a, Result.FAILED) if isinstance(a, DeletePod) else None
        await controller.round()
        assert stage.trainers == 8, "the deletions failed"
        stage.cluster.policies = lambda _: None
        monkeypatch.setattr("edl.planner.programs.columns.linprog", fault)
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {name: 1}


def test_a_plan_that_breaks_a_rule_is_replaced_by_what_stands_of_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.lose(3)
        monkeypatch.setattr("edl.planner.decide.check", lambda *_: ("node n000: overcommitted",))
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {"refused": 1}
    assert [fields(r)["problem"] for r in caplog.records if r.message == "plan refused"] == [
        "node n000: overcommitted"
    ]
    assert any(r.message == "last plan stands without its growth" for r in caplog.records)


def test_a_decision_that_hangs_is_given_up_and_no_second_one_is_begun_beside_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(edl.controller.loop, "_DEADLINE_SLACK_S", 0.1)
    stage = Stage()
    stage.limits = replace(stage.limits, deadline_s=5.0)

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.lose(3)
        stage.hold.clear()
        controller._limits = replace(stage.limits, deadline_s=0.1)
        await controller.round()
        await controller.round()
        assert stage.trainers == 5
        stage.hold.set()
        controller._limits = stage.limits
        for thread in threading.enumerate():
            if thread.name == "edl-decide":
                await asyncio.to_thread(thread.join, 20.0)
        await controller.round()

    asyncio.run(script())
    assert stage.trainers == 8, "once the thread has ended, plans are made again"
    assert stage.failures() == {"late_thread": 1, "busy": 1}
    assert [fields(r)["failure"] for r in caplog.records if r.message == "no plan"] == ["late_thread", "busy"]


def test_where_there_is_no_last_plan_everything_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    monkeypatch.setattr("edl.planner.programs.columns.linprog", FAULTS["infeasible"])

    async def script() -> None:
        controller = stage.build()
        stage.cluster.serving = (make_serving("web", cpu=8),)
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 4
    assert stage.failures() == {"infeasible": 1}


def test_what_stands_of_the_last_plan_is_judged_too(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.lose(3)
        controller._planner = replace(controller._planner, check=lambda *_: ("it breaks a rule",))
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {"refused": 2}
    assert not any(r.message == "last plan stands without its growth" for r in caplog.records)


def test_what_a_controller_records_is_replayed_the_same_and_a_round_without_a_plan_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(folder=RecordFolder(tmp_path))

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.world.step()
        stage.cluster.serving = (make_serving("web", cpu=3),)
        await asyncio.sleep(5)
        await controller.round()
        stage.world.step()
        with monkeypatch.context() as broken:
            broken.setattr("edl.planner.programs.columns.linprog", FAULTS["late_solver"])
            await asyncio.sleep(5)
            await controller.round()

    run_virtual(script())
    verdicts = [one.verdict for one in replay_all(tmp_path)]
    assert verdicts[:2] == [Verdict.SAME, Verdict.SAME]
    assert set(verdicts[2:]) == {Verdict.FALLBACK}


def test_a_plan_that_stands_in_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        monkeypatch.setattr("edl.planner.programs.columns.linprog", FAULTS["infeasible"])
        await controller.round()

    run_virtual(script())
    assert stage.metrics.registry.get_sample_value("edl_decision_seconds_count") == 1
