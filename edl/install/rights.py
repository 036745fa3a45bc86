"""The rights of the controller, of `edl shadow` and of users (RBAC); `deploy/` is generated from them.

The ClusterRole contains only the rights that some module uses; `tests/e2e/parts/test_rights.py` compares them with
the audit log of the API server. Namespaced rights are in a Role. What some clusters lack (Volcano, KubeRay, Kubeflow,
Kueue), and what belongs into the namespaces of users (the pod reader), has a Kustomize base of its own.
"""

from __future__ import annotations

from edl.api.queues import QUEUE_PLURAL
from edl.api.v1 import GROUP, PLURAL
from edl.install.objects import CONTROLLER, NAMESPACE, Object

LEASE = "edl-controller"
SHADOW = "edl-shadow"
_READ = ["get", "list", "watch"]
_MIRROR = ["list", "watch"]
_TO_RESIZE = [*_MIRROR, "patch"]
_POD_GROUPS = (
    ("scheduling.k8s.io", ["podgroups"]),
    ("scheduling.volcano.sh", ["podgroups", "queues"]),
    ("scheduling.x-k8s.io", ["podgroups"]),
    ("scheduling.run.ai", ["podgroups"]),
)
_DEVICES = ["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"]
_RBAC = "rbac.authorization.k8s.io"
_METADATA = {"name": CONTROLLER, "namespace": NAMESPACE}


def rights() -> list[Object]:
    """The account of the controller and its rights, and the rights of users to TrainingJobs."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _METADATA},
        {**_role("ClusterRole", CONTROLLER), "rules": _cluster_rules()},
        _binding("ClusterRoleBinding", "ClusterRole", {"name": CONTROLLER}),
        {**_role("Role", CONTROLLER, NAMESPACE), "rules": _lease_rules()},
        _binding("RoleBinding", "Role", _METADATA),
        *_user_roles(),
        shadow_role(),
    ]


def shadow_role() -> Object:
    """The rights of `edl shadow`, which only reads; the administrator binds them."""
    rules = [
        _rule("", ["nodes", "pods", "resourcequotas"], _MIRROR),
        _rule("", ["namespaces", "persistentvolumeclaims", "persistentvolumes"], _MIRROR),
        _rule("storage.k8s.io", ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses"], _MIRROR),
        _rule("resource.k8s.io", _DEVICES, _MIRROR),
        *(_rule(group, kinds, _MIRROR) for group, kinds in _POD_GROUPS),
        _rule("apps", ["daemonsets"], _MIRROR),
        _rule("scheduling.k8s.io", ["priorityclasses"], _MIRROR),
        _rule(GROUP, [PLURAL, QUEUE_PLURAL], _MIRROR),
        # Without these the report says that it could not see such workloads.
        _rule("batch", ["jobs"], _MIRROR),
        _rule("batch.volcano.sh", ["jobs"], _MIRROR),
        _rule("ray.io", ["rayclusters", "rayjobs"], _MIRROR),
        _rule("jobset.x-k8s.io", ["jobsets"], _MIRROR),
        _rule("kubeflow.org", ["mpijobs", "pytorchjobs"], _MIRROR),
        _rule("trainer.kubeflow.org", ["trainjobs"], _MIRROR),
        _rule("leaderworkerset.x-k8s.io", ["leaderworkersets"], _MIRROR),
        _kueue_rule(),
        # Without this rule the report cannot name what may change or reject pods.
        _rule(
            "admissionregistration.k8s.io",
            ["mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies"],
            ["list"],
        ),
    ]
    return {**_role("ClusterRole", SHADOW), "rules": rules}


def shadow_account() -> list[Object]:
    """An account for `edl shadow` in a cluster without edl: all that has to be there before it runs."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SHADOW}},
        shadow_role(),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": SHADOW},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": SHADOW},
            # Kustomize replaces this namespace with the one of the base.
            "subjects": [{"kind": "ServiceAccount", "name": SHADOW, "namespace": "default"}],
        },
    ]


def volcano_rights() -> list[Object]:
    """The additional rights of the controller in a cluster with Volcano."""
    rules = [
        _rule("scheduling.volcano.sh", ["podgroups"], ["create", "get", "patch"]),
        _rule("batch.volcano.sh", ["jobs"], _TO_RESIZE),
    ]
    return _additional_rights("volcano", rules)


def ray_rights() -> list[Object]:
    """The additional rights of the controller in a cluster with KubeRay.

    It writes the RayCluster of a RayJob, and reads in the RayJob whether that is still needed.
    """
    rules = [_rule("ray.io", ["rayclusters"], _TO_RESIZE), _rule("ray.io", ["rayjobs"], _MIRROR)]
    return _additional_rights("kuberay", rules)


def leader_worker_set_rights() -> list[Object]:
    """The additional rights of the controller in a cluster with LeaderWorkerSets."""
    return _additional_rights("lws", [_rule("leaderworkerset.x-k8s.io", ["leaderworkersets"], _TO_RESIZE)])


def kubeflow_rights() -> list[Object]:
    """The additional rights of the controller in a cluster with the training operator of Kubeflow.

    Of JobSets, TrainJobs and MPIJobs it says that it does not resize them.
    """
    rules = [
        _rule("kubeflow.org", ["pytorchjobs"], _TO_RESIZE),
        _rule("kubeflow.org", ["mpijobs"], _MIRROR),
        _rule("trainer.kubeflow.org", ["trainjobs"], _MIRROR),
        _rule("jobset.x-k8s.io", ["jobsets"], _MIRROR),
    ]
    return _additional_rights("kubeflow", rules)


def kueue_rights() -> list[Object]:
    """The additional rights of the controller in a cluster with Kueue: it reads, and writes nothing of Kueue's."""
    return _additional_rights("kueue", [_kueue_rule()])


def kueue_trainingjob_rights() -> list[Object]:
    """The additional rights of the controller for jobs whose Workloads it makes: TrainingJobs, Jobs and PyTorchJobs.

    It reads the pod template of a Job or PyTorchJob when it makes a Workload. It removes the start time of a
    suspended Job, because an older API server accepts no other template while a Job has one.
    """
    group = "kueue.x-k8s.io"
    rules = [
        _rule("batch", ["jobs"], ["get"]),
        _rule("batch", ["jobs/status"], ["patch"]),
        _rule("kubeflow.org", ["pytorchjobs"], ["get"]),
        _rule(group, ["workloads"], ["create", "delete", "get"]),
        _rule(group, ["workloads/status"], ["patch"]),
        _rule(group, ["workloadpriorityclasses"], ["get"]),
    ]
    return _additional_rights("kueue-trainingjobs", rules)


def _additional_rights(of: str, rules: list[Object]) -> list[Object]:
    """Make a role for a further system in the cluster, named after it, and the controller's binding to the role."""
    name = f"{CONTROLLER}-{of}"
    binding = _binding("ClusterRoleBinding", "ClusterRole", {"name": name})
    binding["roleRef"]["name"] = name
    return [{**_role("ClusterRole", name), "rules": rules}, binding]


def _kueue_rule() -> Object:
    kinds = ["clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads"]
    return _rule("kueue.x-k8s.io", kinds, _MIRROR)


def pod_reader() -> list[Object]:
    """An example for the namespace of a user: an account that lets `k8s_tools` read the pods of a job."""
    name = "edl-pod-reader"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {**_role("Role", name), "rules": [_rule("", ["pods"], ["get", "list"])]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            # Kustomize replaces this namespace with the one of the base.
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    ]


def _cluster_rules() -> list[Object]:
    # Garbage collection deletes the Services and Secrets of a job, so the controller needs no right to delete them.
    return [
        _rule("", ["nodes"], _MIRROR),
        _rule("", ["pods"], [*_MIRROR, "get", "create", "delete", "patch"]),
        # Without this rule no trainer that runs lends CPU, and nothing else changes.
        _rule("", ["pods/resize"], ["patch"]),
        _rule("", ["services"], ["create", "get"]),
        _rule("", ["persistentvolumeclaims"], [*_MIRROR, "create", "get"]),
        # Without these rules edl knows no rule of volumes, and no namespace by its labels; nothing else changes.
        _rule("", ["namespaces", "persistentvolumes"], _MIRROR),
        _rule("", ["secrets"], ["create"]),
        _rule("", ["events"], ["create", "get", "patch"]),
        _rule("apps", ["daemonsets"], _MIRROR),
        # Without this rule edl resizes no Job, and nothing else changes.
        _rule("batch", ["jobs"], [*_MIRROR, "patch"]),
        _rule("", ["resourcequotas"], _MIRROR),
        _rule("scheduling.k8s.io", ["priorityclasses"], _MIRROR),
        _rule("storage.k8s.io", ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses"], _MIRROR),
        # Without this rule edl does not count devices by claim; nothing else changes.
        _rule("resource.k8s.io", _DEVICES, _MIRROR),
        # Without these rules edl does not know which serving pods start only together, or wait for a full queue.
        *(_rule(group, kinds, _MIRROR) for group, kinds in _POD_GROUPS),
        _rule(GROUP, [PLURAL], [*_MIRROR, "delete"]),
        _rule(GROUP, [f"{PLURAL}/status"], ["patch"]),
        # Without this rule edl reads no Queue, and only the file of --queues counts.
        _rule(GROUP, [QUEUE_PLURAL], _MIRROR),
        _rule(GROUP, [f"{QUEUE_PLURAL}/status"], ["patch"]),
    ]


def _lease_rules() -> list[Object]:
    # Kubernetes cannot limit `create` to a name, because the request does not contain one.
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
    # Queues have no namespace: bind this one with a ClusterRoleBinding. Only a cluster's administrator writes them.
    roles.append({**_role("ClusterRole", f"edl-{QUEUE_PLURAL}-view"), "rules": [_rule(GROUP, [QUEUE_PLURAL], _READ)]})
    return roles


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
