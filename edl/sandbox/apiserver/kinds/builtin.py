"""The built-in kinds, one entry each. The fields of `Kind` say what an entry means."""

from __future__ import annotations

from collections.abc import Mapping

from edl.sandbox.apiserver.kinds import defaults, pods, rows
from edl.sandbox.apiserver.kinds.kind import Kind, Object, Scale, dig

_CORE = "io.k8s.api.core.v1."
_APPS = "io.k8s.api.apps.v1."
_RBAC = "io.k8s.api.rbac.v1."
_ADMISSION = "io.k8s.api.admissionregistration.v1."
_CREATE = ("create",)
_STATUS = ("get", "patch", "update")
_REPLICAS = Scale(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))

EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)


def _event_fields(event: Object) -> Mapping[str, str]:
    about = event.get("involvedObject", {})
    fields = {f"involvedObject.{name}": str(about.get(name, "")) for name in about}
    source = dig(event, "source", "component") or event.get("reportingComponent", "")
    plain = {name: str(event.get(name, "")) for name in ("reason", "reportingComponent", "type")}
    return {**fields, **plain, "source": source}


def _new_event_fields(event: Object) -> Mapping[str, str]:
    fields = _event_fields(event)
    return {**fields, "reportingController": fields["reportingComponent"]}


def _node_fields(node: Object) -> Mapping[str, str]:
    return {"spec.unschedulable": str(bool(dig(node, "spec", "unschedulable"))).lower()}


def _type_field(value: Object) -> Mapping[str, str]:
    return {"type": str(value.get("type", ""))}


def _phase_field(value: Object) -> Mapping[str, str]:
    return {"status.phase": dig(value, "status", "phase", default="")}


def _replica_fields(value: Object) -> Mapping[str, str]:
    return {"status.replicas": str(dig(value, "status", "replicas", default=0))}


def _job_fields(value: Object) -> Mapping[str, str]:
    return {"status.successful": str(dig(value, "status", "succeeded", default=0))}


def _core() -> list[Kind]:
    return [
        Kind("", "v1", "Binding", "bindings", True, f"{_CORE}Binding", verbs=_CREATE),
        Kind(
            "",
            "v1",
            "ConfigMap",
            "configmaps",
            True,
            f"{_CORE}ConfigMap",
            short_names=("cm",),
            columns=rows.CONFIG_MAP_COLUMNS,
            row=rows.config_map_row,
            rules=defaults.immutable_data,
        ),
        Kind(
            "",
            "v1",
            "Endpoints",
            "endpoints",
            True,
            f"{_CORE}Endpoints",
            singular="endpoints",
            short_names=("ep",),
            columns=rows.ENDPOINTS_COLUMNS,
            row=rows.endpoints_row,
        ),
        Kind(
            "",
            "v1",
            "Event",
            "events",
            True,
            f"{_CORE}Event",
            short_names=("ev",),
            columns=rows.EVENT_COLUMNS,
            row=rows.event_row,
            selectable=EVENT_FIELDS,
            fields_of=_event_fields,
            rules=defaults.event_rules,
        ),
        Kind(
            "",
            "v1",
            "LimitRange",
            "limitranges",
            True,
            f"{_CORE}LimitRange",
            short_names=("limits",),
            columns=rows.CREATED_AT,
            row=rows.created_at_row,
        ),
        Kind(
            "",
            "v1",
            "Namespace",
            "namespaces",
            False,
            f"{_CORE}Namespace",
            short_names=("ns",),
            columns=rows.NAMESPACE_COLUMNS,
            row=rows.namespace_row,
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
            has_status=True,
            subresources={"finalize": ("", "v1", "Namespace", ("update",))},
            selectable=("name", "status.phase"),
            fields_of=_phase_field,
            prepare=defaults.namespace,
            name_form="label",
        ),
        Kind(
            "",
            "v1",
            "Node",
            "nodes",
            False,
            f"{_CORE}Node",
            short_names=("no",),
            columns=rows.NODE_COLUMNS,
            row=rows.node_row,
            has_status=True,
            selectable=("spec.unschedulable",),
            fields_of=_node_fields,
            prepare=defaults.node,
        ),
        Kind(
            "",
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            True,
            f"{_CORE}PersistentVolumeClaim",
            short_names=("pvc",),
            columns=rows.CLAIM_COLUMNS,
            row=rows.claim_row,
            has_status=True,
            prepare=defaults.claim,
            rules=defaults.claim_rules,
        ),
        Kind(
            "",
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            False,
            f"{_CORE}PersistentVolume",
            short_names=("pv",),
            columns=rows.VOLUME_COLUMNS,
            row=rows.volume_row,
            has_status=True,
            prepare=defaults.volume,
        ),
        Kind(
            "",
            "v1",
            "Pod",
            "pods",
            True,
            f"{_CORE}Pod",
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
        Kind(
            "",
            "v1",
            "ResourceQuota",
            "resourcequotas",
            True,
            f"{_CORE}ResourceQuota",
            short_names=("quota",),
            columns=rows.QUOTA_COLUMNS,
            row=rows.quota_row,
            has_status=True,
            prepare=defaults.emptied_status,
        ),
        Kind(
            "",
            "v1",
            "Secret",
            "secrets",
            True,
            f"{_CORE}Secret",
            columns=rows.SECRET_COLUMNS,
            row=rows.secret_row,
            selectable=("type",),
            fields_of=_type_field,
            prepare=defaults.secret,
            rules=defaults.secret_rules,
        ),
        Kind(
            "",
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            True,
            f"{_CORE}ServiceAccount",
            short_names=("sa",),
            columns=rows.SERVICE_ACCOUNT_COLUMNS,
            row=rows.aged_row,
            subresources={"token": ("authentication.k8s.io", "v1", "TokenRequest", _CREATE)},
        ),
        Kind(
            "",
            "v1",
            "Service",
            "services",
            True,
            f"{_CORE}Service",
            short_names=("svc",),
            categories=("all",),
            columns=rows.SERVICE_COLUMNS,
            row=rows.service_row,
            has_status=True,
            prepare=defaults.service,
            rules=defaults.service_rules,
            name_form="label",
            selectable=("spec.clusterIP", "spec.type"),
            fields_of=lambda value: {f"spec.{k}": dig(value, "spec", k, default="") for k in ("clusterIP", "type")},
        ),
    ]


def _workloads() -> list[Kind]:
    return [
        Kind(
            "apps",
            "v1",
            "DaemonSet",
            "daemonsets",
            True,
            f"{_APPS}DaemonSet",
            short_names=("ds",),
            categories=("all",),
            columns=rows.DAEMON_SET_COLUMNS,
            row=rows.daemon_set_row,
            has_status=True,
            has_generation=True,
            prepare=defaults.daemon_set,
            rules=defaults.template_rules,
        ),
        Kind(
            "apps",
            "v1",
            "Deployment",
            "deployments",
            True,
            f"{_APPS}Deployment",
            short_names=("deploy",),
            categories=("all",),
            columns=rows.DEPLOYMENT_COLUMNS,
            row=rows.deployment_row,
            has_status=True,
            has_generation=True,
            scale=_REPLICAS,
            prepare=defaults.deployment,
            rules=defaults.template_rules,
        ),
        Kind(
            "apps",
            "v1",
            "ReplicaSet",
            "replicasets",
            True,
            f"{_APPS}ReplicaSet",
            short_names=("rs",),
            categories=("all",),
            columns=rows.REPLICA_SET_COLUMNS,
            row=rows.replica_set_row,
            has_status=True,
            has_generation=True,
            scale=_REPLICAS,
            selectable=("status.replicas",),
            fields_of=_replica_fields,
            prepare=defaults.replica_set,
            rules=defaults.template_rules,
        ),
        Kind(
            "batch",
            "v1",
            "Job",
            "jobs",
            True,
            "io.k8s.api.batch.v1.Job",
            categories=("all",),
            columns=rows.JOB_COLUMNS,
            row=rows.job_row,
            has_status=True,
            has_generation=True,
            selectable=("status.successful",),
            fields_of=_job_fields,
            prepare=defaults.job,
            rules=defaults.template_rules,
        ),
        Kind(
            "policy",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            True,
            "io.k8s.api.policy.v1.PodDisruptionBudget",
            short_names=("pdb",),
            columns=rows.BUDGET_COLUMNS,
            row=rows.budget_row,
            has_status=True,
            has_generation=True,
            prepare=defaults.budget,
            rules=defaults.selector_text_rules,
        ),
    ]


def _small_groups() -> list[Kind]:
    return [
        Kind(
            "coordination.k8s.io",
            "v1",
            "Lease",
            "leases",
            True,
            "io.k8s.api.coordination.v1.Lease",
            columns=rows.LEASE_COLUMNS,
            row=rows.lease_row,
            rules=defaults.lease_rules,
        ),
        Kind(
            "discovery.k8s.io",
            "v1",
            "EndpointSlice",
            "endpointslices",
            True,
            "io.k8s.api.discovery.v1.EndpointSlice",
            columns=rows.SLICE_COLUMNS,
            row=rows.slice_row,
            has_generation=True,
        ),
        Kind(
            "events.k8s.io",
            "v1",
            "Event",
            "events",
            True,
            "io.k8s.api.events.v1.Event",
            short_names=("ev",),
            columns=rows.EVENT_COLUMNS,
            row=rows.event_row,
            stored_as="events",
            selectable=(*EVENT_FIELDS, "reportingController"),
            fields_of=_new_event_fields,
            rules=defaults.event_rules,
        ),
        Kind(
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
            True,
            "io.k8s.api.networking.v1.NetworkPolicy",
            short_names=("netpol",),
            columns=rows.NETWORK_POLICY_COLUMNS,
            row=rows.network_policy_row,
            has_generation=True,
        ),
        Kind(
            "scheduling.k8s.io",
            "v1",
            "PriorityClass",
            "priorityclasses",
            False,
            "io.k8s.api.scheduling.v1.PriorityClass",
            short_names=("pc",),
            columns=rows.PRIORITY_CLASS_COLUMNS,
            row=rows.priority_class_row,
            has_generation=True,
            prepare=defaults.priority_class,
            rules=defaults.priority_class_rules,
        ),
        Kind(
            "storage.k8s.io",
            "v1",
            "StorageClass",
            "storageclasses",
            False,
            "io.k8s.api.storage.v1.StorageClass",
            short_names=("sc",),
            columns=rows.STORAGE_CLASS_COLUMNS,
            row=rows.storage_class_row,
            prepare=defaults.storage_class,
        ),
        Kind(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            False,
            f"{_ADMISSION}ValidatingAdmissionPolicy",
            columns=rows.POLICY_COLUMNS,
            row=rows.admission_policy_row,
            has_status=True,
            has_generation=True,
            categories=("api-extensions",),
            prepare=defaults.admission_policy,
        ),
        Kind(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            False,
            f"{_ADMISSION}ValidatingAdmissionPolicyBinding",
            columns=rows.POLICY_BINDING_COLUMNS,
            row=rows.admission_binding_row,
            has_generation=True,
            categories=("api-extensions",),
        ),
        Kind(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            False,
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            columns=rows.CREATED_AT,
            row=rows.created_at_row,
            has_status=True,
            has_generation=True,
        ),
    ]


def _rights() -> list[Kind]:
    group = "rbac.authorization.k8s.io"
    return [
        Kind(
            group,
            "v1",
            "ClusterRole",
            "clusterroles",
            False,
            f"{_RBAC}ClusterRole",
            columns=rows.CREATED_AT,
            row=rows.created_at_row,
            name_form="path",
        ),
        Kind(
            group,
            "v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
            False,
            f"{_RBAC}ClusterRoleBinding",
            columns=rows.BINDING_COLUMNS,
            row=rows.binding_row,
            name_form="path",
            prepare=defaults.role_binding,
            rules=defaults.role_binding_rules,
        ),
        Kind(
            group,
            "v1",
            "Role",
            "roles",
            True,
            f"{_RBAC}Role",
            columns=rows.CREATED_AT,
            row=rows.created_at_row,
            name_form="path",
        ),
        Kind(
            group,
            "v1",
            "RoleBinding",
            "rolebindings",
            True,
            f"{_RBAC}RoleBinding",
            columns=rows.BINDING_COLUMNS,
            row=rows.binding_row,
            name_form="path",
            prepare=defaults.role_binding,
            rules=defaults.role_binding_rules,
        ),
    ]


REVIEWS = (
    Kind(
        "authentication.k8s.io",
        "v1",
        "SelfSubjectReview",
        "selfsubjectreviews",
        False,
        "io.k8s.api.authentication.v1.SelfSubjectReview",
        verbs=_CREATE,
    ),
    Kind(
        "authentication.k8s.io",
        "v1",
        "TokenReview",
        "tokenreviews",
        False,
        "io.k8s.api.authentication.v1.TokenReview",
        verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        False,
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        False,
        "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        False,
        "io.k8s.api.authorization.v1.SubjectAccessReview",
        verbs=_CREATE,
    ),
)
"""Kinds that are answered and never stored."""


def builtin_kinds() -> list[Kind]:
    """Every built-in kind, in the order of discovery."""
    return [*_core(), *_workloads(), *_small_groups(), *_rights(), *REVIEWS]
