"""Workloads that name a queue of Kueue: what edl needs to size them, and which it rejects.

Kueue starts a job anew whenever its size changes, unless the job is elastic: its pods are then gated when it is
created, and each larger size is admitted as a Workload of its own.
"""

from __future__ import annotations

from typing import Any

from edl.kube.translate.objects import PodSpec, PodTemplateObject, TemplateMetadata
from edl.kube.translate.scalars import text
from edl.kube.workloads.annotations import QUEUE, STEP, Annotations, Wish
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.names import KUEUE_QUEUE
from edl.model.quota_trees import KueueState

ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"
"""An annotation that gives a job sizes of its own; also the name of the gate of its pods."""
STRATEGY = "kueue.x-k8s.io/elastic-job-scale-up-strategy"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
"""The annotation of a template with the size of a unit of pods that Kueue places in one topology domain."""

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


def kueue_of(metadata: WorkloadMetadata[Any], pod_set: str, *, is_suspended: bool) -> KueueState | None:
    """Read from an object which queue of Kueue it names; None if it names none.

    Args:
        metadata: of the object.
        pod_set: the name of its trainers in the Workload.
        is_suspended: the object is suspended.
    """
    queue = text((metadata.labels or {}).get(KUEUE_QUEUE))
    return KueueState(queue, pod_set, is_suspended=is_suspended) if queue else None


def kueue_problem(metadata: WorkloadMetadata[Any], wish: Wish, template: PodTemplateObject | None, pods: str) -> str:
    """Why edl does not size an object that names a queue of Kueue, and the remedy; empty if it does.

    Args:
        metadata: of the object.
        wish: what its annotations ask edl for.
        template: of its trainers; None if it has none.
        pods: what the kind calls them.
    """
    if not text((metadata.labels or {}).get(KUEUE_QUEUE)):
        return ""
    found = template or PodTemplateObject()
    return (
        _annotation_problem(metadata.annotations or {})
        or _slice_problem(found.metadata or TemplateMetadata(), wish, pods)
        or _gate_problem(found.spec or PodSpec(), pods)
    )


def _annotation_problem(asked: Annotations) -> str:
    if text(asked.get(ELASTIC_JOB)) != "true":
        return (
            f"label {KUEUE_QUEUE} gives it to Kueue, which starts it anew whenever its size changes; create it with"
            f' annotation {ELASTIC_JOB}: "true", or remove the annotations of edl'
        )
    if text(asked.get(STRATEGY)) == "partial":
        return (
            f"annotation {STRATEGY} is partial, and Kueue may then never admit it again once it was evicted; remove"
            " that annotation"
        )
    if MIN_PARALLELISM in asked:
        return f"annotation {MIN_PARALLELISM} forbids every other size; remove it: edl has min-instance for that"
    if QUEUE in asked:
        return f"annotation {QUEUE} names a queue of edl, and label {KUEUE_QUEUE} one of Kueue; remove the annotation"
    return ""


def _slice_problem(template: TemplateMetadata, wish: Wish, pods: str) -> str:
    """Say that a size is not a whole number of units, a part of which would be of no use."""
    value = text(template.annotations.slice_size) if template.annotations is not None else ""
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 1):
        return ""
    sizes = wish.sizes or range(wish.min_trainers, wish.max_trainers + 1)
    if not any(size % int(value) for size in sizes):
        return ""
    return (
        f"annotation {SLICE_SIZE} makes a unit of {value} of its {pods}, and edl may not take a part of one; set"
        f' annotation {STEP}: "{value}" and bounds that are multiples of it'
    )


def _gate_problem(template: PodSpec, pods: str) -> str:
    """Say that Kueue does not gate the pods of the job, which it does only when an elastic job is created."""
    if not any(gate.get("name") == ELASTIC_JOB for gate in template.scheduling_gates or ()):
        return (
            f"its {pods} have no scheduling gate {ELASTIC_JOB}: when it was created, no Kueue of 0.19 or newer with"
            " feature gate ElasticJobsViaWorkloadSlices answered; create it again"
        )
    return ""
