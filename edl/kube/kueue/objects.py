"""The Workloads that edl makes, and the conditions that it sets on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from edl.api.manifest import owner_reference
from edl.api.pods import pod_manifest
from edl.api.v1 import TrainingJob
from edl.kube.translate.kueue.objects import API, DIGEST, INDEX, FlavorSpec
from edl.model.actions import ChangeWorkloads, NewWorkload, Report, WorkloadReport
from edl.model.names import LABEL_JOB, Role
from edl.model.times import text_of

Object = dict[str, Any]
SURPLUS_PRIORITY = -100
"""Of a trainer above the minimum: below that of a job without a priority class, which is 0."""
REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures"})
"""After these evictions a Workload waits again at once; after others Kueue says when."""


def workload_name(job: str, uid: str, index: int) -> str:
    """The name of a Workload, with the UID: an earlier job of this name may have left its own."""
    return f"{job}-{uid[:8]}-{index}" if index else f"{job}-{uid[:8]}"


def workload_manifest(
    job: TrainingJob,
    one: NewWorkload,
    action: ChangeWorkloads,
    *,
    priority: int,
    master_image: str,
    flavors: Iterable[FlavorSpec],
) -> Object:
    """A Workload, with what its pods request.

    Args:
        job: a valid job.
        one: which Workload it is.
        action: names the queue and the priority class.
        priority: of the base.
        master_image: the image of a master whose job names none.
        flavors: what the nodes of the base have; trainers above it need the same.
    """
    counts = {role: job.minimum(role) for role in Role} if not one.index else {}
    counts |= {Role.TRAINER: one.trainers}
    pod_sets = []
    for role, number in counts.items():
        if number:
            pod = pod_manifest(job, role, 0, default_master_image=master_image, priority_classes=())
            spec = with_flavors(pod["spec"], flavors) if one.index else pod["spec"]
            kept = {key: value for key, value in spec.items() if key not in {"hostname", "subdomain"}}
            pod_sets.append({"name": role.value, "count": number, "template": {"spec": kept}})
    spec = {"queueName": action.queue, "active": True, "podSets": pod_sets, "priority": priority}
    if one.index:
        spec["priority"] = min(SURPLUS_PRIORITY, priority - 1)
    elif action.priority_class:
        spec["priorityClassRef"] = {
            "group": "kueue.x-k8s.io",
            "kind": "WorkloadPriorityClass",
            "name": action.priority_class,
        }
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(job.metadata.name, job.uid, one.index),
            "namespace": job.metadata.namespace,
            "labels": {"app.kubernetes.io/managed-by": "edl", LABEL_JOB: job.metadata.name},
            "annotations": {INDEX: str(one.index), DIGEST: one.digest},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def with_flavors(spec: Object, flavors: Iterable[FlavorSpec]) -> Object:
    """A pod spec that needs the nodes of these flavors: their labels, and tolerations of their taints."""
    selector, tolerations = dict(spec.get("nodeSelector") or {}), list(spec.get("tolerations") or ())
    for flavor in flavors:
        selector |= flavor.node_labels or {}
        tolerations += [
            {key: value for key, value in msgspec.to_builtins(one).items() if value is not None}
            for one in flavor.tolerations or ()
        ]
    kept = {key: value for key, value in (("nodeSelector", selector), ("tolerations", tolerations)) if value}
    return {**spec, **kept}


def status_patch(found: Mapping[str, Any], report: WorkloadReport, now_s: float) -> Object | None:
    """The patch that tells Kueue what has become of a Workload's pods; None if it says so already.

    Args:
        found: the Workload as it is stored.
        report: what is to be told.
        now_s: seconds since the epoch.
    """
    status = found.get("status") or {}
    before = status.get("conditions") or []
    true = {one.get("type") for one in before if one.get("status") == "True"}
    change: Object = {}
    is_new = report.report not in true
    match report.report:
        case Report.READY:
            new = [_condition("PodsReady", "Started", "all pods are ready")] if is_new else []
        case Report.FINISHED:
            new = [_condition("Finished", report.reason, report.message)] if is_new else []
        case Report.RELEASED:
            new = _release(report, true) if "QuotaReserved" in true else []
            change = {"admission": None}
    if not new:
        return None
    metadata = found.get("metadata") or {}
    stamps = {"lastTransitionTime": text_of(now_s), "observedGeneration": metadata.get("generation") or 0}
    names = {one["type"] for one in new}
    kept = [one for one in before if one.get("type") not in names]
    conditions = [*kept, *({**one, **stamps} for one in new)]
    return {
        "metadata": {"resourceVersion": metadata.get("resourceVersion")},
        "status": {**change, "conditions": conditions},
    }


def _release(report: WorkloadReport, true: Collection[Any]) -> list[Object]:
    """The conditions of a Workload whose pods are gone, as Kueue's own integrations set them."""
    again = "True" if report.reason in REQUEUED_AT_ONCE else "False"
    return [
        _condition("QuotaReserved", "Pending", report.message, "False"),
        *(
            [_condition("Admitted", "NoReservation", "The workload has no reservation", "False")]
            * ("Admitted" in true)
        ),
        *([_condition("PodsReady", "WaitForStart", "no pod is left", "False")] * ("PodsReady" in true)),
        _condition("Requeued", report.reason, report.message, again),
    ]


def _condition(kind: str, reason: str, message: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message[:1024]}
