"""A real Kubernetes control plane on the machine at hand, for tests and for trying edl.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real ones; kwok stands in
for the kubelets, so nodes are free and pods only pretend to run.
"""

from tests.e2e.control_plane.build import Binaries, ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import Kube, KubeError, WaitTimeoutError
from tests.e2e.control_plane.nodes import NodeSpec, load_mix, make_nodes
from tests.e2e.control_plane.versions import ControlPlaneError

__all__ = [
    "Binaries",
    "ControlPlane",
    "ControlPlaneError",
    "Kube",
    "KubeError",
    "NodeSpec",
    "Settings",
    "WaitTimeoutError",
    "ensure_binaries",
    "load_mix",
    "make_nodes",
]
