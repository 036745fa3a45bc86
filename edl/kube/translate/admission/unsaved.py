"""Kinds of objects that pods name and of which saved files hold none: somebody may not have saved them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from edl.kube.translate.objects import ObjectMetadata, PodObject, PodSpec, PodStatus
from edl.kube.translate.rule_objects import ClaimSpec
from edl.kube.translate.rules.storage_capacity import counting_drivers
from edl.kube.translate.rules.terms import DEFAULT_NAMESPACE
from edl.model.units import count

_FINISHED = ("Succeeded", "Failed")
_Name = tuple[str, str]  # namespace and name


class _Claims(NamedTuple):
    """The claims of a pod, as far as the files hold them; those that are made with the pod, too."""

    on_volumes: list[ClaimSpec]
    wait_for_devices: bool


def _names_volume_claim(spec: PodSpec, _claims: _Claims) -> bool:
    return any(volume.persistent_volume_claim for volume in spec.volumes or ())


def _has_volume(_spec: PodSpec, claims: _Claims) -> bool:
    return any(claim.volume_name for claim in claims.on_volumes)


def _needs_volume(_spec: PodSpec, claims: _Claims) -> bool:
    return any(not claim.volume_name and claim.storage_class_name != "" for claim in claims.on_volumes)


def _names_device_claim(spec: PodSpec, _claims: _Claims) -> bool:
    return any(claim.resource_claim_name for claim in spec.resource_claims or ())


def _names_template(spec: PodSpec, _claims: _Claims) -> bool:
    return any(claim.resource_claim_template_name for claim in spec.resource_claims or ())


def _needs_devices(_spec: PodSpec, claims: _Claims) -> bool:
    return claims.wait_for_devices


class _Named(NamedTuple):
    """A kind of object that pods name: the text to ask kubectl for, and how to tell that a pod names it."""

    asked: str
    is_named: Callable[[PodSpec, _Claims], bool]
    is_by_claims: bool = False


_NAMED = {
    "PersistentVolumeClaim": _Named("pvc -A", _names_volume_claim),
    "PersistentVolume": _Named("pv", _has_volume, is_by_claims=True),
    "StorageClass": _Named("storageclasses", _needs_volume, is_by_claims=True),
    "ResourceClaim": _Named("resourceclaims -A", _names_device_claim),
    "ResourceClaimTemplate": _Named("resourceclaimtemplates -A", _names_template),
    "DeviceClass": _Named("deviceclasses", _needs_devices, is_by_claims=True),
}


def unsaved_kinds(of: Callable[[str], list[Any]], pods: Iterable[tuple[str, str, PodObject]]) -> Iterator[str]:
    """Yield a warning for each kind of which waiting or new pods name objects and the files hold none.

    What the files do not hold counts as missing, so such a pod gets no node.

    Args:
        of: gives the objects of a kind.
        pods: (name, namespace, pod) of each pod, those that do not exist yet, too.
    """
    volumes = {_name_of(claim.metadata): claim.spec or ClaimSpec() for claim in of("PersistentVolumeClaim")}
    devices = {_name_of(one.metadata) for one in of("ResourceClaimTemplate")}
    devices |= {
        _name_of(one.metadata) for one in of("ResourceClaim") if one.status is None or not one.status.allocation
    }
    waiting = [(name, namespace, pod.spec or PodSpec()) for name, namespace, pod in pods if _waits(pod)]
    if not of("CSIStorageCapacity") and (drivers := sorted(counting_drivers(of("CSIDriver")))):
        yield (
            f"the files hold no CSIStorageCapacity, so driver {drivers[0]} counts as full; save them, too"
            " (kubectl get csistoragecapacities -A)"
        )
    with_claims = [(name, spec, _claims_of(spec, namespace, volumes, devices)) for name, namespace, spec in waiting]
    for kind, named in _NAMED.items():
        those = list(dict.fromkeys(name for name, spec, claims in with_claims if named.is_named(spec, claims)))
        if those and not of(kind):
            also = f" and {count(len(those) - 1, 'other')}" if len(those) > 1 else ""
            who = f"the claims of {those[0]}" if named.is_by_claims else those[0]
            verb = "name" if also or named.is_by_claims else "names"
            yield (
                f"the files hold no {kind}, so what {who}{also} {verb} counts as missing; save them, too"
                f" (kubectl get {named.asked})"
            )


def _name_of(metadata: ObjectMetadata | None) -> _Name:
    found = metadata or ObjectMetadata()
    return found.namespace or DEFAULT_NAMESPACE, found.name or ""


def _claims_of(
    spec: PodSpec, namespace: str, volumes: Mapping[_Name, ClaimSpec], devices: Container[_Name]
) -> _Claims:
    found = []
    for volume in spec.volumes or ():
        named = volume.persistent_volume_claim
        if named is not None and (claim := volumes.get((namespace, named.claim_name or ""))) is not None:
            found.append(claim)
        if volume.ephemeral is not None:
            template = volume.ephemeral.volume_claim_template
            wants = template.spec if template is not None else None
            found.append(ClaimSpec(storage_class_name=wants.storage_class_name if wants is not None else None))
    named_devices = (
        one.resource_claim_name or one.resource_claim_template_name for one in spec.resource_claims or ()
    )
    return _Claims(found, any((namespace, name or "") in devices for name in named_devices))


def _waits(pod: PodObject) -> bool:
    """Return True if a pod has no node yet."""
    return not (pod.spec or PodSpec()).node_name and (pod.status or PodStatus()).phase not in _FINISHED
