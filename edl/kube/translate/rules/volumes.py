"""What the volume claims of a pod require of its node, as kube-scheduler's plugins for volumes read them.

A bound claim requires the nodes of its volume. An unbound one requires the nodes for which its class can provide a
volume, or, if the class binds at once, to be bound first.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins, volumebinding, volumezone and nodevolumelimits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, product
from typing import NamedTuple

from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.rule_objects import ClaimResources, ClaimSpec, ExpressionObject, LabelSelectorObject
from edl.kube.translate.rules.facts import Claim, RuleFacts
from edl.kube.translate.rules.storage_capacity import bytes_of, terms_for
from edl.kube.translate.rules.terms import (
    DEFAULT_NAMESPACE,
    OwnVolume,
    PodRules,
    read_selector,
    selector_words,
    selects,
)
from edl.kube.translate.scalars import Scalar, text
from edl.kube.translate.shapes import read_terms
from edl.kube.translate.storage_objects import (
    PersistentVolumeClaimObject,
    PersistentVolumeObject,
    StorageAnnotations,
    StorageClassObject,
    VolumeMetadata,
    VolumeSpec,
)
from edl.model.resources import BY_HAND, ONE_POD, STORAGE_LEFT, NodeRule, NodeTerm, Requirement

_MOST_NAMED = 3  # places with storage left
_PLACES = 256  # of one term of a class; more zones and racks than that nobody lists
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_LOST = "Lost"
_IS_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_NEW_NAME = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The label of a node that counts for an older one of a volume, where the node has only the new one."""
_ZONES = {
    **{key: key.rpartition("/")[2] for pair in _NEW_NAME.items() for key in pair},
    "kubernetes.io/hostname": "node",
    "metadata.name": "node",
}
_UNZONED = NodeTerm(tuple(Requirement(key, "DoesNotExist") for pair in _NEW_NAME.items() for key in pair))
"""Matches a node without any of these labels: it takes the volumes of every zone, as in a cluster of one zone."""


def rules_of_claim(claim: Claim, facts: RuleFacts) -> Iterator[NodeRule]:
    """Yield what a claim requires of the nodes of its pods; a rule without terms excludes every node.

    Args:
        claim: its namespace and name.
        facts: the objects of the cluster.
    """
    found = facts.claims.get(claim)
    why = _refusal(claim, found, facts)
    if why:
        yield NodeRule((), why)
    if why or found is None:
        return
    spec = found.spec or ClaimSpec()
    if not spec.volume_name:
        yield from _rules_of_unbound(claim, found, facts, is_made=False)
    elif (volume := facts.volumes.get(spec.volume_name)) is not None:
        yield from _rules_of_volume(volume, claim[1])


def _refusal(claim: Claim, found: PersistentVolumeClaimObject | None, facts: RuleFacts) -> str:
    """Why kube-scheduler refuses new pods with a claim at once; empty if it does not, or if that is not known."""
    if found is None:
        return f"PersistentVolumeClaim {claim[1]} does not exist" if facts.lacks_claim(claim) else ""
    bound_to = (found.spec or ClaimSpec()).volume_name or ""
    if found.status is not None and found.status.phase == _LOST:
        return f"PersistentVolumeClaim {claim[1]} has lost its volume {bound_to}"
    if found.metadata is not None and found.metadata.deletion_timestamp is not None:
        return f"PersistentVolumeClaim {claim[1]} is being deleted"
    if bound_to and facts.lacks_volume(bound_to):
        return f"PersistentVolume {bound_to} of claim {claim[1]} does not exist"
    other = _claim_named_by(facts.volumes.get(bound_to))
    if other is not None and not _is_named_by(found, facts.volumes[bound_to]):
        former = "a former claim of that name" if other == claim else f"claim {other[1]} of namespace {other[0]}"
        return f"PersistentVolume {bound_to} of claim {claim[1]} belongs to {former}"
    return ""


def to_be_made(rules: PodRules, facts: RuleFacts) -> Iterator[OwnVolume]:
    """Yield the volumes of a pod whose claims are not made yet: those of pods to come, and of a pod just made."""
    for own in rules.own_volumes:
        if own.name not in rules.claims or (rules.namespace, own.name) not in facts.claims:
            yield own


def rules_of_own(volume: OwnVolume, facts: RuleFacts) -> Iterator[NodeRule]:
    """Yield the requirements on the node of a new pod by a volume whose claim is made with the pod."""
    found = _claim_of(volume)
    yield from _rules_of_unbound(("", volume.name), found, facts, is_made=True)


def driver_of_own(volume: OwnVolume, facts: RuleFacts) -> str:
    """Return the CSI driver that attaches a volume made with its pod; empty if it is unknown."""
    storage = facts.classes.get(_class_name(_claim_of(volume), facts) or "")
    return (storage.provisioner if storage is not None else None) or ""


def _claim_of(volume: OwnVolume) -> PersistentVolumeClaimObject:
    wants = ClaimSpec(
        access_modes=list(volume.access_modes),
        storage_class_name=volume.storage_class,
        volume_mode=volume.volume_mode or None,
        resources=ClaimResources({"storage": volume.size}) if volume.size else None,
        selector=None if volume.selector is None else _as_object(volume.selector),
        volume_attributes_class_name=volume.attributes_class or None,
    )
    return PersistentVolumeClaimObject(spec=wants)


def _as_object(selector: Iterable[Requirement]) -> LabelSelectorObject:
    return LabelSelectorObject(
        match_expressions=[ExpressionObject(one.key, one.operator, [*one.values]) for one in selector]
    )


class FreeVolumes(NamedTuple):
    """The volumes made by hand of which a claim gets one.

    Attributes:
        words: what they are.
        names: of the volumes.
    """

    words: str
    names: frozenset[str]


def free_volumes(claim: Claim, facts: RuleFacts) -> FreeVolumes | None:
    """Return the volumes of which a claim without one gets one; None if its class makes them, too."""
    found = facts.claims.get(claim)
    return None if found is None or (found.spec or ClaimSpec()).volume_name else _free_volumes(found, facts)


def free_volumes_of_own(volume: OwnVolume, facts: RuleFacts) -> FreeVolumes | None:
    """Return `free_volumes` for a claim that is made with a pod."""
    return _free_volumes(_claim_of(volume), facts)


def _free_volumes(claim: PersistentVolumeClaimObject, facts: RuleFacts) -> FreeVolumes | None:
    wants = claim.spec or ClaimSpec()
    name = _class_name(claim, facts) or ""
    storage = facts.classes.get(name)
    if storage.provisioner != _NO_PROVISIONER if storage is not None else not facts.lacks_class(name):
        return None
    size = text(_requested(wants) or 0)
    kinds = [*sorted(wants.access_modes or ()), *([wants.volume_mode] if wants.volume_mode == "Block" else [])]
    kinds += [selector_words(read_selector(wants.selector))] if wants.selector is not None else []
    of_class = f"of StorageClass {name}" if name else "without a class"
    words = f"{BY_HAND} {of_class} for claims of {size} ({', '.join(kinds)})"
    return FreeVolumes(words, frozenset(_free_for(claim, name, facts)))


def terms_of_volume(name: str, facts: RuleFacts) -> tuple[NodeTerm, ...]:
    """Return the nodes from which a volume can be reached; empty if every node can reach it."""
    spec = facts.volumes[name].spec
    affinity = spec.node_affinity if spec is not None else None
    return read_terms(affinity.required) if affinity is not None and affinity.required is not None else ()


def waits_for_pod(claim: Claim, facts: RuleFacts) -> bool:
    """Return True if a claim has no volume yet: its first pod decides on which nodes later pods of it can run."""
    found = facts.claims.get(claim)
    return found is not None and not (found.spec or ClaimSpec()).volume_name


def uses_alone(claim: Claim, facts: RuleFacts) -> bool:
    """Return True if only one pod of the cluster may use a claim."""
    found = facts.claims.get(claim)
    return found is not None and ONE_POD in ((found.spec or ClaimSpec()).access_modes or ())


def driver_of(claim: Claim, facts: RuleFacts) -> tuple[str, str] | None:
    """Return the CSI driver that attaches a claim, and what tells its volume from others; None if it is not known."""
    found = facts.claims.get(claim)
    if found is None:
        return None
    spec = found.spec or ClaimSpec()
    if spec.volume_name:
        volume = facts.volumes.get(spec.volume_name)
        csi = volume.spec.csi if volume is not None and volume.spec else None
        return (csi.driver, spec.volume_name) if csi and csi.driver else None
    storage = facts.classes.get(_class_name(found, facts) or "")
    return (storage.provisioner, "/".join(claim)) if storage is not None and storage.provisioner else None


def topology_of(claim: Claim, facts: RuleFacts) -> tuple[str, ...]:
    """Return the labels of nodes that tell where the volume of a claim without one will be; empty if not known."""
    driver = driver_of(claim, facts) if waits_for_pod(claim, facts) else None
    return facts.topologies.get(driver[0], ()) if driver is not None else ()


def _rules_of_volume(volume: PersistentVolumeObject, claim: str) -> Iterator[NodeRule]:
    name = volume.metadata.name or "" if volume.metadata else ""
    affinity = volume.spec.node_affinity if volume.spec else None
    if affinity is not None and affinity.required is not None:
        terms = read_terms(affinity.required)
        yield NodeRule(terms, f"volume {name} of claim {claim} is {place_words(terms)}")
    labels = volume.metadata.labels if volume.metadata else None
    for key, value in sorted((labels or {}).items()):
        if _ZONES.get(key) in {"zone", "region"}:
            values = tuple(sorted(text(value).split("__")))
            here = NodeTerm((Requirement(key, "In", values),))
            accepted = [here, _UNZONED]
            if new := _NEW_NAME.get(key):
                accepted.append(NodeTerm((Requirement(key, "DoesNotExist"), Requirement(new, "In", values))))
            yield NodeRule(tuple(accepted), f"volume {name} of claim {claim} is {place_words((here,))}")


def _class_name(claim: PersistentVolumeClaimObject, facts: RuleFacts) -> str | None:
    """Return the name of a claim's class, that of the default class if it names none; None if there is none."""
    named = _annotated_class(claim) or (claim.spec or ClaimSpec()).storage_class_name
    if named is not None:
        return named
    defaults = [
        (found.metadata.creation_timestamp or "", name)
        for name, found in facts.classes.items()
        if found.metadata is not None
        and any(text((found.metadata.annotations or {}).get(key)) == "true" for key in _IS_DEFAULT)
    ]
    newest = max((created for created, _ in defaults), default="")
    return min((name for created, name in defaults if created == newest), default=None)


def _annotated_class(source: PersistentVolumeClaimObject | PersistentVolumeObject) -> str:
    """Return the StorageClass from the old annotation, which takes precedence; empty if there is none."""
    annotations = source.metadata.annotations if source.metadata is not None else None
    return text((annotations or StorageAnnotations()).storage_class)


def _rules_of_unbound(
    claim: Claim, found: PersistentVolumeClaimObject, facts: RuleFacts, *, is_made: bool
) -> Iterator[NodeRule]:
    name = _class_name(found, facts)
    storage = facts.classes.get(name or "")
    if storage is None or storage.volume_binding_mode != "WaitForFirstConsumer":
        why = _why_unbound(found, name, facts, is_made=is_made)
        if why:
            yield NodeRule((), f"claim {claim[1]} has no volume yet; {why}")
        if why or (storage is None and not facts.lacks_class(name or "")):
            return
    if node := _selected_node(found):
        chosen = NodeTerm(fields=(Requirement("metadata.name", "In", (node,)),))
        yield NodeRule(
            (chosen,), f"kube-scheduler has chosen node {node} for claim {claim[1]}, whose volume is made now"
        )
        return
    terms = tuple(_allowed(storage)) if storage is not None else ()
    free = _free_for(found, name or "", facts)
    if storage is not None and storage.provisioner != _NO_PROVISIONER:
        yield from _where_storage_is_left(claim[1], found, storage, free, facts)
        if not terms:
            return
    for volume in free:
        places = terms_of_volume(volume, facts)
        if not places:
            return
        terms += places
    terms = tuple(dict.fromkeys(terms))
    of_class = f"volumes of StorageClass {name}" if name else "free volumes without a class"
    where = f"{of_class} for claim {claim[1]} are {place_words(terms)}"
    yield NodeRule(terms, where if terms else f"no free volume of StorageClass {name} fits claim {claim[1]}")


def _where_storage_is_left(
    claim: str,
    found: PersistentVolumeClaimObject,
    storage: StorageClassObject,
    free: Iterable[str],
    facts: RuleFacts,
) -> Iterator[NodeRule]:
    """Yield the nodes for which a driver has enough storage left, if it says how much that is; or a free volume."""
    size = _requested(found.spec or ClaimSpec())
    if size is None or storage.provisioner not in facts.counting:
        return
    name = (storage.metadata.name if storage.metadata is not None else None) or ""
    terms = terms_for(facts.places.get(name, ()), bytes_of(size))
    left = f"{text(size)} {STORAGE_LEFT} {claim} of StorageClass {name}"
    exist = [terms_of_volume(volume, facts) for volume in free]
    if terms is not None and all(exist):
        terms = tuple(dict.fromkeys((*terms, *chain.from_iterable(exist))))
        listed = sum(len(one.values) for term in terms for one in term.expressions)
        where = place_words(terms) if listed <= _MOST_NAMED else f"in {listed} places"
        yield NodeRule(
            terms, f"driver {storage.provisioner} has {left} only {where}" if terms else f"no node has {left}"
        )


def _why_unbound(found: PersistentVolumeClaimObject, name: str | None, facts: RuleFacts, *, is_made: bool) -> str:
    """Why a claim that waits for no pod has no volume; empty if it is about to get one, or if that is not known."""
    storage = facts.classes.get(name or "")
    if storage is None and not facts.lacks_class(name or ""):
        return ""
    makes = storage is not None and storage.provisioner != _NO_PROVISIONER
    if makes or _free_for(found, name or "", facts):
        at_once = f"StorageClass {name} binds it at once" if storage is not None else "a free volume is bound at once"
        return "" if is_made else at_once
    if name:
        lacks = "makes none" if storage is not None else "does not exist"
        return f"StorageClass {name} {lacks}, and no free volume of that class fits"
    if name is None:
        return "it names no StorageClass, none is the default, and no free volume fits"
    return "its StorageClass is empty, and no free volume without a class fits"


def _selected_node(claim: PersistentVolumeClaimObject) -> str:
    """The node for which the volume of a claim is being made; empty if kube-scheduler has chosen none."""
    annotations = claim.metadata.annotations if claim.metadata is not None else None
    return text(annotations.selected_node) if annotations is not None else ""


def _allowed(storage: StorageClassObject) -> Iterator[NodeTerm]:
    """The places where a class makes volumes, each alone: a volume is in one of them."""
    for term in storage.allowed_topologies or ():
        each = [[(one.key or "", value) for value in one.values or ()] for one in term.match_label_expressions or ()]
        for place in islice(product(*each), _PLACES):
            yield NodeTerm(tuple(Requirement(key, "In", (value,)) for key, value in place))


def _free_for(claim: PersistentVolumeClaimObject, storage: str, facts: RuleFacts) -> list[str]:
    """The volumes that can be bound to a claim: those reserved for it, if there are any."""
    found = {name: one for name, one in facts.volumes.items() if _is_free_for(one, claim, storage)}
    return [name for name, one in found.items() if one.spec and one.spec.claim_ref is not None] or list(found)


def _is_free_for(volume: PersistentVolumeObject, claim: PersistentVolumeClaimObject, storage: str) -> bool:
    """Return True if a volume that exists can be bound to a claim.

    Source: k8s.io/component-helpers/storage/volume, func FindMatchingVolume.
    """
    have, wants = volume.spec or VolumeSpec(), claim.spec or ClaimSpec()
    metadata, selector = volume.metadata or VolumeMetadata(), read_selector(wants.selector)
    fits = (
        metadata.deletion_timestamp is None
        and (have.volume_mode or "Filesystem") == (wants.volume_mode or "Filesystem")
        and (have.volume_attributes_class_name or "") == (wants.volume_attributes_class_name or "")
        and bytes_of((have.capacity or {}).get("storage")) >= bytes_of(_requested(wants))
    )
    if not fits or have.claim_ref is not None:
        return fits and _is_named_by(claim, volume)
    labels = {key: text(value) for key, value in (metadata.labels or {}).items()}
    is_available = volume.status is None or volume.status.phase in {None, "", "Available"}
    return (
        is_available
        and (_annotated_class(volume) or have.storage_class_name or "") == storage
        and set(wants.access_modes or ()) <= set(have.access_modes or ())
        and (selector is None or selects(selector, labels))
    )


def _claim_named_by(volume: PersistentVolumeObject | None) -> Claim | None:
    """The claim that a volume is bound to or reserved for; None if there is none."""
    reference = volume.spec.claim_ref if volume is not None and volume.spec is not None else None
    return None if reference is None else (reference.namespace or DEFAULT_NAMESPACE, reference.name or "")


def _is_named_by(claim: PersistentVolumeClaimObject, volume: PersistentVolumeObject) -> bool:
    """Return True if a volume is bound to a claim or reserved for it, and not for one of its name before."""
    metadata = claim.metadata or ObjectMetadata()
    uid = volume.spec.claim_ref.uid if volume.spec is not None and volume.spec.claim_ref is not None else None
    is_named = _claim_named_by(volume) == (metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")
    return is_named and (uid or metadata.uid or "") == (metadata.uid or uid or "")


def _requested(wants: ClaimSpec) -> Scalar:
    """How much storage a claim requests; None if it does not specify that."""
    return (wants.resources.requests or {}).get("storage") if wants.resources is not None else None


def place_words(terms: Iterable[NodeTerm]) -> str:
    """Say where a volume is: `in zone a`, `in zone a or zone b`, `on node n1`."""
    found = " or ".join(dict.fromkeys(_words_of_term(term) for term in terms)) or "no place"
    return f"{'on' if found.startswith('node ') else 'in'} {found}"


def _words_of_term(term: NodeTerm) -> str:
    parts = []
    for one in (*term.expressions, *term.fields):
        label = _ZONES.get(one.key, f"{one.key}")
        values = " or ".join(one.values)
        is_in = one.operator == "In"
        parts.append(f"{label} {values}" if is_in else f"{label} {one.operator} {values}".rstrip())
    return " and ".join(parts) or "no place"
