"""Clusters made to mislead a planner, and the right answer for each.

A case reads: in such a world, these jobs get so many trainers, for this reason, and each job reads what holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.pods import PodPhase
from edl.model.resources import GPU, NodeTerm, Placement, Requirement, Resources
from edl.model.status import Reason
from edl.planner.guard import check
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import apply_plan, decision_of, essence, later, plan_for, targets, victims

HUGE = Resources.of({"memory": 2**63 - 2**41})
PORT = Resources.of({"hostport/TCP/8080": 1})
FPGA = Resources.of({"example.com/fpga": 1})


def asking(job: Job, more: Resources) -> Job:
    """The job with trainers that ask for that too."""
    return replace(job, trainer=replace(job.trainer, request=job.trainer.request + more))


def having(node: Node, more: Resources) -> Node:
    return replace(node, allocatable=node.allocatable + more)


def placed(job: Job, placement: Placement) -> Job:
    return replace(job, trainer=replace(job.trainer, placement=placement))


@dataclass(frozen=True)
class Got:
    """What a job gets: trainers, the reason, and words that its explanation must have."""

    trainers: int
    reason: Reason
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A world and the right answer; `deleted` trainers end for it, and `short` serving pods find no place."""

    world: Callable[[], ClusterSnapshot]
    jobs: Mapping[str, Got]
    deleted: int = 0
    short: int = 0


FULL, MAX, NEVER = Reason.INSUFFICIENT_CAPACITY, Reason.AT_MAX, Reason.UNSCHEDULABLE

CASES: dict[str, Case] = {
    # Totals lie
    "30 cores in nodes of 3 hold 10 trainers of 2 cores, not 15": Case(
        lambda: make_snapshot(make_nodes(10, cpu=3), (make_job("a", cpu=2, min_trainers=1, max_trainers=15),)),
        {"a": Got(10, FULL, ("10 of 15", "more trainers would not fit"))},
    ),
    "and a minimum of 11 never fits them": Case(
        lambda: make_snapshot(make_nodes(10, cpu=3), (make_job("a", cpu=2, min_trainers=11, max_trainers=15),)),
        {"a": Got(0, NEVER, ("11 trainers", "22 cores"))},
    ),
    "cores on one node and memory on the other are no capacity": Case(
        lambda: make_snapshot(
            (make_node("n0", 32, 1), make_node("n1", 1, 256)), (make_job("a", cpu=4, memory_gib=8),)
        ),
        {"a": Got(0, NEVER, ("4 cores",))},
    ),
    # Shapes
    "a pod of 48 cores has one node, and the small ones leave it that capacity": Case(
        lambda: make_snapshot(
            (*make_nodes(9), make_node("big", 64, 512)),
            (make_job("huge", cpu=48, memory_gib=400, max_trainers=5), make_job("small", max_trainers=200)),
        ),
        {
            "huge": Got(1, FULL, ("1 of 5", "more trainers would not fit")),
            "small": Got(88, FULL, ("88 of 200", "cpu")),
        },
    ),
    "a pod larger than every node never fits": Case(
        lambda: make_snapshot(make_nodes(9), (make_job("huge", cpu=48), make_job("small", max_trainers=9))),
        {"huge": Got(0, NEVER, ("48 cores", "8 cores")), "small": Got(9, MAX)},
    ),
    # No room at all
    "nodes of nothing": Case(
        lambda: make_snapshot((make_node("n0", 0, 0, pods=0),), (make_job("a"),), (make_serving("s"),)),
        {"a": Got(0, NEVER, ("1 core",))},
        short=1,
    ),
    "no nodes": Case(
        lambda: make_snapshot((), (make_job("a"),), (make_serving("s"),)),
        {"a": Got(0, NEVER, ("no node",))},
        short=1,
    ),
    "no nodes any more: what counts still counts, nothing is created": Case(
        lambda: make_snapshot((), (make_job("a", trainers=2, on=("gone",)),)),
        {"a": Got(2, FULL)},
    ),
    # Bounds
    "a minimum above the cluster holds back nobody": Case(
        lambda: make_snapshot(
            make_nodes(2),
            (
                make_job("a", min_trainers=17, max_trainers=20, age_s=9),
                make_job("b", min_trainers=16, max_trainers=16),
            ),
        ),
        {"a": Got(0, NEVER, ("17 trainers",)), "b": Got(16, MAX)},
    ),
    "a maximum of 10,000 is worth no more than what fits": Case(
        lambda: make_snapshot(make_nodes(2), (make_job("a", max_trainers=10_000), make_job("b", max_trainers=16))),
        {"a": Got(8, FULL, ("8 of 10000", "cpu", "default/b")), "b": Got(8, FULL, ("8 of 16", "default/a"))},
    ),
    "a weight of a million decides about what rounding leaves, never about a share": Case(
        lambda: make_snapshot(
            make_nodes(1, cpu=9), (replace(make_job("a", max_trainers=9), weight=1e6), make_job("b", max_trainers=9))
        ),
        {"a": Got(5, FULL, ("default/b",)), "b": Got(4, FULL, ("default/a",))},
    ),
    "pinned above the cluster": Case(
        lambda: make_snapshot(
            make_nodes(2), (make_job("a", pinned=17, max_trainers=20), make_job("b", max_trainers=2))
        ),
        {"a": Got(15, FULL, ("17 asked, 15 fit",)), "b": Got(1, FULL)},
    ),
    # Resources
    "devices on one node only": Case(
        lambda: make_snapshot(
            (*make_nodes(9), having(make_node("g"), Resources.of({GPU: 2}))),
            (asking(make_job("a", max_trainers=9), Resources.of({GPU: 1})), make_job("b", max_trainers=78)),
        ),
        {"a": Got(2, FULL, ("more trainers would not fit",)), "b": Got(78, MAX)},
    ),
    "a device that no node has": Case(
        lambda: make_snapshot(make_nodes(2), (asking(make_job("a"), FPGA), make_job("b", max_trainers=4))),
        {"a": Got(0, NEVER, ("example.com/fpga",)), "b": Got(4, MAX)},
    ),
    "an extended resource counts piece by piece": Case(
        lambda: make_snapshot(
            (make_node("n0"), having(make_node("n1"), FPGA * 3)), (asking(make_job("a", max_trainers=8), FPGA),)
        ),
        {"a": Got(3, FULL, ("3 of 8",))},
    ),
    "a host port is one for each node": Case(
        lambda: make_snapshot(make_nodes(3), (asking(make_job("a"), PORT),)),
        {"a": Got(3, FULL, ("3 of 10", "more trainers would not fit"))},
    ),
    "so that four trainers never fit three nodes": Case(
        lambda: make_snapshot(make_nodes(3), (asking(make_job("a", min_trainers=4), PORT),)),
        {"a": Got(0, NEVER, ("4 trainers", "TCP/8080"))},
    ),
    "a foreign pod that has the port keeps it": Case(
        lambda: make_snapshot(
            make_nodes(2),
            (asking(make_job("a"), PORT),),
            (replace(make_serving("s", node="n000"), shape=asking(make_job("x"), PORT).trainer),),
        ),
        {"a": Got(1, FULL)},
    ),
    "trainers that ask for nothing are limited by the number of pods": Case(
        lambda: make_snapshot((make_node("n0", pods=7),), (make_job("a", cpu=0, memory_gib=0, max_trainers=20),)),
        {"a": Got(7, FULL, ("7 of 20",))},
    ),
    "and share it with those that ask for much": Case(
        lambda: make_snapshot(
            (make_node("n0", pods=6),),
            (make_job("a", cpu=0, memory_gib=0, max_trainers=6), make_job("b", max_trainers=6)),
        ),
        {"a": Got(3, FULL, ("number of pods", "default/b")), "b": Got(3, FULL, ("number of pods", "default/a"))},
    ),
    "requests near 2^63 are no capacity, however few ask": Case(
        lambda: make_snapshot(
            make_nodes(2),
            (asking(make_job("a", min_trainers=2), HUGE), make_job("b")),
        ),
        {"a": Got(0, NEVER, ("EiB",)), "b": Got(10, MAX)},
    ),
    "and a node that claims 2^63 is as good as any large one": Case(
        lambda: make_snapshot((having(make_node("n0"), HUGE),), (make_job("a"),)),
        {"a": Got(8, FULL, ("8 of 10",))},
    ),
    # Where pods may go
    "selector and affinity that contradict each other": Case(
        lambda: make_snapshot(
            (make_node("n0", labels={"pool": "x"}), make_node("n1")),
            (
                placed(
                    make_job("a"),
                    Placement((("pool", "x"),), (NodeTerm((Requirement("pool", "NotIn", ("x",)),)),)),
                ),
                make_job("b", max_trainers=16),
            ),
        ),
        {"a": Got(0, NEVER, ("no node",)), "b": Got(16, MAX)},
    ),
    "serving that fits nowhere kills nobody": Case(
        lambda: make_snapshot(
            make_nodes(2),
            (make_job("a", trainers=16, max_trainers=16, on=("n000", "n001")),),
            (make_serving("s", cpu=9),),
        ),
        {"a": Got(16, MAX)},
        short=1,
    ),
    "serving that fits nowhere hides nothing from serving that fits": Case(
        lambda: make_snapshot(
            make_nodes(1),
            (make_job("a", trainers=8, max_trainers=8, on=("n000",)),),
            (make_serving("huge", cpu=9), make_serving("s", cpu=2)),
        ),
        {"a": Got(6, Reason.SERVING_NEEDS_ROOM, ("2 trainers", "1 serving pod"))},
        deleted=2,
        short=1,
    ),
    # Nodes that are no longer what they were
    "trainers on a cordoned node stay; new ones go elsewhere": Case(
        lambda: make_snapshot(
            (make_node("n0", cordoned=True), make_node("n1", 4)),
            (make_job("a", trainers=3, min_trainers=2, max_trainers=10, on=("n0",)),),
        ),
        {"a": Got(7, FULL, ("7 of 10",))},
    ),
    "so do those on a node that is not ready": Case(
        lambda: make_snapshot(
            (make_node("n0", ready=False), make_node("n1", 4)),
            (make_job("a", trainers=3, min_trainers=2, max_trainers=10, on=("n0",)),),
        ),
        {"a": Got(7, FULL, ("7 of 10",))},
    ),
    "those of a node that is gone count until they are gone": Case(
        lambda: make_snapshot((make_node("n1", 4),), (make_job("a", trainers=3, max_trainers=10, on=("gone",)),)),
        {"a": Got(7, FULL, ("7 of 10",))},
    ),
    "nothing is deleted on a cordoned node for serving that could not go there": Case(
        lambda: make_snapshot(
            (make_node("n0", cordoned=True), make_node("n1", 4)),
            (make_job("a", trainers=8, max_trainers=8, on=("n0",)),),
            (make_serving("s", cpu=3),),
        ),
        {"a": Got(8, MAX)},
    ),
    "a node that foreign pods overcommit keeps what runs and gets nothing": Case(
        lambda: make_snapshot(
            (make_node("n0"), make_node("n1", 4)),
            (make_job("a", trainers=2, max_trainers=10, on=("n0",)),),
            tuple(make_serving(f"s{i}", cpu=4, node="n0") for i in range(3)),
        ),
        {"a": Got(6, FULL, ("6 of 10",))},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_right_answer(name: str) -> None:
    case = CASES[name]
    world = case.world()
    plan = plan_for(world)
    assert targets(plan) == {job: got.trainers for job, got in case.jobs.items()}
    for job, got in case.jobs.items():
        decision = decision_of(plan, job)
        assert (decision.reason, decision.admitted) == (got.reason, got.trainers > 0)
        assert [word for word in got.words if word not in decision.account] == [], decision.account
    assert (len(victims(plan)), plan.serving.short) == (case.deleted, case.short)
    assert check(world, plan) == ()
    assert plan.certificate.gap < 0.01


@pytest.mark.parametrize("name", CASES)
def test_and_it_stays_the_answer(name: str) -> None:
    world = CASES[name].world()
    plan = plan_for(world)
    again = plan_for(later(apply_plan(world, plan), 1))
    assert essence(again) == essence(plan)
    assert victims(again) == []


# Many


def test_forty_shapes_are_all_admitted_and_what_is_left_of_fair_shares_goes_to_the_small() -> None:
    """640 cores for 40 jobs whose trainers ask for 1 to 8 cores: a fair share is 3.6 trainers, so that all have 3."""
    jobs = tuple(make_job(f"j{i:02d}", cpu=1 + i % 8, memory_gib=1 + i // 8, max_trainers=8) for i in range(40))
    world = make_snapshot(make_nodes(20, cpu=32, memory_gib=128), jobs)
    plan = plan_for(world, Limits(deadline_s=60.0))
    assert all(d.admitted for d in plan.decisions)
    counts = targets(plan)
    assert min(counts.values()) >= 3
    used = sum((1 + i % 8) * counts[f"j{i:02d}"] for i in range(40))
    assert used >= 0.98 * 640
    assert plan.certificate.gap >= 0, "the bound is that of the sum, of which even shares give up a part"


def test_300_equal_jobs_are_admitted_by_age_and_nobody_is_forgotten() -> None:
    """250 seats: the 250 oldest jobs get one each; the others read that they wait, and behind whom."""
    jobs = tuple(make_job(f"j{i:03d}", max_trainers=2, age_s=float(i)) for i in range(300))
    plan = plan_for(make_snapshot(make_nodes(25, cpu=10), jobs), Limits(deadline_s=60.0))
    decisions = {d.job.name: d for d in plan.decisions}
    assert sum(d.target for d in plan.decisions) == 250
    assert all(decisions[f"j{i:03d}"].target == 1 for i in range(50, 300))
    left_out = [decisions[f"j{i:03d}"] for i in range(50)]
    assert {d.reason for d in left_out} == {Reason.MIN_UNSATISFIED}
    assert all("default/j049" in d.account for d in left_out[:-1])


def test_1000_equal_jobs_differ_by_one_trainer_at_most() -> None:
    jobs = tuple(make_job(f"j{i:04d}", max_trainers=20) for i in range(1000))
    plan = plan_for(make_snapshot(make_nodes(100, cpu=25), jobs), Limits(deadline_s=60.0))
    assert set(targets(plan).values()) == {2, 3}
    assert sum(targets(plan).values()) == 2500


# Odd pods


@pytest.mark.parametrize("index", [0, None])
def test_labels_that_say_the_same_number_twice_or_none_choose_one_victim_all_the_same(index: int | None) -> None:
    job = make_job("a", trainers=3, max_trainers=3, on=("n000",))
    odd = replace(job, pods=tuple(replace(pod, index=index) for pod in job.pods))
    plan = plan_for(make_snapshot(make_nodes(1, cpu=3), (odd,), (make_serving("s", cpu=1),)))
    assert targets(plan) == {"a": 2}
    assert len(victims(plan)) == 1
    assert set(victims(plan)) < {pod.name for pod in job.pods}


def test_a_running_job_that_is_pinned_above_the_cluster_has_what_fits_and_learns_why() -> None:
    world = make_snapshot(make_nodes(2), (make_job("a", trainers=4, pinned=17, max_trainers=20, on=("n000",)),))
    plan = plan_for(world)
    assert (targets(plan), victims(plan)) == ({"a": 16}, [])
    of_a = decision_of(plan_for(apply_plan(world, plan)), "a")
    assert (of_a.target, of_a.reason) == (16, FULL)
    assert "17 asked, 16 fit" in of_a.account


def test_trainers_without_a_node_whose_planned_node_is_gone_are_placed_elsewhere() -> None:
    job = make_job("a", trainers=2, max_trainers=2)
    lost = tuple(replace(pod, planned="gone", phase=PodPhase.PENDING, started_s=None) for pod in job.pods)
    plan = plan_for(make_snapshot(make_nodes(1), (replace(job, pods=lost),)))
    of_a: ScaleDecision = decision_of(plan, "a")
    assert (of_a.target, of_a.victims, of_a.nodes) == (2, (), ())
