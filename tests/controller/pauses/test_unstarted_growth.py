"""Trainers above a minimum that do not begin: their capacity goes to others, and one is tried after pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.pauses.unstarted_growth import FIRST_S, LONGEST_S, SAID_S, SILENT_S, UnstartedGrowth
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.quota_trees import KueueState
from edl.model.status import JobStatus, Reason, RoleCount
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.job_owner import make_batch, make_volcano


def trainers(job: Job, running: int, *, stuck: int = 0, message: str = "", node: str = "n000") -> Job:
    """The job with so many trainers that run, and so many that do not."""

    def pod(index: int) -> Pod:
        begun = index < running
        return Pod(
            namespace=job.key.namespace,
            name=f"{job.key.name}-trainer-{index}",
            uid=f"pod-{index}",
            shape=job.trainer,
            node=node,
            phase=PodPhase.RUNNING if begun else PodPhase.PENDING,
            container_message="" if begun else message,
            job=job.key,
            role=Role.TRAINER,
            index=index,
        )

    return replace(job, pods=tuple(map(pod, range(running + stuck))))


def at(job: Job) -> ClusterSnapshot:
    return make_snapshot(make_nodes(2, cpu=8), (job,))


def allowed(growth: UnstartedGrowth, job: Job, now_s: float, *, pauses: bool = False) -> int | None:
    """The most trainers that the job may have; None if nothing is held back."""
    (seen,) = growth.apply(at(job), now_s, lambda _: pauses).jobs
    return None if seen.refusal is None else seen.refusal.allowed


JOB = make_job("train", min_trainers=1, max_trainers=8)
WORKLOAD = make_batch("train", 6, low=1, high=8)
BAD_IMAGE = "image train:2 cannot be pulled"


@pytest.mark.parametrize(("message", "after_s"), [(BAD_IMAGE, SAID_S), ("", SILENT_S)])
@pytest.mark.parametrize("job", [JOB, WORKLOAD])
def test_trainers_above_the_minimum_that_do_not_begin_are_withdrawn(job: Job, message: str, after_s: float) -> None:
    growth, stuck = UnstartedGrowth(), trainers(job, 3, stuck=3, message=message)
    assert allowed(growth, stuck, 0.0) is None
    assert growth.next_end_s(0.0) == SAID_S
    assert allowed(growth, stuck, after_s - 1.0) is None
    assert allowed(growth, stuck, after_s) == 3
    assert growth.next_end_s(after_s) == after_s + FIRST_S


def test_nothing_is_taken_from_a_workload_whose_first_trainers_do_not_begin() -> None:
    """Its controller would end those that run: they have the highest indexes."""
    stuck = trainers(make_volcano("train", 6, low=1, high=8), 3, stuck=3, message=BAD_IMAGE)
    pods = (replace(pod, index=5 - (pod.index or 0)) for pod in stuck.pods)
    growth, stuck = UnstartedGrowth(), replace(stuck, pods=tuple(pods))
    assert [allowed(growth, stuck, now_s) for now_s in (0.0, SAID_S)] == [None, 6]


def test_a_job_with_sizes_tries_the_next_one() -> None:
    growth, job = UnstartedGrowth(), replace(JOB, sizes=(1, 2, 4, 8, 16), max_trainers=16)
    stuck = trainers(job, 4, stuck=4, message=BAD_IMAGE)
    found = [allowed(growth, stuck, at_s) for at_s in (0.0, SAID_S)]
    assert [*found, allowed(growth, trainers(job, 4), SAID_S + FIRST_S)] == [None, 4, 8]


SIX_PLANNED = replace(JOB, status=JobStatus(trainer=RoleCount(desired=6)))


@pytest.mark.parametrize("job", [WORKLOAD, SIX_PLANNED], ids=["workload", "TrainingJob"])
def test_trainers_that_nobody_makes_are_withdrawn(job: Job) -> None:
    growth, missing = UnstartedGrowth(), trainers(job, 2)
    times = (0.0, SAID_S - 1, SAID_S)
    assert [allowed(growth, missing, now_s, pauses=True) for now_s in times] == [None, None, 2]


def test_trainers_that_edl_is_still_to_create_are_not_withdrawn() -> None:
    growth, waiting = UnstartedGrowth(), trainers(SIX_PLANNED, 2)
    assert [allowed(growth, waiting, now_s) for now_s in (0.0, SAID_S, SILENT_S, 5000.0)] == [None] * 4


def test_a_workload_is_not_held_back_while_its_owner_makes_more_and_more() -> None:
    growth, job = UnstartedGrowth(), replace(WORKLOAD, owner_count=6)
    for more in range(4):
        assert allowed(growth, trainers(job, 2, stuck=more, node=""), more * (SAID_S - 1)) is None
    assert allowed(growth, trainers(job, 2, stuck=3, node=""), 3 * (SAID_S - 1) + SAID_S) == 2


def test_a_refusal_of_the_api_server_is_no_growth_that_does_not_start() -> None:
    growth, refusal = UnstartedGrowth(), Refusal(3, False, Reason.PODS_REFUSED, "a webhook rejects", "")
    job = replace(trainers(WORKLOAD, 3), refusal=refusal)
    assert [allowed(growth, job, now_s) for now_s in (0.0, SAID_S)] == [3, 3]
    assert allowed(growth, replace(job, refusal=None), SAID_S + 1) is None


def test_one_more_is_tried_after_a_pause_that_doubles_and_all_once_it_has_begun() -> None:
    growth, now_s, pauses = UnstartedGrowth(), 0.0, []
    held, tried = trainers(JOB, 3), trainers(JOB, 3, stuck=1, message=BAD_IMAGE)
    allowed(growth, tried, now_s)
    for _ in range(7):
        now_s += SAID_S
        assert allowed(growth, tried, now_s) == 3
        pauses.append(growth.next_end_s(now_s) - now_s)
        now_s += pauses[-1]
        assert allowed(growth, held, now_s) == 4
        assert allowed(growth, tried, now_s) == 4
    assert pauses == [120, 240, 480, 960, LONGEST_S, LONGEST_S, LONGEST_S]
    assert allowed(growth, trainers(JOB, 4), now_s) is None


@pytest.mark.parametrize("job", [JOB, WORKLOAD], ids=["a TrainingJob", "a batch Job"])
@pytest.mark.parametrize(("well_s", "second"), [(60.0, 2 * FIRST_S), (2 * FIRST_S, FIRST_S)])
def test_the_pause_goes_on_to_double_if_those_that_have_begun_end_soon(
    job: Job, well_s: float, second: float
) -> None:
    """Containers that crash after ten seconds have begun each time."""
    growth, stuck = UnstartedGrowth(), trainers(job, 3, stuck=3, message=BAD_IMAGE)

    def withdrawn(now_s: float) -> float:
        """The pause that follows, from then on."""
        allowed(growth, stuck, now_s)
        assert allowed(growth, stuck, now_s + SAID_S) == 3
        return growth.next_end_s(now_s + SAID_S) - now_s - SAID_S

    assert withdrawn(0.0) == FIRST_S
    tried_s = SAID_S + FIRST_S
    assert allowed(growth, trainers(job, 3), tried_s) == 4
    whole = job.max_trainers if job.owner_count is None else job.owner_count
    assert allowed(growth, trainers(job, whole), tried_s + 10.0) is None
    assert withdrawn(tried_s + 10.0 + well_s) == second


def test_nothing_is_tried_while_none_has_begun() -> None:
    growth, job = UnstartedGrowth(), trainers(WORKLOAD, 0, stuck=6, message=BAD_IMAGE)
    assert [allowed(growth, job, now_s) for now_s in (0.0, SAID_S, SAID_S + FIRST_S, 5000.0)] == [None, 1, 1, 1]


def test_growth_that_goes_on_is_never_withdrawn() -> None:
    growth = UnstartedGrowth()
    for begun in range(1, 8):
        assert allowed(growth, trainers(JOB, begun, stuck=1), begun * (SILENT_S - 1)) is None


@pytest.mark.parametrize(
    "job",
    [
        trainers(JOB, 0, stuck=1, message=BAD_IMAGE),
        trainers(replace(JOB, max_trainers=1), 0, stuck=1, message=BAD_IMAGE),
        trainers(JOB, 3, stuck=2, node=""),
    ],
    ids=["the minimum", "a gang", "no kubelet has had a chance"],
)
def test_what_holds_nothing_from_others_stays(job: Job) -> None:
    growth = UnstartedGrowth()
    assert [allowed(growth, job, now_s) for now_s in (0.0, SILENT_S, 1e4)] == [None, None, None]


def test_a_changed_spec_is_tried_at_once_and_a_resize_by_edl_is_no_change() -> None:
    for job, expected in ((JOB, None), (WORKLOAD, 3)):
        growth, stuck = UnstartedGrowth(), trainers(job, 3, stuck=3, message=BAD_IMAGE)
        allowed(growth, stuck, 0.0)
        assert allowed(growth, stuck, SAID_S) == 3
        assert allowed(growth, replace(stuck, generation=stuck.generation + 1), SAID_S + 1) == expected


def test_the_plan_takes_those_away_that_have_not_begun_and_says_why() -> None:
    growth, stuck = UnstartedGrowth(), trainers(JOB, 3, stuck=3, message=BAD_IMAGE)
    growth.apply(at(stuck), 0.0, lambda _: False)
    (decision,) = decide(growth.apply(at(stuck), SAID_S, lambda _: False), policy_named("maxmin"), Limits()).decisions
    assert (decision.target, decision.reason) == (3, "PodsNotStarted")
    assert set(decision.victims) == {"train-trainer-3", "train-trainer-4", "train-trainer-5"}
    assert (
        decision.message
        == "3 of 8: further trainers of it do not start; edl tries more again 120 s after the last time"
    )


def test_the_one_that_is_tried_has_not_begun_while_it_waits_for_a_node() -> None:
    growth, tried = UnstartedGrowth(), trainers(JOB, 3, stuck=1, message=BAD_IMAGE)
    assert [allowed(growth, tried, now_s) for now_s in (0.0, SAID_S)] == [None, 3]
    (*others, last) = tried.pods
    waiting = replace(tried, pods=(*others, replace(last, node="")))
    assert allowed(growth, waiting, SAID_S + FIRST_S) == 4
    assert allowed(growth, tried, SAID_S + FIRST_S + 1) == 4
    assert allowed(growth, tried, SAID_S + FIRST_S + 1 + SAID_S) == 3


def test_pods_that_kueue_has_not_admitted_are_none_that_nobody_makes() -> None:
    growth, waiting = UnstartedGrowth(), replace(WORKLOAD, owner_count=6, kueue=KueueState("blue", "main"))
    assert [allowed(growth, trainers(waiting, 0), now_s) for now_s in (0.0, SAID_S, 5000.0)] == [None] * 3
    admitted = replace(waiting, kueue=KueueState("blue", "main", reserved=6))
    assert [allowed(growth, trainers(admitted, 2), now_s) for now_s in (5001.0, 5001.0 + SAID_S)] == [None, 2]


def test_a_trial_whose_room_others_take_is_not_begun_anew_at_once() -> None:
    """The Job's controller makes no pod. The one that is tried gives way again and again, and comes back at once."""
    growth = UnstartedGrowth()
    running, one_more = (replace(trainers(WORKLOAD, 3), owner_count=count) for count in (3, 4))
    assert allowed(growth, one_more, 0.0) is None
    assert allowed(growth, one_more, SAID_S) == 3
    begins_s = SAID_S + FIRST_S
    assert allowed(growth, running, begins_s) == 4
    assert allowed(growth, one_more, begins_s + 1.0) == 4
    assert allowed(growth, running, begins_s + 50.0) == 4, "others take it"
    assert allowed(growth, one_more, begins_s + 50.5) == 4
    assert allowed(growth, running, begins_s + 55.0) == 4
    ends_s = begins_s + 1.0 + SAID_S
    assert allowed(growth, running, ends_s) == 3
    assert growth.next_end_s(ends_s) == ends_s + 2 * FIRST_S
    assert allowed(growth, running, ends_s + 2 * FIRST_S - 1.0) == 3
    assert allowed(growth, running, ends_s + 2 * FIRST_S) == 4
