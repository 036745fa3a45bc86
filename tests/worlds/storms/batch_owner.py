"""The controller of `batch/v1` Jobs in virtual time: pods up to the parallelism, with growing pauses after failures.

Source: k8s.io/kubernetes/pkg/controller/job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edl.sandbox.objects import is_deleted, is_finished, is_true, name_of, namespace_of, uid_of
from tests.worlds.storms.local_server import JOBS, LocalServer, Object

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 360.0


@dataclass
class _Counted:
    """What it remembers of a Job."""

    failed: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)
    not_before_s: float = 0.0


@dataclass
class BatchOwner:
    """Keeps the Jobs of a cluster."""

    server: LocalServer
    _known: dict[str, _Counted] = field(default_factory=dict)

    def step(self, now_s: float) -> None:
        """Look at each Job once."""
        jobs = self.server.objects(JOBS)
        if not jobs:
            return
        pods: dict[str, list[Object]] = {uid_of(job): [] for job in jobs}
        for pod in self.server.objects("pods"):
            for owner in pod["metadata"].get("ownerReferences") or ():
                if owner["uid"] in pods:
                    pods[owner["uid"]].append(pod)
        for job in jobs:
            if not is_deleted(job):
                self._keep(job, pods[uid_of(job)], now_s)

    def _keep(self, job: Object, pods: list[Object], now_s: float) -> None:
        known = self._known.setdefault(uid_of(job), _Counted())
        for pod in pods:
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Failed" and not is_deleted(pod) and uid_of(pod) not in known.failed:
                known.failed.add(uid_of(pod))
                pause_s = FIRST_PAUSE_S * 2.0 ** min(len(known.failed) - 1, 10)
                known.not_before_s = now_s + min(LONGEST_PAUSE_S, pause_s)
            elif phase == "Succeeded":
                known.succeeded.add(uid_of(pod))
        active = [pod for pod in pods if not is_deleted(pod) and not is_finished(pod)]
        wanted = 0 if known.succeeded else int(job["spec"].get("parallelism", 1))
        for pod in sorted(active, key=lambda p: (is_true(p, "Ready"), bool(p["spec"].get("nodeName"))))[
            : max(0, len(active) - wanted)
        ]:
            path = f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
            self.server.must("DELETE", path, {"preconditions": {"uid": uid_of(pod)}})
        if now_s >= known.not_before_s:
            self._create(job, known, wanted - len(active), now_s)
        self._report(job, known, active)

    def _create(self, job: Object, known: _Counted, missing: int, now_s: float) -> None:
        template = job["spec"]["template"]
        for _ in range(missing):
            body = _pod_of(job, template)
            answer = self.server.answer("POST", f"/api/v1/namespaces/{namespace_of(job)}/pods", body, {})
            if answer.code >= 300:
                known.not_before_s = now_s + FIRST_PAUSE_S
                return

    def _report(self, job: Object, known: _Counted, active: list[Object]) -> None:
        status = {
            "active": len(active),
            "ready": sum(is_true(pod, "Ready") for pod in active),
            "failed": len(known.failed),
            "succeeded": len(known.succeeded),
            "startTime": job["metadata"]["creationTimestamp"],
        }
        if known.succeeded and not active:
            stamp = self.server.cluster.timestamp()
            old = (job.get("status") or {}).get("conditions") or ()
            since = old[0]["lastTransitionTime"] if old else stamp
            status["conditions"] = [{"type": "Complete", "status": "True", "lastTransitionTime": since}]
        if job.get("status") != status:
            self.server.put(JOBS, {**job, "status": status})


def _pod_of(job: Object, template: Object) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name_of(job), "uid": uid_of(job), "controller": True}
    own = {"generateName": f"{name_of(job)}-", "namespace": namespace_of(job), "ownerReferences": [owner]}
    metadata = {**(template.get("metadata") or {}), **own}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
