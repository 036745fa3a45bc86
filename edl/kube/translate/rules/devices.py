"""Dynamic resource allocation: each kind of devices is a resource of the nodes, requested by the claims of pods.

A device of one kind may be of a wider kind, too; who asks for the narrow one also uses the wide one. Devices that
claims have are not there for others; those of the pods of jobs come back with the request of these pods.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from edl.kube.translate.devices.asks import (
    Kind,
    RefusedClaimError,
    UncountedClaimError,
    kind_of_extended,
    kinds_of_claim,
)
from edl.kube.translate.devices.book import DeviceBook, Matching, is_part, overlap
from edl.kube.translate.devices.facts import allocation_of, name_of
from edl.kube.translate.devices.inventory import DeviceId
from edl.kube.translate.devices.objects import ResourceClaimObject
from edl.kube.translate.devices.selectors import SelectorError
from edl.kube.translate.rules.anti_affinity import EXCLUSIVE, Capacity
from edl.kube.translate.rules.terms import DeviceClaim
from edl.kube.translate.rules.view import Unit, View
from edl.kube.translate.shapes import read_terms
from edl.model.pods import Pod
from edl.model.resources import DEVICE_PREFIX, NodeRule, NodeTerm, Requirement
from edl.printable import one_line

UNCOUNTED = "edl does not count its devices: "
"""Begins what is said of a pod that gets no node for that."""
_LONGEST = 160
KINDS_OF_NAMESPACE = 32
"""The most kinds of devices that are counted for the pods of one namespace; each kind needs a pass over all."""


@dataclass(slots=True)
class _Asked:
    """The devices that one pod asks for by claims, and by names of extended resources."""

    unit: Unit
    kinds: Counter[Kind] = field(default_factory=Counter)
    extended: dict[str, int] = field(default_factory=dict)


class Devices:
    """The devices of one snapshot.

    Args:
        view: the snapshot.
        units: what a plan places.
        book: the devices, as the last snapshot left it.
    """

    def __init__(self, view: View, units: Sequence[Unit], book: DeviceBook) -> None:
        self._view, self._book, self._facts = view, book, view.facts.devices
        book.update(self._facts.slices, view.nodes)
        self._users: Counter[DeviceClaim] = Counter()
        for unit in units:
            for claim in unit.rules.devices:
                self._users[claim] += unit.number if unit.pods else 2  # the pods of a role share it
        self._extended = {name: kind for name in self._extended_names(units) if (kind := self._extended_kind(name))}
        self._asked = [self._read(unit) for unit in units]

    def capacities(self) -> Iterator[Capacity]:
        """Yield a resource for each kind that a pod asks for, and let each unit request what it asks for."""
        matching, names = self._matching(), dict[Kind, str]()
        for kind in matching:
            names[kind] = _name(kind, set(names.values()))
        self._book.forget_all_but({*matching, *self._extended.values()})
        wide = {kind: [outer for outer in matching if is_part(matching[kind], matching[outer])] for kind in matching}
        for asked in self._asked:
            own = Counter(asked.kinds)
            for name, number in asked.extended.items():
                own[self._extended[name]] += number
            asked.unit.counts_devices = bool(own)
            for kind, number in own.items():
                for outer in wide.get(kind, ()):
                    request = asked.unit.request
                    request[names[outer]] = request.get(names[outer], 0) + number
        self._keep_off_plugins(matching)
        free = self._free(matching, names)
        for kind, of_node in free.items():
            yield Capacity(names[kind], of_node)
        yield from self._of_extended(free)

    def _matching(self) -> dict[Kind, Matching]:
        """The devices of each kind that a unit may have; units with a kind that cannot be counted are kept away."""
        found: dict[Kind, Matching] = {}
        by_namespace: dict[str, set[Kind]] = {}
        for asked in self._asked:
            try:
                kinds = {*asked.kinds, *(self._extended[name] for name in asked.extended)}
                of_namespace = by_namespace.setdefault(asked.unit.rules.namespace, set())
                of_namespace |= kinds
                if len(of_namespace) > KINDS_OF_NAMESPACE and not kinds <= found.keys():
                    raise UncountedClaimError(
                        f"its namespace asks for more than {KINDS_OF_NAMESPACE} kinds of devices"
                    )
                own = {kind: self._book.of_kind(kind, asked.unit.rules.namespace) for kind in kinds}
                for kind, devices in own.items():
                    _check_apart(kind, devices, found | own)
                found |= own
            except (UncountedClaimError, SelectorError) as error:
                asked.unit.refuse(f"{UNCOUNTED}{error}")
                asked.kinds.clear()
                asked.extended.clear()
        return found

    def _read(self, unit: Unit) -> _Asked:
        """Read what a pod asks for; a claim that has devices already keeps the pod to their nodes."""
        asked = _Asked(unit)
        asked.extended = {name: unit.shape.request[name] for name in self._extended if unit.shape.request[name]}
        for claim in unit.rules.devices:
            try:
                asked.kinds.update(self._kinds(unit, claim))
            except UncountedClaimError as error:
                unit.refuse(f"{UNCOUNTED}claim {claim.name}: {error}")
            except RefusedClaimError as error:
                unit.refuse(f"claim {claim.name}: {error}")
        for made in self._made_for(unit):
            _keep_to_devices(unit, name_of(made.metadata)[1], made)
        return asked

    def _made_for(self, unit: Unit) -> tuple[ResourceClaimObject, ...]:
        """The claims that templates made for the first pod of a unit."""
        return self._facts.made.get(unit.pods[0].uid, ()) if unit.pods else ()

    def _kinds(self, unit: Unit, claim: DeviceClaim) -> Counter[Kind]:
        named = (unit.rules.namespace, claim.name)
        if claim.is_template:
            template = self._facts.templates.get(named)
            if template is None and len(made := self._made_for(unit)) == 1:
                return kinds_of_claim(made[0].spec, self._facts.classes)
            if template is None:
                raise self._absent("ResourceClaimTemplate", "claim_templates")
            return kinds_of_claim(template.spec.spec if template.spec else None, self._facts.classes)
        found = self._facts.claims.get(named)
        if found is None:
            raise self._absent("ResourceClaim", "device_claims")
        if found.metadata is not None and found.metadata.deletion_timestamp is not None:
            raise RefusedClaimError("the ResourceClaim is being deleted")
        if allocation_of(found) is not None:
            _keep_to_devices(unit, claim.name, found)
            return Counter()
        kinds = kinds_of_claim(found.spec, self._facts.classes)
        if self._users[claim] > 1:
            raise UncountedClaimError(
                "several pods share this claim, and it has no device yet; use a template, which makes one for each"
            )
        return kinds

    def _absent(self, kind: str, collection: str) -> Exception:
        """Say that a claim names an object that does not exist or is not known."""
        if collection in self._facts.complete:
            return RefusedClaimError(f"the {kind} does not exist")
        return UncountedClaimError(f"edl may not read the {kind}")

    def _extended_names(self, units: Sequence[Unit]) -> set[str]:
        return {name for unit in units for name in unit.shape.request if "/" in name}

    def _extended_kind(self, name: str) -> Kind | None:
        return kind_of_extended(name, self._facts.classes)

    def _free(self, matching: dict[Kind, Matching], names: dict[Kind, str]) -> dict[Kind, dict[int, int]]:
        """How many devices of each kind are on each node for the pods of jobs and new pods."""
        taken = self._facts.taken(self._bound()) if self._facts.claims else set[DeviceId]()
        held, found = self._held(), dict[Kind, dict[int, int]]()
        for kind, devices in matching.items():
            found[kind] = {
                number: len(devices.get(node.name, frozenset()) - taken) + held[number][names[kind]]
                for number, node in enumerate(self._view.nodes)
            }
            found[kind].update(dict.fromkeys(self._with_plugin(kind), EXCLUSIVE))
        return found

    def _with_plugin(self, kind: Kind) -> list[int]:
        """The nodes on which a device plugin offers the extended resource that the class of a kind stands for."""
        names = [name for name, found in self._extended.items() if found == kind]
        return [n for n, node in enumerate(self._view.nodes) if any(node.allocatable[name] for name in names)]

    def _keep_off_plugins(self, matching: dict[Kind, Matching]) -> None:
        """Keep pods with claims from nodes where a device plugin has the devices: claims cannot have those."""
        for asked in self._asked:
            for kind in asked.kinds:
                wide = [outer for outer in matching if is_part(matching[kind], matching[outer])]
                off = {self._view.nodes[n].name for outer in wide for n in self._with_plugin(outer)}
                if off:
                    term = NodeTerm(fields=(Requirement("metadata.name", "NotIn", tuple(sorted(off))),))
                    why = f"claims get no device of class {kind.device_class} where a device plugin offers them"
                    asked.unit.required.append(NodeRule((term,), why))

    def _held(self) -> list[Counter[str]]:
        """How many devices of each kind the pods of jobs use on each node."""
        found: list[Counter[str]] = [Counter() for _ in self._view.nodes]
        for asked in (one for one in self._asked if one.unit.request):
            job = asked.unit.job
            for pod in job.pods if job is not None else ():
                if pod.role is asked.unit.role and (number := self._node_of(pod)) is not None:
                    found[number].update(asked.unit.request)
        return found

    def _bound(self) -> set[str]:
        snapshot = self._view.snapshot
        pods = (*snapshot.pods, *snapshot.pods_left_alone, *(pod for job in snapshot.jobs for pod in job.pods))
        return {pod.uid for pod in pods if pod.node and not pod.is_finished}

    def _node_of(self, pod: Pod) -> int | None:
        return None if pod.is_finished else self._view.index.get(pod.node)

    def _of_extended(self, free: dict[Kind, dict[int, int]]) -> Iterator[Capacity]:
        """Yield the extended resources that a class stands for, on nodes where no device plugin offers them."""
        for name, kind in self._extended.items():
            used: Counter[int] = Counter()
            for pod in self._view.fixed_pods():
                used[self._view.index[pod.node or pod.nominated]] += pod.shape.request[name]
            offered = {
                number: amount + used[number]
                for number, amount in free.get(kind, {}).items()
                if not self._view.nodes[number].allocatable[name]
            }
            if offered:
                yield Capacity(name, offered)


def _check_apart(kind: Kind, devices: Matching, others: dict[Kind, Matching]) -> None:
    """Reject two kinds of devices that overlap without one containing the other: edl cannot count these."""
    for other, theirs in others.items():
        if overlap(devices, theirs) and not (is_part(devices, theirs) or is_part(theirs, devices)):
            raise UncountedClaimError(
                f"classes {kind.device_class} and {other.device_class} have some devices in common, but not all"
            )


def _keep_to_devices(unit: Unit, name: str, claim: ResourceClaimObject) -> None:
    """Keep the pods of a unit to the nodes of the devices that a claim has; one without devices requires nothing."""
    allocation = allocation_of(claim)
    if allocation is not None and allocation.node_selector is not None:
        terms = read_terms(allocation.node_selector)
        unit.required.append(NodeRule(terms, f"claim {name} has its devices on other nodes"))


def _name(kind: Kind, used: set[str]) -> str:
    """Name the resource for a message: `device of class gpu.example.com`."""
    base = f"{DEVICE_PREFIX}{kind.device_class}"
    if base not in used:
        return base
    return one_line(f"{base} ({' and '.join(kind.selectors) or 'any'}), {len(used)}", _LONGEST)
