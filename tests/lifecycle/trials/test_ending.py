"""Pods that do not end: their job grows no more, and serving that is nominated to their node gets other room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.allotment import serving_needing_capacity
from edl.controller.planning import plan_snapshot
from edl.lifecycle.trials.ending import PREEMPTS_WITHIN_S, as_ending
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits
from edl.model.plan import ScalePlan
from edl.model.pods import LONGEST_END_S, OVERDUE_S, Pod, PodPhase
from edl.model.resources import HOST_PORT_PREFIX, RULE_PREFIX, NodeRule, Resources, Taint
from edl.planner.guard import check
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

NOW_S = 1000.0
LATE = {"overdue": NOW_S - OVERDUE_S - 1, "years left": NOW_S + 2**31}
IN_TIME = {"soon": NOW_S + 10, "in ten minutes": NOW_S + LONGEST_END_S, "nobody knows": None}


def ending(job: Job, ends_by_s: float | None, count: int = 1) -> Job:
    """The job with its last trainers terminating."""
    going = [replace(pod, terminating=True, ends_by_s=ends_by_s) for pod in job.pods[-count:]]
    return replace(job, pods=(*job.pods[:-count], *going))


def planned(world: ClusterSnapshot) -> ScalePlan:
    plan = plan_snapshot(world, "", Limits(serving=ServingLimits(grace_s=0.0)))
    assert not check(as_ending(world), plan)
    return plan


def targets(plan: ScalePlan) -> dict[str, int]:
    return {decision.job.name: decision.target for decision in plan.decisions}


@pytest.mark.parametrize(
    ("ends_by_s", "target"),
    [*((at, 2) for at in LATE.values()), *((at, 7) for at in IN_TIME.values())],
    ids=[*LATE, *IN_TIME],
)
def test_a_job_with_pods_that_do_not_end_gets_no_room_in_exchange(ends_by_s: float | None, target: int) -> None:
    job = ending(make_job("a", trainers=3, max_trainers=9, on=("n0",)), ends_by_s)
    plan = planned(make_snapshot((make_node("n0", cpu=4), make_node("n1", cpu=3)), (job,)))
    assert targets(plan) == {"a": target if ends_by_s in LATE.values() else 7}
    if ends_by_s in LATE.values():
        (decision,) = plan.decisions
        assert decision.reason == "PodsDoNotEnd"
        assert (
            decision.message == "2 of 9: a-trainer-2 has been deleted, but not ended, so it does not grow until then"
        )


@pytest.mark.parametrize("phase", [PodPhase.FAILED, PodPhase.SUCCEEDED])
@pytest.mark.parametrize("at_s", LATE.values(), ids=LATE)
def test_a_finished_pod_that_a_finalizer_holds_has_no_capacity_and_keeps_no_job_from_growing(
    phase: PodPhase, at_s: float
) -> None:
    job = ending(make_job("a", trainers=3, max_trainers=9, on=("n0",)), at_s)
    held = replace(job, pods=(*job.pods[:-1], replace(job.pods[-1], phase=phase)))
    world = make_snapshot((make_node("n0", cpu=4), make_node("n1", cpu=3)), (held,))
    assert targets(planned(world)) == {"a": 7}


def test_pods_on_a_node_that_is_lost_keep_no_job_from_growing_elsewhere() -> None:
    job = ending(make_job("a", trainers=3, max_trainers=9, on=("n0",)), LATE["overdue"], 3)
    lost = replace(make_node("n0", cpu=4), ready=False)
    assert targets(planned(make_snapshot((lost, make_node("n1", cpu=3)), (job,)))) == {"a": 3}


def test_it_keeps_its_minimum_and_what_it_has() -> None:
    job = ending(make_job("a", trainers=3, min_trainers=4, max_trainers=9, on=("n0",)), LATE["overdue"], 2)
    world = make_snapshot((make_node("n0", cpu=4), make_node("n1", cpu=9)), (job,))
    assert targets(planned(world)) == {"a": 4}
    (held,) = as_ending(world).jobs
    assert held.refusal is not None
    assert held.refusal.message.startswith("a-trainer-1 and 1 more pod of it have been deleted")


def test_jobs_that_end_in_time_and_their_neighbours_are_as_before() -> None:
    jobs = (make_job("a", trainers=2, on=("n0",)), ending(make_job("b", trainers=2, on=("n0",)), IN_TIME["soon"]))
    world = make_snapshot((make_node("n0"),), jobs)
    assert as_ending(world) is world
    (a, _) = as_ending(replace(world, jobs=(jobs[0], ending(jobs[1], LATE["overdue"])))).jobs
    assert a is jobs[0]


def nominated(cpu: float = 2, priority: int = 10, name: str = "s") -> Pod:
    return replace(make_serving(name, cpu=cpu, priority=priority), nominated="n0")


def of_two_nodes(stuck: Job, *serving: Pod) -> ClusterSnapshot:
    honest = make_job("honest", trainers=4, min_trainers=1, max_trainers=4, on=("n1",))
    return make_snapshot((make_node("n0", cpu=4), make_node("n1", cpu=4)), (honest, stuck), serving)


@pytest.mark.parametrize("ends_by_s", LATE.values(), ids=LATE)
def test_a_serving_pod_that_is_nominated_to_a_node_of_such_pods_gets_other_room(ends_by_s: float) -> None:
    stuck = ending(make_job("stuck", trainers=4, min_trainers=1, max_trainers=4, on=("n0",)), ends_by_s, 2)
    plan = planned(of_two_nodes(stuck, nominated()))
    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 1, 0)
    assert sum(len(decision.victims) for decision in plan.decisions) == 2
    soon = ending(make_job("stuck", trainers=4, min_trainers=1, max_trainers=4, on=("n0",)), IN_TIME["soon"], 2)
    assert planned(of_two_nodes(soon, nominated())).serving.waiting == 0


def test_a_nomination_counts_as_long_as_the_pod_fits_beside_those_that_do_not_end() -> None:
    stuck = ending(make_job("stuck", trainers=2, min_trainers=1, max_trainers=2, on=("n0",)), LATE["overdue"])
    high, low = nominated(priority=20, name="high"), nominated(priority=10, name="low")
    names = {pod.name: pod.nominated for pod in as_ending(of_two_nodes(stuck, high, low)).pods}
    assert names == {"high": "n0", "low": ""}


CORDONED, UNREADY = replace(make_node("n0", cpu=4), cordoned=True), replace(make_node("n0", cpu=4), ready=False)
TAINTED = replace(make_node("n0", cpu=4), taints=(Taint("spot", "gone", "NoExecute"),))
FULL = replace(make_serving("first", cpu=3), node="n0")


@pytest.mark.parametrize("waited_s", [PREEMPTS_WITHIN_S, PREEMPTS_WITHIN_S - 1])
@pytest.mark.parametrize(
    ("node", "others"),
    [(CORDONED, ()), (UNREADY, ()), (TAINTED, ()), (make_node("n0", cpu=4), (FULL,))],
    ids=["cordoned", "not ready", "tainted", "others have the capacity"],
)
def test_a_nomination_to_a_node_that_takes_the_pod_no_more_counts_for_half_a_minute(
    node: Node, others: tuple[Pod, ...], waited_s: float
) -> None:
    """Its scheduler is asked first: it may preempt pods elsewhere, or end pods of this node just now."""
    honest = make_job("honest", trainers=4, min_trainers=1, max_trainers=4, on=("n1",))
    waits = replace(nominated(), tried=True, answered_s=NOW_S - waited_s)
    world = make_snapshot((node, make_node("n1", cpu=4)), (honest,), (*others, waits))
    plan = planned(world)
    is_vain = waited_s >= PREEMPTS_WITHIN_S
    assert (plan.serving.waiting, plan.serving.placed) == ((1, 1) if is_vain else (0, 0))
    assert sum(len(decision.victims) for decision in plan.decisions) == (2 if is_vain else 0)
    assert serving_needing_capacity(world) == ({waits.uid} if is_vain else set())


@pytest.mark.parametrize("how", ["free capacity", "others end", "a port and a rule"])
def test_a_nomination_that_will_come_true_counts_however_long_the_pod_waits(how: str) -> None:
    waits = replace(nominated(), tried=True, answered_s=0.0)
    others = (replace(FULL, terminating=True, ends_by_s=NOW_S + 30),) if how == "others end" else ()
    if how == "a port and a rule":
        more = Resources.of({f"{HOST_PORT_PREFIX}TCP/80": 1, f"{RULE_PREFIX}one pod a node": 1})
        rule = NodeRule((), "beside a pod that is about to end")
        shape = waits.shape
        placement = replace(shape.placement, rules=(rule,))
        waits = replace(waits, shape=replace(shape, request=shape.request + more, placement=placement))
    world = make_snapshot((make_node("n0", cpu=4), make_node("n1", cpu=4)), (), (*others, waits))
    assert as_ending(world) is world


@pytest.mark.parametrize("nodes", [3, 700], ids=["every node is looked at", "promising nodes"])
@pytest.mark.parametrize("how", ["a long grace period", "a pod that does not end"])
def test_trainers_that_end_soon_make_room_first(how: str, nodes: int) -> None:
    slow = make_job("slow", trainers=8, min_trainers=1, max_trainers=8, on=("n0000",))
    if how == "a long grace period":
        slow = replace(slow, pods=tuple(replace(pod, grace_s=3600) for pod in slow.pods))
    else:
        slow = ending(slow, LATE["overdue"])
    rows = tuple(make_node(f"n{i:04d}", cpu=8) for i in range(nodes))
    honest = make_job("honest", trainers=2, min_trainers=1, max_trainers=2, on=("n0001",))
    full = [replace(make_serving(f"f{i}", cpu=8), node=f"n{i:04d}") for i in range(2, nodes)]
    beside = replace(make_serving("beside", cpu=6), node="n0001")
    world = make_snapshot(rows, (honest, slow), (*full, beside, make_serving("s", cpu=1)))
    victims = {decision.job.name: decision.victims for decision in planned(world).decisions}
    assert victims == {"honest": ("honest-trainer-1",), "slow": ()}
    two = replace(world, pods=(*full, beside, make_serving("s", cpu=1), make_serving("t", cpu=1)))
    assert {name: len(gone) for name, gone in victims_of(two).items()} == {"honest": 1, "slow": 1}


def victims_of(world: ClusterSnapshot) -> dict[str, tuple[str, ...]]:
    return {decision.job.name: decision.victims for decision in planned(world).decisions}


def test_a_grace_period_of_ten_minutes_makes_no_difference() -> None:
    slow = make_job("slow", trainers=8, min_trainers=1, max_trainers=8, on=("n0000",))
    slow = replace(slow, pods=tuple(replace(pod, grace_s=600) for pod in slow.pods))
    honest = make_job("honest", trainers=2, min_trainers=1, max_trainers=9, on=("n0001",))
    rows = (make_node("n0000", cpu=8), make_node("n0001", cpu=8))
    beside = replace(make_serving("beside", cpu=6), node="n0001")
    world = make_snapshot(rows, (honest, slow), (beside, make_serving("s", cpu=1)))
    assert {name: len(gone) for name, gone in victims_of(world).items()} == {"honest": 0, "slow": 1}
