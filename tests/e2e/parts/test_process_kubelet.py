"""The process kubelet as a client of an API server: the behaviour of its pods, on the sandbox and on the real one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edl.sandbox.apiserver.rights import KUBELET_CLIENT
from tests.e2e.conftest import plane_of
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.processes import die_with_parent
from tests.sandbox.pods import PodBehaviour


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster whose only nodes are two of the process kubelet."""
    with plane_of(request.config).start(tmp_path_factory.mktemp("cluster"), nodes=()) as made:
        made.kube.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": KUBELET_CLIENT},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "system:kubelet-api-admin",
                },
                "subjects": [
                    {"kind": "User", "name": KUBELET_CLIENT, "apiGroup": "rbac.authorization.k8s.io"},
                ],
            }
        )
        edl = str(Path(sys.executable).with_name("edl"))
        kubelet = subprocess.Popen(
            [edl, "kubelet", "--kubeconfig", str(made.kubeconfig), "--nodes", "2"], preexec_fn=die_with_parent
        )
        try:
            made.kube.wait_until(lambda: len(made.ready_nodes()) == 2, 60, "two nodes are ready")
            yield made
        finally:
            kubelet.terminate()
            assert kubelet.wait(90) == 0


@pytest.fixture
def kube(plane: ControlPlane) -> Kube:
    """A client of that control plane."""
    return plane.kube


class TestPodsOfAProcessKubelet(PodBehaviour):
    """The tests of `PodBehaviour`."""


@pytest.mark.cluster("kubectl")
def test_kubectl_reads_logs(plane: ControlPlane) -> None:
    manifest = "python -c 'print(1)'"
    plane.kube.kubectl("run", "by-kubectl", "--image=busybox", "--restart=Never", "--", "sh", "-c", manifest)
    plane.kube.wait_until(
        lambda: plane.kube.get("pods", "by-kubectl")["status"]["phase"] == "Succeeded", 60, "the pod has ended"
    )
    assert plane.kube.kubectl("logs", "by-kubectl") == "1\n"
