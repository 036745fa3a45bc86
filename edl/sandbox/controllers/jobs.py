"""The controller of `batch/v1` Jobs: creates pods up to the parallelism, and ends Jobs, as the real one does.

Work queues (no completions), fixed completions and Indexed Jobs; suspension, backoffLimit, podReplacementPolicy, and
pod failures that a policy ignores because of a disruption. Finished pods are counted when they are first seen, by
UID. There are neither per-index backoffs, nor success policies, nor the pauses after failures.

Source: k8s.io/kubernetes/pkg/controller/job, func manageJob; k8s.io/kubernetes/pkg/controller, type ActivePods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.loop import Informers, attempt, collection_of, delete, path_of
from edl.sandbox.events import NORMAL, WARNING, EventRecorder
from edl.sandbox.objects import (
    condition,
    is_deleted,
    is_finished,
    is_true,
    name_of,
    namespace_of,
    now_text,
    uid_of,
)

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_CONTROLLER = "kubernetes.io/job-controller"


@dataclass
class _Counted:
    """What the controller remembers of one Job between two rounds.

    Attributes:
        expected: names of pods that were created and not seen yet.
        seen: the Job's pods of the last round that had not been counted, by UID, with their index.
        dropped: UIDs of pods that the controller itself deleted; they count as neither success nor failure.
        done: UIDs of the pods that were counted.
        indexes: the completed indexes.
    """

    expected: set[str] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    indexes: set[int] = field(default_factory=set)
    succeeded: int = 0
    failed: int = 0


class JobController:
    """Creates and deletes the pods of Jobs, and writes their status.

    Args:
        session: the API server.
        informers: the informers of Pod and Job.
    """

    def __init__(self, session: ApiSession, informers: Informers) -> None:
        self._session, self._informers = session, informers
        self._events = EventRecorder(session, "job-controller")
        self._known: dict[str, _Counted] = {}

    async def run(self) -> None:
        """Look at the Jobs again after each change, forever."""
        await self._informers.after_each_change(self.reconcile)

    async def reconcile(self) -> None:
        """Look at all Jobs once."""
        jobs = [job for job in self._informers["Job"] if not is_deleted(job)]
        pods: dict[str, list[Object]] = {uid_of(job): [] for job in jobs}
        for pod in self._informers["Pod"]:
            for owner in pod["metadata"].get("ownerReferences") or ():
                if owner.get("controller") and owner["uid"] in pods:
                    pods[owner["uid"]].append(pod)
        self._known = {uid: known for uid, known in self._known.items() if uid in pods}
        ours = [job for job in jobs if job["spec"].get("managedBy") in {None, JOB_CONTROLLER}]
        await asyncio.gather(*(self._keep(job, pods[uid_of(job)]) for job in ours if not _is_ended(job)))

    async def _keep(self, job: Object, pods: list[Object]) -> None:
        known = self._known.setdefault(uid_of(job), _Counted())
        _count(job, pods, known)
        known.expected -= {name_of(pod) for pod in pods}
        active = [pod for pod in pods if not is_deleted(pod) and not is_finished(pod)]
        leaving = [pod for pod in pods if is_deleted(pod) and not is_finished(pod)]
        end = _end(job, known, len(active) + len(known.expected))
        wanted = 0 if end or job["spec"].get("suspend") else _wanted(job, known, len(active) + len(known.expected))
        surplus = active if end else _surplus(job, active, wanted)
        for pod in surplus:
            known.dropped.add(uid_of(pod))
            if await delete(self._session, "Pod", pod):
                self._events.emit(job, NORMAL, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        if not surplus:
            await self._create_missing(job, known, active, leaving, wanted)
        await self._report(job, known, active, leaving, end)

    async def _create_missing(
        self, job: Object, known: _Counted, active: list[Object], leaving: list[Object], wanted: int
    ) -> None:
        waits_for = len(leaving) if job["spec"].get("podReplacementPolicy") == "Failed" else 0
        missing = wanted - len(active) - len(known.expected) - waits_for
        if not _is_indexed(job):
            await asyncio.gather(*(self._create_pod(job, known, None) for _ in range(missing)))
        elif not known.expected:
            used = {_index(pod) for pod in active} | known.indexes
            free = (i for i in range(job["spec"]["completions"]) if i not in used)
            await asyncio.gather(
                *(self._create_pod(job, known, i) for _, i in zip(range(missing), free, strict=False))
            )

    async def _create_pod(self, job: Object, known: _Counted, index: int | None) -> None:
        template = job["spec"]["template"]
        metadata = template.get("metadata") or {}
        marks = {} if index is None else {INDEX: str(index)}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name_of(job)}-" if index is None else f"{name_of(job)}-{index}-",
                "labels": {**(metadata.get("labels") or {}), **marks},
                "annotations": {**(metadata.get("annotations") or {}), **marks},
                "ownerReferences": [_reference(job)],
            },
            "spec": _with_index(template["spec"], index),
        }

        async def create() -> None:
            made = await self._session.post(collection_of("Pod", namespace_of(job)), body)
            known.expected.add(name_of(made))
            self._events.emit(job, NORMAL, "SuccessfulCreate", f"Created pod: {name_of(made)}")

        await attempt(create())

    async def _report(
        self, job: Object, known: _Counted, active: list[Object], leaving: list[Object], end: tuple[str, str] | None
    ) -> None:
        before = job.get("status") or {}
        status: Object = {
            "active": len(active),
            "ready": sum(is_true(pod, "Ready") for pod in active),
            "terminating": len(leaving),
            "succeeded": known.succeeded,
            "failed": known.failed,
        }
        is_suspended = bool(job["spec"].get("suspend"))
        if not is_suspended and not before.get("startTime"):
            status["startTime"] = now_text()
        if is_suspended != is_true(job, "Suspended"):
            status["conditions"] = _with_condition(job, "Suspended", is_suspended, "JobSuspended", "Job suspended")
        if end is not None:
            kind, reason = end
            status["conditions"] = _with_condition(job, kind, True, reason, reason)
            if kind == "Complete":
                status["completionTime"] = now_text()
            self._events.emit(job, NORMAL if kind == "Complete" else WARNING, reason, f"Job {kind.lower()}")
        if any((before.get(key) or 0) != value for key, value in status.items()):
            body = {"metadata": {"uid": uid_of(job)}, "status": status}
            await attempt(self._session.patch(f"{path_of(job, 'Job')}/status", body))


def _count(job: Object, pods: list[Object], known: _Counted) -> None:
    """Count the pods that finished, and those that vanished without the controller's doing."""
    here = {uid_of(pod): pod for pod in pods}
    for uid in known.seen.keys() - here.keys() - known.dropped - known.done:
        known.failed += 1
        known.done.add(uid)
    for uid, pod in here.items():
        if not is_finished(pod) or uid in known.done | known.dropped:
            continue
        known.done.add(uid)
        if pod["status"]["phase"] == "Succeeded":
            known.succeeded += 1
            known.indexes |= {_index(pod)} if _is_indexed(job) else set()
        elif not _is_ignored(job, pod):
            known.failed += 1
    known.seen = {uid: _index(pod) for uid, pod in here.items() if uid not in known.done}
    if _is_indexed(job):
        known.indexes = {i for i in known.indexes if i < job["spec"]["completions"]}
        known.succeeded = len(known.indexes)


def _is_ignored(job: Object, pod: Object) -> bool:
    """True if a rule of the pod failure policy ignores that the pod was disrupted."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    return any(
        rule["action"] == "Ignore"
        and any(is_true(pod, pattern["type"]) for pattern in rule.get("onPodConditions") or ())
        for rule in rules
    )


def _end(job: Object, known: _Counted, active: int) -> tuple[str, str] | None:
    """(condition, reason) with which the Job ends now; None if it goes on."""
    if known.failed > job["spec"]["backoffLimit"]:
        return "Failed", "BackoffLimitExceeded"
    completions = job["spec"].get("completions")
    is_complete = known.succeeded > 0 and not active if completions is None else known.succeeded >= completions
    return ("Complete", "CompletionsReached") if is_complete and not job["spec"].get("suspend") else None


def _wanted(job: Object, known: _Counted, active: int) -> int:
    """How many pods should be active; a work queue with a succeeded pod gets no new pods."""
    completions = job["spec"].get("completions")
    if completions is None:
        return active if known.succeeded else int(job["spec"]["parallelism"])
    return int(max(0, min(completions - known.succeeded, job["spec"]["parallelism"])))


def _surplus(job: Object, active: list[Object], wanted: int) -> list[Object]:
    """The pods to delete: those of indexes that are not wanted any more, then the others in their order."""
    beyond = [pod for pod in active if _is_indexed(job) and _index(pod) >= job["spec"]["completions"]]
    others = sorted((pod for pod in active if pod not in beyond), key=_deletion_order)
    return [*beyond, *others[: max(0, len(others) - wanted)]]


def _deletion_order(pod: Object) -> tuple[bool, int, bool, float, int, float]:
    """Sort key of pods to delete: not bound, not running, not ready, ready shortest, restarted most, youngest."""
    phase = {"Pending": 0, "Unknown": 1}.get((pod.get("status") or {}).get("phase") or "Pending", 2)
    ready = condition(pod, "Ready") or {}
    since = _number(ready.get("lastTransitionTime")) if ready.get("status") == "True" else 0.0
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    restarts = max((one.get("restartCount") or 0 for one in statuses), default=0)
    created = _number(pod["metadata"].get("creationTimestamp"))
    return bool(pod["spec"].get("nodeName")), phase, is_true(pod, "Ready"), -since, -restarts, -created


def _number(time: object) -> float:
    """Convert a timestamp to a number for sorting; later is larger."""
    return float("".join(letter for letter in str(time or "") if letter.isdigit()) or 0)


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, 0))


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _is_ended(job: Object) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def _with_index(spec: Object, index: int | None) -> Object:
    if index is None:
        return spec
    value = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
    containers = [{**one, "env": [*(one.get("env") or ()), value]} for one in spec["containers"]]
    return {**spec, "containers": containers}


def _with_condition(job: Object, kind: str, holds: bool, reason: str, message: str) -> list[Object]:
    return [*_others(job, kind), _condition(kind, holds, reason, message)]


def _others(job: Object, kind: str) -> Iterator[Object]:
    return (one for one in (job.get("status") or {}).get("conditions") or () if one.get("type") != kind)


def _condition(kind: str, holds: bool, reason: str, message: str) -> Object:
    at, status = now_text(), "True" if holds else "False"
    times = {"lastProbeTime": at, "lastTransitionTime": at}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def _reference(owner: Object) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
