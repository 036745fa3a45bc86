"""The rows of `kubectl get` for the core group, pods apart.

Source: the printer columns of kube-apiserver v1.36; `tests/contract` compares the output of kubectl.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.kinds.ages import age
from edl.sandbox.apiserver.kinds.kind import AGE, NAME, Column, Object, dig
from edl.sandbox.apiserver.kinds.rows.cells import NONE, at_most_three, format_labels, head, plain, wide

SERVICE_COLUMNS = (NAME, *plain("Type", "Cluster-IP", "External-IP", "Port(s)"), AGE, *wide("Selector"))


def service_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a Service."""
    name, since = head(value, now)
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
    """Return the cells of `kubectl get` for a Node."""
    name, since = head(value, now)
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


EVENT_COLUMNS = (
    *plain("Last Seen", "Type", "Reason", "Object"),
    *wide("Subobject", "Source"),
    *plain("Message"),
    *wide("First Seen", "Count"),
    Column("Name", format="name", priority=1),
)


def event_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for an Event of core/v1."""
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
    """Return the cells of `kubectl get` for a Namespace."""
    name, since = head(value, now)
    return name, dig(value, "status", "phase", default=""), since


SECRET_COLUMNS = (NAME, *plain("Type", "Data"), AGE)


def secret_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a Secret."""
    name, since = head(value, now)
    return name, value.get("type", ""), len(value.get("data") or {}), since


CONFIG_MAP_COLUMNS = (NAME, *plain("Data"), AGE)


def config_map_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a ConfigMap."""
    name, since = head(value, now)
    return name, len(value.get("data") or {}) + len(value.get("binaryData") or {}), since


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
    """Return the cells of `kubectl get` for a PersistentVolumeClaim."""
    name, since = head(value, now)
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
    """Return the cells of `kubectl get` for a PersistentVolume."""
    name, since = head(value, now)
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
    """Return the cells of `kubectl get` for a ResourceQuota."""
    name, since = head(value, now)
    hard, used = dig(value, "status", "hard", default={}), dig(value, "status", "used", default={})
    detail = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [text for key, text in detail.items() if key.startswith("limits.")]
    requests = [text for key, text in detail.items() if not key.startswith("limits.")]
    return name, ", ".join(requests), ", ".join(limits), since


ENDPOINTS_COLUMNS = (NAME, *plain("Endpoints"), AGE)


def endpoints_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for an Endpoints object."""
    name, since = head(value, now)
    pairs = [
        f"{address.get('ip', '')}:{port.get('port')}" if port else str(address.get("ip", ""))
        for subset in value.get("subsets", ())
        for port in subset.get("ports") or [None]
        for address in subset.get("addresses", ())
    ]
    return name, at_most_three(pairs), since


SERVICE_ACCOUNT_COLUMNS = (NAME, AGE)


def aged_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a kind with a name and an age."""
    return head(value, now)
