"""Jobs whose trainers request nothing, in the loop: refused by default, run where allowed, first to give way."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from edl.model.jobs import Job
from edl.model.limits import Limits, Quota
from edl.model.names import JobKey
from edl.model.resources import QosClass
from tests.worlds.builders import make_job, make_node
from tests.worlds.simulated_controller import Living

A, B = JobKey("default", "a"), JobKey("default", "b")


def free_rider() -> Job:
    return replace(make_job("a", cpu=0, memory_gib=0, max_trainers=6), qos=QosClass.BEST_EFFORT)


def world(*, best_effort: bool) -> Living:
    """One node for six pods."""
    quotas = (Quota("default", (), best_effort=best_effort),)
    return Living((make_node("n1", 8, pods=6),), Limits(quotas=quotas))


def test_a_queue_that_does_not_say_so_refuses_trainers_without_requests() -> None:
    with closing(world(best_effort=False)) as living:
        living.do(lambda w: w.add(free_rider()))
        living.settle()
        assert living.trainers(A) == 0
        status = living.status_of(A)
        assert status.reason == "BestEffortNotAllowed"
        admitted = status.condition("Admitted")
        assert admitted is not None
        assert (admitted.status, admitted.reason) == ("False", "BestEffortNotAllowed")
        assert "queue default does not allow that; set spec.trainer.resources" in admitted.message


def test_they_fill_the_node_and_make_way_for_a_job_with_requests() -> None:
    with closing(world(best_effort=True)) as living:
        living.do(lambda w: w.add(free_rider()))
        living.settle()
        assert living.trainers(A) == 6
        assert living.status_of(A).qos is QosClass.BEST_EFFORT
        living.do(lambda w: w.add(make_job("b", min_trainers=2, max_trainers=4)))
        living.settle()
        assert (living.trainers(A), living.trainers(B)) == (2, 4)
        living.do(lambda w: w.edit(B, max_trainers=2))
        for _ in range(30):
            living.step(5.0)
        assert (living.trainers(A), living.trainers(B)) == (4, 2)
