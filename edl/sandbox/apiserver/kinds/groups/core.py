"""The kinds of the core group. The fields of `Kind` say what an entry means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from edl.sandbox.apiserver.kinds import defaults, pods
from edl.sandbox.apiserver.kinds.groups.events import EVENT_FIELDS, event_fields
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.kinds.rows import cluster as cluster_rows
from edl.sandbox.apiserver.kinds.rows import core as core_rows

_kind = partial(Kind, "", "v1")
_CORE = "io.k8s.api.core.v1."
_CREATE = ("create",)


def _node_fields(node: Object) -> Mapping[str, str]:
    return {"spec.unschedulable": str(bool(dig(node, "spec", "unschedulable"))).lower()}


def _type_field(value: Object) -> Mapping[str, str]:
    return {"type": str(value.get("type", ""))}


def _phase_field(value: Object) -> Mapping[str, str]:
    return {"status.phase": dig(value, "status", "phase", default="")}


KINDS = (
    _kind("Binding", "bindings", namespaced=True, type_name=f"{_CORE}Binding", verbs=_CREATE),
    _kind(
        "ConfigMap",
        "configmaps",
        namespaced=True,
        type_name=f"{_CORE}ConfigMap",
        short_names=("cm",),
        columns=core_rows.CONFIG_MAP_COLUMNS,
        row=core_rows.config_map_row,
        rules=defaults.immutable_data,
    ),
    _kind(
        "Endpoints",
        "endpoints",
        namespaced=True,
        type_name=f"{_CORE}Endpoints",
        singular="endpoints",
        short_names=("ep",),
        columns=core_rows.ENDPOINTS_COLUMNS,
        row=core_rows.endpoints_row,
    ),
    _kind(
        "Event",
        "events",
        namespaced=True,
        type_name=f"{_CORE}Event",
        short_names=("ev",),
        columns=core_rows.EVENT_COLUMNS,
        row=core_rows.event_row,
        selectable=EVENT_FIELDS,
        fields_of=event_fields,
        rules=defaults.event_rules,
    ),
    _kind(
        "LimitRange",
        "limitranges",
        namespaced=True,
        type_name=f"{_CORE}LimitRange",
        short_names=("limits",),
        columns=cluster_rows.CREATED_AT,
        row=cluster_rows.created_at_row,
        prepare=defaults.limit_range,
    ),
    _kind(
        "Namespace",
        "namespaces",
        namespaced=False,
        type_name=f"{_CORE}Namespace",
        short_names=("ns",),
        columns=core_rows.NAMESPACE_COLUMNS,
        row=core_rows.namespace_row,
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        has_status=True,
        subresources={"finalize": ("", "v1", "Namespace", ("update",))},
        selectable=("name", "status.phase"),
        fields_of=_phase_field,
        prepare=defaults.namespace,
        name_form="label",
    ),
    _kind(
        "Node",
        "nodes",
        namespaced=False,
        type_name=f"{_CORE}Node",
        short_names=("no",),
        columns=core_rows.NODE_COLUMNS,
        row=core_rows.node_row,
        has_status=True,
        selectable=("spec.unschedulable",),
        fields_of=_node_fields,
        prepare=defaults.node,
    ),
    _kind(
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        namespaced=True,
        type_name=f"{_CORE}PersistentVolumeClaim",
        short_names=("pvc",),
        columns=core_rows.CLAIM_COLUMNS,
        row=core_rows.claim_row,
        has_status=True,
        prepare=defaults.claim,
        rules=defaults.claim_rules,
    ),
    _kind(
        "PersistentVolume",
        "persistentvolumes",
        namespaced=False,
        type_name=f"{_CORE}PersistentVolume",
        short_names=("pv",),
        columns=core_rows.VOLUME_COLUMNS,
        row=core_rows.volume_row,
        has_status=True,
        prepare=defaults.volume,
    ),
    _kind(
        "Pod",
        "pods",
        namespaced=True,
        type_name=f"{_CORE}Pod",
        short_names=("po",),
        categories=("all",),
        columns=pods.COLUMNS,
        row=pods.row,
        has_status=True,
        has_generation=True,
        subresources={
            "binding": ("", "v1", "Binding", _CREATE),
            "eviction": ("policy", "v1", "Eviction", _CREATE),
            "exec": ("", "v1", "PodExecOptions", ("create", "get")),
            "log": ("", "v1", "Pod", ("get",)),
        },
        selectable=pods.SELECTABLE,
        fields_of=pods.fields_of,
        prepare=pods.prepare,
        rules=pods.rules,
    ),
    _kind(
        "ResourceQuota",
        "resourcequotas",
        namespaced=True,
        type_name=f"{_CORE}ResourceQuota",
        short_names=("quota",),
        columns=core_rows.QUOTA_COLUMNS,
        row=core_rows.quota_row,
        has_status=True,
        prepare=defaults.emptied_status,
    ),
    _kind(
        "Secret",
        "secrets",
        namespaced=True,
        type_name=f"{_CORE}Secret",
        columns=core_rows.SECRET_COLUMNS,
        row=core_rows.secret_row,
        selectable=("type",),
        fields_of=_type_field,
        prepare=defaults.secret,
        rules=defaults.secret_rules,
    ),
    _kind(
        "ServiceAccount",
        "serviceaccounts",
        namespaced=True,
        type_name=f"{_CORE}ServiceAccount",
        short_names=("sa",),
        columns=core_rows.SERVICE_ACCOUNT_COLUMNS,
        row=core_rows.aged_row,
        subresources={"token": ("authentication.k8s.io", "v1", "TokenRequest", _CREATE)},
    ),
    _kind(
        "Service",
        "services",
        namespaced=True,
        type_name=f"{_CORE}Service",
        short_names=("svc",),
        categories=("all",),
        columns=core_rows.SERVICE_COLUMNS,
        row=core_rows.service_row,
        has_status=True,
        prepare=defaults.service,
        rules=defaults.service_rules,
        name_form="label",
        selectable=("spec.clusterIP", "spec.type"),
        fields_of=lambda value: {f"spec.{k}": dig(value, "spec", k, default="") for k in ("clusterIP", "type")},
    ),
)
