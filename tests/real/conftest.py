"""The cluster of real kubelets that the tests of this folder share: one start for all of them.

These tests need root and Debian packages, so plain `pytest` leaves them out; `make real-test` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edl import __version__
from tests.real.cluster.running import RealCluster

CONTROLLER_IMAGE = f"docker.io/edl/edl-controller:{__version__}"
TRAINER_IMAGE = "edl.test/trainer-base:1"

_CLUSTER = pytest.StashKey[RealCluster]()


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two ready nodes with the base image and edl's two images; stopped when the session ends."""
    with RealCluster.start(tmp_path_factory.mktemp("real")) as cluster:
        request.session.stash[_CLUSTER] = cluster
        cluster.import_base()
        cluster.build_image(TRAINER_IMAGE, target="trainer-base")
        cluster.build_image(CONTROLLER_IMAGE, target="controller")
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the cluster's logs to the report of a failure."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    cluster = item.session.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None:
        report.sections.append((f"cluster in {cluster.workdir}", cluster.logs()))
    return report  # type: ignore[return-value]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what starts a cluster of its own: only one runs at a time, and the shared one stays until the end."""
    items.sort(key=lambda item: "real_cluster" in getattr(item, "fixturenames", ()))
