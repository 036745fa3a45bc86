"""The cluster of real kubelets that the tests of this folder share: one start for all of them.

These tests need root and Debian packages, so plain `pytest` leaves them out; `make real-missions`
runs them, `make real-test` a part.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.control_plane.build import ensure_binaries, ensure_node_binaries
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster import images
from tests.real.cluster.layout import NodeSpec
from tests.real.cluster.needs import check_machine
from tests.real.cluster.running import TWO_NODES, RealCluster
from tests.real.mission import installed

THREE_NODES = tuple(NodeSpec(f"node-{number}") for number in (1, 2, 3))
_FIGURES = pytest.StashKey[list[str]]()
_CLUSTER = pytest.StashKey[RealCluster]()
_LINES = {"paddlecloud": 200}
"""The last lines of a pod's log in the report of a failure, by namespace; 20 in the others."""


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two ready nodes with the base image and edl's two images; stopped when the session ends.

    Where `EDL_REAL_CLUSTER` names the folder of one that runs, that one as it is.
    """
    running = os.environ.get("EDL_REAL_CLUSTER")
    make = (
        partial(RealCluster.attach, Path(running).resolve())
        if running
        else partial(_start, request, tmp_path_factory)
    )
    with make() as cluster:
        request.session.stash[_CLUSTER] = cluster
        yield cluster
        request.config.stash[_FIGURES].append(f"{cluster.memory_bytes() / 1e9:.2f} GB at the end")
        began = time.monotonic()
    request.config.stash[_FIGURES].append(f"stopped in {time.monotonic() - began:.1f} s")


@pytest.fixture(scope="session")
def controller(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """The same cluster with the controller at work; installed once, by the first test that asks for it."""
    with installed(real_cluster) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Another cluster, of three nodes, with the controller at work; for one module, before the shared one starts."""
    with _start(request, tmp_path_factory, THREE_NODES) as cluster, installed(cluster):
        request.session.stash[_CLUSTER] = cluster
        yield cluster
        del request.session.stash[_CLUSTER]


def _start(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    specs: tuple[NodeSpec, ...] = TWO_NODES,
) -> RealCluster:
    figures, began = request.config.stash[_FIGURES], time.monotonic()
    cluster = RealCluster.start(tmp_path_factory.mktemp("real"), specs=specs)
    figures.append(f"{len(specs)} nodes ready after {time.monotonic() - began:.1f} s")
    try:
        cluster.import_base()
        cluster.build_own_images()
    except BaseException:
        cluster.stop()
        raise
    figures.append(f"three images on {len(specs)} nodes after {time.monotonic() - began:.0f} s")
    return cluster


def pytest_configure(config: pytest.Config) -> None:
    """Make room for what the cluster costs."""
    config.stash[_FIGURES] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and fetch what is missing, with the progress in sight; say at once what the machine lacks."""
    here = Path(__file__).parent
    if session.config.option.collectonly or not any(item.path.is_relative_to(here) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            check_machine()
            ensure_binaries()
            ensure_node_binaries()
            images.fetch()
        except ControlPlaneError as error:
            pytest.exit(str(error), returncode=1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what the cluster cost."""
    if figures := config.stash[_FIGURES]:
        terminalreporter.write_line(f"cluster of real kubelets: {', '.join(figures)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the pods say, and the cluster's logs, to the report of a failure."""
    report = yield
    cluster = item.session.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None:
        report.sections.append(("pods", _report_of_pods(cluster)))
        report.sections.append((f"cluster in {cluster.workdir}", cluster.logs()))
    return report


def _report_of_pods(cluster: RealCluster) -> str:
    """Where every pod stands, the last lines of the log of each, and the status of every job."""
    rows = _ask(
        cluster, "get", "pods", "-A", "--no-headers", "-o", "custom-columns=:.metadata.namespace,:.metadata.name"
    )
    logs = []
    for namespace, pod in (row.split() for row in rows.splitlines() if len(row.split()) == 2):
        lines = _ask(cluster, "logs", f"--namespace={namespace}", f"--tail={_LINES.get(namespace, 20)}", pod)
        logs.append(f"--- pod/{pod}\n{lines}")
    jobs = _ask(cluster, "get", "tj", "-A", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status}{'\\n'}{end}")
    return "\n".join([_ask(cluster, "get", "pods", "-A", "-o", "wide"), *logs, "--- jobs", jobs])


def _ask(cluster: RealCluster, *arguments: str) -> str:
    """What kubectl prints, or how it fails: the reported failure must not be hidden by another one."""
    try:
        return cluster.kubectl(*arguments)
    except (ControlPlaneError, subprocess.SubprocessError) as error:
        return str(error)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what starts a cluster of its own, for only one runs at a time; last what removes the controller."""
    items.sort(
        key=lambda item: ("real_cluster" in getattr(item, "fixturenames", ()), item.path.stem == "test_removal")
    )
