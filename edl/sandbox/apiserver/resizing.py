"""The subresource `resize` of pods: it changes cpu and memory of containers, and nothing else.

Source: k8s.io/kubernetes/pkg/apis/core/validation, func ValidatePodResize.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value
from edl.sandbox.apiserver.kinds.kind import Object
from edl.sandbox.apiserver.kinds.pods import containers_of, qos_class, spec_errors
from edl.sandbox.apiserver.schema.quantities import parse_quantity

RESIZE = "resize"
_CHANGEABLE = {"cpu": 1000, "memory": 1}
"""The resources that a resize can change, and how many units a message counts for one core or byte."""
_FIELDS = ("requests", "limits")


def resized_spec(old: Object, new: Object) -> Object:
    """Take the old spec with the resources that the new one gives its containers; other changes are dropped."""
    spec = dict(old)
    for field in ("initContainers", "containers"):
        if field in old:
            wanted = {one["name"]: one.get("resources", {}) for one in new.get(field) or ()}
            spec[field] = [{**one, "resources": wanted.get(one["name"], one["resources"])} for one in old[field]]
    return spec


def node_problem(pod: Object, allocatable: Object) -> str:
    """Why a node could never have a pod of these requests; empty if it could."""
    for resource, factor in _CHANGEABLE.items():
        texts = [one["resources"].get("requests", {}).get(resource, "0") for _, one in containers_of(pod["spec"])]
        wanted, there = sum(map(parse_quantity, texts)), parse_quantity(str(allocatable.get(resource, "0")))
        if wanted > there:
            return (
                f"node didn't have enough allocatable resources: {resource}, requested: {int(wanted * factor)},"
                f" allocatable: {int(there * factor)}"
            )
    return ""


def resize_errors(pod: Object, old: Object) -> Sequence[FieldError]:
    """Describe what is wrong with a resized pod."""
    return [*spec_errors(pod["spec"], "spec"), *_resize_errors(pod, old)]


def _resize_errors(pod: Object, old: Object) -> Iterator[FieldError]:
    before = old["status"].get("qosClass")
    if before and qos_class(pod["spec"]) != before:
        yield invalid_value("spec", before, "Pod QOS Class may not change as a result of resizing")
    for (place, now), (_, was) in zip(containers_of(pod["spec"]), containers_of(old["spec"]), strict=True):
        for field in _FIELDS:
            new, former = now["resources"].get(field) or {}, was["resources"].get(field) or {}
            if former.keys() - new.keys():
                yield forbidden_field(f"spec.{place}.resources.{field}", f"resource {field} cannot be removed")
            if {k: v for k, v in new.items() if k not in _CHANGEABLE} != {
                k: v for k, v in former.items() if k not in _CHANGEABLE
            }:
                yield forbidden_field("spec", "only cpu and memory resources are mutable")
