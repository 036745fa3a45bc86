"""The controller is removed by its manifest. This test runs after all others, which share the controller."""

from __future__ import annotations

from tests.real.cluster.running import RealCluster
from tests.real.mission import MANIFEST, NAMESPACE


def test_a_removed_controller_leaves_nothing(controller: RealCluster) -> None:
    controller.kubectl("delete", "-f", str(MANIFEST), timeout_s=150)
    assert controller.kube.find("namespaces", NAMESPACE) is None
    for kind in ("customresourcedefinitions", "clusterroles", "clusterrolebindings", "priorityclasses"):
        left = [each["metadata"]["name"] for each in controller.kube.list(kind)]
        assert not [name for name in left if "edl" in name or "training" in name]
