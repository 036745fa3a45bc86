"""The pods of saved files that do not exist yet: those of jobs, and those that somebody wrote by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from edl.api.pods import pod_manifest
from edl.api.priorities import BASIC_PRIORITY_CLASSES, PRIORITY_CLASSES
from edl.api.v1 import parse_job
from edl.errors import ConfigError, InvalidJobError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.translate.objects import JobObject, PodMetadata, PodObject, PodSpec
from edl.kube.translate.quotas.scopes import scoped
from edl.kube.translate.rules.terms import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import text
from edl.kube.translate.workload_reader import WorkloadObject
from edl.model.names import Role
from edl.model.units import listed

JOB, POD = "job", "pod"

NAMED = 3
"""The most owners that are named."""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod that the API server has not admitted yet.

    Attributes:
        kind: of what asks for it: `job`, or `pod` for the pod itself.
        name: the namespace and the name of that.
        body: the pod, as far as it is known.
        pod: the same, decoded.
        priority_classes: those that it may have; the empty name stands for the default class.
        may_get_claim: the controller may give it a claim that its spec does not have.
    """

    kind: str
    name: str
    namespace: str
    body: dict[str, Any]
    pod: PodObject
    priority_classes: Collection[str]
    may_get_claim: bool = False

    @property
    def spec(self) -> PodSpec:
        """The spec of the pod."""
        return self.pod.spec or PodSpec()


def new_pods(
    jobs: Iterable[JobObject], workloads: Iterable[WorkloadObject], pods: Iterable[PodObject]
) -> Iterator[NewPod]:
    """Yield the pods that do not exist yet, one for each role of a job.

    Args:
        jobs: the TrainingJobs; invalid ones get no pods.
        workloads: the jobs of other kinds; those that do not ask to be resized are left out.
        pods: every pod; one without a UID and without a node does not exist yet.
    """
    for job in jobs:
        with suppress(InvalidJobError, ConfigError):
            yield from _of_job(job)
    for reader, source in workloads:
        if reader.is_elastic(source):
            key = reader.key(source)
            with suppress(ConfigError):
                for template in reader.templates(source).values():
                    yield _of_pod(template, JOB, str(key), key.namespace)
    for pod in pods:
        metadata, spec = pod.metadata or PodMetadata(), pod.spec or PodSpec()
        if not metadata.uid and not spec.node_name:
            namespace = metadata.namespace or DEFAULT_NAMESPACE
            yield _of_pod(pod, POD, f"{namespace}/{metadata.name}", namespace)


def owners(pods: Iterable[NewPod]) -> str:
    """Name the owners of some pods, each once: `the pods of job ads/ctr and pod shop/web`."""
    found = dict.fromkeys((pod.kind, pod.name) for pod in pods)
    parts = []
    for kind, words in ((JOB, "the pods of job"), (POD, "pod")):
        names = [name for of_kind, name in found if of_kind == kind]
        more = len(names) - NAMED
        if names:
            shown = listed([*names[:NAMED], *((f"{more} more",) if more > 0 else ())])
            parts.append(f"{words}{'' if len(names) == 1 else 's'} {shown}")
    return " and ".join(parts)


def _of_job(source: JobObject) -> Iterator[NewPod]:
    job = parse_job(source.body)
    for role in Role:
        if not job.minimum(role):
            continue
        body = pod_manifest(job, role, 0, default_master_image="", priority_classes=())
        body["metadata"] = {"namespace": DEFAULT_NAMESPACE, "annotations": {}, **body["metadata"]}
        with suppress(*UNREADABLE):
            pod, is_master = msgspec.convert(body, PodObject), role is Role.MASTER
            is_bare = scoped(pod.spec or PodSpec(), ()).is_best_effort
            classes = PRIORITY_CLASSES if is_bare else BASIC_PRIORITY_CLASSES
            yield NewPod(JOB, str(job.key), job.key.namespace, body, pod, classes, may_get_claim=is_master)


def _of_pod(pod: PodObject, kind: str, name: str, namespace: str) -> NewPod:
    metadata, spec = pod.metadata or PodMetadata(), pod.spec or PodSpec()
    labels = {key: text(value) for key, value in (metadata.labels or {}).items()}
    body = {"metadata": {"namespace": namespace, "labels": labels}}
    return NewPod(kind, name, namespace, body, pod, (spec.priority_class_name or "",))
