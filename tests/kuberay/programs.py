"""KubeRay on a control plane of the tests: its resources as published, and its operator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.beside import ProgramBeside
from tests.e2e.control_plane.build import KubeRayBinary, ensure_kuberay
from tests.e2e.control_plane.cluster import ControlPlane

CLUSTERS = "rayclusters.ray.io"
_WITHIN_S = 60.0


class KubeRay(ProgramBeside):
    """The one program of KubeRay.

    Args:
        plane: the control plane.
        binary: where the program is.
    """

    def __init__(self, plane: ControlPlane, binary: KubeRayBinary) -> None:
        super().__init__(plane)
        self.binary = binary

    def install(self) -> None:
        """Create the resources."""
        kube = self._plane.kube
        kube.kubectl("apply", "--server-side", f"--filename={self.binary.crds}")
        kube.wait_until(self._is_served, _WITHIN_S, f"the API server serves {CLUSTERS}")

    def start(self) -> None:
        """Start the operator."""
        flags = (
            "--enable-leader-election=false",
            f"--metrics-addr=127.0.0.1:{free_port()}",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        )
        self._launch("kuberay.log", self.binary.ray_operator, *flags)

    def _is_served(self) -> bool:
        return isinstance(self._plane.kube.list(CLUSTERS), list)


@contextlib.contextmanager
def kuberay_on(plane: ControlPlane) -> Iterator[KubeRay]:
    """KubeRay on a control plane, until the end of the block."""
    kuberay = KubeRay(plane, ensure_kuberay())
    try:
        kuberay.install()
        kuberay.start()
        yield kuberay
    finally:
        kuberay.stop()
