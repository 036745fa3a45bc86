"""Amounts as rows of integers: a column for each resource that a plan asks for, a row for each shape or node.

Equal amounts are read once: tens of thousands of pods share a few shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.model.resources import HOST_PORT_PREFIX, PodShape, Resources, port_at_every_address
from edl.planner.problem import IntArray

# No node has 256 TiB of anything, and the requests of 10,000 trainers of twice that size still add up within 64 bits.
MAX_ALLOCATABLE = 2**48
MAX_REQUEST = 2**49

Entries = list[tuple[int, int]]  # a row of a matrix: the columns that are not 0, with their values


@dataclass(slots=True)
class ShapeTable:
    """The pod shapes, numbered in the order in which they appear, with their requests as rows.

    Attributes:
        names: resource names, the columns.
        number: the number of each shape.
        rows: (shapes,) what one pod of each shape requests.
    """

    names: Names
    number: dict[PodShape, int] = field(default_factory=dict)
    rows: list[Entries] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # by object identity: thousands of pods share a few shapes

    def add(self, shape: PodShape) -> int:
        """Return the number of a shape; a new shape gets the next one."""
        index = self.known.get(id(shape))
        if index is not None:
            return index
        index = self.number.get(shape)
        if index is None:
            index = self.number[shape] = len(self.rows)
            self.rows.append(self.names.entries(shape.request))
        self.known[id(shape)] = index
        return index


class Names:
    """The resources that a plan counts, each with its column. Resources of no pod to be planned have none."""

    def __init__(self, names: Iterable[str]) -> None:
        self._column = {name: column for column, name in enumerate(names)}
        self._addresses: dict[str, list[str]] = {}
        for name in self._column:
            if name.startswith(HOST_PORT_PREFIX) and (port := port_at_every_address(name)) != name:
                self._addresses.setdefault(port, []).append(name)

    def entries(self, request: Resources) -> Entries:
        """Return the columns of a request, ascending, with the amounts, which are capped so that sums fit in 64 bits.

        A host port requested at every address counts at each single address.
        """
        have = dict(request.amounts)
        for port in self._addresses.keys() & have.keys() if self._addresses else ():
            have |= {name: have[port] for name in self._addresses[port] if name not in have}
        column = self._column
        return sorted((column[name], min(amount, MAX_REQUEST)) for name, amount in have.items() if name in column)


def requested_row(request: Resources, names: tuple[str, ...]) -> list[int]:
    """The requested amounts, in the order of the names."""
    row = [0] * len(names)
    for column, amount in Names(names).entries(request):
        row[column] = amount
    return row


def planned_resources(jobs: Iterable[Job], waiting: Iterable[Pod], snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Every resource that a pod to be planned requests; for a host port, also each address at which a pod uses it.

    Of the resources that no node has, one is enough for each pod that requests any: it fits nowhere.
    """
    shapes = {id(shape): shape for job in jobs for shape in (job.trainer, *(f.shape for f in job.fixed))}
    shapes |= {id(pod.shape): pod.shape for pod in waiting}
    names = {name for shape in shapes.values() for name in shape.request}
    if ports := {name for name in names if name.startswith(HOST_PORT_PREFIX)}:
        pods = chain(snapshot.pods, *(job.pods for job in snapshot.jobs))
        held = {id(pod.shape): pod.shape for pod in pods}.values()
        names |= {name for shape in held for name in shape.request if port_at_every_address(name) in ports}
    names -= _superfluous(names - ports, shapes.values(), snapshot.nodes)
    return tuple(sorted(names))


def _superfluous(names: set[str], shapes: Iterable[PodShape], nodes: Iterable[Node]) -> set[str]:
    """Choose the resources to ignore: no node has them, and other ones already show that the pods fit nowhere."""
    offered = {name for have in {node.allocatable for node in nodes} for name, amount in have.amounts if amount > 0}
    if not (missing := {name for name in names if name not in offered and not name.startswith(HOST_PORT_PREFIX)}):
        return missing
    kept: set[str] = set()
    for lacking in sorted(sorted(missing.intersection(shape.request)) for shape in shapes):
        if lacking and kept.isdisjoint(lacking):
            kept.add(lacking[0])
    return missing - kept


def columns_that_differ(names: tuple[str, ...], rows: list[Entries]) -> list[int]:
    """The columns without those of host ports that every pod requests together with an earlier port.

    Each node has one of each host port, so such columns say the same; a pod may ask for hundreds of ports.
    """
    users: list[Entries] = [[] for _ in names]
    for shape, row in enumerate(rows):
        for column, amount in row:
            users[column].append((shape, amount))
    kept: dict[object, int] = {}
    for column, name in enumerate(names):
        kept.setdefault(tuple(users[column]) if name.startswith(HOST_PORT_PREFIX) else name, column)
    return sorted(kept.values())


def request_matrix(rows: list[Entries], columns: list[int]) -> IntArray:
    """(shapes, resources) what one pod of each shape requests, for some of the columns."""
    request = np.zeros((len(rows), len(columns)), dtype=np.int64)
    place = {column: k for k, column in enumerate(columns)}
    for shape, row in enumerate(rows):
        for column, amount in row:
            if column in place:
                request[shape, place[column]] = amount
    return request


def _matrix(rows: list[list[int]], columns: int) -> IntArray:
    """(rows, columns) the rows as one array, which may have no rows."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)


def node_rows(
    amounts: list[Resources], names: tuple[str, ...], read: Callable[[Resources, tuple[str, ...]], list[int]]
) -> IntArray:
    """(nodes, resources) one row for each node; equal amounts are read once."""
    rows: dict[tuple[tuple[str, int], ...], int] = {}
    kinds: list[list[int]] = []
    order = []
    for have in amounts:
        kind = rows.get(have.amounts)
        if kind is None:
            kind = rows[have.amounts] = len(kinds)
            kinds.append(read(have, names))
        order.append(kind)
    return _matrix(kinds, len(names))[np.array(order, dtype=np.int64)]


def allocatable_row(allocatable: Resources, names: tuple[str, ...]) -> list[int]:
    """The amounts of a node, in the order of the names; each host port is there once."""
    have = allocatable.as_dict()
    return [1 if name.startswith(HOST_PORT_PREFIX) else min(have.get(name, 0), MAX_ALLOCATABLE) for name in names]
