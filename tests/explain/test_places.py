"""Nodes in sentences: their pools, the resource that is full there, and the nodes that a job avoids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.cluster import AvoidedNode, Node
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.resources import NodeTerm, Placement, Requirement
from tests.worlds.builders import make_job, make_node, make_nodes, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for


def avoiding(job: Job, *names: str) -> Job:
    """The job as the planner gets it: away from nodes."""
    terms = (NodeTerm((), tuple(Requirement("metadata.name", "NotIn", (name,)) for name in names)),)
    return replace(job, trainer=replace(job.trainer, placement=Placement(required=terms)))


UNTIL = AvoidedNode("n000", 1060.0, (JobKey("default", "a"),))


@pytest.mark.parametrize(
    ("avoided", "rejecting", "why"), [((), (UNTIL,), "rejected its pods"), ((UNTIL,), (), "made trainers fail")]
)
def test_a_node_that_a_job_avoids_for_a_while_is_named_beside_those_that_are_full(
    avoided: tuple[AvoidedNode, ...], rejecting: tuple[AvoidedNode, ...], why: str
) -> None:
    world = make_snapshot(make_nodes(3), (avoiding(make_job("a", max_trainers=60), "n000"),))
    decision = decision_of(plan_for(replace(world, avoided=avoided, rejecting=rejecting)), "a")
    full = "16 of 60: cpu is full on all 2 nodes that accept its trainers"
    assert decision.message == f"{full}; it avoids node n000, which {why}"
    assert f"; it avoids node n000 until 1970-01-01T00:17:40Z, which {why}" in decision.account


def test_a_job_that_would_start_on_the_node_that_it_avoids_says_so() -> None:
    """Without it, the minimum fits nowhere, even without other jobs."""
    world = make_snapshot(make_nodes(2), (avoiding(make_job("a", min_trainers=12, max_trainers=12), "n000"),))
    decision = decision_of(plan_for(replace(world, rejecting=(UNTIL,))), "a")
    assert decision.message.endswith("; it avoids node n000, which rejected its pods")


def test_four_of_them_are_three_and_a_number_and_those_of_others_are_not_named() -> None:
    names = [f"n00{number}" for number in range(5)]
    world = make_snapshot(make_nodes(6), (avoiding(make_job("a", max_trainers=60), *names[:4]), make_job("b")))
    others = replace(UNTIL, name=names[4], jobs=(JobKey("default", "b"),))
    plan = plan_for(replace(world, rejecting=(*(replace(UNTIL, name=name) for name in names[:4]), others)))
    named = decision_of(plan, "a").message.partition("; ")[2]
    assert named == "it avoids nodes n000, n001, n002 and 1 other node, which rejected its pods"


def test_a_job_that_goes_there_all_the_same_avoids_nothing() -> None:
    """No other node accepts its trainers, so that it is not kept away."""
    world = make_snapshot(make_nodes(1), (make_job("a", max_trainers=60),))
    decision = decision_of(plan_for(replace(world, rejecting=(UNTIL,))), "a")
    assert decision.message == "8 of 60: cpu is full on node n000"


def pooled(pools: str, cores: int = 8, label: str = "cloud.google.com/gke-nodepool") -> tuple[Node, ...]:
    """A node for each letter, in the pool of that name."""
    return tuple(make_node(f"n{i}", cores, 64, labels={label: pool}) for i, pool in enumerate(pools))


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("cloud.google.com/gke-nodepool", "on pool x;"),
        ("eks.amazonaws.com/nodegroup", "on node group x;"),
        ("kubernetes.azure.com/agentpool", "on pool x;"),
        ("agentpool", "on pool x;"),
        ("karpenter.sh/nodepool", "on pool x;"),
        ("paddlepaddle.org/pool", "on pool x;"),
        ("node.kubernetes.io/instance-type", "on instance type x;"),
        ("example.org/pool", "on all 2 nodes that accept its trainers;"),
    ],
)
def test_nodes_are_named_by_the_pool_that_their_label_says(label: str, says: str) -> None:
    world = make_snapshot(pooled("xx", label=label), (make_job("a", max_trainers=60),))
    assert says in decision_of(plan_for(world), "a").account


def test_several_pools_and_resources_are_named_apart() -> None:
    nodes = (*pooled("aab"), make_node("n9", 40, 4, labels={"cloud.google.com/gke-nodepool": "c"}))
    jobs = (make_job("a", max_trainers=90), make_job("b", max_trainers=90))
    message = decision_of(plan_for(make_snapshot(nodes, jobs)), "a").account
    assert "cpu is full on pool a and pool b, memory on node n9; default/b holds" in message


def test_many_pools_are_counted() -> None:
    world = make_snapshot(pooled("aabbccddee"), (make_job("a", max_trainers=900),))
    assert "cpu is full on pool a, pool b and 3 more pools;" in decision_of(plan_for(world), "a").account


def test_part_of_a_pool_is_not_called_the_pool() -> None:
    nodes = tuple(
        make_node(f"n{i}", 8, 64 if i else 4, labels={"cloud.google.com/gke-nodepool": "a"}) for i in range(3)
    )
    message = decision_of(plan_for(make_snapshot(nodes, (make_job("a", max_trainers=900),))), "a").account
    assert "cpu is full on 2 of the 3 nodes of pool a, memory on node n0" in message
