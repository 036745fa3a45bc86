"""A program of another project beside a control plane of the tests, such as the operator of KubeRay."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.processes import die_with_parent

_STOP_S = 30.0


class ProgramBeside:
    """One process with the kubeconfig of the control plane; it ends with this process.

    Args:
        plane: the control plane.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._process: subprocess.Popen[bytes] | None = None

    def _launch(self, log: str, program: Path, *flags: str, **environment: str) -> None:
        """Start the program; what it prints goes to a file of the control plane's logs.

        Args:
            log: the name of the file.
            program: the executable file.
            flags: of the program.
            environment: further variables.
        """
        with (self._plane.workdir / "logs" / log).open("ab") as file:
            self._process = subprocess.Popen(
                [program, *flags],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "KUBECONFIG": str(self._plane.kubeconfig), **environment},
                preexec_fn=die_with_parent,
            )

    def stop(self) -> None:
        """Kill the program, as a node that is lost does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)
            self._process = None
