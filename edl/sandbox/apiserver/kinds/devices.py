"""Devices by claim: what the server fills in, what it refuses, and the state that `kubectl get` shows.

Source: k8s.io/kubernetes pkg/apis/resource (defaults and validation) and pkg/registry/resource, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, required
from edl.sandbox.apiserver.kinds.kind import Object, dig
from edl.sandbox.apiserver.kinds.names import label_problem
from edl.sandbox.objects import now_text

SLICE_FIELDS = ("spec.nodeName", "spec.driver")


def claim(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a ResourceClaim."""
    _default_requests(dig(value, "spec", default={}))
    if old is None:
        value["status"] = {}


def template(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a ResourceClaimTemplate."""
    value.setdefault("spec", {}).setdefault("metadata", {})
    _default_requests(dig(value, "spec", "spec", default={}))


def resource_slice(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a ResourceSlice."""
    for device in dig(value, "spec", "devices", default=()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", now_text())


def _default_requests(spec: Object) -> None:
    for request in dig(spec, "devices", "requests", default=()):
        for one in (*request.get("firstAvailable", ()), *([request["exactly"]] if request.get("exactly") else ())):
            mode = one.setdefault("allocationMode", "ExactCount")
            if mode == "ExactCount" and not one.get("count"):
                one["count"] = 1


def claim_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a ResourceClaim."""
    status = value.get("status") or {}
    if status.get("reservedFor") and not status.get("allocation"):
        return [forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set")]
    return list(_spec_errors(value, old, ("spec",)))


def template_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a ResourceClaimTemplate."""
    return list(_spec_errors(value, old, ("spec", "spec")))


def _spec_errors(value: Object, old: Object | None, path: tuple[str, ...]) -> Iterator[FieldError]:
    if old is not None:
        if value.get("spec") != old.get("spec"):
            yield FieldError("spec", "FieldValueInvalid", "Invalid value: field is immutable")
        return
    for place, request in enumerate(dig(value, *path, "devices", "requests", default=())):
        yield from _request_errors(request, f"{'.'.join(path)}.devices.requests[{place}]")


def _request_errors(request: Object, path: str) -> Iterator[FieldError]:
    name = request.get("name", "")
    if problem := label_problem(name):
        yield invalid_value(f"{path}.name", name, problem)
    if not request.get("exactly") and not request.get("firstAvailable"):
        yield required(path, "exactly one of `exactly` or `firstAvailable` is required")
    elif request.get("exactly") and not request["exactly"].get("deviceClassName"):
        yield required(f"{path}.exactly.deviceClassName")


def state_of(value: Object) -> str:
    """The state of a ResourceClaim as `kubectl get` shows it."""
    is_deleted = bool(value["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if is_deleted else []
    if dig(value, "status", "allocation") is None:
        states += [] if is_deleted else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if dig(value, "status", "reservedFor") else [])]
    return ",".join(states)


def slice_fields(value: Object) -> Mapping[str, str]:
    """The fields of a ResourceSlice that a selector may name."""
    return {field: str(dig(value, *field.split("."), default="")) for field in SLICE_FIELDS}
