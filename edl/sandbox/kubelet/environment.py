"""The environment of a container: variables, references to fields and to Secrets and ConfigMaps, and $(NAME).

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#environment-variables
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

from edl.errors import ConfigError
from edl.model.quantity import exact_quantity

Object = dict[str, Any]
Find = Callable[[str, str], Object | None]
"""(kind, name) -> the object in the namespace of the pod; None if there is none."""

_REFERENCE = re.compile(r"\$(\$|\(([^()$]+)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class MissingReferenceError(ConfigError):
    """A variable or a volume refers to an object or a key that does not exist."""


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace $(NAME) by the value of a known variable; $$ stands for one $."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return known.get(match[2], match[0])

    return _REFERENCE.sub(value, text)


def variables(pod: Object, container: Object, node: Object, find: Find) -> dict[str, str]:
    """The variables that a container sets, in order, each expanded with those before it.

    Args:
        pod: with its address in `status.podIP`.
        container: one of its containers.
        node: on which it runs, for limits that the container does not set.
        find: finds Secrets and ConfigMaps.

    Raises:
        MissingReferenceError: an object or a key that is not optional does not exist.
    """
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        found.update(_all_of(source, find))
    for one in container.get("env") or ():
        if "valueFrom" in one:
            value = _referenced(one["valueFrom"], pod, container, node, find)
            if value is not None:
                found[one["name"]] = value
        else:
            found[one["name"]] = expand(str(one.get("value") or ""), found)
    return found


def _all_of(source: Object, find: Find) -> dict[str, str]:
    for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
        if reference := source.get(field):
            obj = find(kind, reference["name"])
            if obj is None and not reference.get("optional"):
                raise MissingReferenceError(f'{kind.lower()} "{reference["name"]}" not found')
            values = data_of(obj or {}, kind)
            prefix = source.get("prefix") or ""
            return {prefix + key: value.decode(errors="replace") for key, value in values.items()}
    return {}


def _referenced(source: Object, pod: Object, container: Object, node: Object, find: Find) -> str | None:
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_of(pod, container, node, source["resourceFieldRef"])
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if reference := source.get(field):
            obj = find(kind, reference["name"])
            value = data_of(obj or {}, kind).get(reference["key"])
            if value is not None:
                return value.decode(errors="replace")
            if reference.get("optional"):
                return None
            if obj is None:
                raise MissingReferenceError(f'{kind.lower()} "{reference["name"]}" not found')
            raise MissingReferenceError(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    raise MissingReferenceError(f"a variable refers to {', '.join(source)}, which this kubelet does not know")


def data_of(obj: Object, kind: str) -> dict[str, bytes]:
    """Read the keys and values of a Secret or ConfigMap."""
    if kind == "Secret":
        return {key: base64.b64decode(value or "") for key, value in (obj.get("data") or {}).items()}
    texts = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
    return {**texts, **{key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}}


def field_of(pod: Object, path: str) -> str:
    """Read a field of a pod in the form of the downward API.

    Raises:
        MissingReferenceError: the downward API has no such field.
    """
    if match := _SUBSCRIPT.fullmatch(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    status, spec = pod.get("status") or {}, pod["spec"]
    addresses = [one["ip"] for one in status.get("podIPs") or ()]
    hosts = [one["ip"] for one in status.get("hostIPs") or ()]
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"].get("namespace", ""),
        "metadata.uid": pod["metadata"].get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": ",".join(hosts),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": ",".join(addresses),
        "metadata.labels": _lines(pod["metadata"].get("labels")),
        "metadata.annotations": _lines(pod["metadata"].get("annotations")),
    }
    if path not in fields:
        raise MissingReferenceError(f"fieldPath {path!r} is not a field of the downward API")
    return str(fields[path])


def resource_of(pod: Object, container: Object, node: Object, reference: Object) -> str:
    """A request or a limit of a container, in units of the divisor, rounded up; the node's amount if it has no limit.

    Raises:
        MissingReferenceError: the pod has no such container.
    """
    name = reference.get("containerName") or container["name"]
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    chosen = next((one for one in containers if one["name"] == name), None)
    if chosen is None:
        raise MissingReferenceError(f"resourceFieldRef: the pod has no container {name!r}")
    field, _, resource = reference["resource"].partition(".")
    amounts = (chosen.get("resources") or {}).get(field) or {}
    fallback = node["status"]["allocatable"].get(resource, "0") if field == "limits" else "0"
    amount = exact_quantity(amounts.get(resource, fallback), resource)
    divisor = exact_quantity(reference.get("divisor") or "1", resource)
    return str(ceil(amount / (divisor or Fraction(1))))


def _lines(pairs: Mapping[str, str] | None) -> str:
    quoted = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in (pairs or {}).items()}
    return "\n".join(f'{key}="{value}"' for key, value in sorted(quoted.items()))
