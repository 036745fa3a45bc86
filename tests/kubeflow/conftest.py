"""Gives the tests a real control plane with the training operator; without `--on cluster` they are not selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import control_plane, pytest_collection_finish, pytest_runtest_makereport
from tests.e2e.control_plane.cluster import ControlPlane
from tests.kubeflow.programs import kubeflow_on
from tests.kubeflow.scene import NODES, Scene

__all__ = ["control_plane", "pytest_collection_finish", "pytest_runtest_makereport"]


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[Scene]:
    """Two nodes, the training operator, and edl's controller."""
    with ExitStack() as stack:
        plane = control_plane(nodes=NODES)
        yield stack.enter_context(Scene(plane, stack.enter_context(kubeflow_on(plane))))
