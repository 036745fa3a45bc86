"""An allotment is for one job with one spec and for certain pods; a start keeps its capacity or goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.allotment import Allotment, Start, allotment_of, serving_needing_capacity, without_taken
from edl.model.actions import CreatePod
from edl.model.jobs import FixedPods
from edl.model.names import JobKey, Role
from edl.model.status import Reason
from tests.controller.loop_stage import plan_of
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot

NODES = (make_node("n000"), make_node("n001"))
A = make_job("a", trainers=4, on=("n000",))
SMALL, LARGE = make_job("small", cpu=1), make_job("large", cpu=3)
JOBS = {job.key: job for job in (A, SMALL, LARGE)}


def shrunk(reason: str = Reason.INSUFFICIENT_CAPACITY, awaited: frozenset[str] = frozenset()) -> Allotment:
    decision = plan_of(make_snapshot(NODES, (A,)), {"a": 2}, reason).decisions[0]
    return allotment_of(decision, A, awaited)


def start(job: str, node: str = "n000") -> Start:
    return Start(JobKey("default", job), Role.TRAINER, node)


def sent(job: str, node: str = "n000", role: Role = Role.TRAINER) -> CreatePod:
    return CreatePod(JobKey("default", job), f"uid-{job}", role, 0, node)


def test_it_is_for_the_same_object_with_the_same_spec() -> None:
    granted = shrunk()
    assert granted.is_for(A)
    assert granted.is_for(replace(A, pods=A.pods[1:]))
    assert not granted.is_for(replace(A, uid="another"))
    assert not granted.is_for(replace(A, generation=2))
    assert granted.decision_for(replace(A, generation=2)) is None


def test_the_decision_keeps_those_victims_that_are_the_same_pods() -> None:
    granted = shrunk()
    assert granted.decision_for(A) is granted.decision
    gone = replace(A, pods=A.pods[:3])
    renamed = replace(A, pods=(*A.pods[:3], replace(A.pods[3], uid="another")))
    for job in (gone, renamed):
        decision = granted.decision_for(job)
        assert decision is not None
        assert decision.victims == ("a-trainer-2",)


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        (Reason.AT_MAX, "a-trainer-3"),
        (Reason.PINNED, "a-trainer-3"),
        (Reason.INSUFFICIENT_CAPACITY, "a-trainer-2, a-trainer-3"),
        (Reason.SERVING_NEEDS_ROOM, "a-trainer-2, a-trainer-3"),
    ],
)
def test_a_job_that_shrinks_for_nobody_else_loses_no_more_trainers_than_it_has_too_many(
    reason: Reason, left: str
) -> None:
    """Another one has ended since the plan was made. What others get depends on the node, so they get it still."""
    granted = shrunk(reason)
    assert granted.decision.victims == ("a-trainer-2", "a-trainer-3")
    one_goes = replace(A, pods=(*A.pods[:2], replace(A.pods[2], terminating=True), A.pods[3]))
    for job in (replace(A, pods=A.pods[1:]), one_goes):
        decision = granted.decision_for(job)
        assert decision is not None
        assert len(decision.victims) == (1 if reason in {Reason.AT_MAX, Reason.PINNED} else 2)
    assert decision is not None
    assert ", ".join(decision.victims) == left


def test_a_trainer_that_another_one_replaces_ends_although_the_job_has_none_too_many() -> None:
    granted = shrunk(Reason.AT_MAX)
    replaced = replace(granted, decision=replace(granted.decision, target=4, nodes=(("n001", 2),)))
    assert replaced.decision_for(A) is replaced.decision


@pytest.mark.parametrize(
    ("reason", "others", "serving"),
    [
        (Reason.INSUFFICIENT_CAPACITY, True, False),
        (Reason.ADMITTED, True, False),
        (Reason.SERVING_NEEDS_ROOM, False, True),
        ("AtMax", False, False),
    ],
)
def test_for_whom_trainers_end(reason: str, others: bool, serving: bool) -> None:
    granted = shrunk(reason, frozenset({"web"}))
    assert granted.ends_for_other_jobs is others
    assert granted.ends_for_serving is serving
    assert bool(granted.awaited) is serving
    assert not granted.grows


def test_a_pod_that_the_plan_has_too_uses_its_own_start() -> None:
    starts = (start("small"), start("small"), start("large"))
    assert without_taken(starts, [sent("small")], JOBS) == (start("small"), start("large"))


def test_another_pod_takes_the_last_starts_of_its_node_until_its_request_is_covered() -> None:
    starts = (start("small"), start("small", "n001"), start("small"), start("small"), start("small"))
    assert sorted(without_taken(starts, [sent("large")], JOBS)) == [start("small"), start("small", "n001")]


def test_one_large_start_covers_a_small_pod() -> None:
    starts = (start("small"), start("large"))
    assert without_taken(starts, [sent("a")], JOBS) == (start("small"),)


def test_other_nodes_are_left_alone_and_so_is_everything_without_pods_sent() -> None:
    starts = (start("small"), start("large"))
    assert without_taken(starts, [sent("a", "n001")], JOBS) == starts
    assert without_taken(starts, [], JOBS) == starts


def test_the_request_of_a_master_counts_as_what_it_is() -> None:
    job = replace(LARGE, fixed=(FixedPods(Role.MASTER, make_shape(0.25), 1),))
    starts = (start("small"), start("small"))
    assert without_taken(starts, [sent("large", role=Role.MASTER)], JOBS | {job.key: job}) == (start("small"),)


def test_which_serving_pods_wait_for_capacity() -> None:
    waits = make_serving("web")
    bound, nominated = make_serving("bound", node="n000"), make_serving("nominated", nominated="n000")
    infeasible = replace(make_serving("infeasible"), unplaceable=True)
    assert serving_needing_capacity(make_snapshot(NODES, (), (waits, bound, nominated, infeasible))) == {waits.uid}
