"""The requests that give a workload another number of pods, if it is still the one that was observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edl.errors import ConflictError
from edl.kube.translate.objects import PodObject
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.record import record_of
from edl.kube.workloads.registry import ADAPTERS
from edl.model.actions import ResizeWorkload

Patch = dict[str, Any] | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """What to send, in this order.

    Attributes:
        surplus: the paths of the pods to mark before the count changes.
        mark, unmark: the JSON patches of these pods; the second one if the count was not changed.
        path: of the object.
        patch: a merge patch, or the operations of a JSON patch: the count and the record of the resize, in one.
    """

    surplus: tuple[str, ...]
    mark: list[dict[str, Any]]
    unmark: list[dict[str, Any]]
    path: str
    patch: Patch


def resize_request(action: ResizeWorkload, source: Any | None) -> ResizeRequest:  # noqa: ANN401 - the decoded object of any kind
    """Return the requests of a resize.

    The patch names the version that the cache shows, so the API server refuses it if anything has changed since.

    Args:
        action: the resize.
        source: the object as the cache shows it; None if it does not exist.

    Raises:
        ConflictError: the object is another one, has ended, has another count, or edl may not resize it so any more.
    """
    adapter = ADAPTERS[action.job.kind]
    metadata = source.metadata if source is not None else None
    if metadata is None or metadata.uid != action.job_uid:
        raise ConflictError(f"{action.job} was deleted, or another object has its name now")
    if not adapter.is_elastic(source) or adapter.problem(source) or adapter.count(source) != action.before:
        raise ConflictError(f"{action.job} has changed since it was observed")
    job = adapter.read(source, (), lambda _: PodObject(), action.resize.time_s)
    if not job.is_schedulable or (action.count and not job.min_trainers <= action.count <= job.max_trainers):
        raise ConflictError(f"{action.job} has ended, or asks for another number of pods now")
    version, _, plural = adapter.api
    namespace = action.job.namespace
    return ResizeRequest(
        tuple(f"/api/v1/namespaces/{namespace}/pods/{name}" for name in adapter.surplus(source, action.count)),
        adapter.mark(source, is_surplus=True),
        adapter.mark(source, is_surplus=False),
        f"/apis/{version}/namespaces/{namespace}/{plural}/{action.job.object_name}",
        _patch(adapter.patch(source, action.count, action.victims), action, metadata.resource_version or ""),
    )


def _patch(change: Patch, action: ResizeWorkload, resource_version: str) -> Patch:
    record = record_of(action)
    if isinstance(change, dict):
        names = {"uid": action.job_uid, "resourceVersion": resource_version}
        return {"metadata": {**names, "annotations": {RECORD: record}}, "spec": change}
    return [
        {"op": "test", "path": "/metadata/uid", "value": action.job_uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": f"/metadata/annotations/{RECORD.replace('/', '~1')}", "value": record},
        *change,
    ]
