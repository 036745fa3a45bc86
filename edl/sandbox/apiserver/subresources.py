"""Subresources that do something of their own: scale, binding, eviction, tokens, finalize."""

from __future__ import annotations

import base64
import secrets
from datetime import timedelta
from typing import Any

import msgspec

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.deletion import Deleter
from edl.sandbox.apiserver.errors import bad_request, conflict, too_many
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.ages import timestamp
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.kinds.rows.cells import format_selector
from edl.sandbox.apiserver.rights import account_groups
from edl.sandbox.apiserver.storage.selectors import LabelSelector
from edl.sandbox.apiserver.storage.store import Entry, Key

_CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def scale_of(kind: Kind, value: Object) -> Object:
    """Make the Scale of an object."""
    scale = kind.scale
    if scale is None:
        raise AssertionError("the kind has no scale")
    metadata = value["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": dig(value, *scale.status, default=0)}
    selector = dig(value, *scale.selector) if scale.selector else None
    if selector:
        status["selector"] = selector if isinstance(selector, str) else format_selector(selector)
    spec = {"replicas": replicas} if (replicas := dig(value, *scale.spec, default=0)) else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": spec,
        "status": status,
    }


def with_replicas(kind: Kind, value: Object, scale: Object) -> Object:
    """Set the replicas of an object from a Scale.

    Raises:
        ApiError: 409, the Scale is of another version.
    """
    if kind.scale is None:
        raise AssertionError("the kind has no scale")
    wanted = dig(scale, "metadata", "resourceVersion")
    if wanted and wanted != value["metadata"]["resourceVersion"]:
        raise conflict(kind.plural, kind.group, value["metadata"]["name"])
    replicas = dig(scale, "spec", "replicas", default=0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas is not a number')
    return _with(value, kind.scale.spec, replicas)


def _with(value: Object, path: tuple[str, ...], leaf: Any) -> Object:
    head, *rest = path
    return {**value, head: _with(value.get(head) or {}, tuple(rest), leaf) if rest else leaf}


def bind(cluster: Cluster, kind: Kind, key: Key, binding: Any, *, dry_run: bool) -> Object:
    """Bind a pod to a node.

    Raises:
        ApiError: 400, 404, or 409 if the pod is bound or being deleted.
    """
    entry = cluster.entry(kind, key)
    pod = entry.value
    node = dig(binding, "target", "name", default="") if isinstance(binding, dict) else ""
    if not node:
        raise bad_request("Binding.target.name: Required value")
    uid = dig(binding, "metadata", "uid")
    if uid and uid != pod["metadata"]["uid"]:
        detail = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        raise conflict("pods/binding", "", key[1], detail)
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict("pods/binding", "", key[1], f"pod {key[1]} is being deleted, cannot be assigned to a host")
    if bound := pod["spec"].get("nodeName"):
        detail = f'pod {key[1]} is already assigned to node "{bound}"'
        raise conflict("pods/binding", "", key[1], detail)
    if not dry_run:
        cluster.store.put(kind.resource, key, _bound(cluster, pod, node, binding))
    return _CREATED


def _bound(cluster: Cluster, pod: Object, node: str, binding: Object) -> Object:
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": cluster.timestamp(),
    }
    others = [one for one in dig(pod, "status", "conditions", default=()) if one.get("type") != "PodScheduled"]
    annotations = {
        **(pod["metadata"].get("annotations") or {}),
        **dig(binding, "metadata", "annotations", default={}),
    }
    return {
        **pod,
        "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**pod.get("status", {}), "conditions": [condition, *others]},
    }


def evict(cluster: Cluster, deleter: Deleter, kind: Kind, key: Key, eviction: Any, *, dry_run: bool) -> Object:
    """Evict a pod, if no PodDisruptionBudget forbids it.

    Raises:
        ApiError: 404, 409, or 429 if a budget allows no disruption now.
    """
    entry = cluster.entry(kind, key)
    budgets = [one for _, one in _budgets(cluster, entry)]
    options = (eviction.get("deleteOptions") or {}) if isinstance(eviction, dict) else {}
    healthy = dig(entry.value, "status", "phase") == "Running" and not entry.value["metadata"].get(
        "deletionTimestamp"
    )
    for budget in budgets if healthy else ():
        _spend(cluster, budget.value, dry_run=dry_run)
    if not dry_run and healthy:
        _mark_disrupted(cluster, kind, key)
    deleter.delete(kind, key, options, dry_run=dry_run)
    return _CREATED


def _budgets(cluster: Cluster, pod: Entry) -> list[tuple[Key, Entry]]:
    labels = pod.value["metadata"].get("labels") or {}
    found = cluster.store.entries("poddisruptionbudgets.policy", pod.value["metadata"]["namespace"])
    return [
        (key, one)
        for key, one in found
        if (selector := dig(one.value, "spec", "selector")) and LabelSelector(_query(selector)).matches(labels)
    ]


def _query(selector: Object) -> str:
    text = format_selector(selector)
    return "" if text == "<none>" else text


def _spend(cluster: Cluster, budget: Object, *, dry_run: bool) -> None:
    status = budget.get("status", {})
    allowed = status.get("disruptionsAllowed", 0)
    name = budget["metadata"]["name"]
    if allowed <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        detail = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        cause = {"reason": "DisruptionBudget", "message": detail}
        raise too_many("Cannot evict pod as it would violate the pod's disruption budget.", 0, cause)
    if not dry_run:
        spent = {**budget, "status": {**status, "disruptionsAllowed": allowed - 1}}
        key = (budget["metadata"]["namespace"], name)
        cluster.store.put("poddisruptionbudgets.policy", key, spent)


def _mark_disrupted(cluster: Cluster, kind: Kind, key: Key) -> None:
    """Add the condition by which controllers tell an eviction from a failure."""
    pod = cluster.entry(kind, key).value
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": cluster.timestamp(),
    }
    others = [one for one in dig(pod, "status", "conditions", default=()) if one.get("type") != "DisruptionTarget"]
    status = {**pod.get("status", {}), "conditions": [*others, condition]}
    cluster.store.put(kind.resource, key, {**pod, "status": status})


def issue_token(cluster: Cluster, kind: Kind, key: Key, request: Request) -> Object:
    """Issue a token of a service account; it is valid until the server stops.

    Raises:
        ApiError: 404, there is no such account.
    """
    cluster.entry(kind, key)
    body = request.decoded("TokenRequest", "io.k8s.api.authentication.v1.TokenRequest")
    spec = dict(body.get("spec") or {}) if isinstance(body, dict) else {}
    seconds = spec.setdefault("expirationSeconds", 3600)
    spec.setdefault("audiences", ["https://kubernetes.default.svc"])
    ends = cluster.now() + timedelta(seconds=seconds)
    user = f"system:serviceaccount:{key[0]}:{key[1]}"
    claims = {"sub": user, "exp": int(ends.timestamp()), "iss": spec["audiences"][0], "jti": secrets.token_hex(8)}
    token = ".".join(_segment(part) for part in ({"alg": "none"}, claims, {}))
    cluster.tokens[token] = (user, account_groups(user))
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": key[1], "namespace": key[0], "creationTimestamp": cluster.timestamp()},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": timestamp(ends)},
    }


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
