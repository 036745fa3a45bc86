"""Merging the user's pod template into the pod that the controller creates.

Lists are merged by the key that Kubernetes uses for them, and maps by their keys. Every other field of the template
replaces that of the pod. Templates that set fields of the controller are refused before they reach this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edl.api.template import TemplateSpec
from edl.model.names import Role

OLD_GPU_SELECTOR = "alpha.kubernetes.io/nvidia-gpu-name"
GPU_SELECTOR = "nvidia.com/gpu.product"

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MERGED = ("containers", "env", "volumes", "imagePullSecrets", "nodeSelector", "securityContext")

Object = dict[str, Any]


def apply_template(spec: Object, template: TemplateSpec, role: Role) -> Object:
    """The pod spec merged with the template; neither argument changes."""
    overlay = template.as_dict()
    result = {**spec, **{key: value for key, value in overlay.items() if key not in _MERGED}}
    main, *rest = spec["containers"]
    extended = [{"name": role.value, "env": overlay.get("env", [])}, *overlay.get("containers", [])]
    for container in extended:
        if container["name"] == role.value:
            main = _extend(main, container)
        else:
            rest.append(container)
    result["containers"] = [main, *rest]
    for name in ("volumes", "imagePullSecrets"):
        if merged := _merge(spec.get(name, []), overlay.get(name, []), "name"):
            result[name] = merged
    if selector := overlay.get("nodeSelector"):
        result["nodeSelector"] = {GPU_SELECTOR if k == OLD_GPU_SELECTOR else k: v for k, v in selector.items()}
    if security := {**spec.get("securityContext", {}), **overlay.get("securityContext", {})}:
        result["securityContext"] = security
    return result


def prefer_node(spec: Object, node: str) -> Object:
    """The pod spec with a preference for a node, in addition to the affinity that it has."""
    term = {
        "weight": 100,
        "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    }
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    preferred = [*(node_affinity.get(_PREFERRED) or []), term]
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node_affinity, _PREFERRED: preferred}}}


def require_labels(spec: Object, labels: Iterable[tuple[str, str]]) -> Object:
    """The pod spec that requires some labels of its node, in addition to the affinity that it has.

    The requirements go into each of the alternative terms; an empty term selects no node and stays empty.
    """
    wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    labelled = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *wanted]} if any(term.values()) else term
        for term in terms or []
    ]
    required = {"nodeSelectorTerms": labelled or [{"matchExpressions": wanted}]}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node_affinity, _REQUIRED: required}}}


def require_node(spec: Object, node: str) -> Object:
    """The pod spec that requires a node, in addition to the affinity that it has.

    The requirement goes into each of the alternative terms. It names the node by field and not by label, so that
    kube-scheduler checks that node only, as for the pods of a DaemonSet.
    """
    return _require(spec, [{"key": "metadata.name", "operator": "In", "values": [node]}])


def avoid_nodes(spec: Object, nodes: Iterable[str]) -> Object:
    """The pod spec that excludes some nodes, in addition to the affinity that it has.

    Each node has a requirement of its own in each of the alternative terms: the API allows one name in each.
    """
    names = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return _require(spec, names)


def _require(spec: Object, fields: list[Object]) -> Object:
    """The pod spec with more requirements on the fields of a node."""
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    required = [{**term, "matchFields": [*(term.get("matchFields") or []), *fields]} for term in terms]
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": {**node_affinity, _REQUIRED: {"nodeSelectorTerms": required}}},
    }


def _extend(main: Object, container: Object) -> Object:
    result = {**main, **container}
    result["env"] = _merge(main.get("env", []), container.get("env", []), "name")
    for name, key in (("ports", "containerPort"), ("volumeMounts", "mountPath")):
        if merged := _merge(main.get(name, []), container.get(name, []), key):
            result[name] = merged
    if "command" in container and "args" not in container:
        result.pop("args", None)
    return result


def _merge(base: list[Object], overlay: list[Object], key: str) -> list[Object]:
    """Merge two lists by key: an item of the overlay replaces the item of the base with the same key."""
    items = {item[key]: item for item in base}
    items.update({item[key]: item for item in overlay})
    return list(items.values())
