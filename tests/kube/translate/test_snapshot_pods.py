"""A snapshot is made from raw objects: how a pod is read."""

from __future__ import annotations

from typing import Any

import pytest

from edl.model.pods import PodPhase
from tests.worlds.raw_objects import Object, job, pod, take, the_job, the_pod, trainer


def test_a_pod_is_read() -> None:
    status = {
        "phase": "Running",
        "startTime": "2026-01-05T10:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [
            {"name": "proxy", "state": {"running": {"startedAt": "2026-01-05T10:00:01Z"}}},
            {"name": "c", "state": {"running": {"startedAt": "2026-01-05T10:00:09Z"}}},
        ],
    }
    metadata = {"creationTimestamp": "2026-01-05T09:59:00Z"}
    found = the_pod(pod("web", status=status, metadata=metadata, spec={"nodeName": "n1", "priority": 7}))
    assert (found.node, found.priority, found.ready, found.phase) == ("n1", 7, True, PodPhase.RUNNING)
    assert found.created_s == 1767607140
    assert found.started_s == 1767607209
    assert not any((found.gated, found.tried, found.terminating, found.daemon, found.nominated))


def test_why_a_pod_is_not_scheduled_is_read() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    assert the_pod(pod("a", status={"phase": "Pending", "conditions": [unschedulable]})).tried
    waiting = the_pod(pod("a", status={"conditions": [gated]}, spec={"schedulingGates": [{"name": "g"}]}))
    assert waiting.gated
    assert not waiting.tried
    assert waiting.answered_s is None
    answered = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-05T09:59:00Z"}
    assert the_pod(pod("a", status={"conditions": [answered]})).answered_s == 1767607140
    assert the_pod(pod("a", status={"nominatedNodeName": "n1"})).nominated == "n1"
    assert the_pod(pod("a", status={"nominatedNodeName": "n1"}, spec={"nodeName": "n2"})).nominated == ""


def test_how_a_pod_ends_is_read() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    state = {"terminated": {"exitCode": 137, "startedAt": "2026-01-05T10:00:00Z"}}
    status = {"phase": "Failed", "conditions": [target], "containerStatuses": [{"name": "c", "state": state}]}
    annotations = {"paddlepaddle.org/intent": "ServingNeedsRoom", "paddlepaddle.org/planned-node": "n7"}
    metadata = {"deletionTimestamp": "2026-01-05T10:00:30Z", "annotations": annotations}
    (found,) = the_job(job(), trainer(0, status=status, metadata=metadata)).pods
    assert (found.exit_code, found.disruption, found.intent) == (137, "EvictionByEvictionAPI", "ServingNeedsRoom")
    assert (found.planned, found.terminating, found.phase) == ("n7", True, PodPhase.FAILED)
    assert found.ends_by_s == 1767607230
    assert the_pod(pod("a")).ends_by_s is None


@pytest.mark.parametrize(
    ("left_s", "whole_s", "annotations", "intent"),
    [
        (29, 30, {}, "ServingNeedsRoom"),
        (30, 30, {}, ""),
        (28, 30, {}, ""),
        (0, 30, {}, ""),
        (29, None, {}, ""),
        (None, 30, {}, ""),
        (29, 30, {"paddlepaddle.org/intent": "Moved"}, "Moved"),
        (30, 30, {"paddlepaddle.org/intent": "ServingNeedsRoom"}, "ServingNeedsRoom"),
    ],
)
def test_a_deletion_that_leaves_a_second_less_was_for_serving(
    left_s: int | None, whole_s: int | None, annotations: dict[str, str], intent: str
) -> None:
    metadata: dict[str, Any] = {"annotations": annotations}
    if left_s is not None:
        metadata |= {"deletionTimestamp": "2026-01-05T10:00:30Z", "deletionGracePeriodSeconds": left_s}
    spec = {"nodeName": "n1"} | ({} if whole_s is None else {"terminationGracePeriodSeconds": whole_s})
    (found,) = the_job(job(), trainer(0, metadata=metadata, spec=spec)).pods
    assert (found.intent, found.grace_s) == (intent, whole_s or 0)


@pytest.mark.parametrize(("left_s", "held"), [(0, True), (1, False), (30, False), (None, False)])
def test_a_pod_that_ends_without_a_grace_period_is_held_by_finalizers_alone(
    left_s: int | None, *, held: bool
) -> None:
    metadata: dict[str, Any] = {"finalizers": ["example.com/f"]}
    if left_s is not None:
        metadata |= {"deletionTimestamp": "2026-01-05T10:00:30Z", "deletionGracePeriodSeconds": left_s}
    (found,) = the_job(job(), trainer(0, metadata=metadata, spec={"nodeName": "n1"})).pods
    assert (found.terminating, found.held) == (left_s is not None, held)


def test_the_pod_of_somebody_else_says_nothing_by_its_grace_period() -> None:
    metadata = {"deletionTimestamp": "2026-01-05T10:00:30Z", "deletionGracePeriodSeconds": 29}
    assert the_pod(pod("a", metadata=metadata, spec={"terminationGracePeriodSeconds": 30})).intent == ""


CLAIM = '0/3 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/3 nodes are available.'


@pytest.mark.parametrize(
    ("said", "node", "shown"),
    [
        (
            CLAIM,
            "",
            "its PersistentVolumeClaim data does not exist; create it in the namespace of the job; to change",
        ),
        (CLAIM, "n1", ""),
        ("0/3 nodes are available: 3 Insufficient cpu.", "", ""),
        (None, "", ""),
    ],
)
def test_a_pod_without_its_claim_cannot_start(said: str | None, node: str, shown: str) -> None:
    """The message of kube-scheduler has numbers of nodes, which change; that of edl does not."""
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    found = the_pod(pod("a", spec={"nodeName": node}, status={"phase": "Pending", "conditions": [scheduled]}))
    assert found.container_message[: len(shown) or None] == shown
    assert found.cannot_start is bool(shown)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("ErrImagePull", "image you/train:1 cannot be pulled; check"),
        ("ImagePullBackOff", "image you/train:1 cannot be pulled; check"),
        ("InvalidImageName", "image name you/train:1 is not valid; to change"),
        ("CreateContainerConfigError", "Secret"),
        ("ContainerCreating", ""),
        ("CrashLoopBackOff", "its last words"),
        (None, ""),
    ],
)
def test_why_a_pod_cannot_start_is_read(reason: str | None, word: str) -> None:
    ended = {"terminated": {"exitCode": 1, "message": "its last words"}} if reason == "CrashLoopBackOff" else {}
    main = {"name": "c", "image": "you/train:1", "state": {"waiting": {"reason": reason}}, "lastState": ended}
    found = the_pod(pod("a", status={"phase": "Pending", "containerStatuses": [main]}))
    assert word in found.container_message
    assert bool(found.container_message) == bool(word)
    assert found.exit_code == (1 if ended else None)


REFUSED = 'failed to pull and unpack image "docker.io/you/train:1": pull access denied'

BAD_SIGNATURE = "image pull failed for you/train:1 because the signature validation failed"


@pytest.mark.parametrize(
    ("reason", "said", "shown"),
    [
        ("ErrImagePull", REFUSED, f"image you/train:1 cannot be pulled ({REFUSED}); check the image name"),
        (
            "ImagePullBackOff",
            f'Back-off pulling image "you/train:1": ErrImagePull: {REFUSED}',
            f"pulled ({REFUSED}); c",
        ),
        ("ImagePullBackOff", f'Back-off pulling image "you/train:1": {REFUSED}', f"pulled ({REFUSED}); check"),
        ("ImagePullBackOff", 'Back-off pulling image "you/train:1"', "image you/train:1 cannot be pulled; check"),
        (
            "ErrImageNeverPull",
            "Container image is not present",
            "image you/train:1 is not on the node, and imagePull",
        ),
        ("CreateContainerConfigError", 'secret "hf" not found', 'is not valid (secret "hf" not found); to change'),
        (
            "CreateContainerError",
            "bad\n mount\x1b[2J",
            r"cannot create its container (bad mount\u001b[2J); to change",
        ),
        ("SignatureValidationFailed", BAD_SIGNATURE, f"image you/train:1 cannot be pulled ({BAD_SIGNATURE}); check"),
        (
            "ImagePullBackOff",
            f'Back-off pulling image "you/train:1": SignatureValidationFailed: {BAD_SIGNATURE}',
            f"image you/train:1 cannot be pulled ({BAD_SIGNATURE}); check",
        ),
        ("RegistryUnavailable", "", "image you/train:1 cannot be pulled; check"),
        ("ImageInspectError", "no such runtime", "image you/train:1 cannot be pulled (no such runtime); check"),
        ("PreStartHookError", "", "cannot create its container; to change"),
        ("ErrImagePull", "a" * 300 + "z" * 300, f"pulled ({'a' * 97}...{'z' * 100}); check"),
    ],
)
def test_the_words_of_the_kubelet_are_kept_and_do_not_change_with_its_pauses(
    reason: str, said: str, shown: str
) -> None:
    waiting = {"reason": reason, "message": said}
    main = {"name": "c", "image": "you/train:1", "state": {"waiting": waiting}}
    found = the_pod(pod("a", status={"phase": "Pending", "containerStatuses": [main]}))
    assert shown in found.container_message


def test_a_running_container_keeps_the_exit_code_of_its_previous_end() -> None:
    last = {"terminated": {"exitCode": 137, "message": 'lvl=info msg="master started"'}}
    main = {"name": "c", "state": {"running": {}}, "lastState": last}
    found = the_pod(pod("a", status={"phase": "Running", "containerStatuses": [main]}))
    assert (found.exit_code, found.container_message) == (137, 'lvl=info msg="master started"')


@pytest.mark.parametrize(
    ("message", "reason", "lines"),
    [
        (
            None,
            "OOMKilled",
            ["OOMKilled: it used more memory than its limit; raise limits.memory of its role"],
        ),
        ("Killed\n", "OOMKilled", ["Killed", "OOMKilled: it used more memory"]),
        ("General Error\n", "Error", ["General Error"]),
        (None, "Error", []),
        ("5 %\r9 %\x1b[2J\x9b31m", "Error", ["5 %", r"9 %\u001b[2J\u009b31m"]),
    ],
)
def test_an_exceeded_memory_limit_is_read_after_the_termination_message(
    message: str | None, reason: str, lines: list[str]
) -> None:
    ended = {"exitCode": 137, "reason": reason, "message": message}
    main = {"name": "c", "state": {"terminated": ended}}
    found = the_pod(pod("a", status={"phase": "Running", "containerStatuses": [main]})).container_message.splitlines()
    assert len(found) == len(lines)
    assert all(line.startswith(begin) for line, begin in zip(found, lines, strict=True))


@pytest.mark.parametrize(
    ("phase", "read"),
    [("Unknown", PodPhase.RUNNING), (None, PodPhase.PENDING), ("Nonsense", PodPhase.PENDING)],
)
def test_phase_unknown_is_read_as_running_and_an_invalid_one_as_pending(phase: str | None, read: PodPhase) -> None:
    assert the_pod(pod("a", status={"phase": phase})).phase is read


def test_a_finished_foreign_pod_is_left_out() -> None:
    assert take(pod("a", status={"phase": "Succeeded"}), pod("b", status={"phase": "Failed"})).pods == ()


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priority": -3, "priorityClassName": "gold"}, -3),
        ({"priorityClassName": "gold"}, 1000),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ({"priorityClassName": "unknown"}, 0),
        ({}, 5),
    ],
)
def test_a_priority_is_resolved_by_the_priority_classes(spec: Object, priority: int) -> None:
    gold = {"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 1000}
    default = {"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 5, "globalDefault": True}
    assert the_pod(pod("a", spec=spec), gold, default).priority == priority
