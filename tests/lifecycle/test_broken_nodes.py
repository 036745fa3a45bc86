"""Which nodes new trainers avoid, from what the statuses of jobs tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.explain.decision import decide
from edl.lifecycle.broken_nodes import (
    MOST_NODES,
    as_avoiding,
    closed_nodes,
    excluding,
    keep_away,
    most_avoided,
    one_trial_per_node,
    watch_nodes,
)
from edl.lifecycle.node_watch import LONGEST_S, NodeWatch, wait_s
from edl.model.actions import CreatePod
from edl.model.cluster import AvoidedNode, ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, NodeLimits
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import NodeTerm, Placement, Requirement, Resources
from edl.model.status import JobStatus, NodeTrouble
from edl.planner.eligibility import takes
from edl.planner.policies.registry import policy_named
from edl.planner.starts import Start
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot

NOW_S, FIRST_S = 10_000.0, 600.0
LIMITS = Limits(nodes=NodeLimits(avoid_after=2, avoid_for_s=FIRST_S))
NODES = make_nodes(20, cpu=4)
WITNESSES = (JobKey("default", "x"), JobKey("default", "y"))


def accuser(name: str, *troubles: NodeTrouble, on: tuple[str, ...] = ("n005",), trainers: int = 2) -> Job:
    return replace(make_job(name, trainers=trainers, on=on), status=JobStatus(troubles=troubles))


def trouble(node: str = "n001", ago_s: float = 10.0, waits: int = 0, *, confirmed: bool = True) -> NodeTrouble:
    return NodeTrouble(node, NOW_S - ago_s, waits=waits, confirmed=confirmed)


def watch(*jobs: Job, limits: Limits = LIMITS, nodes: int = 20) -> NodeWatch:
    return watch_nodes(make_snapshot(NODES[:nodes], jobs, now_s=NOW_S), limits)


def names(found: NodeWatch) -> list[str]:
    return [node.name for node in found.avoided if not node.spared]


def test_a_node_with_troubles_of_enough_jobs_is_avoided_from_the_last_one_on() -> None:
    found = watch(accuser("a", trouble(ago_s=40)), accuser("b", trouble(ago_s=30)))
    keys = (JobKey("default", "a"), JobKey("default", "b"))
    assert found.avoided == (AvoidedNode("n001", NOW_S - 30 + FIRST_S, keys),)


@pytest.mark.parametrize(
    "jobs",
    [
        (accuser("a", trouble()),),
        (accuser("a", trouble()), accuser("b", trouble(confirmed=False))),
        (accuser("a", trouble()), accuser("b", trouble("n002"))),
        (accuser("a", trouble()), accuser("b", trouble(ago_s=3.1 * FIRST_S))),
        (accuser("a", trouble("gone")), accuser("b", trouble("gone"))),
        (accuser("a", trouble(ago_s=4 * FIRST_S)), accuser("b", trouble(ago_s=4 * FIRST_S))),
    ],
    ids=["one job", "not confirmed", "other nodes", "long before", "no such node", "forgotten"],
)
def test_no_node_is_avoided_on_less(jobs: tuple[Job, ...]) -> None:
    assert watch(*jobs).avoided == ()


def of(namespace: str, job: Job) -> Job:
    return replace(job, key=JobKey(namespace, job.key.name))


def test_a_tenant_closes_nodes_to_its_own_jobs_only() -> None:
    """Its trainers may fail there on purpose, and its statuses may say what it likes."""
    forged = [of("mallory", accuser(name, trouble(waits=9))) for name in ("a", "b", "c")]
    honest = accuser("good")
    found = watch(*forged, honest)
    assert names(found) == ["n001"]
    assert closed_nodes(forged[0], found.avoided, NODES) == ("n001",)
    assert closed_nodes(honest, found.avoided, NODES) == ()
    agreed = watch(*forged, honest, of("ads", accuser("d", trouble())))
    assert closed_nodes(honest, agreed.avoided, NODES) == ("n001",)


def test_a_tenant_that_accuses_many_nodes_spares_none_that_others_had_trouble_with() -> None:
    forged = [of("mallory", accuser(name, *(trouble(f"n00{n}") for n in range(1, 9)))) for name in "abcde"]
    honest = [of(name, accuser("good", trouble("n019"))) for name in ("ads", "news")]
    found = watch(*forged, *honest)
    assert len(names(found)) == most_avoided(20)
    assert "n019" in names(found)


def test_off_by_default() -> None:
    assert watch(accuser("a", trouble()), accuser("b", trouble()), limits=Limits()) == NodeWatch()


def test_one_trouble_after_a_wait_is_enough_and_waits_grow_up_to_a_limit() -> None:
    found = watch(accuser("a", trouble(waits=1)), accuser("b", trouble(ago_s=FIRST_S * 1.2)))
    assert [(node.until_s, node.waits, len(node.jobs)) for node in found.avoided] == [
        (NOW_S - 10 + 2 * FIRST_S, 1, 2)
    ]
    assert [wait_s(FIRST_S, n) for n in (0, 1, 2, 9)] == [600, 1200, 2400, LONGEST_S]
    assert wait_s(86_400.0, 3) == 86_400.0


def test_a_trainer_that_came_later_and_does_well_clears_the_node() -> None:
    later = replace(accuser("c", on=("n001",), trainers=1))
    pod = replace(later.pods[0], created_s=NOW_S - 400, started_s=NOW_S - 301)
    jobs = (accuser("a", trouble(ago_s=500)), accuser("b", trouble(ago_s=500)))
    assert watch(*jobs, replace(later, pods=(pod,))).cleared == {"n001"}
    assert watch(*jobs, replace(later, pods=(pod,))).avoided == ()
    for wrong in (
        replace(pod, started_s=NOW_S - 299),
        replace(pod, created_s=NOW_S - 501),
        replace(pod, terminating=True),
        replace(pod, phase=PodPhase.FAILED),
    ):
        assert names(watch(*jobs, replace(later, pods=(wrong,)))) == ["n001"]


def test_never_more_than_a_tenth_of_the_nodes_and_those_with_most_jobs_first() -> None:
    assert [most_avoided(n) for n in (1, 2, 3, 19, 20, 40, 10_000)] == [0, 0, 1, 1, 2, 4, MOST_NODES]
    two = (trouble("n001"), trouble("n002"), trouble("n003"))
    found = watch(accuser("a", *two), accuser("b", *two), accuser("c", trouble("n003")))
    assert names(found) == ["n001", "n003"]
    assert [node.name for node in found.avoided if node.spared] == ["n002"]


def probed(*jobs: Job) -> NodeWatch:
    return watch(accuser("a", trouble(ago_s=FIRST_S)), accuser("b", trouble(ago_s=FIRST_S), trainers=10), *jobs)


def test_after_the_wait_one_elastic_job_that_does_well_elsewhere_may_try() -> None:
    assert [node.probe for node in probed().avoided] == [JobKey("default", "a")]  # b has its maximum
    early = watch(accuser("a", trouble(ago_s=FIRST_S - 1)), accuser("b", trouble(ago_s=FIRST_S)))
    assert [node.probe for node in early.avoided] == [None]


def test_nobody_tries_while_a_trainer_is_there() -> None:
    job = make_job("c", trainers=1, on=("n001",))
    there = replace(job.pods[0], created_s=NOW_S - 5, started_s=NOW_S - 4)
    planned = replace(there, node="", planned="n001", phase=PodPhase.PENDING, started_s=None)
    failed = replace(there, phase=PodPhase.FAILED)
    for pod in (there, planned, failed):
        assert [node.probe for node in probed(replace(job, pods=(pod,))).avoided] == [None]


def test_a_job_keeps_away_only_if_a_node_is_left_for_it() -> None:
    avoided = (AvoidedNode("n001", NOW_S, WITNESSES),)
    job = make_job("a")
    assert closed_nodes(job, avoided, NODES) == ("n001",)
    assert not takes(NODES[1], as_avoiding(job, avoided, NODES).trainer.placement)
    assert takes(NODES[2], as_avoiding(job, avoided, NODES).trainer.placement)
    bound = replace(job, trainer=make_shape(placement=Placement((("kubernetes.io/hostname", "n001"),))))
    assert as_avoiding(bound, avoided, NODES) is bound
    assert as_avoiding(replace(job, owner_count=3), avoided, NODES).trainer == job.trainer
    assert as_avoiding(job, (replace(avoided[0], spared=True),), NODES) is job
    assert as_avoiding(job, (replace(avoided[0], probe=job.key),), NODES) is job


@pytest.mark.parametrize(
    ("cpu", "memory_gib", "devices"), [(1, 1, {"gpu": 1}), (20, 1, {}), (1, 40, {}), (1, 1, {"gpu": 3})]
)
def test_a_node_that_could_never_hold_a_trainer_is_none_that_is_left_for_it(
    cpu: float, memory_gib: float, devices: dict[str, int]
) -> None:
    nodes = (make_node("n0"), make_node("n1", 32, 64, gpu=4), make_node("n2", gpu=0))
    job = replace(make_job("a"), trainer=make_shape(cpu, memory_gib, None, **devices))
    avoided = (AvoidedNode("n1", NOW_S, WITNESSES),)
    assert closed_nodes(job, avoided, nodes) == ()
    assert as_avoiding(job, avoided, nodes) is job
    assert closed_nodes(job, avoided, (*nodes, make_node("n3", 32, 64, gpu=4))) == ("n1",)


def test_a_trainer_with_a_host_port_finds_another_node() -> None:
    shape = make_shape()
    with_port = replace(shape, request=shape.request + Resources.of({"hostport/TCP/8080": 1}))
    job = replace(make_job("a"), trainer=with_port)
    assert closed_nodes(job, (AvoidedNode("n001", NOW_S, WITNESSES),), NODES) == ("n001",)


def test_each_alternative_term_excludes_each_node_once() -> None:
    terms = (NodeTerm((Requirement("zone", "In", ("a",)),)), NodeTerm((Requirement("zone", "In", ("b",)),)))
    once = excluding(make_shape(placement=Placement(required=terms)), ("n001", "n002"))
    closed = tuple(Requirement("metadata.name", "NotIn", (name,)) for name in ("n001", "n002"))
    assert once.placement.required == tuple(NodeTerm(term.expressions, closed) for term in terms)
    assert excluding(once, ("n001",)) == once


def test_new_trainers_exclude_the_nodes_and_only_one_is_the_probe() -> None:
    job = make_job("a")
    avoided = (AvoidedNode("n001", NOW_S, WITNESSES, probe=job.key), AvoidedNode("n002", NOW_S, WITNESSES))
    actions = [CreatePod(job.key, job.uid, role, 0, node) for role in Role for node in ("n001", "n003")]
    found = {(a.role, a.node): a.avoided for a in keep_away(actions, job, avoided, NODES) if isinstance(a, CreatePod)}
    assert found[Role.TRAINER, "n001"] == ("n002",)
    assert found[Role.TRAINER, "n003"] == ("n001", "n002")
    assert not any(closed for (role, _), closed in found.items() if role is not Role.TRAINER)
    starts = [
        Start(job.key, role, node) for role, node in [(Role.TRAINER, "n001")] * 3 + [(Role.TRAINER, "n003")] * 2
    ]
    assert [start.node for start in one_trial_per_node(starts, avoided)] == ["n001", "n003", "n003"]


def test_only_the_job_that_tries_a_node_starts_one_pod_alone() -> None:
    tries, other = make_job("a"), make_job("b", namespace="elsewhere")
    avoided = (AvoidedNode("n001", NOW_S, (tries.key,), probe=tries.key),)
    starts = [Start(job.key, Role.TRAINER, "n001") for job in (other, tries) for _ in range(2)]
    assert [start.job for start in one_trial_per_node(starts, avoided)] == [other.key, other.key, tries.key]


@pytest.mark.parametrize("is_bound", [True, False])
def test_no_trainer_starts_beside_a_trial_that_has_not_begun(is_bound: bool) -> None:
    """The master and pservers may: the trainer may wait for them."""
    job = make_job("a", trainers=2, on=("n003",))
    avoided = (AvoidedNode("n001", NOW_S, (job.key,), probe=job.key),)
    starts = [Start(job.key, role, node) for role in Role for node in ("n001", "n003")]
    trial = replace(job.pods[0], node="n001" if is_bound else "", planned="n001", phase=PodPhase.PENDING)

    def started(trial: Pod) -> list[Role]:
        """The roles of the pods that start on the node that is tried; on the other one all do."""
        jobs = (replace(job, pods=(trial, job.pods[1])),)
        found = one_trial_per_node(starts, avoided, jobs, roles=frozenset(Role))
        assert [start.role for start in found if start.node == "n003"] == list(Role)
        return [start.role for start in found if start.node == "n001"]

    first = next(role for role in Role if role is not Role.TRAINER)
    assert started(trial) == [first]
    assert started(replace(trial, role=first)) == []
    for other in (replace(trial, phase=PodPhase.RUNNING), replace(trial, terminating=True), job.pods[0]):
        assert started(other)[0] is next(iter(Role))


def test_the_planner_puts_serving_there_and_no_trainer() -> None:
    avoided = (AvoidedNode("n001", NOW_S, WITNESSES),)
    nodes = (make_node("n000", cpu=2), make_node("n001", cpu=4))
    job = as_avoiding(make_job("a", max_trainers=9), avoided, nodes)
    serving = make_serving("web", cpu=3)
    same_shape = replace(make_serving("api"), shape=make_job("a").trainer)
    made = decide(make_snapshot(nodes, (job,), (serving, same_shape)), policy_named(""), Limits())
    assert dict(made.decisions[0].nodes) == {"n000": 2}
    assert (made.serving.waiting, made.serving.placed, made.serving.short) == (2, 2, 0)


pods = st.builds(
    lambda node, created, ran: (node, created, ran), st.integers(0, 5), st.floats(0, 2000), st.floats(0, 2000)
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """Up to six nodes, and jobs with any troubles and any trainers."""
    nodes = make_nodes(draw(st.integers(1, 30)))
    some = st.sampled_from([f"n{i:03d}" for i in range(6)])
    jobs = []
    for number in range(draw(st.integers(0, 5))):
        told = draw(
            st.dictionaries(some, st.tuples(st.floats(0, 9000), st.integers(0, 3), st.booleans()), max_size=6)
        )
        troubles = tuple(
            NodeTrouble(node, NOW_S - ago_s, waits=waits, confirmed=is_confirmed)
            for node, (ago_s, waits, is_confirmed) in sorted(told.items())
        )
        job = accuser(f"j{number}", *troubles, on=tuple(draw(st.lists(some, min_size=1, max_size=4))), trainers=4)
        made: list[Pod] = []
        for pod in job.pods:
            age_s = draw(st.floats(0, 9000))
            made.append(replace(pod, created_s=NOW_S - age_s, started_s=NOW_S - age_s))
        jobs.append(replace(job, pods=tuple(made)))
    return make_snapshot(nodes, tuple(jobs), now_s=NOW_S)


@given(clusters())
def test_whatever_jobs_tell_few_nodes_are_avoided_and_each_job_keeps_one(snapshot: ClusterSnapshot) -> None:
    found = watch_nodes(snapshot, LIMITS)
    present = {node.name for node in snapshot.nodes}
    assert len(names(found)) <= most_avoided(len(snapshot.nodes)) <= max(1, len(snapshot.nodes) // 10)
    for node in found.avoided:
        told = [t for job in snapshot.jobs if job.status for t in job.status.troubles if t.node == node.name]
        assert node.name in present
        assert len(set(node.jobs)) >= 2 or any(t.waits for t in told if t.confirmed)
        assert node.probe is None or (node.until_s <= NOW_S and not node.spared)
    assert not found.cleared & {node.name for node in found.avoided}
    for job in snapshot.jobs:
        seen = as_avoiding(job, found.avoided, snapshot.nodes)
        assert any(takes(node, seen.trainer.placement) for node in snapshot.nodes)
        assert seen.pods == job.pods
    assert watch_nodes(snapshot, LIMITS) == found
