"""A pod that failed before any of its containers ran: what the kubelet says is read, and it counts as no failure."""

from __future__ import annotations

from typing import Any

import pytest

from edl.lifecycle.pod_events import describe_failure, event_of
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


@pytest.mark.parametrize("code", [137, 255])
@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("NodeAffinity", "Pod Predicate NodeAffinity failed"),
        ("UnexpectedAdmissionError", ""),
        ("OutOfcpu", ""),
        ("OutOfnvidia.com/gpu", ""),
        ("TopologyAffinityError", ""),
        ("SysctlForbidden", 'Pod was rejected: forbidden sysctl: "net.core.somaxconn" not allowlisted'),
        ("PodFeatureUnsupported", "Pod was rejected: Pod requires node features that are not available"),
    ],
)
def test_a_kubelet_that_starts_again_and_does_not_admit_what_ran_is_no_failure_of_the_program(
    reason: str, message: str, code: int
) -> None:
    for state in ({"terminated": {"exitCode": code}}, {"running": {"startedAt": "2026-01-05T10:00:00Z"}}):
        found = failed(reason, message, containerStatuses=[{"name": "trainer", "state": state}])
        assert (found.rejection, found.disruption) == ("", reason)
        assert event_of(found, frozenset()) is JobEvent.POD_EVICTED


@pytest.mark.parametrize("reason", ["Error", "ProviderFailed", "OOMKilled", "DeadlineExceeded"])
def test_a_reason_that_no_kubelet_gives_for_an_end_by_its_own_hand_leaves_it_a_failure(reason: str) -> None:
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 1}}}]
    assert event_of(failed(reason, containerStatuses=ended), frozenset()) is JobEvent.POD_FAILED


def test_a_container_that_a_kubelet_lost_is_not_said_to_have_used_too_much_memory() -> None:
    lost = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located"}
    found = failed(containerStatuses=[{"name": "c", "state": {"terminated": lost}}])
    said = "its kubelet found no container any more, for example because the node restarted"
    assert describe_failure(found) == f"ctr-trainer-0 exited with code 137 (ContainerStatusUnknown: {said})"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ({"running": {"startedAt": "2026-01-05T10:00:00Z"}}, "an unknown code"),
        ({"terminated": {"exitCode": 137}}, "code 137"),
    ],
)
def test_a_pod_that_ran_out_of_its_time_is_said_to_have(state: Any, code: str) -> None:
    found = failed("DeadlineExceeded", containerStatuses=[{"name": "c", "state": state}])
    said = "DeadlineExceeded: it ran longer than its activeDeadlineSeconds"
    assert describe_failure(found) == f"ctr-trainer-0 exited with {code} ({said})"


@pytest.mark.parametrize("reason", ["Evicted", "Preempting", "Terminated", "NodeShutdown", "Shutdown", "NodeLost"])
def test_what_a_kubelet_did_to_a_running_pod_is_an_eviction(reason: str) -> None:
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 137}}}]
    found = failed(reason, containerStatuses=ended)
    assert (found.rejection, found.disruption) == ("", reason)
    assert event_of(found, frozenset()) is JobEvent.POD_EVICTED


OVER_ITS_LIMIT = [
    'Container trainer exceeded its local ephemeral storage limit "20Mi". ',
    "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
    'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
    "pod ephemeral local storage usage exceeds the total limit of containers {{5 6} {<nil>} 5M DecimalSI}",
]


ENDS: list[dict[str, Any]] = [
    {"terminated": {"exitCode": 137}},
    {"terminated": {"exitCode": 0}},
    {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}},
    {"running": {}},
]


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("message", OVER_ITS_LIMIT)
def test_a_pod_that_writes_more_than_its_own_limits_allow_has_failed(message: str, state: Any) -> None:
    found = failed("Evicted", message, containerStatuses=[{"name": "trainer", "state": state}])
    assert (found.rejection, found.disruption) == ("", "")
    assert event_of(found, frozenset()) is JobEvent.POD_FAILED
    said = f"Evicted: {message.rstrip('. ')}; raise that limit, or write less to the disk of the node"
    assert describe_failure(found).endswith(f"({said})")


@pytest.mark.parametrize(
    ("message", "disruption"),
    [
        ("The node was low on resource: ephemeral-storage. Container trainer was using 9Gi, request is 0", ""),
        ("The node was low on resource: memory. ", "TerminationByKubelet"),
        ("The node had condition: [DiskPressure]. ", ""),
        (OVER_ITS_LIMIT[0], "TerminationByKubelet"),
    ],
)
def test_one_that_its_node_lacked_room_for_has_not(message: str, disruption: str) -> None:
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 137}}}]
    found = failed("Evicted", message, disruption=disruption, containerStatuses=ended)
    assert found.disruption == (disruption or "Evicted")
    assert event_of(found, frozenset()) is JobEvent.POD_EVICTED


@pytest.mark.parametrize("reason", ["Terminated", "NodeShutdown", "Shutdown"])
def test_a_trainer_that_exits_0_because_its_node_shuts_down_has_not_finished(reason: str) -> None:
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]
    found = failed(reason, phase="Succeeded", containerStatuses=ended)
    assert (found.disruption, event_of(found, frozenset())) == (reason, JobEvent.POD_EVICTED)


def test_a_pod_that_was_disrupted_before_it_ran_is_an_eviction() -> None:
    found = failed("Preempting", disruption="PreemptionByScheduler")
    assert (found.rejection, found.disruption) == ("", "PreemptionByScheduler")
