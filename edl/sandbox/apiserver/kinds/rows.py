"""The rows of `kubectl get` for the built-in kinds, pods apart.

Source: the printer columns of kube-apiserver v1.36; `tests/contract` compares the output of kubectl.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.kinds.ages import age, parse_time, short_duration
from edl.sandbox.apiserver.kinds.kind import AGE, NAME, Column, Object, dig

NONE = "<none>"
_TEMPLATE_COLUMNS = (Column("Containers", priority=1), Column("Images", priority=1), Column("Selector", priority=1))


def wide(*names: str) -> tuple[Column, ...]:
    """Columns that only `-o wide` shows."""
    return tuple(Column(name, priority=1) for name in names)


def plain(*names: str) -> tuple[Column, ...]:
    """Columns of text."""
    return tuple(Column(name) for name in names)


def whole(*names: str) -> tuple[Column, ...]:
    """Columns of whole numbers."""
    return tuple(Column(name, "integer") for name in names)


def _head(value: Object, now: datetime) -> tuple[str, str]:
    metadata = value["metadata"]
    return metadata["name"], age(metadata.get("creationTimestamp"), now)


def format_labels(labels: Object | None) -> str:
    """`a=1,b=2`, sorted; `<none>` without any."""
    return ",".join(f"{key}={text}" for key, text in sorted((labels or {}).items())) or NONE


def format_selector(selector: Object | None) -> str:
    """A label selector in the form of a query."""
    terms = [f"{key}={text}" for key, text in sorted(dig(selector, "matchLabels", default={}).items())]
    for one in dig(selector, "matchExpressions", default=()):
        key, values = one.get("key", ""), ",".join(sorted(one.get("values", ())))
        form = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(form.get(one.get("operator", ""), key))
    return ",".join(terms) or NONE


def _template_cells(value: Object) -> tuple[str, str]:
    containers = dig(value, "spec", "template", "spec", "containers", default=())
    names = ",".join(str(one.get("name", "")) for one in containers)
    return names, ",".join(str(one.get("image", "")) for one in containers)


SERVICE_COLUMNS = (NAME, *plain("Type", "Cluster-IP", "External-IP", "Port(s)"), AGE, *wide("Selector"))


def service_row(value: Object, now: datetime) -> Sequence[Any]:
    """A Service."""
    name, since = _head(value, now)
    spec = value.get("spec", {})
    ports = ",".join(_port(one) for one in spec.get("ports", ())) or NONE
    external = NONE
    if spec.get("type") == "LoadBalancer":
        external = "<pending>"
    elif spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    if spec.get("externalIPs"):
        external = ",".join(spec["externalIPs"])
    address = dig(spec, "clusterIPs", 0) or NONE
    return name, spec.get("type", ""), address, external, ports, since, format_labels(spec.get("selector"))


def _port(port: Object) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


NODE_COLUMNS = (
    NAME,
    *plain("Status", "Roles"),
    AGE,
    *plain("Version"),
    *wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
)
_ROLE = "node-role.kubernetes.io/"


def node_row(value: Object, now: datetime) -> Sequence[Any]:
    """A Node."""
    name, since = _head(value, now)
    status, labels = value.get("status", {}), value["metadata"].get("labels") or {}
    ready = [one for one in status.get("conditions", ()) if one.get("type") == "Ready"]
    words = ["Unknown"] if not ready else ["Ready" if ready[-1].get("status") == "True" else "NotReady"]
    if dig(value, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE)
    if labels.get("kubernetes.io/role"):
        roles = sorted({*roles, labels["kubernetes.io/role"]})
    facts = status.get("nodeInfo", {})
    architecture = f" ({facts['architecture']})" if facts.get("architecture") else ""
    return (
        name,
        ",".join(words),
        ",".join(roles) or NONE,
        since,
        facts.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        facts.get("osImage") or "<unknown>",
        (facts.get("kernelVersion") or "<unknown>") + architecture,
        facts.get("containerRuntimeVersion") or "<unknown>",
    )


def _address(status: Object, kind: str) -> str:
    found = (one.get("address", "") for one in status.get("addresses", ()) if one.get("type") == kind)
    return next(found, NONE)


DEPLOYMENT_COLUMNS = (NAME, *plain("Ready", "Up-to-date", "Available"), AGE, *_TEMPLATE_COLUMNS)


def deployment_row(value: Object, now: datetime) -> Sequence[Any]:
    """A Deployment."""
    name, since = _head(value, now)
    status, desired = value.get("status", {}), dig(value, "spec", "replicas", default=0)
    ready = f"{status.get('readyReplicas', 0)}/{desired}"
    counts = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return name, ready, *counts, since, *_template_cells(value), format_selector(dig(value, "spec", "selector"))


REPLICA_SET_COLUMNS = (NAME, *whole("Desired", "Current", "Ready"), AGE, *_TEMPLATE_COLUMNS)


def replica_set_row(value: Object, now: datetime) -> Sequence[Any]:
    """A ReplicaSet."""
    name, since = _head(value, now)
    status, desired = value.get("status", {}), dig(value, "spec", "replicas", default=0)
    counts = desired, status.get("replicas", 0), status.get("readyReplicas", 0)
    return name, *counts, since, *_template_cells(value), format_selector(dig(value, "spec", "selector"))


_DAEMON_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)
DAEMON_SET_COLUMNS = (
    NAME,
    *whole("Desired", "Current", "Ready", "Up-to-date", "Available"),
    *plain("Node Selector"),
    AGE,
    *_TEMPLATE_COLUMNS,
)


def daemon_set_row(value: Object, now: datetime) -> Sequence[Any]:
    """A DaemonSet."""
    name, since = _head(value, now)
    counts = [dig(value, "status", field, default=0) for field in _DAEMON_COUNTS]
    nodes = format_labels(dig(value, "spec", "template", "spec", "nodeSelector"))
    return name, *counts, nodes, since, *_template_cells(value), format_selector(dig(value, "spec", "selector"))


JOB_COLUMNS = (NAME, *plain("Status", "Completions", "Duration"), AGE, *_TEMPLATE_COLUMNS)


def job_row(value: Object, now: datetime) -> Sequence[Any]:
    """A batch/v1 Job."""
    name, since = _head(value, now)
    status, spec = value.get("status", {}), value.get("spec", {})
    done = status.get("succeeded", 0)
    total = spec.get("completions", f"1 of {spec['parallelism']}" if spec.get("parallelism", 0) > 1 else 1)
    true = {one["type"] for one in status.get("conditions", ()) if one.get("status") == "True"}
    order = {"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended"}
    word = next((text for kind, text in order.items() if kind in true), "Running")
    start, end = parse_time(status.get("startTime", "")), parse_time(status.get("completionTime", "")) or now
    taken = short_duration(int((end - start).total_seconds())) if start else ""
    selector = format_selector(spec.get("selector"))
    return name, word, f"{done}/{total}", taken, since, *_template_cells(value), selector


EVENT_COLUMNS = (
    *plain("Last Seen", "Type", "Reason", "Object"),
    *wide("Subobject", "Source"),
    *plain("Message"),
    *wide("First Seen", "Count"),
    Column("Name", format="name", priority=1),
)


def event_row(value: Object, now: datetime) -> Sequence[Any]:
    """An Event of core/v1."""
    first = age(value.get("firstTimestamp") or value.get("eventTime"), now)
    last = age(value["lastTimestamp"], now) if value.get("lastTimestamp") else first
    count = value.get("count") or 1
    if series := value.get("series"):
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 1)
    about = value.get("involvedObject", {})
    target = str(about.get("kind", "")).lower() + (f"/{about['name']}" if about.get("name") else "")
    source = dig(value, "source", "component") or value.get("reportingComponent", "")
    host = dig(value, "source", "host") or value.get("reportingInstance", "")
    return (
        last,
        value.get("type", ""),
        value.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        ", ".join(part for part in (source, host) if part),
        str(value.get("message", "")).strip(),
        first,
        count,
        value["metadata"]["name"],
    )


NAMESPACE_COLUMNS = (NAME, *plain("Status"), AGE)


def namespace_row(value: Object, now: datetime) -> Sequence[Any]:
    """A Namespace."""
    name, since = _head(value, now)
    return name, dig(value, "status", "phase", default=""), since


SECRET_COLUMNS = (NAME, *plain("Type", "Data"), AGE)


def secret_row(value: Object, now: datetime) -> Sequence[Any]:
    """A Secret."""
    name, since = _head(value, now)
    return name, value.get("type", ""), len(value.get("data") or {}), since


CONFIG_MAP_COLUMNS = (NAME, *plain("Data"), AGE)


def config_map_row(value: Object, now: datetime) -> Sequence[Any]:
    """A ConfigMap."""
    name, since = _head(value, now)
    return name, len(value.get("data") or {}) + len(value.get("binaryData") or {}), since


LEASE_COLUMNS = (NAME, *plain("Holder"), AGE)


def lease_row(value: Object, now: datetime) -> Sequence[Any]:
    """A Lease."""
    name, since = _head(value, now)
    return name, dig(value, "spec", "holderIdentity", default=""), since


PRIORITY_CLASS_COLUMNS = (
    NAME,
    *whole("Value"),
    Column("Global-Default", "boolean"),
    AGE,
    *plain("PreemptionPolicy"),
)


def priority_class_row(value: Object, now: datetime) -> Sequence[Any]:
    """A PriorityClass."""
    name, since = _head(value, now)
    policy = value.get("preemptionPolicy", "PreemptLowerPriority")
    return name, value.get("value", 0), bool(value.get("globalDefault")), since, policy


STORAGE_CLASS_COLUMNS = (
    NAME,
    *plain("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion"),
    AGE,
)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def storage_class_row(value: Object, now: datetime) -> Sequence[Any]:
    """A StorageClass."""
    name, since = _head(value, now)
    if dig(value, "metadata", "annotations", DEFAULT_CLASS) == "true":
        name += " (default)"
    return (
        name,
        value.get("provisioner", ""),
        value.get("reclaimPolicy", "Delete"),
        value.get("volumeBindingMode", "Immediate"),
        bool(value.get("allowVolumeExpansion")),
        since,
    )


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
CLAIM_COLUMNS = (
    NAME,
    *plain("Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass"),
    AGE,
    *wide("VolumeMode"),
)


def _modes(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def claim_row(value: Object, now: datetime) -> Sequence[Any]:
    """A PersistentVolumeClaim."""
    name, since = _head(value, now)
    spec, status = value.get("spec", {}), value.get("status", {})
    phase = "Terminating" if value["metadata"].get("deletionTimestamp") else status.get("phase", "")
    bound = bool(spec.get("volumeName"))
    return (
        name,
        phase,
        spec.get("volumeName", ""),
        dig(status, "capacity", "storage", default="0") if bound else "",
        _modes(status.get("accessModes", ())) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", "<unset>"),
        since,
        spec.get("volumeMode", "<unset>"),
    )


VOLUME_COLUMNS = (
    NAME,
    *plain("Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass"),
    *plain("VolumeAttributesClass", "Reason"),
    AGE,
    *wide("VolumeMode"),
)


def volume_row(value: Object, now: datetime) -> Sequence[Any]:
    """A PersistentVolume."""
    name, since = _head(value, now)
    spec, status = value.get("spec", {}), value.get("status", {})
    claim = spec.get("claimRef")
    return (
        name,
        dig(spec, "capacity", "storage", default="0"),
        _modes(spec.get("accessModes", ())),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if value["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", "<unset>"),
        status.get("reason", ""),
        since,
        spec.get("volumeMode", "<unset>"),
    )


QUOTA_COLUMNS = (NAME, *plain("Request", "Limit"), AGE)


def quota_row(value: Object, now: datetime) -> Sequence[Any]:
    """A ResourceQuota."""
    name, since = _head(value, now)
    hard, used = dig(value, "status", "hard", default={}), dig(value, "status", "used", default={})
    told = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [text for key, text in told.items() if key.startswith("limits.")]
    requests = [text for key, text in told.items() if not key.startswith("limits.")]
    return name, ", ".join(requests), ", ".join(limits), since


BUDGET_COLUMNS = (NAME, *plain("Min Available", "Max Unavailable"), *whole("Allowed Disruptions"), AGE)


def budget_row(value: Object, now: datetime) -> Sequence[Any]:
    """A PodDisruptionBudget."""
    name, since = _head(value, now)
    bounds = (str(dig(value, "spec", field, default="N/A")) for field in ("minAvailable", "maxUnavailable"))
    return name, *bounds, dig(value, "status", "disruptionsAllowed", default=0), since


ENDPOINTS_COLUMNS = (NAME, *plain("Endpoints"), AGE)


def endpoints_row(value: Object, now: datetime) -> Sequence[Any]:
    """An Endpoints object."""
    name, since = _head(value, now)
    pairs = [
        f"{address.get('ip', '')}:{port.get('port')}" if port else str(address.get("ip", ""))
        for subset in value.get("subsets", ())
        for port in subset.get("ports") or [None]
        for address in subset.get("addresses", ())
    ]
    return name, _at_most_three(pairs), since


def _at_most_three(texts: Sequence[str]) -> str:
    shown = ",".join(texts[:3]) or NONE
    return f"{shown} + {len(texts) - 3} more..." if len(texts) > 3 else shown


SLICE_COLUMNS = (NAME, *plain("AddressType", "Ports", "Endpoints"), AGE)


def slice_row(value: Object, now: datetime) -> Sequence[Any]:
    """An EndpointSlice."""
    name, since = _head(value, now)
    ports = [str(one["port"]) if one.get("port") is not None else "*" for one in value.get("ports", ())]
    addresses = [text for one in value.get("endpoints", ()) for text in one.get("addresses", ())]
    told = _at_most_three(ports) if ports else "<unset>"
    return name, value.get("addressType", ""), told, _at_most_three(addresses) if addresses else "<unset>", since


BINDING_COLUMNS = (NAME, *plain("Role"), AGE, *wide("Users", "Groups", "ServiceAccounts"))


def binding_row(value: Object, now: datetime) -> Sequence[Any]:
    """A RoleBinding or ClusterRoleBinding."""
    name, since = _head(value, now)
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for one in value.get("subjects", ()):
        full = one.get("name", "")
        if one.get("kind") == "ServiceAccount":
            full = f"{one.get('namespace', '')}/{full}"
        subjects.setdefault(one.get("kind", ""), []).append(full)
    role = f"{dig(value, 'roleRef', 'kind')}/{dig(value, 'roleRef', 'name')}"
    return name, role, since, *(", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount"))


CREATED_AT = (NAME, Column("Created At", "date"))


def created_at_row(value: Object, _now: datetime) -> Sequence[Any]:
    """A kind that shows its time of creation (roles, CustomResourceDefinitions)."""
    return value["metadata"]["name"], value["metadata"].get("creationTimestamp")


SERVICE_ACCOUNT_COLUMNS = (NAME, AGE)


def aged_row(value: Object, now: datetime) -> Sequence[Any]:
    """A kind with a name and an age."""
    return _head(value, now)


NETWORK_POLICY_COLUMNS = (NAME, *plain("Pod-Selector"), AGE)


def network_policy_row(value: Object, now: datetime) -> Sequence[Any]:
    """A NetworkPolicy."""
    name, since = _head(value, now)
    return name, format_selector(dig(value, "spec", "podSelector")), since


POLICY_COLUMNS = (NAME, *whole("Validations"), *plain("ParamKind"), AGE)


def admission_policy_row(value: Object, now: datetime) -> Sequence[Any]:
    """A ValidatingAdmissionPolicy."""
    name, since = _head(value, now)
    kind = dig(value, "spec", "paramKind")
    told = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"
    return name, len(dig(value, "spec", "validations", default=())), told, since


POLICY_BINDING_COLUMNS = (NAME, *plain("PolicyName", "ParamRef"), AGE)


def admission_binding_row(value: Object, now: datetime) -> Sequence[Any]:
    """A ValidatingAdmissionPolicyBinding."""
    name, since = _head(value, now)
    param = dig(value, "spec", "paramRef", "name", default="<unset>")
    return name, dig(value, "spec", "policyName", default=""), param, since
