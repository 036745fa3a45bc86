"""A pod that failed before any of its containers ran: what the kubelet says is read, and it counts as no failure."""

from __future__ import annotations

from typing import Any

import pytest

from edl.lifecycle.pod_events import event_of
from edl.model.job_policies import JobEvent
from edl.model.pods import Pod
from tests.worlds.raw_objects import job, the_job, trainer


def failed(reason: str = "", message: str = "", *, disruption: str = "", **status: Any) -> Pod:
    target = {"type": "DisruptionTarget", "status": "True", "reason": disruption}
    conditions = [target] if disruption else []
    body = {"phase": "Failed", "reason": reason, "message": message, "conditions": conditions, **status}
    (found,) = the_job(job(), trainer(0, spec={"nodeName": "gpu-a"}, status=body)).pods
    return found


@pytest.mark.parametrize(
    ("reason", "message", "read"),
    [
        (
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed due to no devices",
            "UnexpectedAdmissionError: Pod was rejected: Allocate failed due to no devices",
        ),
        ("OutOfcpu", "Node didn't have enough resource: cpu", "OutOfcpu: Node didn't have enough resource: cpu"),
        ("NodeAffinity", "", "NodeAffinity"),
        ("Evicted", "The node had condition:\n[DiskPressure]", "Evicted: The node had condition: [DiskPressure]"),
        ("", "", "none of its containers ran"),
        ("Odd", "a" * 400, f"Odd: {'a' * 97}...{'a' * 100}"),
    ],
)
def test_a_pod_whose_containers_never_ran_is_rejected_and_has_not_failed(
    reason: str, message: str, read: str
) -> None:
    found = failed(reason, message)
    assert (found.rejection, found.disruption) == (read, "")
    assert event_of(found, frozenset()) is None
    assert not found.has_begun


def test_a_rejection_is_read_also_if_its_containers_are_listed_as_waiting() -> None:
    waiting = [{"name": "trainer", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert failed("OutOfpods", containerStatuses=waiting).rejection == "OutOfpods"


@pytest.mark.parametrize("where", ["containerStatuses", "initContainerStatuses"])
def test_a_pod_of_which_a_container_ended_has_failed(where: str) -> None:
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 3}}}]
    status: dict[str, Any] = {where: ended}
    found = failed(**status)
    assert found.rejection == ""
    assert event_of(found, frozenset()) is JobEvent.POD_FAILED


def test_a_pod_that_ran_out_of_its_time_has_failed() -> None:
    running = [{"name": "trainer", "state": {"running": {"startedAt": "2026-01-05T10:00:00Z"}}}]
    assert event_of(failed("DeadlineExceeded", containerStatuses=running), frozenset()) is JobEvent.POD_FAILED


@pytest.mark.parametrize("reason", ["Evicted", "Preempting", "Terminated", "NodeShutdown"])
def test_what_a_kubelet_did_to_a_running_pod_is_an_eviction(reason: str) -> None:
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 137}}}]
    found = failed(reason, containerStatuses=ended)
    assert (found.rejection, found.disruption) == ("", reason)
    assert event_of(found, frozenset()) is JobEvent.POD_EVICTED


def test_a_pod_that_was_disrupted_before_it_ran_is_an_eviction() -> None:
    found = failed("Preempting", disruption="PreemptionByScheduler")
    assert (found.rejection, found.disruption) == ("", "PreemptionByScheduler")
