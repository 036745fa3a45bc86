"""Who may reach the pods of jobs: NetworkPolicies for the namespace of a user, as a Kustomize base of its own."""

from __future__ import annotations

from typing import Any

from edl.api.environment import MASTER_PORT
from edl.model.names import CONTROLLER_NAMESPACE, LABEL_JOB, LABEL_ROLE, Role

Object = dict[str, Any]


def job_network() -> list[Object]:
    """Make NetworkPolicies: pods of jobs and the controller may reach masters, pods of jobs the other pods.

    Pods of all jobs of the namespace may reach each other: a policy cannot ask for the same value of a label, and the
    namespace is the boundary between tenants.
    """
    jobs = {"podSelector": {"matchExpressions": [{"key": LABEL_JOB, "operator": "Exists"}]}}
    controller = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": CONTROLLER_NAMESPACE}}}
    port = [{"protocol": "TCP", "port": MASTER_PORT}]
    return [
        _policy("edl-masters", [Role.MASTER], {"ports": port, "from": [jobs, controller]}),
        _policy("edl-trainers", [Role.TRAINER, Role.PSERVER], {"from": [jobs]}),
    ]


def _policy(name: str, roles: list[Role], allowed: Object) -> Object:
    chosen = {"key": LABEL_ROLE, "operator": "In", "values": [role.value for role in roles]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchExpressions": [chosen]},
            "policyTypes": ["Ingress"],
            "ingress": [allowed],
        },
    }
