"""The Kubernetes objects that install the controller, as dictionaries; `deploy/` is generated from them.

Roles and bindings are in `rights`.
"""

from __future__ import annotations

from typing import Any

from edl import __version__
from edl.api.priorities import PRIORITY_CORE, PRIORITY_SURPLUS, PRIORITY_TRAINING
from edl.api.v1 import GROUP, PLURAL, VERSION
from edl.model.names import (
    CONTROLLER_NAMESPACE,
    KEY_SECRET,
    PRIORITY_BEST_EFFORT,
    PRIORITY_BEST_EFFORT_SURPLUS,
    SURPLUS_VALUE,
)

NAMESPACE = CONTROLLER_NAMESPACE
CONTROLLER = "training-job-controller"
IMAGE = f"edl/edl-controller:{__version__}"
RESOURCES = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}
"""The requests and limits of a controller on a thousand nodes."""

COMPONENT_LABELS = {"app.kubernetes.io/name": "edl", "app.kubernetes.io/component": "controller"}
_USER = 65532
_PORT = 8080
_KEY_DIRECTORY = "/var/run/secrets/edl"

Object = dict[str, Any]


def namespace() -> list[Object]:
    """The namespace of the controller, with the restricted pod security standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}]


def priority_classes() -> list[Object]:
    """The PriorityClasses, all below 0: serving preempts training, surplus trainers first; training preempts nothing.

    Minimums of jobs without requests are at the cutoff (-10) below which Cluster Autoscaler adds no node for a pod.
    """
    meanings = (
        (PRIORITY_CORE, -1, "masters and parameter servers of training jobs"),
        (PRIORITY_TRAINING, -5, "trainers up to the min-instance of their job"),
        (PRIORITY_BEST_EFFORT, -10, "trainers without requests, up to the min-instance of their job"),
        (
            PRIORITY_SURPLUS,
            SURPLUS_VALUE,
            "trainers above the min-instance of their job; serving preempts them first",
        ),
        (PRIORITY_BEST_EFFORT_SURPLUS, -1000, "trainers without requests, above the min-instance of their job"),
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


def workload() -> list[Object]:
    """The Deployment, its Service, its PodDisruptionBudget and its NetworkPolicy."""
    return [_deployment(), _service(), _disruption_budget(), _network_policy()]


def admission() -> list[Object]:
    """The admission rules that need the user or the namespace, which the rules of a CRD cannot see."""
    name = f"{PLURAL}.{GROUP}"
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": _match_constraints(),
                "validations": _validations(),
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _match_constraints() -> Object:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [PLURAL],
    }
    return {"resourceRules": [rule]}


def _validations() -> list[Object]:
    # Only a changed spec is checked: cluster controllers without the right to create pods may change metadata.
    is_checked = "request.operation == 'CREATE' || object.spec != oldObject.spec"
    may_create_pods = "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()"
    return [
        {
            "expression": f"request.operation != 'CREATE' || request.namespace != '{NAMESPACE}'",
            "message": f"TrainingJobs must not run in {NAMESPACE}, the controller's own namespace; use another one",
            "reason": "Forbidden",
        },
        {
            "expression": f"!({is_checked}) || {may_create_pods}",
            "message": "a TrainingJob creates pods: you need the right to create pods in this namespace",
            "reason": "Forbidden",
        },
    ]


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
            # The leader creates the Secret if it is missing; then the kubelet fills the folder.
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
            # Users look for the line `Cluster.InquiryResource done` in `kubectl logs`; it has this level.
            "--log-level=debug",
        ],
        # Masters run in the image of the controller: change both images together.
        "env": [{"name": "EDL_MASTER_IMAGE", "value": IMAGE}],
        "ports": [{"name": "http", "containerPort": _PORT}],
        "livenessProbe": {**_probe("/healthz"), "initialDelaySeconds": 10, "failureThreshold": 6},
        "readinessProbe": _probe("/readyz"),
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "key", "mountPath": _KEY_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a folder in the container
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
    """The NetworkPolicy of the controller. In: metrics. Out: DNS, the API server, the masters."""
    egress = [("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443), ("TCP", _PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(),
        "spec": {
            "podSelector": {"matchLabels": COMPONENT_LABELS},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": _PORT}]}],
            "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in egress]}],
        },
    }


def _metadata(labels: dict[str, str] | None = None) -> Object:
    return {"name": CONTROLLER, "namespace": NAMESPACE, **({"labels": labels} if labels else {})}
