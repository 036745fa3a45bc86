"""Gives the tests a real control plane with that controller; without `--on cluster` they are not selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import control_plane, pytest_collection_finish, pytest_runtest_makereport
from tests.e2e.control_plane.cluster import ControlPlane
from tests.lws.programs import lws_on
from tests.lws.scene import NODES, Scene

__all__ = ["control_plane", "pytest_collection_finish", "pytest_runtest_makereport"]


@pytest.fixture
def here(control_plane: Callable[..., ControlPlane]) -> Iterator[Scene]:
    """Two nodes, the controller of LeaderWorkerSets, and edl's controller."""
    with ExitStack() as stack:
        plane = control_plane(nodes=NODES)
        yield stack.enter_context(Scene(plane, stack.enter_context(lws_on(plane))))
