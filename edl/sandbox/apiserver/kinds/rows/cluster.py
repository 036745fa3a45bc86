"""The rows of `kubectl get` for the small groups: leases, classes, rights, policies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.kinds.devices import state_of
from edl.sandbox.apiserver.kinds.kind import AGE, NAME, Column, Object, dig
from edl.sandbox.apiserver.kinds.rows.cells import at_most_three, format_selector, head, plain, whole, wide

LEASE_COLUMNS = (NAME, *plain("Holder"), AGE)


def lease_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a Lease."""
    name, since = head(value, now)
    return name, dig(value, "spec", "holderIdentity", default=""), since


PRIORITY_CLASS_COLUMNS = (
    NAME,
    *whole("Value"),
    Column("Global-Default", "boolean"),
    AGE,
    *plain("PreemptionPolicy"),
)


def priority_class_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a PriorityClass."""
    name, since = head(value, now)
    policy = value.get("preemptionPolicy", "PreemptLowerPriority")
    return name, value.get("value", 0), bool(value.get("globalDefault")), since, policy


STORAGE_CLASS_COLUMNS = (
    NAME,
    *plain("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion"),
    AGE,
)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def storage_class_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a StorageClass."""
    name, since = head(value, now)
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


SLICE_COLUMNS = (NAME, *plain("AddressType", "Ports", "Endpoints"), AGE)


def slice_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for an EndpointSlice."""
    name, since = head(value, now)
    ports = [str(one["port"]) if one.get("port") is not None else "*" for one in value.get("ports", ())]
    addresses = [text for one in value.get("endpoints", ()) for text in one.get("addresses", ())]
    detail = at_most_three(ports) if ports else "<unset>"
    return name, value.get("addressType", ""), detail, at_most_three(addresses) if addresses else "<unset>", since


DEVICE_CLAIM_COLUMNS = (NAME, *plain("State"), AGE)


def device_claim_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a ResourceClaim."""
    name, since = head(value, now)
    return name, state_of(value), since


RESOURCE_SLICE_COLUMNS = (NAME, *plain("Node", "Driver", "Pool"), AGE)


def resource_slice_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a ResourceSlice."""
    name, since = head(value, now)
    node, driver = (dig(value, "spec", field, default="") for field in ("nodeName", "driver"))
    return name, node, driver, dig(value, "spec", "pool", "name", default=""), since


BINDING_COLUMNS = (NAME, *plain("Role"), AGE, *wide("Users", "Groups", "ServiceAccounts"))


def binding_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a RoleBinding or ClusterRoleBinding."""
    name, since = head(value, now)
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
    """Return the cells of `kubectl get` for a kind with a time of creation (roles, CustomResourceDefinitions)."""
    return value["metadata"]["name"], value["metadata"].get("creationTimestamp")


NETWORK_POLICY_COLUMNS = (NAME, *plain("Pod-Selector"), AGE)


def network_policy_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a NetworkPolicy."""
    name, since = head(value, now)
    return name, format_selector(dig(value, "spec", "podSelector")), since


POLICY_COLUMNS = (NAME, *whole("Validations"), *plain("ParamKind"), AGE)


def admission_policy_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a ValidatingAdmissionPolicy."""
    name, since = head(value, now)
    kind = dig(value, "spec", "paramKind")
    detail = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"
    return name, len(dig(value, "spec", "validations", default=())), detail, since


POLICY_BINDING_COLUMNS = (NAME, *plain("PolicyName", "ParamRef"), AGE)


def admission_binding_row(value: Object, now: datetime) -> Sequence[Any]:
    """Return the cells of `kubectl get` for a ValidatingAdmissionPolicyBinding."""
    name, since = head(value, now)
    param = dig(value, "spec", "paramRef", "name", default="<unset>")
    return name, dig(value, "spec", "policyName", default=""), param, since
