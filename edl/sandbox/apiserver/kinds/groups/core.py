"""The kinds of the core group."""

from __future__ import annotations

from collections.abc import Mapping

from edl.sandbox.apiserver.kinds import defaults, pods
from edl.sandbox.apiserver.kinds.groups.events import EVENT_FIELDS, event_fields
from edl.sandbox.apiserver.kinds.groups.group import Group
from edl.sandbox.apiserver.kinds.kind import STATUS_VERBS, Object, dig
from edl.sandbox.apiserver.kinds.rows import cluster as cluster_rows
from edl.sandbox.apiserver.kinds.rows import core as rows

_CORE = Group("", "io.k8s.api.core.v1")
_CREATE = ("create",)


def _node_fields(node: Object) -> Mapping[str, str]:
    return {"spec.unschedulable": str(bool(dig(node, "spec", "unschedulable"))).lower()}


def _type_field(value: Object) -> Mapping[str, str]:
    return {"type": str(value.get("type", ""))}


def _phase_field(value: Object) -> Mapping[str, str]:
    return {"status.phase": dig(value, "status", "phase", default="")}


KINDS = (
    _CORE.kind("Binding", verbs=_CREATE),
    _CORE.kind("ConfigMap", rows.CONFIG_MAP_COLUMNS, rows.config_map_row, short="cm", rules=defaults.immutable_data),
    _CORE.kind(
        "Endpoints", rows.ENDPOINTS_COLUMNS, rows.endpoints_row, plural="endpoints", short="ep", singular="endpoints"
    ),
    _CORE.kind(
        "Event",
        rows.EVENT_COLUMNS,
        rows.event_row,
        short="ev",
        selectable=EVENT_FIELDS,
        fields_of=event_fields,
        rules=defaults.event_rules,
    ),
    _CORE.kind(
        "LimitRange",
        cluster_rows.CREATED_AT,
        cluster_rows.created_at_row,
        short="limits",
        prepare=defaults.limit_range,
    ),
    _CORE.kind(
        "Namespace",
        rows.NAMESPACE_COLUMNS,
        rows.namespace_row,
        namespaced=False,
        short="ns",
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        has_status=True,
        subresources={"finalize": ("", "v1", "Namespace", ("update",))},
        selectable=("name", "status.phase"),
        fields_of=_phase_field,
        prepare=defaults.namespace,
        name_form="label",
    ),
    _CORE.kind(
        "Node",
        rows.NODE_COLUMNS,
        rows.node_row,
        namespaced=False,
        short="no",
        has_status=True,
        selectable=("spec.unschedulable",),
        fields_of=_node_fields,
        prepare=defaults.node,
    ),
    _CORE.kind(
        "PersistentVolumeClaim",
        rows.CLAIM_COLUMNS,
        rows.claim_row,
        short="pvc",
        has_status=True,
        prepare=defaults.claim,
        rules=defaults.claim_rules,
    ),
    _CORE.kind(
        "PersistentVolume",
        rows.VOLUME_COLUMNS,
        rows.volume_row,
        namespaced=False,
        short="pv",
        has_status=True,
        prepare=defaults.volume,
    ),
    _CORE.kind(
        "Pod",
        pods.COLUMNS,
        pods.row,
        short="po",
        categories=("all",),
        has_status=True,
        has_generation=True,
        subresources={
            "binding": ("", "v1", "Binding", _CREATE),
            "eviction": ("policy", "v1", "Eviction", _CREATE),
            "exec": ("", "v1", "PodExecOptions", ("create", "get")),
            "log": ("", "v1", "Pod", ("get",)),
            "resize": ("", "v1", "Pod", STATUS_VERBS),
        },
        selectable=pods.SELECTABLE,
        fields_of=pods.fields_of,
        prepare=pods.prepare,
        rules=pods.rules,
    ),
    _CORE.kind(
        "ResourceQuota",
        rows.QUOTA_COLUMNS,
        rows.quota_row,
        short="quota",
        has_status=True,
        prepare=defaults.emptied_status,
    ),
    _CORE.kind(
        "Secret",
        rows.SECRET_COLUMNS,
        rows.secret_row,
        selectable=("type",),
        fields_of=_type_field,
        prepare=defaults.secret,
        rules=defaults.secret_rules,
    ),
    _CORE.kind(
        "ServiceAccount",
        rows.SERVICE_ACCOUNT_COLUMNS,
        rows.aged_row,
        short="sa",
        subresources={"token": ("authentication.k8s.io", "v1", "TokenRequest", _CREATE)},
    ),
    _CORE.kind(
        "Service",
        rows.SERVICE_COLUMNS,
        rows.service_row,
        short="svc",
        categories=("all",),
        has_status=True,
        prepare=defaults.service,
        rules=defaults.service_rules,
        name_form="label",
        selectable=("spec.clusterIP", "spec.type"),
        fields_of=lambda value: {f"spec.{k}": dig(value, "spec", k, default="") for k in ("clusterIP", "type")},
    ),
)
