"""What counts as room: who holds how much of a node, seen in the plan that comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edl.model.cluster import Node
from edl.model.jobs import Job
from edl.model.pods import LONGEST_END_S, OVERDUE_S, Pod, PodPhase
from edl.model.resources import PodShape, Resources
from edl.planner import problem
from edl.planner.guard import check
from tests.worlds.builders import make_job, make_node, make_resources, make_serving, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, targets


def asking(job: Job, **more: int) -> Job:
    """The job with a further resource for each trainer; `__` stands for what no name of Python may have."""
    return replace(job, trainer=with_more(job.trainer, **more))


def with_more(shape: PodShape, **more: int) -> PodShape:
    return replace(shape, request=shape.request + Resources.of({_name(k): n for k, n in more.items()}))


def offering(node: Node, **more: int) -> Node:
    return replace(node, allocatable=node.allocatable + Resources.of({_name(k): n for k, n in more.items()}))


def _name(word: str) -> str:
    return {
        "gpu": "nvidia.com/gpu",
        "disk": "ephemeral-storage",
        "huge": "hugepages-2Mi",
        "fpga": "example.com/fpga",
        "port": "hostport/TCP/80",
        "udp": "hostport/UDP/80",
        "port_at_1": "hostport/TCP/80/10.0.0.1",
        "port_at_2": "hostport/TCP/80/10.0.0.2",
    }[word]


@pytest.mark.parametrize(
    ("each", "there", "trainers"),
    [
        ({"gpu": 1}, {"gpu": 3}, 3),
        ({"gpu": 2}, {"gpu": 3}, 1),
        ({"fpga": 1}, {"fpga": 2, "gpu": 8}, 2),
        ({"disk": 10 * 1024**3}, {"disk": 45 * 1024**3}, 4),
        ({"huge": 2 * 1024**2}, {"huge": 10 * 1024**2}, 5),
        ({"gpu": 1}, {}, 0),
    ],
)
def test_what_a_pod_asks_for_beyond_cpu_and_memory_limits_it_too(
    each: dict[str, int], there: dict[str, int], trainers: int
) -> None:
    world = make_snapshot((offering(make_node("n0"), **there),), (asking(make_job("a"), **each),))
    assert targets(plan_for(world)) == {"a": trainers}


def test_a_node_holds_no_more_pods_than_its_kubelet_takes() -> None:
    held = tuple(make_serving(f"s{i}", cpu=0, node="n0") for i in range(3))
    assert targets(plan_for(make_snapshot((make_node("n0", pods=5),), (make_job("a"),), held))) == {"a": 2}


@pytest.mark.parametrize(
    ("held", "asked", "fits"),
    [
        ("port", "port", False),
        ("port", "udp", True),
        ("port", "port_at_1", False),
        ("port_at_1", "port", False),
        ("port_at_1", "port_at_1", False),
        ("port_at_1", "port_at_2", True),
        ("udp", "port_at_1", True),
    ],
)
def test_a_host_port_is_there_once_for_each_protocol_and_address(held: str, asked: str, fits: bool) -> None:
    holder = make_serving("s", node="n0")
    holder = replace(holder, shape=with_more(holder.shape, **{held: 1}))
    free = make_snapshot((make_node("n0"),), (asking(make_job("a"), **{asked: 1}),))
    plan = plan_for(free)
    assert targets(plan) == {"a": 1}
    taken = replace(free, pods=(holder,))
    assert targets(plan_for(taken)) == {"a": int(fits)}
    assert bool(check(taken, plan)) is not fits


def test_two_jobs_share_a_port_where_they_ask_for_it_at_different_addresses() -> None:
    jobs = (asking(make_job("a"), port_at_1=1), asking(make_job("b"), port_at_2=1), asking(make_job("c"), port=1))
    plan = plan_for(make_snapshot((make_node("n0"), make_node("n1")), jobs))
    places = {d.job.name: dict(d.nodes) for d in plan.decisions}
    assert sorted(places["c"]) != sorted(places["a"])
    assert not set(places["c"]) & {*places["a"], *places["b"]}


# Pods of others


HOLDERS: dict[str, Pod] = {
    "running": make_serving("s", node="n0"),
    "bound but not running yet": replace(make_serving("s", node="n0"), phase=PodPhase.PENDING, ready=False),
    "terminating": replace(make_serving("s", node="n0"), terminating=True),
    "of a mirror pod": replace(make_serving("s", node="n0", priority=2_000_001_000), namespace="kube-system"),
    "of a daemon": replace(make_serving("s", node="n0"), daemon=True),
    "of low priority": make_serving("s", node="n0", priority=-10),
    "promised by kube-scheduler": make_serving("s", nominated="n0"),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS.keys())
def test_room_of_others_is_theirs_until_they_are_gone(holder: Pod) -> None:
    plan = plan_for(make_snapshot((make_node("n0", 8),), (make_job("a", trainers=2, on=("n0",)),), (holder,)))
    assert targets(plan) == {"a": 5}
    assert decision_of(plan, "a").victims == ()


NOBODY: dict[str, Pod] = {
    "gated": replace(make_serving("s"), gated=True),
    "finished": replace(make_serving("s", node="n0"), phase=PodPhase.SUCCEEDED),
    "failed": replace(make_serving("s", node="n0"), phase=PodPhase.FAILED),
    "of low priority": make_serving("s", priority=-1),
    "going before it had a node": replace(make_serving("s"), terminating=True),
    "waiting of a daemon": replace(make_serving("s"), daemon=True),
    "bound to a node that is gone": make_serving("s", node="gone"),
}


@pytest.mark.parametrize("other", NOBODY.values(), ids=NOBODY.keys())
def test_who_neither_holds_room_nor_waits_for_it_changes_nothing(other: Pod) -> None:
    plan = plan_for(make_snapshot((make_node("n0", 8),), (make_job("a", trainers=2, on=("n0",)),), (other,)))
    assert targets(plan) == {"a": 8}
    assert plan.serving.waiting == 0


def test_a_waiting_serving_pod_gets_room_on_a_node_that_takes_it() -> None:
    nodes = (make_node("n0", 8), make_node("n1", 8, cordoned=True), make_node("n2", 8, ready=False))
    plan = plan_for(make_snapshot(nodes, (make_job("a", trainers=8, on=("n0",)),), (make_serving("s", cpu=3),)))
    assert len(decision_of(plan, "a").victims) == 3
    assert (plan.serving.placed, plan.serving.short) == (1, 0)


# Nodes


@pytest.mark.parametrize("unfit", [make_node("n0", 8, cordoned=True), make_node("n0", 8, ready=False)])
def test_a_node_that_takes_nobody_keeps_whom_it_has(unfit: Node) -> None:
    plan = plan_for(make_snapshot((unfit, make_node("n1", 4)), (make_job("a", trainers=2, on=("n0",)),)))
    assert decision_of(plan, "a").nodes == (("n1", 4),)
    assert decision_of(plan, "a").victims == ()


def test_what_daemons_will_need_is_not_given_away() -> None:
    reserved = make_resources(1.5) + Resources.of({"pods": 1, "hostport/TCP/80": 1})
    node = replace(make_node("n0", 8, pods=4), reserved=reserved)
    assert targets(plan_for(make_snapshot((node,), (make_job("a"),)))) == {"a": 3}
    ported = asking(make_job("a"), port_at_1=1)
    assert targets(plan_for(make_snapshot((node,), (ported,)))) == {"a": 0}


def test_requests_of_many_equal_pods_add_up_exactly() -> None:
    request = np.array([[2**40, 1], [3, 0], [0, 7]], dtype=np.int64)
    random = np.random.default_rng(1)
    node, shape = random.integers(0, 5, 400), random.integers(0, 3, 400)
    expected = np.zeros((6, 2), dtype=np.int64)
    for at, kind in zip(node.tolist(), shape.tolist(), strict=True):
        expected[at] += request[kind]

    assert problem.sum_requests(6, request, node, shape).tolist() == expected.tolist()
    assert problem.sum_requests(6, request, [4, 0, 4], [1, 0, 2]).tolist()[4] == [3, 7]
    assert not problem.sum_requests(6, request, [], []).any()


@pytest.mark.parametrize(
    ("going", "trainers", "then"),
    [({}, 4, 4), ({"orphans_pods": True}, 1, 1), ({"owner_count": 3}, 1, 4)],
    ids=["edl ends them", "they outlive their job", "its own controller ends them"],
)
def test_pods_of_a_deleted_job_are_going_if_edl_or_somebody_else_ends_them(
    going: dict[str, Any], trainers: int, then: int
) -> None:
    node, a = make_node("n0", cpu=4), make_job("a", max_trainers=4)
    gone = replace(make_job("gone", trainers=3, on=("n0",)), deleting=True, **going)
    world = make_snapshot((node,), (gone, a))
    plan = plan_for(world)
    assert targets(plan)["a"] == trainers
    assert not check(world, plan)
    ending = replace(gone, pods=tuple(replace(pod, terminating=True) for pod in gone.pods))
    assert targets(plan_for(make_snapshot((node,), (ending, a))))["a"] == then


LINGER = {
    "long": 1000.0 + LONGEST_END_S + 1,
    "for ever": 1000.0 + 2**31,
    "held by a finalizer": 1000.0 - OVERDUE_S - 1,
    "since yesterday": 1000.0 - 86_400,
}
GO = {"soon": 1010.0, "in time": 1000.0 + LONGEST_END_S, "late": 1000.0 - OVERDUE_S, "nobody knows": None}


def ending(job: Job, ends_by_s: float | None, count: int = 3) -> Job:
    """The job with its first trainers terminating."""
    going = [replace(pod, terminating=True, ends_by_s=ends_by_s) for pod in job.pods[:count]]
    return replace(job, pods=(*going, *job.pods[count:]))


@pytest.mark.parametrize("fields", [{}, {"suspended": True}, {"deleting": True}, {"finished": True}], ids=str)
@pytest.mark.parametrize(
    ("ends_by_s", "trainers"),
    [*((time_s, 1) for time_s in LINGER.values()), *((time_s, 4) for time_s in GO.values())],
    ids=[*LINGER, *GO],
)
def test_nobody_waits_for_pods_that_do_not_end(
    ends_by_s: float | None, trainers: int, fields: dict[str, Any]
) -> None:
    other = replace(make_job("other", trainers=3, min_trainers=1, max_trainers=3, on=("n0",)), **fields)
    other = ending(replace(other, max_trainers=3), ends_by_s)
    world = make_snapshot((make_node("n0", cpu=4),), (make_job("a", max_trainers=4), other))
    plan = plan_for(world)
    assert not check(world, plan)
    assert sum(targets(plan).values()) == trainers


@pytest.mark.parametrize("ends_by_s", LINGER.values(), ids=LINGER.keys())
def test_serving_gets_the_room_of_others_if_the_first_victims_do_not_end(ends_by_s: float) -> None:
    """A job whose trainers stay costs the others trainers, but serving no pod."""
    stubborn = ending(make_job("stubborn", trainers=6, max_trainers=9, on=("n0",)), ends_by_s, 2)
    honest = make_job("honest", trainers=2, max_trainers=9, on=("n0",))
    waiting = make_serving("s", cpu=2)
    plan = plan_for(make_snapshot((make_node("n0", cpu=8),), (honest, stubborn), (waiting,)))
    assert plan.serving.short == 0
    assert sum(len(decision.victims) for decision in plan.decisions) == 2
    soon = ending(make_job("stubborn", trainers=6, max_trainers=9, on=("n0",)), 1010.0, 2)
    plan = plan_for(make_snapshot((make_node("n0", cpu=8),), (honest, soon), (waiting,)))
    assert not any(decision.victims for decision in plan.decisions)
