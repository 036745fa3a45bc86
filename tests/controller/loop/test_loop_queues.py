"""Queue objects over time: what is lent comes back, to the trainer, and a change counts in the next decision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from edl.model.actions import DeletePod, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.model.queues import Queue, Reclaim
from edl.model.tenants import Tenants, UnknownQueues
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.simulated_controller import Living

A, B = JobKey("default", "a"), JobKey("default", "b")


class Reports:
    """A reporter that remembers the last plan for each count of queues, and may fail."""

    def __init__(self) -> None:
        self.seen: list[tuple[ClusterSnapshot, ScalePlan]] = []
        self.is_broken = False

    async def report(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        if self.is_broken:
            raise RuntimeError("the status cannot be computed")
        self.seen.append((view, plan))


def queue(name: str, pods: int, **fields: Any) -> Queue:
    return replace(Queue(name, (("pods", pods),)), **fields)


def in_queue(name: str, job: Job) -> Job:
    return replace(job, queue=name, cooldown_s=0.0)


def set_queues(living: Living, *queues: Queue) -> None:
    def change() -> None:
        living.world.queues = queues
        living.world.changed.set()

    living.do(lambda _: change())


def deleted(living: Living, job: JobKey) -> int:
    done = [o.action for o in living.recorder.outcomes if o.result is Result.DONE]
    return sum(isinstance(action, DeletePod) and action.job == job for action in done)


@pytest.fixture
def living() -> Iterator[Living]:
    """Two nodes for 8 trainers; queue blue uses all 8, and 4 are green's."""
    with closing(Living(make_nodes(2, cpu=4), queues=Reports())) as made:
        set_queues(made, queue("blue", 4), queue("green", 4))
        made.do(lambda w: w.add(in_queue("blue", make_job("a", max_trainers=12))))
        made.settle()
        assert made.trainers(A) == 8
        yield made


def test_the_owner_gets_its_own_back_to_the_trainer(living: Living) -> None:
    living.do(lambda w: w.add(in_queue("green", make_job("b", max_trainers=3))))
    living.settle()
    assert (living.trainers(A), living.trainers(B), deleted(living, A)) == (5, 3, 3)
    living.do(lambda w: w.edit(B, max_trainers=12))
    living.settle()
    assert (living.trainers(A), living.trainers(B), deleted(living, A)) == (4, 4, 4)


def test_nothing_is_taken_back_that_the_owner_does_not_reclaim(living: Living) -> None:
    set_queues(living, queue("blue", 4), queue("green", 4, reclaim=Reclaim.NEVER))
    living.do(lambda w: w.add(in_queue("green", make_job("b", max_trainers=3))))
    living.settle()
    assert (living.trainers(A), living.trainers(B), deleted(living, A)) == (8, 0, 0)


def test_a_changed_queue_counts_at_once(living: Living) -> None:
    set_queues(living, queue("blue", 2, borrowing=(("pods", 1),)), queue("green", 4))
    living.settle()
    assert living.trainers(A) == 3
    set_queues(living)
    living.settle()
    assert living.trainers(A) == 8


def test_a_queue_that_comes_opens_the_door_that_tenants_had_closed() -> None:
    limits = Limits(tenants=Tenants((), UnknownQueues.REFUSE))
    with closing(Living(make_nodes(2, cpu=4), limits)) as living:
        living.do(lambda w: w.add(in_queue("blue", make_job("a", max_trainers=12))))
        living.settle()
        assert (living.trainers(A), living.status_of(A).reason) == (0, "QueueNotAllowed")
        set_queues(living, queue("blue", 4))
        living.settle()
        assert living.trainers(A) == 4


def test_each_plan_is_reported_and_a_broken_report_stops_nothing(living: Living) -> None:
    reports = living.queues
    assert isinstance(reports, Reports)
    view, plan = reports.seen[-1]
    assert [queue.name for queue in view.queues] == ["blue", "green"]
    assert [decision.target for decision in plan.decisions] == [8]
    reports.is_broken = True
    living.do(lambda w: w.add(in_queue("green", make_job("b", max_trainers=3))))
    living.settle()
    assert (living.trainers(A), living.trainers(B)) == (5, 3)


def test_a_queue_that_is_not_valid_never_lifts_the_limit(living: Living) -> None:
    """Its last valid limits count; without any, its jobs keep what they have and no job of it starts."""
    set_queues(living, queue("blue", 4), queue("green", 4, cohort="apart"))
    living.settle()
    assert living.trainers(A) == 4
    broken = replace(queue("blue", 4), problem="the amount -3 of cpu is negative")
    for blue in (broken, replace(broken, nominal=())):
        set_queues(living, blue, queue("green", 4, cohort="apart"))
        living.do(lambda w: w.edit(A, max_trainers=30))
        living.settle()
        assert living.trainers(A) == 4
    living.do(lambda w: w.add(in_queue("blue", make_job("b", max_trainers=3))))
    living.settle()
    assert (living.trainers(A), living.trainers(B), deleted(living, A)) == (4, 0, 4)
    admitted = living.status_of(B).condition("Admitted")
    assert admitted is not None
    assert "Queue blue is not valid" in admitted.message
    set_queues(living, queue("blue", 6), queue("green", 0, cohort="apart"))
    living.settle()
    assert (living.trainers(A) + living.trainers(B), living.trainers(B) > 0) == (6, True)
