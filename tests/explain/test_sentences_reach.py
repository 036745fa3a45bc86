"""The sentence of a plan reaches everybody who reads: the status, the REASON column and the events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.api.crd import render_crd
from edl.kube.translate.status_body import status_body
from edl.lifecycle.desired_state import desired_state
from edl.model.actions import EmitEvent
from edl.model.jobs import Job
from edl.model.limits import LendingLimits, Limits
from edl.model.status import Condition, JobStatus, Reason, RoleCount
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, with_pods


def tell(job: Job, *others: Job, serving: bool = False) -> tuple[str, JobStatus, tuple[EmitEvent, ...]]:
    """What the plan says of a job, and the status and the events that follow from it."""
    world = make_snapshot(make_nodes(1), (job, *others))
    world = with_pods(world, make_serving("web")) if serving else world
    decision = decision_of(plan_for(world), job.key.name)
    places = [(role, node) for role, node in decision.fixed_nodes]
    status, actions = desired_state(job, decision, places, world.observed_at_s)
    assert status is not None
    return decision.message, status, tuple(a for a in actions if isinstance(a, EmitEvent))


def running(trainers: int, **fields: Any) -> Job:
    job = make_job("a", trainers=trainers, on=("n000",), **fields)
    conditions = (Condition("Admitted", "True", "Admitted", "", 0.0),)
    return replace(job, status=JobStatus(conditions=conditions, trainer=RoleCount(trainers, trainers)))


@pytest.mark.parametrize(
    ("job", "others", "reason"),
    [
        (running(4, max_trainers=4), (), Reason.AT_MAX),
        (running(8, max_trainers=20), (), Reason.INSUFFICIENT_CAPACITY),
        (running(4, pinned=4), (), Reason.PINNED),
        (make_job("a", cpu=90), (), Reason.UNSCHEDULABLE),
        (make_job("a", cpu=4), (make_job("r", trainers=6, min_trainers=6, on=("n000",)),), Reason.MIN_UNSATISFIED),
    ],
)
def test_the_status_holds_the_sentence_and_the_word_of_the_plan(
    job: Job, others: tuple[Job, ...], reason: Reason
) -> None:
    message, status, _ = tell(job, *others)
    assert message
    assert (status.explanation, status.reason) == (message, reason.value)
    admitted = status.condition("Admitted")
    assert admitted is not None
    assert admitted.reason == reason.value
    assert admitted.message == decision_of(plan_for(make_snapshot(make_nodes(1), (job, *others))), "a").account
    body = status_body(status)
    assert (body["explanation"], body["reason"]) == (message, reason.value)


def test_kubectl_prints_the_word_as_a_column() -> None:
    (version,) = render_crd()["spec"]["versions"]
    columns = {c["name"]: c["jsonPath"] for c in version["additionalPrinterColumns"]}
    assert columns["Reason"] == ".status.reason"


def test_an_event_tells_a_shrink_with_its_sentence() -> None:
    message, _, events = tell(running(8, max_trainers=8), serving=True)
    assert message == "5 of 8: yields 3 trainers to serving"
    assert [(e.reason, e.message) for e in events if e.reason == "ScaledDown"] == [
        ("ScaledDown", f"8 -> 5 trainers; {message}")
    ]


def test_the_event_of_a_lending_clearing_begins_with_its_cause() -> None:
    """Serving has used CPU for 1,000 s that two of three trainers lend; 3.9 cores hold one trainer of 2 beside it."""
    job = running(3, max_trainers=3, cpu=2)
    pods = tuple(replace(pod, lent_cpu_milli=1800) if pod.index else pod for pod in job.pods)
    job = replace(job, pods=pods)
    web = replace(make_serving("web", cpu=4, node="n000"), created_s=0.0, started_s=0.0)
    world = make_snapshot(make_nodes(1), (job,), (web,))
    decision = decision_of(plan_for(world, Limits(lending=LendingLimits(clear_after_s=30.0))), "a")
    status, actions = desired_state(job, decision, [], world.observed_at_s)
    assert status is not None
    assert status.last_resize is not None
    assert status.last_resize.reason == decision.shrink_reason == Reason.LENDING_CLEARED
    (event,) = [a.message for a in actions if isinstance(a, EmitEvent) and a.reason == "ScaledDown"]
    cause = "yields 1 trainer because serving uses CPU that trainers lend"
    assert event == f"3 -> 2 trainers; 2 of 3: {cause}"
    assert decision.account.startswith(f"2 of 3: {cause}, so that the others have what they declare; cpu is full")


def test_an_event_tells_a_growth_with_its_sentence() -> None:
    message, _, events = tell(running(2, max_trainers=20))
    assert "cpu is full on node n000" in message
    assert [e.message for e in events if e.reason == "ScaledUp"] == [f"2 -> 8 trainers; {message}"]


def test_an_event_warns_of_a_job_that_can_never_start() -> None:
    message, _, events = tell(make_job("a", cpu=90))
    assert [(e.reason, e.kind.value, e.message) for e in events] == [("Unschedulable", "Warning", message)]
