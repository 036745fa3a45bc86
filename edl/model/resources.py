"""What pods ask for: amounts of resources, and the nodes that they may stand on.

Pods of one shape are interchangeable for the planner. Amounts are integers, in millicores, bytes, devices and pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
GPU = "nvidia.com/gpu"
EPHEMERAL_STORAGE = "ephemeral-storage"
HOST_PORT_PREFIX = "hostport/"  # "hostport/TCP/8080", "hostport/TCP/8080/10.0.0.1": every node has one of each


def port_at_every_address(name: str) -> str:
    """The name of a host port at every address of its node, from its name at one address or at all of them.

    A pod that asks for a port at every address stands in the way of all pods that ask for it anywhere.
    """
    return "/".join(name.split("/", 3)[:3])


@dataclass(frozen=True, slots=True)
class Resources:
    """A vector over resource names with integer amounts; a name that is absent has amount 0.

    Attributes:
        amounts: (name, amount) sorted by name, zeros left out, so that equal vectors are equal and hash alike. Units
            by name: cpu in millicores; memory and ephemeral-storage in bytes; everything else in pieces.
    """

    amounts: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(amounts: Mapping[str, int]) -> Resources:
        """Build the vector from a mapping; zeros are dropped."""
        return Resources(tuple(sorted((name, n) for name, n in amounts.items() if n)))

    def __getitem__(self, name: str) -> int:
        for key, amount in self.amounts:
            if key == name:
                return amount
        return 0

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.amounts)

    def __bool__(self) -> bool:
        return bool(self.amounts)

    def as_dict(self) -> dict[str, int]:
        """The amounts as a new dictionary."""
        return dict(self.amounts)

    def __add__(self, other: Resources) -> Resources:
        total = dict(self.amounts)
        for name, amount in other.amounts:
            total[name] = total.get(name, 0) + amount
        return Resources.of(total)

    def __sub__(self, other: Resources) -> Resources:
        """The difference; an amount may become negative (a node can be overcommitted by others)."""
        total = dict(self.amounts)
        for name, amount in other.amounts:
            total[name] = total.get(name, 0) - amount
        return Resources.of(total)

    def __mul__(self, count: int) -> Resources:
        return Resources.of({name: amount * count for name, amount in self.amounts})

    def maximum(self, other: Resources) -> Resources:
        """The larger amount of each name."""
        mine, theirs = dict(self.amounts), dict(other.amounts)
        return Resources.of({name: max(mine.get(name, 0), theirs.get(name, 0)) for name in mine | theirs})

    def fits(self, room: Resources) -> bool:
        """True where every amount asked for is there; a resource that is not asked for may be short."""
        have = dict(room.amounts)
        return all(amount <= have.get(name, 0) for name, amount in self.amounts if amount > 0)


class Taint(NamedTuple):
    """A node's taint; effect NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A pod's toleration; an empty key with Exists tolerates all, an empty effect matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(NamedTuple):
    """One match expression: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(NamedTuple):
    """One node selector term: every label expression and every field expression (metadata.name) must hold."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class Preference(NamedTuple):
    """A node selector term that makes a node more welcome, by a weight of 1 to 100; it closes no node."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod may go, apart from the room it needs.

    Attributes:
        node_selector: (label, value) pairs that a node must all have, sorted.
        required: required node affinity, terms joined by OR; empty means anywhere.
        tolerations: the taints that the pod accepts.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodShape:
    """What one pod needs: pods of one shape are interchangeable for the planner.

    Attributes:
        request: the effective request of the pod, with `pods: 1` and its host ports in it.
        placement: where it may go.
    """

    request: Resources
    placement: Placement = Placement()
