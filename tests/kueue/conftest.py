"""Gives the tests one control plane with Kueue; without `--on cluster` they are not selected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.e2e.conftest import PLANES, ControlPlanes, plane_of, pytest_runtest_makereport
from tests.kubeflow.programs import kubeflow_on
from tests.kuberay.programs import kuberay_on
from tests.kueue.owned_jobs import OwnedScene, TorchScene
from tests.kueue.programs import kueue_on
from tests.kueue.ray_clusters import RayScene
from tests.kueue.scene import NODES, Cluster, Scene
from tests.kueue.training_jobs import TrainingScene

__all__ = ["pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, Kueue, and edl's controller."""
    noticed = request.session.stash.setdefault(PLANES, [])
    planes = ControlPlanes(plane_of(request.config), lambda: tmp_path_factory.mktemp("cluster"), noticed.append)
    with ExitStack() as stack:
        stack.callback(planes.stop)
        plane = planes(nodes=NODES)
        yield stack.enter_context(Cluster(plane, stack.enter_context(kueue_on(plane))))


@pytest.fixture
def here(cluster: Cluster) -> Iterator[Scene]:
    """A namespace of its own."""
    with closing(Scene(cluster)) as scene:
        yield scene


@pytest.fixture
def there(cluster: Cluster) -> Iterator[TrainingScene]:
    """The same for TrainingJobs."""
    with closing(TrainingScene(cluster)) as scene:
        yield scene


@pytest.fixture
def owned(cluster: Cluster) -> Iterator[OwnedScene]:
    """The same for Jobs whose Workloads edl makes."""
    with closing(OwnedScene(cluster)) as scene:
        yield scene


@pytest.fixture(scope="session")
def with_operator(cluster: Cluster) -> Iterator[Cluster]:
    """The training operator on the same control plane, with Kueue's integration of its kind."""
    with kubeflow_on(cluster.world.plane):
        cluster.add_frameworks("kubeflow", "kubeflow.org/pytorchjob")
        yield cluster


@pytest.fixture(scope="session")
def with_kuberay(cluster: Cluster) -> Iterator[Cluster]:
    """KubeRay on the same control plane, with Kueue's integrations of its kinds."""
    with kuberay_on(cluster.world.plane):
        cluster.add_frameworks("kuberay", "ray.io/raycluster", "ray.io/rayjob")
        yield cluster


@pytest.fixture
def ray(with_kuberay: Cluster) -> Iterator[RayScene]:
    """A namespace of its own for RayClusters and RayJobs."""
    with closing(RayScene(with_kuberay)) as scene:
        yield scene


@pytest.fixture
def own_scene(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[OwnedScene]:
    """A scene of Jobs, or of PyTorchJobs beside their operator."""
    is_torch = request.param == "pytorchjobs"
    there: Cluster = request.getfixturevalue("with_operator") if is_torch else cluster
    with closing(TorchScene(there) if is_torch else OwnedScene(there)) as scene:
        yield scene
