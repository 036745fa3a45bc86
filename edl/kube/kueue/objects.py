"""The Workloads that edl makes, and the conditions that it sets on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
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
"""The priority of Workloads for trainers above the minimum: below 0, the one of a job without a class."""
REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures"})
"""The reasons for evictions after which a Workload is pending again at once; after others Kueue says when."""


@dataclass(frozen=True, slots=True)
class OwnerOfWorkloads:
    """The job that Workloads are made for.

    Attributes:
        reference: the owner reference that names it.
        pods: the spec of a pod of each role; one without the role of trainers has none.
        fixed: how many pods the base has of each other role.
    """

    namespace: str
    name: str
    uid: str
    reference: Object
    pods: Mapping[Role, Object]
    fixed: Mapping[Role, int] = field(default_factory=dict)


def owner_of_training_job(job: TrainingJob, master_image: str) -> OwnerOfWorkloads:
    """Return a TrainingJob as the owner of its Workloads.

    Args:
        job: a valid job.
        master_image: the image of a master whose job names none.
    """
    fixed: dict[Role, int] = {role: n for role in Role if role is not Role.TRAINER and (n := job.minimum(role))}
    pods = {}
    for role in (*fixed, Role.TRAINER):
        pod = pod_manifest(job, role, 0, default_master_image=master_image, priority_classes=())
        pods[role] = {key: value for key, value in pod["spec"].items() if key not in {"hostname", "subdomain"}}
    metadata = job.metadata
    return OwnerOfWorkloads(metadata.namespace, metadata.name, job.uid, owner_reference(job), pods, fixed)


def workload_name(job: str, uid: str, index: int) -> str:
    """The name of a Workload, with the UID: an earlier job of this name may have left its own."""
    return f"{job}-{uid[:8]}-{index}" if index else f"{job}-{uid[:8]}"


def workload_manifest(
    owner: OwnerOfWorkloads,
    one: NewWorkload,
    action: ChangeWorkloads,
    *,
    priority: int,
    flavors: Iterable[FlavorSpec],
) -> Object:
    """Make the manifest of a Workload with the requests of its pods.

    Args:
        owner: its job.
        one: which Workload it is.
        action: names the queue and the priority class.
        priority: of the base.
        flavors: what the nodes of the base have; trainers above it need the same.
    """
    counts = {role: number for role, number in owner.fixed.items() if not one.index} | {Role.TRAINER: one.trainers}
    pod_sets = []
    for role in Role:
        if number := counts.get(role, 0):
            pod = with_flavors(owner.pods[role], flavors) if one.index else owner.pods[role]
            pod_sets.append({"name": role.value, "count": number, "template": {"spec": pod}})
    spec: Object = {"queueName": action.queue, "active": True, "podSets": pod_sets, "priority": priority}
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
            "name": workload_name(owner.name, owner.uid, one.index),
            "namespace": owner.namespace,
            "labels": {"app.kubernetes.io/managed-by": "edl", LABEL_JOB: owner.name},
            "annotations": {INDEX: str(one.index), DIGEST: one.digest},
            "ownerReferences": [owner.reference],
        },
        "spec": spec,
    }


def with_flavors(spec: Object, flavors: Iterable[FlavorSpec]) -> Object:
    """Let a pod spec require the nodes of some flavors: their labels, and tolerations of their taints."""
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
