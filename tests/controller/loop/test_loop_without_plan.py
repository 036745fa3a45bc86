"""Rounds in which no plan can be made, for each kind of failure: the pods, the metric and the log.

Each test lets the planner decide once, breaks the solver, and looks at the cluster after the next round.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import edl.controller.plan_maker
from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.controller.ports import RoundResult
from edl.errors import PlanError, PlanFailure
from edl.explain.decision import decide
from edl.model.actions import DeletePod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, ServingLimits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.observability.decision_records import RecordFolder
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.observability.replay import Verdict, replay_all
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.solvers.linear_program import Answer, LinearProgram, Model
from edl.planner.solvers.linear_program import Outcome as Ended
from edl.planner.solvers.matrix import Matrix
from edl.planner.solvers.with_highspy import Highspy
from edl.planner.starts import Start, startable
from edl.planner.unplaceable import LOOK_EVERY_S, watch
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.builders import make_job, make_node, make_serving
from tests.worlds.fakes import FakeCluster, FakeLease, PodWorld

A = JobKey("default", "a")
NODE = make_node("n000")


@dataclass
class Stage:
    """A controller with the real planner, metrics and log, over one node of eight cores and a job of four."""

    max_trainers: int = 8
    metrics: Metrics = field(default_factory=Metrics)
    hold: threading.Event = field(default_factory=threading.Event)
    folder: RecordFolder | None = None

    def __post_init__(self) -> None:
        self.world = PodWorld()
        self.world.add(make_job("a", trainers=4, min_trainers=1, max_trainers=self.max_trainers, on=(NODE.name,)))
        self.hold.set()
        self.limits = Limits(serving=ServingLimits(grace_s=0.0))

    def build(self) -> Controller:
        self.cluster = FakeCluster(self.world, (NODE,))
        clock = LoopClock()
        return Controller(
            cluster=self.cluster,
            clock=clock,
            lease=FakeLease(),
            recorder=ControllerRecorder(self.metrics, policy="maxmin", folder=self.folder),
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
        """Remove some of the trainers, so that a plan would create them again."""
        for pod in self.world.jobs[A].live_trainers[-count:]:
            self.world.drop(A, pod.name)

    def failures(self) -> dict[str, float]:
        """How often each kind of failure was counted."""
        metric = next(m for m in self.metrics.registry.collect() if m.name == "edl_decision_failures")
        return {s.labels["failure"]: s.value for s in metric.samples if s.name.endswith("_total") and s.value}


Load = Callable[[Highspy, LinearProgram], Model]


@dataclass
class Broken:
    """A model of the solver that gives the same answer whatever it is asked, or raises."""

    answer: Answer | Exception

    def add(self, columns: Matrix) -> None:
        """Take the columns."""

    def solve(self, limit_s: float) -> Answer:  # noqa: ARG002 - the solvers' signature
        """Answer as given."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def answer(outcome: Ended) -> Load:
    return lambda *_: Broken(Answer(outcome, "as given"))


def raising(error: Exception) -> Load:
    return lambda *_: Broken(error)


FAULTS = {
    "late_solver": answer(Ended.LATE),
    "infeasible": answer(Ended.INFEASIBLE),
    "unbounded": answer(Ended.UNBOUNDED),
    "not_a_number": answer(Ended.BROKEN),
}
MORE_FAULTS = [
    *FAULTS.items(),
    ("not_a_number", raising(FloatingPointError("invalid value"))),
    ("bug", raising(KeyError("shape"))),
]


def fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = record.__dict__["fields"]
    return found


@pytest.mark.parametrize(("name", "fault"), MORE_FAULTS)
def test_without_a_plan_no_job_grows_or_shrinks(
    name: str,
    fault: Load,
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
        monkeypatch.setattr(Highspy, "load", fault)
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {name: 1}
    lines = [(r.levelname, fields(r)["failure"]) for r in caplog.records if r.message == "no plan"]
    assert lines == [("ERROR", name)]
    kept = [fields(r) for r in caplog.records if r.message == "using the last plan without its growth"]
    assert [(f["failure"], f["victims"]) for f in kept] == [(name, 0)]


@pytest.mark.parametrize(("name", "fault"), FAULTS.items())
def test_without_a_plan_the_last_one_still_frees_capacity_for_serving_that_waits(
    name: str, fault: Load, monkeypatch: pytest.MonkeyPatch
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
        monkeypatch.setattr(Highspy, "load", fault)
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {name: 1}


def test_a_plan_that_breaks_a_rule_is_replaced_by_the_last_one_without_its_growth(
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
    assert any(r.message == "using the last plan without its growth" for r in caplog.records)


def test_each_plan_is_checked_once_and_nothing_is_computed_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    calls: list[tuple[str, str]] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            calls.append((name, threading.current_thread().name))
            return function(*args, **more)

        return call

    async def script() -> None:
        monkeypatch.setattr("edl.planner.decide.check", watched("check", check))
        monkeypatch.setattr("edl.controller.plan_maker.watch", watched("watch", watch))
        controller = stage.build()
        controller._plans._planner = replace(
            controller._plans._planner,
            check=watched("check of the fallback", check),
            startable=watched("startable", startable),
        )
        await controller.round()
        assert calls[1:] == [("check", "edl-decide"), ("startable", "edl-decide")]
        calls.clear()
        stage.lose(3)
        stage.cluster.serving = (replace(make_serving("web", cpu=8), tried=True),)
        monkeypatch.setattr(Highspy, "load", FAULTS["infeasible"])
        await asyncio.sleep(LOOK_EVERY_S)
        await controller.round()

    run_virtual(script())
    assert calls == [("watch", "edl-decide"), ("check of the fallback", "edl-decide")]


def test_pods_are_created_a_round_later_if_it_takes_too_long_to_see_which_ones_fit() -> None:
    stage = Stage()

    def late(*_: object) -> Sequence[Start]:
        raise PlanError("the planner thread did not finish within 11 s", PlanFailure.LATE_THREAD)

    async def script() -> None:
        controller = stage.build()
        planner = controller._plans._planner
        controller._plans._planner = replace(planner, startable=late)
        assert await controller.round() is RoundResult.ACTED
        assert stage.trainers == 4
        controller._plans._planner = planner
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 8
    assert stage.failures() == {}


def test_a_decision_that_hangs_is_given_up_and_no_second_one_starts_beside_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(edl.controller.plan_maker, "_DEADLINE_SLACK_S", 0.1)
    stage = Stage()
    stage.limits = replace(stage.limits, deadline_s=5.0)

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.lose(3)
        stage.hold.clear()
        controller._plans._limits = replace(stage.limits, deadline_s=0.1)
        await controller.round()
        await controller.round()
        assert stage.trainers == 5
        stage.hold.set()
        controller._plans._limits = stage.limits
        for thread in threading.enumerate():
            if thread.name == "edl-decide":
                await asyncio.to_thread(thread.join, 20.0)
        await controller.round()

    asyncio.run(script())
    assert stage.trainers == 8, "once the thread has ended, plans are made again"
    assert stage.failures() == {"late_thread": 1, "busy": 1}
    assert [fields(r)["failure"] for r in caplog.records if r.message == "no plan"] == ["late_thread", "busy"]


def test_without_any_earlier_plan_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    monkeypatch.setattr(Highspy, "load", FAULTS["infeasible"])

    async def script() -> None:
        controller = stage.build()
        stage.cluster.serving = (make_serving("web", cpu=8),)
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 4
    assert stage.failures() == {"infeasible": 1}


def test_a_fallback_plan_that_breaks_a_rule_is_dropped_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        stage.lose(3)
        monkeypatch.setattr("edl.planner.decide.check", lambda *_: ("node n000: overcommitted",))
        controller._plans._planner = replace(controller._plans._planner, check=lambda *_: ("it breaks a rule",))
        await controller.round()

    run_virtual(script())
    assert stage.trainers == 5
    assert stage.failures() == {"refused": 2}
    assert not any(r.message == "using the last plan without its growth" for r in caplog.records)


def test_recorded_plans_are_replayed_the_same_and_fallback_plans_are_marked(
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
            broken.setattr(Highspy, "load", FAULTS["late_solver"])
            await asyncio.sleep(5)
            await controller.round()

    run_virtual(script())
    verdicts = [one.verdict for one in replay_all(tmp_path)]
    assert verdicts[:2] == [Verdict.SAME, Verdict.SAME]
    assert set(verdicts[2:]) == {Verdict.FALLBACK}


def test_a_fallback_plan_does_not_count_as_a_measured_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()

    async def script() -> None:
        controller = stage.build()
        await controller.round()
        monkeypatch.setattr(Highspy, "load", FAULTS["infeasible"])
        await controller.round()

    run_virtual(script())
    assert stage.metrics.registry.get_sample_value("edl_decision_seconds_count") == 1
