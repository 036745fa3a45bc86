"""Makes a node fail as a machine does: silently, with its pods neither ended nor reported.

Taking a node from kwok is not enough. kwok plays a stage whose delay has begun even when the node
is no longer its own, so a pod that was being deleted would still vanish. An admission policy
therefore refuses everything that kwok asks about a lost node (its pods, its status, its lease),
as if the network had been cut; only then is the node's label taken away, and given back the other
way round, for kwok looks at a node afresh when it comes back to it.
"""

from __future__ import annotations

from typing import Any

from tests.e2e.control_plane.commands import KWOK_USER
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.control_plane.nodes import MANAGED_LABEL, MANAGED_VALUE
from tests.e2e.control_plane.report import is_ready

_NAME = "edl-test-lost-nodes"
_NAMESPACE = "kube-system"
_WAIT_S = 30.0
_GROUP = "admissionregistration.k8s.io/v1"

_NODE_OF = (
    "request.resource.resource == 'pods' ? "
    "(has(oldObject.spec.nodeName) ? oldObject.spec.nodeName : '') : request.name"
)
_RULES = [
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE", "DELETE"],
        "resources": ["pods", "pods/status", "nodes", "nodes/status"],
    },
    {
        "apiGroups": ["coordination.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE", "DELETE"],
        "resources": ["leases"],
    },
]


def install(kube: Kube) -> None:
    """Create the policy and its empty list of lost nodes."""
    names = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NAME}, "data": {}}
    kube.create(names, _NAMESPACE)
    for kind, spec in (
        ("ValidatingAdmissionPolicy", _policy()),
        ("ValidatingAdmissionPolicyBinding", _binding()),
    ):
        kube.create({"apiVersion": _GROUP, "kind": kind, "metadata": {"name": _NAME}, "spec": spec})


def _policy() -> dict[str, Any]:
    is_kwok = {"name": "kwok", "expression": f"request.userInfo.username == '{KWOK_USER}'"}
    is_not_lost = {
        "expression": "!has(params.data) || !(variables.node in params.data)",
        "message": "the node is lost",
        "reason": "Forbidden",
    }
    return {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": _RULES},
        "matchConditions": [is_kwok],
        "variables": [{"name": "node", "expression": _NODE_OF}],
        "validations": [is_not_lost],
    }


def _binding() -> dict[str, Any]:
    where = {"name": _NAME, "namespace": _NAMESPACE, "parameterNotFoundAction": "Allow"}
    return {"policyName": _NAME, "validationActions": ["Deny"], "paramRef": where}


def lose(kube: Kube, kwok: Kube, node: str) -> None:
    """Cut a node off; returns once kwok can no longer touch it.

    Args:
        kube: the admin.
        kwok: kwok's own identity, with which the policy is tried.
        node: the node's name.
    """
    kube.patch("configmaps", _NAME, {"data": {node: "lost"}}, _NAMESPACE)
    kube.wait_until(lambda: not _may_touch(kwok, node), _WAIT_S, f"kwok is cut off from {node}")
    kube.patch("nodes", node, {"metadata": {"labels": {MANAGED_LABEL: None}}})


def recover(kube: Kube, kwok: Kube, node: str) -> None:
    """Give a lost node back to kwok; returns once kwok may touch it."""
    kube.patch("configmaps", _NAME, {"data": {node: None}}, _NAMESPACE)
    kube.wait_until(lambda: _may_touch(kwok, node), _WAIT_S, f"kwok may touch {node}")
    kube.patch("nodes", node, {"metadata": {"labels": {MANAGED_LABEL: MANAGED_VALUE}}})


def wait_readiness(kube: Kube, node: str, *, ready: bool, timeout_s: float) -> None:
    """Wait until a node is ready, or is not."""
    word = "ready" if ready else "not ready"
    kube.wait_until(lambda: is_ready(kube.get("nodes", node)) is ready, timeout_s, f"node {node} is {word}")


def _may_touch(kwok: Kube, node: str) -> bool:
    patch = {"metadata": {"annotations": {"edl.test/probe": "touch"}}}
    try:
        kwok.patch("nodes", node, patch, subresource="status", dry_run=True)
    except KubeError as error:
        if error.code == 403:
            return False
        raise
    return True
