"""What a new cluster contains, and what the controllers next to a real API server do at once.

Namespaces get their service account and the certificate authority; a CustomResourceDefinition is established. The
other controllers (garbage collection, Deployments, ReplicaSets, the scheduler) are clients of the server.
"""

from __future__ import annotations

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.kinds.kind import Object, dig
from edl.sandbox.apiserver.registry import DEFINITIONS

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_KUBERNETES = {
    "clusterIP": "10.96.0.1",
    "clusterIPs": ["10.96.0.1"],
    "internalTrafficPolicy": "Cluster",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
    "sessionAffinity": "None",
    "type": "ClusterIP",
}
_CLASSES = {
    "system-cluster-critical": (2_000_000_000, "used for pods that the cluster cannot do without, on any node"),
    "system-node-critical": (2_000_001_000, "used for pods that their node cannot do without"),
}


def furnish(cluster: Cluster, namespaces: tuple[str, ...] = ()) -> None:
    """Create what every cluster contains, and further namespaces."""
    for name in (*NAMESPACES, *namespaces):
        labels = {"kubernetes.io/metadata.name": name}
        space = _put(
            cluster,
            "namespaces",
            "",
            name,
            {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": {"labels": labels},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
        )
        furnish_namespace(cluster, space)
    _put(
        cluster,
        "services",
        "default",
        "kubernetes",
        {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": _KUBERNETES,
            "status": {"loadBalancer": {}},
        },
    )
    for name, (value, description) in _CLASSES.items():
        _put(
            cluster,
            "priorityclasses.scheduling.k8s.io",
            "",
            name,
            {
                "kind": "PriorityClass",
                "apiVersion": "scheduling.k8s.io/v1",
                "metadata": {"generation": 1},
                "value": value,
                "description": description,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        )


def furnish_namespace(cluster: Cluster, namespace: Object) -> None:
    """Give a namespace what its pods need."""
    name = namespace["metadata"]["name"]
    if namespace["metadata"].get("deletionTimestamp"):
        return
    if cluster.find("serviceaccounts", name, "default") is None:
        _put(
            cluster,
            "serviceaccounts",
            name,
            "default",
            {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {}},
        )
    if cluster.find("configmaps", name, "kube-root-ca.crt") is None:
        _put(
            cluster,
            "configmaps",
            name,
            "kube-root-ca.crt",
            {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {},
                "data": {"ca.crt": cluster.authority},
            },
        )


def establish(cluster: Cluster, definition: Object) -> None:
    """Serve the kinds of a CustomResourceDefinition and say so in its status."""
    if definition["metadata"].get("deletionTimestamp"):
        return
    cluster.registry.define(definition)
    names = {**definition["spec"]["names"]}
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    stored = [one["name"] for one in definition["spec"].get("versions", ()) if one.get("storage")]
    if dig(definition, "status", "acceptedNames") == names and dig(definition, "status", "storedVersions") == stored:
        return
    status = {
        "conditions": [
            _condition(cluster, "NamesAccepted", "NoConflicts", "no conflicts found"),
            _condition(cluster, "Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": names,
        "storedVersions": stored,
    }
    key = ("", definition["metadata"]["name"])
    cluster.store.put(DEFINITIONS, key, {**definition, "status": status})


def _condition(cluster: Cluster, kind: str, reason: str, message: str) -> Object:
    moment = cluster.timestamp()
    return {"type": kind, "status": "True", "lastTransitionTime": moment, "reason": reason, "message": message}


def _put(cluster: Cluster, resource: str, namespace: str, name: str, value: Object) -> Object:
    place = {"namespace": namespace} if namespace else {}
    facts = {"name": name, **place, "uid": cluster.uid(), "creationTimestamp": cluster.timestamp()}
    complete = {**value, "metadata": {**facts, **value["metadata"]}}
    return cluster.store.put(resource, (namespace, name), complete).value
