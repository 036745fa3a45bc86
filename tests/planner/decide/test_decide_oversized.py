"""No one job slows the others: what lists too much is refused by itself, and all others are planned as without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.worst_worlds import one_odd_job
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.model.resources import PodShape, QosClass, Resources
from edl.model.status import Reason
from edl.planner.policies.registry import POLICIES
from edl.planner.problem_reader import read_problem
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.oversized_pods import SHAPES, job_at_limits, oversized_job, oversized_serving
from tests.worlds.small_clusters import decision_of, essence, with_jobs, with_pods

LIMITS = Limits(deadline_s=600.0)
WORLD = one_odd_job(20, 8, 1).snapshot


def planned(snapshot: ClusterSnapshot) -> ScalePlan:
    return decide(snapshot, POLICIES["maxmin"], LIMITS)


@pytest.fixture(scope="module")
def others() -> ScalePlan:
    return planned(WORLD)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_job_beyond_a_limit_is_refused_by_itself(kind: str, others: ScalePlan) -> None:
    plan = planned(with_jobs(WORLD, oversized_job(kind)))

    refused = decision_of(plan, "huge")
    assert (refused.reason, refused.admitted, refused.target) == (Reason.INVALID_SPEC, False, 0)
    assert refused.message == f"trainer: {SHAPES[kind][1]} that a pod may have; list fewer"
    assert [d for d in plan.decisions if d.job.name != "huge"] == list(others.decisions)


def test_a_job_whose_sizes_cannot_be_kept_is_refused_by_itself(others: ScalePlan) -> None:
    """A webhook can take away the requests without which edl counts no sizes."""
    bare = PodShape(Resources.of({"pods": 1}))
    job = make_job("huge", max_trainers=9_000)
    job = replace(job, trainer=bare, qos=QosClass.BEST_EFFORT, sizes=(1, 3, 9_000))
    plan = planned(with_jobs(WORLD, job))

    refused = decision_of(plan, "huge")
    assert (refused.reason, refused.admitted, refused.target) == (Reason.INVALID_SPEC, False, 0)
    assert refused.message.startswith("as the API server admits them, the trainers request neither cpu nor memory")
    assert [d for d in plan.decisions if d.job.name != "huge"] == list(others.decisions)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_serving_pod_beyond_a_limit_is_short_and_changes_no_job(kind: str, others: ScalePlan) -> None:
    plan = planned(with_pods(WORLD, oversized_serving(kind)))

    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 0, 1)
    assert essence(plan) == essence(others)


def test_resources_that_no_node_has_cost_one_column_a_job() -> None:
    def asking(name: str, first: int) -> Resources:
        return Resources.of({f"example.com/r{name}-{i}": 1 for i in range(first, first + 100)})

    jobs = tuple(make_job(name) for name in "abc")
    asks = (asking("x", 0), asking("x", 50), asking("y", 0))
    odd = tuple(
        replace(j, trainer=replace(j.trainer, request=j.trainer.request + more))
        for j, more in zip(jobs, asks, strict=True)
    )
    world = make_snapshot(make_nodes(2), (*odd, make_job("plain")))

    problem = read_problem(world, LIMITS)
    plan = planned(world)

    assert sum(name.startswith("example.com/") for name in problem.names) <= 3
    assert [d.admitted for d in plan.decisions] == [False, False, False, True]
    assert "example.com/rx-" in decision_of(plan, "a").account


def test_the_job_with_the_longest_lists_is_the_costliest() -> None:
    plan = planned(with_jobs(WORLD, job_at_limits(0)))

    assert plan.costliest is not None
    assert plan.costliest[0] == JobKey("default", "at-limits-000")
    assert plan.costliest[1] > 0.0
    assert decision_of(plan, "at-limits-000").admitted
