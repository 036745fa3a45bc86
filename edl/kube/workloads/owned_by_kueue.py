"""Workloads for which edl makes the Workloads of Kueue: how they ask for it, and the nodes that their pods need.

Kueue's own integration of a kind manages what has label `kueue.x-k8s.io/queue-name`. It admits such an object as a
whole, so the queue of an object whose pods Kueue should take back one by one is in an annotation of edl. The object
is suspended until its base is admitted. Its pods have one template, so their flavor is written into that when they
start, and taken out before the next start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from edl.kube.translate.kueue.objects import FlavorSpec
from edl.kube.translate.objects import PodSpec, TolerationObject
from edl.kube.translate.scalars import text
from edl.kube.workloads.annotations import FLAVOR_NODES, QUEUE
from edl.kube.workloads.kueue import ELASTIC_JOB
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.names import ANNOTATION_KUEUE_PRIORITY, ANNOTATION_KUEUE_QUEUE, KUEUE_QUEUE, Role
from edl.model.quota_trees import KueueState

Object = dict[str, Any]


DEFAULT_QUEUE = "default"
"""The LocalQueue that Kueue assigns to objects that name no queue (feature LocalQueueDefaulting)."""


class Added(NamedTuple):
    """What edl has added to a pod template for the nodes of a flavor.

    Attributes:
        selector: labels of the node selector.
        tolerations: as JSON has them.
    """

    selector: dict[str, str]
    tolerations: list[Object]


def owned_state(metadata: WorkloadMetadata[Any]) -> KueueState | None:
    """Return what an object says about its queue; None if edl makes no Workloads for it."""
    asked = metadata.annotations or {}
    queue = text(asked.get(ANNOTATION_KUEUE_QUEUE))
    if not queue:
        return None
    priority = text(asked.get(ANNOTATION_KUEUE_PRIORITY))
    return KueueState(queue, Role.TRAINER.value, is_owned=True, priority_class=priority)


def owned_problem(metadata: WorkloadMetadata[Any], template: PodSpec) -> str:
    """Return why edl makes no Workloads for an object that asks for them, and the remedy; empty if it does.

    Args:
        metadata: of the object.
        template: of its pods.
    """
    asked, label = metadata.annotations or {}, text((metadata.labels or {}).get(KUEUE_QUEUE))
    if not text(asked.get(ANNOTATION_KUEUE_QUEUE)):
        if ANNOTATION_KUEUE_PRIORITY in asked:
            return f"annotation {ANNOTATION_KUEUE_PRIORITY} needs {ANNOTATION_KUEUE_QUEUE}; set that, or remove it"
        return ""
    if label:
        remedy = "create it again with one of both"
        if label == DEFAULT_QUEUE:
            remedy = (
                f"Kueue adds the label itself where a LocalQueue is named {DEFAULT_QUEUE}: remove the annotation, or"
                " create it again in a namespace without such a LocalQueue"
            )
        return (
            f"label {KUEUE_QUEUE} is {label[:80]}, so Kueue makes a Workload for it, and annotation"
            f" {ANNOTATION_KUEUE_QUEUE} asks edl for others; {remedy}"
        )
    if QUEUE in asked:
        return (
            f"annotation {QUEUE} names a queue of edl, and {ANNOTATION_KUEUE_QUEUE} one of Kueue; remove one of both"
        )
    if ELASTIC_JOB in asked or any(gate.get("name") == ELASTIC_JOB for gate in template.scheduling_gates or ()):
        return (
            f"annotation {ELASTIC_JOB} makes Kueue gate the pods of a Job when it is created, and Kueue lets them"
            f" start only if it makes the Workload itself; create it again without {ELASTIC_JOB}, or with label"
            f" {KUEUE_QUEUE} instead of annotation {ANNOTATION_KUEUE_QUEUE}"
        )
    return ""


def not_owned_problem(metadata: WorkloadMetadata[Any], kind: str) -> str:
    """Return why an object of a kind for which edl makes no Workloads is refused; empty if it asks for none."""
    if ANNOTATION_KUEUE_QUEUE not in (metadata.annotations or {}):
        return ""
    return f"annotation {ANNOTATION_KUEUE_QUEUE} is for Jobs and PyTorchJobs, and this is a {kind}; remove it"


def added_to(metadata: WorkloadMetadata[Any]) -> Added:
    """Return what edl has added to the template of an object; nothing if that cannot be read."""
    try:
        found = msgspec.json.decode(text((metadata.annotations or {}).get(FLAVOR_NODES)) or "{}", type=_Recorded)
    except (msgspec.MsgspecError, RecursionError):
        return Added({}, [])
    return Added(found.node_selector, found.tolerations)


def without_added(template: PodSpec, added: Added) -> PodSpec:
    """Return a template as its owner wrote it."""
    if not (added.selector or added.tolerations):
        return template
    selector = {
        key: value for key, value in (template.node_selector or {}).items() if added.selector.get(key) != value
    }
    kept = [one for one in template.tolerations or () if _plain(one) not in added.tolerations]
    return msgspec.structs.replace(template, node_selector=selector, tolerations=kept)


def owner_pod_spec(spec: Mapping[str, Any], added: Added) -> Object:
    """Return the pod spec of a template in JSON as its user wrote it."""
    selector = {k: v for k, v in (spec.get("nodeSelector") or {}).items() if added.selector.get(k) != v}
    kept = [one for one in spec.get("tolerations") or () if one not in added.tolerations]
    rest = {key: value for key, value in spec.items() if key not in {"nodeSelector", "tolerations"}}
    return {**rest, **{k: v for k, v in (("nodeSelector", selector), ("tolerations", kept)) if v}}


def flavored(template: PodSpec, added: Added, flavors: Iterable[FlavorSpec]) -> tuple[Object, Added]:
    """Return the merge patch of a pod template for the nodes of other flavors, and what edl then has added.

    Args:
        template: as it is stored.
        added: what edl has added to it before.
        flavors: those of the base; none for a workload that needs no nodes of a flavor.

    Returns:
        An empty patch if the template is right already.
    """
    own = without_added(template, added)
    selector = {key: text(value) for key, value in (own.node_selector or {}).items()}
    tolerations = [_plain(one) for one in own.tolerations or ()]
    new = Added({}, [])
    for flavor in flavors:
        new.selector.update({k: text(v) for k, v in (flavor.node_labels or {}).items() if selector.get(k) != text(v)})
        new.tolerations.extend(
            one for one in map(_plain, flavor.tolerations or ()) if one not in (*tolerations, *new.tolerations)
        )
    patch: Object = {}
    before, after = {k: text(v) for k, v in (template.node_selector or {}).items()}, selector | new.selector
    if before != after:
        patch["nodeSelector"] = dict.fromkeys(before) | after
    if [_plain(one) for one in template.tolerations or ()] != (wanted := [*tolerations, *new.tolerations]):
        patch["tolerations"] = wanted
    return patch, new


def recorded(added: Added) -> str | None:
    """Return the value of annotation `FLAVOR_NODES`; None if there is nothing to record."""
    if not (added.selector or added.tolerations):
        return None
    return json.dumps({"nodeSelector": added.selector, "tolerations": added.tolerations})


class _Recorded(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []


def _plain(one: TolerationObject) -> Object:
    return {key: value for key, value in msgspec.to_builtins(one).items() if value is not None}
