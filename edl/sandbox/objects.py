"""Functions that read common fields of API objects: names, owners, conditions, selectors, amounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from edl.model.quantity import parse_quantity

Object = dict[str, Any]
Amounts = dict[str, int]
"""Resource -> millicores for cpu, otherwise bytes or pieces."""


def namespace_of(obj: Object) -> str:
    """The namespace of an object; empty if it has none."""
    return str(obj["metadata"].get("namespace") or "")


def name_of(obj: Object) -> str:
    """The name of an object."""
    return str(obj["metadata"]["name"])


def uid_of(obj: Object) -> str:
    """The UID of an object."""
    return str(obj["metadata"]["uid"])


def version_of(obj: Object) -> int:
    """The resourceVersion of an object; a later one of the same object is larger."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def is_deleted(obj: Object) -> bool:
    """True once the deletion of the object was requested."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_finished(pod: Object) -> bool:
    """True if all containers of a pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def condition(obj: Object, kind: str) -> Object | None:
    """A condition of an object's status; None if it has no such condition."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)


def is_true(obj: Object, kind: str) -> bool:
    """True if that condition of an object is True."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def now_text() -> str:
    """The present time as the API writes it, in seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_text() -> str:
    """The present time as a MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pod_path(pod: Object, *rest: str) -> str:
    """The path of a pod at the API server."""
    return "/".join((f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}", *rest))


def labels_of(obj: Object) -> Mapping[str, str]:
    """The labels of an object."""
    return obj["metadata"].get("labels") or {}


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether labels match a LabelSelector; an empty one matches everything, and None matches nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(has_expression(labels, one) for one in selector.get("matchExpressions") or ())


def has_expression(labels: Mapping[str, str], expression: Object) -> bool:
    """Whether labels satisfy one requirement: In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    key, values = expression["key"], expression.get("values") or []
    value = labels.get(key)
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt" if value is not None and value.lstrip("-").isdigit() and values:
            return int(value) > int(values[0]) if expression["operator"] == "Gt" else int(value) < int(values[0])
    return False


def amounts_of(quantities: Mapping[str, Any] | None) -> Amounts:
    """Convert quantities to integers.

    Raises:
        ConfigError: one of them is not a quantity.
    """
    return {name: parse_quantity(value, name) for name, value in (quantities or {}).items()}


def request_of(pod: Object) -> Amounts:
    """The request of a pod: the sum of its containers or its largest init container, plus its overhead.

    While a container is resized in place, the larger of what it requests and what it was granted counts.
    """
    total: Amounts = {}
    spec, granted = pod["spec"], _granted(pod)
    is_refused = (condition(pod, "PodResizePending") or {}).get("reason") == "Infeasible"
    for container in spec.get("containers") or ():
        wanted = amounts_of((container.get("resources") or {}).get("requests"))
        has = granted.get(container.get("name"), {})
        _add(total, has if has and is_refused else {k: max(n, has.get(k, 0)) for k, n in wanted.items()})
    for container in spec.get("initContainers") or ():
        for name, amount in amounts_of((container.get("resources") or {}).get("requests")).items():
            total[name] = max(total.get(name, 0), amount)
    _add(total, amounts_of(spec.get("overhead")))
    return total


def _granted(pod: Object) -> dict[str | None, Amounts]:
    """The resources that the kubelet reports as granted, by container; empty if it reports none."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return {one.get("name"): amounts_of(one.get("allocatedResources")) for one in statuses}


def summed(all_amounts: Iterable[Amounts]) -> Amounts:
    """The sum of several amounts."""
    total: Amounts = {}
    for amounts in all_amounts:
        _add(total, amounts)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
