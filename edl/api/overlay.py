"""Laying a user's pod template over the pod that the controller makes.

Lists that Kubernetes merges by name are merged by name, maps key by key, and everything else of the template stands
as it was written. Fields of the controller never get here: a template that sets one is refused with the job.
"""

from __future__ import annotations

from typing import Any

from edl.api.template import TemplateSpec
from edl.model.names import Role

OLD_GPU_SELECTOR = "alpha.kubernetes.io/nvidia-gpu-name"
GPU_SELECTOR = "nvidia.com/gpu.product"

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MERGED = ("containers", "env", "volumes", "imagePullSecrets", "nodeSelector", "securityContext")

Object = dict[str, Any]


def lay_over(spec: Object, template: TemplateSpec, role: Role) -> Object:
    """The pod spec with the template over it; neither argument is changed."""
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
        if merged := _by_name(spec.get(name, []), overlay.get(name, []), "name"):
            result[name] = merged
    if selector := overlay.get("nodeSelector"):
        result["nodeSelector"] = {GPU_SELECTOR if k == OLD_GPU_SELECTOR else k: v for k, v in selector.items()}
    if security := {**spec.get("securityContext", {}), **overlay.get("securityContext", {})}:
        result["securityContext"] = security
    return result


def prefer_node(spec: Object, node: str) -> Object:
    """The pod spec with a preference for a node beside whatever its affinity says already."""
    term = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]},
    }
    affinity = spec.get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    preferred = [*(of_node.get(_PREFERRED) or []), term]
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_node, _PREFERRED: preferred}}}


def demand_node(spec: Object, node: str) -> Object:
    """The pod spec with one node, and no other, added to each alternative that its affinity allows already.

    The node is named by its field and not by a label: kube-scheduler then looks at that node alone, as it does for
    the pods of a DaemonSet.
    """
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    terms = (of_node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or []), name]} for term in terms]
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": {**of_node, _REQUIRED: {"nodeSelectorTerms": pinned}}},
    }


def _extend(main: Object, container: Object) -> Object:
    result = {**main, **container}
    result["env"] = _by_name(main.get("env", []), container.get("env", []), "name")
    for name, key in (("ports", "containerPort"), ("volumeMounts", "mountPath")):
        if merged := _by_name(main.get(name, []), container.get(name, []), key):
            result[name] = merged
    if "command" in container and "args" not in container:
        result.pop("args", None)
    return result


def _by_name(mine: list[Object], theirs: list[Object], key: str) -> list[Object]:
    """Both lists; an item of theirs takes the place of mine with the same key."""
    items = {item[key]: item for item in mine}
    items.update({item[key]: item for item in theirs})
    return list(items.values())
