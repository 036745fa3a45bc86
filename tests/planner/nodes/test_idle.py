"""Nodes of expected groups that only surplus holds, and the plan that empties them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, NodeLimits
from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeGroup, ScaleUp
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod
from edl.model.status import Reason
from edl.planner.guard import check
from edl.planner.nodes.idle import idle_nodes
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_resources, make_shape, make_snapshot

SPOT = NodeGroup("spot", make_resources(4, 32, pods=110), (("pool", "spot"),), limit=4)
LIMITS = Limits(nodes=NodeLimits(expected=(SPOT,), drain_idle_s=60.0))


def cluster(*jobs: Job, pods: tuple[Pod, ...] = ()) -> ClusterSnapshot:
    """One node of the cluster's own and two of group spot."""
    spot = [make_node(name, 4, labels={"pool": "spot"}) for name in ("s", "t")]
    return make_snapshot(nodes=(make_node("own", 4), *spot), jobs=jobs, pods=pods)


def surplus(low: int = 4, **more: Any) -> Job:
    """A job with trainers on own, s and t in turn, four on each."""
    found = make_job("a", trainers=12, min_trainers=low, max_trainers=20, on=("own", "s", "t"))
    return replace(found, **more)


def test_nodes_of_a_group_that_only_surplus_holds_are_idle() -> None:
    assert idle_nodes(cluster(surplus()), LIMITS) == ("s", "t")


def test_an_empty_node_is_idle_and_one_of_no_group_never_is() -> None:
    assert idle_nodes(cluster(), LIMITS) == ("s", "t")
    assert idle_nodes(cluster(), Limits(nodes=NodeLimits(drain_idle_s=60.0))) == ()


@pytest.mark.parametrize(("low", "names"), [(4, ("s", "t")), (5, ("s",)), (8, ("s",)), (9, ())])
def test_no_trainer_of_a_minimum_is_on_them(low: int, names: tuple[str, ...]) -> None:
    assert idle_nodes(cluster(surplus(low)), LIMITS) == names


def test_nodes_that_the_group_keeps_are_not_idle() -> None:
    group = replace(SPOT, keep=1)
    assert len(idle_nodes(cluster(surplus()), replace(LIMITS, nodes=replace(LIMITS.nodes, expected=(group,))))) == 1


@pytest.mark.parametrize(
    "pod",
    [
        Pod("web", "api", "u", make_shape(1), node="s"),
        Pod("web", "api", "u", make_shape(1), nominated="s"),
    ],
)
def test_a_pod_of_another_owner_keeps_its_node(pod: Pod) -> None:
    assert idle_nodes(cluster(pods=(pod,)), LIMITS) == ("t",)


def test_daemon_pods_and_pods_that_end_do_not() -> None:
    daemon = Pod("kube-system", "log", "u", make_shape(1), node="s", daemon=True)
    ending = Pod("web", "api", "v", make_shape(1), node="s", terminating=True)
    assert idle_nodes(cluster(pods=(daemon, ending)), LIMITS) == ("s", "t")


@pytest.mark.parametrize(
    "job",
    [
        make_job("b", min_trainers=3, max_trainers=3),
        replace(make_job("b", trainers=1, max_trainers=8, on=("own",)), scale_up=ScaleUp.FULL),
        make_job("b", fixed=(FixedPods(Role.PSERVER, make_shape(3), 1),), min_trainers=1, max_trainers=1),
    ],
)
def test_no_node_is_idle_that_a_waiting_job_could_take(job: Job) -> None:
    assert idle_nodes(cluster(surplus(), job), LIMITS) == ()


def test_a_waiting_job_that_no_such_node_can_take_changes_nothing() -> None:
    large = make_job("b", cpu=5, min_trainers=1, max_trainers=1)
    assert idle_nodes(cluster(surplus(), large), LIMITS) == ("s", "t")


def test_waiting_serving_keeps_them() -> None:
    serving = Pod("web", "api", "u", make_shape(1), priority=0)
    assert idle_nodes(cluster(surplus(), pods=(serving,)), LIMITS) == ()


@pytest.mark.parametrize(
    "more",
    [{"fault_tolerant": False}, {"scale_up": ScaleUp.FULL}, {"owner_count": 12}, {"pinned": 12}],
)
def test_trainers_that_cannot_be_taken_keep_their_node(more: dict[str, Any]) -> None:
    assert idle_nodes(cluster(surplus(**more)), LIMITS) == ()


def test_a_trainer_that_its_owner_marked_keeps_its_node() -> None:
    job = surplus()
    pods = tuple(replace(p, safe_to_evict=False if p.name == "a-trainer-1" else None) for p in job.pods)
    assert idle_nodes(cluster(replace(job, pods=pods)), LIMITS) == ("t",)


def decided(snapshot: ClusterSnapshot) -> ScaleDecision:
    plan = decide(snapshot, policy_named(""), LIMITS)
    assert check(snapshot, plan) == ()
    found = plan.decision(JobKey("default", "a"))
    assert found is not None
    return found


def test_the_plan_empties_the_nodes_and_puts_nothing_there() -> None:
    snapshot = replace(cluster(surplus()), idle_nodes=("s", "t"))
    found = decided(snapshot)
    assert (found.current, found.target, len(found.victims)) == (12, 4, 8)
    assert found.shrink_reason == Reason.NODE_IDLE
    assert found.nodes == ()
    assert "gives up 8 trainers above its minimum, so that s and t can leave the cluster" in found.details


def test_an_emptied_node_stays_empty_while_surplus_wants_it() -> None:
    job = make_job("a", trainers=4, min_trainers=4, max_trainers=20, on=("own",))
    assert decided(replace(cluster(job), idle_nodes=("s", "t"))).nodes == ()
    assert decided(cluster(job)).target == 12


def test_a_node_that_is_needed_by_now_is_not_emptied() -> None:
    waiting = make_job("b", min_trainers=3, max_trainers=3)
    snapshot = replace(cluster(surplus(), waiting), idle_nodes=("s", "t"))
    plan = decide(snapshot, policy_named(""), LIMITS)
    new = plan.decision(JobKey("default", "b"))
    assert new is not None
    assert new.admitted


def test_trainers_move_where_there_is_room() -> None:
    job = make_job("a", trainers=4, min_trainers=2, max_trainers=4, on=("own", "s"))
    found = decided(replace(cluster(job), idle_nodes=("s",)))
    assert (found.target, dict(found.nodes)) == (4, {"own": 2})


def test_surplus_is_not_taken_beside_a_job_that_has_all_it_asked_for_and_would_have_to_share() -> None:
    content = replace(make_job("b", trainers=2, min_trainers=1, max_trainers=2, on=("own",)), scale_up=ScaleUp.FULL)
    assert idle_nodes(cluster(surplus(), content), LIMITS) == ()
    assert idle_nodes(cluster(content), LIMITS) == ("s", "t")
