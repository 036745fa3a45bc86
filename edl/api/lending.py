"""The pod of a trainer that lends CPU: it requests a part of what it declares, and may use all of it."""

from __future__ import annotations

from typing import Any

from edl.model.lending import requested_milli
from edl.model.names import Role
from edl.model.quantity import parse_quantity
from edl.model.resources import CPU


def lending_spec(spec: dict[str, Any], cpu_request: float) -> tuple[dict[str, Any], str]:
    """Lower the CPU request in the pod spec of a trainer to a part of what it declares.

    The limit becomes what it declares unless it has one. Memory, devices and helper containers stay as they are.

    Args:
        spec: the pod spec.
        cpu_request: the part that its container requests, in (0, 1].

    Returns:
        The spec as it is and an empty text if the trainer cannot lend: it declares no CPU or hardly any, or its
        amounts are those of the whole pod.
    """
    containers = spec["containers"]
    at = next((i for i, one in enumerate(containers) if one["name"] == Role.TRAINER.value), None)
    if at is None or CPU in {
        **spec.get("resources", {}).get("limits", {}),
        **spec.get("resources", {}).get("requests", {}),
    }:
        return spec, ""
    resources = containers[at].get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    declared = requests.get(CPU, limits.get(CPU))
    milli = 0 if declared is None else parse_quantity(declared, CPU)
    if not milli or (asked := requested_milli(milli, cpu_request)) >= milli:
        return spec, ""
    lends = {
        **resources,
        "requests": {**requests, CPU: f"{asked}m"},
        "limits": {**limits, CPU: limits.get(CPU, declared)},
    }
    changed = [{**one, "resources": lends} if i == at else one for i, one in enumerate(containers)]
    return {**spec, "containers": changed}, str(declared)
