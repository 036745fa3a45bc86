"""What is looked for ahead of a plan, and how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.plan_maker import PlanMaker, Planner
from edl.controller.policy_planner import PolicyPlanner
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.unplaceable import WaitRecords
from edl.sim.virtual_time import InlineRunner
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.fakes import FakeRecorder


async def test_room_that_waiting_pods_leave_unused_is_looked_for_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[ClusterSnapshot] = []

    def read(snapshot: ClusterSnapshot, limits: Limits) -> Problem:
        looked.append(snapshot)
        return read_problem(snapshot, limits)

    monkeypatch.setattr("edl.planner.unplaceable.read_problem", read)
    deciding = PolicyPlanner(policy_named("maxmin"))
    plans = PlanMaker(Planner(deciding.decide, check, deciding.startable, InlineRunner), Limits(), FakeRecorder())
    waiting = make_snapshot(
        make_nodes(1), (make_job("a"),), pods=(replace(make_serving("s", cpu=3), tried=True, created_s=900.0),)
    )
    records: WaitRecords = {}
    found = []
    for tenth in range(120):
        records = await plans.wait_records(records, waiting, 1000.0 + tenth / 10)
        found.append((len(looked), records["serving-s"].since_s))
    assert found[0] == found[49] == (1, 1000.0)
    assert found[50] == found[99] == (2, 1000.0)
    assert found[-1] == (3, 1000.0)
