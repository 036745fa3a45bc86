"""Gives tests a cluster, a sandbox or (`--on cluster`) a real control plane, and shows its logs when a test fails.

`control_plane` starts new clusters. `shared_control_plane` returns one cluster for each mix and settings for the
whole session, for tests that use a namespace of their own. If `EDL_E2E_KUBECONFIG` names a real cluster, both use
that one. The programs of the real one are built before the first test, outside its timeout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.sandbox.plane import SandboxPlane

_FIXTURES = {"control_plane", "shared_control_plane", "running", "plane", "servers"}
PLANES = pytest.StashKey[list[ControlPlane]]()


class ControlPlanes:
    """Starts clusters in a folder and stops all of them.

    Args:
        kind: what a cluster is made of; see `plane_of`.
        folder: makes a folder for a cluster.
        notice: is called with each cluster.
    """

    def __init__(
        self, kind: type[ControlPlane], folder: Callable[[], Path], notice: Callable[[ControlPlane], None]
    ) -> None:
        self._kind, self._folder = kind, folder
        self._notice = notice
        self._started: list[ControlPlane] = []

    def __call__(
        self,
        mix: str | Path = "small",
        *,
        nodes: Sequence[NodeSpec] | None = None,
        pod_delete_s: float = 1.0,
        pod_ready_s: float = 0.5,
        settings: Settings | None = None,
    ) -> ControlPlane:
        """Start a cluster. `nodes` overrides `mix`, and `settings` overrides the two delays."""
        settings = settings or Settings(pod_delete_s=pod_delete_s, pod_ready_s=pod_ready_s)
        wanted = mix if nodes is None else nodes
        folder = self._folder()
        running = os.environ.get("EDL_E2E_KUBECONFIG")
        if running and self._kind is ControlPlane:
            plane = ControlPlane.attach(Path(running), folder, nodes=wanted, settings=settings)
        else:
            plane = self._kind.start(folder, nodes=wanted, settings=settings)
        self._started.append(plane)
        self._notice(plane)
        return plane

    def stop(self) -> None:
        """Stop them all, the last first."""
        while self._started:
            self._started.pop().stop()


class SharedControlPlanes:
    """Returns one cluster for each mix and settings."""

    def __init__(self, planes: ControlPlanes) -> None:
        self._planes = planes
        self._running: dict[tuple[str, Settings], ControlPlane] = {}

    def __call__(self, mix: str = "small", *, pod_delete_s: float = 1.0, pod_ready_s: float = 0.5) -> ControlPlane:
        """The session's cluster of this kind; the first call starts it."""
        settings = Settings(pod_delete_s=pod_delete_s, pod_ready_s=pod_ready_s)
        key = (mix, settings)
        if key not in self._running:
            self._running[key] = self._planes(mix, settings=settings)
        return self._running[key]


def plane_of(config: pytest.Config) -> type[ControlPlane]:
    """What the clusters of a run are made of: `--on`."""
    return ControlPlane if config.getoption("--on") == "cluster" else SandboxPlane


@pytest.fixture
def is_full_campaign(request: pytest.FixtureRequest) -> bool:
    """Whether `--campaign full` asks for the full length."""
    return bool(request.config.getoption("--campaign") == "full")


@pytest.fixture
def control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlanes]:
    """A function that starts a fresh cluster; all are stopped when the test ends."""
    noticed = request.node.stash.setdefault(PLANES, [])
    planes = ControlPlanes(plane_of(request.config), lambda: tmp_path_factory.mktemp("cluster"), noticed.append)
    try:
        yield planes
    finally:
        planes.stop()


@pytest.fixture(scope="session")
def shared_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedControlPlanes]:
    """A function that gives the session's cluster of a kind; stopped when the session ends."""
    noticed = request.session.stash.setdefault(PLANES, [])
    planes = ControlPlanes(plane_of(request.config), lambda: tmp_path_factory.mktemp("cluster"), noticed.append)
    try:
        yield SharedControlPlanes(planes)
    finally:
        planes.stop()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing programs if a test needs them, and show the progress."""
    if session.config.option.collectonly or session.config.getoption("--on") != "cluster":
        return
    if not any(_FIXTURES & set(getattr(item, "fixturenames", ())) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ensure_binaries()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of a test's clusters to the report if it fails."""
    report = yield
    if report.when == "call" and report.failed:
        for plane in [plane for node in item.listchain() for plane in node.stash.get(PLANES, [])]:
            report.sections.append((f"control plane in {plane.workdir}", plane.logs()))
    return report
