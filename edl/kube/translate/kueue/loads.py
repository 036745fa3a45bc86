"""Workloads of Kueue as values: the pods of each, the quota that it holds, and its owner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from edl.errors import ConfigError
from edl.kube.translate.kueue.flavors import PodPlace, place_of
from edl.kube.translate.kueue.objects import (
    INDEX,
    AnnotatedMetadata,
    PodSetAssignmentObject,
    PodSetObject,
    WorkloadObject,
    WorkloadSpec,
    WorkloadStatus,
)
from edl.kube.translate.objects import PodSpec, PodTemplateObject
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import parse_amounts, shape_of
from edl.model.quota_trees import Pool
from edl.model.resources import is_amount
from edl.model.times import seconds_of
from edl.printable import one_line

REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
"""The annotation of a Workload with the name of the job's Workload that it replaces once it has a reservation."""
_UNAVAILABLE = re.compile(r"(?:^|: |, )resource ([\w.-]+(?:/[\w.-]+)?) unavailable in ClusterQueue(?=$|[,;])")
_HELD_BACK = (("AdmissionGated", "Admission is gated by: "), ("OnHold", ""))
_YET_TO_TRY = "PendingEvaluation"
"""Kueue says so with its feature gate UnadmittedWorkloadsExplicitStatus, and nothing without."""
_NOT_VALID = ("resources validation failed: ", "resources didn't satisfy LimitRange constraints: ")
_MOST_QUOTED = 300
_MOST_DIGITS = 10

Owner = tuple[str, str]
"""The namespace and the UID of an object.

Anybody can write the UID of an object into a Workload, but owners are in the namespace of what they own.
"""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of a Workload: how many there are, and for how many quota is held.

    Attributes:
        count: how many it asks for.
        held: for how many it has a reservation, without those that need none any more.
        granted: how many Kueue has admitted; 0 without a reservation.
        each: (resource, amount) of one pod, in the units of `Resources`.
        place: where the pods may run.
        least: of how many Kueue may admit it: fewer than `count` if it may be admitted in part.
        flavors: (resource, flavor) where it has a reservation; empty without one.
    """

    name: str
    count: int
    held: int
    each: tuple[tuple[str, int], ...]
    place: PodPlace = field(compare=False)
    least: int = 0
    flavors: tuple[tuple[str, str], ...] = ()
    granted: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """A Workload that has not ended.

    Attributes:
        namespace, name: the namespace and name of the Workload.
        owner: the namespace and the UID of the object that it stands for; the UID is empty if there is none.
        local_queue: the name of its LocalQueue.
        cluster_queue: where it has its reservation; empty without one.
        active: False if somebody has stopped it.
        evicted: Kueue takes back what it holds.
        index: of one that edl has made, see `OwnedWorkload`; None for any other.
        replaces: namespace and name of the Workload whose place it takes; empty if there is none.
        gated: what keeps it out of the queue, in Kueue's words; empty if nothing does.
        refused: why Kueue does not admit it to any queue, in its words; empty if it may.
        unavailable: the resources of which Kueue has said that its ClusterQueue does not cover them.
        is_tried: Kueue has admitted it, or has said why not.
    """

    namespace: str
    name: str
    owner: Owner
    created_s: float
    priority: int
    local_queue: str
    cluster_queue: str
    active: bool
    replaces: str
    pod_sets: tuple[PodSet, ...]
    evicted: bool = False
    index: int | None = None
    gated: str = ""
    refused: str = ""
    unavailable: frozenset[str] = frozenset()
    is_tried: bool = False

    @property
    def key(self) -> str:
        """Namespace and name in the form that the field `replaces` has."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_reserved(self) -> bool:
        """True if Kueue has reserved quota for the Workload."""
        return bool(self.cluster_queue)

    def pod_set(self, name: str) -> PodSet | None:
        """Return the pod set of a name, None without one.

        Several pod sets of that name become one: their counts are added up.
        """
        found = [one for one in self.pod_sets if one.name == name]
        if len(found) < 2:
            return found[0] if found else None
        return replace(
            found[0],
            count=sum(one.count for one in found),
            held=sum(one.held for one in found),
            granted=sum(one.granted for one in found),
        )

    def held(self) -> Iterator[tuple[Pool, int]]:
        """The quota that the Workload has reserved; a pool may occur several times."""
        for one in self.pod_sets:
            flavors = dict(one.flavors)
            for resource, amount in one.each:
                if resource in flavors and amount and one.held:
                    yield Pool(flavors[resource], resource), amount * one.held

    def asked(self) -> dict[str, int]:
        """The requests of all pods of the Workload, by resource."""
        total: dict[str, int] = {}
        for one in self.pod_sets:
            for resource, amount in one.each:
                total[resource] = total.get(resource, 0) + amount * one.count
        return total


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A Workload that cannot be read, and why."""

    name: str
    owner: Owner
    problem: str


def load_of(source: WorkloadObject) -> Load | Unreadable | None:
    """Translate a Workload, or say what is wrong with it; None if it has ended."""
    try:
        return read_load(source)
    except ConfigError as error:
        metadata = source.metadata or AnnotatedMetadata()
        return Unreadable(metadata.name or "", owner_of(metadata), str(error))


def owner_of(metadata: AnnotatedMetadata) -> Owner:
    """The owner of a Workload."""
    owner = next((one for one in metadata.owner_references or () if one.controller), None)
    return metadata.namespace or DEFAULT_NAMESPACE, (owner.uid if owner else None) or ""


def read_load(source: WorkloadObject) -> Load | None:
    """Translate a Workload; None if it has ended.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    metadata, spec = source.metadata or AnnotatedMetadata(), source.spec or WorkloadSpec()
    status = source.status or WorkloadStatus()
    true = {condition.type for condition in status.conditions or () if condition.status == "True"}
    if "Finished" in true:
        return None
    admission = status.admission if "QuotaReserved" in true else None
    assigned = {one.name: one for one in (admission.pod_set_assignments if admission else None) or ()}
    reclaimable = {one.name: one.count or 0 for one in status.reclaimable_pods or ()}
    pod_sets = tuple(
        _pod_set(one, assigned.get(one.name), reclaimable.get(one.name, 0)) for one in spec.pod_sets or ()
    )
    said = next(
        (one for one in status.conditions or () if one.type == "QuotaReserved" and one.status == "False"), None
    )
    message = (said.message if said else None) or ""
    return Load(
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name or "",
        owner=owner_of(metadata),
        created_s=seconds_of(metadata.creation_timestamp) or 0.0,
        priority=spec.priority or 0,
        local_queue=spec.queue_name or "",
        cluster_queue=(admission.cluster_queue if admission else None) or "",
        active=spec.active is not False,
        replaces=text((metadata.annotations or {}).get(REPLACES)),
        pod_sets=pod_sets,
        evicted="Evicted" in true,
        index=index_of(metadata),
        gated=one_line(message, _MOST_QUOTED) if said is not None and _is_held_back(said.reason, message) else "",
        refused=one_line(message, _MOST_QUOTED) if message.startswith(_NOT_VALID) else "",
        unavailable=_unavailable(message, pod_sets),
        is_tried=admission is not None or (said is not None and said.reason != _YET_TO_TRY),
    )


def _is_held_back(reason: str | None, message: str) -> bool:
    """True if Kueue does not try to admit the Workload; gated preemptions alone do not stop it from trying."""
    return any(reason == one and message.startswith(words) for one, words in _HELD_BACK)


def _unavailable(message: str, pod_sets: Iterable[PodSet]) -> frozenset[str]:
    """The resources that Kueue reports as missing in the ClusterQueue.

    Names that look like sentences are left out.
    """
    if message.startswith(_NOT_VALID):  # it names resources that its containers may request 0 of in the end
        return frozenset()
    odd = {name for one in pod_sets for name, _ in one.each if " " in name}
    found = (name for name in odd if f"resource {name} unavailable in ClusterQueue" in message)
    return frozenset(found if odd else _UNAVAILABLE.findall(message))


def index_of(metadata: AnnotatedMetadata) -> int | None:
    """The index of a Workload that edl has made; None for any other."""
    index = text((metadata.annotations or {}).get(INDEX))
    is_number = index.isascii() and index.isdigit() and len(index) < _MOST_DIGITS
    return int(index) if is_number else None


def _pod_set(source: PodSetObject, assigned: PodSetAssignmentObject | None, reclaimable: int) -> PodSet:
    """Translate the pod set of a name; a lowered count counts at once, although its reservation shows it later."""
    name, count = source.name or "", source.count or 0
    spec = (source.template or PodTemplateObject()).spec or PodSpec()
    if assigned is None:
        least = count if source.min_count is None else min(count, source.min_count)
        each = tuple((key, n) for key, n in shape_of(spec).request.amounts if is_amount(key) or " " in key)
        return PodSet(name, count, 0, each, place_of(spec), max(0, least - reclaimable))
    granted = assigned.count if assigned.count is not None else count
    usage = parse_amounts(assigned.resource_usage)
    each = tuple(sorted((resource, amount // max(1, granted)) for resource, amount in usage.items()))
    held = max(0, min(count, granted) - reclaimable)
    flavors = tuple(sorted((assigned.flavors or {}).items()))
    return PodSet(name, count, held, each, place_of(spec), flavors=flavors, granted=granted)


def in_order(loads: Iterable[Load]) -> list[Load]:
    """Sort Workloads as Kueue admits them: by priority, then by age."""
    return sorted(loads, key=lambda load: (-load.priority, load.created_s, load.key))
