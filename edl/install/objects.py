"""Everything that installs the controller in a cluster, as dictionaries: the one source of `deploy/`.

Least privilege, and enough: each right of the ClusterRole is one that some module uses;
`tests/e2e/parts/test_rights.py` compares them with the API server's audit log. Namespaced rights stand in a Role.
Anything that a cluster may lack (Volcano) or that belongs into users' namespaces (the pod reader) is left to further
bases.
"""

from __future__ import annotations

from typing import Any

from edl import __version__
from edl.api.manifest import PRIORITY_CORE, PRIORITY_SURPLUS, PRIORITY_TRAINING
from edl.api.v1 import GROUP, PLURAL, VERSION
from edl.model.names import CONTROLLER_NAMESPACE

NAMESPACE = CONTROLLER_NAMESPACE
CONTROLLER = "training-job-controller"
LEASE = "edl-controller"
KEY_SECRET = "edl-master-key"  # noqa: S105 - a name
IMAGE = f"edl/edl-controller:{__version__}"

COMPONENT_LABELS = {"app.kubernetes.io/name": "edl", "app.kubernetes.io/component": "controller"}
_USER = 65532
_PORT = 8080
_KEY_DIRECTORY = "/var/run/secrets/edl"
_READ = ["get", "list", "watch"]
_MIRROR = ["list", "watch"]
_RBAC = "rbac.authorization.k8s.io"

Object = dict[str, Any]


def namespace() -> list[Object]:
    """The controller's own namespace, under the restricted pod security standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}]


def priority_classes() -> list[Object]:
    """Training yields to everything with a priority of 0 or more, its surplus first, and preempts nobody."""
    meanings = (
        (PRIORITY_CORE, -1, "masters and parameter servers of training jobs"),
        (PRIORITY_TRAINING, -5, "trainers up to the min-instance of their job"),
        (PRIORITY_SURPLUS, -100, "trainers beyond the min-instance of their job: serving preempts them first"),
    )
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
            "description": description,
        }
        for name, value, description in meanings
    ]


def rights() -> list[Object]:
    """The controller's account and what it may do; and who may write TrainingJobs, by the cluster's usual roles."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {**_role("ClusterRole", CONTROLLER), "rules": _cluster_rules()},
        _binding("ClusterRoleBinding", "ClusterRole", {"name": CONTROLLER}),
        {**_role("Role", CONTROLLER, NAMESPACE), "rules": _lease_rules()},
        _binding("RoleBinding", "Role", _metadata()),
        *_user_roles(),
    ]


def volcano_rights() -> list[Object]:
    """What the controller needs besides where Volcano is installed."""
    name = f"{CONTROLLER}-volcano"
    rule = _rule("scheduling.volcano.sh", ["podgroups"], ["create", "get"])
    binding = _binding("ClusterRoleBinding", "ClusterRole", {"name": name})
    binding["roleRef"]["name"] = name
    return [{**_role("ClusterRole", name), "rules": [rule]}, binding]


def pod_reader() -> list[Object]:
    """An example for a user's namespace: an account with which `k8s_tools` finds a job's pods through the API."""
    name = "edl-pod-reader"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {**_role("Role", name), "rules": [_rule("", ["pods"], ["get", "list"])]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            # Kustomize writes the namespace of the base here too.
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    ]


def workload() -> list[Object]:
    """The Deployment and what stands around it."""
    return [_deployment(), _service(), _disruption_budget(), _network_policy()]


def admission() -> list[Object]:
    """What the rules of a CRD cannot see: who asks, and in which namespace."""
    name = f"{PLURAL}.{GROUP}"
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {"failurePolicy": "Fail", "matchConstraints": _matched(), "validations": _validations()},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _matched() -> Object:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [PLURAL],
    }
    return {"resourceRules": [rule]}


def _validations() -> list[Object]:
    # Controllers of the cluster change metadata (finalizers) of jobs without the right to create pods.
    judged = "request.operation == 'CREATE' || object.spec != oldObject.spec"
    may_create_pods = "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()"
    return [
        {
            "expression": f"request.operation != 'CREATE' || request.namespace != '{NAMESPACE}'",
            "message": f"TrainingJobs must not run in {NAMESPACE}, the controller's own namespace; use another one",
            "reason": "Forbidden",
        },
        {
            "expression": f"!({judged}) || {may_create_pods}",
            "message": "a TrainingJob creates pods: you need the right to create pods in this namespace",
            "reason": "Forbidden",
        },
    ]


def _cluster_rules() -> list[Object]:
    # What a job owns beside its pods goes with the job by garbage collection: no right to delete Services or Secrets.
    return [
        _rule("", ["nodes"], _MIRROR),
        _rule("", ["pods"], [*_MIRROR, "get", "create", "delete", "patch"]),
        _rule("", ["services"], ["create", "get"]),
        _rule("", ["persistentvolumeclaims"], ["create", "get"]),
        _rule("", ["secrets"], ["create"]),
        _rule("", ["events"], ["create", "get", "patch"]),
        _rule("apps", ["daemonsets"], _MIRROR),
        _rule("scheduling.k8s.io", ["priorityclasses"], _MIRROR),
        _rule("storage.k8s.io", ["storageclasses"], ["list"]),
        _rule(GROUP, [PLURAL], [*_MIRROR, "delete"]),
        _rule(GROUP, [f"{PLURAL}/status"], ["patch"]),
    ]


def _lease_rules() -> list[Object]:
    # A right to create cannot be narrowed to a name: the request does not carry one yet.
    group = "coordination.k8s.io"
    return [
        _rule(group, ["leases"], ["create"]),
        {**_rule(group, ["leases"], ["get", "update"]), "resourceNames": [LEASE]},
    ]


def _user_roles() -> list[Object]:
    roles = []
    for suffix, audience, verbs in (
        ("edit", ("admin", "edit"), [*_READ, "create", "update", "patch", "delete", "deletecollection"]),
        ("view", ("view",), _READ),
    ):
        resources = [PLURAL, f"{PLURAL}/scale"] if suffix == "edit" else [PLURAL, f"{PLURAL}/status"]
        role = _role("ClusterRole", f"edl-{PLURAL}-{suffix}")
        role["metadata"]["labels"] = {f"{_RBAC}/aggregate-to-{name}": "true" for name in audience}
        roles.append({**role, "rules": [_rule(GROUP, resources, verbs)]})
    return roles


def _deployment() -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(labels=COMPONENT_LABELS),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": COMPONENT_LABELS},
            "template": {"metadata": {"labels": COMPONENT_LABELS}, "spec": _pod_spec()},
        },
    }


def _pod_spec() -> Object:
    spread = {
        "labelSelector": {"matchLabels": COMPONENT_LABELS},
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    return {
        "serviceAccountName": CONTROLLER,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [spread],
        "containers": [_container()],
        "volumes": [
            # The leader makes the Secret where it is missing; the kubelet then fills the folder.
            {"name": "key", "secret": {"secretName": KEY_SECRET, "optional": True, "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def _container() -> Object:
    return {
        "name": "controller",
        "image": IMAGE,
        "command": ["edl", "controller"],
        "args": [
            f"--namespace={NAMESPACE}",
            f"--listen=0.0.0.0:{_PORT}",
            f"--key-file={_KEY_DIRECTORY}/key",
            # The line `Cluster.InquiryResource done`, which users look for in `kubectl logs`, is said at this level.
            "--log-level=debug",
        ],
        # Masters run in the controller's own image: change both places at once.
        "env": [{"name": "EDL_MASTER_IMAGE", "value": IMAGE}],
        "ports": [{"name": "http", "containerPort": _PORT}],
        "livenessProbe": {**_probe("/healthz"), "initialDelaySeconds": 10, "failureThreshold": 6},
        "readinessProbe": _probe("/readyz"),
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "key", "mountPath": _KEY_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a folder of the container
        ],
    }


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}


def _service() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(labels=COMPONENT_LABELS),
        "spec": {"selector": COMPONENT_LABELS, "ports": [{"name": "http", "port": _PORT, "targetPort": "http"}]},
    }


def _disruption_budget() -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": COMPONENT_LABELS}},
    }


def _network_policy() -> Object:
    """In: metrics. Out: names, the API server on its usual ports, the masters."""
    out = [("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443), ("TCP", _PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(),
        "spec": {
            "podSelector": {"matchLabels": COMPONENT_LABELS},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": _PORT}]}],
            "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in out]}],
        },
    }


def _metadata(labels: dict[str, str] | None = None) -> Object:
    return {"name": CONTROLLER, "namespace": NAMESPACE, **({"labels": labels} if labels else {})}


def _role(kind: str, name: str, namespace: str | None = None) -> Object:
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata}


def _rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _binding(kind: str, role: str, metadata: Object) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role, "name": CONTROLLER},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": NAMESPACE}],
    }
