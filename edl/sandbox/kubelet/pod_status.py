"""The status of a pod, from the states of its containers, as kubelets write it.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edl.sandbox.objects import condition, now_text

Object = dict[str, Any]
CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
RESIZE_PENDING = "PodResizePending"


@dataclass(slots=True)
class ContainerRecord:
    """The state of a container.

    Attributes:
        name, image: the name and image in its spec.
        state, last_state: `waiting`, `running` or `terminated`, as the API has them.
        restarts: how many times it was started again.
        is_ready: it runs, and its readiness probe succeeds.
        is_started: it runs, and its startup probe has succeeded.
        container_id: the ID of the container since its last start.
        resources: requests and limits that the kubelet has granted.
    """

    name: str
    image: str
    state: Object = field(default_factory=lambda: {"waiting": {"reason": CREATING}})
    last_state: Object = field(default_factory=dict)
    restarts: int = 0
    is_ready: bool = False
    is_started: bool = False
    container_id: str = ""
    resources: Object = field(default_factory=dict)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the container if it has terminated."""
        ended = self.state.get("terminated")
        return int(ended["exitCode"]) if ended else None

    def as_status(self) -> Object:
        """Return the record in the form of `containerStatuses` of the API."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"process://{self.image}" if self.container_id else "",
            "containerID": self.container_id,
            "state": self.state,
            "lastState": self.last_state,
            "restartCount": self.restarts,
            "ready": self.is_ready,
            "started": self.is_started,
            "resources": self.resources,
            "allocatedResources": self.resources.get("requests") or {},
        }


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The facts from which a pod's status is computed.

    Attributes:
        address, host: the addresses of the pod and of its node.
        start_time: when the kubelet saw the pod.
        init, main: its containers.
        is_initialized: all init containers have succeeded.
        phase: Succeeded or Failed once no container will run again, else empty.
        reason, message: the reason and message of a pod that failed as a whole.
        refusal: why a changed request was not granted, Deferred or Infeasible; empty if every change was.
    """

    address: str
    host: str
    start_time: str
    init: Sequence[ContainerRecord]
    main: Sequence[ContainerRecord]
    is_initialized: bool
    phase: str = ""
    reason: str = ""
    message: str = ""
    refusal: str = ""


def pod_status(pod: Object, facts: PodFacts) -> Object:
    """The status to write; a condition keeps the time of its last change.

    Args:
        pod: as last seen, with its former conditions.
        facts: the present.
    """
    phase = facts.phase or _phase(facts)
    is_ready = phase == "Running" and all(one.is_ready for one in facts.main)
    unready = [one.name for one in facts.main if not one.is_ready]
    reason = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else "ContainersNotReady"
    why = {"reason": reason, "message": f"containers with unready status: [{' '.join(unready)}]"}
    if phase in {"Succeeded", "Failed"}:
        why.pop("message")
    not_initialized = {"reason": "ContainersNotInitialized"}
    status: Object = {
        "phase": phase,
        "conditions": [
            _condition(pod, "PodReadyToStartContainers", holds=bool(facts.address) and not facts.phase),
            _condition(pod, "Initialized", holds=facts.is_initialized, why=not_initialized),
            _condition(pod, "Ready", holds=is_ready, why=why),
            _condition(pod, "ContainersReady", holds=is_ready, why=why),
        ],
        "hostIP": facts.host,
        "hostIPs": [{"ip": facts.host}],
        "startTime": facts.start_time,
        "containerStatuses": [one.as_status() for one in facts.main],
    }
    if facts.refusal:
        pending = _condition(pod, RESIZE_PENDING, holds=True)
        detail = {"reason": facts.refusal, "message": "the node has no capacity for what the pod requests now"}
        status["conditions"].append(pending | detail)
    elif condition(pod, RESIZE_PENDING):
        status["conditions"].append({"type": RESIZE_PENDING, "$patch": "delete"})
    if facts.address:
        status |= {"podIP": facts.address, "podIPs": [{"ip": facts.address}]}
    if facts.init:
        status["initContainerStatuses"] = [one.as_status() for one in facts.init]
    if facts.reason:
        status |= {"reason": facts.reason, "message": facts.message}
    return status


def final_phase(main: Sequence[ContainerRecord]) -> str:
    """The phase of a pod none of whose containers will run again."""
    return "Succeeded" if all(one.exit_code == 0 for one in main) else "Failed"


def _phase(facts: PodFacts) -> str:
    if not facts.is_initialized:
        return "Pending"
    has_run = [bool(one.container_id) for one in facts.main]
    return "Running" if all(has_run) else "Pending"


def _condition(pod: Object, kind: str, *, holds: bool, why: Object | None = None) -> Object:
    value = "True" if holds else "False"
    before = condition(pod, kind)
    since = before.get("lastTransitionTime") if before and before.get("status") == value else None
    explained = {"reason": None, "message": None} | ({} if holds else why or {})
    return {
        "type": kind,
        "status": value,
        "lastProbeTime": None,
        "lastTransitionTime": since or now_text(),
        **explained,
    }
