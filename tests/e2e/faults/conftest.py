"""One cluster and one controller for all tests of this folder; each test restores them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import PLANES, ControlPlanes, plane_of
from tests.e2e.control_plane.commands import Settings
from tests.e2e.faults.stage import Stage, staged

# A short outage must not look like the loss of every node: kwok does not make pods Ready again as a kubelet does.
SETTINGS = Settings(pod_delete_s=1.0, node_grace_s=40, audit_level="Metadata")


@pytest.fixture(scope="package")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The cluster and the controller of this folder."""
    noticed = request.node.stash.setdefault(PLANES, [])
    planes = ControlPlanes(plane_of(request.config), lambda: tmp_path_factory.mktemp("cluster"), noticed.append)
    try:
        with staged(planes("small", settings=SETTINGS)) as stage:
            yield stage
    finally:
        planes.stop()


@pytest.fixture(autouse=True, scope="module")
def room(running: Stage) -> None:
    """Delete the jobs of one module before the next one starts."""
    running.revive()
    running.clear()


@pytest.fixture
def stage(running: Stage) -> Iterator[Stage]:
    """The cluster and the controller, healthy before and after the test."""
    running.revive()
    running.assert_well()
    yield running
    running.assert_well()
