"""What is looked for ahead of a plan, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from edl.controller.plan_maker import PlanMaker, Planner
from edl.controller.policy_planner import PolicyPlanner
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.unplaceable import WaitRecords
from edl.sim.virtual_time import InlineRunner
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.fakes import FakeRecorder


@dataclass
class Looks:
    """A planner for a serving pod that waits beside free capacity, and how often that was looked for."""

    count: int = 0

    def read(self, snapshot: ClusterSnapshot, limits: Limits) -> Problem:
        self.count += 1
        return read_problem(snapshot, limits)

    async def over(self, seconds: int, *, is_urgent: bool) -> list[tuple[int, float | None]]:
        """After each tenth of a second: the looks so far, and since when capacity was free."""
        deciding = PolicyPlanner(policy_named("maxmin"))
        plans = PlanMaker(Planner(deciding.decide, check, deciding.startable, InlineRunner), Limits(), FakeRecorder())
        pod = replace(make_serving("s", cpu=3), tried=True, created_s=900.0)
        waiting = make_snapshot(make_nodes(1), (make_job("a"),), pods=(pod,))
        records: WaitRecords = {}
        found = []
        for tenth in range(10 * seconds):
            records = await plans.wait_records(records, waiting, 1000.0 + tenth / 10, is_urgent=is_urgent)
            found.append((self.count, records["serving-s"].since_s))
        return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    monkeypatch.setattr("edl.planner.unplaceable.read_problem", looks.read)
    return looks


async def test_room_that_waiting_pods_leave_unused_is_looked_for_every_five_seconds(looks: Looks) -> None:
    found = await looks.over(12, is_urgent=False)
    assert found[0] == found[49] == (1, 1000.0)
    assert found[50] == found[99] == (2, 1000.0)
    assert found[-1] == (3, 1000.0)


async def test_a_plan_that_answers_something_urgent_waits_for_no_such_look_for_half_a_minute(looks: Looks) -> None:
    found = await looks.over(61, is_urgent=True)
    counts = [count for count, _ in found]
    assert counts[0] == counts[299] == 1
    assert counts[300] == counts[599] == 2
    assert counts[-1] == 3


class Sayings:
    """A planner whose plans have their sentences only once it is asked for them, and what was recorded."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem, self.recorder = problem, FakeRecorder()
        self.deciding = PolicyPlanner(policy_named("maxmin"))
        self.view = make_snapshot(make_nodes(1), (make_job("a"),))
        functions = Planner(self.deciding.choose, check, self.deciding.startable, InlineRunner, explain=self.explain)
        self.plans = PlanMaker(functions, Limits(), self.recorder)

    def explain(self, plan: ScalePlan) -> ScalePlan:
        if self.problem is not None:
            raise self.problem
        return self.deciding.explain(plan)

    async def plan(self) -> ScalePlan:
        plan = await self.plans.plan(self.view)
        assert plan is not None
        return plan


async def test_a_plan_is_recorded_with_its_sentences_and_once() -> None:
    sayings = Sayings()
    plan = await sayings.plan()
    assert (plan.decisions[0].message, sayings.recorder.plans) == ("", [])
    said = await sayings.plans.explained(sayings.view, plan)
    assert said.decisions[0].message.startswith("8 of 10")
    assert await sayings.plans.explained(sayings.view, said) is said
    assert sayings.recorder.plans == [said]


async def test_a_plan_that_is_kept_has_its_sentences() -> None:
    sayings = Sayings()
    said = await sayings.plans.explained(sayings.view, await sayings.plan())
    assert await sayings.plan() is said


async def test_a_plan_whose_sentences_cannot_be_written_counts_without_them() -> None:
    sayings = Sayings(RuntimeError("a bug"))
    said = await sayings.plans.explained(sayings.view, await sayings.plan())
    assert said.decisions[0].message == "8 of 10: InsufficientCapacity; edl could not say why"
    assert sayings.recorder.failures
    assert sayings.recorder.plans == [said]
