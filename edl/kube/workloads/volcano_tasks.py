"""The tasks of a Volcano Job: which one edl resizes, and the JSON patch that gives it another count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.objects import PodSpec, PodTemplateObject
from edl.kube.translate.rule_objects import ClaimSourceObject, VolumeObject
from edl.kube.translate.scalars import Scalar, text
from edl.kube.workloads.volcano_objects import JobVolumeObject, TaskObject
from edl.model.pod_limits import MAX_READ_VOLUMES

STOPPED = "paddlepaddle.org/stopped-tasks"
"""What a job that edl stopped had: the `minAvailable` of the job, and replicas and `minAvailable` of each task."""

OUTDATED = "-1"
"""A version older than any of the job, so that Volcano executes no policy for events of such a pod."""

MOST_OTHERS = 2
"""The most other tasks that a resizable job may have."""

_MOST_PODS = (1 + MOST_OTHERS) * MAX_INSTANCES

Operation = dict[str, Any]


def replicas_of(task: TaskObject) -> int:
    """How many pods Volcano keeps of a task."""
    return max(0, task.replicas or 0)


def with_volumes(task: TaskObject, shared: Iterable[JobVolumeObject]) -> PodTemplateObject:
    """Add to the pod template of a task the claims that all pods of the job use.

    A claim that Volcano has still to make has no name yet, and keeps the pods from no node.
    """
    template = task.template or PodTemplateObject()
    names = [name for one in shared if (name := one.volume_claim_name)]
    if not names:
        return template
    spec = template.spec or PodSpec()
    claims = [VolumeObject(persistent_volume_claim=ClaimSourceObject(claim_name=name)) for name in names]
    volumes = [*claims, *(spec.volumes or ())][:MAX_READ_VOLUMES]
    return msgspec.structs.replace(template, spec=msgspec.structs.replace(spec, volumes=volumes))


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks in their order, and the one that edl resizes."""

    all: tuple[TaskObject, ...]
    elastic: TaskObject

    @property
    def others(self) -> tuple[TaskObject, ...]:
        """The tasks that edl does not resize."""
        return tuple(task for task in self.all if task is not self.elastic)


@dataclass(frozen=True, slots=True)
class Stopped:
    """What the annotation of a stopped job says.

    Attributes:
        min_available: of the job.
        tasks: by name, (replicas, minAvailable); -1 for a minAvailable that nobody had set.
    """

    min_available: int
    tasks: Mapping[str, tuple[int, int]]

    def replicas(self, name: str, task: TaskObject) -> int:
        """How many pods the task had."""
        return self.tasks.get(name, (replicas_of(task), -1))[0]


def read_stopped(annotations: Mapping[str, Scalar], tasks: Tasks) -> Stopped | None:
    """Read the counts that a job had before edl stopped it; None if edl did not, or if they cannot be read.

    A job of which a task has replicas is not stopped: the annotation came with the manifest of a former job.
    """
    if any(task.replicas for task in tasks.all):
        return None
    try:
        found = json.loads(text(annotations.get(STOPPED)) or "null")
        sizes = {str(name): (_number(pair[0]), _number(pair[1])) for name, pair in found["tasks"].items()}
        return Stopped(_number(found["minAvailable"]), sizes)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def _number(value: object) -> int:
    """Parse a number of pods; -1 for anything else.

    Raises:
        ValueError: it is neither. The owner of a job can write anything into its annotations.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= _MOST_PODS:
        raise ValueError(value)
    return value


def resize_operations(
    tasks: Tasks, min_available: int | None, low: int, count: int, stopped: Stopped | None
) -> list[Operation]:
    """The JSON patch for another count of the elastic task.

    The gang keeps its other tasks and the minimum of the elastic one, so Volcano starts surplus pods one by one. It
    never becomes larger than its owner made it. A count of 0 stops every task; the first count after it starts them.

    Args:
        tasks: the tasks.
        min_available: of the job.
        low: the least pods of the elastic task with which the job runs.
        count: the new count.
        stopped: what the job had before edl stopped it.
    """
    operations: list[Operation] = []
    gang = 0
    for index, task in enumerate(tasks.all):
        replicas, least = _size(task, stopped)
        if task is tasks.elastic:
            replicas, least = count, least if least < 0 else min(low, count)
        if not count:
            replicas, least = 0, min(least, 0)
        gang += least if least >= 0 else min(low, count) if task is tasks.elastic else replicas
        path = f"/spec/tasks/{index}"
        operations.append({"op": "add", "path": f"{path}/replicas", "value": replicas})
        if least >= 0:
            operations.append({"op": "add", "path": f"{path}/minAvailable", "value": least})
    declared = stopped.min_available if stopped is not None else min_available or 0
    operations.append({"op": "add", "path": "/spec/minAvailable", "value": min(declared, gang)})
    return operations + _annotation(tasks, min_available or 0, count, stopped)


def _size(task: TaskObject, stopped: Stopped | None) -> tuple[int, int]:
    """Replicas and minAvailable of a task, or those before edl stopped it; -1 if minAvailable is not set."""
    now = (replicas_of(task), -1 if task.min_available is None else task.min_available)
    return now if stopped is None else stopped.tasks.get(task.name or "", now)


def _annotation(tasks: Tasks, min_available: int, count: int, stopped: Stopped | None) -> list[Operation]:
    """Keep what a job has that stops, and forget it when the job starts."""
    path = f"/metadata/annotations/{STOPPED.replace('/', '~1')}"
    if count:
        return [] if stopped is None else [{"op": "remove", "path": path}]
    if stopped is not None:
        return []
    sizes = {task.name or "": _size(task, None) for task in tasks.all}
    return [{"op": "add", "path": path, "value": json.dumps({"minAvailable": min_available, "tasks": sizes})}]
