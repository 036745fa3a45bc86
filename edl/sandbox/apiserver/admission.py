"""Admission: what a request needs besides a valid object: namespace, priority, account, address, quota.

Source: the admission plugins that kube-apiserver enables by default (NamespaceLifecycle, Priority, ServiceAccount,
DefaultTolerationSeconds, DefaultStorageClass), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import forbidden, not_found
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.kinds.pods import containers_of
from edl.sandbox.apiserver.kinds.rows.cluster import DEFAULT_CLASS
from edl.sandbox.apiserver.quotas import apply_limit_defaults, require_limits, require_quota
from edl.sandbox.apiserver.resizing import node_problem

SERVICE_NETWORK = IPv4Network("10.96.0.0/16")
PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - the path, not a token
_NODE_PORTS = range(30000, 32768)


def admit_create(cluster: Cluster, kind: Kind, value: Object) -> None:
    """Complete a new object, or refuse it.

    Raises:
        ApiError: 403 or 404.
    """
    _require_namespace(cluster, kind, value)
    match kind.qualified:
        case "pods":
            _priority(cluster, value)
            _service_account(cluster, value)
            _tolerations(value)
            apply_limit_defaults(cluster, value)
        case "services":
            allocate_addresses(cluster, value)
        case "persistentvolumeclaims":
            _storage_class(cluster, value)


def permit_create(cluster: Cluster, kind: Kind, value: Object) -> None:
    """Refuse a new object, valid in itself, that a limit of its namespace forbids.

    Raises:
        ApiError: 403.
    """
    if not kind.namespaced:
        return
    if kind.qualified == "pods":
        require_limits(cluster, value)
    require_quota(cluster, kind, value)


def permit_resize(cluster: Cluster, kind: Kind, value: Object, old: Object) -> None:
    """Refuse a resized pod, valid in itself, that a limit of its namespace or the size of its node forbids.

    Raises:
        ApiError: 403.
    """
    node = cluster.find("nodes", "", value["spec"].get("nodeName") or "")
    if node is not None and (problem := node_problem(value, dig(node, "status", "allocatable", default={}))):
        raise forbidden("pods", "", value["metadata"]["name"], problem)
    require_limits(cluster, value)
    require_quota(cluster, kind, value, old)


def admit_update(cluster: Cluster, kind: Kind, value: Object) -> None:
    """Complete the new state of an object."""
    match kind.qualified:
        case "pods":
            _tolerations(value)
        case "services":
            allocate_addresses(cluster, value)


def _require_namespace(cluster: Cluster, kind: Kind, value: Object) -> None:
    if not kind.namespaced:
        return
    name = value["metadata"].get("namespace", "")
    namespace = cluster.find("namespaces", "", name)
    if namespace is None:
        raise not_found("namespaces", "", name)
    if namespace["metadata"].get("deletionTimestamp"):
        detail = f"unable to create new content in namespace {name} because it is being terminated"
        raise forbidden(kind.plural, kind.group, value["metadata"].get("name", ""), detail)


def _priority(cluster: Cluster, pod: Object) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    if name:
        chosen = cluster.find(PRIORITY_CLASSES, "", name)
        if chosen is None:
            detail = f"no PriorityClass with name {name} was found"
            raise forbidden("pods", "", pod["metadata"].get("name", ""), detail)
    else:
        chosen = _default_priority(cluster)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value = 0 if chosen is None else chosen["value"]
    if spec.get("priority", value) != value:
        detail = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden("pods", "", pod["metadata"].get("name", ""), detail)
    spec["priority"] = value
    policy = "PreemptLowerPriority" if chosen is None else chosen.get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def _default_priority(cluster: Cluster) -> Object | None:
    classes = [
        entry.value for _, entry in cluster.store.entries(PRIORITY_CLASSES) if entry.value.get("globalDefault")
    ]
    return min(classes, key=lambda one: int(one["value"]), default=None)


def _service_account(cluster: Cluster, pod: Object) -> None:
    spec, metadata = pod["spec"], pod["metadata"]
    name = spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = name
    namespace = metadata.get("namespace", "")
    account = cluster.find("serviceaccounts", namespace, name)
    if account is None:
        detail = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("pods", "", metadata.get("name", ""), detail)
    mounts = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    if mounts:
        _mount_token(cluster, spec)
    if "imagePullSecrets" in account:
        spec.setdefault("imagePullSecrets", account["imagePullSecrets"])


def _mount_token(cluster: Cluster, spec: Object) -> None:
    """Mount the token of the account in each container that mounts nothing at its path."""
    name = f"kube-api-access-{cluster.suffix()}"
    used = False
    for _, container in containers_of(spec):
        mounts = container.setdefault("volumeMounts", [])
        if all(mount.get("mountPath") != _TOKEN_PATH for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": _TOKEN_PATH})
            used = True
    if used:
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ]
        spec.setdefault("volumes", []).append({"name": name, "projected": {"sources": sources, "defaultMode": 0o644}})


def _tolerations(pod: Object) -> None:
    """Add the tolerations by which a pod stays 300 s on a node that is not ready, unless it has its own."""
    tolerations = list(pod["spec"].get("tolerations", ()))
    for taint in _NOT_READY:
        covers = (one.get("key") in {taint, None} and one.get("effect") in {"NoExecute", None} for one in tolerations)
        if not any(covers):
            tolerations.append({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    pod["spec"] = {**pod["spec"], "tolerations": tolerations}


def allocate_addresses(cluster: Cluster, service: Object) -> None:
    """Give a Service a cluster IP and node ports where its type needs them."""
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        used = set(_values(cluster, "clusterIP"))
        spec["clusterIP"] = next(str(ip) for ip in SERVICE_NETWORK.hosts() if str(ip) not in used)
    spec["clusterIPs"] = [spec["clusterIP"]]
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        taken = {port.get("nodePort") for ports in _values(cluster, "ports") for port in ports}
        for port in spec.get("ports", ()):
            if not port.get("nodePort"):
                port["nodePort"] = next(number for number in _NODE_PORTS if number not in taken)
                taken.add(port["nodePort"])


def _values(cluster: Cluster, field: str) -> Iterator[Any]:
    for _, entry in cluster.store.entries("services"):
        if (value := dig(entry.value, "spec", field)) is not None:
            yield value


def _storage_class(cluster: Cluster, claim: Object) -> None:
    if "storageClassName" in claim["spec"]:
        return
    defaults = [
        entry.value
        for _, entry in cluster.store.entries("storageclasses.storage.k8s.io")
        if dig(entry.value, "metadata", "annotations", DEFAULT_CLASS) == "true"
    ]
    if defaults:
        newest = max(defaults, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
        claim["spec"]["storageClassName"] = newest["metadata"]["name"]
