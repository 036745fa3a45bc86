"""The cluster of the small scope, as values: the true objects, what the watches have shown, and what may happen.

The controller sees four collections: jobs, its own pods, serving pods and nodes. Each has a watch of its own, which
shows the changes in order and may be late by `depth` of them. So a collection is a sequence of versions: first what
the cache shows, last what is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple

from edl.lifecycle.pod_events import STEADY_AFTER_S
from edl.lifecycle.status import is_over
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape, Resources

START_S = 1000.0
"""The time, which stands still."""


class Stream(IntEnum):
    """A collection with a watch of its own."""

    JOBS = 0
    PODS = 1
    SERVING = 2
    NODES = 3


class Owned(NamedTuple):
    """A pod of a job, with the UID of the job."""

    pod: Pod
    owner: str


Jobs = tuple[Job, ...]
Pods = tuple[Owned, ...]
Serving = tuple[Pod, ...]
Nodes = tuple[Node, ...]
Versions = tuple[int, ...]


class World(NamedTuple):
    """One state of the cluster and of the cache.

    Attributes:
        happened: the events of the scene that have happened, as bits.
        streams: for each stream the numbers of its versions, from the shown to the true one.
        owed: for each stream how many events the cache must show before it may be read, after a takeover.
        standby: the streams of a standby, which gets no answers; empty if none may take over any more.
    """

    happened: int
    streams: tuple[Versions, Versions, Versions, Versions]
    owed: tuple[int, int, int, int] = (0, 0, 0, 0)
    standby: tuple[Versions, ...] = ()

    def true(self, stream: Stream) -> int:
        """The number of the true version."""
        return self.streams[stream][-1]


class Table:
    """Numbers for equal values, so that states are compared by numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value, the same one for equal values."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


@dataclass(frozen=True)
class Event:
    """Something that happens once, at any moment.

    Attributes:
        change: gives the new true collections of the streams that change; None if it cannot happen now.
        after: the names of events that come before it.
    """

    name: str
    change: Callable[[Cluster, World], dict[Stream, Any] | None]
    after: tuple[str, ...] = ()


class Move(NamedTuple):
    """A step of the cluster: what it is called, and the state after it."""

    name: str
    world: World


@dataclass
class Cluster:
    """What may happen in a scene.

    Attributes:
        events: what happens once.
        depth: by how many changes a watch may be late.
    """

    events: tuple[Event, ...]
    depth: int = 2
    tables: tuple[Table, Table, Table, Table] = field(default_factory=lambda: (Table(), Table(), Table(), Table()))

    def __post_init__(self) -> None:
        self._pod_moves: dict[tuple[int, int, int], list[tuple[str, Stream, int]]] = {}
        self._shown_jobs = Table()
        self._bit = {event.name: 1 << number for number, event in enumerate(self.events)}

    def begin(self, jobs: Jobs, nodes: Nodes) -> World:
        """The first state: these jobs and nodes, and all watches up to date."""
        values: tuple[Any, ...] = (jobs, (), (), nodes)
        first = tuple((table.number(value),) for table, value in zip(self.tables, values, strict=True))
        return World(0, (first[0], first[1], first[2], first[3]), standby=first if "takeover" in self._bit else ())

    def value(self, world: World, stream: Stream, *, is_shown: bool = False) -> Any:
        """The true collection of a stream, or the one that the cache shows."""
        return self.tables[stream].values[world.streams[stream][0 if is_shown else -1]]

    def put(self, world: World, stream: Stream, value: Any) -> World:
        """A new true version of a stream; a watch that would be too late shows its oldest event."""
        return self.put_number(world, stream, self.tables[stream].number(value))

    def put_number(self, world: World, stream: Stream, number: int) -> World:
        """The same by the number of the collection."""
        if number == world.true(stream):
            return world
        versions, standby = (*world.streams[stream], number), world.standby
        world = world._replace(streams=_set(world.streams, stream, versions))
        if len(versions) > self.depth + 1:
            world = self.show(world, stream)
        if standby:
            late = (*standby[stream], number)[-self.depth - 1 :]
            world = world._replace(standby=_set(standby, stream, late))
        return world

    def tell(self, world: World, stream: Stream, key: JobKey | str, is_told: Callable[[Any], bool]) -> World:
        """The state after an answer of the API server: the cache shows an object as it was after the request.

        If the cache shows it already, or as it was later, nothing changes: the newer version wins. The events of the
        watch that are still to come show the object as it was before, which changes nothing any more.

        Args:
            world: the state before.
            stream: of the object.
            key: a job by its key, or a pod by its name.
            is_told: true for the collection of the stream since the request.
        """
        table, before = self.tables[stream], world.streams[stream]
        first = next((place for place, number in enumerate(before) if is_told(table.values[number])), 0)
        true = table.values[before[first]]
        shown = [table.number(_with_object(table.values[number], key, true)) for number in before[:first]]
        versions = tuple(number for number, _ in groupby((*shown, *before[first:])))
        return world._replace(streams=_set(world.streams, stream, versions))

    def show(self, world: World, stream: Stream) -> World:
        """The watch shows its oldest event."""
        owed = _set(world.owed, stream, max(0, world.owed[stream] - 1))
        standby = world.standby
        if len(standby) > stream and len(standby[stream]) > 1:
            standby = _set(standby, stream, standby[stream][1:])
        streams = _set(world.streams, stream, world.streams[stream][1:])
        return world._replace(streams=streams, owed=owed, standby=standby)

    def listed(self, world: World) -> World:
        """The state after everything was listed."""
        streams = tuple((versions[-1],) for versions in world.streams)
        standby = streams if world.standby else ()
        shown = (streams[0], streams[1], streams[2], streams[3])
        return world._replace(streams=shown, owed=(0, 0, 0, 0), standby=standby)

    # --- What may happen

    def moves(self, world: World) -> Iterator[Move]:
        """What the watches, kubelets and schedulers may do by themselves; it happens sooner or later."""
        for stream in Stream:
            if len(world.streams[stream]) > 1:
                yield Move(f"{stream.name.lower()} shown", self.show(world, stream))
        for name, stream, number in self._moves_of_pods(world):
            yield Move(name, self.put_number(world, stream, number))

    def happenings(self, world: World) -> Iterator[Move]:
        """The events of the scene that may happen now."""
        for event in self.events:
            if self.may_happen(world, event):
                changes = event.change(self, world)
                if changes is None:
                    continue
                after = self.note(world, event.name)
                for stream, value in changes.items():
                    after = self.put(after, stream, value)
                yield Move(event.name, after)

    def may_happen(self, world: World, event: Event) -> bool:
        """True if an event has not happened, and those before it have."""
        has_begun = all(world.happened & self._bit[name] for name in event.after)
        return has_begun and not world.happened & self._bit[event.name]

    def has_happened(self, world: World, name: str) -> bool:
        """True if the event of that name has happened; also if the scene has no such event."""
        return name not in self._bit or bool(world.happened & self._bit[name])

    def failures(self, world: World) -> int:
        """How many pods have failed."""
        return sum(self.has_happened(world, name) for name in self._bit if name.endswith(" fails"))

    def note(self, world: World, name: str) -> World:
        """The state in which that event has happened."""
        return world._replace(happened=world.happened | self._bit[name])

    def _moves_of_pods(self, world: World) -> list[tuple[str, Stream, int]]:
        key = (world.true(Stream.PODS), world.true(Stream.SERVING), world.true(Stream.NODES))
        if (found := self._pod_moves.get(key)) is None:
            pods, serving, nodes = (self.value(world, s) for s in (Stream.PODS, Stream.SERVING, Stream.NODES))
            found = self._pod_moves[key] = [
                (name, stream, self.tables[stream].number(value))
                for name, stream, value in _moves_of_pods(pods, serving, nodes)
            ]
        return found

    # --- What the controller sees

    def snapshot(self, world: World) -> ClusterSnapshot:
        """What the cache shows."""
        jobs, pods, serving, nodes = (self.value(world, stream, is_shown=True) for stream in Stream)
        table = self._shown_jobs  # a job that has not changed is the same object
        jobs = tuple(table.values[table.number(with_pods(job, pods))] for job in jobs)
        uids = {job.uid for job in jobs}
        others = [replace(o.pod, job=None, role=None) for o in pods if o.owner not in uids and not o.pod.is_finished]
        foreign = tuple(sorted((*serving, *others), key=lambda p: (p.namespace, p.name)))
        return ClusterSnapshot(START_S, nodes, foreign, jobs)


def _set(values: tuple[Any, ...], index: int, value: Any) -> Any:
    return (*values[:index], value, *values[index + 1 :])


def with_pods(job: Job, pods: Pods) -> Job:
    """A job with its pods, and `finished` by its status."""
    own = [o.pod for o in pods if o.owner == job.uid]
    own.sort(key=lambda p: (p.role or "", p.index or 0, p.name))
    return replace(job, pods=tuple(own), finished=is_over(job))


def find(jobs: Jobs, key: JobKey) -> Job | None:
    """The job of that name."""
    return next((job for job in jobs if job.key == key), None)


def _with_object(values: Any, key: JobKey | str, true: Any) -> Any:
    """A collection with one object as it is in another one: a job by its key, or a pod by its name."""
    if isinstance(key, str):
        return with_pod(values, key, next((owned for owned in true if owned.pod.name == key), None))
    now = find(true, key)
    rest = [job for job in values if job.key != key]
    at = next((place for place, job in enumerate(values) if job.key == key), len(rest))
    return tuple(rest if now is None else [*rest[:at], now, *rest[at:]])


def with_pod(pods: Pods, name: str, owned: Owned | None) -> Pods:
    """The pods with one replaced, added, or removed if it is None."""
    rest = [o for o in pods if o.pod.name != name]
    return tuple(sorted(rest if owned is None else [*rest, owned], key=lambda o: o.pod.name))


def changed(pods: Pods, name: str, **fields: Any) -> Pods:
    """The pods with some fields of one changed."""
    owned = next(o for o in pods if o.pod.name == name)
    return with_pod(pods, name, owned._replace(pod=replace(owned.pod, **fields)))


def free_on(node: Node, pods: Pods, serving: Serving) -> Resources:
    """What a node has left."""
    free = node.allocatable
    for pod in (*(o.pod for o in pods), *serving):
        if pod.node == node.name and not pod.is_finished:
            free = free - pod.shape.request
    return free


def _place(shape: PodShape, planned: str, pods: Pods, serving: Serving, nodes: Nodes) -> str:
    """The node that kube-scheduler chooses: the planned one if the pod fits, else the first one; empty if none."""
    for node in sorted(nodes, key=lambda n: (n.name != planned, n.name)):
        if node.ready and shape.request.fits(free_on(node, pods, serving)):
            return node.name
    return ""


def _moves_of_pods(pods: Pods, serving: Serving, nodes: Nodes) -> Iterator[tuple[str, Stream, Any]]:
    """What kubelets and the scheduler may do; a pod that is bound runs at once.

    The pods of a job are alike, so they start in the order of their names, and they end in that order.
    """
    ready = {node.name for node in nodes if node.ready}
    begun: set[tuple[str, bool]] = set()
    for owned in pods:
        pod = owned.pod
        turn = (owned.owner, pod.terminating)
        if turn in begun or not (pod.terminating or pod.phase is PodPhase.PENDING):
            continue
        if pod.terminating:
            if not pod.node or pod.node in ready or pod.is_finished:
                begun.add(turn)
                yield f"{pod.name} ends", Stream.PODS, with_pod(pods, pod.name, None)
        elif place := _place(pod.shape, pod.planned, pods, serving, nodes):
            begun.add(turn)
            runs = {"node": place, "phase": PodPhase.RUNNING, "ready": True, "started_s": START_S - STEADY_AFTER_S}
            yield f"{pod.name} starts", Stream.PODS, changed(pods, pod.name, **runs, tried=False)
        elif not pod.tried:
            begun.add(turn)
            tried = changed(pods, pod.name, tried=True, answered_s=START_S)
            yield f"{pod.name} fits nowhere", Stream.PODS, tried
    for number, pod in enumerate(serving):
        if pod.node:
            continue
        if place := _place(pod.shape, "", pods, serving, nodes):
            runs_there = replace(pod, node=place, phase=PodPhase.RUNNING, ready=True)
            yield f"{pod.name} starts", Stream.SERVING, _set(serving, number, runs_there)
        elif not pod.tried:
            yield f"{pod.name} fits nowhere", Stream.SERVING, _set(serving, number, replace(pod, tried=True))
