"""KubeRay on a control plane of the tests: its resources as published, and its operator."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from edl.sandbox.stack import free_port
from tests.e2e.control_plane.build import KubeRayBinary, ensure_kuberay
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.processes import die_with_parent

CLUSTERS = "rayclusters.ray.io"
_WITHIN_S = 60.0
_STOP_S = 30.0


class KubeRay:
    """The one program of KubeRay.

    Args:
        plane: the control plane.
        binary: where the program is.
    """

    def __init__(self, plane: ControlPlane, binary: KubeRayBinary) -> None:
        self._plane, self.binary = plane, binary
        self._process: subprocess.Popen[bytes] | None = None

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
        with (self._plane.workdir / "logs" / "kuberay.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary.ray_operator, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(self._plane.kubeconfig)},
                preexec_fn=die_with_parent,
            )

    def stop(self) -> None:
        """Kill the operator, as a node that is lost does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)
            self._process = None

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
