"""Deployments and ReplicaSets, as far as a serving load needs them.

A ReplicaSet keeps its number of pods. A Deployment has one ReplicaSet for each pod template and moves pods from the
old ones to the new one, within maxSurge and maxUnavailable; Recreate deletes the old pods first. There is no history
beyond the ReplicaSets themselves, and neither pausing nor a rollback.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from math import ceil, floor
from typing import Any

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.loop import Informers, attempt, collection_of, delete, path_of
from edl.sandbox.events import NORMAL, EventRecorder
from edl.sandbox.objects import (
    condition,
    is_deleted,
    is_finished,
    is_true,
    labels_of,
    matches,
    name_of,
    namespace_of,
    now_text,
    uid_of,
)

Object = dict[str, Any]
HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"


class ReplicaController:
    """Creates and deletes the pods of ReplicaSets, and the ReplicaSets of Deployments.

    Args:
        session: the API server.
        informers: the informers of Pod, ReplicaSet and Deployment.
    """

    def __init__(self, session: ApiSession, informers: Informers) -> None:
        self._session, self._informers = session, informers
        self._deployment_events = EventRecorder(session, "deployment-controller")
        self._set_events = EventRecorder(session, "replicaset-controller")
        self._expected: dict[str, set[str]] = {}

    async def run(self) -> None:
        """Look at Deployments and ReplicaSets again after each change, forever."""
        await self._informers.after_each_change(self.reconcile)

    async def reconcile(self) -> None:
        """Look at all Deployments and ReplicaSets once."""
        sets = list(self._informers["ReplicaSet"])
        deployments = [one for one in self._informers["Deployment"] if not is_deleted(one)]
        await asyncio.gather(*(self._deploy(one, [s for s in sets if _owns(one, s)]) for one in deployments))
        by_owner = _by_owner(self._informers["Pod"])
        await asyncio.gather(
            *(self._replicate(one, by_owner.get(uid_of(one), [])) for one in sets if not is_deleted(one))
        )

    # ReplicaSets

    async def _replicate(self, owner: Object, pods: list[Object]) -> None:
        """Create or delete pods until their number is right, and report the number."""
        seen = {name_of(pod) for pod in pods}
        expected = self._expected.setdefault(uid_of(owner), set())
        expected -= seen
        live = [pod for pod in pods if not is_deleted(pod) and not is_finished(pod)]
        wanted = _replicas(owner)
        missing = wanted - len(live) - len(expected)
        if missing > 0:
            await asyncio.gather(*(self._create_pod(owner) for _ in range(missing)))
        elif len(live) > wanted:
            for pod in sorted(live, key=_deletion_order)[: len(live) - wanted]:
                if await delete(self._session, "Pod", pod):
                    self._set_events.emit(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        await self._report_set(owner, live)

    async def _create_pod(self, owner: Object) -> None:
        template = owner["spec"]["template"]
        metadata = template.get("metadata") or {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name_of(owner)}-",
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [_reference(owner, "ReplicaSet")],
            },
            "spec": template["spec"],
        }

        async def create() -> None:
            made = await self._session.post(collection_of("Pod", namespace_of(owner)), body)
            self._expected[uid_of(owner)].add(name_of(made))
            self._set_events.emit(owner, NORMAL, "SuccessfulCreate", f"Created pod: {name_of(made)}")

        await attempt(create())

    async def _report_set(self, owner: Object, live: list[Object]) -> None:
        ready = sum(is_true(pod, "Ready") for pod in live)
        status = {
            "replicas": len(live),
            "fullyLabeledReplicas": len(live),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        await self._write_status("ReplicaSet", owner, status)

    # Deployments

    async def _deploy(self, deployment: Object, sets: list[Object]) -> None:
        name = f"{name_of(deployment)}-{template_hash(deployment['spec']['template'])}"
        new = next((one for one in sets if name_of(one) == name), None)
        old = [one for one in sets if one is not new]
        if new is None:
            await self._create_set(deployment, name, old)
            return
        for one, count in rollout(deployment, new, old):
            await self._scale(deployment, one, count)
        await self._report_deployment(deployment, new, old)

    async def _create_set(self, deployment: Object, name: str, old: list[Object]) -> None:
        spec, digest = deployment["spec"], name.rpartition("-")[2]
        template = json.loads(json.dumps(spec["template"]))
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[HASH] = digest
        selector = json.loads(json.dumps(spec["selector"]))
        selector.setdefault("matchLabels", {})[HASH] = digest
        revision = 1 + max((int((o["metadata"].get("annotations") or {}).get(_REVISION, 0)) for o in old), default=0)
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {_REVISION: str(revision)},
                "ownerReferences": [_reference(deployment, "Deployment")],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        await attempt(self._session.post(collection_of("ReplicaSet", namespace_of(deployment)), body))

    async def _scale(self, deployment: Object, replica_set: Object, count: int) -> None:
        before = _replicas(replica_set)
        version = replica_set["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": count}}
        if await attempt(self._session.patch(path_of(replica_set, "ReplicaSet"), body)):
            way = "up" if count > before else "down"
            message = f"Scaled {way} replica set {name_of(replica_set)} from {before} to {count}"
            self._deployment_events.emit(deployment, NORMAL, "ScalingReplicaSet", message)

    async def _report_deployment(self, deployment: Object, new: Object, old: list[Object]) -> None:
        ready = sum(_status(one, "readyReplicas") for one in (new, *old))
        total = sum(_status(one, "replicas") for one in (new, *old))
        wanted, updated = _replicas(deployment), _status(new, "replicas")
        is_available = ready >= wanted - _limits(deployment)[1]
        why = ("MinimumReplicasAvailable", "Deployment has minimum availability.")
        why_not = ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        is_complete = updated == wanted == total == ready
        progress = f'ReplicaSet "{name_of(new)}" ' + (
            "has successfully progressed." if is_complete else "is progressing."
        )
        reason = "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated"
        status = {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, wanted - ready),
            "conditions": [
                _condition(deployment, "Available", is_available, *(why if is_available else why_not)),
                _condition(deployment, "Progressing", True, reason, progress),
            ],
        }
        await self._write_status("Deployment", deployment, status)

    async def _write_status(self, kind: str, obj: Object, status: Object) -> None:
        before = obj.get("status") or {}
        if any((before.get(key) or 0) != value for key, value in status.items()):
            body = {"metadata": {"uid": uid_of(obj)}, "status": status}
            await attempt(self._session.patch(f"{path_of(obj, kind)}/status", body))


def rollout(deployment: Object, new: Object, old: list[Object]) -> list[tuple[Object, int]]:
    """The next step towards the new ReplicaSet: (ReplicaSet, its new number of pods).

    Args:
        deployment: the Deployment.
        new: its ReplicaSet with the present template.
        old: its other ReplicaSets.
    """
    wanted = _replicas(deployment)
    current, old_total = _replicas(new), sum(map(_replicas, old))
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        if old_total or any(_status(one, "replicas") for one in old):
            return [(one, 0) for one in old if _replicas(one)]
        return [(new, wanted)] if current != wanted else []
    surge, unavailable = _limits(deployment)
    if not old_total:
        return [(new, wanted)] if current != wanted else []
    steps: list[tuple[Object, int]] = []
    grown = min(wanted, max(current, wanted + surge - old_total))
    if grown != current:
        steps.append((new, grown))
    spare = sum(_status(one, "readyReplicas") for one in (new, *old)) - (wanted - unavailable)
    for one in old:
        unready = _replicas(one) - _status(one, "readyReplicas")
        fewer = min(_replicas(one), unready + max(0, spare))
        spare -= max(0, fewer - unready)
        if fewer > 0:
            steps.append((one, _replicas(one) - fewer))
    return steps


def template_hash(template: Object) -> str:
    """Hash a pod template to a short name."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _limits(deployment: Object) -> tuple[int, int]:
    """Convert maxSurge and maxUnavailable to numbers of pods; both are 25 % by default, and not both may be 0."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    wanted = _replicas(deployment)
    surge = _share(rolling.get("maxSurge", "25%"), wanted, is_up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), wanted, is_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _share(value: int | str, total: int, *, is_up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * total / 100
        return ceil(exact) if is_up else floor(exact)
    return int(value)


def _deletion_order(pod: Object) -> tuple[bool, bool, bool, int, float]:
    """Sort key of pods to delete: not bound, not running, not ready, cheapest to delete, youngest."""
    cost = (pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
    created = str(pod["metadata"].get("creationTimestamp") or "")
    youth = -float("".join(letter for letter in created if letter.isdigit()) or 0)
    is_running = (pod.get("status") or {}).get("phase") == "Running"
    return bool(pod["spec"].get("nodeName")), is_running, is_true(pod, "Ready"), int(cost), youth


def _by_owner(pods: Iterable[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                found.setdefault(owner["uid"], []).append(pod)
    return found


def _owns(owner: Object, obj: Object) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    is_owner = any(one["uid"] == uid_of(owner) and one.get("controller") for one in references)
    return is_owner and matches(owner["spec"].get("selector"), labels_of(obj))


def _reference(owner: Object, kind: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _replicas(obj: Object) -> int:
    found = obj["spec"].get("replicas")
    return 1 if found is None else int(found)


def _status(obj: Object, field: str) -> int:
    return int((obj.get("status") or {}).get(field) or 0)


def _condition(obj: Object, kind: str, holds: bool, reason: str, message: str) -> Object:
    value = "True" if holds else "False"
    before = condition(obj, kind) or {}
    same = before.get("status") == value and before.get("reason") == reason and before.get("message") == message
    if same:
        return before
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    at = now_text()
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastUpdateTime": at,
        "lastTransitionTime": since or at,
    }
