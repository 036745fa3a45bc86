"""Jobs whose trainers request nothing get pods only where their queue allows it."""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.tenancy import as_requested, best_effort_queues
from edl.model.jobs import Job
from edl.model.limits import Quota
from edl.model.queues import Queue
from edl.model.resources import QosClass
from edl.model.status import Reason
from tests.worlds.builders import make_job

AMOUNTS = (("pods", 5),)


def free_rider(queue: str = "blue") -> Job:
    return replace(make_job("a", cpu=0, memory_gib=0, namespace="ads"), qos=QosClass.BEST_EFFORT, queue=queue)


def test_a_job_without_requests_is_refused_with_the_rule_and_the_remedy() -> None:
    refused = as_requested(free_rider(), ())
    assert refused.refusal is not None
    assert not refused.is_schedulable
    assert refused.refusal.reason is Reason.BEST_EFFORT_NOT_ALLOWED
    assert refused.refusal.message == (
        "trainers of ads/a request neither cpu nor memory, and queue blue does not allow that; set"
        " spec.trainer.resources, use a queue that allows it, or write bestEffort: Allowed in queue blue"
    )


def test_a_queue_that_allows_it_changes_nothing_about_the_job() -> None:
    job = free_rider()
    assert as_requested(job, {"blue"}) is job


def test_jobs_with_requests_and_pods_of_other_controllers_need_no_permission() -> None:
    for job in (make_job("a"), replace(free_rider(), owner_count=3), replace(free_rider(), suspended=True)):
        assert as_requested(job, ()) is job


def test_an_object_counts_instead_of_the_file_and_one_that_is_unknown_ends_no_job() -> None:
    queues = (
        Queue("blue", AMOUNTS),
        Queue("green", AMOUNTS, best_effort=True),
        Queue("lost", (), problem="not valid"),
    )
    quotas = (
        Quota("blue", AMOUNTS, best_effort=True),
        Quota("file", AMOUNTS, best_effort=True),
        Quota("no", AMOUNTS),
    )
    assert best_effort_queues(queues, quotas) == {"green", "lost", "file"}
