"""What pods request: amounts of resources, and the nodes on which they may run.

The planner treats pods of one shape as equal. Amounts are integers, in millicores, bytes, devices and pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
POD_OBJECTS = "count/pods"
"""A resource of ResourceQuotas alone: every pod of the namespace, finished ones included; `PODS` leaves these out."""
GPU = "nvidia.com/gpu"
EPHEMERAL_STORAGE = "ephemeral-storage"
RULE_PREFIX = "rule: "
"""Begins the name of a resource that stands for a rule between pods; the name says the rule in words.

`rule: one pod of app=web a node` is such a name: a node has one of it, and each pod of the group requests it.
"""
SKEW, APART = "differ by at most", "apart from"
"""A part of the names of rules that may allow more pods once the pods of a plan run."""
TAKES_NO_MORE = "takes no more than"
"""A part of the names of rules that allow no more pods whatever runs; the name says which domain is too small."""
ONE_POD = "ReadWriteOncePod"
"""The access mode of a claim that one pod may use."""
STORAGE_LEFT = "of storage left for claim"
"""Part of the words of a rule about what CSI drivers have left."""

BY_HAND = "free volumes"
"""Begins, behind `RULE_PREFIX`, the volumes made by hand that claims of one kind fit."""
_NAME_OF_NODE = "metadata.name"
DEVICE_PREFIX = "device of class "
"""Begins the name of a kind of devices that pods get by claims."""
HOST_PORT_PREFIX = "hostport/"  # "hostport/TCP/8080", "hostport/TCP/8080/10.0.0.1": every node has one of each


class QosClass(StrEnum):
    """`status.qosClass` of a pod, as Kubernetes derives it from requests and limits: who is evicted first."""

    GUARANTEED = "Guaranteed"  # every container requests exactly its limits of cpu and memory
    BURSTABLE = "Burstable"  # some container has a request or a limit of cpu or memory
    BEST_EFFORT = "BestEffort"  # none has; a device or a disk does not count


def port_at_every_address(name: str) -> str:
    """Strip the address from the name of a host port: `hostport/TCP/8080/10.0.0.1` -> `hostport/TCP/8080`.

    A pod that requests a port at every address conflicts with each pod that requests it at any address.
    """
    return name if name.count("/") < 3 else "/".join(name.split("/", 3)[:3])


def is_amount(name: str) -> bool:
    """True for a resource that pods use in amounts: neither a host port nor a rule between pods."""
    return not name.startswith((HOST_PORT_PREFIX, RULE_PREFIX))


def grows_by_steps(name: str) -> bool:
    """True for a rule that allows some pods now, and perhaps more once these run."""
    if not name.startswith(RULE_PREFIX) or f" {TAKES_NO_MORE} " in name:
        return False
    return any(f" {words} " in name for words in (SKEW, APART))


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
        return Resources(tuple(sorted([item for item in amounts.items() if item[1]])))

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
        if total.keys().isdisjoint(dict(other.amounts)):
            return Resources(tuple(sorted((*self.amounts, *other.amounts))))
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


class NodeRule(NamedTuple):
    """What another object, such as a volume or an avoided pod, requires of the nodes of a pod.

    Attributes:
        terms: a node must match at least one; without terms no node does.
        why: what the rule says of the nodes that do not match, in words.
    """

    terms: tuple[NodeTerm, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes on which a pod may run, apart from its resource requests.

    Attributes:
        node_selector: sorted (label, value) pairs; a node must have all of them.
        required: required node affinity, terms joined by OR; empty allows every node.
        tolerations: the tolerations of the pod.
        rules: what other objects of the cluster require of its node; all of them must hold.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    rules: tuple[NodeRule, ...] = ()


@dataclass(frozen=True, slots=True)
class PodShape:
    """The requests and the placement of one pod; the planner treats pods of one shape as equal.

    Attributes:
        request: the effective request of the pod, including `pods: 1` and its host ports.
        placement: the nodes on which it may run.
    """

    request: Resources
    placement: Placement = Placement()

    @property
    def only_node(self) -> str:
        """The one node that its affinity names, as that of a pod of a DaemonSet does; empty if none or several.

        Source: k8s.io/kubernetes/pkg/controller/daemon/util, func ReplaceDaemonSetPodNodeNameNodeAffinity.
        """
        fields = {field for term in self.placement.required for field in term.fields if field.key == _NAME_OF_NODE}
        names = {field.values for field in fields if field.operator == "In"}
        return next(iter(names))[0] if len(fields) == 1 and len(names) == 1 and len(next(iter(names))) == 1 else ""


def without_rules(shape: PodShape) -> PodShape:
    """Return the shape without what rules between pods and volumes have added for one snapshot."""
    if not shape.placement.rules and not any(name.startswith(RULE_PREFIX) for name in shape.request):
        return shape
    amounts = {name: amount for name, amount in shape.request.amounts if not name.startswith(RULE_PREFIX)}
    return PodShape(Resources.of(amounts), replace(shape.placement, rules=()))
