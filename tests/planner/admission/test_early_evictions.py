"""Room for serving pods ahead of a plan: surplus trainers only, and as few as one pass finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import assume, given

from edl.controller.policy_planner import PolicyPlanner
from edl.errors import PlanError
from edl.explain.early_evictions import early_decisions
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, ServingLimits
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod
from edl.model.status import Condition, JobPhase, JobStatus, Reason
from edl.model.topology import Topology, TopologyMode
from edl.planner.admission.early_evictions import Yield, early_evictions
from edl.planner.guard import check_early_evictions
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import cores_of, plan_for, running_worlds, with_jobs

NAMES = ("n000", "n001")
LIMITS = Limits()


def full(*pods: Pod, min_trainers: int = 1) -> ClusterSnapshot:
    """Two nodes of 8 cores, full with 16 trainers of one job, and by default a serving pod of 3 cores that waits."""
    job = make_job("a", trainers=16, min_trainers=min_trainers, max_trainers=16, on=NAMES)
    return make_snapshot(make_nodes(2), (job,), pods or (make_serving("s", cpu=3),))


def evictions_in(world: ClusterSnapshot, policy: str = "maxmin", limits: Limits = LIMITS) -> tuple[Yield, ...]:
    return early_evictions(world, policy_named(policy).adapt, limits)


def evicted_early(world: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster in which the chosen trainers are terminating."""
    gone = {(found.job.key, name) for found in evictions_in(world) for name in found.victims}
    jobs = (
        replace(job, pods=tuple(replace(pod, terminating=(job.key, pod.name) in gone) for pod in job.pods))
        for job in world.jobs
    )
    return replace(world, jobs=tuple(jobs))


def test_as_many_trainers_go_from_one_node_as_the_pod_needs() -> None:
    (found,) = evictions_in(full())
    assert len(found.victims) == 3
    assert len(found.nodes) == 1
    assert all(pod.node == found.nodes[0] for pod in found.job.pods if pod.name in found.victims)


def test_the_decision_says_what_the_job_gives() -> None:
    world = full()
    (decision,) = early_decisions(world, policy_named("maxmin"), LIMITS)
    (found,) = evictions_in(world)
    assert (decision.current, decision.target, decision.victims) == (16, 13, found.victims)
    assert decision.shrink_reason == decision.reason == Reason.SERVING_NEEDS_ROOM
    assert decision.message == f"13 of 16: yields 3 trainers to serving on node {found.nodes[0]}"
    assert not decision.nodes


def test_the_minimum_stays() -> None:
    assert not evictions_in(full(min_trainers=14))
    assert len(evictions_in(full(min_trainers=13))[0].victims) == 3


def test_free_room_and_room_that_becomes_free_cost_nobody_a_trainer() -> None:
    job = make_job("a", trainers=13, max_trainers=16, on=("n000",) * 5 + ("n001",) * 8)
    world = make_snapshot(make_nodes(2), (job,), (make_serving("s", cpu=3),))
    assert not evictions_in(world)
    assert not evictions_in(evicted_early(full()))


def test_a_second_pod_costs_only_what_it_needs_itself() -> None:
    world = evicted_early(full())
    both = replace(world, pods=(*world.pods, make_serving("t", cpu=2)))
    assert sum(len(found.victims) for found in evictions_in(both)) == 2


def test_a_pod_that_is_left_to_kube_scheduler_for_now_costs_nobody_anything() -> None:
    world = full()  # the pod is ten seconds old, and nobody has tried it
    assert not evictions_in(world, limits=Limits(serving=ServingLimits(grace_s=60.0)))
    assert evictions_in(world, limits=Limits(serving=ServingLimits(grace_s=5.0)))


def test_a_policy_that_pins_jobs_keeps_them() -> None:
    assert not evictions_in(full(), policy="static-max")


@pytest.mark.parametrize("kind", ["topology", "workload"])
def test_jobs_whose_pods_others_choose_give_nothing(kind: str) -> None:
    world = full()
    (job,) = world.jobs
    if kind == "topology":
        job = replace(job, topology=Topology.of("zone", TopologyMode.PREFERRED))
    else:
        job = replace(job, owner_count=16)
    assert not evictions_in(replace(world, jobs=(job,)))
    other = make_job("b", trainers=4, min_trainers=1, max_trainers=4, on=("n000",))
    rest = replace(
        job, pods=tuple(pod for pod in job.pods if pod.index is not None and pod.index not in {0, 2, 4, 6})
    )
    (found,) = evictions_in(with_jobs(replace(world, jobs=(rest,)), other))
    assert found.job.key.name == "b"


def test_the_job_that_is_best_off_gives() -> None:
    rich = make_job("rich", trainers=8, max_trainers=8, on=NAMES)
    poor = make_job("poor", trainers=8, max_trainers=40, on=NAMES)
    world = make_snapshot(make_nodes(2), (rich, poor), (make_serving("s", cpu=1),))
    assert [found.job.key.name for found in evictions_in(world)] == ["rich"]


def test_trainers_of_a_job_whose_status_is_not_written_yet_use_their_capacity() -> None:
    """A plan has admitted it, and its pods come before its status says so."""
    old = make_job("old", trainers=8, max_trainers=8, on=NAMES)
    waits = JobStatus(JobPhase.PENDING, conditions=(Condition("Admitted", "False", "MinUnsatisfied", "waits", 0.0),))
    new = replace(make_job("new", trainers=8, max_trainers=8, on=NAMES), status=waits)
    world = make_snapshot(make_nodes(2), (old, new), (make_serving("s", cpu=3),))
    (found,) = evictions_in(world)
    assert (found.job.key.name, len(found.victims), len(found.nodes)) == ("old", 3, 1)


BROKEN: dict[str, tuple[Callable[[ScaleDecision], ScaleDecision], str]] = {
    "below its minimum": (
        lambda d: replace(d, target=12, victims=tuple(f"a-trainer-{i}" for i in range(4))),
        "minimum 13",
    ),
    "another target": (lambda d: replace(d, target=14), "target 14"),
    "no trainer of it": (
        lambda d: replace(d, victims=("a-trainer-0", "a-trainer-1", "b-trainer-0")),
        "not a live trainer",
    ),
    "growth": (lambda d: replace(d, nodes=(("n000", 1),)), "only trainers"),
    "no reason": (lambda d: replace(d, shrink_reason=""), "no reason"),
}


@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_decisions_that_break_a_rule_are_refused(fault: str) -> None:
    world = full(min_trainers=13)
    decisions = early_decisions(world, policy_named("maxmin"), LIMITS)
    assert check_early_evictions(world, decisions) == ()
    change, says = BROKEN[fault]
    problems = check_early_evictions(world, [change(decision) for decision in decisions])
    assert any(says in problem for problem in problems), problems
    planner = PolicyPlanner(policy_named("maxmin"))
    wrong = tuple(change(decision) for decision in decisions)
    with (
        patch("edl.controller.policy_planner.early_decisions", lambda *_: wrong),
        pytest.raises(PlanError, match=says),
    ):
        planner.early_evictions(world, LIMITS)


@given(running_worlds())
@examples(75)
def test_no_job_falls_below_its_minimum_and_no_pod_that_a_plan_places_is_left_out(world: ClusterSnapshot) -> None:
    found = evictions_in(world)
    assume(found)
    for one in found:
        assert len(one.job.live_trainers) - len(one.victims) >= one.job.bounds.min_trainers
        assert set(one.victims) <= {pod.name for pod in one.job.live_trainers}
    assert not check_early_evictions(world, early_decisions(world, policy_named("maxmin"), LIMITS))
    after = evicted_early(world)
    assert plan_for(after).serving.placed >= plan_for(world).serving.placed
    waiting = sum(cores_of(pod.shape) for pod in world.waiting_serving)
    freed = sum(cores_of(one.job.trainer) * len(one.victims) for one in found)
    most = max(cores_of(one.job.trainer) for one in found)
    assert freed < waiting + most * len(world.waiting_serving)
