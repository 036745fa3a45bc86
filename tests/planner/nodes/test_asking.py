"""What a plan asks an autoscaler for: the cheapest nodes that help, and none that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import PlanFailure
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot, NodeRequest
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, NodeLimits, Quota
from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeAsk, NodeGroup, NoNode, ScaleUp
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import CPU, PODS, Placement, Taint, Toleration
from edl.planner.fallback import without_growth
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_resources, make_shape, make_snapshot

NOW_S = 1000.0


def make_group(
    name: str = "spot", cpu: float = 4, *, price: float = 0.2, limit: int = 4, **devices: int
) -> NodeGroup:
    amounts = make_resources(cpu, 16, **devices) + make_resources(pods=110)
    return NodeGroup(name, amounts, (("pool", name),), price_per_hour=price, limit=limit, come_s=60.0)


def waiting(name: str = "new", low: int = 3, high: int = 3, scale_up: ScaleUp = ScaleUp.MINIMUM, **more: Any) -> Job:
    return replace(make_job(name, min_trainers=low, max_trainers=high), scale_up=scale_up, **more)


def full_cluster(*jobs: Job) -> ClusterSnapshot:
    """Two nodes of four cores, full with a job that may not shrink, and these jobs."""
    old = make_job("old", trainers=8, min_trainers=8, max_trainers=8, on=("a", "b"), age_s=500)
    return make_snapshot(nodes=(make_node("a", 4), make_node("b", 4)), jobs=(old, *jobs))


def plan(snapshot: ClusterSnapshot, *groups: NodeGroup, **limits: Any) -> ScalePlan:
    made = decide(snapshot, policy_named(""), Limits(**limits, nodes=NodeLimits(expected=groups)))
    assert check(snapshot, made) == ()
    return made


def ask_of(made: ScalePlan, name: str = "new") -> NodeAsk | None:
    decision = made.decision(JobKey("default", name))
    assert decision is not None
    return decision.asks


def request(name: str = "new-node-0", *, group: str = "spot", node: str = "", job: str = "new") -> NodeRequest:
    pod = Pod("default", name, name, make_shape(3), node=node, priority=-5, created_s=NOW_S - 10)
    return NodeRequest(JobKey("default", job), group, pod)


def test_a_waiting_minimum_asks_for_the_fewest_nodes_that_admit_it() -> None:
    ask = ask_of(plan(full_cluster(waiting(low=6, high=6)), make_group()))
    assert ask is not None
    assert (ask.group, ask.nodes, ask.gain, ask.price_per_hour) == ("spot", 2, 6, 0.4)
    assert [(each[CPU], each[PODS]) for each in ask.new] == [(4000, 4), (2000, 2)]


def test_the_cheapest_group_for_the_whole_need_is_asked() -> None:
    small, large = make_group("small", 4, price=0.2), make_group("large", 16, price=0.35)
    for low, group in ((3, "small"), (6, "large")):
        ask = ask_of(plan(full_cluster(waiting(low=low, high=low)), small, large))
        assert ask is not None
        assert ask.group == group


def test_the_plan_says_group_price_and_gain() -> None:
    decision = plan(full_cluster(waiting()), make_group()).decision(JobKey("default", "new"))
    assert decision is not None
    assert decision.message.endswith("; asks for 1 node of group spot")
    assert decision.details.endswith("at 0.2 an hour, which is 0.0667 an hour for each of 3 trainers")


def test_pservers_and_trainers_are_asked_for_together() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(2), 1),)
    ask = ask_of(plan(full_cluster(waiting(fixed=fixed)), make_group()))
    assert ask is not None
    assert sum(each[CPU] for each in ask.new) == 5000


def test_a_master_that_the_cheapest_group_cannot_take_uses_room_of_the_cluster() -> None:
    trainer = make_shape(1, placement=Placement(tolerations=(Toleration("spot", "Exists"),)))
    job = waiting(trainer=trainer, fixed=(FixedPods(Role.MASTER, make_shape(0.5), 1),))
    tainted = replace(make_group(), taints=(Taint("spot", "", "NoSchedule"),))
    without_room, roomy = full_cluster(job), full_cluster(job)
    roomy = replace(roomy, nodes=(*roomy.nodes, make_node("c", 0.5)))
    for snapshot, nodes, obstacle in ((without_room, 0, NoNode.NO_GAIN), (roomy, 1, None)):
        ask = ask_of(plan(snapshot, tainted))
        assert ask is not None
        assert (ask.nodes, ask.obstacle) == (nodes, obstacle)


@pytest.mark.parametrize(
    ("group", "fits"),
    [
        (make_group(), False),
        (replace(make_group(), labels=(("disk", "ssd"), ("pool", "spot"))), True),
        (replace(make_group(), labels=(("disk", "ssd"),), taints=(Taint("spot", "", "NoSchedule"),)), True),
        (replace(make_group(), labels=(("disk", "ssd"),), taints=(Taint("gpu", "", "NoSchedule"),)), False),
    ],
)
def test_selectors_and_taints_are_respected(group: NodeGroup, fits: bool) -> None:
    placement = Placement((("disk", "ssd"),), tolerations=(Toleration("spot", "Exists"),))
    job = waiting(trainer=make_shape(1, placement=placement))
    ask = ask_of(plan(full_cluster(job), group))
    assert ask is not None
    assert (ask.nodes, ask.obstacle) == ((1, None) if fits else (0, NoNode.DOES_NOT_FIT))


def test_devices_and_memory_are_respected() -> None:
    gpus: dict[str, Any] = {"nvidia.com/gpu": 1}
    job = waiting(low=2, high=2, trainer=make_shape(1, **gpus))
    plain, with_gpu = make_group("plain", price=0.1), make_group("gpu", price=2.0, **gpus)
    ask = ask_of(plan(full_cluster(job), plain, with_gpu))
    assert ask is not None
    assert (ask.group, ask.nodes) == ("gpu", 2)
    large = waiting(trainer=make_shape(1, 17))
    ask = ask_of(plan(full_cluster(large), plain))
    assert ask is not None
    assert ask.obstacle is NoNode.DOES_NOT_FIT


def test_the_limit_of_the_group_counts_nodes_and_open_requests() -> None:
    spot = make_node("s", 4, labels={"pool": "spot"})
    other = waiting("other")
    snapshot = full_cluster(waiting(), other)
    snapshot = replace(
        snapshot,
        nodes=(*snapshot.nodes, replace(spot, cordoned=True)),
        node_requests=(request("other-node-0", job="other"),),
    )
    made = plan(snapshot, make_group(limit=2))
    kept, ask = ask_of(made, "other"), ask_of(made)
    assert kept is not None
    assert kept.kept == ("other-node-0",)
    assert ask is not None
    assert ask.obstacle is NoNode.LIMIT


def test_a_quota_is_seen_before_a_node_is_paid_for() -> None:
    job = waiting(low=1, high=9, scale_up=ScaleUp.FULL, queue="blue")
    quota = Quota("blue", ((CPU, 2000),))
    snapshot = make_snapshot(nodes=(make_node("a", 1),), jobs=(job,))
    ask = ask_of(plan(snapshot, make_group(), quotas=(quota,)))
    assert ask is None or ask.nodes <= 1


def test_an_ask_stays_while_the_job_waits_and_ends_with_room() -> None:
    snapshot = replace(full_cluster(waiting()), node_requests=(request(),))
    ask = ask_of(plan(snapshot, make_group()))
    assert ask is not None
    assert (ask.kept, ask.new) == (("new-node-0",), ())
    roomy = replace(snapshot, nodes=(*snapshot.nodes, make_node("c", 4)))
    assert ask_of(plan(roomy, make_group())) is None


def test_a_group_that_rests_is_not_asked_and_another_one_is() -> None:
    snapshot = replace(full_cluster(waiting()), node_requests=(request(),), resting_groups=(("spot", NOW_S + 60),))
    ask = ask_of(made := plan(snapshot, make_group()))
    assert ask is not None
    assert (ask.nodes, ask.obstacle) == (0, NoNode.RESTS)
    decision = made.decision(JobKey("default", "new"))
    assert decision is not None
    assert "group spot brought no node in time" in decision.message
    ask = ask_of(plan(snapshot, make_group(), make_group("dear", price=9.0)))
    assert ask is not None
    assert (ask.group, ask.kept) == ("dear", ())


def test_a_request_that_came_holds_its_node_until_the_others_have_come() -> None:
    spot = make_node("s", 4, labels={"pool": "spot"})
    grower = make_job("old", trainers=8, min_trainers=8, max_trainers=20, on=("a", "b"), age_s=500)
    jobs = (waiting(low=6, high=6), grower)
    nodes = (make_node("a", 4), make_node("b", 4), spot)
    came, open_one = request("new-node-0", node="s"), request("new-node-1")
    snapshot = make_snapshot(nodes=nodes, jobs=jobs)
    made = plan(replace(snapshot, node_requests=(came, open_one)), make_group())
    ask, other = ask_of(made), made.decision(JobKey("default", "old"))
    assert ask is not None
    assert ask.kept == ("new-node-0", "new-node-1")
    assert other is not None
    assert dict(other.nodes) == {"s": 1}  # what the request leaves free


def test_a_request_that_came_gives_its_node_up_while_serving_waits() -> None:
    spot = make_node("s", 4, labels={"pool": "spot"})
    serving = Pod("web", "api", "api", make_shape(4), priority=0, tried=True)
    snapshot = replace(
        full_cluster(waiting(low=6, high=6)),
        pods=(serving,),
        node_requests=(request("new-node-0", node="s"), request("new-node-1")),
    )
    snapshot = replace(snapshot, nodes=(*snapshot.nodes, spot))
    made = plan(snapshot, make_group())
    ask = ask_of(made)
    assert made.serving.placed == 1
    assert ask is not None
    assert ask.kept == ("new-node-1",)


@given(
    lows=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    cores=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_without_a_job_that_asks_the_plan_is_the_same(lows: list[int], cores: list[int]) -> None:
    jobs = tuple(make_job(f"j{i}", min_trainers=low, max_trainers=low + i) for i, low in enumerate(lows))
    snapshot = make_snapshot(nodes=tuple(make_node(f"n{i}", cpu) for i, cpu in enumerate(cores)), jobs=jobs)
    policy = policy_named("")
    with_groups = decide(snapshot, policy, Limits(nodes=NodeLimits(expected=(make_group(),), drain_idle_s=60.0)))
    without = decide(snapshot, policy, Limits())
    assert replace(with_groups, seconds=0.0) == replace(without, seconds=0.0)


@given(low=st.integers(1, 12), cpu=st.integers(1, 6), limit=st.integers(1, 4))
def test_what_is_asked_for_admits_the_job_and_one_node_less_does_not(low: int, cpu: int, limit: int) -> None:
    snapshot, group = full_cluster(waiting(low=low, high=low)), make_group(cpu=cpu, limit=limit)
    ask = ask_of(plan(snapshot, group))
    assert ask is not None
    needed = -(-low // cpu)
    assert ask.nodes == (needed if needed <= limit else 0)


def test_a_fallback_plan_asks_for_no_further_node_and_keeps_the_requests_that_exist() -> None:
    snapshot = full_cluster(waiting(low=6, high=6))
    made = plan(snapshot, make_group())
    later = replace(snapshot, node_requests=(request("new-node-0"), request("new-node-1")))
    ask = ask_of(without_growth(made, later, PlanFailure.BUG))
    assert ask is not None
    assert (ask.kept, ask.new) == (("new-node-0", "new-node-1"), ())
