"""Finds nodes with the devices that a pod claims, with kube-scheduler's messages (plugin DynamicResources).

What there is and what claims ask for is read as edl's planner reads it (`edl/kube/translate/devices`): whole devices
of a node, by class and selectors. Nobody is preempted for a claim, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from edl.kube.translate.decoders import Decoder, Quarantined
from edl.kube.translate.devices.asks import (
    Kind,
    RefusedClaimError,
    UncountedClaimError,
    kind_of_extended,
    kinds_of_claim,
)
from edl.kube.translate.devices.book import DeviceBook
from edl.kube.translate.devices.decoders import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from edl.kube.translate.devices.facts import allocation_of
from edl.kube.translate.devices.inventory import DeviceId
from edl.kube.translate.devices.objects import (
    DeviceClaimObject,
    DeviceClaimSpec,
    DeviceClassObject,
    ResourceSliceObject,
)
from edl.kube.translate.devices.selectors import SelectorError
from edl.kube.translate.objects import HasMetadata
from edl.kube.translate.shapes import read_terms
from edl.model.cluster import Node
from edl.model.resources import NodeTerm, Resources
from edl.planner.eligibility import is_met
from edl.sandbox.objects import Amounts, amounts_of, name_of, uid_of
from edl.sandbox.scheduler.view import NodeView, PodView

Object = dict[str, Any]
T = TypeVar("T", bound=HasMetadata)
TOO_FEW = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"
STILL_NOT, DEALLOCATED = "still not schedulable", "deallocation of ResourceClaim completed"
_MOST_USERS = 256
_ENOUGH = 2**31
"""The amount of an extended resource that a node pretends to have if its devices are counted instead."""

Device = tuple[str, DeviceId]
"""The name of a request, and a device that it gets."""


class ClaimProblemError(Exception):
    """No node can take a pod because of its claims; the message says why. It is empty if a claim is not made yet."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for devices.

    Attributes:
        resource: the extended resource that asks for them; empty for the request of a claim.
        container: the number of the container that requests it.
    """

    name: str
    kind: Kind
    count: int
    resource: str = ""
    container: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """The devices that a pod asks for.

    Attributes:
        open: claims without devices.
        requests: of these, in the same order.
        allocated: claims that have devices, and the nodes that can use them.
        extended: what the containers ask for by extended resources that a class stands for, unless a claim for them
            was made.
        resources: the names of these resources.
    """

    open: tuple[Object, ...] = ()
    requests: tuple[tuple[Request, ...], ...] = ()
    allocated: tuple[tuple[Object, tuple[NodeTerm, ...]], ...] = ()
    extended: tuple[Request, ...] = ()
    resources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.open or self.allocated or self.extended)

    def unused_elsewhere(self, pod: PodView, nodes: Iterable[NodeView]) -> Object | None:
        """A claim that only this pod uses, and whose devices are not on some node; None if there is none."""
        for claim, terms in self.allocated:
            users = {one.get("uid") for one in (claim.get("status") or {}).get("reservedFor") or ()}
            if users <= {pod.uid} and any(not _is_accepted(terms, node) for node in nodes):
                return claim
        return None


class Devices:
    """The devices and the claims of one moment."""

    def __init__(self) -> None:
        self._book = DeviceBook()
        self._slices = _Decoded[ResourceSliceObject](RESOURCE_SLICES)
        self._classes = _Decoded[DeviceClassObject](DEVICE_CLASSES)
        self._by_name: Mapping[str, DeviceClassObject] = {}
        self._claims: Mapping[tuple[str, str], Object] = {}
        self._taken: set[DeviceId] = set()

    def look(
        self,
        nodes: Iterable[NodeView],
        slices: Iterable[Object],
        classes: Iterable[Object],
        claims: Mapping[tuple[str, str], Object],
    ) -> None:
        """Read the objects of one moment.

        Args:
            nodes: all of them.
            slices: the ResourceSlices.
            classes: the DeviceClasses.
            claims: the ResourceClaims by namespace and name.
        """
        self._by_name = {name_of(body): found for body, found in self._classes.read(classes)}
        places = tuple(Node(one.name, Resources(), tuple(sorted(one.labels.items()))) for one in nodes)
        self._book.update(tuple(found for _, found in self._slices.read(slices)), places)
        self._claims = claims
        self._taken = {device for claim in claims.values() for device in _devices_of(claim)}

    def note(self, claim: Object) -> None:
        """Take a claim as it was just written, before the watch shows it."""
        self._claims = {**self._claims, (claim["metadata"]["namespace"], name_of(claim)): claim}
        self._taken.update(_devices_of(claim))

    def asked_by(self, pod: PodView) -> Asked:
        """Read which devices a pod asks for.

        Raises:
            ClaimProblemError: a claim is not there, is used by others alone, or cannot be read.
        """
        open_claims, requests, allocated = [], [], []
        for claim in self._claims_of(pod):
            found = RESOURCE_CLAIMS.from_dict(claim)
            if isinstance(found, Quarantined):
                raise ClaimProblemError(found.problem)
            if (allocation := allocation_of(found)) is not None:
                _check_users(claim, pod)
                allocated.append((claim, read_terms(allocation.node_selector) if allocation.node_selector else ()))
            else:
                open_claims.append(claim)
                requests.append(self._requests(found.spec))
        extended = tuple(self._extended(pod))
        return Asked(
            tuple(open_claims),
            tuple(requests),
            tuple(allocated),
            () if self._made_for_extended(pod) else extended,
            frozenset(one.resource for one in extended),
        )

    def refusal(self, pod: PodView, asked: Asked, node: NodeView) -> str:
        """Why a node could not take a pod with such claims even without other pods; empty if it could.

        Raises:
            ClaimProblemError: a selector has no value, or the sandbox does not give out such devices.
        """
        if any(not _is_accepted(terms, node) for _, terms in asked.allocated):
            return ELSEWHERE
        return TOO_FEW if self.allocation(pod, asked, node) is None else ""

    def allocation(self, pod: PodView, asked: Asked, node: NodeView) -> list[list[Device]] | None:
        """Return the devices for each open claim, and at the end for extended resources; None if too few are free.

        Raises:
            ClaimProblemError: see `refusal`.
        """
        claims = [*asked.requests, tuple(one for one in asked.extended if _has_no_plugin(node, one.resource))]
        slots = [(place, one) for place, claim in enumerate(claims) for one in claim for _ in range(one.count)]
        chosen = _matched([self._free(pod, one.kind, node) for _, one in slots])
        if chosen is None:
            return None
        found: list[list[Device]] = [[] for _ in claims]
        for (place, request), device in zip(slots, chosen, strict=True):
            found[place].append((request.name, device))
        return found

    def without_extended(self, asked: Asked, node: NodeView) -> NodeView:
        """The node as if it had enough of the extended resources whose devices are counted."""
        names = {name for name in asked.resources if _has_no_plugin(node, name)}
        return replace(node, allocatable={**node.allocatable, **dict.fromkeys(names, _ENOUGH)}) if names else node

    def _claims_of(self, pod: PodView) -> Iterator[Object]:
        statuses = (pod.body.get("status") or {}).get("resourceClaimStatuses") or ()
        made = {one.get("name"): one.get("resourceClaimName") for one in statuses}
        for one in pod.body["spec"].get("resourceClaims") or ():
            name = one.get("resourceClaimName") or made.get(one["name"])
            claim = self._claims.get((pod.key[0], name)) if name else None
            if claim is None:
                raise ClaimProblemError
            if claim["metadata"].get("deletionTimestamp"):
                raise ClaimProblemError(f'resourceclaim "{name}" is being deleted')
            yield claim
        if (claim := self._made_for_extended(pod)) is not None:
            yield claim

    def _made_for_extended(self, pod: PodView) -> Object | None:
        """The claim that was made for the extended resources of a pod in an earlier try; None if there is none."""
        found = (pod.body.get("status") or {}).get("extendedResourceClaimStatus") or {}
        return self._claims.get((pod.key[0], found.get("resourceClaimName", "")))

    def _requests(self, spec: DeviceClaimSpec | None) -> tuple[Request, ...]:
        claim = (spec or DeviceClaimSpec()).devices or DeviceClaimObject()
        for one in claim.requests or ():
            name = one.exactly.device_class_name if one.exactly else None
            if name and name not in self._by_name:
                raise ClaimProblemError(f"request {one.name}: device class {name} does not exist")
        try:
            kinds_of_claim(spec, self._by_name)
            each = [
                (one, kinds_of_claim(DeviceClaimSpec(DeviceClaimObject([one])), self._by_name))
                for one in claim.requests or ()
            ]
        except (UncountedClaimError, RefusedClaimError) as error:
            raise ClaimProblemError(f"the sandbox gives out whole devices: {error}") from None
        return tuple(Request(one.name or "", kind, n) for one, kinds in each for kind, n in kinds.items())

    def _extended(self, pod: PodView) -> Iterator[Request]:
        for place, container in enumerate(pod.body["spec"]["containers"]):
            requests = _requests_of(container)
            for rank, name in enumerate(sorted(requests)):
                kind = kind_of_extended(name, self._by_name) if "/" in name and requests[name] else None
                if kind is not None:
                    yield Request(f"container-{place}-request-{rank}", kind, requests[name], name, place)

    def _free(self, pod: PodView, kind: Kind, node: NodeView) -> frozenset[DeviceId]:
        try:
            return self._book.of_kind(kind, pod.key[0]).get(node.name, frozenset()) - self._taken
        except (UncountedClaimError, SelectorError) as error:
            raise ClaimProblemError(str(error)) from None


class _Decoded(Generic[T]):
    """Decodes each version of an object once, so that an unchanged object remains the same Python object."""

    def __init__(self, decoder: Decoder[T]) -> None:
        self._decoder = decoder
        self._known: dict[str, tuple[str, T | Quarantined]] = {}

    def read(self, bodies: Iterable[Object]) -> list[tuple[Object, T]]:
        """All objects that can be read, each with its body; others are forgotten."""
        known, found = self._known, list[tuple[Object, T]]()
        self._known = {}
        for body in bodies:
            version = str(body["metadata"].get("resourceVersion") or "")
            one = known.get(uid_of(body))
            if one is None or one[0] != version:
                one = (version, self._decoder.from_dict(body))
            self._known[uid_of(body)] = one
            if not isinstance(one[1], Quarantined):
                found.append((body, one[1]))
        return found


def _matched(choices: Sequence[frozenset[DeviceId]]) -> list[DeviceId] | None:
    """Choose a different device for each of several requests; None if there are too few."""
    owners: dict[DeviceId, int] = {}

    def has_one(place: int, seen: set[DeviceId]) -> bool:
        """Give a request a device, for which other requests may change theirs (Kuhn's algorithm)."""
        for device in sorted(choices[place] - seen):
            seen.add(device)
            if device not in owners or has_one(owners[device], seen):
                owners[device] = place
                return True
        return False

    if not all(has_one(place, set()) for place in range(len(choices))):
        return None
    found = {place: device for device, place in owners.items()}
    return [found[place] for place in range(len(choices))]


def _devices_of(claim: Object) -> set[DeviceId]:
    """The devices that are allocated to a claim alone."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return {(one["driver"], one["pool"], one["device"]) for one in results if not one.get("adminAccess")}


def _is_accepted(terms: Sequence[NodeTerm], node: NodeView) -> bool:
    fields = {"metadata.name": node.name}
    return not terms or any(is_met(term, node.labels, fields) for term in terms)


def _has_no_plugin(node: NodeView, resource: str) -> bool:
    """True if no device plugin offers an extended resource on a node."""
    return node.allocatable.get(resource, 0) in {0, _ENOUGH}


def _check_users(claim: Object, pod: PodView) -> None:
    users = [one.get("uid") for one in (claim.get("status") or {}).get("reservedFor") or ()]
    if len(users) >= _MOST_USERS and pod.uid not in users:
        raise ClaimProblemError("resourceclaim in use")


def _requests_of(container: Object) -> Amounts:
    return amounts_of((container.get("resources") or {}).get("requests"))
