"""What pods request: amounts of resources, and the nodes on which they may run.

The planner treats pods of one shape as equal. Amounts are integers, in millicores, bytes, devices and pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
POD_OBJECTS = "count/pods"
"""A resource of ResourceQuotas alone: every pod of the namespace, finished ones included; `PODS` leaves these out."""
GPU = "nvidia.com/gpu"
EPHEMERAL_STORAGE = "ephemeral-storage"
HOST_PORT_PREFIX = "hostport/"  # "hostport/TCP/8080", "hostport/TCP/8080/10.0.0.1": every node has one of each


def port_at_every_address(name: str) -> str:
    """Strip the address from the name of a host port: `hostport/TCP/8080/10.0.0.1` -> `hostport/TCP/8080`.

    A pod that requests a port at every address conflicts with each pod that requests it at any address.
    """
    return name if name.count("/") < 3 else "/".join(name.split("/", 3)[:3])


@dataclass(frozen=True, slots=True)
class Resources:
    """A vector of integer amounts by resource name; a missing name has amount 0.

    Attributes:
        amounts: (name, amount) sorted by name without zeros, so that equal vectors compare equal and have one hash.
            Units: cpu in millicores; memory and ephemeral-storage in bytes; every other resource in pieces.
    """

    amounts: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(amounts: Mapping[str, int]) -> Resources:
        """Build the vector from a mapping without its zeros."""
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
        """The difference; an amount may become negative, because foreign pods can overcommit a node."""
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

    def fits(self, free: Resources) -> bool:
        """True if `free` has every requested amount; a resource that is not requested may be negative there."""
        have = dict(free.amounts)
        return all(amount <= have.get(name, 0) for name, amount in self.amounts if amount > 0)


class Taint(NamedTuple):
    """A node's taint; effect NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A pod's toleration; an empty key with Exists tolerates every taint, an empty effect matches every effect."""

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
    """A preferred node selector term with its weight, 1 to 100; it excludes no node."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes on which a pod may run, apart from its resource requests.

    Attributes:
        node_selector: sorted (label, value) pairs; a node must have all of them.
        required: required node affinity, terms joined by OR; empty allows every node.
        tolerations: the tolerations of the pod.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodShape:
    """The requests and the placement of one pod; the planner treats pods of one shape as equal.

    Attributes:
        request: the effective request of the pod, including `pods: 1` and its host ports.
        placement: the nodes on which it may run.
    """

    request: Resources
    placement: Placement = Placement()
