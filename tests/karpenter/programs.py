"""Karpenter on a control plane of the tests, with its own kwok provider: its machines are nodes that kwok pretends.

The NodePool has one type of machine, so that a file of `--expect-nodes` can say what comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.beside import ProgramBeside
from tests.e2e.control_plane.build import KarpenterBinary, ensure_karpenter
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import MANAGED_LABEL, MANAGED_VALUE

Object = dict[str, Any]
CLAIMS, POOLS = "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"
CLASSES = "kwoknodeclasses.karpenter.kwok.sh"
POOL, LABELS = "spot", {"pool": "spot"}
MACHINE = "s-4x-amd64-linux"
"""4 CPUs and 16 GiB, of which the provider keeps 100m and 10 MiB for a kubelet."""

CONSOLIDATE_AFTER_S = 10
COMES_AFTER_S = 5
_WITHIN_S = 60.0


def node_class() -> Object:
    """How the provider makes a node: it appears some seconds after it was ordered."""
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": f"{COMES_AFTER_S}s"},
    }


def node_pool(limit: int) -> Object:
    """A pool of equal machines, of which only empty ones are removed; kwok looks for the label of its nodes."""
    wanted = {"node.kubernetes.io/instance-type": MACHINE, "karpenter.sh/capacity-type": "spot"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {
            "template": {
                "metadata": {"labels": {**LABELS, MANAGED_LABEL: MANAGED_VALUE}},
                "spec": {
                    "requirements": [{"key": k, "operator": "In", "values": [v]} for k, v in wanted.items()],
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                },
            },
            "limits": {"cpu": str(4 * limit)},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": f"{CONSOLIDATE_AFTER_S}s",
                "budgets": [{"nodes": "100%"}],
            },
        },
    }


class Karpenter(ProgramBeside):
    """The one program of Karpenter.

    Args:
        plane: the control plane.
        binary: where the program is.
    """

    def __init__(self, plane: ControlPlane, binary: KarpenterBinary) -> None:
        super().__init__(plane)
        self._binary = binary

    def start(self, limit: int) -> None:
        """Create the resources and the pool, and start the program; returns once the pool is ready.

        Args:
            limit: the most nodes.
        """
        kube = self._plane.kube
        folder, file = self._binary.crds
        kube.kubectl("apply", "--server-side", f"--filename={folder}", f"--filename={file}")
        for resource in (POOLS, CLAIMS, CLASSES):
            is_served = partial(self._is_served, resource)
            kube.wait_until(is_served, _WITHIN_S, f"the API server serves {resource}")
        kube.create(node_class())
        kube.create(node_pool(limit))
        flags = {
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(free_port()),
            "HEALTH_PROBE_PORT": str(free_port()),
            "LOG_LEVEL": "debug",
        }
        self._launch("karpenter.log", self._binary.karpenter, **flags)
        kube.wait_until(self._is_ready, _WITHIN_S, "the NodePool is ready")

    def _is_served(self, resource: str) -> bool:
        return isinstance(self._plane.kube.list(resource), list)

    def _is_ready(self) -> bool:
        conditions = (self._plane.kube.get(POOLS, POOL).get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@contextlib.contextmanager
def karpenter_on(plane: ControlPlane, *, limit: int = 3) -> Iterator[Karpenter]:
    """Karpenter on a control plane, until the end of the block."""
    karpenter = Karpenter(plane, ensure_karpenter())
    try:
        karpenter.start(limit)
        yield karpenter
    finally:
        karpenter.stop()
