"""The two images of the Dockerfile as containers: their user, their content, and that they are compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.cluster.images import CONTROLLER_IMAGE, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster

# Every module of edl that has no bytecode beside it.
NOT_COMPILED = """
import importlib.util, pathlib, edl
found = pathlib.Path(edl.__file__).parent.rglob("*.py")
print([str(path) for path in found if not pathlib.Path(importlib.util.cache_from_source(path)).exists()])
"""


@pytest.fixture(scope="module")
def containers(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """A pod `controller` and a pod `trainer`, each of its image, that only wait."""
    for name, image in (("controller", CONTROLLER_IMAGE), ("trainer", TRAINER_IMAGE)):
        real_cluster.kubectl("run", name, "--image", image, "--command", "--", "sleep", "3600")
    names = ("pod/controller", "pod/trainer")
    real_cluster.kubectl("wait", "--for=condition=Ready", *names, "--timeout=60s", timeout_s=90)
    yield real_cluster
    real_cluster.kubectl("delete", "--now", *names)


@pytest.mark.parametrize("name", ["controller", "trainer"])
def test_nobody_is_root_and_everything_is_compiled(containers: RealCluster, name: str) -> None:
    assert containers.exec(name, "id", "-u").strip() == "65532"
    assert containers.exec(name, "python", "-c", NOT_COMPILED).strip() == "[]"


def test_the_controller_has_its_commands(containers: RealCluster) -> None:
    assert "TrainingJob" in containers.exec("controller", "edl", "crd")
    assert "--journal" in containers.exec("controller", "edl", "master", "--help")


def test_the_base_of_trainers_holds_python_and_edl_and_no_library(containers: RealCluster) -> None:
    containers.exec("trainer", "python", "-c", "import edl.worker")
    installed = containers.exec("trainer", "pip", "list", "--format=freeze").split()
    assert {line.split("==")[0] for line in installed} == {"edl", "pip", "setuptools"}
    assert containers.exec("trainer", "sh", "-c", "touch here && pwd").strip() == "/workspace"


def test_the_helpers_are_where_jobs_of_old_and_new_call_them(containers: RealCluster) -> None:
    for call in ("python /root/k8s_tools.py --help", "k8s_tools --help", "paddle_k8s --help"):
        assert "TrainingJob" in containers.exec("trainer", "sh", "-c", call)
