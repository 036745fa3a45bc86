"""The pods of a job as arrays, which hold for as long as the job has the same pods.

The number of a job among the demands, and those of its shapes, depend on the other jobs: rows have their own numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat

import numpy as np

from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import PodShape
from edl.planner.amounts import MAX_REQUEST
from edl.planner.problem import IntArray, LiveTrainer

_NEW_TRAINER: Callable[[tuple[object, ...]], LiveTrainer] = partial(tuple.__new__, LiveTrainer)
"""Makes one of its fields; a plan may make tens of thousands."""
Held = list[tuple[int, int]]  # (node, own number of the shape) of pods


@dataclass(slots=True)
class JobRows:
    """The pods of one job as arrays; shapes are indexes into `shapes`.

    Attributes:
        shapes: in the order in which they are met: that of new trainers, of the pods, of the other roles.
        held: (node, shape) of each pod that uses capacity of a node.
        lingering: (node, shape) of those that use it for good.
        bound: (node, shape, 1 for a trainer and 0 for any other) of each live pod on a node.
        live: (shape, node, 1 if it names a node, cpu that it lends) of each live trainer.
        trainers: these trainers.
        is_base: whether each of them is part of the minimum.
        yielding: the same of those that are no live trainers, because the job requests neither cpu nor memory.
        of_roles: live pods of the other roles.
        unbound: (shape, pod) of those that have no node yet.
        ends_late: one of its pods does not end, or has very long to end.
        needs_time: what is read depends on the time, as a pod terminates.
    """

    shapes: tuple[PodShape, ...]
    held: IntArray
    lingering: IntArray
    bound: IntArray
    live: IntArray
    trainers: tuple[Pod, ...]
    is_base: tuple[bool, ...]
    yielding: tuple[tuple[int, int, Pod, bool], ...]
    of_roles: Counter[Role | None]
    unbound: tuple[tuple[int, Pod], ...]
    ends_late: bool
    needs_time: bool
    _numbered: tuple[int, list[int]] = (-1, [])
    _trainers: tuple[LiveTrainer, ...] = field(default=())

    def live_trainers(self, number: int, shapes: list[int]) -> tuple[LiveTrainer, ...]:
        """The live trainers of the job with that number, whose shapes have these numbers."""
        if self._numbered != (number, shapes):
            kinds, nodes = self.live[:, 0].tolist(), self.live[:, 1].tolist()
            fields = zip(repeat(number), self.trainers, (shapes[k] for k in kinds), nodes, self.is_base, strict=False)
            self._trainers = tuple(map(_NEW_TRAINER, fields))
            self._numbered = number, shapes
        return self._trainers


class PodsOfJobs:
    """Reads the pods of jobs, and remembers what it has read by the identity of what it was read from."""

    def __init__(self) -> None:
        self._known: dict[JobKey, tuple[tuple[object, ...], JobRows]] = {}
        self._before: dict[JobKey, tuple[tuple[object, ...], JobRows]] = {}

    def begin(self, *, forget: bool) -> None:
        """Begin with a snapshot; jobs that are not read now are forgotten by the next one.

        Args:
            forget: read all pods again: the nodes have other numbers.
        """
        self._before, self._known = ({} if forget else self._known), {}

    def read(
        self, job: Job, index: Mapping[str, int], dead: frozenset[str], now_s: float, *, defers: bool
    ) -> JobRows:
        """The rows of a job.

        Args:
            job: the job.
            index: the number of each node; the same as in the last call, unless `begin` was told to forget.
            dead: nodes that are not ready.
            now_s: the time, in seconds since the epoch.
            defers: trainers above the minimum are `yielding`.
        """
        low = job.bounds.min_trainers if defers else job.min_trainers
        source = job.pods, job.trainer, job.fixed, low, job.min_trainers, defers, dead
        found = self._before.get(job.key)
        if found is not None and not found[1].needs_time and _is_same(found[0], source):
            rows = found[1]
        else:
            rows = read_rows(job, index, dead, now_s, defers=defers)
        self._known[job.key] = source, rows
        return rows


def _is_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """True if two sources are the same; objects are compared by identity, numbers and names by value."""
    return all(a is b for a, b in zip(one[:3], other[:3], strict=True)) and one[3:] == other[3:]


def read_rows(job: Job, index: Mapping[str, int], dead: frozenset[str], now_s: float, *, defers: bool) -> JobRows:
    """Read the pods of a job; see `PodsOfJobs.read`."""
    reading = _Reading(job, index, now_s, _surplus_names(job) if defers else frozenset())
    for pod in job.pods:
        if not pod.is_finished:
            reading.take(pod)
    for fixed in job.fixed:
        reading.add(fixed.shape)
    return reading.rows(dead)


class _Reading:
    """Reads the pods of one job one by one."""

    def __init__(self, job: Job, index: Mapping[str, int], now_s: float, deferred: frozenset[str]) -> None:
        self._job, self._node_of, self._now_s, self._deferred = job, index.get, now_s, deferred
        self._minimum = job.minimum_trainers
        self._known: dict[int, int] = {}  # by identity, then by value: most pods have the shape of new trainers
        self._shapes: dict[PodShape, int] = {}
        self._held, self._lingering, self._bound = Held(), Held(), list[tuple[int, int, bool]]()
        self._live, self._trainers = list[tuple[int, int, bool, int]](), list[Pod]()
        self._is_base = list[bool]()
        self._yielding, self._unbound = list[tuple[int, int, Pod, bool]](), list[tuple[int, Pod]]()
        self._of_roles: Counter[Role | None] = Counter()
        self.add(job.trainer)

    def add(self, shape: PodShape) -> int:
        """Return the number of a shape."""
        if (known := self._known.get(id(shape))) is None:
            known = self._known[id(shape)] = self._shapes.setdefault(shape, len(self._shapes))
        return known

    def take(self, pod: Pod) -> None:
        """Read a pod that has not finished."""
        kind, node = self.add(pod.shape), self._node_of(pod.node, -1)
        if (place := node if pod.node else self._node_of(pod.nominated, -1)) >= 0:
            lingers = pod.lingers(self._now_s) if pod.terminating else pod.outlived
            (self._lingering if lingers else self._held).append((place, kind))
        if not pod.is_live:
            return
        is_trainer, is_base = pod.role is Role.TRAINER, pod.name in self._minimum
        if is_trainer and pod.name in self._deferred:
            self._yielding.append((kind, node, pod, is_base))
            return
        if node >= 0:
            self._bound.append((node, kind, is_trainer))
        if is_trainer:
            lent = min(pod.lent_cpu_milli, MAX_REQUEST) if node >= 0 else 0
            self._live.append((kind, node, bool(pod.node), lent))
            self._trainers.append(pod)
            self._is_base.append(is_base)
        else:
            self._of_roles[pod.role] += 1
            if not pod.node:
                self._unbound.append((kind, pod))

    def rows(self, dead: frozenset[str]) -> JobRows:
        """The rows that were read."""
        pods = self._job.pods
        return JobRows(
            shapes=tuple(self._shapes),
            held=_matrix(self._held, 2),
            lingering=_matrix(self._lingering, 2),
            bound=_matrix(self._bound, 3),
            live=_matrix(self._live, 4),
            trainers=tuple(self._trainers),
            is_base=tuple(self._is_base),
            yielding=tuple(self._yielding),
            of_roles=self._of_roles,
            unbound=tuple(self._unbound),
            ends_late=any(pod.ends_late(self._now_s) and pod.node not in dead for pod in pods),
            needs_time=any(pod.terminating for pod in pods),
        )


def _matrix(rows: object, columns: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)


def _surplus_names(job: Job) -> frozenset[str]:
    """The live trainers that the job would lose first, so that it keeps its minimum."""
    minimum = job.minimum_trainers
    live = [LiveTrainer(0, pod, 0, 0, pod.name in minimum) for pod in job.live_trainers]
    surplus = sorted(live, key=lambda trainer: trainer.order)[: max(0, len(live) - job.bounds.min_trainers)]
    return frozenset(trainer.pod.name for trainer in surplus)
