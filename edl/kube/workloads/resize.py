"""The requests that give a workload another number of pods, if it is still the one that was observed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from edl.errors import ConflictError
from edl.kube.translate.kueue.objects import FlavorSpec
from edl.kube.translate.objects import PodObject
from edl.kube.workloads.adapter import SuspendingAdapter
from edl.kube.workloads.annotations import FLAVOR_NODES, RECORD
from edl.kube.workloads.owned_by_kueue import added_to, flavored, owned_state, recorded
from edl.kube.workloads.record import record_of
from edl.kube.workloads.registry import ADAPTERS, SUSPENDING
from edl.model.actions import ResizeWorkload
from edl.model.sizes import allows

Patch = dict[str, Any] | list[dict[str, Any]]

MOST_UNSEEN = 64
"""The most pods to mark that the cache does not show, because they have finished or are new."""

_POD_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """The requests of one resize, in the order of sending.

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


def resize_request(
    action: ResizeWorkload,
    source: Any | None,  # noqa: ANN401 - the decoded object of any kind
    shows: Callable[[str], bool] = lambda _: True,
    flavors: Collection[FlavorSpec] = (),
) -> ResizeRequest:
    """Return the requests of a resize.

    The patch names the version that the cache shows, so the API server rejects it if anything has changed since.

    Args:
        action: the resize.
        source: the object as the cache shows it; None if it does not exist.
        shows: returns True if the cache shows a pod of that name in the namespace of the object.
        flavors: those that the action names.

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
    is_owned = owned_state(metadata) is not None  # then Kueue may have admitted an earlier, smaller minimum
    low = 1 if is_owned else job.min_trainers
    fits = low <= action.count <= job.max_trainers and (is_owned or allows(job.sizes, action.count))
    if not job.is_schedulable or (action.count and not fits):
        raise ConflictError(f"{action.job} has ended, or asks for another number of pods now")
    if job.keeps_minimum and not action.count:
        raise ConflictError(f"{action.job} has begun in the meantime, and must not be stopped")
    version, _, plural = adapter.api
    namespace = action.job.namespace
    path = f"/apis/{version}/namespaces/{namespace}/{plural}/{action.job.object_name}"
    if is_owned and action.count and not action.before:
        return _start(SUSPENDING[action.job.kind], action, source, flavors, path)
    return ResizeRequest(
        tuple(
            f"/api/v1/namespaces/{namespace}/pods/{name}"
            for name in _markable(adapter.surplus(source, action.count), shows)
        ),
        adapter.mark(source, is_surplus=True),
        adapter.mark(source, is_surplus=False),
        path,
        _patch(adapter.patch(source, action.count, action.victims), action, metadata.resource_version or ""),
    )


def _start(
    adapter: SuspendingAdapter,
    action: ResizeWorkload,
    source: Any,  # noqa: ANN401 - the decoded object
    flavors: Collection[FlavorSpec],
    path: str,
) -> ResizeRequest:
    """Return the request that starts a suspended workload on the nodes of its flavors.

    The API server may accept no other template of a Job while that has a start time. Then the request removes that
    time, and nothing else: the workload is started by the next one.
    """
    metadata = source.metadata
    change, added = flavored(adapter.template(source), added_to(metadata), flavors)
    version = metadata.resource_version or ""
    if change and adapter.start_s(source) is not None:
        names = {"uid": action.job_uid, "resourceVersion": version}
        return ResizeRequest((), [], [], f"{path}/status", {"metadata": names, "status": {"startTime": None}})
    spec = adapter.patch(source, action.count, action.victims)
    if not change or not isinstance(spec, dict):
        return ResizeRequest((), [], [], path, _patch(spec, action, version))
    nested: dict[str, Any] = {"spec": change}
    for name in reversed(adapter.template_path):
        nested = {name: nested}
    annotations = {FLAVOR_NODES: recorded(added)}
    return ResizeRequest((), [], [], path, _patch(_merged(spec, nested), action, version, annotations))


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Join two merge patches."""
    both = {
        key: _merged(one[key], other[key])
        for key in one.keys() & other.keys()
        if isinstance(one[key], dict) and isinstance(other[key], dict)
    }
    return {**one, **other, **both}


def _markable(names: tuple[str, ...], shows: Callable[[str], bool]) -> Iterator[str]:
    """The names of pods that may exist: somebody may write a count of ten thousand, or names that lead elsewhere."""
    possible = [name for name in names if _POD_NAME.fullmatch(name)]
    seen = {name for name in possible if shows(name)}
    unseen = set(islice((name for name in possible if name not in seen), MOST_UNSEEN))
    yield from (name for name in possible if name in seen or name in unseen)


def _patch(
    change: Patch, action: ResizeWorkload, resource_version: str, annotations: Mapping[str, str | None] | None = None
) -> Patch:
    record = record_of(action)
    if isinstance(change, dict):
        names = {"uid": action.job_uid, "resourceVersion": resource_version}
        return {"metadata": {**names, "annotations": {RECORD: record, **(annotations or {})}}, "spec": change}
    return [
        {"op": "test", "path": "/metadata/uid", "value": action.job_uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "add", "path": f"/metadata/annotations/{RECORD.replace('/', '~1')}", "value": record},
        *change,
    ]
