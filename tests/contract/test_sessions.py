"""docs/kubectl.md, which is recorded on a real control plane, is what the embedded server shows too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.kube import Kube
from tests.e2e.record_sessions import DOCUMENT, record, shape
from tests.e2e.sandbox.plane import SandboxPlane
from tests.e2e.worlds.harness import World


@pytest.mark.cluster("kubectl")
def test_the_recorded_sessions_are_the_same_on_the_embedded_server(tmp_path: Path) -> None:
    with SandboxPlane.start(tmp_path / "cluster") as plane:
        plane.kube.close()
        plane.kube = Kube(plane.kubeconfig, kubectl=ensure_binaries().kubectl)
        now = record(World(plane))
    assert shape(now) == shape(DOCUMENT.read_text())
