"""The statuses that hollow nodes write: those of a kubelet whose containers start, end and crash on request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edl.sandbox.objects import condition, now_text

Object = dict[str, Any]
PREFIX = "edl.test/"
PENDING = "PodResizePending"
_STARTED = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_READY = ("Ready", "ContainersReady")
_NODE_CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


def annotation(pod: Object, name: str) -> str | None:
    """The value of an annotation `edl.test/<name>` of a pod."""
    found = (pod["metadata"].get("annotations") or {}).get(PREFIX + name)
    return None if found is None else str(found)


def node_status() -> Object:
    """A node that is ready."""
    now = now_text()
    conditions = [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, (value, reason, message) in _NODE_CONDITIONS.items()
    ]
    return {"conditions": conditions, "phase": "Running"}


def started(pod: Object, pod_ip: str, host_ip: str) -> Object:
    """All containers of a pod run and are ready."""
    now = now_text()
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    status = {
        "phase": "Running",
        "startTime": now,
        "conditions": _conditions((*_STARTED, *gates), value="True"),
        "containerStatuses": [
            {**_container(one, 0, {"running": {"startedAt": now}}, ready=True), **_granted(pod, one)}
            for one in pod["spec"]["containers"]
        ],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
    }
    if first := pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = [_init_container(one, now) for one in first]
    return status


def waiting(pod: Object) -> Object:
    """No container of a pod can start, for the reason that its annotation gives."""
    why = {"waiting": {"reason": annotation(pod, "waiting")}}
    return {
        "startTime": now_text(),
        "conditions": _conditions(_READY, value="False", reason="ContainersNotReady"),
        "containerStatuses": [_container(one, 0, why, ready=False) for one in pod["spec"]["containers"]],
    }


def ended(pod: Object, code: int, *, asked: bool) -> Object:
    """All containers of a pod have ended for good.

    Args:
        pod: the pod.
        code: their exit code.
        asked: because the pod is being deleted; otherwise the pod's annotations give reason and message.
    """
    is_ok = code == 0
    return {
        "phase": "Succeeded" if is_ok else "Failed",
        "conditions": _conditions(_READY, value="False", reason="PodCompleted" if is_ok else "PodFailed"),
        "containerStatuses": [
            _container(one, _restarts(pod, one), {"terminated": _termination(pod, code, asked=asked)}, ready=False)
            for one in pod["spec"]["containers"]
        ],
    }


def crashed(pod: Object, code: int) -> Object:
    """Each container of a pod has ended and waits before it starts again."""
    return {
        "conditions": _conditions(_READY, value="False", reason="ContainersNotReady"),
        "containerStatuses": [
            {
                **_container(one, _restarts(pod, one) + 1, {"waiting": {"reason": "CrashLoopBackOff"}}, ready=False),
                "lastState": {"terminated": _termination(pod, code, asked=False)},
            }
            for one in pod["spec"]["containers"]
        ],
    }


def recovered(pod: Object) -> Object:
    """Containers that crashed run and are ready again."""
    last = {one["name"]: one.get("lastState") or {} for one in container_statuses(pod)}
    running = {"running": {"startedAt": now_text()}}
    return {
        "conditions": _conditions(_READY, value="True"),
        "containerStatuses": [
            {**_container(one, _restarts(pod, one), running, ready=True), "lastState": last.get(one["name"], {})}
            for one in pod["spec"]["containers"]
        ],
    }


def resized(pod: Object) -> Object:
    """The containers of a pod have what its spec requests, or its kubelet has not granted it."""
    refusal = annotation(pod, "resize")
    if refusal and is_resized(pod):
        pending = {"type": PENDING, "status": "True", "reason": refusal, "lastTransitionTime": now_text()}
        return {"conditions": [pending]}
    wanted = {one["name"]: _granted(pod, one) for one in pod["spec"]["containers"]}
    return {
        "conditions": [{"type": PENDING, "$patch": "delete"}] if is_refused(pod) else [],
        "containerStatuses": [{**one, **wanted[one["name"]]} for one in container_statuses(pod)],
    }


def is_resized(pod: Object) -> bool:
    """True if the spec of a pod that runs requests other amounts than its kubelet has granted."""
    has = {one["name"]: one.get("resources") for one in container_statuses(pod)}
    specs = pod["spec"]["containers"]
    return any(has.get(one["name"]) is not None and has[one["name"]] != one.get("resources", {}) for one in specs)


def is_refused(pod: Object) -> bool:
    """True if the status of a pod says that a change was not granted."""
    return condition(pod, PENDING) is not None


def container_statuses(pod: Object) -> list[Object]:
    """What a pod's status says about its containers."""
    found: list[Object] = (pod.get("status") or {}).get("containerStatuses") or []
    return found


def _conditions(kinds: Iterable[str], *, value: str, reason: str | None = None) -> list[Object]:
    now = now_text()
    return [{"type": kind, "status": value, "reason": reason, "lastTransitionTime": now} for kind in kinds]


def _container(container: Object, restarts: int, state: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
    }


def _granted(pod: Object, container: Object) -> Object:
    """What a kubelet reports to have granted; nothing if it cannot resize in place."""
    if annotation(pod, "resize") == "Never":
        return {}
    resources = container.get("resources") or {}
    return {"resources": resources, "allocatedResources": resources.get("requests") or {}}


def _init_container(container: Object, now: str) -> Object:
    if container.get("restartPolicy") == "Always":
        return _container(container, 0, {"running": {"startedAt": now}}, ready=True)
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    return {**_container(container, 0, done, ready=True), "started": False}


def _restarts(pod: Object, container: Object) -> int:
    return next((int(one["restartCount"]) for one in container_statuses(pod) if one["name"] == container["name"]), 0)


def _termination(pod: Object, code: int, *, asked: bool) -> Object:
    found = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": pod["status"].get("startTime"),
        "finishedAt": now_text(),
    }
    if not asked:
        found["reason"] = annotation(pod, "exit-reason") or found["reason"]
        found["message"] = annotation(pod, "exit-message") or ""
    return found
