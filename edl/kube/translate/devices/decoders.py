"""The decoders of the objects about devices, also as older versions of their API print them.

`resource.k8s.io/v1beta2` has the form of v1. In v1beta1 a device has its fields under `basic`, and a request those of
`exactly` itself.

Source: k8s.io/api/resource, v1beta1 and v1beta2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edl.kube.bounds.object_bounds import Oversized
from edl.kube.translate.decoders import Decoder, Quarantined, T
from edl.kube.translate.devices.objects import (
    DeviceClassObject,
    ResourceClaimObject,
    ResourceClaimTemplateObject,
    ResourceSliceObject,
)

GROUP = "resource.k8s.io"
RESOURCE_SLICES = Decoder("ResourceSlice", ResourceSliceObject)
DEVICE_CLASSES = Decoder("DeviceClass", DeviceClassObject)
RESOURCE_CLAIMS = Decoder("ResourceClaim", ResourceClaimObject)
CLAIM_TEMPLATES = Decoder("ResourceClaimTemplate", ResourceClaimTemplateObject)

Body = dict[str, Any]


class _OfV1Beta1(Decoder[T]):
    """Decodes a kind from the form that it has in v1beta1."""

    def __init__(self, kind: str, struct: type[T], translate: Callable[[Body], Body]) -> None:
        super().__init__(kind, struct)
        self._translate = translate

    def from_dict(self, body: Body) -> T | Quarantined:
        """Convert a decoded document; see `Decoder.from_dict`."""
        return super().from_dict(body if isinstance(body, Oversized) else self._translate(body))


def _within(body: Body, path: tuple[str, ...], change: Callable[[Body], Body]) -> Body:
    """Change each object of the list at a path of the body; a body of another form is returned as it is."""
    key, *rest = path
    value = body.get(key)
    if rest:
        return {**body, key: _within(value, tuple(rest), change)} if isinstance(value, dict) else body
    if not isinstance(value, list):
        return body
    return {**body, key: [change(one) if isinstance(one, dict) else one for one in value]}


def _flat_device(device: Body) -> Body:
    own = {key: value for key, value in device.items() if key != "basic"}
    basic = device.get("basic")
    return {**basic, **own} if isinstance(basic, dict) else own


def _exact_request(request: Body) -> Body:
    if request.get("firstAvailable"):
        return request
    return {"name": request.get("name"), "exactly": {key: one for key, one in request.items() if key != "name"}}


def _read(*path: str, change: Callable[[Body], Body]) -> Callable[[Body], Body]:
    return lambda body: _within(body, path, change)


_IN_CLAIM = ("spec", "devices", "requests")
BY_API: Mapping[tuple[str, str], Decoder[Any]] = {
    **{
        (f"{GROUP}/{version}", decoder.kind): decoder
        for version in ("v1", "v1beta2")
        for decoder in (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS, CLAIM_TEMPLATES)
    },
    **{
        (f"{GROUP}/v1beta1", decoder.kind): decoder
        for decoder in (
            _OfV1Beta1("ResourceSlice", ResourceSliceObject, _read("spec", "devices", change=_flat_device)),
            DEVICE_CLASSES,
            _OfV1Beta1("ResourceClaim", ResourceClaimObject, _read(*_IN_CLAIM, change=_exact_request)),
            _OfV1Beta1(
                "ResourceClaimTemplate",
                ResourceClaimTemplateObject,
                _read("spec", *_IN_CLAIM, change=_exact_request),
            ),
        )
    },
}
"""(apiVersion, kind) -> its decoder."""


def unread(version: str, kind: str) -> str:
    """Say why edl ignores an object of another API version or kind of devices; empty for kinds that do not matter."""
    if kind == "DeviceTaintRule":
        return "edl does not read the taints that it gives devices: those that it taints count as free"
    if (f"{GROUP}/v1", kind) not in BY_API:
        return ""
    return (
        f"it has apiVersion {version}, which edl does not read; save it as {GROUP}/v1"
        f" (kubectl get {_plural(kind)}.v1.{GROUP} -o yaml)"
    )


def _plural(kind: str) -> str:
    return f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
